"""A file of questions as a task: which rows train and are evaluated, in which order, and what is refused."""

from __future__ import annotations

import copy
import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rg_env import ReasoningGymDataset
from rg_env.base.errors import ConfigError
from rg_env.configuration.settings import set_value
from rg_env.rows.eval_set import EvalSet
from rg_env.rows.item_source import item_of_id
from rg_env.skyrl.checks import check_tasks
from rg_env.skyrl.train_config import _Draft
from rg_env.tasks import Split, TaskMix
from rg_env.tasks.question_file import QuestionFile, parse_file
from rg_env.tasks.question_rows import read_rows
from rg_env.tasks.questions import QuestionStream, hashes_of

Pair = dict[str, Any]


def sums(count: int, start: int = 0) -> list[Pair]:
    return [{"question": f"What is {n} + 1?", "answer": n + 1} for n in range(start, start + count)]


def write(path: Path, rows: list[Pair]) -> Path:
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pl.DataFrame(rows).write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def mix(path: Path, **more: Any) -> dict[str, Any]:
    return {"sums": {"file": {"path": str(path), "scorer": "number", **more}}}


@pytest.fixture
def fifty(tmp_path: Path) -> Path:
    return write(tmp_path / "sums.jsonl", sums(50))


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_every_kind_of_file_gives_the_same_rows(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"sums{suffix}", sums(3))
    rows = read_rows("sums", QuestionFile(str(path)), Split.TRAIN).rows
    expected = [(1, "What is 0 + 1?", "1"), (2, "What is 1 + 1?", "2"), (3, "What is 2 + 1?", "3")]
    assert [row[:3] for row in rows] == expected


def test_alone_each_pass_has_every_row_once_in_another_order(fifty: Path) -> None:
    stream = QuestionStream("sums", QuestionFile(str(fifty)), 42, Split.TRAIN)
    rows = ReasoningGymDataset(mix(fifty))
    count = len(stream)
    passes = [[rows.item(turn * count + place).id for place in range(count)] for turn in range(3)]
    assert {frozenset(ids) for ids in passes} == {frozenset(stream.at(place).id for place in range(count))}
    assert len({tuple(ids) for ids in passes}) == 3
    again = ReasoningGymDataset(mix(fifty))
    assert again.item(2 * count + 7).id == passes[2][7]  # whatever was asked before
    other_seed = ReasoningGymDataset(mix(fifty), seed=1)
    assert [other_seed.item(place).id for place in range(count)] != passes[0]


def test_among_others_rows_are_drawn_and_shared_between_files(fifty: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "more.csv", sums(30, 1000))
    both = mix(fifty) | {"more": {"weight": 3, "file": str(other)}, "gcd": 1}
    rows = ReasoningGymDataset(both, size=600)
    items = [rows.item(index) for index in range(600)]
    drawn = Counter(item.task for item in items)
    assert drawn["more"] > drawn["sums"] > 60 and drawn["gcd"] > 60
    repeated = Counter(item.id for item in items if item.task == "sums")
    assert max(repeated.values()) > 1
    assert [rows.item(index).id for index in (599, 3, 77)] == [items[index].id for index in (599, 3, 77)]


def test_without_a_file_for_it_evaluation_has_questions_of_its_own(fifty: Path) -> None:
    rows = ReasoningGymDataset(mix(fifty), size=200)
    trained = {rows.item(index).entry["question"] for index in range(200)}
    evaluated = [item.entry["question"] for item in EvalSet(mix(fifty), samples_per_task=100).items]
    assert trained | set(evaluated) == {row["question"] for row in sums(50)}
    assert not trained & set(evaluated)
    assert len(evaluated) == len(set(evaluated))
    assert len(EvalSet(mix(fifty), samples_per_task=2)) == 2


