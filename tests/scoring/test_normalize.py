"""The second chance: what it removes, what that scores, and that it takes nothing away."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rg_env.scoring import Scorer, Status
from rg_env.scoring.formatting import in_one_form, last_boxed, unwrapped

Item = Callable[..., dict[str, Any]]
DRESSES = (
    "{}",
    "**{}**",
    "```\n{}\n```",
    "`{}`",
    "$ {} $",
    r"\boxed{{{}}}",
    r"\({}\)",
    r"\[ {} \]",
    r"\text{{{}}}",
    "{}.",
)


@pytest.fixture(scope="module")
def patient() -> Iterator[Scorer]:
    with Scorer(workers=2, normalize=True) as scorer:
        yield scorer


def test_what_has_no_formatting_around_it_or_gives_two_answers_stays() -> None:
    for answer in (
        *(r"999999 \boxed{7}", r"7 \boxed{999999}", r"\boxed{7} or 9", r"\boxed{7} \boxed{9}", r"\boxed{7}{9}"),
        *("$7$ or $9$", "**7** or **9**", "$7 or 9", "2**3", "```\n7\n```\n```\n9\n```", "```9\n7\n```"),
        *(
            r"2\frac{1}{2}",
            "1,200",
            "'7'",
            "[1,200]",
            "$",
            "****",
            r"\boxed{}",
            "",
            "```Yes\nNo\n```",
            "7...",
            "`7` or `9`",
        ),
        *(r"\(7\) or \(9\)", r"\[7\], \[9\]", r"\text{7} \text{9}", r"\begin{align}x&=1\\y&=2\end{align}"),
    ):
        assert unwrapped(answer) == answer


_PIECES = st.sampled_from(
    [
        *("$", "**", "*", "`", "```", "\n", r"\boxed{", r"\text{", "{", "}", r"\(", r"\)", r"\[", r"\]"),
        *("text", "7", "-", "1/2", " ", "Yes", ",", "."),
    ]
)
_FORMATTING = re.compile(r"(?:[\s$*_}`.]|```(?:text)?|\\(?:boxed|text)\{|\\[][()])*")


@settings(max_examples=500)
@given(st.lists(_PIECES, max_size=12).map("".join) | st.text(max_size=40))
@example("```text\n$**7**$\n```")
@example("__7__")
def test_only_formatting_around_the_answer_is_removed(answer: str) -> None:
    inner, answer = unwrapped(answer), in_one_form(answer)
    places = [match.start() for match in re.finditer(re.escape(inner), answer)]
    assert any(
        _FORMATTING.fullmatch(answer[:place]) and _FORMATTING.fullmatch(answer[place + len(inner) :])
        for place in places
    )
    assert bool(inner) == bool(answer)


@pytest.mark.parametrize("task", ["gcd", "countdown", "word_sorting"])
def test_a_right_answer_in_one_or_two_dresses_scores_and_says_so(
    scorer: Scorer, patient: Scorer, item: Item, task: str
) -> None:
    entry = item(task)
    for outer, inner in list(itertools.permutations(DRESSES, 2))[::3]:
        if "`" in outer and "`" in inner:
            continue
        dressed = outer.format(inner.format(entry["answer"]))
        scored = patient.score_answer(entry, dressed)
        assert (scored.score, scored.status) == (1.0, Status.OK), dressed
        assert scored.normalized == (scorer.score_answer(entry, dressed).score < 1)
        assert str(entry["answer"])[:70] in scored.detail or not scored.normalized
    assert patient.score_answer(item("spiral_matrix"), "**zorp(1)**").status is Status.REJECTED


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
    assert not plain.normalized


@pytest.mark.parametrize(
    ("text", "held"),
    [
        (r"\boxed{1}, no, \boxed{\frac{1}{2}} it is", r"\frac{1}{2}"),
        (r"\boxed{7} or \boxed{", "7"),
        (r"\boxed{ x, \boxed{7}", "7"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"} { \boxed{7}", "7"),
        ("boxed{7}", None),
        (r"\boxed{7", None),
    ],
)
def test_the_last_box_is_found_to_the_brace_that_closes_it(text: str, held: str | None) -> None:
    assert last_boxed(text) == held
