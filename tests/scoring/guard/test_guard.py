"""What the guard refuses and what it lets through."""

from __future__ import annotations

import copy
import inspect
import re
import string
from collections.abc import Callable
from typing import Any

import pytest
import reasoning_gym
from hypothesis import given
from hypothesis import strategies as st
from reasoning_gym.factory import DATASETS

from rg_env.scoring import Scorer, Status, guard
from tests.scoring.guard.right_answers import (
    AROUND,
    NOTATIONS,
    answer_of,
    entry_of,
    item_of,
    refusal_of,
    variants,
    written,
)
from tests.scoring.guard.texts import TEXTS

Item = Callable[..., dict[str, Any]]
Items = Callable[[str, int], list[dict[str, Any]]]

_EVALUATES = re.compile(r"\b(eval|exec|parse_expr|sympify)\(")
EVALUATING = sorted(guard.REWRITES)
GUARDED = sorted(guard.REWRITES | guard.CHECKS)


CHAIN_SUM = entry_of("chain_sum", answer="4")


def test_the_tasks_that_run_answers_are_those_whose_scorers_evaluate() -> None:
    found = {
        task for task, (dataset, _) in DATASETS.items() if _EVALUATES.search(inspect.getsource(dataset.score_answer))
    }
    # number_sorting evaluates the entry's own answer; propositional_logic has a parser of its own by this name
    assert found - {"number_sorting"} == guard.REWRITES.keys()


@pytest.mark.parametrize(
    ("answer", "word"),
    [("4\0", "NUL"), ("\ud83d", "surrogate"), ("ü\udfff", "surrogate"), ("\ud83d\ude00", "surrogate")],
)
def test_what_is_no_text_is_refused(answer: str, word: str) -> None:
    assert word in (refusal_of(CHAIN_SUM, answer) or "")


@pytest.mark.parametrize("answer", ["", "4", "ä ≤ 漢字 😀", "\x01\n\t", "\U0010ffff", "\ud7ff\ue000"])
def test_every_other_text_passes_where_no_task_asks_for_more(answer: str) -> None:
    assert refusal_of(CHAIN_SUM, answer) is None


@pytest.mark.parametrize("task", EVALUATING)
def test_a_refusal_is_a_status_with_its_reason_and_the_right_answer_scores(
    scorer: Scorer, item: Item, task: str
) -> None:
    entry = item(task)
    scored = scorer.score_answer(entry, "zorp(1)")
    assert scored.status is Status.REJECTED
    assert scored.detail == refusal_of(entry, "zorp(1)")
    assert scorer.score_answer(entry, entry["answer"]).score == 1.0


# -- false rejections


@pytest.mark.parametrize("task", sorted({*GUARDED} - {"rush_hour"}))  # whose items hold no answer
def test_right_answers_pass_and_score_what_the_raw_scorer_gives(scorer: Scorer, cured_items: Items, task: str) -> None:
    dataset = reasoning_gym.create_dataset(task, seed=1, size=1)
    for entry in cured_items(task, 20):
        answer = answer_of(entry)
        scored = scorer.score_answer(entry, answer)
        assert scored.status is Status.OK, (answer, scored.detail)
        assert scored.raw == min(1.0, dataset.score_answer(answer, copy.deepcopy(entry)))


@pytest.mark.parametrize("task", EVALUATING)
def test_every_written_variant_that_the_raw_scorer_rewards_passes(task: str) -> None:
    dataset = reasoning_gym.create_dataset(task, seed=1, size=1)
    assert sum(len(answers) for _, answers in written("rewarded", task)) >= 30
    for entry, answers in written("rewarded", task):
        for answer in answers:
            assert refusal_of(entry, answer) is None, answer
            assert dataset.score_answer(answer, copy.deepcopy(entry)) >= 0.1, answer


@pytest.mark.parametrize("task", NOTATIONS)
def test_right_answers_pass_however_they_are_written(cured_items: Items, task: str) -> None:
    """Where spaces are all that is around them, even those that upstream gives a part of the score."""
    dataset = reasoning_gym.create_dataset(task, seed=1, size=1)
    # Upstream takes milliseconds for each form of an integral.
    for entry in cured_items(task, 1 if "integration" in task else 3):
        spaced = set(variants(entry)) if task not in guard.REWRITES else ()
        refused = [answer for answer in variants(entry, AROUND) if refusal_of(entry, answer) is not None]
        assert not [
            answer for answer in refused if _upstream(dataset, answer, entry) >= (0.1 if answer in spaced else 1 - 1e-9)
        ]


