from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rg_env.errors import ConfigError
from rg_env.scoring import ParsedResponse, Violation, parse_response
from rg_env.scoring.parse import normal_form

V = Violation


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ("", V.NO_THINK),
        ("The answer is 4.", V.NO_THINK),
        ("<answer>4</answer>", V.NO_THINK),
        ("<answer>4</answer><think>a</think>", V.NO_THINK),
        ("a</think><answer>4</answer>", V.NO_THINK),
        ("</answer><think>a</think><answer>4</answer>", V.NO_THINK),
        ("<THINK>a</THINK><answer>4</answer>", V.NO_THINK),
        ("<think>a", V.UNCLOSED_THINK),
        ("<think>a<answer>4</answer>", V.UNCLOSED_THINK),
        ("<think>a<think>b<answer>4</answer>", V.UNCLOSED_THINK),
        ("<think>a</Think><answer>4</answer>", V.UNCLOSED_THINK),
        ("<think>a</think><think>b</think><answer>4</answer>", V.MULTIPLE_THINK),
        ("<think>a<think>b</think></think><answer>4</answer>", V.MULTIPLE_THINK),
        ("<think>a</think></think><answer>4</answer>", V.MULTIPLE_THINK),
        ("<think>a</think><answer>4<think></answer>", V.MULTIPLE_THINK),
        ("<think>a</think><answer>4</answer><think>b", V.MULTIPLE_THINK),
        ("<think>a<answer>4</answer></think>", V.ANSWER_INSIDE_THINK),
        ("<think>a<answer>4</answer></think><answer>4</answer>", V.ANSWER_INSIDE_THINK),
        ("<think>a</answer></think><answer>4</answer>", V.ANSWER_INSIDE_THINK),
        ("<think>a<answer>4</think>b</answer>", V.ANSWER_INSIDE_THINK),
        ("<think>a</think>4", V.NO_ANSWER),
        ("<think>a</think>4</answer>", V.NO_ANSWER),
        ("<think>a</think><Answer>4</Answer>", V.NO_ANSWER),
        ("<think>a</think><answer>4", V.UNCLOSED_ANSWER),
        ("<think>a</think><answer>4<answer>5", V.UNCLOSED_ANSWER),
        ("<think>a</think></answer><answer>4", V.UNCLOSED_ANSWER),
        ("<think>a</think><answer>4</answer><answer>5</answer>", V.MULTIPLE_ANSWERS),
        ("<think>a</think><answer><answer>4</answer>", V.MULTIPLE_ANSWERS),
        ("<think>a</think><answer>4</answer></answer>", V.MULTIPLE_ANSWERS),
        ("<think>a</think></answer><answer>4</answer>", V.MULTIPLE_ANSWERS),
        ("<think>a</think><answer></answer>", V.EMPTY_ANSWER),
        ("<think>a</think><answer> \n\t\u3000</answer>", V.EMPTY_ANSWER),
        ("<think>a</think><answer>" + "4" * 8193 + "</answer>", V.ANSWER_TOO_LONG),
    ],
)
def test_each_break_of_the_format_has_its_name(text: str, violation: Violation) -> None:
    parsed = parse_response(text)
    assert parsed.violation is violation
    assert parsed.answer is None


@pytest.mark.parametrize(
    ("text", "think", "answer"),
    [
        ("<think>a</think><answer>4</answer>", "a", "4"),
        ("Well.\n<think> a\n</think> So <answer>\n 4 \n</answer> Done.", "a", "4"),
        ("<think></think><answer>4</answer>", "", "4"),
        (
            "<think>if a < b </ think> <thinking></think><answer>< 4 ></answer>",
            "if a < b </ think> <thinking>",
            "< 4 >",
        ),
        ("<think>a</think><answer>" + " " * 9 + "4" * 8192 + " </answer>", "a", "4" * 8192),
    ],
)
def test_a_good_response_comes_apart(text: str, think: str, answer: str) -> None:
    assert parse_response(text) == ParsedResponse(think, answer, None)


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


