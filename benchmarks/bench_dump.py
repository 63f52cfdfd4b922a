"""Cost of recording: groups encoded as JSON and written to disk, compared with alternatives on the same groups.

Run: python benchmarks/bench_dump.py
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jsonlines
from loguru import logger

from rg_env.analysis import statistics
from rg_env.dump import (
    DumpWriter,
    FileKind,
    GroupRecord,
    LedgerRecord,
    Outcome,
    RolloutRecord,
    group_id,
    open_run,
    to_line,
)
from rg_env.scoring.types import Status

GROUPS, ROLLOUTS, CHARS, REPEATS = 400, 8, 2000, 5
LEDGER_GROUPS = 20_000


def make_group(number: int) -> GroupRecord:
    text = "Seven is “prime”; so 7 × 2 = 14.\n" * (CHARS // 33)
    rollouts = [
        RolloutRecord(
            conversation=[{"role": "user", "content": text[:300]}, {"role": "assistant", "content": text}],
            score=k / ROLLOUTS,
            reward=k / ROLLOUTS,
            base_score=k / ROLLOUTS,
            raw_score=k / ROLLOUTS,
            tagged_score=0.0,
            violation=None,
            status=Status.OK,
            detail="",
            answer="14",
            response_tokens=CHARS // 4,
            stop_reason="stop",
            truncated=False,
            penalty_factor=1.0,
            repetition=k,
            policy_version="3",
        )
        for k in range(ROLLOUTS)
    ]
    return GroupRecord(
        item_id="chain_sum",
        item=f"chain_sum-{number}",
        run_id="bench",
        attempt=1,
        phase="train",
        step=number // 16,
        call=number // 16,
        uid=str(number),
        group_id=group_id("bench", 1, "train", number // 16, str(number)),
        task="chain_sum",
        task_config="{}",
        level=None,
        entry=json.dumps({"question": text[:300], "answer": "14"}),
        outcome=Outcome.MIXED,
        no_signal=False,
        rollouts=rollouts,
    )


def best_of(work: Callable[[Path], object]) -> float:
    """Seconds of the fastest of several repeats, each in a separate folder."""
    seconds = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            work(Path(folder))
            seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    logger.remove()
    groups = [make_group(number) for number in range(GROUPS)]
    megabytes = sum(len(to_line(group)) for group in groups) / 1e6
    plain = [json.loads(to_line(group)) for group in groups]  # the alternatives start with dicts

    def with_json(folder: Path) -> None:
        with (folder / "dump.jsonl").open("w") as file:
            for group in plain:
                file.write(json.dumps(group) + "\n")
                file.flush()

    def with_jsonlines(folder: Path) -> None:
        with jsonlines.open(folder / "dump.jsonl", "w", flush=True) as file:
            for group in plain:
                file.write(group)

    def lines_only(folder: Path) -> None:
        with (folder / "dump.jsonl").open("wb") as file:
            for group in groups:
                file.write(to_line(group))
                file.flush()

    def with_writer(folder: Path, **options: str) -> None:
        with DumpWriter(folder, "bench", 1, **options) as writer:
            for first in range(0, GROUPS, 16):
                assert writer.submit(groups[first : first + 16]).result(10)

    print(f"{GROUPS} groups of {ROLLOUTS} rollouts, {megabytes:.0f} MB")
    for name, work in {
        "json.dumps, write, flush per group (as Atropos)": with_json,
        "jsonlines.open, flush per group": with_jsonlines,
        "rg_env to_line, write, flush per group": lines_only,
        "rg_env DumpWriter, text and ledger, acknowledged every 16 groups": with_writer,
        "… fsync=batch": partial(with_writer, fsync="batch"),
        "… fsync=group": partial(with_writer, fsync="group"),
        "… compression=zstd, until all is compressed": partial(with_writer, compression="zstd"),
    }.items():
        seconds = best_of(work)
        print(f"{name:66} {megabytes / seconds:7.0f} MB/s {1e6 * seconds / GROUPS:7.0f} µs/group")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for batch in range(LEDGER_GROUPS // 100):
            records = [LedgerRecord.of(group, FileKind.ROLLOUTS, None) for group in groups[:100]]
            path = folder / f"reasoning_gym_environment_groups_bench_{batch:04d}.jsonl"
            path.write_bytes(b"".join(map(to_line, records)))
        start = time.perf_counter()
        statistics(open_run(folder))
        print(f"statistics of {LEDGER_GROUPS} groups from the ledger: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    sys.exit(main())
