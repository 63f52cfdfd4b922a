"""Options and output that `collect` and `eval` share."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env.cli.base import Command
from rg_env.errors import ConfigError
from rg_env.output import counted, print_error, print_line
from rg_env.user_code import named_modules

if TYPE_CHECKING:
    from rg_env.config import RGDumpConfig
    from rg_env.evaluate.run import EndpointOptions, Finished
    from rg_env.evaluate.settings import Settings

_Option = partial(typer.Option, rich_help_panel="Model and requests")

Endpoint = Annotated[
    str | None,
    _Option(metavar="URL", help="Base URL of an OpenAI-compatible server. The API key is read from OPENAI_API_KEY."),
]
Model = Annotated[
    str | None,
    _Option(
        metavar="MODEL",
        help="With --endpoint, the server's name for the model. Otherwise a folder, a name on the Hugging Face hub, "
        "or nano, for which a server is started: vLLM, or `transformers serve` where vLLM is not installed. A folder "
        "of several global_step_N is one model after the other.",
    ),
]
Tasks = Annotated[
    str | None,
    _Option(
        help="Names, patterns and categories separated by commas, or a mix in YAML. Default: as configured, or the "
        "default mix.",
    ),
]
Temperature = Annotated[float | None, _Option(min=0, help="Sampling temperature. Default: as configured, or 1.")]
TopP = Annotated[float | None, _Option(min=0, max=1, help="Nucleus sampling. Default: as configured, or 1.")]
MaxTokens = Annotated[int | None, _Option(min=1, help="Maximum tokens per response. Default: as configured, or 4096.")]
Concurrency = Annotated[
    int | None, _Option(min=1, help="Maximum number of parallel requests. Default: 32, for transformers serve 2.")
]
Timeout = Annotated[float, _Option(min=0.001, metavar="SEC", help="Timeout of one attempt at a request.")]
Retries = Annotated[int, _Option(min=0, help="Retries of a failed request.")]
MaxTokensTotal = Annotated[
    int | None, _Option(min=1, help="Token budget: no new group starts once this many tokens have been used.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the unfinished run in the dump folder.")]

_SERVER = "rg_env.server_options"


class ServerCommand(Command):
    """A command whose arguments after `--` are for the server that it starts."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            args, ctx.meta[_SERVER] = args[:place], args[place + 1 :]
        return super().parse_args(ctx, args)


def read(ctx: typer.Context, command: str, suite: str = "fixed", **ours: Any) -> Settings:
    """The settings that a command was given; `ours` as of `read_settings`."""
    from rg_env.evaluate.settings import read_settings

    ours |= {name: ctx.params[name] for name in ("tasks", "imports") if ctx.params[name]}
    settings = read_settings(ctx.params["settings"] or [], command, suite, **ours)
    _set_up_logging(settings.rg)
    return settings


def reach(ctx: typer.Context, command: str, settings: Settings) -> list[EndpointOptions]:
    """Complete options, from those of the command and the settings; one for each model that `--model` names.

    Raises:
        ConfigError: no model or server, or options that do not go together.
    """
    from rg_env.evaluate.endpoint import Sampling
    from rg_env.evaluate.models import Model, find_models
    from rg_env.evaluate.run import EndpointOptions
    from rg_env.evaluate.server import program_for

    given: Mapping[str, Any] = ctx.params
    url, server_options = given["endpoint"], ctx.meta.get(_SERVER, [])
    named = given["model"] or (None if url else settings.skyrl.get("trainer.policy.model.path"))
    if named is None:
        what = "--endpoint needs --model, the server's name for the model" if url else None
        raise ConfigError(what or "name a model with --model, or a running server with --endpoint")
    if url and server_options:
        raise ConfigError(f"`-- {' '.join(server_options)}` is for a server that --model starts; leave out --endpoint")
    models = [Model(named, named)] if url else find_models(named)
    if url is None:
        program_for(models[0].path)  # refuses an environment that has none
    sampling = settings.sampling(command)
    sampling |= {name: given[name] for name in ("temperature", "top_p", "max_tokens") if given[name] is not None}
    return [
        EndpointOptions(
            url,
            model.path,
            Sampling(**sampling),
            name=model.name,
            server_options=server_options,
            request=settings.request(command),
            concurrency=given["concurrency"],
            timeout=given["timeout"],
            retries=given["retries"],
            max_tokens_total=given["max_tokens_total"],
        )
        for model in models
    ]


def _set_up_logging(config: RGDumpConfig) -> None:
    """Log only warnings, and never the values of variables; with `suppress_base_env_logs` only ours and the user's."""
    from loguru import logger

    def to_stderr(line: str) -> None:
        sys.stderr.write(line)  # the stream of now: a caller in this process may have replaced it since

    ours = ("rg_env", *named_modules(config))
    shown = (lambda record: (record["name"] or "").startswith(ours)) if config.suppress_base_env_logs else None
    logger.remove()
    logger.add(to_stderr, level="WARNING", format="rg-env: {message}", filter=shown, diagnose=False, backtrace=False)


def print_finished(finished: Finished) -> None:
    """Say what was done, on standard error, and what the reader of the dump has to know."""
    totals = finished.totals
    parts = [f"{finished.done} of {finished.planned} groups in {finished.folder}", f"run {finished.run_id}"]
    if totals.responses:
        tokens = f"{totals.prompt_tokens:,} + {totals.completion_tokens:,} tokens"
        parts.append(f"{counted(totals.responses, 'response')}, {tokens}")
    print_error("; ".join(parts))
    remarks = (
        (totals.failures, "request", f"failed (status no_response), the last one: {totals.last_failure}"),
        (totals.reasoning_apart, "response", "with the reasoning apart: it is recorded as the think block"),
        (totals.think_opened, "response", "to a prompt that opened the think block: <think> was added"),
        (totals.uncounted, "response", "whose tokens the server did not count: the total lacks them"),
    )
    for number, noun, what in remarks:
        if number:
            print_error(f"{counted(number, noun)} {what}")
    if finished.error is not None:
        print_error(finished.error)
    elif finished.incomplete:
        print_error(f"{counted(finished.incomplete, 'question')} without all answers: --resume asks them again")
    if finished.out_of_tokens:
        print_error(f"stopped at --max-tokens-total; continue with a higher one and --resume --out {finished.folder}")
    elif finished.signum is not None or finished.error is not None:
        print_error(f"stopped; the same command with --resume --out {finished.folder} continues")
    if totals.missing:
        print_error(f"{counted(totals.missing, 'group')} of this run missing from {finished.folder}: the disk failed")
    if not totals.groups and finished.done >= finished.planned:
        print_line("nothing left to do: all groups were already in the dump")