def test_the_longest_answer_is_a_setting() -> None:
    text = "<think></think><answer> 123 </answer>"
    assert parse_response(text, max_answer_chars=3).answer == "123"
    assert parse_response(text, max_answer_chars=2).violation is V.ANSWER_TOO_LONG


TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def reference(text: str, prefilled: bool) -> tuple[str | None, Violation | None]:
    """The table of `parse_response`, rule by rule over a list of tags, with no care for speed."""
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
    end_of_think = names.index("</think>")
    if end_of_think != 1:
        return None, V.ANSWER_INSIDE_THINK
    rest = tags[2:]
    names = names[2:]
    if "<answer>" not in names:
        return None, V.NO_ANSWER
    first = names.index("<answer>")
    if "</answer>" not in names[first:]:
        return None, V.UNCLOSED_ANSWER
    if len(names) > 2:
        return None, V.MULTIPLE_ANSWERS
    answer = text[rest[0][0] + len("<answer>") : rest[1][0]].strip()
    if not answer:
        return None, V.EMPTY_ANSWER
    if len(answer) > 5:
        return None, V.ANSWER_TOO_LONG
    return answer, None


pieces = st.sampled_from([*TAGS, *TAGS, " ", "4", "1234", "<", ">", "/", "<Think>", "</answer >", "\n", "\ud800"])


@given(st.lists(pieces, max_size=14).map("".join), st.booleans())
@example("<think></think><answer>4</answer>", False)
@example("<think></think><answer>123456</answer>", False)
def test_agrees_with_a_slow_reading_of_its_table(text: str, prefilled: bool) -> None:
    parsed = parse_response(text, prefilled, max_answer_chars=5)
    assert (parsed.answer, parsed.violation) == reference(text, prefilled)
    assert (parsed.answer is None) == (parsed.violation is not None)


@given(st.lists(pieces, max_size=14).map("".join), st.booleans())
def test_spans_are_where_the_parts_are(text: str, prefilled: bool) -> None:
    parsed = parse_response(text, prefilled, max_answer_chars=5)
    if parsed.think is not None:
        assert parsed.think_span is not None
        assert text[slice(*parsed.think_span)].strip() == parsed.think
    if parsed.answer is not None:
        assert parsed.answer_span is not None
        assert text[slice(*parsed.answer_span)].strip() == parsed.answer


@given(st.text(), st.text(min_size=1), st.tuples(st.text(), st.text(), st.text()))
def test_whatever_stands_in_the_blocks_comes_back(think: str, answer: str, prose: tuple[str, str, str]) -> None:
    if any(tag in part for tag in TAGS for part in (think, answer, *prose)) or not answer.strip():
        return
    text = f"{prose[0]}<think>{think}</think>{prose[1]}<answer>{answer}</answer>{prose[2]}"
    assert parse_response(text) == ParsedResponse(think.strip(), answer.strip(), None)


@pytest.mark.parametrize("format", ["strict", "lenient"])
@pytest.mark.parametrize("before", ["", "<think>", "<answer>", "<think></think>", "<think></think><answer>"])
@pytest.mark.timeout(60)  # quadratic time would take longer
def test_long_hostile_texts_are_parsed_in_linear_time(before: str, format: str) -> None:
    for piece in (*TAGS, "<THINK>", "<answer></answer>", "<answer>\n", "<", "</", " "):
        parsed = parse_response(before + piece * (200_000 // len(piece)), format=format)
        assert parsed.violation is not None, piece


@pytest.mark.parametrize("format", ["Strict", "", "LENIENT", "none"])
def test_a_format_that_does_not_exist_is_an_error(format: str) -> None:
    with pytest.raises(ConfigError, match="use strict or lenient"):
        parse_response("4", format=format)


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
    assert {normal_form(text) for text in same} == {normal_form(answer)}
    assert normal_form(answer) not in {normal_form(other) for other in others}
