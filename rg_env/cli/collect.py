from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rg_env.cli import endpoint as shared
from rg_env.cli.options import Imports, Settings
from rg_env.errors import need


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
    imports: Imports = None,
    temperature: shared.Temperature = None,
    top_p: shared.TopP = None,
    max_tokens: shared.MaxTokens = None,
    concurrency: shared.Concurrency = None,
    timeout: shared.Timeout = 600.0,
    retries: shared.Retries = 5,
    max_tokens_total: shared.MaxTokensTotal = None,
) -> None:
    """Record rollouts on training questions without training.

    The responses come from an OpenAI-compatible server, or from one that is started for MODEL; what follows `--` goes
    to that server. A configuration gives tasks, prompt, sampling and model. Needs neither Ray nor SkyRL.

    Examples:
      rg-env collect --endpoint http://127.0.0.1:8000/v1 --model qwen \\
        --tasks gcd,lcm --groups 100 --out runs/gcd
      rg-env collect configs/quickstart.yaml --groups 50 --out runs/collected
      rg-env collect --model Qwen/Qwen3-4B --groups 100 --out runs/qwen -- --tensor-parallel-size 4
    """
    from rg_env.evaluate.run import run_endpoint
    from rg_env.evaluate.suites import train_questions
    from rg_env.scoring.length import LengthPenaltyConfig

    penalty = LengthPenaltyConfig(kind="none")
    defaults = {"length_penalty": penalty}
    given = shared.read(ctx, "collect", defaults=defaults, dump_dir=str(out), dump_other_rollouts=True)
    given.rg.dump_dir = str(out)
    options, *others = shared.reach(ctx, "collect", given)
    need(not others, "--model", model, "has several models; name one of its global_step_N")
    finished = run_endpoint("collect", train_questions(given.rg, groups), samples, given.rg, options, resume=resume)
    shared.print_finished(finished)
    raise typer.Exit(finished.exit_code)
