"""The commands of `rg-env`, except `rg-env dumps …`."""

from __future__ import annotations

import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from rg_env.choices import ResponseFormat, RunKind, Split
from rg_env.cli.collect import collect
from rg_env.cli.dumps import dumps_app
from rg_env.cli.evaluate import evaluate
from rg_env.cli.options import Check, JsonFlag
from rg_env.errors import RGEnvError
from rg_env.output import cell, console, guard_streams, print_error, print_fields, print_json, print_line, print_text

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train and evaluate with SkyRL on Reasoning Gym, and analyze the recorded rollouts.\n\nExample: rg-env tasks",
)
app.add_typer(dumps_app, name="dumps")

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def main() -> None:
    """Run the command line; an error that the user can fix is one line and exit code 2."""
    guard_streams()
    try:
        sys.exit(app(standalone_mode=False))
    except typer.TyperException as error:  # wrong usage; the help has been printed if there is no message
        if message := error.format_message():
            print_error(f"{message.rstrip('.')}; use --help for help")
        sys.exit(error.exit_code)
    except RGEnvError as error:
        print_error(error)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # `rg-env … | head`: not an error
        sys.exit(0)
    except Exception:
        print_text(traceback.format_exc().rstrip(), stderr=True)
        sys.exit(1)


@app.command(context_settings=_PASS_ON)
def train(ctx: typer.Context, check: Check = False) -> None:
    """Train with YAML files and key=value overrides, as on SkyRL's command line; exit code 2 if a setting is wrong.

    Example: rg-env train configs/quickstart.yaml trainer.epochs=1
    """
    from rg_env import train as command

    sys.exit(command.run_command(command.check if check else command.train, ctx.args))


app.command("eval", context_settings=_PASS_ON)(evaluate)
app.command(context_settings=_PASS_ON)(collect)


