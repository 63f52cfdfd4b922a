"""Workers under attack from within: answers that are code, handed to the pool below the guard.

`spiral_matrix` evaluates its answer, so what stands in the text is run in a worker. Each attack says by ending its
process (`CRASHED`) that it succeeded, or is looked for outside.
"""

from __future__ import annotations

import json
import os
import pickle
import platform
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import sympy

from rg_env.runner import caller_pool as pool_module
from rg_env.runner import child_seccomp as seccomp
from rg_env.runner.child_sandbox import LANDLOCK, MEASURES, SECCOMP, readable_paths
from rg_env.scoring import AnswerScore, Scorer, Status, guarded, sandbox_report
from rg_env.scoring.scorer import _target_of, _upstream_modules
from rg_env.tasks.registry import task_names
from tests.running import program, run_program

Item = Callable[..., dict[str, Any]]
Attack = Callable[[str], AnswerScore]
Needs = Callable[[str], None]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def missing() -> dict[str, str]:
    """Mechanism → why this system does not have it, "" if it has."""
    report = sandbox_report()
    return {mechanism: report[name] for mechanism, name in MEASURES.items()}


@pytest.fixture
def needs(missing: dict[str, str]) -> Needs:
    def skip_without(mechanism: str) -> None:
        if missing[mechanism]:
            pytest.skip(f"this system does not offer {mechanism}: {missing[mechanism]}")

    return skip_without


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(workers=1, timeout=30.0) as made:
        yield made


@pytest.fixture
def attack(scorer: Scorer, item: Item, unguarded: None) -> Iterator[Attack]:
    """Run an expression in a worker, past the guard; the item's own answer is still right afterwards."""
    entry = item("spiral_matrix")
    yield lambda answer: scorer.score_answer(entry, answer)
    right = scorer.score_answer(entry, entry["answer"])
    assert (right.status, right.raw) == (Status.OK, 1.0)


def succeeds(attack: Attack, statement: str) -> bool:
    """Whether the Python statement ran to its end in a worker."""
    program = f"{statement}\n__import__('os')._exit(1)"
    return attack(f"exec({program!r}, {{}})").status is Status.CRASHED


FORBIDDEN = json.loads((Path(__file__).parent / "attempts.json").read_text())
"""What a worker cannot do, as docs/security.md begins → the mechanism that keeps it from that, and attempts."""


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_worker_cannot(attack: Attack, needs: Needs, tmp_path: Path, what: str) -> None:
    needs(FORBIDDEN[what]["mechanism"])
    victim = tmp_path / "folder" / "victim"
    victim.parent.mkdir()
    victim.write_text("precious")
    before = victim.stat()
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander,
        socket.socket() as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as local,
    ):
        local.bind(str(tmp_path / "socket"))
        for internet in (tcp, udp):
            internet.bind(("127.0.0.1", 0))
        for listener in (tcp, local):
            listener.listen()
        facts = {
            "path": str(victim),
            "pid": bystander.pid,
            "python": os.__file__,
            "sync": 162 if platform.machine() == "x86_64" else 81,
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "local": str(tmp_path / "socket"),
        }
        for attempt in FORBIDDEN[what]["attempts"]:
            assert not succeeds(attack, attempt.format(**facts)), attempt
            assert [path.name for path in victim.parent.iterdir()] == ["victim"], attempt
            assert victim.read_text() == "precious", attempt
            after = victim.stat()
            assert (after.st_mode, after.st_uid, after.st_mtime) == (before.st_mode, before.st_uid, before.st_mtime)
            assert bystander.poll() is None, attempt
        for listener in (tcp, udp, local):
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.recv(1) if listener is udp else listener.accept()
        bystander.communicate(b"\n")
    assert bystander.returncode == 0


def test_every_row_of_the_page_is_tried() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    table = page[page.index("| a worker cannot |") :].partition("\n\n")[0]
    elsewhere = ("change the mode", "make any other system call")  # the first row's attempts; the filter itself
    for row in table.splitlines()[2:]:
        assert row.removeprefix("| ").startswith((*FORBIDDEN, *elsewhere)), row


# -- what docs/security.md says is possible


