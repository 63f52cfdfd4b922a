"""`evidence/hangs.py`: its cases, its calls and its page."""

from __future__ import annotations

import runpy
import subprocess
import sys

from tests.documents import ROOT

SCRIPT = ROOT / "evidence" / "hangs.py"


def test_every_row_of_the_page_is_a_case_of_the_script() -> None:
    script = runpy.run_path(str(SCRIPT))
    cases = [line.split(" | ") for line in script["CASES"].strip().splitlines()]
    page = script["PAGE"].read_text()
    for thread, text, released, ours, *_ in cases:
        assert f"| {thread} | {text} |" in page
        assert callable(script[released.removesuffix(" in a thread")]) and callable(script[ours])


def test_a_call_says_what_was_returned_or_raised() -> None:
    command = [sys.executable, str(SCRIPT), "call", "math_verify in a thread", "third", "third"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("ValueError, ")
