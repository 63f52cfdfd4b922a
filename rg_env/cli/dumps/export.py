from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.choices import PairBy, Think
from rg_env.cli import complete
from rg_env.cli.base import Command, Group
from rg_env.cli.options import DumpPaths, Where, print_remarks
from rg_env.cli.progress import reading
from rg_env.output import print_error, print_line

if TYPE_CHECKING:
    from rg_env.analysis.export import Exported
    from rg_env.analysis.export.kinds import Kind


export_app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="""Make a data set for supervised fine-tuning, DPO or GRPO from a dump.

    A data set card (README.md) is written next to it.

    Examples:
      rg-env dumps export sft runs/quickstart/dumps --out data/sft/train.jsonl
      rg-env dumps export dpo runs/quickstart/dumps --out data/dpo/train.parquet
    """,
)

Out = Annotated[
    Path,
    typer.Option("--out", metavar="FILE", help="FILE.jsonl or FILE.parquet; README.md is written next to it."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier export.")]
Tasks = Annotated[
    str,
    typer.Option(help="Names and patterns of tasks, separated by commas. Default: all.", autocompletion=complete.tasks),
]
ThinkOption = Annotated[Think, typer.Option(help="Keep or drop think blocks.")]
PerTaskOption = Annotated[
    str | None,
    typer.Option(metavar="N", help="Maximum number of examples per task: a number, all, median or smallest."),
]
Seed = Annotated[int, typer.Option(help="Seed for choosing examples of tasks that have more.")]
IncludeEval = Annotated[
    bool, typer.Option("--include-eval", help="Include evaluation groups. Contaminates later evaluations.")
]


@export_app.command(cls=Command)
def sft(
    paths: DumpPaths,
    out: Out,
    min_score: Annotated[float, typer.Option(help="Minimum base score of a response.")] = 0.99,
    per_group: Annotated[int, typer.Option(help="Maximum number of responses per group, best first.")] = 1,
    think: ThinkOption = Think.KEEP,
    where: Where = None,
    tasks: Tasks = "",
    per_task: PerTaskOption = None,
    seed: Seed = 42,
    include_eval: IncludeEval = False,
    force: Force = False,
) -> None:
    """Export good responses for supervised fine-tuning.

    Tasks are balanced by default (--per-task median).

    Examples:
      rg-env dumps export sft dumps/sample --out sft/train.jsonl
      rg-env dumps export sft dumps/sample --think drop --out sft/train.parquet
    """
    from rg_env.analysis.export import Sft

    _export(Sft(min_score, per_group), paths, out, think, where, tasks, per_task, seed, include_eval, force)


@export_app.command(cls=Command)
def dpo(
    paths: DumpPaths,
    out: Out,
    margin: Annotated[float, typer.Option(help="Minimum difference between the two scores.")] = 0.5,
    by: Annotated[
        PairBy, typer.Option(help="Compare scores after the length penalty, or base scores, before it.")
    ] = PairBy.SCORE,
    pairs: Annotated[
        int, typer.Option(help="Maximum number of pairs per group: best with worst, second best with second worst.")
    ] = 1,
    think: ThinkOption = Think.KEEP,
    where: Where = None,
    tasks: Tasks = "",
    per_task: PerTaskOption = None,
    seed: Seed = 42,
    include_eval: IncludeEval = False,
    force: Force = False,
) -> None:
    """Export preference pairs: a better and a worse response to the same prompt.

    Examples:
      rg-env dumps export dpo dumps/sample --out dpo/train.jsonl
      rg-env dumps export dpo dumps/sample --margin 0.3 --out dpo/train.jsonl
    """
    from rg_env.analysis.export import Dpo

    _export(Dpo(margin, by, pairs), paths, out, think, where, tasks, per_task, seed, include_eval, force)


@export_app.command(cls=Command)
def grpo(
    paths: DumpPaths,
    out: Out,
    keep_no_signal: Annotated[
        bool, typer.Option("--keep-no-signal", help="Include groups whose rewards are all equal.")
    ] = False,
    think: ThinkOption = Think.KEEP,
    where: Where = None,
    tasks: Tasks = "",
    per_task: PerTaskOption = None,
    seed: Seed = 42,
    include_eval: IncludeEval = False,
    force: Force = False,
) -> None:
    """Export whole groups with the reward of each response.

    Examples:
      rg-env dumps export grpo dumps/sample --out grpo/train.parquet
      rg-env dumps export grpo dumps/sample --where step=10.. --out grpo/train.jsonl
    """
    from rg_env.analysis.export import Grpo

    _export(Grpo(keep_no_signal), paths, out, think, where, tasks, per_task, seed, include_eval, force)


def _export(
    kind: Kind,
    paths: list[Path],
    out: Path,
    think: Think,
    where: list[str] | None,
    tasks: str,
    per_task: str | None,
    seed: int,
    include_eval: bool,
    force: bool,
) -> None:
    from rg_env.analysis.export import Common, export
    from rg_env.analysis.export.kinds import parse_per_task
    from rg_env.dump import open_run

    common = Common(
        think=think,
        include_eval=include_eval,
        tasks=tuple(name.strip() for name in tasks.split(",") if name.strip()),
        per_task=None if per_task is None else parse_per_task(per_task),
        seed=seed,
        where=tuple(where or ()),
    )
    dump = open_run(*paths)
    with reading(dump, frames=1 if where else 0, texts=1):
        result = export(dump, kind, out, common, force=force)
    _print(result, out)
    print_remarks(dump)
    sys.exit(0 if result.rows else 1)


def _print(result: Exported, out: Path) -> None:
    source = f"{result.groups} groups with {result.rollouts} rollouts"
    print_line(
        f"{result.rows} lines in {out}, from {source}"
        if result.rows
        else f"nothing to export: {source} read, none left"
    )
    for task, count in sorted(result.per_task.items()):
        print_line(f"{count:9,}  {task}")
    if result.left_out.total():
        print_line("left out:")
        for what, count in result.left_out.rows():
            print_line(f"{count:9,}  {what}")
    for note in result.notes:
        print_error(note)
