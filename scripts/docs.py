"""Writes the tables of the pages that follow from the code: `make docs`. `--check` only compares them.

A table stands between `<!-- NAME: made by make docs -->` and `<!-- end -->`. Its texts are the docstrings of what it
lists, so a fact has one text.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from typer.main import get_command

from rg_env.analysis import STATISTICS
from rg_env.analysis.signs import MEANINGS as SIGNS
from rg_env.cli import app
from rg_env.cli.base import commands_of
from rg_env.configuration.config import RGDumpConfig
from rg_env.configuration.setting_names import FILE, write_names
from rg_env.dump.column_types import columns_of
from rg_env.dump.schema import GroupFacts, GroupRecord, LedgerFacts, LedgerRecord, Record, RolloutFacts, RolloutRecord
from rg_env.scoring import Status
from rg_env.scoring.length import LENGTH_PENALTIES
from rg_env.scoring.types import MEANINGS
from rg_env.skyrl.train_config import known_settings

ROOT = Path(__file__).resolve().parents[1]
LIST_OF_SETTINGS = ROOT / "rg_env" / FILE
BLOCK = re.compile(r"(<!-- (?P<name>\w+): made by make docs -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def docstrings(owner: type[Any]) -> dict[str, str]:
    """The text below each field of a dataclass and each member of an enum, on one line; "" where there is none."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for node, after in zip(body.body, [*body.body[1:], None], strict=True):
        targets: list[ast.expr] = []
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            assert isinstance(target, ast.Name)
            text = after.value if isinstance(after, ast.Expr) else None
            texts[target.id] = one_line(str(text.value)) if isinstance(text, ast.Constant) else ""
    return texts


def attributes(record: type[Any]) -> dict[str, str]:
    """The entries of the section `Attributes:` in a docstring, with JSON's word for None."""
    section = inspect.cleandoc(record.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", section, re.MULTILINE)
    return {name: re.sub(r"\bNone\b", "null", one_line(text)) for name, text in entries}


def one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def settings() -> str:
    return table(("setting", "default", "meaning"), list(setting_rows(RGDumpConfig(), "")))


def setting_rows(config: Any, prefix: str) -> Iterator[tuple[str, ...]]:
    texts = docstrings(type(config))
    for field in dataclasses.fields(config):
        name, value = f"{prefix}{field.name}", getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from setting_rows(value, f"{name}.")
            continue
        default = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        yield f"`{name}`", default, texts[field.name]


def record_keys() -> str:
    """Every key of a group's lines: its type, which files have it, and what it means."""
    places = {Record: "group", GroupFacts: "group", GroupRecord: "text", LedgerFacts: "ledger"}
    places |= {RolloutFacts: "rollout", RolloutRecord: "rollout, text"}
    described = [(name, place, text) for record, place in places.items() for name, text in attributes(record).items()]
    declared = {*GroupRecord.__struct_fields__, *LedgerRecord.__struct_fields__, *RolloutRecord.__struct_fields__}
    assert declared == {name for name, _, _ in described}, "a field without a line in its class's docstring"
    types = columns_of(LedgerRecord) | columns_of(GroupRecord) | columns_of(RolloutRecord)
    rows = []
    for name, place, text in described:
        kind = types[name]
        rows.append((f"`{name}`", kind if isinstance(kind, str) else "list of objects", place, text))
    return table(("key", "type", "where", "meaning"), rows)


def members(kind: type[StrEnum]) -> list[tuple[str, ...]]:
    texts = docstrings(kind)
    return [(f"`{member.value}`", texts[member.name]) for member in kind]


def violations() -> str:
    return table(("violation", "meaning"), [(f"`{violation}`", meaning) for violation, meaning in MEANINGS.items()])


def statuses() -> str:
    return table(("status", "meaning"), members(Status))


def length_penalties() -> str:
    rules = LENGTH_PENALTIES.items()
    return table(("kind", "effect"), [(f"`{name}`", (rule.__doc__ or "").partition("\n")[0]) for name, rule in rules])


def statistics() -> str:
    return table(("statistic", "meaning"), [(f"`{statistic.name}`", statistic.meaning) for statistic in STATISTICS])


def signs() -> str:
    rows = [(name, meaning.shows, meaning.blind) for name, meaning in SIGNS.items()]
    return table(("sign", "reported if", "does not see"), rows)


def commands() -> str:
    return table(("command", "what it does"), list(command_rows(get_command(app), "rg-env")))


def command_rows(command: Any, path: str) -> Iterator[tuple[str, ...]]:
    for name, below in commands_of(command).items():
        inner = commands_of(below) if hasattr(below, "commands") else {}
        if inner and path != "rg-env":
            yield f"`{path} {name}` {', '.join(f'`{format}`' for format in inner)}", first_line(below)
        elif inner:
            yield from command_rows(below, f"{path} {name}")
        else:
            yield f"`{path} {name}`", first_line(below)


def first_line(command: Any) -> str:
    return inspect.cleandoc(command.help or "").partition("\n")[0]


TABLES = (settings, record_keys, violations, statuses, length_penalties, statistics, signs, commands)


def main() -> int:
    """Write the list of settings and every page that has a table, or say which are not up to date."""
    made = {make.__name__: make for make in TABLES}
    stale = []
    names = write_names({name: setting.is_free_form for name, setting in known_settings().items()})
    if names != LIST_OF_SETTINGS.read_text():
        stale.append(LIST_OF_SETTINGS)
        if "--check" not in sys.argv:
            LIST_OF_SETTINGS.write_text(names)
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]):
        text = page.read_text()
        new = BLOCK.sub(lambda match: f"{match[1]}{made[match['name']]()}\n{match[3]}", text)
        if new != text:
            stale.append(page)
            if "--check" not in sys.argv:
                page.write_text(new)
    files = ", ".join(str(page.relative_to(ROOT)) for page in stale)
    if "--check" in sys.argv and stale:
        print(f"not up to date: {files}; run `make docs`", file=sys.stderr)
        return 1
    print(f"written: {files}" if files else "up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