def test_what_is_possible(attack: Attack, needs: Needs, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Code runs below the guard; late imports; looking whether a file or a process exists; writing to nowhere."""
    needs(SECCOMP)
    newer = "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.syscall({}, 0, 0, 0, 0); "
    limits = {"CPU": 600 + 30, "NOFILE": 64, "FSIZE": 0, "CORE": 0}
    for statement in (
        "import os, json; os.getpid()",
        "import turtledemo, xml.dom.minidom, reasoning_gym as r; open(r.__file__).read()",
        f"import os; os.stat({str(tmp_path)!r})",
        f"import os; os.stat('/proc/{os.getpid()}')",
        "import os; os.write(1, b'x'); os.write(2, b'x')",
        # unknown, as on an older system: io_uring_setup, pidfd_open, clone3, openat2
        *(newer.format(call) + "assert ctypes.get_errno() == 38" for call in (425, 434, 435, 437)),
        *(f"import resource as r; assert r.getrlimit(r.RLIMIT_{k}) == ({v}, {v})" for k, v in limits.items()),
    ):
        assert succeeds(attack, statement), statement
    assert capfd.readouterr() == ("", "")


def test_a_worker_can_decide_its_own_score_and_nothing_protects_it(attack: Attack) -> None:
    forge = """
import os
for fd in range(3, 20):
    try: os.write(fd, b"[1.0, 1.0]" + bytes([10]))
    except OSError: pass
os._exit(0)"""
    assert attack(f"exec({forge!r}, {{}})").raw == 1.0


def test_a_worker_is_replaced_after_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool_module._JOBS_PER_WORKER == 10_000
    monkeypatch.setattr(pool_module, "_JOBS_PER_WORKER", 2)
    with guarded("os:getpid", workers=1, fresh=False) as scorer:
        pids = [scorer.score().value for _ in range(3)]
    assert pids[0] == pids[1] != pids[2]


# -- what scoring needs is allowed


@pytest.mark.long
def test_every_task_scores_the_same_with_and_without_the_sandbox(item: Item) -> None:
    jobs = []
    for task in task_names():
        entry = item(task)
        for answer in (entry["answer"], "0", "x y", "[[1, 2], [3, 4]]"):
            jobs.append((task, {}, pickle.dumps((entry, answer, f"<answer>{answer}</answer>"))))
    sandboxed, free = (
        subprocess.run(
            program("score_all", how), input=pickle.dumps(jobs), capture_output=True, check=True, cwd=ROOT
        ).stdout
        for how in ("sandboxed", "free")
    )
    assert len(json.loads(sandboxed)) == 4 * 105
    assert sandboxed == free


def by_numpy(matrix: str) -> float:
    return float(np.linalg.svd(np.array(json.loads(matrix)))[1][0])


def by_sympy(expression: str) -> float:
    return float(sympy.integrate(sympy.sympify(expression), (sympy.Symbol("x"), 0, 1)))


def test_scorers_of_users_may_use_numpy_and_sympy() -> None:
    with guarded(by_numpy, workers=1) as scorer:
        assert scorer.score("[[3, 0], [0, 4]]").value == pytest.approx(4.0)
    with guarded(by_sympy, workers=1, timeout=30) as scorer:
        assert scorer.score("x**2 * exp(x) + sqrt(x)").value == pytest.approx(1.38495, abs=1e-4)


# -- as another user, and where the system offers less

AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
WRITE, READ = "open({victim!r}, 'w')", "open({victim!r}).read()"
CALLS = ("socket.socket()", "threading.Thread(target=print).start()", "os.kill({pid}, 0)", "socket.socketpair()")
CHANGES = (
    "assert ctypes.CDLL(None).creat({victim!r}.encode(), 0o600) >= 0",
    "os.unlink({victim!r})",
    "os.rename({victim!r}, {victim!r} + 'x')",
)


def skip_unless_runs(command: list[str]) -> None:
    try:
        subprocess.run([*command, "import rg_env.scoring"], check=True, cwd=ROOT)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("cannot run Python as another user here")


@pytest.mark.parametrize(
    ("without", "attempts", "possible", "reason"),
    [
        ("", (WRITE, READ, *CALLS), (), {}),
        ("Landlock", (WRITE, READ, *CHANGES, *CALLS), (READ,), {LANDLOCK: "Function not implemented"}),
        ("seccomp", (WRITE, READ, CALLS[-1]), (CALLS[-1],), {SECCOMP: "Function not implemented"}),
        ("installing", (), (), {SECCOMP: "Function not implemented"}),
        ("enforcement", (), (), {SECCOMP: "does not enforce"}),
    ],
)
def test_a_missing_measure_is_named_with_its_reason_and_the_others_hold(
    tmp_path: Path, needs: Needs, without: str, attempts: Any, possible: Any, reason: dict[str, str]
) -> None:
    """All of them hold for a user without privileges, too."""
    needs(LANDLOCK)
    needs(SECCOMP)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for path in (victim, *tmp_path.parents[:2], tmp_path):
        path.chmod(0o777)
    tried = [attempt.format(victim=str(victim), pid=os.getpid()) for attempt in attempts]
    command = program("confined", without, json.dumps(tried))
    if not without:
        command = [*AS_NOBODY, *command]
        skip_unless_runs([*AS_NOBODY, sys.executable, "-c"])
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for mechanism, name in MEASURES.items():
        (line,) = (line for line in lines if line.startswith(name))
        assert line == name if mechanism not in reason else reason[mechanism] in line
    succeeded = [line.removeprefix("succeeded: ") for line in lines if line.startswith("succeeded: ")]
    assert succeeded == [attempt for attempt, template in zip(tried, attempts, strict=True) if template in possible]


def test_scoring_works_for_another_user_than_root(item: Item) -> None:
    entry = item("chain_sum")
    program = (
        f"from rg_env.scoring import Scorer\nprint(Scorer(workers=1).score_answer({entry!r}, {entry['answer']!r}))"
    )
    capabilities = "+dac_override,+dac_read_search"  # the interpreter may be in root's home folder
    command = [*AS_NOBODY, f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", sys.executable, "-c"]
    skip_unless_runs(command)
    done = subprocess.run([*command, program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "score=1.0" in done.stdout, done.stderr


def test_a_worker_needs_no_file_for_its_first_score(item: Item) -> None:
    """What it needs is read before the sandbox, where it may be unreadable."""
    entry = item("chain_sum")
    request = pickle.dumps((pickle.dumps(entry), entry["answer"]))
    done = run_program("files_of_worker", _target_of("chain_sum", {}).hex(), request.hex(), *_upstream_modules())
    assert json.loads(done.stdout) == {"reply": [1.0, 0.15], "opened": []}


def test_finding_the_readable_folders_triggers_no_lazy_import(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []

    class Lazy(ModuleType):  # transformers has 60 such modules, and logs a warning for each lookup
        def __getattr__(self, name: str) -> list[str]:
            looked_up.append(name)
            return []

    package = ModuleType("package")
    package.__path__ = ["/somewhere"]
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    monkeypatch.setitem(sys.modules, "package", package)
    assert "/somewhere" in readable_paths()
    assert looked_up == []


def test_packages_in_a_folder_of_any_name_can_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # As after `pip install --target`. A scorer that may not list it takes what is installed there for missing.
    (tmp_path / "target" / "reasoning_gym-0.1.25.dist-info").mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "target")
    monkeypatch.syspath_prepend(tmp_path / "scripts")
    readable = readable_paths()
    assert str(tmp_path / "target") in readable
    assert str(tmp_path / "scripts") not in readable


# -- the filter itself


def headers() -> dict[str, dict[str, int]]:
    found = {}
    for machine, name, pattern in (
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+) (\d+)"),
        ("aarch64", "/usr/include/asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+) (\d+)"),
    ):
        if Path(name).exists():
            found[machine] = {call: int(number) for call, number in re.findall(pattern, Path(name).read_text())}
    return found


@pytest.mark.skipif(not headers(), reason="no kernel headers on this system")
def test_the_numbers_of_the_calls_are_the_kernels() -> None:
    for machine, known in headers().items():
        for name, number in numbers(0 if machine == "x86_64" else 1).items():
            assert known.get(name, known.get("fstatat" if name == "newfstatat" else "")) == number, name


def numbers(column: int) -> dict[str, int]:
    """Every call of the tables that the architecture has."""
    pairs = seccomp.ALLOWED | {name: row[0] for name, row in (seccomp.NONE_OF_BITS | seccomp.ONE_OF_VALUES).items()}
    return {name: number for name, pair in pairs.items() if (number := pair[column]) is not None}


KILLED = -1


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What a filter returns: a classic BPF machine, as far as the filter needs one."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *(arguments + (0,) * 6)[:6])
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = accumulator = 0
    while True:
        kind, if_true, if_false, operand = code[at]
        at += 1
        if kind == 0x20:
            accumulator = struct.unpack_from("=I", data, operand)[0]
        elif kind == 0x06:
            return {0x7FFF: 0, 0x8000: KILLED}.get(operand >> 16, operand & 0xFFFF)
        else:
            true = {0x15: accumulator == operand, 0x35: accumulator >= operand, 0x45: accumulator & operand}[kind]
            at += if_true if true else if_false


@pytest.mark.parametrize(("machine", "architecture"), [("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)])
def test_the_filter_allows_what_it_lists_and_nothing_else(machine: str, architecture: int) -> None:
    allowed = numbers(0 if machine == "x86_64" else 1)
    program = seccomp.build(machine)
    ruled = {allowed[name] for name in (*seccomp.NONE_OF_BITS, *seccomp.ONE_OF_VALUES) if name in allowed}
    for number in set(range(1000)) - ruled:
        refused = 1 if number < 424 else 38
        assert verdict(program, architecture, number) == (0 if number in allowed.values() else refused), number
    openat, prlimit, fcntl = (allowed[name] for name in ("openat", "prlimit64", "fcntl"))
    assert verdict(program, architecture, openat, 0, 0, os.O_RDONLY | os.O_CLOEXEC) == 0
    assert verdict(program, architecture, openat, 0, 0, os.O_WRONLY) == 1
    assert [verdict(program, architecture, prlimit, pid) for pid in (0, 1)] == [0, 1]
    assert [verdict(program, architecture, fcntl, 3, command) for command in (1, 8, 10, 15, 7, 1024)] == [0, *[1] * 5]
    assert verdict(program, 0x40000003, 1) == KILLED  # another architecture's numbers
    assert verdict(program, architecture, 0x40000001) == KILLED


def test_an_architecture_without_a_table_is_named() -> None:
    with pytest.raises(OSError, match="riscv64"):
        seccomp.build("riscv64")
