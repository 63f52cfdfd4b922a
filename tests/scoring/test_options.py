"""The options of a question, and which of them an answer names."""

from __future__ import annotations

import pytest

from rg_env.scoring.options import chosen, options_of

DATES = {"A": "12/11/1937", "B": "12/25/1937", "C": "12/04/1937"}


@pytest.mark.parametrize(
    ("question", "listed"),
    [
        ("When?\nOptions:\n(A) 12/11/1937\n(B) 12/25/1937\n(C) 12/04/1937", None),
        ("When? A. 12/11/1937 B. 12/25/1937 C. 12/04/1937", None),
        ("Ask A. Smith when: a) 12/11/1937 b) 12/25/1937 c) 12/04/1937", None),
        ("When?", ["12/11/1937", "12/25/1937", "12/04/1937"]),
        ("When?", ["A)12/11/1937", "B)12/25/1937", "C)12/04/1937"]),
        ("When?", "A) 12/11/1937 B) 12/25/1937 C) 12/04/1937"),
        ("When?", {"label": ["A", "B", "C"], "text": ["12/11/1937", "12/25/1937", "12/04/1937"]}),
        ("When?", {"a": "12/11/1937", "b": "12/25/1937", "c": "12/04/1937"}),
        ("A: Hi.\nB: Hi. When? A) 12/11/1937 B) 12/25/1937 C) 12/04/1937", None),
        ("When?\nA) 12/11/1937\nB) 12/25/1937\nC) 12/04/1937", "three dates"),
        (r"When? $\textbf{(A) }12/11/1937 \qquad \textbf{(B) }12/25/1937\qquad\textbf{(C)}\ 12/04/1937$", None),
        (
            r"Q $(\mathrm {A}) \ 12/11/1937 \qquad (\mathrm {B}) \ 12/25/1937 \quad (\mathrm {C}) \ 12/04/1937 $",
            None,
        ),
        ("When?\n\\textbf{(A)}\\ 12/11/1937\\\\\n\\textbf{(B)}\\ 12/25/1937\\\\\n\\textbf{(C)}\\ 12/04/1937", None),
        ("什么时候？（A）12/11/1937 （B）12/25/1937 （C）12/04/1937", None),
    ],
)
def test_options_are_found_in_a_column_or_in_the_question(question: str, listed: object) -> None:
    assert options_of(question, listed) == DATES


def test_letters_inside_options_that_have_lines_of_their_own_begin_no_other() -> None:
    both = {"A": "Left", "B": "Right", "C": "Both B and A.", "D": "Both A. and B. fail"}
    only = {"A": "Only B.", "B": "Only A."}
    for options in (both, only):
        assert options_of("\n".join(["Which?", *map(") ".join, options.items())]), None) == options


def test_a_question_without_options_has_none() -> None:
    assert options_of("What is 1 + 1? A. Smith asked.", None) == {}


@pytest.mark.parametrize(
    "answer",
    [
        *("B", "b", "(B)", "B.", "B)", "**B**", r"\boxed{B}", r"\text{(B)}"),
        *("Option B", "The answer is B.", "So the answer is (B).", "（B）", "B。", "Ｂ"),
    ],
)
def test_a_letter_names_its_option_whether_or_not_the_options_are_known(answer: str) -> None:
    assert chosen(answer, DATES) == chosen(answer, {}) == "B"


@pytest.mark.parametrize(
    "answer",
    [
        *("12/25/1937", "(B) 12/25/1937", "B. 12/25/1937", "**B)** 12/25/1937", "B: 12/25/1937."),
        *("The answer is 12/25/1937.", "Thus, the answer is B) 12/25/1937", "（B）12/25/1937", "B、12/25/1937"),
    ],
)
def test_so_does_its_text_and_both(answer: str) -> None:
    assert chosen(answer, DATES) == "B"


@pytest.mark.parametrize(
    "answer",
    [
        *("A, B", "A or B", "A B C", "(A)(B)", "B) 12/11/1937", "D", "E)", "", "not B", "A\nB"),
        *("12/25/1937 or 12/11/1937", "The answer is not 12/25/1937"),
    ],
)
def test_several_and_contradicting_ones_name_none(answer: str) -> None:
    assert chosen(answer, DATES) is None


def test_numbers_are_the_same_in_any_form_and_equal_options_need_a_letter() -> None:
    assert chosen("0.5", {"A": "1/2", "B": "1/3"}) == "A"
    assert chosen("7", {"A": "7", "B": "7"}) is None
    assert chosen("B) 7", {"A": "7", "B": "7"}) == "B"


def test_options_that_are_letters_are_named_by_them_unless_another_option_has_the_letter() -> None:
    symbols = {"A": "H", "B": "O", "C": "N", "D": "B"}
    answers = ["H", "O", "**N**", "A", "B", "D) B", "(B) O", "K"]
    assert [chosen(answer, symbols) for answer in answers] == ["A", "B", "C", "A", "B", "D", "B", None]
    assert chosen("The answer is O.", symbols) == "B"
