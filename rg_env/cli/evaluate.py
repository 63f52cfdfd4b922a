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
    from rg_env.rollouts.checkpoints import Checkpoint
    from rg_env.rollouts.scores import Summary
    from rg_env.rollouts.settings import Settings as Given


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
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER|latest|all",
            help="Evaluate exported models: a folder of one or of several steps, or those of the configured run.",
        ),
    ] = None,
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
      rg-env eval --model runs/NAME/exports/global_step_60/policy -- --tensor-parallel-size 4
      rg-env eval configs/quickstart.yaml --checkpoint all
    """
    from rg_env.rollouts.plan import evaluation_folder
    from rg_env.rollouts.questions import suite_questions
    from rg_env.rollouts.scores import summarize
    from rg_env.rollouts.session import run_endpoint

    need(tasks is None or suite == "fixed", "--tasks", tasks, f"the suite {suite} has its own tasks")
    named = out or next((arg for arg in settings or [] if arg.removeprefix(f"{PREFIX}.").startswith("dump_dir=")), None)
    if resume and not named:
        raise ConfigError("--resume needs --out, the folder of the evaluation to continue")
    given = shared.read(ctx, "eval", suite, dump_eval_rollouts=True)
    folder = out or (
        Path(given.rg.dump_dir) if named else evaluation_folder(given.rg.dump_dir if given.has_file else "runs/dumps")
    )
    found = _checkpoints(given, checkpoint, model, endpoint)
    options = [shared.reach(ctx, "eval", given, str(one.folder) if one else model) for one in found]
    samples = samples or int(given.skyrl.get("generator.eval_n_samples_per_prompt", 1))
    limits = _limits(given, options[0].model) if given.has_file and not endpoint and suite == "fixed" else {}
    questions = suite_questions(suite, given.rg, items, **limits)
    summaries: list[Summary] = []
    try:
        for one, option in zip(found, options, strict=True):
            name = one.name if one else option.name
            place = folder / name.replace(" ", "_") if len(found) > 1 else folder
            config = replace(given.rg, dump_dir=str(place))
            finished = run_endpoint("eval", questions, samples, config, replace(option, name=name), resume=resume)
            shared.print_finished(finished)
            if finished.done and (finished.totals.responses or not finished.totals.failures):
                summaries.append(summarize(finished.folder, finished.run_id, name, config.solved_at))
            if finished.exit_code:
                raise typer.Exit(finished.exit_code)
    finally:
        if summaries:
            _show(summaries, as_json)


def _checkpoints(
    given: Given, checkpoint: str | None, model: str | None, endpoint: str | None
) -> list[Checkpoint] | list[None]:
    """The exported models to evaluate; one None: the model itself."""
    from rg_env.rollouts.checkpoints import find_checkpoints

    if checkpoint is None:
        return [None]
    need(endpoint is None, "--checkpoint", checkpoint, "a server has one model; leave it out")
    need(model is None, "--checkpoint", checkpoint, "is the model; leave out --model")
    folders = [given.skyrl.get(f"trainer.{name}") for name in ("ckpt_path", "export_path")]
    return find_checkpoints(checkpoint, *(Path(str(path)).expanduser() if path else None for path in folders))


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
    from rg_env.rollouts.scores import render

    if as_json:
        found = [one.as_dict() for one in summaries]
        print_json(found if len(found) > 1 else found[0])
        return
    console().print(render(summaries))
    for summary in summaries:
        if summary.no_response:
            print_error(f"{summary.name}: not counted: {counted(summary.no_response, 'request')} without a response")
        print_line(f"dump: {summary.folder}")