def test_the_forms_cover_every_guarded_task() -> None:
    assert set(NOTATIONS) == (guard.REWRITES | guard.CHECKS).keys() - {"rush_hour"}


def _upstream(dataset: Any, answer: str, entry: dict[str, Any]) -> float:
    try:
        return float(dataset.score_answer(answer, copy.deepcopy(entry)))
    except Exception:
        return 0.0


_JSON = [
    *('{"":' * depth + "{}" + "}" * depth for depth in (0, 20, 100, 350, 1300)),
    *(
        "{" + ",".join(f'"{key * number}":{value}' for number in range(60)) + "}"
        for key in " a"
        for value in ("0", "{}")
    ),
    *(f'{{"": {value}}}' for value in ('"' + "\U0001f600" * 4000 + '"', "9" * 5000, "1e400", "NaN", "[" * 4000)),
    *("{", "}{", "null", "[]", '""'),
]
"""Objects that are deep, wide or long, which upstream's codeio paid whatever was asked."""


def test_forms_that_were_once_refused_score_1(scorer: Scorer) -> None:
    for entry, answers in written("right"):
        least = 0.8 if entry["metadata"]["source_dataset"] == "spell_backward" else 1.0
        for answer in answers:
            scored = scorer.score_answer(entry, answer)
            assert scored.score >= least, (answer, scored.detail)


def test_what_is_near_to_those_forms_is_refused() -> None:
    for entry, answers in written("wrong"):
        task = entry["metadata"]["source_dataset"]
        more = _JSON if task == "codeio" else ["[" * 5000, "9" * 5000] if task == "game_of_life" else []
        for answer in [*answers, *more]:
            assert refusal_of(entry, answer) is not None, (task, answer[:80])


def test_items_beyond_the_default_difficulty_may_have_answers_as_large(cured_items: Items) -> None:
    hard = {
        "max_terms": 16,
        "min_degree": 9,
        "max_degree": 10,
        "min_polynomials": 9,
        "max_polynomials": 10,
        "max_value": 10**8,
    }
    for seed in range(5):
        entry = reasoning_gym.create_dataset("polynomial_multiplication", seed=seed, size=1, **hard)[0]
        assert refusal_of(entry, entry["answer"]) is None
    entry = reasoning_gym.create_dataset("simple_integration", seed=1, size=1, min_degree=400, max_degree=500)[0]
    assert refusal_of(entry, entry["answer"]) is None


def test_an_item_whose_own_answer_is_long_allows_long_answers(scorer: Scorer) -> None:
    entry = reasoning_gym.create_dataset("spiral_matrix", seed=1, size=1, min_n=100, max_n=100)[0]
    assert len(entry["answer"]) > 8192
    verdict = scorer.score_response(entry, f"<think></think><answer>{entry['answer']}</answer>")
    assert (verdict.scored.status, verdict.scored.score) == (Status.OK, 1.0)
    assert scorer.score_answer(entry, "1 " * 20_000).status is Status.REJECTED


# -- whatever the text


@given(answer=TEXTS | st.text(max_size=60))
def test_no_text_makes_the_guard_raise(answer: str) -> None:
    for task in GUARDED:
        reason = refusal_of(item_of(task), answer)
        assert reason is None or (reason and "\n" not in reason)


# -- however long the text

# fmt: off
UNITS = [
    *string.punctuation, *string.whitespace, *"0129aexjzACEIKNOQRSTXZ",
    "×", "∧", "٣", "\u00a0", ", ", "1 ", "1,", "1+", "x*", "2**", "-1", "()", "[]", "[(", "'',", "1.", "0.", "e9", "1e",
    "sin(", "x/", " + ", "A+1 ", "A+", "F2 ", "R' ", "Zoe is a knight, ", "and ", '{"a":', "<answer>", "a b", "True ",
    "boxed{", "1/", "1:", "0,", "[0,", "[[0", "1 \n", "\n\n", "--", "- ", "'a", "\\", "** ", "(1", "1)", "n a n ",
]
# fmt: on


@pytest.mark.parametrize("task", sorted(guard.REWRITES | guard.CHECKS))
@pytest.mark.timeout(60)  # quadratic time would take longer
def test_long_answers_take_linear_time(task: str) -> None:
    entry = item_of(task)
    for unit in UNITS:
        for end in ("", "x"):
            refusal_of(entry, unit * (32_000 // len(unit)) + end)
