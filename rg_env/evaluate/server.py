"""A server for a model on this machine: vLLM where it is installed, otherwise `transformers serve`.

Invariant: the server and its children end with the block that started them, however the block ends; if this process is
killed, the kernel ends the server (on Linux). It listens on 127.0.0.1 alone.
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

from rg_env.errors import ConfigError, RGEnvError, one_line
from rg_env.output import print_error
from rg_env.processes import die_with_parent, usable_cores

_POLL, _SHOW_EVERY = 0.2, 15.0
_STARTS_WITHIN = 3600.0
"""Seconds after which a server that does not answer is given up. Large models take long to download."""
_ENDS_WITHIN = 10.0
"""Seconds that the server has to end before it is killed."""
_LINES, _TAIL, _WIDTH = 3, 20_000, 200
"""How many of the last lines of the log an error has, in how many bytes they are searched, and their longest length."""
_ERROR = re.compile(r"[\w.]*(?:Error|Exception): .+")
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerError(RGEnvError):
    """The server could not be started, or ended before its work was done."""

    exit_code = 1


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
    """What serves `model` in this environment.

    Raises:
        ConfigError: neither vLLM nor transformers is installed.
    """
    python, on_gpu = sys.executable, Path("/dev/nvidiactl").exists()
    if importlib.util.find_spec("vllm"):
        # `vllm serve` needs the distribution `vllm`; the one for CPUs has another name.
        is_cpu = _version("vllm") is None
        module = ["vllm.entrypoints.openai.api_server", "--model"] if is_cpu else ["vllm.entrypoints.cli.main", "serve"]
        plain = ["--dtype", "float32", "--enforce-eager"] if is_cpu else []
        environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1"} if is_cpu else {}
        command = [python, "-m", *module, model, "--generation-config", "vllm", *plain]
        return Program("vLLM", command, 32, {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", **environment})
    missing = [name for name in ("transformers", "torch", "fastapi", "uvicorn") if not importlib.util.find_spec(name)]
    if missing:
        raise ConfigError(
            f"--model starts a server and needs vLLM, or transformers with {', '.join(missing)}: "
            "pip install 'rg_env[cpu]', or name a running server with --endpoint"
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

    async def ready(self) -> None:
        """Wait until it answers, and say so every now and then.

        Raises:
            ServerError: it ended, or does not answer.
        """
        began, shown = time.monotonic(), 0.0
        while not await asyncio.to_thread(self._answers):
            seconds = time.monotonic() - began
            if self.process.poll() is not None:
                raise self.failure()
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
        raise self.failure()

    def failure(self) -> ServerError:
        """How it ended, and the last lines of its log."""
        code = self.process.returncode
        how = f"exit code {code}" if code >= 0 else f"{signal.Signals(-code).name}, which may mean too little memory"
        why = " | ".join(_last_lines(self.log)) or "nothing in its log"
        return ServerError(f"{self.program.name} ended with {how}: {why}; log: {self.log}")

    def stop(self) -> None:
        """End it and its children."""
        with suppress(psutil.Error):
            server = psutil.Process(self.process.pid)
            family = [server, *server.children(recursive=True)]
            server.terminate()
            _, alive = psutil.wait_procs(family, timeout=_ENDS_WITHIN)
            for one in alive:
                with suppress(psutil.Error):
                    one.kill()
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
async def serving(program: Program, options: Sequence[str]) -> AsyncIterator[Server]:
    """A server that answers.

    Args:
        options: further arguments of the program.

    Raises:
        ServerError: it cannot be started. Its log is kept then.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    descriptor, name = tempfile.mkstemp(prefix="rg_env-server-", suffix=".log")
    environment = {key: value for key, value in os.environ.items() if key != "VLLM_API_KEY"}
    with os.fdopen(descriptor, "wb") as log:
        process = subprocess.Popen(
            [*program.command, "--host", "127.0.0.1", "--port", str(port), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**program.environment, "OMP_WAIT_POLICY": "PASSIVE", **environment},
            start_new_session=True,  # Ctrl-C on the terminal is for this process
            preexec_fn=lambda: die_with_parent(signal.SIGTERM),
        )
    server = Server(program, f"http://127.0.0.1:{port}/v1", Path(name), process)
    print_error(f"starting {program.name}; its log: {name}")
    failed = False
    try:
        await server.ready()
        yield server
    except Exception:
        failed = True
        raise
    finally:
        server.stop()
        if not failed:
            server.log.unlink(missing_ok=True)


def _last_lines(log: Path) -> list[str]:
    """The first error and the last lines of a log, without a repetition."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        lines = [one_line(line, _WIDTH) for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        errors = [found[0] for line in lines if (found := _ERROR.search(line))]
        return list(dict.fromkeys([*errors[:1], *errors[-1:]] or lines[-_LINES:]))
    return []


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
