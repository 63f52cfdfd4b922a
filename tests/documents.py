"""The pages for users and the code in them.

A Python block runs on its own, with `dumps/sample` in the current folder. Its opening fence may say otherwise:
"```python continued" runs after the page's earlier blocks; "```python skip: REASON" does not run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
_FENCE = re.compile(r"^```python ?(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of Python code in a page.

    Attributes:
        line: of the opening fence, from 1.
        skip: why it does not run; empty if it does.
    """

    page: Path
    line: int
    code: str
    skip: str
    continued: bool

    def run(self, names: dict[str, Any]) -> None:
        exec(compile("\n" * self.line + self.code, str(self.page), "exec"), names)


def python_blocks(page: Path) -> list[Block]:
    text = page.read_text()
    blocks = []
    for match in _FENCE.finditer(text):
        mark, code = match.groups()
        assert mark in ("", "continued") or re.fullmatch(r"skip: \S.*", mark), f"{page.name}: unknown mark {mark!r}"
        line = text.count("\n", 0, match.start()) + 1
        blocks.append(
            Block(page, line, code, mark.removeprefix("skip: ") if "skip" in mark else "", mark == "continued")
        )
    return blocks


def run_page(page: Path) -> dict[str, Any]:
    """Run the blocks of a page in order. Returns the names that the last ones have."""
    names: dict[str, Any] = {}
    for block in python_blocks(page):
        if block.skip:
            continue
        if not block.continued:
            names = {"__name__": page.name}
        block.run(names)
    return names
