from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rg_env.cli.options import JsonFlag, ScorerTimeout, print_remarks
from rg_env.output import cell, console, new_table, print_fields, print_json, print_line
from rg_env.sanitize import visible

if TYPE_CHECKING:
    from rich.table import Table

    from rg_env.analysis.replay import Step


def replay(
    path: Annotated[Path, typer.Argument(metavar="DUMP", help="Dump folder or file.")],
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Group id, or its unique beginning or end.")],
    timeout: ScorerTimeout = None,
    as_json: JsonFlag = False,
) -> None:
    """Score one group again and show each step next to the recorded value.

    Exit code 1 if any value differs.

    Examples:
      rg-env dumps replay dumps/sample spell_backward-train-42-637542
    """
    from rich.padding import Padding
    from rich.text import Text

    from rg_env.analysis.replay import replay as replay_group
    from rg_env.dump import open_run

    dump = open_run(path)
    result = replay_group(dump, group, timeout=timeout)
    record = result.group
    head = {
        "group_id": record.group_id,
        "task": record.task,
        "task_config": record.task_config,
        "question": result.question.entry.get("question"),
        "expected": result.question.entry.get("answer"),
    }
    if as_json:
        rollouts = [{"repetition": r.repetition, "text": r.text, "steps": _as_dicts(r.steps)} for r in result.rollouts]
        shown = {**head, "differences": result.differences, "steps": _as_dicts(result.steps), "rollouts": rollouts}
        print_json({**shown, "remarks": list(result.remarks)})
        raise typer.Exit(int(bool(result.differences)))
    terminal = console()
    print_fields(head)
    for rollout in result.rollouts:
        terminal.print()
        terminal.print(Text(f"rollout {rollout.repetition}", style="bold"))
        terminal.print(Padding.indent(Text(visible(rollout.text), style="dim"), 2))
        terminal.print(_table(rollout.steps))
    terminal.print()
    terminal.print(Text("group", style="bold"))
    terminal.print(_table(result.steps))
    for remark in result.remarks:
        print_line(remark)
    print_line(
        f"{result.differences} values differ from the record" if result.differences else "all values as recorded"
    )
    print_remarks(dump)
    raise typer.Exit(int(bool(result.differences)))


def _as_dicts(steps: Sequence[Step]) -> list[dict[str, object]]:
    return [{**asdict(step), "differs": step.differs} for step in steps]


def _table(steps: Sequence[Step]) -> Table:
    from rich.text import Text

    table = new_table(["value", "recorded", "now", "", "why"])
    table.columns[0].no_wrap = table.columns[3].no_wrap = True
    for step in steps:
        mark = Text("≠", style="bold red") if step.differs else Text("=" if step.compared else "?")
        cells = (cell(_shown(step.recorded)), cell(_shown(step.recomputed)))
        table.add_row(step.name, *cells, mark, cell(step.why))
    return table


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "–" if value is None else str(value)
