"""Recording groups of 8 rollouts of 2,000 characters: `DumpWriter` with text and ledger, 64 groups at a time
(a batch of 64 prompts), in files of 100 groups. Wall time per group until the operating system has it; the
rivals start with JSON objects or encoded lines, write one file, and keep no ledger.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.comparison import Comparison, Goal, Measure, timed
from benchmarks.make_dump import make_group
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import DumpWriter, GroupRecord, to_line

CHARS, TEMPLATES, PER_CALL = 2000, 384, 64
GROUPS = 192
"""In one run; the growth curve has 1, 10 and 100 times as many."""
NOTES = (
    "Few groups include the start and the end of the writer: its lock, its thread, and the names of the last files.",
    "Text and ledger line are one write each.",
)


def comparisons(folder: Path, quick: bool) -> Iterator[Comparison]:
    draw, text = random.Random(7), "Seven is “prime”; so 7 × 2 = 14.\n" * (CHARS // 33)
    groups = [make_group(number, draw, [text]) for number in range(TEMPLATES)]
    plain = [json.loads(to_line(group)) for group in groups]  # the rivals start with what they need
    lines = list(map(to_line, groups))
    names = itertools.count()

    def measure(work: Callable[[Path, int], object], count: int) -> Measure:
        def once() -> float:
            place = folder / str(next(names))
            place.mkdir()
            cost = timed(partial(work, place, count), "µs", count)()
            for path in place.iterdir():  # or the disk would be full of what was written, and busy writing it
                path.unlink()
            return cost

        return once

    def writer(place: Path, count: int, fsync: bool = False) -> None:
        with DumpWriter(place, "bench", 1, RGDumpConfig(dump_fsync=fsync)) as dump:
            for batch in _calls(groups, count):
                assert dump.write_blocking(batch)

    def json_dumps(place: Path, count: int, fsync: bool = False) -> None:
        with (place / "dump.jsonl").open("w") as file:
            for group in itertools.islice(itertools.cycle(plain), count):
                file.write(json.dumps(group) + "\n")
                file.flush()
                if fsync:
                    os.fsync(file.fileno())

    def raw(place: Path, count: int) -> None:
        with (place / "dump.jsonl").open("wb", buffering=0) as file:
            for line in itertools.islice(itertools.cycle(lines), count):
                file.write(line)

    atropos = "`json.dumps`, write and flush per group, as Atropos"
    for factor in (1, 10) if quick else (1, 10, 100):
        yield Comparison(
            f"{GROUPS * factor:,} groups",
            "µs",
            measure(writer, GROUPS * factor),
            measure(json_dumps, GROUPS * factor),
            atropos,
            goal=Goal(ratio=0.8),
        )
    for what, fsync, rival, rival_name in (
        ("{} groups, and no JSON for the other", False, raw, "a raw write of the same bytes of text"),
        ("`dump_fsync=true`, {} groups", True, partial(json_dumps, fsync=True), f"{atropos}, and fsync"),
    ):
        ours = measure(partial(writer, fsync=fsync), GROUPS)
        yield Comparison(what.format(GROUPS), "µs", ours, measure(rival, GROUPS), rival_name)


def _calls(groups: Sequence[GroupRecord], count: int) -> Iterator[Sequence[GroupRecord]]:
    """`count` groups as calls of `generate()` hand them over."""
    return (groups[first % TEMPLATES : first % TEMPLATES + PER_CALL] for first in range(0, count, PER_CALL))
