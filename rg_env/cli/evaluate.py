from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.cli import endpoint as shared
from rg_env.cli.options import Check, JsonFlag, Settings, Verbose
from rg_env.output import console, print_error, print_json, print_line

if TYPE_CHECKING:
    from rg_env.rollouts.scores import Summary


def evaluate(
    ctx: typer.Context,
    settings: Settings = None,
    suite: Annotated[
        str,
        typer.Option(
            metavar="SUITE",
            help="Questions: fixed, rg_easy, rg_hard or a YAML file (docs/suites.md).",
            autocompletion=lambda: ["fixed", "rg_easy", "rg_hard"],
        ),
    ] = "fixed",
    samples: Annotated[
        int | None, typer.Option(min=1, help="Responses per question. Default: as configured, or 1.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Dump folder. Default: a new folder.")] = None,
    resume: shared.Resume = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="PATH|latest|all", help="Evaluate a checkpoint or an exported model of the run."),
    ] = None,
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
    check: Check = False,
    verbose: Verbose = False,
    as_json: JsonFlag = False,
) -> None:
    """Evaluate a model on a suite of questions.

    The model is that of a training configuration, one of its checkpoints, or a model behind an OpenAI-compatible
    endpoint, which needs neither torch nor Ray nor SkyRL.

    Examples:
      rg-env eval configs/quickstart.yaml --samples 4
      rg-env eval configs/quickstart.yaml --checkpoint latest
      rg-env eval --endpoint http://127.0.0.1:8000/v1 --model qwen --suite rg_easy
    """
    flags = shared.EndpointFlags.from_params(ctx.params)
    if endpoint is None:
        flags.refuse_without_endpoint(settings)
        if check:
            from rg_env import train as command

            sys.exit(command.run_command(lambda argv: command.check(argv, training=False), settings or []))
        sys.exit(_with_skyrl(settings or [], suite, samples, out, resume, checkpoint, as_json, verbose))
    raise typer.Exit(_with_endpoint(settings or [], flags, suite, samples or 1, out, resume, checkpoint, as_json))


def _with_endpoint(
    args: list[str],
    flags: shared.EndpointFlags,
    suite: str,
    samples: int,
    out: Path | None,
    resume: bool,
    checkpoint: str | None,
    as_json: bool,
) -> int:
    from rg_env.config import RGDumpConfig
    from rg_env.errors import need
    from rg_env.rollouts.plan import evaluation_folder
    from rg_env.rollouts.questions import suite_questions
    from rg_env.rollouts.scores import summarize
    from rg_env.rollouts.session import run_endpoint
    from rg_env.rollouts.settings import apply_overrides

    need(checkpoint is None, "--checkpoint", checkpoint, "a server has one model; leave it out")
    need(flags.tasks is None or suite == "fixed", "--tasks", flags.tasks, f"the suite {suite} has its own tasks")
    shared.quiet_logs()
    options = flags.options()
    config = RGDumpConfig(tasks=flags.tasks, dump_dir="runs/dumps", dump_eval_rollouts=True)
    apply_overrides(config, args)
    config.dump_dir = str(out or evaluation_folder(config.dump_dir, args))
    try:
        questions = suite_questions(suite, config)
        finished = run_endpoint("eval", questions, samples, config, options, resume=resume)
    except KeyboardInterrupt:
        return 130
    shared.print_finished(finished, options)
    if finished.done and (finished.totals.responses or not finished.totals.failures):
        show([summarize(finished.folder, finished.run_id, options.model, config.solved_at)], as_json)
    return finished.exit_code


def _with_skyrl(
    args: list[str],
    suite: str,
    samples: int | None,
    out: Path | None,
    resume: bool,
    checkpoint: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    from rg_env.terminal.command import run_shown
    from rg_env.train import evaluate as run

    def work() -> list[Summary]:
        return run(args, suite=suite, samples=samples, folder=out, resume=resume, checkpoint=checkpoint)

    ended = run_shown("eval", work, args, verbose=verbose)
    if ended.result is not None:
        show(ended.result, as_json)
    return ended.exit_code


def show(summaries: list[Summary], as_json: bool) -> None:
    """Print the scores of one run, or a table over several."""
    from rg_env.rollouts.scores import render, render_all

    if as_json:
        print_json([one.as_dict() for one in summaries] if len(summaries) > 1 else summaries[0].as_dict())
        return
    console().print(render(summaries[0]) if len(summaries) == 1 else render_all(summaries))
    for summary in summaries:
        if summary.no_response:
            print_error(f"{summary.name}: {summary.no_response} requests without a response are not counted")
    print_line(f"dump: {summaries[0].folder}")
