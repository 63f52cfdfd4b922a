"""The figures of evidence/gpu.md are those of the dump that the run on a GPU has left."""

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

import pytest

from rg_env.dump import Dump, open_run
from rg_env.dump.validate import validate

ROOT = Path(__file__).resolve().parents[1]
DUMP = ROOT / "tests/data/gpu/dump"
PAGE = (ROOT / "evidence/gpu.md").read_text()


@pytest.fixture(scope="module")
def dump() -> Dump:
    return open_run(DUMP)


def percent(solved: Iterable[bool]) -> str:
    return f"{fmean(solved):.1%}"


def test_solve_rates(dump: Dump) -> None:
    def solved(phase: str, steps: range, tasks: Iterable[str] = ("leg_counting", "spell_backward")) -> str:
        return percent(
            rollout.score >= dump.solved_at(group)
            for group in dump.ledger()
            if group.phase == phase and group.step in steps and group.task in tasks
            for rollout in group.rollouts
        )

    before, after = range(1), range(20, 21)
    assert f"| {solved('eval', before)} → {solved('eval', after)} (" in PAGE
    for task in ("leg_counting", "spell_backward"):
        assert f"{task} {solved('eval', before, [task])} → {solved('eval', after, [task])}" in PAGE
    assert ", ".join(solved("train", range(first, first + 5)) for first in (1, 6, 11, 16)) in PAGE


def test_times_logprobs_and_canaries(dump: Dump) -> None:
    steps = {record.step: dict(zip(record.name, record.value, strict=True)) for record in dump.steps() if record.step}

    def mean(name: str) -> str:
        return f"{fmean(float(values[name] or 0) for step, values in steps.items() if step > 1):.2f}"

    assert (
        f"{mean('timing/step')}: generation {mean('timing/generate')}, training {mean('timing/policy_train')}" in PAGE
    )
    assert f"logprobs {mean('timing/fwd_logprobs_values_reward')}, weight sync {mean('timing/sync_weights')}" in PAGE
    differences = [values["policy/rollout_train_logprobs_abs_diff_mean"] or 0 for values in steps.values()]
    assert f"{fmean(differences):.4f} on average, between {min(differences):.4f} and {max(differences):.4f}" in PAGE
    largest = max(values["policy/rollout_train_logprobs_abs_diff_max"] or 0 for values in steps.values())
    assert f"{largest:.2f} at most" in PAGE
    assert {values["rg_dump/canaries"] for values in steps.values()} == {32}
    assert {values["rg_dump/mean_canary_failures"] for values in steps.values()} == {0}


def test_the_dump_is_whole(dump: Dump) -> None:
    groups = list(dump.ledger())
    assert f"{len(groups)} groups, {sum(len(group.rollouts) for group in groups):,} rollouts, no problem" in PAGE
    assert validate(DUMP).good
    statuses = [rollout.status for group in groups if group.phase == "train" for rollout in group.rollouts]
    assert {*statuses} == {"ok", "rejected"}
    rejected = sum(status == "rejected" for status in statuses)
    assert f"{rejected} of {len(statuses):,} answers rejected" in PAGE
