from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rg_env.cli.options import DumpPaths, print_remarks
from rg_env.cli.progress import reading

if TYPE_CHECKING:
    from rg_env.analysis.export import Exported
    from rg_env.analysis.export.kinds import Kind


class _Formats(TyperGroup):
    """A format that does not exist is one line, as everything else that a person can mend."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        from rg_env.analysis.export import ExportError

        if args and args[0] not in self.commands:
            raise ExportError(f"no format {args[0]!r}: use one of {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)


export_app = typer.Typer(
    cls=_Formats, no_args_is_help=True, help="Make a data set to train on, with its card, from what runs have recorded."
)


class Think(StrEnum):
    keep = "keep"
    drop = "drop"


class By(StrEnum):
    score = "score"
    base_score = "base_score"


Out = Annotated[
    Path, typer.Option("--out", help="FILE.jsonl or FILE.parquet, in a folder of its own: README.md goes beside it.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier export.")]
Tasks = Annotated[str, typer.Option(help="Only these tasks: names and patterns with commas between.")]
ThinkOption = Annotated[Think, typer.Option(help="What becomes of think blocks.")]
PerTask = Annotated[
    str | None,
    typer.Option(help="Examples of each task at most: a number, all, median (of the tasks' counts) or smallest."),
]
Seed = Annotated[int, typer.Option(help="Of the draw where a task has more.")]
IncludeEval = Annotated[bool, typer.Option("--include-eval", help="Take evaluation groups, too: contamination.")]


@export_app.command()
def sft(
    paths: DumpPaths,
    out: Out,
    min_score: Annotated[float, typer.Option(help="Lowest base score of a response.")] = 0.99,
    per_group: Annotated[int, typer.Option(help="Responses of a group at most; the best come first.")] = 1,
    think: ThinkOption = Think.keep,
    tasks: Tasks = "",
    per_task: PerTask = None,
    seed: Seed = 42,
    include_eval: IncludeEval = False,
    force: Force = False,
) -> None:
    """Good responses, for supervised training. Tasks are evened out: --per-task median unless you say otherwise."""
    from rg_env.analysis.export import Sft

    _export(Sft(min_score, per_group), paths, out, think, tasks, per_task, seed, include_eval, force)


@export_app.command()
def dpo(
    paths: DumpPaths,
    out: Out,
    margin: Annotated[float, typer.Option(help="Least difference in score between the two.")] = 0.5,
    by: Annotated[By, typer.Option(help="The score that differs: after the length penalty, or before.")] = By.score,
    pairs: Annotated[int, typer.Option(help="Pairs of a group at most: best with worst, and so on inwards.")] = 1,
    think: ThinkOption = Think.keep,
    tasks: Tasks = "",
    per_task: PerTask = None,
    seed: Seed = 42,
    include_eval: IncludeEval = False,
    force: Force = False,
) -> None:
    """Pairs of a better and a worse response to the same prompt."""
    from rg_env.analysis.export import Dpo
    from rg_env.analysis.export.dpo import By as Number

    _export(Dpo(margin, Number(by.value), pairs), paths, out, think, tasks, per_task, seed, include_eval, force)


@export_app.command()
def grpo(
    paths: DumpPaths,
    out: Out,
    keep_no_signal: Annotated[
        bool, typer.Option("--keep-no-signal", help="Take groups whose rewards are all equal, too.")
    ] = False,
    think: ThinkOption = Think.keep,
    tasks: Tasks = "",
    per_task: PerTask = None,
    seed: Seed = 42,
    include_eval: IncludeEval = False,
    force: Force = False,
) -> None:
    """Whole groups with the reward of each response."""
    from rg_env.analysis.export import Grpo

    _export(Grpo(keep_no_signal), paths, out, think, tasks, per_task, seed, include_eval, force)


def _export(
    kind: Kind,
    paths: list[Path],
    out: Path,
    think: Think,
    tasks: str,
    per_task: str | None,
    seed: int,
    include_eval: bool,
    force: bool,
) -> None:
    from rg_env.analysis.export import Common, export
    from rg_env.analysis.export import Think as ThinkBlock
    from rg_env.analysis.export.kinds import parse_per_task
    from rg_env.dump import open_run

    common = Common(
        think=ThinkBlock(think.value),
        include_eval=include_eval,
        tasks=tuple(name.strip() for name in tasks.split(",") if name.strip()),
        per_task=None if per_task is None else parse_per_task(per_task),
        seed=seed,
    )
    dump = open_run(*paths)
    with reading(dump, texts=1):
        result = export(dump, kind, out, common, force=force)
    _print(result, out)
    print_remarks(dump)
    sys.exit(0 if result.rows else 1)


def _print(result: Exported, out: Path) -> None:
    from rg_env.sanitize import visible

    if result.rows:
        print(f"{result.rows} lines in {out}, from {result.groups} groups with {result.rollouts} rollouts")
        for task, count in sorted(result.per_task.items()):
            print(f"{count:9,}  {visible(task)}")
    else:
        print(f"nothing to export: {result.groups} groups with {result.rollouts} rollouts were read, none is left")
    if result.left_out.total():
        print("left out:")
        for what, count in result.left_out.rows():
            print(f"{count:9,}  {what}")
    for note in result.notes:
        print(f"rg-env: {note}", file=sys.stderr)
