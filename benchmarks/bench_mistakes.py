"""How long it takes until `rg-env train` reports a wrong setting, and how long the import of SkyRL's trainer takes,
which precedes SkyRL's own checks.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.comparison import Comparison, of_command, python, rg_env, timed
from tests.skyrl.checks.mistakes import THROUGH_THE_COMMAND

ROOT = Path(__file__).resolve().parents[1]


def comparisons(folder: Path, quick: bool) -> Iterator[Comparison]:
    mistakes = itertools.cycle(THROUGH_THE_COMMAND)

    def report() -> None:
        done = subprocess.run(
            [*rg_env("train", "configs/quickstart.yaml"), next(mistakes)], cwd=ROOT, capture_output=True
        )
        assert done.returncode == 2, done.stderr

    alone = lambda: of_command(python("import skyrl.train.trainer")).wall  # noqa: E731
    yield Comparison("a mistake", "s", timed(report, "s"), alone, "`import skyrl.train.trainer`", slow=True)
