from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.cli.options import DumpPaths, Imports, JsonFlag, ScorerTimeout, Where, import_tasks, print_remarks, spinner
from rg_env.errors import DumpError
from rg_env.output import cell, console, counted, new_table, print_json, print_line
from rg_env.processes import usable_cores

if TYPE_CHECKING:
    from rich.table import Table

    from rg_env.analysis.rescore import Rescored, Scores
    from rg_env.dump import GroupRecord


def rescore(
    paths: DumpPaths,
    where: Where = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSONL file for the old and new scores of each rollout.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Number of answers scored in parallel.")] = usable_cores(),
    timeout: ScorerTimeout = None,
    imports: Imports = None,
    as_json: JsonFlag = False,
) -> None:
    """Score the recorded responses of a dump again, with the current scorer.

    The dump is not changed. Modules that its manifest names are not imported: --imports does. Exit code 1 if any
    result differs.

    Examples:
      rg-env dumps rescore dumps/sample
      rg-env dumps rescore dumps/sample --workers 8 --out changes.jsonl
    """
    from rg_env.analysis.rescore import rescore as score_again
    from rg_env.dump import open_run

    import_tasks(imports)
    dump = open_run(*paths).where(where or [])
    with _writing(out) as each, spinner("scoring"):
        result = score_again(dump, workers=workers, timeout=timeout, each=each)
    if as_json:
        print_json({**asdict(result), "changed": result.changed})
    else:
        if result.changed:
            console().print(_table(result))
        rollouts = sum(task.rollouts for task in result.tasks.values())
        print_line(f"{counted(rollouts, 'rollout')} scored again, {result.changed} changed")
        if result.without_question:
            print_line(f"{counted(result.without_question, 'group')} skipped: their lines do not hold the question")
        if result.without_settings:
            lenient = f", {result.lenient:,} of them in the lenient format" if result.lenient else ""
            print_line(
                f"{counted(result.without_settings, 'group')} scored with the current default settings{lenient}: "
                "no manifest has those of the run"
            )
    print_remarks(dump)
    raise typer.Exit(int(bool(result.changed)))


def _table(result: Rescored) -> Table:
    from rich.text import Text

    counts = ("groups", "rollouts", "changed", "raised", "lowered", "newly_scored", "outcomes")
    table = new_table(["task"], [name.replace("_", "\n") for name in counts])
    table.add_column("for example", overflow="fold")
    for task in result.tasks.values():
        numbers = (str(getattr(task, name)) for name in counts)
        table.add_row(cell(task.task), *numbers, Text("\n").join(map(cell, task.examples)))
    return table


@contextmanager
def _writing(out: Path | None) -> Iterator[Callable[[GroupRecord, Sequence[Scores]], object]]:
    """Yield a function that writes a line for each rollout, as recorded and as scored now, to `out`, if any."""
    if out is None:
        yield lambda group, scores: None
        return
    import orjson

    from rg_env.analysis.rescore import COMPARED, has_changed
    from rg_env.atomic import replacing

    try:
        with replacing(out) as draft, draft.open("wb") as file:

            def write(group: GroupRecord, scores: Sequence[Scores]) -> None:
                for rollout, new in zip(group.rollouts, scores, strict=True):
                    row = {"group_id": group.group_id, "task": group.task, "repetition": rollout.repetition}
                    old = {name: getattr(rollout, name) for name in COMPARED}
                    row |= {"old": old, "new": new, "changed": has_changed(rollout, new)}
                    file.write(orjson.dumps(row) + b"\n")

            yield write
    except OSError as error:
        raise DumpError(f"{out} cannot be written ({error.strerror}): choose another file") from None
