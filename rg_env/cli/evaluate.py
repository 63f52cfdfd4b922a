from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env.cli import endpoint as shared
from rg_env.cli.options import Imports, JsonFlag, Settings
from rg_env.config import PREFIX
from rg_env.errors import ConfigError, need, one_line
from rg_env.output import console, counted, print_error, print_json, print_line

if TYPE_CHECKING:
    from rg_env.analysis.scores import Summary
    from rg_env.evaluate.settings import Settings as Given


def evaluate(
    ctx: typer.Context,
    settings: Settings = None,
    suite: Annotated[
        str,
        typer.Option(
            metavar="SUITE",
            help="Questions: fixed, rg_easy, rg_hard or a YAML file (docs/collect.md).",
            autocompletion=lambda: ["fixed", "rg_easy", "rg_hard"],
        ),
    ] = "fixed",
    items: Annotated[
        int | None, typer.Option(min=1, help="Ask only N questions, evenly over the tasks, to try a suite cheaply.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Responses per question. Default: as configured, or 1.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Dump folder. Default: a new folder.")] = None,
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
    as_json: JsonFlag = False,
) -> None:
    """Evaluate a model on a suite of questions.

    The responses come from an OpenAI-compatible server, or from one that is started for MODEL; what follows `--` goes
    to that server. A configuration gives tasks, prompt, sampling and model. Needs neither Ray nor SkyRL.

    Examples:
      rg-env eval --endpoint http://127.0.0.1:8000/v1 --model qwen --suite rg_easy --items 200
      rg-env eval --model runs/NAME/exports/global_step_60 -- --tensor-parallel-size 4
      rg-env eval configs/quickstart.yaml --model runs/quickstart/exports
    """
    from rg_env.analysis.scores import summarize
    from rg_env.evaluate.run import evaluation_folder, run_endpoint
    from rg_env.evaluate.suites import suite_questions

    need(tasks is None or suite == "fixed", "--tasks", tasks, f"the suite {suite} has its own tasks")
    named = out or next((arg for arg in settings or [] if arg.removeprefix(f"{PREFIX}.").startswith("dump_dir=")), None)
    if resume and not named:
        raise ConfigError("--resume needs --out, the folder of the evaluation to continue")
    given = shared.read(ctx, "eval", suite, dump_eval_rollouts=True)
    folder = out or (
        Path(given.rg.dump_dir) if named else evaluation_folder(given.rg.dump_dir if given.has_file else "runs/dumps")
    )
    models = shared.reach(ctx, "eval", given)
    samples = samples or int(given.skyrl.get("generator.eval_n_samples_per_prompt", 1))
    limits = _limits(given, models[0].model) if given.has_file and not endpoint and suite == "fixed" else {}
    questions = suite_questions(suite, given.rg, items, **limits)
    summaries: list[Summary] = []
    try:
        for model_options in models:
            name = model_options.name
            place = folder / name.replace(" ", "_") if len(models) > 1 else folder
            config = replace(given.rg, dump_dir=str(place))
            finished = run_endpoint("eval", questions, samples, config, model_options, resume=resume)
            shared.print_finished(finished)
            if finished.done:
                summaries.append(summarize(finished.folder, finished.run_id, name, config.solved_at))
            if finished.exit_code:
                raise typer.Exit(finished.exit_code)
    finally:
        if summaries:
            _show(summaries, as_json)


def _limits(given: Given, model: str) -> dict[str, Any]:
    """How long a prompt may be, as in the training that the configuration is for."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{model}: no tokenizer can be read there ({one_line(error, 200)})") from None
    return {
        "tokenizer": tokenizer,
        "max_prompt_length": int(given.skyrl.get("trainer.max_prompt_length", 512)),
        "chat_template_kwargs": given.chat_template_kwargs,
    }


def _show(summaries: list[Summary], as_json: bool) -> None:
    """Print the scores of one run, or a table over several."""
    from rg_env.analysis.scores import render

    if as_json:
        found = [one.as_dict() for one in summaries]
        print_json(found if len(found) > 1 else found[0])
        return
    screen = console()
    screen.print(render(summaries, screen.width))
    for summary in summaries:
        if summary.no_response:
            print_error(f"{summary.name}: not counted: {counted(summary.no_response, 'request')} without a response")
        print_line(f"dump: {summary.folder}")
