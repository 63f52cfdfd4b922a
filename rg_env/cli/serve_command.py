"""`rg-env serve`."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.base.errors import ConfigError, RGEnvError, need, need_extra
from rg_env.base.output import print_line
from rg_env.base.wording import counted
from rg_env.cli.base import CommandApp
from rg_env.cli.options import Imports, Tasks, import_tasks

if TYPE_CHECKING:
    from rg_env.runner.caller_guarded import Guarded

TOKEN_VARIABLE = "RG_ENV_TOKEN"
_ROWS = 10_000
_LOCAL = ("127.0.0.1", "::1", "localhost")


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on. Other machines need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port, which is printed.")] = 8600,
    workers: Annotated[str, typer.Option(metavar="N|auto", help="Answers scored at the same time.")] = "auto",
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SEC", help="CPU seconds per answer.")] = 5.0,
    scorer: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Serve this function, in place of Reasoning Gym's scorers."),
    ] = None,
    token: Annotated[str, typer.Option(envvar=TOKEN_VARIABLE, help="Bearer token that clients must send.")] = "",
    max_waiting: Annotated[
        int,
        typer.Option(min=1, help="Answers in the queue before requests get a 503. A request has at most half of it."),
    ] = 4096,
    max_bytes: Annotated[int, typer.Option(min=1024, help="Longest request.")] = 4 << 20,
    tasks: Tasks = None,
    rows: Annotated[
        int, typer.Option(min=1, help="Questions of each split, train and eval, that ORS and OpenEnv clients see.")
    ] = _ROWS,
    imports: Imports = None,
) -> None:
    """Score answers for other programs over HTTP.

    POST /score scores responses to items of Reasoning Gym, /verify rows of NeMo Gym, and /reward what OpenRLHF and
    slime send. Clients of ORS (openreward, TRL) and OpenEnv get the questions here, too: those of --tasks. GET
    /openapi.json describes all requests.

    Examples:
      rg-env serve
      rg-env serve --tasks gcd,category:logic
      rg-env serve --scorer my_module:my_scorer --workers 8
      RG_ENV_TOKEN=secret rg-env serve --host 0.0.0.0
    """
    need_extra("serve", "fastapi", "rg-env serve")
    from rg_env.base.choices import ResponseFormat
    from rg_env.configuration.config import ScorerConfig
    from rg_env.scoring import Scorer
    from rg_env.scoring.audit import left_out_of_mix
    from rg_env.serve.desk import Desk
    from rg_env.serve.http_app import run
    from rg_env.tasks import TaskMix
    from rg_env.tasks.upstream.patched_dataset import reasoning_gym

    need("/" not in host, "--host", host, "must be a name or an address, such as 127.0.0.1, without http://")
    need(
        token or host in _LOCAL,
        "--host",
        host,
        f"is reachable from other machines; set {TOKEN_VARIABLE}, or --token",
    )
    for option, value, default in (("--tasks", tasks, None), ("--rows", rows, _ROWS)):
        unused = "--scorer serves one function, without questions; leave it out"
        need(scorer is None or value == default, option, value, unused)
    is_number = workers.isdigit() and int(workers) > 0
    need(is_number or workers == "auto", "--workers", workers, "must be auto, or a number of at least 1")
    import_tasks(imports)
    count = int(workers) if is_number else workers
    function = None
    if scorer:
        function = _load(scorer, timeout, count)
    else:
        # Now and not for the first item: it takes seconds in which no request would be answered.
        reasoning_gym()
    mix, left_out = None, {}
    if tasks:
        mix = TaskMix.parse(tasks)
        left_out = left_out_of_mix(mix, ScorerConfig(timeout=timeout), ResponseFormat.STRICT)
    # The socket is made here and not by uvicorn: a port that is taken is one line, and port 0 is known when it is
    # shown.
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # :: stands for every address, IPv4's too
        listener = socket.create_server((host, port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise RGEnvError(f"cannot listen on {host}: {error.strerror}; choose another --port or --host") from None
    desk = Desk(Scorer(count, timeout), function, token, max_waiting, host, max_bytes, mix, left_out, rows)
    print_line(f"listening on http://{host}:{listener.getsockname()[1]} (Ctrl-C stops it)")
    run(desk, listener, lambda: print_line(f"stopped; scored {_counts(desk.scored)}"))


def _load(scorer: str, timeout: float, workers: int | str) -> Guarded:
    """Return the function that --scorer names. Raises ConfigError."""
    from rg_env.scoring import guarded

    try:
        return guarded(scorer, timeout=timeout, workers=workers)
    except ConfigError as error:
        from rg_env.base.hints import member_meant

        module, _, name = scorer.replace(":", ".").rpartition(".")
        meant = ""
        if module in sys.modules and not hasattr(sys.modules[module], name):
            meant = member_meant(sys.modules[module], name)
        # The message names the argument of `guarded`, which nobody has typed here.
        raise ConfigError(f"{str(error).replace('guarded=', '--scorer=', 1)}{meant}") from error


def _counts(scored: Mapping[str, int]) -> str:
    """`3 answers (2 ok, 1 timeout)`."""
    answers = counted(sum(scored.values()), "answer")
    parts = ", ".join(f"{count:,} {status}" for status, count in sorted(scored.items()))
    if parts:
        return f"{answers} ({parts})"
    return answers


commands = CommandApp("The command alone.")
commands.command()(serve)
