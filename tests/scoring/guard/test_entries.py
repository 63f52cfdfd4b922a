"""Entries are as untrusted as answers: none is evaluated, and a corrupt one is an error in one line."""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import reasoning_gym
from hypothesis import given, settings
from hypothesis import strategies as st

from rg_env.scoring import Scorer, Status, guard
from rg_env.scoring.expressions import Refusal
from rg_env.tasks.levels import scale_of
from rg_env.tasks.soundness import AUDITED_TASKS
from rg_env.tasks.upstream.patched_dataset import UpstreamDataset
from tests.scoring.guard.right_answers import item_of
from tests.scoring.guard.test_evaluated import check_evaluated
from tests.scoring.guard.texts import TEXTS, spoiled

Items = Callable[[str, int], list[dict[str, Any]]]

EVALUATED = [
    ("bitwise_arithmetic", "answer"),
    ("intermediate_integration", "integrand"),
    ("intermediate_integration", "variable"),
    ("number_sorting", "answer"),
    ("polynomial_multiplication", "answer"),
    ("simple_integration", "integrand"),
]


def changed(entry: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    if field in ("answer", "question"):
        return {**entry, field: value}
    return {**entry, "metadata": {**entry["metadata"], field: value}}


@pytest.mark.parametrize(("task", "field"), EVALUATED)
@given(st.data())
def test_a_text_of_an_entry_is_evaluated_only_as_the_guard_writes_it(
    task: str, field: str, data: st.DataObject
) -> None:
    own = item_of(task)
    right = str(own["answer"] if field == "answer" else own["metadata"][field])
    value = data.draw(TEXTS | spoiled(right) | st.sampled_from([5, None, ["zorp(1)"], "(" * 5000, "1+" * 5000]))
    entry = changed(own, field, value)
    if task == "bitwise_arithmetic":  # whose problem the scorer would evaluate, and does not get
        entry = changed(entry, "problem", "zorp(1)")
    try:
        admitted, _, _ = guard.admit(entry, "1")
    except guard.BrokenEntry as broken:
        assert str(broken).startswith((f"the entry is not a valid {task} item", "the entry's own answer has more"))
        assert len(str(broken)) < 300
        return
    except Refusal:  # of the answer
        admitted = guard.ENTRIES[task](entry)
    if task == "bitwise_arithmetic":
        assert admitted["metadata"]["problem"] == admitted["answer"]
        assert re.fullmatch(r"-?0x[0-9a-f]+", admitted["answer"])
    elif task == "number_sorting":
        assert all(re.fullmatch(r"[-+0-9.eE]+", number) for number in json.loads(admitted["answer"]))
    else:
        text = admitted["answer"] if field == "answer" else admitted["metadata"]["integrand"]
        check_evaluated(task, text, admitted)


def test_a_power_in_an_integrand_is_bounded() -> None:
    entry = item_of("simple_integration")
    rewrite, variable = guard.ENTRIES["simple_integration"], entry["metadata"]["variable"]
    rewrite(changed(entry, "integrand", f"{variable}**10000"))
    with pytest.raises(Refusal, match="an exponent is larger than 10000"):
        rewrite(changed(entry, "integrand", f"{variable}**10001"))


def test_a_power_in_the_answer_of_an_entry_is_bounded_however_large_its_own_is() -> None:
    entry = item_of("polynomial_multiplication")
    variable = re.findall("[a-z]", entry["metadata"]["polynomial_expr"])[0]
    rewrite = guard.ENTRIES["polynomial_multiplication"]
    rewrite(changed(entry, "answer", f"{variable}**10000 + 1"))
    for power in ("10001", "41638", "9" * 3000):
        with pytest.raises(Refusal, match=r"an exponent is larger than 10000|a number has more than"):
            rewrite(changed(entry, "answer", f"{variable}**{power}"))


def test_an_entry_that_cannot_be_read_is_an_error_of_the_item(scorer: Scorer, cured_items: Items) -> None:
    entry = cured_items("simple_integration", 1)[0]
    scored = scorer.score_answer(changed(entry, "integrand", "zorp(1)"), "1")
    assert (scored.status, scored.excused) == (Status.ERROR, True)
    assert "not a valid simple_integration item" in scored.detail
    assert scorer.score_answer(entry, entry["answer"]).score == 1.0


@pytest.mark.parametrize("task", guard.ENTRIES)
@pytest.mark.parametrize("complexity", [0.0, 0.5, 1.0])
def test_items_of_every_level_keep_their_meaning(task: str, complexity: float) -> None:
    options = scale_of(task, {}).options(complexity)
    dataset = UpstreamDataset(task, options)
    scorer = reasoning_gym.create_dataset(task, **{**options, "seed": 0, "size": 1})
    for seed in range(3):
        entry = dataset.make(seed)
        safe = guard.ENTRIES[task](entry)
        assert scorer.score_answer(entry["answer"], copy.deepcopy(dict(safe))) == 1.0


def test_a_rule_that_raises_on_an_answer_alone_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer never gets the excuse that is meant for corrupt entries."""
    monkeypatch.setitem(
        guard.CHECKS, "gcd", guard.Check(lambda entry, answer: bool(answer == "4" or 1 / 0), "must be 4")
    )
    entry = {"question": "", "answer": "4", "metadata": {"source_dataset": "gcd"}}
    with pytest.raises(Refusal, match="must be 4"):
        guard.admit(entry, "5")


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


NASTY = [
    *(None, 5, -1, 10**5000, 1e308, float("nan"), True, Fraction(1, 3), [], {}, (), [[]], {"a": None}, deep(2000)),
    *(
        "",
        "1/0",
        "1e3000",
        "nan",
        "[" * 30_000,
        "9" * 30_000,
        "9 × " * 30_000 + "9",
        "x\ny",
        "\ud800",
        "é" * 2_000_000,
    ),
]


@settings(max_examples=200)
@given(task=st.sampled_from(sorted(AUDITED_TASKS)), number=st.integers(0, len(NASTY) - 1), data=st.data())
def test_a_corrupt_entry_never_makes_the_guard_raise(task: str, number: int, data: st.DataObject) -> None:
    entry = item_of(task)
    fields = sorted({"answer", "question", *entry["metadata"]} - {"source_dataset"})
    corrupt = changed(entry, data.draw(st.sampled_from(fields)), NASTY[number])
    for answer in ("1", str(entry["answer"]), "1/2", "[[1]]"):
        assert guard.longest(corrupt, 8192) >= 8192
        try:
            admitted = guard.admit(corrupt, answer)
        except (Refusal, guard.BrokenEntry) as reason:
            assert 10 < len(str(reason)) < 300
        else:
            assert isinstance(admitted[0], dict)


class Unprintable:
    """Cannot be pickled, compared with anything, or shown."""

    def __reduce__(self) -> str:
        raise RuntimeError

    __repr__ = __str__ = __eq__ = __len__ = __reduce__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("task", ["coin_flip", "game_of_life", "sudoku", "time_intervals", "word_ladder", "countdown"])
def test_a_corrupt_entry_never_makes_the_scorer_raise(scorer: Scorer, cured_items: Items, task: str) -> None:
    entry = cured_items(task, 1)[0]
    for value in (*NASTY, Unprintable(), threading.Lock()):
        short = value[:1000] if isinstance(value, str) else value  # long puzzles take long to fill
        metadata = {**dict.fromkeys(entry["metadata"], short), "source_dataset": task}
        for fields in ({"answer": value}, {"question": value}, {"metadata": metadata}, {"extra": value}):
            for answer in ("1", str(entry["answer"])):
                scored = scorer.score_answer({**entry, **fields}, answer)
                assert scored.status is Status.OK or (scored.score == 0 and scored.detail)
                assert scored.detail.isprintable()
            verdict = scorer.score_response({**entry, **fields}, f"<think></think><answer>{answer}</answer>")
            assert verdict.scored.status is scored.status