def test_all_of_eval_path_is_evaluated_and_its_questions_are_not_trained_on(
    fifty: Path, tmp_path: Path, warnings: list[str]
) -> None:
    test = write(tmp_path / "test.csv", sums(20, 40))
    spec = mix(fifty, eval_path=str(test))
    rows = ReasoningGymDataset(spec, size=40)
    assert {rows.item(index).entry["question"] for index in range(40)} == {row["question"] for row in sums(40)}
    evaluated = EvalSet(spec | {"gcd": 1}, samples_per_task=2)
    assert Counter(item.task for item in evaluated.items) == {"sums": 20, "gcd": 2}
    assert warnings == [f"task sums: 10 rows of {fifty} are evaluated ({test}), and are not trained on"]


def questions_of(spec: Any, split: str) -> set[str]:
    """The questions of a mix, without what makes no other question of them."""
    rows: Any = EvalSet(spec, samples_per_task=1000).items
    if split == "train":
        trained = ReasoningGymDataset(spec, size=2000)
        rows = [trained.item(index) for index in range(2000)]
    return {" ".join(item.entry["question"].split()) for item in rows}


def test_a_question_that_is_repeated_with_other_white_space_is_in_one_split(tmp_path: Path) -> None:
    twice = [dict(row, question=row["question"].replace(" ", "  ") + "\n") for row in sums(200)]
    path = write(tmp_path / "sums.jsonl", [*sums(200), *twice])
    trained, evaluated = questions_of(mix(path), "train"), questions_of(mix(path), "eval")
    assert len(evaluated) > 10 and not trained & evaluated


@pytest.mark.parametrize("paths", [{}, {"eval_path": "test.jsonl"}])
def test_what_one_task_evaluates_no_task_of_the_mix_trains_on(paths: dict[str, str], tmp_path: Path) -> None:
    path = str(write(tmp_path / "sums.jsonl", sums(200)))
    of_first = {name: str(write(tmp_path / file, sums(20, 190))) for name, file in paths.items()}
    spec = {
        "first": {"file": {"path": path, "scorer": "number", **of_first}},
        "second": {"file": {"path": path, "scorer": "exact"}},
    }
    trained, evaluated = questions_of(spec, "train"), questions_of(spec, "eval")
    assert len(evaluated) > 10 and not trained & evaluated
    assert trained | evaluated >= {row["question"] for row in sums(200)}


