"""Partial credit counts beyond the score of a cheap policy on the same item; credit for tags does not count."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rg_env.base.errors import ConfigError
from rg_env.configuration.config import RGDumpConfig, ScorerConfig
from rg_env.runner.caller_pool import ScorerPool
from rg_env.runner.failures import Failure, JobFailedError, ScorerPoolError
from rg_env.scoring import Scorer, Status
from rg_env.scoring.base_score import CHEAP, RAW_ALONE, base_score, cheap_answers
from rg_env.tasks.soundness import AUDITED_TASKS, in_default_mix
from tests.runner.test_messages import kept_by

Items = Callable[[str, int], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Scorer]:
    with Scorer(workers=1, timeout=30.0, partial_credit="upstream") as made:
        yield made


@pytest.mark.parametrize("task", CHEAP)
def test_cheap_answers_score_0_unless_they_are_right(
    scorer: Scorer, upstream: Scorer, cured_items: Items, task: str
) -> None:
    credit = 0.0
    for entry in cured_items(task, 5):
        for answer in CHEAP[task](entry):
            before, after = upstream.score_answer(entry, answer), scorer.score_answer(entry, answer)
            assert (before.raw, before.tagged) == (after.raw, after.tagged)
            assert after.score == pytest.approx(float(before.score == 1), abs=1e-9)
            credit += before.score if before.score < 1 else 0
        right = scorer.score_answer(entry, entry["answer"])
        assert (right.raw, right.score) == (1.0, 1.0)
        assert 0 <= right.baseline <= 1
    assert credit > 0


def _one_cell_wrong(entry: dict[str, Any]) -> str:
    board = json.loads(entry["answer"])
    board[0][0] = 1 - board[0][0]
    return json.dumps(board)


def _last_digit_wrong(entry: dict[str, Any]) -> str:
    return str(entry["answer"][:-1]) + ("1" if entry["answer"][-1] != "1" else "2")


@pytest.mark.parametrize(("task", "wrong"), [("game_of_life", _one_cell_wrong), ("sudoku", _last_digit_wrong)])
def test_nearly_right_answers_get_partial_credit(
    scorer: Scorer, cured_items: Items, task: str, wrong: Callable[[dict[str, Any]], str]
) -> None:
    scores = []
    for entry in cured_items(task, 8):
        scored = scorer.score_answer(entry, wrong(entry))
        assert scored.raw is not None
        assert scored.score == base_score(task, scored.raw, scored.tagged or 0.0, scored.baseline) < scored.raw
        scores.append(scored.score)
    assert max(scores) > 0.2


def test_the_setting_decides_how_partial_credit_counts(scorer: Scorer, upstream: Scorer, cured_items: Items) -> None:
    (entry,) = cured_items("game_of_life", 1)
    answer = _one_cell_wrong(entry)
    with Scorer(workers=1, timeout=30.0, partial_credit="none") as strict:
        scores = [one.score_answer(entry, answer) for one in (upstream, scorer, strict)]
        assert scores[0].score == 0.99 > scores[1].score > scores[2].score == 0.0
        assert [score.baseline for score in scores] == [0.0, pytest.approx(0.96, abs=0.04), 1.0]
        assert strict.score_answer(entry, entry["answer"]).score == 1.0
    assert ScorerConfig().partial_credit == "calibrated"
    with pytest.raises(ConfigError, match="partial_credit='half': must be one of upstream, calibrated, none"):
        Scorer(partial_credit="half")


def test_an_item_has_one_baseline_that_all_who_ask_share(cured_items: Items, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who give up take it from nobody else."""
    asked = []
    (entry,) = cured_items("sudoku", 1)
    right = str(entry["answer"])

    async def run(self: Any, target: bytes, request: bytes, check: Any) -> Any:
        answer = pickle.loads(request)[1]
        if answer == right:
            return check([1.0, 0.0])
        asked.append(answer)
        await asyncio.sleep(0.01)
        return check(0.25)

    async def ask(scorer: Scorer) -> None:
        tasks = [asyncio.ensure_future(scorer.score_answer_async(copy.deepcopy(entry), right)) for _ in range(16)]
        while not asked:
            await asyncio.sleep(0.001)
        for task in tasks[:4]:
            task.cancel()
        assert {scored.baseline for scored in await asyncio.gather(*tasks[4:])} == {0.25}

    monkeypatch.setattr(ScorerPool, "run", run)
    with Scorer(workers=1) as scorer:
        asyncio.run(ask(scorer))
    assert asked == [None]


def test_a_baseline_keeps_nothing_of_the_call_that_asked_for_it(cured_items: Items) -> None:
    """In a trainer, the context of a call holds the dialogs of its batch."""
    (entry,) = cured_items("sudoku", 1)
    with Scorer(workers=1) as scorer:
        assert kept_by(lambda: scorer.score_answer_async(entry, str(entry["answer"]))) is None


