from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env.cli.options import DumpPaths, Imports, JsonFlag, ScorerTimeout, import_tasks, print_remarks
from rg_env.cli.progress import spinner
from rg_env.errors import DumpError
from rg_env.output import cell, console, counted, new_table, print_fields, print_json, print_line
from rg_env.processes import usable_cores
from rg_env.sanitize import visible

if TYPE_CHECKING:
    from rich.table import Table

    from rg_env.analysis.rescore import Rescored, RescoredGroup, Value
    from rg_env.dump import Dump, GroupRecord


def rescore(
    paths: DumpPaths,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="Show every value of this group: its id, or a unique beginning or end."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSONL file for the old and new scores of each rollout.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Number of answers scored in parallel.")] = usable_cores(),
    timeout: ScorerTimeout = None,
    imports: Imports = None,
    as_json: JsonFlag = False,
) -> None:
    """Score the recorded responses of a dump again, with the current scorer.

    With --group, every value of one group from the response to the reward is shown next to the recorded one. The dump
    is not changed. Exit code 1 if any result differs.

    Examples:
      rg-env dumps rescore dumps/sample
      rg-env dumps rescore dumps/sample --workers 8 --out changes.jsonl
      rg-env dumps rescore dumps/sample --group spell_backward-train-42-0#0
    """
    from rg_env.analysis.rescore import rescore as score_again
    from rg_env.analysis.rescore import rescore_group
    from rg_env.dump import open_run

    import_tasks(imports)
    dump = open_run(*paths)
    if group is not None:
        _print_group(dump, rescore_group(dump, group, timeout=timeout), as_json)
        return
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
            print_line(
                f"{counted(result.without_question, 'group')} skipped: their lines do not hold the question (Atropos)"
            )
        if result.without_settings:
            print_line(
                f"{counted(result.without_settings, 'group')} scored with the current default settings: no manifest"
            )
    print_remarks(dump)
    raise typer.Exit(int(bool(result.changed)))


def _table(result: Rescored) -> Table:
    from rich.text import Text

    counts = ("groups", "rollouts", "changed", "raised", "lowered", "outcomes")
    table = new_table(["task"], counts)
    table.add_column("for example", overflow="fold")
    for task in result.tasks.values():
        numbers = (str(getattr(task, name)) for name in counts)
        table.add_row(cell(task.task), *numbers, Text("\n").join(map(cell, task.examples)))
    return table


def _print_group(dump: Dump, result: RescoredGroup, as_json: bool) -> None:
    from rich.padding import Padding
    from rich.text import Text

    record = result.group
    head = {name: getattr(record, name) for name in ("group_id", "task", "task_config")}
    head |= {"question": result.question.get("question"), "expected": result.question.get("answer")}
    if as_json:
        rollouts = [
            {"repetition": rollout.repetition, "text": rollout.response, "values": _as_dicts(values)}
            for rollout, values in zip(record.rollouts, result.rollouts, strict=True)
        ]
        shown = {**head, "differences": result.differences, "values": _as_dicts(result.values), "rollouts": rollouts}
        print_json({**shown, "remarks": list(result.remarks)})
    else:
        terminal = console()
        print_fields(head)
        for rollout, values in zip(record.rollouts, result.rollouts, strict=True):
            terminal.print(Text(f"\nrollout {rollout.repetition}", style="bold"))
            terminal.print(Padding.indent(Text(visible(rollout.response), style="dim"), 2))
            terminal.print(_values(values))
        terminal.print(Text("\ngroup", style="bold"))
        terminal.print(_values(result.values))
        for remark in result.remarks:
            print_line(remark)
        count = result.differences
        print_line(f"differences from the record: {count}" if count else "all values as recorded")
        print_remarks(dump)
    raise typer.Exit(int(bool(result.differences)))


def _as_dicts(values: Sequence[Value]) -> list[dict[str, Any]]:
    return [asdict(value) | {"differs": value.differs} for value in values]


def _values(values: Sequence[Value]) -> Table:
    from rich.text import Text

    table = new_table(["value", "recorded", "now", ""])
    table.columns[0].no_wrap = table.columns[3].no_wrap = True
    for value in values:
        mark = Text("≠", style="bold red") if value.differs else Text("=" if value.compared else "?")
        table.add_row(value.name, cell(_shown(value.recorded)), cell(_shown(value.now)), mark)
    return table


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "–" if value is None else str(value)


@contextmanager
def _writing(out: Path | None) -> Iterator[Callable[[GroupRecord, GroupRecord], object]]:
    """Yield a function that takes a group as recorded and as scored now: writes each rollout to `out`, if any."""
    if out is None:
        yield lambda old, new: None
        return
    import orjson

    from rg_env.analysis.rescore import COMPARED, has_changed
    from rg_env.atomic import replacing
    from rg_env.dump.strings import escape

    try:
        with replacing(out) as draft, draft.open("wb") as file:

            def write(old: GroupRecord, new: GroupRecord) -> None:
                for was, now in zip(old.rollouts, new.rollouts, strict=True):
                    row = {"group_id": escape(old.group_id), "task": escape(old.task), "repetition": was.repetition}
                    scores = {
                        side: {k: getattr(one, k) for k in COMPARED} for side, one in (("old", was), ("new", now))
                    }
                    file.write(orjson.dumps(row | scores | {"changed": has_changed(was, now)}) + b"\n")

            yield write
    except OSError as error:
        raise DumpError(f"{out} cannot be written ({error.strerror}): choose another file") from None
