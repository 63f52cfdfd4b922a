"""`rg-env dumps export` and `rg-env dumps import`: data sets for training, and the formats of other programs."""

import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.base.choices import Split, Think
from rg_env.base.output import print_error, print_line
from rg_env.base.wording import counted
from rg_env.cli.base import CommandApp
from rg_env.cli.options import DumpPaths, Force, Selection, locate_dumps, print_remarks, reading

if TYPE_CHECKING:
    from rg_env.analysis.export import Dpo, Sft

_LEFT_OUT_SHOWN = 10

export_app = CommandApp(
    """Make a data set for supervised fine-tuning or DPO from a dump, or write it in the format of another program.

    Prompts without responses are made by `rg-env dataset`.

    Examples:
      rg-env dumps export sft runs/quickstart/dumps --out data/sft/train.jsonl
      rg-env dumps export dpo runs/quickstart/dumps --out data/dpo/train.jsonl
      rg-env dumps export atif runs/quickstart/dumps --out data/trajectories.jsonl
      rg-env dumps export parquet runs/quickstart/dumps --out quickstart.parquet
    """,
)
import_app = CommandApp(
    """Make a dump from another program's rollouts.

    Examples:
      rg-env dumps import trl out/completions --out runs/trl
      rg-env dumps import skyrl exports/dumped_evals --out runs/skyrl --name "large batch"
    """,
)

Out = Annotated[Path, typer.Option(metavar="FILE", help="FILE.jsonl")]


@dataclass(frozen=True, kw_only=True)
class DataSetOptions(Selection):
    """Options of exports for training."""

    out: Out
    min_score: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Minimum base score of an exported response. By default only solved responses: at least the run's "
            "`solved_at`, 0.99 if it is unknown.",
            show_default=False,
        ),
    ] = None
    think: Annotated[Think, typer.Option(help="Keep or drop think blocks.")] = Think.KEEP
    include_eval: Annotated[
        bool, typer.Option("--include-eval", help="Include evaluation groups. Contaminates later evaluations.")
    ] = False
    force: Force = False


@export_app.command()
def sft(
    options: DataSetOptions,
    per_group: Annotated[int, typer.Option(min=1, help="Maximum number of responses per group, best first.")] = 1,
) -> None:
    """Export solved responses for supervised fine-tuning.

    Examples:
      rg-env dumps export sft dumps/sample --out sft/train.jsonl
      rg-env dumps export sft dumps/sample --think drop --where "task = 'gcd'" --out sft/train.jsonl
    """
    from rg_env.analysis.export import Sft

    _export_data_set(Sft(options.min_score, per_group), options)


@export_app.command()
def dpo(
    options: DataSetOptions,
    margin: Annotated[
        float,
        typer.Option(min=0.001, max=1, help="Minimum difference between the two scores, after the length penalty."),
    ] = 0.5,
) -> None:
    """Export preference pairs: the best solved response of each group, and the worst one.

    Examples:
      rg-env dumps export dpo dumps/sample --out dpo/train.jsonl
      rg-env dumps export dpo dumps/sample --margin 0.3 --out dpo/train.jsonl
    """
    from rg_env.analysis.export import Dpo

    _export_data_set(Dpo(options.min_score, margin), options)


def _export_data_set(kind: "Sft | Dpo", options: DataSetOptions) -> None:
    from rg_env.analysis.export import Reason, export

    dump, out = options.open(), options.out
    with reading():
        result = export(dump, kind, out, think=options.think, include_eval=options.include_eval, force=options.force)
    source = f"{counted(result.groups, 'group')} with {counted(result.rollouts, 'rollout')}"
    rows = counted(result.rows, "line")
    if result.rows:
        print_line(f"{rows} in {out}, from {source}")
    else:
        print_line(f"nothing to export: {source} read")
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


@export_app.command()
def atif(
    selection: Selection,
    out: Annotated[Path, typer.Option(metavar="PATH", help="FILE.jsonl, or a new folder for a file of each rollout.")],
    force: Force = False,
) -> None:
    """Export all rollouts with text as trajectories in ATIF, Harbor's format. `rg-env dumps import atif` reads them.

    Examples:
      rg-env dumps export atif dumps/sample --out atif/trajectories.jsonl
      rg-env dumps export atif dumps/sample --where "phase = 'eval'" --out atif/eval
    """
    _export_records("atif", selection, out, force)


@export_app.command()
def traces(selection: Selection, out: Out, force: Force = False) -> None:
    """Export all rollouts with text as traces of verifiers. `rg-env dumps import verifiers` reads them.

    Examples:
      rg-env dumps export traces dumps/sample --out verifiers/traces.jsonl
    """
    from rg_env.base.atomic import check_output

    _export_records("traces", selection, check_output(out, ".jsonl", force=force), force)


def _export_records(name: str, selection: Selection, out: Path, force: bool) -> None:
    from rg_env.formats import DOCUMENTS, export_records

    dump = selection.open()
    with reading():
        result = export_records(dump, DOCUMENTS[name], out, force=force)
    source = f"{counted(result.rollouts, 'rollout')} in {counted(result.groups, 'group')}"
    if result.rollouts:
        print_line(f"{source} in {out}")
    else:
        print_line("nothing to export")
    if result.without_text:
        print_line(f"left out: {counted(result.without_text, 'group')} whose text was not kept")
    print_remarks(dump)
    raise typer.Exit(int(not result.rollouts))


