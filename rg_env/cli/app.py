"""The commands of `rg-env` but for `rg-env dumps …`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rg_env.cli.dumps import dumps_app
from rg_env.cli.options import JsonFlag
from rg_env.errors import RGEnvError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="SkyRL on Reasoning Gym: train, evaluate, and read what happened.",
)
app.add_typer(dumps_app, name="dumps")

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


class Split(StrEnum):
    train = "train"
    eval = "eval"


def main() -> None:
    """Run the command line; errors that a person can mend become one line and exit code 2."""
    try:
        app()
    except RGEnvError as error:
        print(f"rg-env: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # `rg-env … | head`: not an error
        sys.exit(0)


@app.command(context_settings=_PASS_ON)
def train(ctx: typer.Context) -> None:
    """Train: YAML files and key=value overrides, as on SkyRL's own command line."""
    from rg_env.train import run_command
    from rg_env.train import train as run

    sys.exit(run_command(run, ctx.args))


@app.command("eval", context_settings=_PASS_ON)
def evaluate(ctx: typer.Context) -> None:
    """Evaluate on the fixed evaluation set: the same arguments as `train`."""
    from rg_env.train import evaluate as run
    from rg_env.train import run_command

    def report(argv: Iterable[str]) -> None:
        metrics = run(argv)
        print(json.dumps({key: metrics[key] for key in sorted(metrics)}, indent=2, default=float))

    sys.exit(run_command(report, ctx.args))


@app.command()
def tasks(as_json: JsonFlag = False) -> None:
    """List the tasks of Reasoning Gym, each tried by making one item."""
    from rg_env.tasks import list_tasks

    found = list_tasks(validate=True)
    if as_json:
        print(json.dumps([task.as_dict() for task in found], indent=2))
        return
    table = Table("task", "category", "default mix", "soundness", "state / reason", box=None)
    table.columns[0].no_wrap = True
    for task in found:
        table.add_row(
            task.name,
            task.category,
            "yes" if task.in_default_mix else "no",
            task.soundness.value,
            task.reason if task.state == "ok" else task.state,
        )
    Console().print(table)
    print(f"{len(found)} tasks, {sum(task.in_default_mix for task in found)} in the default mix")


@app.command()
def dataset(
    out: Annotated[Path, typer.Option(help="The parquet file to write.")],
    rows: Annotated[int, typer.Option(min=1, help="How many rows; for --split eval: how many of each task.")] = 1000,
    split: Annotated[
        Split, typer.Option(help="Questions for training or for evaluation; they never overlap.")
    ] = Split.train,
    mix: Annotated[
        str | None,
        typer.Option("--tasks", help="Names, categories and patterns with commas between, or a mix in YAML."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Default: 42 for train, 123 for eval.")] = None,
    system_prompt: Annotated[str, typer.Option(help="Name or text of the system prompt.")] = "think_answer",
) -> None:
    """Export rows that stock SkyRL trains on."""
    from rg_env.dataset import ReasoningGymDataset

    if split is Split.train:
        made = ReasoningGymDataset(mix, size=rows, seed=42 if seed is None else seed, system_prompt=system_prompt)
    else:
        made = ReasoningGymDataset.fixed_eval(
            mix, samples_per_task=rows, seed=123 if seed is None else seed, system_prompt=system_prompt
        )
    made.to_parquet(out)
    print(f"{len(made)} rows in {out}")


@app.command()
def score(
    task: Annotated[str, typer.Argument(help="A task of Reasoning Gym; `rg-env tasks` lists them.")],
    response: Annotated[str | None, typer.Option(help="What a model said; `-` reads it from standard input.")] = None,
    index: Annotated[int, typer.Option(min=0, help="Which item.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="The dataset's seed.")] = 42,
    split: Annotated[Split, typer.Option(help="Which split.")] = Split.train,
    prefilled_think: Annotated[bool, typer.Option(help="The prompt already opened <think>.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Score one response to one item, showing every number; without --response, show the item."""
    from rg_env.dataset import ReasoningGymDataset
    from rg_env.scoring import Scorer
    from rg_env.tasks import Item

    row = ReasoningGymDataset([task], seed=seed, split=split.value, size=index + 1).row(index)
    item = Item.from_extra_info(row["extra_info"])
    shown: dict[str, Any] = {
        "item_id": item.item_id,
        "question": item.entry["question"],
        "answer": item.entry["answer"],
    }
    if response is not None:
        text = sys.stdin.read() if response == "-" else response
        with Scorer(workers=1) as scorer:
            verdict = scorer.judge(item.entry, text, config=item.config, prefilled_think=prefilled_think)
        shown |= {
            "parsed_answer": verdict.parsed.answer,
            "violation": verdict.parsed.violation,
            "status": verdict.scored.status,
            "detail": verdict.scored.detail,
            "raw_score": verdict.scored.raw,
            "tagged_score": verdict.scored.tagged,
            "base_score": verdict.scored.score,
        }
    if as_json:
        print(json.dumps(shown, indent=2))
        return
    for key, value in shown.items():
        print(f"{key}: {value}")


@app.command()
def audit(
    tasks: Annotated[str | None, typer.Option("--tasks", help="A task mix; default: all tasks.")] = None,
    items: Annotated[int, typer.Option(min=1, help="Items per task.")] = 20,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer attacks.")] = False,
    record: Annotated[bool, typer.Option("--record", help="For maintainers: note the scorers as audited.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the page for the documents.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Attack the scorers, Reasoning Gym's own and ours; exit code 1 if ours has a hole in the default mix."""
    from rg_env.audit.command import run_command

    sys.exit(run_command(tasks, items, quick, record, as_markdown, as_json))
