from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.cli.options import DumpPaths, JsonFlag, ScorerTimeout, print_remarks
from rg_env.cli.progress import late_bar
from rg_env.errors import DumpError
from rg_env.output import cell, console, new_table, print_json, print_line
from rg_env.processes import usable_cores

if TYPE_CHECKING:
    from rich.table import Table

    from rg_env.analysis.rescore import Comparison, Rescored


def rescore(
    paths: DumpPaths,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSONL file for the old and new scores of each rollout.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Number of answers scored in parallel.")] = usable_cores(),
    timeout: ScorerTimeout = None,
    as_json: JsonFlag = False,
) -> None:
    """Score the recorded responses of a dump again, with the current scorer.

    The dump is not changed. Exit code 1 if any result differs.

    Examples:
      rg-env dumps rescore dumps/sample
      rg-env dumps rescore dumps/sample --workers 8 --out changes.jsonl
    """
    from rg_env.analysis.rescore import rescore as score_again
    from rg_env.dump import open_run

    dump = open_run(*paths)
    total = sum(len(record.rollouts) for record in dump.ledger(all_attempts=True) if record.text) or None
    with _writing(out) as each, late_bar("scoring", total) as advance:
        result = score_again(dump, workers=workers, timeout=timeout, each=each, advance=advance)
    if as_json:
        print_json({**asdict(result), "changed": result.changed})
    else:
        if result.changed:
            console().print(_table(result))
        rollouts = sum(task.rollouts for task in result.tasks.values())
        print_line(f"{rollouts} rollouts scored again, {result.changed} changed")
        if result.without_question:
            print_line(f"{result.without_question} groups skipped: their lines do not hold the question (Atropos)")
        if result.without_settings:
            print_line(f"{result.without_settings} groups scored with the current default settings: no manifest")
    print_remarks(dump)
    raise typer.Exit(int(bool(result.changed)))


def _table(result: Rescored) -> Table:
    from rich.text import Text

    counts = ("groups", "rollouts", "changed", "raised", "lowered", "status", "violation", "outcomes")
    table = new_table(["task"], counts)
    table.add_column("for example", overflow="fold")
    for task in result.tasks.values():
        numbers = (task.groups, task.rollouts, task.changed, task.raised, task.lowered, task.status, task.violation)
        table.add_row(
            cell(task.task), *map(str, numbers), str(task.outcomes), Text("\n").join(map(cell, task.examples))
        )
    return table


@contextmanager
def _writing(out: Path | None) -> Iterator[Callable[[Comparison], object]]:
    """Yield a function that takes each comparison: writes it to `out`, if any."""
    if out is None:
        yield lambda _: None
        return
    import jsonlines
    import orjson

    from rg_env.atomic import replacing
    from rg_env.dump.strings import escape, map_strings

    try:
        with replacing(out) as draft, jsonlines.open(draft, "w", dumps=orjson.dumps) as lines:
            yield lambda one: lines.write(map_strings({**asdict(one), "changed": one.changed}, escape))
    except OSError as error:
        raise DumpError(f"{out} cannot be written ({error.strerror}): choose another file") from None