def test_an_id_names_one_question_and_says_when_its_file_has_changed(fifty: Path) -> None:
    rows = ReasoningGymDataset(mix(fifty))
    item = rows.item(3)
    assert item.id.endswith(f"-train-0-{item.entry['metadata']['source_index']}")
    assert item_of_id(f"run:{item.id}#2", mix(fifty)) == item
    assert rows.row(3)["extra_info"]["item"] == item.id
    (noted,) = hashes_of(mix(fifty)).values()
    write(fifty, sums(51))
    with pytest.raises(ConfigError, match=r"sums\.jsonl, or `question` .* has changed since this id was given"):
        item_of_id(item.id, mix(fifty))
    with pytest.raises(ConfigError, match=r"tasks\.sums\.file: \S+sums\.jsonl .* has changed since this run began"):
        hashes_of(mix(fifty), {"sums": noted})
    hashes_of(mix(fifty), hashes_of(mix(fifty)))
    hashes_of(mix(fifty), {})


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"question": "Q"}, r"row 3: has no column 'answer', only 'question': set `answer` to"),
        ({"question": "", "answer": 1}, r"row 3: question is empty"),
        ({"question": "Q", "answer": None}, r"row 3: answer is empty"),
        ({"question": ["Q"], "answer": 1}, r"row 3: question is not a text but list"),
        ({"question": "Q", "answer": {"a": 1}}, r"row 3: answer is not a text or a number but dict"),
        ({"question": "Q", "answer": True}, r"row 3: answer is not a text or a number but bool"),
        ({"question": "\ud800", "answer": 1}, r"row 3: .*surrogates not allowed"),
        ("no object", r"row 3: is not a JSON object"),
    ],
)
def test_a_bad_row_is_one_line_with_its_number(bad: Any, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "sums.jsonl", [*sums(2), bad, *sums(2, 10)])
    with pytest.raises(ConfigError, match=message) as caught:
        ReasoningGymDataset(mix(path))
    assert "\n" not in str(caught.value) and "sums.jsonl" in str(caught.value)
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(ConfigError, match=r"\(and 1 more row\)"):
        ReasoningGymDataset(mix(path))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"gcd": {"file": "sums.jsonl"}}, r"tasks\.gcd: is a task of Reasoning Gym; give the file another name"),
        ({"my sums": {"file": "sums.jsonl"}}, r"'my sums' cannot be the name of a file; use letters, digits and _"),
        ({"sums": {"file": "sums.jsonl", "config": {"a": 1}}}, r"takes no `config`"),
        ({"sums": {"file": 5}}, r"must be a path, or a mapping with `path`"),
        ({"sums": {"file": {"question": "q"}}}, r"needs either `hub` or `path`"),
        ({"sums": {"file": {"path": "x.csv", "anser": "q"}}}, r"unknown key 'anser'; did you mean answer\?"),
        ({"sums": {"file": {"path": "x.csv", "answer": 5}}}, r"answer=5: must be a text"),
        ({"sums": {"file": {"path": "x.csv", "tolerance": -1}}}, r"tolerance=-1: must be a number of at least 0"),
        ({"sums": {"file": {"path": "x.csv", "tolerance": 0.1}}}, r"tolerance: only scorer=number has one"),
        ({"sums": {"file": {"path": "x.csv", "scorer": "exakt"}}}, r"scorer='exakt'; did you mean exact\?"),
        ({"sums": {"file": {"path": "x.csv", "scorer": "json.lods"}}}, r"the module json has no function 'lods'"),
        ({"sums": {"file": {"path": "x.csv", "scorer": "nowhere.f"}}}, r"no module 'nowhere' in "),
        ({"sums": {"file": {"path": "nowhere.csv"}}}, r"nowhere\.csv cannot be read: No such file or directory$"),
        ({"sums": {"file": {"path": "smus.jsonl"}}}, r"smus\.jsonl cannot be read: .*; did you mean sums\.jsonl\?"),
        ({"sums": {"file": {"path": "."}}}, r"\. is a folder; name a file in it"),
        (
            {"sums": {"file": {"path": "sums.jsonl", "eval_path": "sums.jsonl"}}},
            r"eval_path: is the same as `path`; leave",
        ),
        (
            {"sums": {"file": {"path": "semicolons.csv"}}},
            r"row 1: has one column, 'question;answer': save the file with commas in place of ';'",
        ),
        ({"sums": {"file": {"path": "commas.csv"}}}, r"row 1: has more values than there are columns: put a text"),
        ({"sums": {"file": {"path": "sums.txt"}}}, r"sums\.txt: must end with \.jsonl, \.json, .*name it \.jsonl$"),
        ({"sums": {"file": {"path": "empty.csv"}}}, r"empty\.csv has no rows"),
        (
            {"sums": {"file": {"path": "bad.parquet"}}},
            r"bad\.parquet cannot be read: OSError: no Parquet file, or a corrupt one \(",
        ),
        ({"sums": {"file": {"path": "latin.csv"}}}, r"latin\.csv is not in UTF-8; save it in that encoding"),
    ],
)
def test_bad_settings_are_one_clear_line(
    spec: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sums.jsonl", "sums.txt", "empty.csv", "bad.parquet"):
        Path(name).write_text("" if name == "empty.csv" else '{"question": "Q", "answer": "A"}\n')
    Path("semicolons.csv").write_text("question;answer\nQ;A\n")
    Path("commas.csv").write_text("question,answer\nIs it 1, or 2?,2\n")
    Path("latin.csv").write_bytes("question,answer\nWie groß?,1\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=message) as caught:
        ReasoningGymDataset(spec)
    assert "\n" not in str(caught.value)


def test_a_file_with_no_row_for_evaluation_is_told_about_eval_path(tmp_path: Path, warnings: list[str]) -> None:
    path = write(tmp_path / "sums.csv", sums(1))
    ReasoningGymDataset(mix(path)).item(5)
    # When it is read, although nobody has asked for these.
    line = "one eighth of the questions is held out for evaluation, and none of these 1 row: set `eval_path`"
    assert warnings == [f"tasks.sums.file: {path}: {line}"]
    refusal = r"sums\.csv has too few rows \(1\) to set any apart .*: set `eval_path`"
    with pytest.raises(ConfigError, match=refusal):
        _ = EvalSet(mix(path)).items
    # Only where the mix is evaluated at all.
    cfg = _Draft()
    cfg.rg_dump.tasks = mix(path)
    cfg.trainer.eval_interval = 5
    with pytest.raises(ConfigError, match=refusal):
        check_tasks(cfg)
    for setting, value in (("trainer.eval_interval", -1), ("data.val_data", ["some.parquet"])):
        changed = copy.deepcopy(cfg)
        set_value(changed, setting, value)
        check_tasks(changed)


def test_rows_too_long_for_the_prompt_are_counted(fifty: Path) -> None:
    class Tokenizer:
        def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> list[int]:
            return list(range(len(messages[-1]["content"])))

    limits: dict[str, Any] = {"tokenizer": Tokenizer(), "max_prompt_length": 14}
    with pytest.raises(
        ConfigError, match=r"row 11: its prompt has 15 tokens, .*max_prompt_length=14 \(and \d+ more rows\)"
    ):
        ReasoningGymDataset(mix(fifty, eval_path=str(write(fifty.with_name("t.csv"), sums(3, 90)))), **limits)


def test_repeated_questions_are_counted(tmp_path: Path, warnings: list[str]) -> None:
    path = write(tmp_path / "sums.csv", [*sums(50), *sums(3)])
    ReasoningGymDataset(mix(path))
    assert warnings == [f"tasks.sums.file: {path}: 3 of 53 rows repeat the question of an earlier row"]


def test_a_question_with_different_answers_is_not_asked(tmp_path: Path, warnings: list[str]) -> None:
    """Neither can be told to be right; the same answer in another spelling is none."""
    others = [{"question": "What is  3 + 1?\n", "answer": 5}, {"question": "What is 2 + 1?", "answer": 3.0}]
    path = write(tmp_path / "sums.jsonl", [*sums(50), *others, *sums(1)])
    rows = ReasoningGymDataset(mix(path))
    assert warnings == [
        f"tasks.sums.file: {path}: 3 of 53 rows repeat the question of an earlier row",
        f"tasks.sums.file: {path}: left out: the answer of 2 of 53 rows contradicts another row with the same "
        "question, such as of row 4 ('4'), 51 ('5'): keep the right one, or write both as a list of right answers",
    ]
    asked = {rows.item(index).index for index in range(200)} | {item.index for item in EvalSet(mix(path), 1, 99).items}
    assert asked == {*range(1, 54)} - {4, 51}


def test_the_mix_can_be_named_by_a_recipe_that_has_it(fifty: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    for text in (
        f"environment.skyrl_gym.rg_dump.tasks: {{sums: {{file: {fifty}}}}}",
        f"environment:\n  skyrl_gym.rg_dump:\n    tasks: {{sums: {{file: {fifty}}}}}",
    ):
        recipe.write_text(text)
        assert TaskMix.parse(str(recipe)).files == {"sums": QuestionFile(str(fifty))}
    recipe.write_text("trainer.epochs: 1")
    with pytest.raises(ConfigError, match=r"mine\.yaml: has no environment\.skyrl_gym\.rg_dump\.tasks"):
        TaskMix.parse(str(recipe))


def test_a_scorer_may_be_named_with_a_colon() -> None:
    """As `guarded` and `rg-env serve` have it; entries name it in one way."""
    assert parse_file("sums", {"path": "x.csv", "scorer": "math:isclose"}).scorer == "math.isclose"
