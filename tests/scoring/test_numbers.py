"""What is a number in an answer, and which numbers are the same."""

from __future__ import annotations

from rg_env.scoring.numbers import read_number


def test_what_is_no_number() -> None:
    for text in ("", "-", ".", "1,23", "1e", "1/0", "nan", "inf", "1" * 401, "1e9999"):
        assert read_number(text) is None, text