@export_app.command()
def parquet(
    selection: Selection,
    out: Annotated[Path, typer.Option(metavar="FILE", help="FILE.parquet")],
    force: Force = False,
) -> None:
    """Export the ledger as a typed table that polars, pandas, DuckDB and `datasets` read, with a row for each rollout.

    Examples:
      rg-env dumps export parquet runs/quickstart/dumps --out quickstart.parquet
      rg-env dumps export parquet runs/a/dumps runs/b/dumps --where "phase = 'eval'" --out evals.parquet
    """
    from rg_env.analysis.export import export_table
    from rg_env.base.atomic import check_output

    out = check_output(out, ".parquet", force=force)
    dump = selection.open()
    with reading():
        rows = export_table(dump, out)
    print_line(f"{counted(rows, 'rollout')} in {out}")
    print_remarks(dump, texts=False)


@export_app.command()
def card(
    paths: DumpPaths,
    license_name: Annotated[
        str, typer.Option("--license", metavar="NAME", help="The hub's name of a license, such as cc-by-4.0.")
    ] = "",
    force: Force = False,
) -> None:
    """Write the README.md with which the Hugging Face hub and `datasets` read a dump folder.

    Then `hf upload USER/NAME FOLDER . --repo-type dataset` publishes it. The manifest beside it has all settings of the
    run, with the name and paths of this machine.

    Examples:
      rg-env dumps export card runs/quickstart/dumps
      rg-env dumps export card runs/quickstart/dumps --license cc-by-4.0 --force
    """
    from rg_env.analysis.card import write_card
    from rg_env.analysis.export import assumed_phases
    from rg_env.base.errors import ConfigError
    from rg_env.dump import open_run

    # No card over several folders: the hub's data sets are one folder each.
    folders = locate_dumps(paths)
    if len(folders) > 1:
        raise ConfigError(f"{len(folders)} dumps are given: a card describes one folder, so give one at a time")
    folder = folders[0]
    dump = open_run(folder)
    with reading():
        written = write_card(dump, folder, license_name=license_name.lower(), force=force)
    print_line(f"{written.path}: configurations {', '.join(written.configs)}")
    if written.unfinished:
        print_error(f"{counted(written.unfinished, 'file')} of an unfinished run left out: make the card again")
    if not license_name:
        print_line("fill in its field `license`, or give --license NAME --force")
    print_line("the manifest has the settings, the name and the paths of this machine: look at it before you publish")
    for note in assumed_phases(dump):
        print_error(note)
    print_line(f"to publish: hf upload USER/NAME {shlex.quote(str(folder))} . --repo-type dataset")
    print_remarks(dump)


_IMPORTS = {
    "atif": ("trajectories in ATIF: jobs of Harbor, a JSON file for each, or JSON Lines", "jobs"),
    "verifiers": ("traces of verifiers or prime-rl", "outputs"),
    "trl": ("TRL's completions_*.parquet (log_completions=True)", "out/completions"),
    "skyrl": ("evaluations that SkyRL saved (trainer.dump_eval_results=true)", "exports/dumped_evals"),
    "verl": ("rollouts that verl saved (trainer.rollout_data_dir or validation_data_dir)", "rollouts"),
    "atropos": ("files that Atropos' Reasoning Gym environment saved", "data_dumps"),
    "nemo-gym": ("rollouts that NeMo Gym collected, with responses of the Responses API", "results"),
}
"""What can be imported, by its name in `rg_env.formats.FORMATS`: the records, and where an example has them."""


@contextmanager
def undone_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block with an exception, as Ctrl-C does, so that what it wrote is removed."""

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    # Without a handler, either signal ends the process at once, and half an imported dump stays.
    earlier = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _importer(name: str, records: str, folder: str) -> Callable[..., None]:
    """Make the command that imports records of a format."""

    def command(
        source: Annotated[
            Path, typer.Argument(metavar="SOURCE", help="A file, or a folder with files of the program.")
        ],
        out: Annotated[Path, typer.Option(metavar="FOLDER", help="The dump folder, new or empty.")],
        run_name: Annotated[
            str, typer.Option("--name", metavar="NAME", help="Name of the run. Default: the folder's.")
        ] = "",
        phase: Annotated[
            Split | None, typer.Option(help="The phase of records that do not say it.", show_default=False)
        ] = None,
        reward: Annotated[
            str, typer.Option(metavar="NAME", help="The number that is the reward, where records have several.")
        ] = "",
    ) -> None:
        from rg_env.dump import Phase
        from rg_env.formats import FORMATS, import_records

        chosen = Phase(phase) if phase else None
        options = {"run_name": run_name, "reward": reward}
        with reading(), undone_by_signals():
            result = import_records(name, FORMATS[name], source, out, phase=chosen, **options)
        for line in result.left_out[:_LEFT_OUT_SHOWN]:
            print_error(line)
        if result.records_left_out > _LEFT_OUT_SHOWN:
            print_error(f"… {counted(result.records_left_out, 'record')} left out in total")
        print_line(str(result))
        raise typer.Exit(int(bool(result.records_left_out)))

    # Typer's help is the docstring, which an f-string in its place would not be.
    command.__doc__ = f"""Import {records}.

    What the source lacks stays empty and is said. Exit code 1 if a record was left out, 2 if none fits.

    Examples:
      rg-env dumps import {name} {folder} --out runs/{name}
    """
    return command


for _name, (_records, _folder) in _IMPORTS.items():
    import_app.command(_name)(_importer(_name, _records, _folder))
