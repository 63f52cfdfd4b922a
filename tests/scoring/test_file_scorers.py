"""Answers to the questions of a file: our three scorers, functions of the user's, and entries from anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rg_env import ReasoningGymDataset
from rg_env.base.errors import ConfigError, ScorerPoolError
from rg_env.configuration import modules
from rg_env.scoring import Scorer
from rg_env.tasks.item import SCORER_KEY
from tests.scoring import file_scorer_functions


@pytest.fixture(scope="module")
def scorer() -> Any:
    with Scorer(workers=1, timeout=1.0) as scorer:
        yield scorer


def entry(scorer: str, answer: str, **metadata: Any) -> dict[str, Any]:
    facts = {"source_dataset": "mine", "source_index": 1, SCORER_KEY: scorer, **metadata}
    return {"question": "?", "answer": answer, "metadata": facts}


@pytest.mark.parametrize(
    ("kind", "right", "scores"),
    [
        ("exact", "Paris ", {"Paris": 1, " Paris\n": 1, "paris": 0, "Paris.": 1}),
        ("number", "1,000", {"1000": 1, "1e3": 1, "1000.0005": 1, "1000.1": 0, "one thousand": 0, "1/0": 0}),
        ("number", "0.5", {"1/2": 1, ".5": 1, "0.5 m": 1, "0.5x": 0, "1e-99999": 0}),
        ("exact", "caf\u00e9\r\n1 2", {"cafe\u0301\n1 2": 1, "`caf\u00e9\n1\u00a02`": 1, "cafe\n1 2": 0}),
        ("math", "\\frac{1}{2}", {"0.5": 1, "1/2": 1, "2": 0, "": 0}),
        ("choice", "(B)", {"B": 1, "b) two": 1, "two": 1, "A": 0, "A, B": 0, "B) one": 0}),
    ],
)
def test_our_scorers(scorer: Scorer, kind: str, right: str, scores: dict[str, float]) -> None:
    if kind == "math":
        pytest.importorskip("math_verify")
    question = entry(kind, right, tolerance=1e-6, options=["one", "two"])
    for answer, score in scores.items():
        scored = scorer.score_answer(question, answer)
        assert (scored.score, scored.raw, scored.tagged, scored.status) == (score, score, score, "ok"), answer


def test_a_column_of_numbers_is_compared_as_numbers(scorer: Scorer) -> None:
    for answer in ("27", "27.0", "27 miles", "2.7e1"):
        assert scorer.score_answer(entry("exact", "27.0", answer_is_number=True), answer).score == 1
    unread = scorer.score_answer(entry("exact", "27.0", answer_is_number=True), "about seven")
    assert (unread.score, unread.status, unread.detail) == (0, "ok", "is not a number")
    assert scorer.score_answer(entry("exact", "27.0"), "27").score == 0


@pytest.mark.parametrize(
    ("kind", "right", "why"),
    [
        ("number", "72", "is not a number"),
        ("math", "72", "is not an expression"),
        ("choice", "B", "names none of the options, or several"),
    ],
)
def test_an_answer_that_cannot_be_read_is_wrong_and_says_so(scorer: Scorer, kind: str, right: str, why: str) -> None:
    if kind == "math":
        pytest.importorskip("math_verify")
    scored = scorer.score_answer(entry(kind, right), "4\n72")
    assert (scored.score, scored.raw, scored.status, scored.detail) == (0.0, 0.0, "ok", why)
    assert scorer.score_answer(entry(kind, right), right).detail == ""


def test_a_function_of_the_users_gets_answer_and_row(scorer: Scorer, tmp_path: Any) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "?", "answer": "b", "points": {"a": 0.25, "b": 1, "c": 9}}\n')
    same = tmp_path / "same.jsonl"
    same.write_bytes(path.read_bytes())
    file = {"path": str(path), "scorer": f"{file_scorer_functions.__name__}.points", "eval_path": str(same)}
    with pytest.raises(Exception, match="every question"):
        ReasoningGymDataset({"mine": {"file": file}})
    item = ReasoningGymDataset({"mine": {"file": file}}, split="eval").item(0)
    results = {answer: scorer.score_answer(item.entry, answer) for answer in ("a", "b", "c", "d", "hang")}
    assert [scored.score for scored in results.values()] == [0.25, 1, 0, 0, 0]
    # The own answer has a score, so this one is not excused.
    assert (results["c"].status, results["c"].excused) == ("ok", False)
    assert results["c"].detail == "your function returned a number that is not from 0 to 1"
    assert (results["d"].status, results["d"].excused) == ("ok", False)  # it raises on this answer alone
    assert "KeyError" in results["d"].detail
    assert results["hang"].status == "timeout"


def test_a_function_that_raises_on_the_own_answer_is_an_error(scorer: Scorer, tmp_path: Any) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "?", "answer": "b", "points": {"b": 1}}\n')
    same = tmp_path / "same.jsonl"
    same.write_bytes(path.read_bytes())
    file = {"path": str(path), "scorer": f"{file_scorer_functions.__name__}.points", "eval_path": str(same)}
    item = ReasoningGymDataset({"mine": {"file": file}}, split="eval").item(0)
    changed = json.loads(json.dumps(item.entry).replace('"points"', '"pints"'))
    scored = scorer.score_answer(changed, "b")
    assert (scored.status, scored.excused) == ("error", True)


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ("9", "your function returned 9 for the item's own answer: it must be a number from 0 to 1"),
        ("-1", "your function returned -1 for the item's own answer: it must be a number from 0 to 1"),
        ("NaN", "it raises on the item's own answer, too: the scorer returned nan, which is neither a finite number"),
    ],
)
def test_a_function_without_a_score_for_the_own_answer_is_refused_before_a_run(
    scorer: Scorer, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, points: str, why: str
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(f'{{"question": "{n}?", "answer": "b", "points": {{"b": {points}}}}}\n' for n in range(2)))
    name = f"{file_scorer_functions.__name__}.points"
    with pytest.raises(ConfigError, match="because your function fails, such as of row 1"):
        ReasoningGymDataset({"mine": {"file": {"path": str(path), "scorer": name}}})
    monkeypatch.setattr(modules, "_scorers", {name})
    scored = scorer.score_answer(entry(name, "b", row={"answer": "b", "points": {"b": float(points)}}), "b")
    assert (scored.score, scored.status, scored.detail.startswith(why)) == (0, "error", True)


@pytest.mark.parametrize(("points", "score"), [("true", 1.0), ("1.0000000000000002", 1.0), ("-1e-17", 0.0)])
def test_truth_and_rounding_are_no_mistakes_of_a_function(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch, points: str, score: float
) -> None:
    name = f"{file_scorer_functions.__name__}.points"
    monkeypatch.setattr(modules, "_scorers", {name})
    scored = scorer.score_answer(entry(name, "b", row={"answer": "b", "points": {"b": json.loads(points)}}), "b")
    assert (scored.score, scored.status, scored.detail) == (score, "ok", "")


@pytest.mark.parametrize("name", ["os.system", "subprocess.getoutput", "tests.scoring.file_scorer_functions.never"])
def test_no_entry_names_a_function_that_the_settings_do_not(scorer: Scorer, name: str) -> None:
    scored = scorer.score_answer(entry(name, "1", row={}), "echo 1")
    assert (scored.status, scored.excused) == ("error", True)
    assert scored.detail.startswith(f"answers are scored by {name}, which is not called on an entry's word")


@pytest.mark.parametrize("damage", [{"row": 5}, {"tolerance": "x"}, {"tolerance": None}])
def test_corrupt_entries_are_errors(scorer: Scorer, damage: dict[str, Any]) -> None:
    scored = scorer.score_answer(entry("number", "1" if "row" not in damage else "x", **damage), "1")
    assert (scored.score, scored.status) == (0.0, "error")


def test_a_closed_scorer_starts_no_process_for_a_kind_of_question_that_is_new_to_it() -> None:
    scorer = Scorer(workers=1)
    scorer.close()
    for _ in range(2):
        with pytest.raises(ScorerPoolError, match="closed"):
            scorer.score_answer(entry("exact", "Paris"), "Paris")
