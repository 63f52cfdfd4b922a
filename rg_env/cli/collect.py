from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from rg_env.cli import endpoint as shared
from rg_env.errors import ConfigError


def collect(
    ctx: typer.Context,
    groups: Annotated[int, typer.Option(min=1, help="Number of questions.")],
    out: shared.Out = None,
    samples: Annotated[int, typer.Option(min=1, help="Responses to each question.")] = 8,
    resume: shared.Resume = False,
    endpoint: shared.Endpoint = None,
    model: shared.Model = None,
    tasks: shared.Tasks = None,
    temperature: shared.Temperature = None,
    top_p: shared.TopP = None,
    max_tokens: shared.MaxTokens = None,
    concurrency: shared.Concurrency = None,
    timeout: shared.Timeout = None,
    retries: shared.Retries = None,
    max_tokens_total: shared.MaxTokensTotal = None,
    price_in: shared.PriceIn = None,
    price_out: shared.PriceOut = None,
) -> None:
    """Record responses to training questions without training, from a server or SkyRL's engines.

    Example: rg-env collect --endpoint http://127.0.0.1:8000/v1 --model nano --tasks gcd --groups 100 --out runs/gcd
    """
    if out is None:
        raise ConfigError("name the folder of the dump with --out")
    flags = shared.EndpointFlags(
        endpoint,
        model,
        tasks,
        temperature,
        top_p,
        max_tokens,
        concurrency,
        timeout,
        retries,
        max_tokens_total,
        price_in,
        price_out,
    )
    if endpoint is None:
        flags.refuse_without_endpoint()
        from rg_env.train import collect as run
        from rg_env.train import run_command

        job = partial(run, groups=groups, samples=samples, folder=out, resume=resume)
        sys.exit(run_command(job, ctx.args))
    from rg_env.config import LengthPenaltyConfig, RGDumpConfig
    from rg_env.rollouts.questions import train_questions
    from rg_env.rollouts.session import run_endpoint
    from rg_env.rollouts.settings import apply_overrides

    shared.quiet_logs()
    options = flags.options()
    config = RGDumpConfig(
        tasks=tasks,
        dump_dir=str(out),
        dump_other_rollouts=True,
        length_penalty=LengthPenaltyConfig(kind="none"),
    )
    apply_overrides(config, ctx.args)
    try:
        questions = train_questions(config, groups)
        finished = run_endpoint("collect", questions, samples, config, options, folder=out, resume=resume)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    shared.print_finished(finished, options)
    raise typer.Exit(finished.exit_code)
