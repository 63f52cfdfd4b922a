"""The audit of a file of questions: which rows it leaves out, what it says, and when it refuses the file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rg_env import ReasoningGymDataset
from rg_env.base.errors import ConfigError
from rg_env.cli import app
from rg_env.configuration.config import ScorerConfig
from rg_env.rows.eval_set import EvalSet
from rg_env.scoring import audit
from rg_env.scoring.audit import Rule, audit_of, left_out, left_out_of_mix
from rg_env.scoring.audit_rows import meaning
from rg_env.tasks import Split
from rg_env.tasks.question_file import QuestionFile, parse_file

WORDS = ["red", "green", "blue", "black", "white", "brown", "pink", "gray"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(path: Path, answers: list[Any], **columns: Any) -> str:
    rows = [{"question": f"Question {n}?", "answer": answer, **columns} for n, answer in enumerate(answers, 1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def faults_of(path: str, **settings: Any) -> dict[int, Rule]:
    """The rows that fail, each with its rule."""
    file = parse_file("mine", {"path": path, **settings})
    return {fault.row: fault.rule for fault in audit_of("mine", file, Split.TRAIN).faults}


GOOD: list[Any] = [*WORDS, "1 2\n3 4", "St. Louis", "The U.S. Congress. ", "Dr. Martin Luther King Jr.", 7, "-3/4"]


def test_answers_as_people_give_them_pass(tmp_path: Path) -> None:
    assert faults_of(write(tmp_path / "a.jsonl", GOOD)) == {}
    assert faults_of(write(tmp_path / "n.jsonl", [3, "1,200", 0, "-7", "2/3", 1, "1e5", 0.25]), scorer="number") == {}


@pytest.mark.parametrize(
    ("answer", "settings", "rule"),
    [
        ("6 * 3 = 18 eggs.\n#### 18", {}, Rule.HASHES),
        (r"So the answer is \boxed{8}.", {}, Rule.BOXED),
        ("<think>x</think>8", {}, Rule.TAGS),
        ("<answer>8</answer>", {}, Rule.TAGS),
        ("First we add the two apples. Then we subtract one.", {}, Rule.SENTENCES),
        ("we add the two apples\nand then subtract one", {}, Rule.SENTENCES),
        ("我们先加上两个苹果", {}, None),
        ("我们先加上两个苹果。然后减去一个。", {}, Rule.SENTENCES),
        ("リンゴは三個です。", {}, None),
        ("Alice\nBob\nCarol\nDave\nEve\nFrank Miller", {}, None),
        ("x" * 9000, {}, Rule.TOO_LONG),
        (float("nan"), {"scorer": "number"}, Rule.NO_NUMBER),
        (float("inf"), {"scorer": "number"}, Rule.NO_NUMBER),
        ("27.0", {}, Rule.SPELLING),
        ("27.0", {"scorer": "number"}, None),
        ("about seven", {"scorer": "number"}, Rule.UNREWARDED),
        ("0,5", {"scorer": "number"}, Rule.DECIMAL_COMMA),
        ("1,500", {"scorer": "number"}, None),
        (["cat", "27.0"], {}, None),
    ],
)
def test_an_answer_that_nobody_is_paid_for_is_a_fault(
    answer: Any, settings: dict[str, str], rule: Rule | None, tmp_path: Path
) -> None:
    others = list(range(2, 42))
    path = write(tmp_path / "a.jsonl", [*others, answer])
    assert faults_of(path, **settings) == ({41: rule} if rule else {})


PUBLIC = {
    "gsm8k.jsonl": {"answer_after": "####", "scorer": "number"},
    "amc23.jsonl": {"question": "problem"},
    "svamp.jsonl": {"question": "{Body} {Question}", "answer": "Answer"},
    "mawps.jsonl": {"question": "input", "answer": "target", "scorer": "number"},
    "aqua.jsonl": {"question": "{question}\n{options}", "answer": "correct", "scorer": "choice"},
    "sat_math.jsonl": {"question": "{question}\n{options}", "answer": "Answer", "scorer": "choice"},
    "mmlu_stem.jsonl": {"question": "{question}\n{choices}", "scorer": "choice"},
    "date_understanding.json": {"question": "input", "answer": "target", "scorer": "choice"},
}
"""Files in the form of public ones, and the settings that fit them; those with `math` take longer."""


@pytest.mark.parametrize("name", PUBLIC)
def test_files_in_the_form_of_public_ones_pass_with_settings_that_fit(name: str) -> None:
    path = Path(__file__).resolve().parents[1] / "data" / "questions" / name
    assert faults_of(str(path), **PUBLIC[name]) == {}


def same_first_letter(answer: str, row: dict[str, Any]) -> float:
    return float(answer[:1] == row["answer"][:1])


def test_a_row_that_pays_junk_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    """A scorer that pays too much for one right answer is tried here, as a broken one of ours would be."""
    from rg_env.scoring import file_scorers

    real = file_scorers.exact
    monkeypatch.setattr(file_scorers, "exact", lambda answer, row: 1.0 if row["answer"] == "4=4" else real(answer, row))
    path = write(tmp_path / "a.jsonl", [*range(2, 42), "4=4"])
    file = QuestionFile(path)
    assert left_out(audit_of("mine", file, Split.TRAIN)) == {41}
    assert warnings == [
        f"tasks.mine.file: {path}: left out: the answer of 1 of 41 rows accepts junk, such as of row 41 "
        "('x=x'): set scorer: number or math"
    ]
    asked = {ReasoningGymDataset({"mine": {"file": path}}, size=100).item(n).index for n in range(100)}
    assert 41 not in asked and len(asked) > 20


@pytest.mark.parametrize(
    ("answers", "settings", "message"),
    [
        (["2 + 2 = 4\n#### 4"] * 20, {}, r"20 of 20 rows contains ####, .* row 1 \('2 \+ 2 = 4.*set answer_after"),
        (
            ["2.0", "3.0", "4.5"] * 10,
            {},
            r"20 of 30 rows is not accepted in another spelling, .*\('2'\).*: set scorer: number",
        ),
        (
            [*range(2, 20), "so seven", "so two"],
            {"scorer": "number"},
            r"2 of 20 rows is not accepted by its own scorer",
        ),
    ],
)
def test_a_file_with_many_rows_that_fail_is_refused_with_the_key_to_change(
    answers: list[Any], settings: dict[str, str], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", answers)
    with pytest.raises(ConfigError, match=message) as caught:
        ReasoningGymDataset({"mine": {"file": {"path": path, **settings}}})
    assert "\n" not in str(caught.value)


def test_a_column_of_numbers_and_words_is_told_a_way_that_fits(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("question,answer\n" + "".join(f"{n}?,{('27.0', 'seven')[n % 2]}\n" for n in range(40)))
    with pytest.raises(ConfigError, match=r"\('27'\).*such as 27 for 27\.0, or name the scorer of each row"):
        ReasoningGymDataset({"mine": {"file": {"path": str(path)}}})
    path.write_text(path.read_text().replace("seven", "7"))
    assert faults_of(str(path)) == {}


def test_a_choice_that_names_no_option_is_told_what_an_answer_is(tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "endings": ["w", "x"], "answer": "neither"} for n in range(20)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = {"path": str(path), "scorer": "choice"}
    with pytest.raises(ConfigError, match=r"does not list, .*: list them in it, such as question: \""):
        ReasoningGymDataset({"mine": {"file": file}})
    with pytest.raises(ConfigError, match=r"must be the letter, the text or the place of an option that the question"):
        ReasoningGymDataset({"mine": {"file": {**file, "question": "{question}\n{endings}"}}})


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("x+1", "x-1", False),
        ("x < 3", "x > 3", False),
        ("(-3, 7)", "(3, 7)", False),
        ("A+", "A", False),
        ("x ≤ 3", "$x<=3$", True),
        ("x \u2212 1", "x-1", True),
        ("+2x", "2 x", True),
        ("well-known", "well known", True),
    ],
)
def test_signs_change_what_a_formula_means(one: str, other: str, is_same: bool) -> None:
    assert (meaning(one) == meaning(other)) == is_same


def test_letters_and_texts_in_one_column_of_a_choice_are_no_junk_for_each_other(tmp_path: Path) -> None:
    columns = {"question": "Which?", "options": ["cat", "dog"]}
    rows = [{**columns, "question": f"{n}?", "answer": ("B", "dog")[n % 2]} for n in range(20)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert faults_of(str(path), scorer="choice", question="{question}\n{options}") == {}


def test_a_choice_whose_question_shows_no_options_is_refused(tmp_path: Path) -> None:
    """The columns of the options have names of their own here, so only the question tells."""
    rows = [{"question": f"Which {n}?", "A": "w", "B": "x", "answer": "AB"[n % 2]} for n in range(20)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert set(faults_of(str(path), scorer="choice").values()) == {Rule.NO_OPTIONS}
    for listed in ("{question}\nA) {A}\nB) {B}", "{question} (A) {A} (B) {B}"):
        assert faults_of(str(path), scorer="choice", question=listed) == {}


def test_what_the_refusal_names_makes_the_file_usable(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [f"{n} + 0 = {n}\n#### {n}" for n in range(40)])
    assert faults_of(path, answer_after="####", scorer="number") == {}


def test_many_rows_are_tried_in_other_processes_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.jsonl", [*range(40), "seven", "<answer>8</answer>"])
    here = faults_of(path, scorer="number")
    assert here == {41: Rule.UNREWARDED, 42: Rule.TAGS}
    # That was kept, however soon it was done.
    for kept in (tmp_path / "cache" / "rg_env" / "audits").iterdir():
        kept.unlink()
    audit._audit.cache_clear()
    monkeypatch.setattr(audit, "_IN_THIS_PROCESS", 0)
    assert faults_of(path, scorer="number") == here
    # It is kept: what is in the cache now is the result.
    (kept,) = (tmp_path / "cache" / "rg_env" / "audits").iterdir()
    kept.write_text(kept.read_text().replace("41", "40"))
    audit._audit.cache_clear()
    assert faults_of(path, scorer="number") == {40: Rule.UNREWARDED, 42: Rule.TAGS}
    # Another content, and other settings, are tried anew.
    assert faults_of(write(tmp_path / "a.jsonl", [*range(40), "seven"]), scorer="number") == {41: Rule.UNREWARDED}


def test_math_is_tried_without_changing_the_file(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    path = write(tmp_path / "a.jsonl", ["x+1", r"\frac{1}{2}", "(1, 2)", "$$$", "<answer>8</answer>"])
    before = Path(path).read_bytes()
    assert faults_of(path, scorer="math") == {5: Rule.TAGS}
    assert Path(path).read_bytes() == before


def test_the_users_function_decides_and_nothing_is_left_out(tmp_path: Path, warnings: list[str]) -> None:
    path = write(tmp_path / "a.jsonl", [f"{word} {n}" for n, word in enumerate(WORDS)])
    file = parse_file("mine", {"path": path, "scorer": f"{__name__}:same_first_letter"})
    assert left_out(audit_of("mine", file, Split.TRAIN)) == frozenset()
    assert any("accepts junk" in line and "your function decides" in line for line in warnings)


def fails(answer: str, row: dict[str, Any]) -> float:
    return float(row["no such column"])


def test_a_function_that_fails_whatever_it_gets_is_refused_with_its_error(tmp_path: Path) -> None:
    file = parse_file("mine", {"path": write(tmp_path / "a.jsonl", WORDS), "scorer": f"{__name__}:fails"})
    with pytest.raises(ConfigError, match=r"your function fails.*no such column.*: fix the function"):
        left_out(audit_of("mine", file, Split.TRAIN))
    recipe = tmp_path / "mine.yaml"
    mix = {"mine": {"file": {"path": file.path, "scorer": file.scorer}}}
    recipe.write_text(json.dumps({"environment.skyrl_gym.rg_dump.tasks": mix}))
    shown = CliRunner().invoke(app, ["tasks", str(recipe), "--json"])
    assert [(fact["refused"], fact["left_out"]) for fact in json.loads(shown.stdout)] == [(True, [])]
    assert shown.exit_code == 1


def test_a_function_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `rg-env` finds it, whose own folder, and not the current one, is in the path."""
    (tmp_path / "scorers_of_a_folder.py").write_text("def same(answer, row):\n    return answer == row['answer']\n")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    monkeypatch.chdir(tmp_path)
    assert faults_of(write(tmp_path / "a.jsonl", WORDS), scorer="scorers_of_a_folder.same") == {}


