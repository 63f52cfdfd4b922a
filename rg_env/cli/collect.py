from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rg_env.cli import endpoint as shared
from rg_env.cli.options import Settings, Verbose


def collect(
    ctx: typer.Context,
    groups: Annotated[int, typer.Option(min=1, help="Number of questions.")],
    out: Annotated[Path, typer.Option(help="Dump folder.")],
    settings: Settings = None,
    samples: Annotated[int, typer.Option(min=1, help="Responses per question.")] = 8,
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
    verbose: Verbose = False,
) -> None:
    """Record rollouts on training questions without training.

    The responses come from SkyRL's engines, configured as for `rg-env train`, or from a model behind an
    OpenAI-compatible endpoint, which needs neither torch nor Ray nor SkyRL.

    Examples:
      rg-env collect configs/quickstart.yaml --groups 50 --out runs/collected
      rg-env collect --endpoint http://127.0.0.1:8000/v1 --model qwen \\
        --tasks gcd,lcm --groups 100 --out runs/gcd
    """
    flags = shared.EndpointFlags.from_params(ctx.params)
    if endpoint is None:
        flags.refuse_without_endpoint(settings)
        from rg_env.terminal.command import run_shown
        from rg_env.train import collect as run

        args = settings or []
        work = partial(run, args, groups=groups, samples=samples, folder=out, resume=resume)
        sys.exit(run_shown("collect", work, args, verbose=verbose).exit_code)
    from rg_env.config import LengthPenaltyConfig, RGDumpConfig
    from rg_env.rollouts.questions import train_questions
    from rg_env.rollouts.session import run_endpoint
    from rg_env.rollouts.settings import apply_overrides

    shared.quiet_logs()
    options = flags.options()
    config = RGDumpConfig(
        tasks=tasks,
        dump_other_rollouts=True,
        length_penalty=LengthPenaltyConfig(kind="none"),
    )
    apply_overrides(config, settings or [])
    config.dump_dir = str(out)
    try:
        questions = train_questions(config, groups)
        finished = run_endpoint("collect", questions, samples, config, options, resume=resume)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    shared.print_finished(finished, options)
    raise typer.Exit(finished.exit_code)
