"""The pages for users, and the blocks of code in them.

An indented block has commands for a shell. A fenced one with the word python, yaml or toml has what it says, one
without a word shows output. Comments above a block, which readers do not see, say what a test does not do with it:

    <!-- weekly: REASON -->             runs in `make test-weekly`
    <!-- not run: REASON -->            does not run
    <!-- not run, lines 2, 3: REASON --> … these lines of the block; a line that goes on counts once

"```python continued" runs after the page's earlier Python, other Python on its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EVIDENCE = sorted((ROOT / "evidence").glob("*.md"))
"""Pages for reviewers, whose links are checked and whose commands are not run."""
_MARK = re.compile(r"<!-- (weekly|not run)(?:, lines? ([\d, ]+))?: (\S.*) -->")


@dataclass(frozen=True)
class Mark:
    """Why some lines of a block do not run; of no line in particular, why the block does not.

    Attributes:
        when: `weekly` or `not run`.
        lines: from 1.
    """

    when: str
    lines: frozenset[int]
    reason: str


@dataclass(frozen=True)
class Block:
    """A block of code in a page.

    Attributes:
        line: its first one in the page, from 1.
        kind: `shell`, or the words after the fence.
    """

    page: Path
    line: int
    kind: str
    code: str
    marks: tuple[Mark, ...]

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def mark_of(self, line: int) -> Mark | None:
        return next((mark for mark in self.marks if not mark.lines or line in mark.lines), None)

    def commands(self) -> Iterator[tuple[str, Mark | None]]:
        """Each command of a shell's block, and why it does not run."""
        for number, command in enumerate(self.code.replace("\\\n", " ").splitlines(), start=1):
            yield command, self.mark_of(number)


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    marks: list[Mark] = []
    lines = page.read_text().splitlines()
    at = 0
    while at < len(lines):
        line, start = lines[at], at + 1
        at += 1
        if mark := _MARK.fullmatch(line):
            numbers = frozenset(int(number) for number in (mark[2] or "").split(", ") if number)
            marks.append(Mark(mark[1], numbers, mark[3]))
            continue
        assert not re.match(r"<!-- *(weekly|not run)", line), f"{page.name}:{start}: {line}"
        if line.startswith("```"):
            end = lines.index("```", at)
            found.append(Block(page, start + 1, line[3:], "\n".join(lines[at:end]) + "\n", tuple(marks)))
            at = end + 1
        elif line.startswith("    ") and not lines[at - 2].strip().startswith(("- ", "1. ")):
            while at < len(lines) and lines[at].startswith("    "):
                at += 1
            code = "\n".join(text[4:] for text in lines[start - 1 : at]) + "\n"
            found.append(Block(page, start, "shell", code, tuple(marks)))
        else:
            assert not line or not marks, f"{page.name}:{start}: a mark above no block"
            continue
        marks = []
    return found


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.kind.startswith("python")]


def run_page(page: Path) -> dict[str, Any]:
    """Run the Python of a page in order. Returns the names that the last block has."""
    names: dict[str, Any] = {}
    for block in python_blocks(page):
        if block.marks:
            continue
        if block.kind != "python continued":
            names = {"__name__": page.name}
        exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)
    return names
