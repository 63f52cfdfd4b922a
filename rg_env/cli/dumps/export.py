from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.choices import Think
from rg_env.cli.base import Command, CommandGroup
from rg_env.cli.options import DumpPaths, Where, print_remarks, spinner
from rg_env.output import counted, print_error, print_line

if TYPE_CHECKING:
    from rg_env.analysis.export import Dpo, Sft

export_app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="""Make a data set for supervised fine-tuning or DPO from a dump, or write it in the format of another program.

    Prompts without responses are made by `rg-env dataset`.

    Examples:
      rg-env dumps export sft runs/quickstart/dumps --out data/sft/train.jsonl
      rg-env dumps export dpo runs/quickstart/dumps --out data/dpo/train.jsonl
      rg-env dumps export atif runs/quickstart/dumps --out data/trajectories.jsonl
    """,
)

Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="FILE.jsonl")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
MinScore = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Minimum base score of what is trained toward. By default only solved responses: at least the run's "
        "`solved_at`, 0.99 if it is unknown.",
        show_default=False,
    ),
]
ThinkOption = Annotated[Think, typer.Option(help="Keep or drop think blocks.")]
IncludeEval = Annotated[
    bool, typer.Option("--include-eval", help="Include evaluation groups. Contaminates later evaluations.")
]


@export_app.command(cls=Command)
def sft(
    paths: DumpPaths,
    out: Out,
    min_score: MinScore = None,
    per_group: Annotated[int, typer.Option(min=1, help="Maximum number of responses per group, best first.")] = 1,
    think: ThinkOption = Think.KEEP,
    where: Where = None,
    include_eval: IncludeEval = False,
    force: Force = False,
) -> None:
    """Export solved responses for supervised fine-tuning.

    Examples:
      rg-env dumps export sft dumps/sample --out sft/train.jsonl
      rg-env dumps export sft dumps/sample --think drop --where "task = 'gcd'" --out sft/train.jsonl
    """
    from rg_env.analysis.export import Sft

    _export(Sft(min_score, per_group), paths, out, think, where, include_eval, force)


@export_app.command(cls=Command)
def dpo(
    paths: DumpPaths,
    out: Out,
    min_score: MinScore = None,
    margin: Annotated[
        float,
        typer.Option(min=0.001, max=1, help="Minimum difference between the two scores, after the length penalty."),
    ] = 0.5,
    think: ThinkOption = Think.KEEP,
    where: Where = None,
    include_eval: IncludeEval = False,
    force: Force = False,
) -> None:
    """Export preference pairs: the best solved response of each group, and the worst one.

    Examples:
      rg-env dumps export dpo dumps/sample --out dpo/train.jsonl
      rg-env dumps export dpo dumps/sample --margin 0.3 --out dpo/train.jsonl
    """
    from rg_env.analysis.export import Dpo

    _export(Dpo(min_score, margin), paths, out, think, where, include_eval, force)


def _export(
    kind: Sft | Dpo,
    paths: list[Path],
    out: Path,
    think: Think,
    where: list[str] | None,
    include_eval: bool,
    force: bool,
) -> None:
    from rg_env.analysis.export import Reason, export
    from rg_env.dump import open_run

    dump = open_run(*paths).where(where or [])
    with spinner("reading"):
        result = export(dump, kind, out, think=think, include_eval=include_eval, force=force)
    source = f"{counted(result.groups, 'group')} with {counted(result.rollouts, 'rollout')}"
    print_line(
        f"{counted(result.rows, 'line')} in {out}, from {source}"
        if result.rows
        else f"nothing to export: {source} read"
    )
    for task, count in sorted(result.per_task.items()):
        print_line(f"{count:9,}  {task}")
    if result.left_out.total():
        print_line("left out:")
    for reason in Reason:
        if count := result.left_out[reason]:
            print_line(f"{count:9,}  {reason.value}")
    for note in result.notes:
        print_error(note)
    print_remarks(dump)
    raise typer.Exit(int(not result.rows))


@export_app.command(cls=Command)
def atif(
    paths: DumpPaths,
    out: Annotated[
        Path, typer.Option("--out", metavar="PATH", help="FILE.jsonl, or a new folder for a file of each rollout.")
    ],
    where: Where = None,
    force: Force = False,
) -> None:
    """Export all rollouts with text as trajectories in ATIF, Harbor's format. `rg-env dumps import atif` reads them.

    Examples:
      rg-env dumps export atif dumps/sample --out atif/trajectories.jsonl
      rg-env dumps export atif dumps/sample --where "phase = 'eval'" --out atif/eval
    """
    _export_records("atif", paths, out, where, force)


@export_app.command(cls=Command)
def traces(paths: DumpPaths, out: Out, where: Where = None, force: Force = False) -> None:
    """Export all rollouts with text as traces of verifiers. `rg-env dumps import verifiers` reads them.

    Examples:
      rg-env dumps export traces dumps/sample --out verifiers/traces.jsonl
    """
    _export_records("traces", paths, out, where, force)


def _export_records(name: str, paths: list[Path], out: Path, where: list[str] | None, force: bool) -> None:
    from rg_env.dump import open_run
    from rg_env.errors import DumpError
    from rg_env.formats import DOCUMENTS, export_records

    if name == "traces" and out.suffix != ".jsonl":
        raise DumpError(f"--out {out}: the name must end in .jsonl, as in traces.jsonl")
    dump = open_run(*paths).where(where or [])
    with spinner("reading"):
        result = export_records(dump, DOCUMENTS[name], out, force=force)
    source = f"{counted(result.rollouts, 'rollout')} in {counted(result.groups, 'group')}"
    print_line(f"{source} in {out}" if result.rollouts else "nothing to export")
    if result.without_text:
        print_line(f"left out: {counted(result.without_text, 'group')} whose text was not kept")
    print_remarks(dump)
    raise typer.Exit(int(not result.rollouts))