@app.command()
def tasks(
    levels: Annotated[
        str | None, typer.Option(metavar="TASK", help="Show the levels of difficulty of this task instead.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the tasks of Reasoning Gym; each is checked by generating one item.

    Example: rg-env tasks --levels chain_sum
    """
    if levels is not None:
        from rg_env.cli.levels import show_levels

        show_levels(levels, as_json)
        return
    from rg_env.tasks import list_tasks

    found = list_tasks(validate=True)
    if as_json:
        print_json([task.as_dict() for task in found])
        return
    table = Table("task", "category", "default mix", "levels", "soundness", "state / reason", box=None)
    table.columns[0].no_wrap = True
    for task in found:
        table.add_row(
            cell(task.name),
            task.category,
            "yes" if task.in_default_mix else "no",
            "yes" if task.has_levels else "no",
            task.soundness.value,
            task.reason if task.state == "ok" else task.state,
        )
    console().print(table)
    print_line(f"{len(found)} tasks, {sum(task.in_default_mix for task in found)} in the default mix")


@app.command()
def dataset(
    out: Annotated[Path, typer.Option(help="Parquet file to write.")],
    rows: Annotated[int, typer.Option(min=1, help="Number of rows; with --split eval, rows per task.")] = 1000,
    split: Annotated[
        Split, typer.Option(help="Training or evaluation questions; the two never overlap.")
    ] = Split.TRAIN,
    mix: Annotated[
        str | None,
        typer.Option("--tasks", help="Names, categories and patterns separated by commas, or a mix in YAML."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the questions. Default: 42 for train, 123 for eval.")
    ] = None,
    system_prompt: Annotated[str, typer.Option(help="Name or text of the system prompt.")] = "think_answer",
    complexity_mode: Annotated[
        str | None, typer.Option(help="random: levels of difficulty at random; with --split eval, all levels in turn.")
    ] = None,
    sampling: Annotated[str, typer.Option(help="weighted; stratified: every batch has the shares of the mix.")] = (
        "weighted"
    ),
    batch_size: Annotated[int | None, typer.Option(min=1, help="Rows per batch, for --sampling stratified.")] = None,
) -> None:
    """Write a Parquet file of prompts that stock SkyRL can train on after `rg_env.register()` (docs/your-code.md).

    Example: rg-env dataset --out train.parquet --rows 5000 --tasks "gcd,spell_*"
    """
    from rg_env.dataset import ReasoningGymDataset
    from rg_env.errors import need

    need(
        complexity_mode in (None, "random"),
        "--complexity-mode",
        complexity_mode,
        "must be random; the levels of a curriculum depend on the policy, so they are known during a run only",
    )
    need(
        sampling in ("weighted", "stratified"),
        "--sampling",
        sampling,
        "must be weighted or stratified; adaptive sampling depends on the policy, so it is possible during a run only",
    )
    options: dict[str, Any] = {"system_prompt": system_prompt, "complexity_mode": complexity_mode}
    if split is Split.TRAIN:
        need(sampling == "weighted" or batch_size, "--batch-size", batch_size, "stratified sampling needs it")
        options["stratify"] = batch_size if sampling == "stratified" else None
        made = ReasoningGymDataset(mix, size=rows, seed=42 if seed is None else seed, **options)
    else:
        made = ReasoningGymDataset.fixed_eval(mix, samples_per_task=rows, seed=123 if seed is None else seed, **options)
    made.to_parquet(out)
    print_line(f"{len(made)} rows in {out}")


@app.command()
def score(
    task: Annotated[str, typer.Argument(help="Task of Reasoning Gym, see `rg-env tasks`.")],
    response: Annotated[str | None, typer.Option(help="Response to score; - reads it from standard input.")] = None,
    index: Annotated[int, typer.Option(min=0, help="Index of the item.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data set.")] = 42,
    split: Annotated[Split, typer.Option(help="Split of the item.")] = Split.TRAIN,
    prefilled_think: Annotated[bool, typer.Option(help="The prompt already opened <think>.")] = False,
    response_format: Annotated[
        ResponseFormat,
        typer.Option("--format", help="strict: think block, then answer block. lenient: an answer block."),
    ] = ResponseFormat.STRICT,
    as_json: JsonFlag = False,
) -> None:
    """Score a response to one item and show every score; without --response, show the item.

    Example: echo "<think>1+1</think><answer>2</answer>" | rg-env score chain_sum --response -
    """
    from rg_env.dataset import ReasoningGymDataset
    from rg_env.scoring import Scorer
    from rg_env.tasks import Item

    row = ReasoningGymDataset([task], seed=seed, split=split.value, size=index + 1).row(index)
    item = Item.from_extra_info(row["extra_info"])
    shown: dict[str, Any] = {
        "item": item.id,
        "question": item.entry["question"],
        "answer": item.entry["answer"],
    }
    if response is not None:
        text = sys.stdin.read() if response == "-" else response
        with Scorer(workers=1) as scorer:
            verdict = scorer.judge(item.entry, text, item.config, prefilled_think, response_format)
        shown |= {
            "parsed_answer": verdict.parsed.answer,
            "violation": verdict.parsed.violation,
            "status": verdict.scored.status,
            "detail": verdict.scored.detail,
            "raw_score": verdict.scored.raw,
            "tagged_score": verdict.scored.tagged,
            "baseline": verdict.scored.baseline,
            "base_score": verdict.scored.score,
        }
    if as_json:
        print_json(shown)
        return
    print_fields(shown)


@app.command()
def audit(
    tasks: Annotated[str | None, typer.Option("--tasks", help="Task mix. Default: all tasks.")] = None,
    items: Annotated[int, typer.Option(min=1, help="Items per task.")] = 20,
    quick: Annotated[bool, typer.Option("--quick", help="Try fewer attacks.")] = False,
    record: Annotated[
        bool, typer.Option("--record", help="For maintainers: record the installed scorers as audited.")
    ] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Output the page for the documentation.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Attack the scorers of Reasoning Gym and of rg_env; exit code 1 if rg_env has a hole in the default mix.

    Example: rg-env audit --tasks gcd,countdown --quick
    """
    from rg_env.audit.command import run_command

    sys.exit(run_command(tasks, items, quick, record, as_markdown, as_json))


@app.command()
def doctor(
    kind: Annotated[RunKind | None, typer.Argument(help="Planned use. Default: what is installed.")] = None,
    dump_dir: Annotated[Path, typer.Option(help="Folder for dumps.")] = Path("dumps"),
    as_json: JsonFlag = False,
) -> None:
    """Check what this machine has and lacks for a run; exit code 1 if the run would fail.

    Example: rg-env doctor gpu
    """
    from rg_env.doctor import Level, examine, installed_kind

    kind = kind or installed_kind()
    findings = list(examine(kind, dump_dir))
    if as_json:
        print_json({"kind": kind, "findings": [asdict(finding) for finding in findings]})
    else:
        print_line(f"rg-env doctor {kind}")
        table = Table(box=None, show_header=False)
        for finding in findings:
            table.add_row("" if finding.level is Level.OK else finding.level, cell(finding.subject), cell(finding.text))
        console().print(table)
    sys.exit(any(finding.level is Level.PROBLEM for finding in findings))
