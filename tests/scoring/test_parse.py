"""Both formats of a response, and which answers are the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rg_env.analysis.reparse import reparse, without_think
from rg_env.base.choices import ResponseFormat
from rg_env.base.errors import ConfigError
from rg_env.scoring import ParsedResponse, Scorer, Violation, parse_response
from rg_env.scoring.formatting import canonical

V = Violation
LENIENT = ResponseFormat.LENIENT
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
RESPONSES: list[tuple[str, str | Violation, str | Violation]] = [
    ("", V.NO_THINK, V.NO_ANSWER),
    ("The answer is 4.", V.NO_THINK, V.NO_ANSWER),
    ("<answer>4</answer>", V.NO_THINK, "4"),
    ("<answer>4</answer><think>a</think>", V.NO_THINK, "4"),
    ("a</think><answer>4</answer>", V.NO_THINK, "4"),
    ("</answer><think>a</think><answer>4</answer>", V.NO_THINK, "4"),
    ("<THINK>a</THINK><answer>4</answer>", V.NO_THINK, "4"),
    ("<think>a", V.UNCLOSED_THINK, V.NO_ANSWER),
    ("<think>a<answer>4</answer>", V.UNCLOSED_THINK, "4"),
    ("<think>a<think>b<answer>4</answer>", V.UNCLOSED_THINK, "4"),
    ("<think>a</Think><answer>4</answer>", V.UNCLOSED_THINK, "4"),
    ("<think>a</think><think>b</think><answer>4</answer>", V.MULTIPLE_THINK, "4"),
    ("<think>a<think>b</think></think><answer>4</answer>", V.MULTIPLE_THINK, "4"),
    ("<think>a</think></think><answer>4</answer>", V.MULTIPLE_THINK, "4"),
    ("<think>a</think><answer>4<think></answer>", V.MULTIPLE_THINK, "4<think>"),
    ("<think>a</think><answer>4</answer><think>b", V.MULTIPLE_THINK, "4"),
    ("<think>a<answer>4</answer></think>", V.ANSWER_INSIDE_THINK, "4"),
    ("<think>a<answer>4</answer></think><answer>4</answer>", V.ANSWER_INSIDE_THINK, "4"),
    ("<think>a</answer></think><answer>4</answer>", V.ANSWER_INSIDE_THINK, "4"),
    ("<think>a<answer>4</think>b</answer>", V.ANSWER_INSIDE_THINK, "4</think>b"),
    ("<think>a</think>4", V.NO_ANSWER, V.NO_ANSWER),
    ("<think>a</think>4</answer>", V.NO_ANSWER, V.NO_ANSWER),
    ("<think>a</think><Answer>4</Answer>", V.NO_ANSWER, "4"),
    ("<think>a</think><answer>4", V.UNCLOSED_ANSWER, V.UNCLOSED_ANSWER),
    ("<think>a</think><answer>4<answer>5", V.UNCLOSED_ANSWER, V.UNCLOSED_ANSWER),
    ("<think>a</think></answer><answer>4", V.UNCLOSED_ANSWER, V.UNCLOSED_ANSWER),
    ("<think>a</think><answer>4</answer><answer>5</answer>", V.MULTIPLE_ANSWERS, V.MULTIPLE_ANSWERS),
    ("<think>a</think><answer><answer>4</answer>", V.MULTIPLE_ANSWERS, "4"),
    ("<think>a</think><answer>4</answer></answer>", V.MULTIPLE_ANSWERS, "4"),
    ("<think>a</think></answer><answer>4</answer>", V.MULTIPLE_ANSWERS, "4"),
    ("<think>a</think><answer></answer>", V.EMPTY_ANSWER, V.EMPTY_ANSWER),
    ("<think>a</think><answer> \n\t\u3000</answer>", V.EMPTY_ANSWER, V.EMPTY_ANSWER),
    ("<think>a</think><answer>" + "4" * 8193 + "</answer>", V.ANSWER_TOO_LONG, V.ANSWER_TOO_LONG),
    ("<think>a</think><answer>4</answer>", "4", "4"),
    ("Well.\n<think> a\n</think> So <answer>\n 4 \n</answer> Done.", "4", "4"),
    ("<think></think><answer>4</answer>", "4", "4"),
    ("<think>if a < b </ think> <thinking></think><answer>< 4 ></answer>", "< 4 >", "< 4 >"),
    ("<think>a</think><answer>" + " " * 9 + "4" * 8192 + " </answer>", "4" * 8192, "4" * 8192),
    ("It is <Answer> 4 </ANSWER>.", V.NO_THINK, "4"),
    ("<think>a <answer>4</answer></think>", V.ANSWER_INSIDE_THINK, "4"),
    ("<think>a <answer>3</answer></think> so <answer>4</answer>", V.ANSWER_INSIDE_THINK, "4"),
    ("<think>a <answer>3</answer> or <answer>4</answer></think>", V.ANSWER_INSIDE_THINK, "4"),
    ("<answer>3</answer><think>no, <answer>4</answer></think>", V.NO_THINK, "4"),
    ("<think>a <answer>4</answer>", V.UNCLOSED_THINK, "4"),
    ("<answer><answer>4</answer>", V.NO_THINK, "4"),
    ("<think>it asks for an <answer> tag</think><answer>4</answer>", V.ANSWER_INSIDE_THINK, "4"),
    ("<answer>4</answer></answer>", V.NO_THINK, "4"),
    ("4</answer>", V.NO_THINK, V.NO_ANSWER),
    ("<answer>4", V.NO_THINK, V.UNCLOSED_ANSWER),
    ("</answer><answer>4", V.NO_THINK, V.UNCLOSED_ANSWER),
    ("<answer>4</answer><answer>5</answer>", V.NO_THINK, V.MULTIPLE_ANSWERS),
    ("<answer>4</answer><think>a</think><Answer>5</Answer>", V.NO_THINK, V.MULTIPLE_ANSWERS),
    ("<think>a <answer>4</answer><answer>5</answer>", V.UNCLOSED_THINK, V.MULTIPLE_ANSWERS),
    ("<answer> </answer>", V.NO_THINK, V.EMPTY_ANSWER),
    ("<answer>" + "4" * 8193 + "</answer>", V.NO_THINK, V.ANSWER_TOO_LONG),
]
"""Response, answer or violation in the strict format, the same in the lenient one."""


@pytest.mark.parametrize(("text", "strict", "lenient"), RESPONSES)
def test_a_response_has_an_answer_or_one_violation(
    text: str, strict: str | Violation, lenient: str | Violation
) -> None:
    for format, expected in (("strict", strict), ("lenient", lenient)):
        parsed = parse_response(text, format=format)
        violation = expected if isinstance(expected, Violation) else None
        assert (parsed.answer, parsed.violation) == (None if violation else expected, violation)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a</think><answer>4</answer>", ParsedResponse("a", "4", None)),
        (" \n<think>a</think><answer>4</answer>", ParsedResponse("a", "4", None)),
        ("<think><think>a</think><answer>4</answer>", ParsedResponse("<think>a", None, V.MULTIPLE_THINK)),
        ("b<think>a</think><answer>4</answer>", ParsedResponse("b<think>a", None, V.MULTIPLE_THINK)),
        ("<answer>4</answer>", ParsedResponse(None, None, V.UNCLOSED_THINK)),
        ("", ParsedResponse(None, None, V.UNCLOSED_THINK)),
    ],
)
def test_a_prefilled_think_is_already_open(text: str, expected: ParsedResponse) -> None:
    assert parse_response(text, prefilled_think=True) == expected


def test_a_prefilled_think_block_ends_at_its_closing_tag_in_the_lenient_format() -> None:
    text = "so <answer>3</answer></think><answer>4</answer>"
    assert parse_response(text, format=LENIENT).violation is V.MULTIPLE_ANSWERS
    assert parse_response(text, prefilled_think=True, format=LENIENT).answer == "4"


def test_settings_of_the_format() -> None:
    text = "<think></think><answer> 123 </answer>"
    assert parse_response(text, max_answer_chars=3).answer == "123"
    assert parse_response(text, max_answer_chars=2).violation is V.ANSWER_TOO_LONG
    for format in ("Strict", "", "LENIENT"):
        with pytest.raises(ConfigError, match="use strict or lenient"):
            parse_response("4", format=format)


# -- whatever the text


def strict_reference(text: str, prefilled: bool) -> tuple[str | None, Violation | None]:
    """The meanings of the violations, one after the other over a list of tags, with no care for speed."""
    if prefilled:
        text = text if text.lstrip().startswith("<think>") else "<think>" + text
    tags = [(i, tag) for i in range(len(text)) for tag in TAGS if text[i:].startswith(tag)]
    names = [tag for _, tag in tags]
    if not names or names[0] != "<think>":
        return None, V.NO_THINK
    if "</think>" not in names:
        return None, V.UNCLOSED_THINK
    if names.count("<think>") > 1 or names.count("</think>") > 1:
        return None, V.MULTIPLE_THINK
    if names.index("</think>") != 1:
        return None, V.ANSWER_INSIDE_THINK
    rest, names = tags[2:], names[2:]
    if "<answer>" not in names:
        return None, V.NO_ANSWER
    if "</answer>" not in names[names.index("<answer>") :]:
        return None, V.UNCLOSED_ANSWER
    if len(names) > 2:
        return None, V.MULTIPLE_ANSWERS
    return judged(text[rest[0][0] + len("<answer>") : rest[1][0]])


def judged(answer: str) -> tuple[str | None, Violation | None]:
    answer = answer.strip()
    violation = V.EMPTY_ANSWER if not answer else V.ANSWER_TOO_LONG if len(answer) > 5 else None
    return (None if violation else answer), violation


def lenient_reference(text: str) -> tuple[str | None, Violation | None]:
    """The rule of the Atropos environment with regular expressions, slow, with its exceptions here."""
    strict = parse_response(text, max_answer_chars=5)
    if strict.violation is None:
        return strict.answer, None
    pattern = re.compile("<answer>((?:(?!<answer>).)*?)</answer>", re.IGNORECASE | re.DOTALL)
    # a separator, so that no tag is made of what was before and after a think block
    outside = re.sub("<think>.*?</think>", "|", text, flags=re.IGNORECASE | re.DOTALL)
    if len(pattern.findall(outside)) > 1:
        return None, V.MULTIPLE_ANSWERS
    if not (answers := pattern.findall(text)):
        return None, V.UNCLOSED_ANSWER if "<answer>" in text.lower() else V.NO_ANSWER
    return judged(answers[-1])


pieces = st.sampled_from(
    [*TAGS * 3, " ", "4", "1234", "<", ">", "/", "<Think>", "</THINK>", "<ANSWER>", "</answer >", "\n", "\ud800"]
)
texts = st.lists(pieces, max_size=14).map("".join)


@given(texts, st.booleans())
@example("<think></think><answer>4</answer>", False)
@example("<think></think><answer>123456</answer>", False)
@example("<think><answer>4</answer></think>", False)
@example("<think></think><answer>4</answer><ANSWER>5</ANSWER>", False)
def test_agrees_with_a_slow_reading_of_the_rules(text: str, prefilled: bool) -> None:
    strict, lenient = (parse_response(text, prefilled, 5, format) for format in ResponseFormat)
    assert (strict.answer, strict.violation) == strict_reference(text, prefilled)
    if not prefilled:
        assert (lenient.answer, lenient.violation) == lenient_reference(text)
    if strict.violation is None:
        assert lenient == strict


@given(texts | st.text(), st.booleans(), st.sampled_from(ResponseFormat))
def test_spans_and_parts_fit_the_text(text: str, prefilled: bool, format: ResponseFormat) -> None:
    parsed = parse_response(text, prefilled, 5, format)
    assert (parsed.answer is None) == (parsed.violation is not None)
    if parsed.think is not None:
        assert parsed.think_span is not None
        assert text[slice(*parsed.think_span)].strip() == parsed.think
    if parsed.answer is not None:
        assert parsed.answer_span is not None
        assert text[slice(*parsed.answer_span)].strip() == parsed.answer
    assert reparse(text, parsed.violation).violation is parsed.violation or parsed.violation is V.ANSWER_TOO_LONG
    without_think(text, parsed.violation)


@given(st.text(), st.text(min_size=1), st.tuples(st.text(), st.text(), st.text()))
def test_whatever_stands_in_the_blocks_comes_back(think: str, answer: str, prose: tuple[str, str, str]) -> None:
    if any(tag in part for tag in TAGS for part in (think, answer, *prose)) or not answer.strip():
        return
    text = f"{prose[0]}<think>{think}</think>{prose[1]}<answer>{answer}</answer>{prose[2]}"
    assert parse_response(text) == ParsedResponse(think.strip(), answer.strip(), None)


@pytest.mark.parametrize("format", ResponseFormat)
@pytest.mark.parametrize("before", ["", "<think>", "<answer>", "<think></think>", "<think></think><answer>"])
@pytest.mark.timeout(60)  # quadratic time would take longer
def test_long_hostile_texts_are_parsed_in_linear_time(before: str, format: str) -> None:
    for piece in (*TAGS, "<THINK>", "<answer></answer>", "<answer>\n", "<", "</", " "):
        parsed = parse_response(before + piece * (50_000 // len(piece)), format=format)
        assert parsed.violation is not None, piece


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
    metadata = {"source_dataset": "countdown", "numbers": [4, 6], "target": 24}
    entry = {"question": "?", "answer": "24", "metadata": metadata}
    for text in ("<think>a</think><answer>zorp(1)</answer>", "<answer>2**64</answer>"):
        scored = scorer.score_response(entry, text, format=LENIENT).scored
        assert (scored.status, scored.score) == ("rejected", 0.0)
    assert scorer.score_response(entry, "<answer>4*6</answer>", format="lenient").scored.score == 1.0
    assert scorer.score_response(entry, "<answer>4*6</answer>").parsed.violation is V.NO_THINK


# -- answers

GRID = "5 5 5 5 5 5\n5 5 5 5 5 5\n5 5 5 5 5 1"


@pytest.mark.parametrize(
    ("answer", "same", "others"),
    [
        ("1, 2", ["1,2", " 1 , 2"], ["12", "1 2"]),
        ("0", ["0.0", "-0", "0.0000", "0" * 400], ["0.1", "", "nan"]),
        ("TRUE", ["true"], ["1"]),
        ("1", ["1.0", "+1"], ["one"]),
        ("1234567890", ["1234567890.0"], ["1234567891"]),
        ("10", ["10.00"], ["1_0"]),
        ("1 23", ["1  23"], ["12 3", "123"]),
        (GRID, [GRID.replace("\n", " \n")], [GRID[:-1] + "2"]),
    ],
)
def test_answers_are_the_same_but_for_case_and_whitespace_or_as_numbers(
    answer: str, same: list[str], others: list[str]
) -> None:
    assert {canonical(text) for text in same} == {canonical(answer)}
    assert canonical(answer) not in {canonical(other) for other in others}
