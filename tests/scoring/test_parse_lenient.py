"""The lenient format: an answer block is enough."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rg_env.analysis.reparse import reparse, without_think
from rg_env.choices import ResponseFormat
from rg_env.scoring import Scorer, Violation, parse_response
from tests.scoring.test_parse import TAGS

V = Violation
LENIENT = ResponseFormat.LENIENT


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>4</answer>", "4"),
        ("It is <Answer> 4 </ANSWER>.", "4"),
        ("<think>a <answer>4</answer></think>", "4"),
        ("<THINK>a</THINK><answer>4</answer>", "4"),
        ("<think>a <answer>3</answer></think> so <answer>4</answer>", "4"),
        ("<think>a <answer>3</answer> or <answer>4</answer></think>", "4"),
        ("<answer>3</answer><think>no, <answer>4</answer></think>", "4"),
        ("<think>a</think><think>b</think><answer>4</answer>", "4"),
        ("<think>a <answer>4</answer>", "4"),
        ("<answer><answer>4</answer>", "4"),
        ("<think>it asks for an <answer> tag</think><answer>4</answer>", "4"),
        ("<answer>4</answer></answer>", "4"),
    ],
)
def test_an_answer_block_is_enough(text: str, answer: str) -> None:
    parsed = parse_response(text, format="lenient")
    assert (parsed.answer, parsed.violation) == (answer, None)


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ("", V.NO_ANSWER),
        ("<think>a</think>4", V.NO_ANSWER),
        ("4</answer>", V.NO_ANSWER),
        ("<answer>4", V.UNCLOSED_ANSWER),
        ("</answer><answer>4", V.UNCLOSED_ANSWER),
        ("<answer>4</answer><answer>5</answer>", V.MULTIPLE_ANSWERS),
        ("<answer>4</answer><think>a</think><Answer>5</Answer>", V.MULTIPLE_ANSWERS),
        ("<think>a <answer>4</answer><answer>5</answer>", V.MULTIPLE_ANSWERS),
        ("<answer> </answer>", V.EMPTY_ANSWER),
        ("<answer>" + "4" * 8193 + "</answer>", V.ANSWER_TOO_LONG),
    ],
)
def test_what_remains_a_violation(text: str, violation: Violation) -> None:
    assert parse_response(text, format=LENIENT).violation is violation


def test_a_prefilled_think_block_ends_at_its_closing_tag() -> None:
    text = "so <answer>3</answer></think><answer>4</answer>"
    assert parse_response(text, format=LENIENT).violation is V.MULTIPLE_ANSWERS
    assert parse_response(text, prefilled_think=True, format=LENIENT).answer == "4"


def reference(text: str) -> tuple[str | None, Violation | None]:
    """The rule of the Atropos environment with regular expressions, slow, with its exceptions here."""
    strict = parse_response(text, max_answer_chars=5)
    if strict.violation is None:
        return strict.answer, None
    pattern = re.compile("<answer>((?:(?!<answer>).)*?)</answer>", re.IGNORECASE | re.DOTALL)
    # a separator, so that no tag is made of what was before and after a think block
    outside = re.sub("<think>.*?</think>", "|", text, flags=re.IGNORECASE | re.DOTALL)
    if len(pattern.findall(outside)) > 1:
        return None, V.MULTIPLE_ANSWERS
    found = pattern.findall(text)
    if not found:
        return None, V.UNCLOSED_ANSWER if "<answer>" in text.lower() else V.NO_ANSWER
    answer = found[-1].strip()
    violation = V.EMPTY_ANSWER if not answer else V.ANSWER_TOO_LONG if len(answer) > 5 else None
    return (None if violation else answer), violation


pieces = st.sampled_from([*TAGS, *TAGS, "<Think>", "</THINK>", "<ANSWER>", "</Answer>", " ", "4", "12", "<", "\ud800"])
texts = st.lists(pieces, max_size=14).map("".join)


@given(texts)
@example("<think><answer>4</answer></think>")
def test_agrees_with_a_slow_reading_of_the_rule(text: str) -> None:
    parsed = parse_response(text, max_answer_chars=5, format=LENIENT)
    assert (parsed.answer, parsed.violation) == reference(text)


@given(texts, st.booleans())
@example("<think></think><answer>4</answer><ANSWER>5</ANSWER>", False)
def test_a_response_that_is_well_formed_when_strict_has_the_same_answer(text: str, prefilled: bool) -> None:
    strict, lenient = (parse_response(text, prefilled, 5, format) for format in ResponseFormat)
    if strict.violation is None:
        assert lenient == strict
    assert (lenient.answer is None) == (lenient.violation is not None)


@given(texts | st.text(), st.booleans())
def test_spans_and_parts_fit_the_text(text: str, prefilled: bool) -> None:
    parsed = parse_response(text, prefilled, 5, LENIENT)
    if parsed.think is not None:
        assert text[slice(*parsed.think_span)].strip() == parsed.think
    if parsed.answer is not None:
        assert text[slice(*parsed.answer_span)].strip() == parsed.answer
    assert reparse(text, parsed.violation).violation is parsed.violation or parsed.violation is V.ANSWER_TOO_LONG
    without_think(text, parsed.violation)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<answer>4</answer>", "<answer>4</answer>"),
        ("<THINK>a</THINK> <answer>4</answer>", "<answer>4</answer>"),
        ("<think>a <answer>4</answer></think>", None),
        ("<think>a</think><think>b</think><answer>4</answer>", None),
    ],
)
def test_a_think_block_is_dropped_unless_it_holds_the_answer(text: str, rest: str | None) -> None:
    assert without_think(text, None) == rest


def test_the_guard_is_the_same_in_both_formats(scorer: Scorer) -> None:
    entry = {
        "question": "?",
        "answer": "24",
        "metadata": {"source_dataset": "countdown", "numbers": [4, 6], "target": 24},
    }
    answer = "__import__('os').getpid()"
    for text in (f"<think>a</think><answer>{answer}</answer>", f"<answer>{answer}</answer>"):
        scored = scorer.score_response(entry, text, format=LENIENT).scored
        assert (scored.status, scored.score) == ("rejected", 0.0)
    assert scorer.score_response(entry, "<answer>4*6</answer>", format="lenient").scored.score == 1.0
    assert scorer.score_response(entry, "<answer>4*6</answer>").parsed.violation is V.NO_THINK
