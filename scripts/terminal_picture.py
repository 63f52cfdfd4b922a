"""Draws what the terminal shows at the end of `rg-env train`, from a real run: the picture in the README.

    python scripts/terminal_picture.py docs/terminal.svg configs/quickstart.yaml [key=value …]

The panel and the last lines are drawn by the code that draws them on a terminal. Prints the same as text at 80, 100 and
200 columns, to look at.
"""

import io
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console

from rg_env import train
from rg_env.base.output import guard_streams
from rg_env.terminal.screen import Screen, ending
from rg_env.terminal.supervisor import supervise

WIDTH = 100


def draw(console: Console, screen: Screen, args: list[str], lines: Iterable[Any]) -> None:
    console.print(f"$ rg-env train {' '.join(args)}")
    screen._console = console
    console.print(screen.panel())
    for line in lines:
        console.print(line, soft_wrap=True)


def main() -> None:
    out, *args = sys.argv[1:]
    guard_streams()
    screen = Screen("train")
    code = supervise(lambda: train.train(args), screen)
    screen.end(code, args)
    lines = list(ending(screen.facts, code, args, screen.began))
    picture = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False, markup=False)
    draw(picture, screen, args, lines)
    svg = picture.export_svg(title="rg-env train")
    Path(out).write_text(
        re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    )  # they would be loaded from the web
    for width in (80, WIDTH, 200):
        draw(Console(width=width, highlight=False, markup=False), screen, args, lines)
    sys.exit(code)


if __name__ == "__main__":
    main()
