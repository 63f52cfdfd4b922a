"""Speed of `parse_response` compared with `reasoning_gym.utils.extract_answer` on the same 64 kB texts.

Run: `python benchmarks/bench_parse.py`. A ratio above 1 means that `parse_response` is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from reasoning_gym.utils import extract_answer

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
    "`<answer>` and spaces": HEAD + "<answer> " * (SIZE // 9),
    "answers, one after another": HEAD + "<answer>4</answer>" * (SIZE // 18),
}


def seconds(call: Callable[[], object], at_least: float = 0.3) -> float:
    """Time of one call: the minimum over as many calls as fit into `at_least` seconds."""
    best = float("inf")
    end = perf_counter() + at_least
    while best == float("inf") or perf_counter() < end:
        start = perf_counter()
        call()
        best = min(best, perf_counter() - start)
    return best


def main() -> None:
    print(f"{'64 kB of':32} {'parse_response':>16} {'extract_answer':>16} {'ratio':>9}")
    for name, text in TEXTS.items():
        ours = seconds(lambda text=text: parse_response(text))  # type: ignore[misc]
        theirs = seconds(lambda text=text: extract_answer(text))  # type: ignore[misc]
        print(f"{name:32} {ours * 1e3:13.3f} ms {theirs * 1e3:13.3f} ms {theirs / ours:8.2f}x")


if __name__ == "__main__":
    main()
