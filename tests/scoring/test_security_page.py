"""Every claim of docs/security.md about workers has a test that tries it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "security.md"

TESTED_BY = {
    # The sandbox
    "use much memory": "test_limits_hold_and_cannot_be_lifted",
    "use root's privileges": "test_root_is_nobody_special",
    "write, create, rename": "test_no_file_is_changed",
    "change the mode, owner": "test_no_file_is_changed",
    "read files other than": "test_no_file_outside_pythons_own_is_read",
    "use the network": "test_nobody_is_called",
    "start processes, threads": "test_no_process_is_started",
    "signal or trace": "test_other_processes_are_left_alone",
    "share memory": "test_nothing_is_shared_with_other_processes",
    "make any other system call": "test_the_filter_allows_what_it_lists_and_nothing_else",
    "The sandbox needs no privileges": "test_the_sandbox_holds_for_a_user_without_privileges",
    "If Landlock or seccomp is not available": "test_what_the_sandbox_of_a_worker_lacks_is_said_once",
    "says which measures are missing": "test_a_missing_measure_is_named_with_its_reason",
    "no environment variables": "test_workers_have_no_secrets_no_stdin_a_fixed_hash_seed_and_not_much_memory",
    "output is discarded": "test_output_is_discarded",
    "every value is checked": "test_any_other_bytes_are_two_valid_forms_or_refused",
    "no worker outlives the trainer": "test_no_process_outlives_its_trainer",
    "holds for stopped workers": "test_no_process_outlives_its_trainer",
    # The guard, and scorers that you bring
    "No Reasoning Gym scorer evaluates": "test_what_reaches_a_scorer_that_evaluates_is_made_by_us",
    "takes time linear in the answer": "test_long_answers_take_linear_time",
    "a test compares 2,000 answers per task": "test_scores_are_those_that_upstream_gives_the_answer_itself",
    "in workers of their own": "test_a_users_scorer_has_workers_of_its_own",
    # What is not covered
    "own answer score 1": "test_a_worker_can_decide_its_own_score_and_nothing_protects_it",
    "The existence of files and processes": "test_the_existence_of_files_and_processes_can_be_guessed",
    "Python's folders are readable": "test_late_imports_and_data_files_of_packages_can_be_read",
    # Limits
    "CPU time per answer": "test_a_limit_counts_cpu_seconds_and_not_the_time_of_waiting_for_a_core",
    "wall time per answer": "test_an_answer_whose_worker_never_gets_a_core_is_starved_and_never_remembered",
    "growth of a worker's memory": "test_limits_hold_and_cannot_be_lifted",
    "CPU time over a worker's life": "test_the_limits_are_those_of_the_page",
    "open files": "test_the_limits_are_those_of_the_page",
    "length of any file": "test_the_limits_are_those_of_the_page",
    "answers per worker": "test_a_worker_is_replaced_after_its_jobs",
}
UNTESTED = ("Side channels", "Kernel bugs", "Generating items", "Other systems", "GPU")
"""Nothing to try: they say where the protection ends."""


def sections(*titles: str) -> str:
    parts = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    return "".join(text for title, text in zip(parts[1::2], parts[2::2], strict=True) if title in titles)


def claims() -> list[str]:
    text = sections("The sandbox", "What is not covered", "Limits")
    rows = re.findall(r"^\| (?!what|a worker|-)(.*?) \|", text, re.MULTILINE)
    return rows + re.findall(r"^- (?:The )?\*\*(.*?)\*\*", text, re.MULTILINE)


@pytest.mark.parametrize("claim", claims())
def test_every_row_and_every_item_is_tested(claim: str) -> None:
    known = [*TESTED_BY, *UNTESTED, "A worker's report about its own answer"]
    assert any(claim.startswith(start) for start in known), claim


def test_every_claim_is_on_the_page_and_its_tests_exist() -> None:
    page = " ".join(PAGE.read_text().split())
    source = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    for claim, name in TESTED_BY.items():
        assert claim in page, claim
        assert f"def {name}(" in source, name
