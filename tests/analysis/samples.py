"""Groups to count, drawn by hypothesis or at random, and dumps of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

from rg_env.dump import Dump, FileKind, GroupRecord, LedgerRecord, RolloutRecord, open_run, to_line
from rg_env.dump.files import batch_name
from rg_env.scoring.types import Status, Violation
from tests.dump.records import RUN_ID, group, rollout, violating

SCORES = [0.0, 0.3, 0.5, 0.99, 1.0]


@st.composite
def rollouts(draw: st.DrawFn) -> RolloutRecord:
    tokens, cut = draw(st.none() | st.integers(0, 40)), draw(st.booleans())
    if violation := draw(st.none() | st.sampled_from(list(Violation))):
        return violating(0, violation)
    status = draw(st.sampled_from([Status.OK, Status.OK, *Status]))
    if status is not Status.OK:
        return rollout(0.0, status=status, raw_score=None, tagged_score=None, response_tokens=tokens)
    raw, tagged, factor = (draw(st.sampled_from(SCORES)) for _ in range(3))
    base = max(raw, tagged)
    return rollout(
        base,
        raw_score=raw,
        tagged_score=tagged,
        score=base * factor,
        reward=base * factor - 0.25,
        penalty_factor=factor,
        response_tokens=tokens,
        truncated=cut,
    )


@st.composite
def groups(draw: st.DrawFn, max_size: int = 14) -> list[GroupRecord]:
    drawn = draw(st.lists(st.lists(rollouts(), min_size=1, max_size=6), min_size=1, max_size=max_size))
    return [
        group(
            uid,
            members,
            task=draw(st.sampled_from(["chain_sum", "gcd"])),
            step=draw(st.none() | st.integers(1, 9)),
            phase=draw(st.sampled_from(["train", "train", "eval"])),
            level=draw(st.sampled_from([None, '{"terms":2}', '{"terms":3}'])),
        )
        for uid, members in enumerate(drawn)
    ]


def write_ledger(folder: Path, members: Sequence[GroupRecord], run_id: str = RUN_ID) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / batch_name(FileKind.LEDGER, run_id, 0)
    path.write_bytes(b"".join(to_line(LedgerRecord.of(g, FileKind.ROLLOUTS, None)) for g in members))
    return path


def write_texts(folder: Path, members: Sequence[GroupRecord], run_id: str = RUN_ID) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / batch_name(FileKind.ROLLOUTS, run_id, 0)
    path.write_bytes(b"".join(map(to_line, members)))
    return path


def ledger_dump(folder: Path, members: Sequence[GroupRecord]) -> Dump:
    return open_run(write_ledger(folder, members))
