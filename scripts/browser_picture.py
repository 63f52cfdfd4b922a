"""Draws the browser of `rg-env dumps show`, as a terminal of 120 columns shows it: the picture in docs/reading.md.

python scripts/browser_picture.py docs/browser.svg dumps/sample
"""

import asyncio
import re
import sys
from pathlib import Path

from rg_env.browser.browser_app import Browser
from rg_env.dump import open_run
from rg_env.dump.group_text import Query

WIDTH, HEIGHT = 120, 26
CONDITION = "task = 'leg_counting' AND outcome = 'mixed'"


async def draw(out: Path, dump: str) -> None:
    app = Browser(lambda: open_run(dump), Query.parse(CONDITION))
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("j")
        await pilot.pause()
        svg = app.export_screenshot(title="rg-env dumps show")
    # The fonts would be loaded from the web.
    out.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    asyncio.run(draw(Path(sys.argv[1]), sys.argv[2]))
