"""The second chance: which forms it makes, what they score, and that it never takes anything away."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize(
    "answer",
    [
        r"999999 \boxed{7}",
        r"7 \boxed{999999}",
        r"Yes \boxed{No}",
        r"\boxed{7} or 9",
        r"\boxed{7} \boxed{9}",
        r"It is 9, so the answer is \boxed{7}",
        "```\n7\n```\n```\n9\n```",
        "`7` or `9`",
    ],
)
def test_a_text_with_two_answers_has_no_form_with_one(answer: str) -> None:
    assert other_forms(answer) == []
    assert other_forms(f"**{answer}**") in ([], [answer])


@pytest.mark.parametrize(
    "answer",
    [
        r"\boxed{7}.",
        r"The final answer is: \boxed{7}.",
        r"Therefore, the answer is \boxed{7}",
        r"**Answer:** \boxed{7}",
        r"= \boxed{7}",
    ],
)
def test_a_boxed_answer_may_be_introduced(answer: str) -> None:
    assert other_forms(answer)[-1] == "7"


def test_two_answers_score_0_on_gsm_symbolic(patient: Scorer, item: Item) -> None:
    entry = item("gsm_symbolic")
    for answer in (rf"999999 \boxed{{{entry['answer']}}}", rf"{entry['answer']} \boxed{{999999}}"):
        assert not patient.score_answer(entry, answer).normalized
    assert patient.score_answer(entry, rf"999999 \boxed{{{entry['answer']}}}").score < 0.1


@pytest.mark.parametrize(
    ("answer", "question", "forms"),
    [
        ("72.0", "The angles are 30.0° and 78.0°.", ["72"]),
        ("$-72.00$", "It is 30.0 degrees.", ["-72.00", "-72"]),
        ("72.0", "The angles are 30 and 78.", []),
        ("72.05", "It is 30.0 degrees.", []),
        ("v1.0.3 a.0", "It is 30.0 degrees.", []),
        ("false", "Return True if so, and False otherwise.", ["False"]),
        ("**YES**", "Does it follow? (Answer Yes or No)", ["YES", "Yes"]),
        ("false", "Is it False, or false?", []),
        ("maybe", "(Answer Yes or No)", []),
        ("1  2\n3 4 ", "Rotate:\n0 1\n2 3\n", ["1  2\n3 4", "1 2\n3 4"]),
        ("1 < 2\n^ v\n3 4", "Fill in:\n_ <   _\n∧     ∨\n\n_     _\nDone.", ["1 <   2\n^     v\n\n3     4"]),
        ("1 2 3\n4 5 6", "Rotate:\n0 1\n2 3\n", []),
    ],
)
def test_the_question_decides_spelling_and_layout(answer: str, question: str, forms: list[str]) -> None:
    assert other_forms(answer, question) == forms


@pytest.mark.parametrize(
    ("task", "written"),
    [
        ("simple_geometry", lambda answer: f"{answer}.0"),
        ("ransom_note", str.lower),
        ("course_schedule", str.upper),
        ("futoshiki", lambda answer: re.sub(" +", " ", re.sub("\n +\n", "\n", answer))),
        ("sudoku", lambda answer: answer.replace(" ", "  ")),
    ],
)
def test_what_real_models_write_otherwise_scores_1(
    patient: Scorer, item: Item, task: str, written: Callable[[str], str]
) -> None:
    for seed in range(3, 8):
        entry = item(task, seed=seed)
        assert patient.score_answer(entry, written(entry["answer"])).score == 1.0


@pytest.mark.parametrize(
    "part",
    [" ", "```\n", "``` ", " \n", "\n\n ", "1,", "111,", "\\frac{1}{", "\\boxed{", "$", "1.0", "So is ", "**", "}{"],
)
@pytest.mark.timeout(20)  # quadratic time would take longer
def test_a_long_text_takes_linear_time(part: str) -> None:
    repeated = part * (200_000 // len(part))
    for text in (repeated, f"```\n{repeated}", f"```\n{repeated}\n```", f"{repeated}x", rf"\boxed{{{repeated}}}"):
        other_forms(text, "Reply with 1.0 or True\n1 2\n3 4")


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
def test_a_right_answer_in_a_dress_scores_and_says_so(
    scorer: Scorer, patient: Scorer, item: Item, task: str, dress: str
) -> None:
    entry = item(task)
    scored = patient.score_answer(entry, dress.format(entry["answer"]))
    assert scored.score == 1.0
    assert scored.status is Status.OK
    assert scored.normalized == (scorer.score_answer(entry, dress.format(entry["answer"])).score < 1)
    assert str(entry["answer"])[:70] in scored.detail or not scored.normalized


def test_without_the_setting_form_is_the_policys_own_business(scorer: Scorer, item: Item) -> None:
    entry = item("gcd")
    scored = scorer.score_answer(entry, rf"\boxed{{{entry['answer']}}}")
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
    plain = scorer.score_answer(entry, dress.format(answer))
    second = patient.score_answer(entry, dress.format(answer))
    assert second.score > plain.score if second.normalized else second == plain


def test_the_guard_reads_every_form(patient: Scorer, item: Item) -> None:
    scored = patient.score_answer(item("spiral_matrix"), "`__import__('os')._exit(1)`")
    assert scored.status is Status.REJECTED
    assert not scored.normalized
