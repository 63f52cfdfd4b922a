"""Stops runs at random moments, each on its own terminal, and checks what is left of them.

    python scripts/check_signals.py --runs 20 --jobs 2 --out runs/signals

Ctrl-C is typed (the terminal signals the whole foreground group), SIGTERM is sent to the command, and for SIGHUP the
terminal is closed, as by a dropped ssh. Afterwards: the exit code is 130, 143 or 129; no process that the run started
is left, which an environment variable tells; its folder for temporary files is empty; its dump is valid.
Prints a line per run and a table; writes results.json. Exit code 1 if a check failed.
"""

import argparse
import getpass
import json
import os
import pty
import random
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STARTING = threading.Lock()
RG = "environment.skyrl_gym.rg_dump"
MARK = "RG_ENV_SIGNAL_CHECK"
KINDS = {"ctrl-c": 130, "double ctrl-c": 130, "sigterm": 143, "sighup": 129}
GIVEN_UP = 300.0
IN_TRAINING = 0.25
"""Every second run is stopped in training: this share of its moment after the first group has been recorded."""
CACHE = f"torchinductor_{getpass.getuser()}"
"""PyTorch's cache of compiled kernels, which is meant to stay."""


def settings(folder):
    """The quickstart with small batches, far more steps than it will live for, and checkpoints."""
    return [
        str(ROOT / "configs" / "quickstart.yaml"),
        "trainer.max_training_steps=2000",
        "trainer.train_batch_size=8",
        "trainer.policy_mini_batch_size=8",
        "trainer.micro_train_batch_size_per_gpu=64",
        "trainer.micro_forward_batch_size_per_gpu=64",
        "trainer.eval_before_train=false",
        "trainer.eval_interval=-1",
        "trainer.hf_save_interval=-1",
        "trainer.ckpt_interval=5",
        "trainer.max_ckpts_to_keep=1",
        *(f"trainer.{name}_path={folder}/{name}" for name in ("ckpt", "export", "log")),
        f"{RG}.dump_dir={folder}/dumps",
    ]


class Run:
    """A run on its own terminal."""

    def __init__(self, folder, temp, name):
        command = [sys.executable, "-c", "from rg_env.cli import main; main()", "train", *settings(folder)]
        environment = {**os.environ, "TMPDIR": str(temp), MARK: name, "TERM": "xterm", "COLUMNS": "100"}
        with STARTING:  # or the next run would hold this one's terminal open
            self.pid, self.terminal = pty.fork()
            if self.pid:
                os.set_inheritable(self.terminal, False)
        if self.pid == 0:
            for signum in (signal.SIGINT, signal.SIGHUP):  # ignored if this script is in the background
                signal.signal(signum, signal.SIG_DFL)
            os.chdir(ROOT)
            os.execvpe(command[0], command, environment)
        self.shown = b""
        self.exit_code = None

    def watch(self, seconds, until=lambda: False):
        """Read what is shown until the run ends, at most `seconds`."""
        end = time.monotonic() + seconds
        while self.exit_code is None and time.monotonic() < end and not until():
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._read()
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.exit_code = code if code >= 0 else 128 - code  # as a shell shows it

    def _read(self):
        if self.terminal is None:
            time.sleep(0.05)
            return
        while select.select([self.terminal], [], [], 0.05)[0]:
            try:
                self.shown += os.read(self.terminal, 65536)
            except OSError:  # nothing has the terminal open
                return

    def stop(self, kind, pause):
        match kind:
            case "ctrl-c":
                os.write(self.terminal, b"\x03")
            case "double ctrl-c":
                os.write(self.terminal, b"\x03")
                self.watch(pause)
                if self.exit_code is None:
                    os.write(self.terminal, b"\x03")
            case "sigterm":
                os.kill(self.pid, signal.SIGTERM)
            case "sighup":
                os.close(self.terminal)
                self.terminal = None


def left_processes(name):
    """The processes that have the mark of a run."""
    mark, found = f"{MARK}={name}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:100])
        except OSError:
            continue
    return found


def check(kind, number, moment, pause, out):
    """Start a run, stop it at `moment`, and say what is wrong afterwards."""
    from rg_env.dump.repair.validate import validate

    name = f"{kind.replace(' ', '-')}-{number}"
    folder, temp = out / name, Path(tempfile.mkdtemp(prefix="sg", dir="/tmp"))
    shutil.rmtree(folder, ignore_errors=True)
    run = Run(folder, temp, name)
    if number % 2:  # in the middle of the training; the others anywhere from the start
        run.watch(GIVEN_UP, until=lambda: any(folder.glob("dumps/*groups*")))
        moment *= IN_TRAINING
    run.watch(moment)
    began = time.monotonic()
    run.stop(kind, pause)
    run.watch(GIVEN_UP)
    seconds = time.monotonic() - began
    if run.terminal is not None:
        os.close(run.terminal)
    problems = [f"process left: {process}" for process in left_processes(name)]
    problems += [
        f"left in the folder for temporary files: {path.name}" for path in temp.iterdir() if path.name != CACHE
    ]
    if run.exit_code != KINDS[kind]:
        problems.append(f"exit code {run.exit_code}")
    groups = 0
    if (folder / "dumps").is_dir() and any((folder / "dumps").glob("*.jsonl*")):
        report = validate(folder / "dumps")
        groups = sum(1 for path in (folder / "dumps").glob("*groups*") for _ in path.open())
        problems += [] if report.good else ["the dump is not valid"]
        problems += [
            f"unfinished file {path.name}" for path in (folder / "dumps").glob("*.part") if "double" not in kind
        ]
    shown = [line for line in run.shown.decode(errors="replace").splitlines() if line.strip(" ^C")] or [""]
    shutil.rmtree(temp, ignore_errors=True)
    result = {
        "kind": kind,
        "in": "training" if number % 2 else "all",
        "moment": round(moment, 1),
        "pause": round(pause, 2),
        "seconds": round(seconds, 1),
        "exit_code": run.exit_code,
        "groups": groups,
        "problems": problems,
        "last": shown[-1].replace("\x1b[?25h", "") if kind != "sighup" else "",
    }
    print(json.dumps(result, ensure_ascii=False), flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="runs of each kind")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--latest", type=float, default=60, help="latest moment in seconds")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/signals"))
    options = parser.parse_args()
    draw = random.Random(options.seed)
    planned = [
        (kind, number, draw.uniform(0.5, options.latest), draw.uniform(0.05, 2.5))
        for number in range(options.runs)
        for kind in options.kinds
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda plan: check(*plan, options.out.resolve()), planned))
    (options.out / "results.json").write_text(json.dumps(results, indent=1))
    clean = Counter(result["kind"] for result in results if not result["problems"])
    for kind in options.kinds:
        mine = [result for result in results if result["kind"] == kind]
        print(f"{kind}: {clean[kind]} of {len(mine)} clean; at most {max(one['seconds'] for one in mine)} s to end")
    sys.exit(len(results) != sum(clean.values()))


if __name__ == "__main__":
    main()
