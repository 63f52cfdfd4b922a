"""Options and output that `collect` and `eval` share for models behind an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env.cli import complete
from rg_env.errors import ConfigError
from rg_env.output import print_error, print_line

if TYPE_CHECKING:
    from rg_env.rollouts.session import EndpointOptions, Finished

_Option = partial(typer.Option, rich_help_panel="Options for a model behind an endpoint")

Endpoint = Annotated[
    str | None,
    _Option(metavar="URL", help="Base URL of an OpenAI-compatible server. The API key is read from OPENAI_API_KEY."),
]
Model = Annotated[str | None, _Option(metavar="NAME", help="The server's name for the model.")]
Tasks = Annotated[
    str | None,
    _Option(
        help="Names, patterns and categories separated by commas, or a mix in YAML. Default: the default mix.",
        autocompletion=complete.tasks,
    ),
]
Temperature = Annotated[float | None, _Option(min=0, help="Sampling temperature. Default: 1.")]
TopP = Annotated[float | None, _Option(min=0, max=1, help="Nucleus sampling. Default: 1.")]
MaxTokens = Annotated[int | None, _Option(min=1, help="Maximum tokens per response. Default: 4096.")]
Concurrency = Annotated[int | None, _Option(min=1, help="Maximum number of parallel requests. Default: 32.")]
Timeout = Annotated[
    float | None, _Option(min=0.001, metavar="SEC", help="Timeout of one attempt at a request. Default: 600.")
]
Retries = Annotated[int | None, _Option(min=0, help="Retries of a failed request. Default: 5.")]
MaxTokensTotal = Annotated[
    int | None, _Option(min=1, help="Token budget: no new group starts once this many tokens have been used.")
]
PriceIn = Annotated[float | None, _Option(min=0, help="Price per million prompt tokens, to show the cost.")]
PriceOut = Annotated[float | None, _Option(min=0, help="Price per million response tokens.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the unfinished run in the dump folder.")]


@dataclass(frozen=True)
class EndpointFlags:
    """The options as given; None: not given."""

    endpoint: str | None
    model: str | None
    tasks: str | None
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    concurrency: int | None
    timeout: float | None
    retries: int | None
    max_tokens_total: int | None
    price_in: float | None
    price_out: float | None

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> EndpointFlags:
        """Those among the parameters of a command."""
        return cls(**{field.name: params[field.name] for field in fields(cls)})

    def refuse_without_endpoint(self, settings: list[str] | None) -> None:
        """Raises ConfigError without settings, and if an option was given that only an endpoint honors."""
        for name, value in vars(self).items():
            if name != "endpoint" and value is not None:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{option} needs --endpoint; without it, set it in the configuration (key=value)")
        if not settings:
            raise ConfigError("name a configuration, such as configs/quickstart.yaml, or a server with --endpoint")

    def options(self) -> EndpointOptions:
        """Complete options. Raises ConfigError without a model."""
        from rg_env.rollouts.endpoint import Sampling
        from rg_env.rollouts.progress import Prices
        from rg_env.rollouts.session import EndpointOptions

        if self.endpoint is None or self.model is None:
            raise ConfigError("--endpoint needs --model, the server's name for the model")
        sampling = {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": self.max_tokens}
        reach = {
            "concurrency": self.concurrency,
            "timeout": self.timeout,
            "retries": self.retries,
            "max_tokens_total": self.max_tokens_total,
        }
        return EndpointOptions(
            self.endpoint,
            self.model,
            Sampling(**{name: value for name, value in sampling.items() if value is not None}),  # type: ignore[arg-type]
            prices=Prices(self.price_in, self.price_out),
            **{name: value for name, value in reach.items() if value is not None},  # type: ignore[arg-type]
        )


def quiet_logs() -> None:
    """Log only warnings, and never the values of variables."""
    import sys

    from loguru import logger

    def to_stderr(line: str) -> None:
        sys.stderr.write(line)  # the stream of now: a caller in this process may have replaced it since

    logger.remove()
    logger.add(to_stderr, level="WARNING", format="rg-env: {message}", diagnose=False, backtrace=False)


def print_finished(finished: Finished, options: EndpointOptions) -> None:
    """Say what was done, on standard error, and what the reader of the dump has to know."""
    totals = finished.totals
    parts = [f"{finished.done} of {finished.planned} groups in {finished.folder}", f"run {finished.run_id}"]
    if totals.responses:
        parts.append(f"{totals.responses} responses, {totals.prompt_tokens:,} + {totals.completion_tokens:,} tokens")
    if (cost := options.prices.cost(totals)) is not None:
        parts.append(f"cost {cost:.2f}")
    print_error("; ".join(parts))
    if totals.failures:
        print_error(f"{totals.failures} requests failed (status no_response), the last one: {totals.last_failure}")
    if totals.reasoning_apart:
        print_error(f"{totals.reasoning_apart} responses had their reasoning apart; it is recorded as the think block")
    if totals.think_opened:
        print_error(f"{totals.think_opened} responses close a think block that the prompt opened; <think> was added")
    if totals.uncounted:
        print_error(f"the server did not count the tokens of {totals.uncounted} responses: totals and cost lack them")
    if finished.missing:
        print_error(f"{finished.missing} groups could not be written to {finished.folder}")
    if finished.out_of_tokens:
        print_error("stopped at --max-tokens-total; continue with a higher one and --resume")
    elif finished.signum is not None:
        print_error("stopped; continue with --resume")
    if not totals.groups and finished.done >= finished.planned:
        print_line("nothing left to do: all groups were already in the dump")