@pytest.mark.parametrize("task", CHEAP)
def test_cheap_policies_find_little_in_a_corrupt_item(cured_items: Items, task: str) -> None:
    (entry,) = cured_items(task, 1)
    for value in (None, 7, "x" * 50_000, [[0] * 5] * 5000, [["a"]], 10**5000):
        metadata = {**dict.fromkeys(entry["metadata"], value), "source_dataset": task}
        for corrupt in ({**entry, "metadata": metadata}, {**entry, "question": value}, {}):
            assert len(cheap_answers(task, corrupt)) <= 10


FAILURES: list[tuple[Exception, Status | None]] = [
    (JobFailedError(Failure.TIMEOUT, "no core was free", excused=True), Status.TIMEOUT),
    (JobFailedError(Failure.CRASHED, "it died twice"), Status.TIMEOUT),
    (JobFailedError(Failure.ERROR, "it was not ready in time"), Status.ERROR),
    (ScorerPoolError("no descriptor is free"), None),
    (OSError("no descriptor is free"), Status.ERROR),
]


def test_a_baseline_that_could_not_be_computed_is_not_remembered(
    cured_items: Items, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing_unless(right: str, failure: Exception) -> Any:
        async def run(self: Any, target: bytes, request: bytes, check: Any) -> Any:
            if pickle.loads(request)[1] == right:
                return check([1.0, 0.0])
            raise failure

        return run

    with Scorer(workers=1) as scorer:
        for entry, (failure, status) in zip(cured_items("sudoku", len(FAILURES)), FAILURES, strict=True):
            right = str(entry["answer"])
            with monkeypatch.context() as failing:
                failing.setattr(ScorerPool, "run", failing_unless(right, failure))
                if status is None:
                    with pytest.raises(ScorerPoolError):
                        scorer.score_answer(entry, right)
                else:
                    failed = scorer.score_answer(entry, right)
                    assert (failed.status, failed.excused, failed.score) == (status, True, 0.0)
                    assert str(failure) in failed.detail
            scored = scorer.score_answer(entry, right)
            assert scored.score == 1.0
            assert 0 < scored.baseline < 1


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("figlet_font", "x"),
        ("propositional_logic", "↔ (Q R)"),
        ("quantum_lock", "→ → A  CA"),
        ("rush_hour", ""),
        ("spell_backward", "word (example: this"),
        ("tsumego", ""),
    ],
)
def test_credit_for_the_tags_themselves_counts_only_as_upstream_has_it(
    scorer: Scorer, upstream: Scorer, cured_items: Items, task: str, answer: str
) -> None:
    assert task in RAW_ALONE
    entries = cured_items(task, 20)
    as_upstream = [upstream.score_answer(entry, answer) for entry in entries]
    assert all(scored.score == max(scored.raw or 0.0, scored.tagged or 0.0) for scored in as_upstream)
    assert any((scored.tagged or 0.0) > (scored.raw or 0.0) for scored in as_upstream)
    for entry, before in zip(entries, as_upstream, strict=True):
        assert scorer.score_answer(entry, answer).score <= (before.raw or 0.0)


def test_several_answers_in_one_score_0(scorer: Scorer, cured_items: Items) -> None:
    for task, answer in (
        ("gsm_symbolic", "{0} 999999"),
        ("gsm_symbolic", r"{0} \boxed{{999999}}"),
        ("letter_jumble", "{0} and then some"),
        ("word_sorting", "{0}, zebra, zoo"),
    ):
        for entry in cured_items(task, 4):
            scored = scorer.score_answer(entry, answer.format(entry["answer"]))
            assert (scored.score, scored.status) == (0.0, Status.REJECTED)


# -- no answer with a small mistake counts as solved


def nearly_right(answer: str) -> Iterator[str]:
    """The answer with one small mistake: a sign or word appended, removed, changed or exchanged with its neighbor."""
    yield answer + "0"
    yield answer[:-1]
    for place in (0, len(answer) // 2, len(answer) - 1):
        for sign in "01ae":
            yield answer[:place] + sign + answer[place + 1 :]
        yield answer[:place] + answer[place + 1 : place + 2] + answer[place : place + 1] + answer[place + 2 :]
    digits = [match.start() for match in re.finditer(r"\d", answer)]
    for place in dict.fromkeys([*digits[:1], *digits[len(digits) // 2 :][:1], *digits[-1:]]):
        yield answer[:place] + ("0" if answer[place] == "1" else "1") + answer[place + 1 :]
    parts = re.split(r"(\s+)", answer)
    if len(parts) > 2:
        yield "".join(parts[:-2])
        yield "".join([*parts[:-3], parts[-1], parts[-2], parts[-3]])


@pytest.mark.parametrize(
    # the question of polynomial_equations lets the last decimal be rounded down
    "task",
    sorted(task for task in AUDITED_TASKS if in_default_mix(task) and task != "polynomial_equations"),
)
def test_a_small_mistake_is_not_solved(scorer: Scorer, cured_items: Items, task: str) -> None:
    for entry in cured_items(task, 5):
        for answer in dict.fromkeys(nearly_right(str(entry["answer"] or ""))):
            score = scorer.score_answer(entry, answer).score
            assert score >= 1 - 1e-9 or score < RGDumpConfig.solved_at, answer