def test_the_same_share_in_another_row_is_no_junk(tmp_path: Path) -> None:
    answers = ["0.5", "50%", "50", "-3 1/2"] * 10
    assert faults_of(write(tmp_path / "a.jsonl", answers), scorer="number") == {}


def test_an_evaluation_says_how_many_questions_it_has(tmp_path: Path, warnings: list[str]) -> None:
    path = write(tmp_path / "train.jsonl", [*range(100, 140)])
    test = write(tmp_path / "test.jsonl", [*range(39), "seven"])
    Path(test).write_text(Path(test).read_text().replace("Question", "Test"))
    tasks = {"mine": {"file": {"path": path, "eval_path": test, "scorer": "number"}}}
    fixed = EvalSet(tasks)
    assert (len(fixed), fixed.left_out) == (39, 1)
    noted = left_out_of_mix(tasks, ScorerConfig(), "strict")
    assert noted == {"mine": {"eval": [40]}}
    assert left_out_of_mix(tasks, ScorerConfig(), "strict", noted) == noted
    with pytest.raises(ConfigError, match="that are left out are not those of the time when this run began"):
        left_out_of_mix(tasks, ScorerConfig(), "strict", {})


def test_several_right_answers_are_all_paid(tmp_path: Path) -> None:
    from rg_env.scoring import Scorer
    from rg_env.tasks.questions import QuestionStream

    path = write(tmp_path / "a.jsonl", [["Paris", "City of Light"]] * 20)
    assert faults_of(path) == {}
    entry = QuestionStream("mine", QuestionFile(path), 0, Split.TRAIN).at(0).entry
    with Scorer(workers=1) as scorer:
        scores = [scorer.score_answer(entry, text).score for text in ("Paris", "City of Light", "Rome")]
    assert scores == [1, 1, 0]
