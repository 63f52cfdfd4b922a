"""Splitting a response of 64 kB into thoughts and answer: `parse_response`, and Reasoning Gym's `extract_answer`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from reasoning_gym.utils import extract_answer

from benchmarks.comparison import Comparison, median_of_calls
from rg_env.scoring import parse_response

SIZE = 64_000
HEAD = "<think></think>"  # without it, `parse_response` would stop at the first tag
TEXTS = {
    "good response, long thoughts": "<think>"
    + "a step of < 80 characters;\n" * (SIZE // 27)
    + "</think><answer>4</answer>",
    "no tag at all": "so it goes " * (SIZE // 11),
    "`<` only": HEAD + "<" * SIZE,
    "`<answer>` only": HEAD + "<answer>" * (SIZE // 8),
    "answers, one after another": HEAD + "<answer>4</answer>" * (SIZE // 18),
}
QUADRATIC = {"`<answer>` only"}
"""Take `extract_answer` seconds: one call is enough."""


def comparisons(folder: Path, quick: bool) -> Iterator[Comparison]:
    for name, text in TEXTS.items():
        if quick and name in QUADRATIC:
            continue
        ours, rival = (
            median_of_calls(partial(parse, text), "ms", 0 if name in QUADRATIC else 0.1)
            for parse in (parse_response, extract_answer)
        )
        yield Comparison(name, "ms", ours, rival, "`extract_answer`")
