"""The second chance: which forms it makes, what they earn, and that it never takes anything away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rg_env.scoring import Scorer, Status
from rg_env.scoring.normalize import other_forms

Item = Callable[..., dict[str, Any]]
DRESSES = ("{}", "{}.", "**{}**", "`{}`", "```\n{}\n```", "```text\n{}\n```", "$ {} $", r"\boxed{{{}}}", r"\[ {} \]")


@pytest.fixture(scope="module")
def patient() -> Iterator[Scorer]:
    with Scorer(workers=2, normalize=True) as scorer:
        yield scorer


@pytest.mark.parametrize(
    ("answer", "last"),
    [
        (r"So it is \boxed{7}", "7"),
        (r"\boxed{\text{Yes}}.", "Yes"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"$\dfrac{-3}{4}$", "-3/4"),
        (r"2 \times 3 \cdot 4 \div 5", "2 * 3 * 4 / 5"),
        ("1,234,567", "1234567"),
        ("**$\\boxed{12}$**.", "12"),
    ],
)
def test_the_last_form_has_lost_all_of_its_dress(answer: str, last: str) -> None:
    assert other_forms(answer)[-1] == last


@pytest.mark.parametrize(
    "answer", ["7", "1, 234", "12,34", "1,2345", "[1,200,3000]", "a.b", "...", "`a` and `b`", "$", ""]
)
def test_what_wears_no_dress_has_no_other_form(answer: str) -> None:
    assert other_forms(answer) == []


@given(st.text(alphabet="\\boxedfrac{}$*`.,123 \n([])", max_size=200))
def test_any_text_has_at_most_three_forms_all_new(answer: str) -> None:
    forms = other_forms(answer)
    assert len(forms) <= 3
    assert len({answer, "", *forms}) == len(forms) + 1 + (answer != "")


@given(st.sampled_from(DRESSES), st.sampled_from(DRESSES), st.from_regex(r"[a-z0-9]{1,9}", fullmatch=True))
def test_two_dresses_come_off(outer: str, inner: str, answer: str) -> None:
    assume(outer != inner and not ("`" in outer and "`" in inner))
    dressed = outer.format(inner.format(answer))
    assert dressed == answer or answer in other_forms(dressed)


@pytest.mark.parametrize("dress", DRESSES[1:])
@pytest.mark.parametrize("task", ["gcd", "countdown", "syllogism", "word_sorting"])
def test_a_right_answer_in_a_dress_scores_and_says_so(patient: Scorer, item: Item, task: str, dress: str) -> None:
    entry = item(task)
    scored = patient.score(entry, dress.format(entry["answer"]))
    assert scored.score == 1.0
    assert scored.status is Status.OK
    assert scored.normalized
    assert str(entry["answer"])[:70] in scored.detail


def test_without_the_setting_form_is_the_policys_own_business(scorer: Scorer, item: Item) -> None:
    entry = item("gcd")
    scored = scorer.score(entry, rf"\boxed{{{entry['answer']}}}")
    assert scored.score < 0.5
    assert not scored.normalized


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dress=st.sampled_from(DRESSES), answer=st.text(max_size=20), task=st.sampled_from(["gcd", "puzzle24", "coin_flip"])
)
def test_it_never_lowers_a_score(
    scorer: Scorer, patient: Scorer, item: Item, dress: str, answer: str, task: str
) -> None:
    entry = item(task)
    plain = scorer.score(entry, dress.format(answer))
    second = patient.score(entry, dress.format(answer))
    assert second.score > plain.score if second.normalized else second == plain


def test_the_guard_reads_every_form(patient: Scorer, item: Item) -> None:
    scored = patient.score(item("spiral_matrix"), "`__import__('os')._exit(1)`")
    assert scored.status is Status.REJECTED
    assert not scored.normalized
