"""Files of questions as people have them: which columns, which kinds of file, and what is refused in which words."""

from __future__ import annotations

import datetime
import gzip
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import polars as pl
import pytest
from PIL import Image

from rg_env.base.errors import ConfigError
from rg_env.scoring.audit import audit_of
from rg_env.scoring.file_scorers import FileQuestion, file_question, score_here
from rg_env.tasks import Split, TaskMix, question_rows
from rg_env.tasks.item import split_of_row
from rg_env.tasks.question_file import QuestionFile, parse_file
from rg_env.tasks.question_rows import Row, Rows, read_rows
from rg_env.tasks.questions import QuestionStream, entry_of
from tests.documents import ROOT

TWO = [{"question": "1 + 1?", "answer": "2"}, {"question": "1 + 2?", "answer": "3"}]


def rows_of(path: Path, **settings: Any) -> tuple[Row, ...]:
    return read_rows("mine", parse_file("mine", {"path": str(path), **settings}), Split.TRAIN).rows


def row_of(folder: Path, columns: dict[str, Any], **settings: Any) -> Row:
    path = folder / "one.jsonl"
    path.write_text(json.dumps(columns, default=str))
    (row,) = rows_of(path, **settings)
    return row


def write_kinds(folder: Path) -> dict[str, Path]:
    """The same two rows in every kind of file."""
    lines = "".join(json.dumps(row) + "\n" for row in TWO)
    texts = {
        "a.jsonl": lines,
        "a.json": json.dumps(TWO, indent=2),
        "examples.json": json.dumps({"name": "sums", "canary": ["x"][:0], "examples": TWO}),
        "a.csv": "question,answer\r\n1 + 1?,2\r\n1 + 2?,3\r\n",
        "a.tsv": "question\tanswer\n1 + 1?\t2\n1 + 2?\t3\n",
    }
    paths = {}
    for name, text in texts.items():
        paths[name] = folder / name
        paths[name].write_text(text)
        paths[f"{name}.gz"] = folder / f"{name}.gz"
        paths[f"{name}.gz"].write_bytes(gzip.compress(text.encode()))
    pl.DataFrame(TWO).write_parquet(folder / "a.parquet")
    datasets.Dataset.from_list(TWO).save_to_disk(folder / "saved", num_shards=2)
    return paths | {"parquet": folder / "a.parquet", "saved": folder / "saved"}


def test_every_kind_of_file_has_the_same_rows(tmp_path: Path) -> None:
    for name, path in write_kinds(tmp_path).items():
        rows = rows_of(path)
        assert [row[:3] for row in rows] == [(1, "1 + 1?", "2"), (2, "1 + 2?", "3")], name


def test_a_path_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(json.dumps({"question": name, "answer": 1}))
    file = parse_file("mine", {"path": "~/a.jsonl", "eval_path": "~/b.jsonl"})
    assert [read_rows("mine", file, split).rows[0].question for split in Split] == ["a.jsonl", "b.jsonl"]
    with pytest.raises(ConfigError, match="eval_path: is the same as `path`"):
        parse_file("mine", {"path": "~/a.jsonl", "eval_path": str(tmp_path / "a.jsonl")})


def test_columns_without_a_name_that_spreadsheets_write_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("question,answer,,\n1 + 1?,2,,\n")
    assert [row[:3] for row in rows_of(path)] == [(1, "1 + 1?", "2")]


def test_a_saved_data_set_of_several_splits_names_them(tmp_path: Path) -> None:
    both = datasets.DatasetDict({name: datasets.Dataset.from_list(TWO) for name in ("train", "test")})
    both.save_to_disk(tmp_path / "saved")
    with pytest.raises(ConfigError, match=r"several splits: name one of saved/train, saved/test as `path`"):
        rows_of(tmp_path / "saved")
    assert len(rows_of(tmp_path / "saved" / "test")) == 2
    for part in (tmp_path / "saved" / "test").glob("*.arrow"):
        part.write_bytes(part.read_bytes()[:100])
    (tmp_path / "saved" / "test" / "state.json").touch()
    with pytest.raises(ConfigError, match=r"cannot be read.*corrupt"):
        rows_of(tmp_path / "saved" / "test", question="question", tolerance=1, scorer="number")


CHAT = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "1 + 1?"}]
PARTS = [{"type": "text", "text": "1 + "}, {"type": "text", "text": "1?"}]


@pytest.mark.parametrize(
    ("columns", "settings", "question", "answers"),
    [
        ({"Body": "Two apples.", "Question": "How many?", "A": 2}, {"question": "{Body} {Question}", "answer": "A"},
         "Two apples. How many?", ("2",)),
        ({"instruction": "Add.", "input": None, "output": "2"}, {"question": "{instruction}\n{input}",
         "answer": "output"}, "Add.", ("2",)),
        ({"question": "1 + 1?", "answer": "1 + 1 = 2\n#### 2"}, {"answer_after": "####"}, "1 + 1?", ("2",)),
        ({"question": "1 + 1?", "answer": r"It is \boxed{\frac{4}{2}}."}, {"answer_after": r"\boxed{"}, "1 + 1?",
         (r"\frac{4}{2}",)),
        ({"question": "1 + 1?", "answer": "<think>x</think><answer> 2 </answer>\n"}, {"answer_after": "<answer>"},
         "1 + 1?", ("2",)),
        ({"prompt": CHAT, "reward_model": {"style": "rule", "ground_truth": "2"}},
         {"question": "prompt", "answer": "reward_model.ground_truth"}, "1 + 1?", ("2",)),
        ({"messages": [{"role": "user", "content": PARTS}, {"role": "assistant", "content": "2"}]},
         {"question": "messages", "answer": "messages"}, "1 + 1?", ("2",)),
        ({"prompt": CHAT[1:], "completion": [{"role": "assistant", "content": "so #### 2"}]},
         {"question": "prompt", "answer": "completion", "answer_after": "####"}, "1 + 1?", ("2",)),
        ({"question": "Capital?", "answers": {"text": ["Paris", "paris", "Paris"], "answer_start": [1, 1, 1]}},
         {"answer": "answers.text"}, "Capital?", ("Paris", "paris")),
        ({"question": "1 + 1?", "answer": [2]}, {}, "1 + 1?", ("2",)),
        ({"question": " 1\r\n+ 1?\n", "answer": "1\r\n2 "}, {}, "1\n+ 1?", ("1\n2",)),
        ({"a.b": "1 + 1?", "answer": 2}, {"question": "a.b"}, "1 + 1?", ("2",)),
    ],
)  # fmt: skip
def test_question_and_answer_come_from_the_columns_that_people_have(
    columns: dict[str, Any], settings: dict[str, str], question: str, answers: tuple[str, ...], tmp_path: Path
) -> None:
    row = row_of(tmp_path, columns, **settings)
    assert (row.question, row.answers) == (question, answers)


LISTED = "Which?\nA) one\nB) two"


@pytest.mark.parametrize(
    "options",
    [
        ["one", "two"],
        ["A) one", "B) two"],
        {"A": "one", "B": "two"},
        {"text": ["one", "two"], "label": ["A", "B"]},
    ],
)
def test_a_list_of_options_is_listed_with_letters(options: Any, tmp_path: Path) -> None:
    columns = {"question": "Which?", "options": options, "answer": "B"}
    row = row_of(tmp_path, columns, question="{question}\n{options}")
    assert (row.question, row.options) == (LISTED, {"A": "one", "B": "two"})
    file = QuestionFile(str(tmp_path / "one.jsonl"), question="{question}\n{options}", scorer="choice")
    entry = QuestionStream("mine", file, 0, split_of_row(LISTED)).at(0).entry
    assert entry["metadata"]["options"] == {"A": "one", "B": "two"}


PUBLIC_CHOICES = {
    "ARC": ({"question": "Which?", "choices": {"text": ["one", "two"], "label": ["A", "B"]}, "answerKey": "B"}, "B"),
    "ARC with numbers": (
        {"question": "Which?", "choices": {"text": ["9", "1"], "label": ["1", "2"]}, "answerKey": "2"},
        "B",
    ),
    "MMLU": ({"question": "Which?", "choices": ["one", "two"], "answer": 1}, "B"),
    "MMLU with numbers": ({"question": "Which?", "choices": ["0", "2"], "answer": 1}, "B"),
    "CommonsenseQA": (
        {"question": "Which?", "choices": {"label": ["A", "B"], "text": ["one", "two"]}, "answerKey": "A"},
        "A",
    ),
    "OpenBookQA": (
        {"question_stem": "Which?", "choices": {"text": ["one", "two"], "label": ["A", "B"]}, "answerKey": "A"},
        "A",
    ),
    "HellaSwag": ({"ctx": "Which?", "endings": ["one", "two"], "label": "1"}, "B"),
    "MedQA": ({"question": "Which?", "options": {"A": "one", "B": "two", "C": None}, "answer": "two"}, "two"),
    "MMLU-Pro": ({"question": "Which?", "options": ["one", "two"], "answer": "B", "answer_index": 1}, "B"),
    "small letters": ({"question": "Which?", "options": {"a": "one", "b": "two"}, "answer": "b"}, "B"),
    "JSON in a text": ({"question": "Which?", "options": '["one", "two"]', "answer": "B"}, "B"),
    "an object in a text": ({"question": "Which?", "options": '{"A": "one", "B": "two"}', "answer": "A"}, "A"),
}


@pytest.mark.parametrize("name", PUBLIC_CHOICES)
def test_options_are_read_in_the_forms_of_public_sets_and_the_right_one_alone_is_paid(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    columns, right = PUBLIC_CHOICES[name]
    question, options, *_ = columns
    answer = next(key for key in columns if key in ("answer", "answerKey", "label"))
    settings = {"question": f"{{{question}}}\n{{{options}}}", "answer": answer, "scorer": "choice"}
    row = row_of(tmp_path, columns, **settings)
    shown = "Which?\nA) 9\nB) 1" if name == "ARC with numbers" else LISTED
    assert row.question == (shown if name != "MMLU with numbers" else "Which?\nA) 0\nB) 2")
    assert (row.answer, list(row.options)) == (right, ["A", "B"])
    file = parse_file("mine", {"path": str(tmp_path / "one.jsonl"), **settings})
    assert audit_of("mine", file, Split.TRAIN).faults == ()
    question_of_file = file_question(entry_of("mine", file, row))
    assert isinstance(question_of_file, FileQuestion)
    paid = [letter for letter in "AB" if score_here(question_of_file, letter) == 1.0]
    assert paid == ["B" if right == "two" else right]


def test_places_are_counted_from_1_if_the_last_option_is_right_somewhere_and_none_is_0(
    tmp_path: Path, warnings: list[str]
) -> None:
    path, settings = tmp_path / "a.jsonl", {"question": "{question}\n{options}", "scorer": "choice"}

    def letters(places: list[Any]) -> list[str]:
        asked = [{"question": f"{n}?", "options": ["w", "x", "y", "z"], "answer": a} for n, a in enumerate(places)]
        path.write_text("".join(json.dumps(row) + "\n" for row in asked))
        return [row.answer for row in rows_of(path, **settings)]

    assert letters([1, 2, 4]) == letters(["1", "2", "4"]) == ["A", "B", "D"]
    said = f"tasks.mine.file: {path}: the answers are places of options, counted from 1: that of row 3 is 4, which is"
    assert sum(line.startswith(said) for line in warnings) == 2
    assert letters([0, 2, 3]) == letters(["0", "2", "3"]) == ["A", "C", "D"]
    assert letters([1, 2, 3]) == ["B", "C", "D"]  # nothing says that these are counted from 1
    unsaid = f"tasks.mine.file: {path}: the answers are places of options, taken from 0; nothing says that they are not"
    assert sum(line.startswith(unsaid) for line in warnings) == 1
    assert letters(["A", "z", "12"]) == ["A", "z", "12"]
    assert sum(line.startswith((said, unsaid)) for line in warnings) == 3
    # A list is several right answers, each of them a place, a letter or a text.
    path.write_text(json.dumps({"question": "Q", "options": ["w", "x", "y", "z"], "answer": [0, "2", "D", "y"]}))
    assert rows_of(path, **settings)[0].answers == ("A", "C", "D", "y")
    path.write_text(json.dumps({"question": "Q", "options": ["w", "x", "y"], "answer": [1, 0, 0]}))
    with pytest.raises(ConfigError, match="row 1: answer has a 0 or 1 for each option: write the letters of the right"):
        rows_of(path, **settings)
    many = [f"option {number}" for number in range(26)]
    path.write_text(json.dumps({"question": "Q", "options": many, "answer": 27}))
    assert rows_of(path, **settings)[0].answer == "27", "there is no such option, and Z is another"
    listed = "{question}\nA. {options}\nB. more\nC. less\nD. none"
    path.write_text(json.dumps({"question": "Q", "options": "some", "answer": 4}))
    assert rows_of(path, question=listed, scorer="choice")[0].answer == "D"


def test_the_other_split_says_from_where_places_are_counted_if_a_file_does_not(
    tmp_path: Path, warnings: list[str]
) -> None:
    paths = {Split.TRAIN: tmp_path / "train.jsonl", Split.EVAL: tmp_path / "test.jsonl"}
    places = {"path": str(paths[Split.TRAIN]), "eval_path": str(paths[Split.EVAL])}
    template = {"question": "{question}\n{options}", "scorer": "choice"}

    def letters(train: list[Any], evaluated: list[Any], **where: Any) -> list[str]:
        for path, answers in zip(paths.values(), (train, evaluated), strict=True):
            rows = [{"question": f"{n}?", "options": [*"wxyz"], "answer": answer} for n, answer in enumerate(answers)]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        file = parse_file("mine", {**(where or places), **template})
        return ["".join(row.answer for row in read_rows("mine", file, split).rows) for split in Split]

    assert letters([1, 2, 3, 4], [1, 2, 3, 2, 1]) == ["ABCD", "ABCBA"]
    assert any(line.endswith(f"counted from 1, as those of {paths[Split.TRAIN]}") for line in warnings)
    assert letters([0, 2, 3, 3], [1, 2, 3, 2, 1]) == ["ACDD", "BCDCB"]
    assert letters([1, 2, 3, 2], [4, 1]) == ["ABCB", "DA"]
    hub = {"hub": {"name": str(tmp_path), "eval_split": "test"}}
    assert letters([4, 2, 1, 1], [1, 2, 3, 2, 1], **hub) == ["DBAA", "ABCBA"]
    assert not any("nothing says" in line for line in warnings)
    assert letters([1, 2], [2, 1, 1]) == ["BC", "CBB"]
    assert letters([1, 2, 3], ["A", "B"]) == ["BCD", "AB"]
    assert sum("nothing says that they are not counted from 1" in line for line in warnings) == 3


@pytest.mark.parametrize("other", [["Which", "three"], list(range(40)), "['a', 'b']", {"topic": "one"}, ["x", {}]])
def test_a_list_of_something_else_is_no_list_of_options(other: Any, tmp_path: Path) -> None:
    columns = {"question": "Which? A) one B) two", "tags": other, "answer": "B"}
    row = row_of(tmp_path, columns, scorer="choice")
    assert (row.answer, row.options) == ("B", {})
    shown = {**columns, "question": "Which? one or two", "endings": ["one", "two"]}
    assert row_of(tmp_path, shown, scorer="choice").options == {"A": "one", "B": "two"}


@pytest.mark.parametrize("text", ["['one', 'two']", "['one' 'two']", "{'A': 'one', 'B': 'two'}", "[\"one\", 'two']"])
def test_a_list_as_python_prints_it_is_told_to_be_written_in_json(text: str, tmp_path: Path) -> None:
    columns = {"question": "Which?", "options": text, "answer": "A"}
    for template in ("{question}\n{options}", "question"):
        with pytest.raises(ConfigError, match=r"options is a list as Python prints it .*: write it in JSON"):
            row_of(tmp_path, columns, question=template, scorer="choice")
    # Where nothing is chosen, it is a text as any other.
    assert row_of(tmp_path, columns, question="{question}\n{options}").question == f"Which?\n{text}"


def test_texts_with_brackets_that_are_no_options_stay(tmp_path: Path) -> None:
    columns = {"question": "[A] one [B] two", "options": "A) [1, 2] B) [3]", "answer": "B"}
    row = row_of(tmp_path, columns, question="{question}\n{options}", scorer="choice")
    assert (row.question, row.options) == ("[A] one [B] two\nA) [1, 2] B) [3]", {})


def test_a_question_that_shows_its_own_answer_is_said(tmp_path: Path, warnings: list[str]) -> None:
    """As GPQA has it, whose columns are the right answer and three others."""
    columns = {"Question": "Which?", "Correct Answer": "one", "Incorrect Answer 1": "two"}
    template = "{Question}\nA) {Correct Answer}\nB) {Incorrect Answer 1}"
    row = row_of(tmp_path, columns, question=template, answer="Correct Answer", scorer="choice")
    assert (row.question, row.answer) == (LISTED, "one")
    assert "every question shows its own answer, Correct Answer, at the same place: put the options into" in warnings[0]


def test_numbers_of_csv_are_numbers_if_all_are(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"

    def kinds(*answers: str, **settings: Any) -> list[bool]:
        path.write_text("question,answer,kind\n" + "".join(f"{n}?,{a},exact\n" for n, a in enumerate(answers)))
        return [row.is_number for row in rows_of(path, **settings)]

    assert kinds("27.0", "-3", "1e-5") == [True] * 3
    assert kinds("27", "3", scorer="{kind}") == [True] * 2
    assert kinds("27.0", "seven") == [False] * 2
    assert kinds("01234", "12345") == [False] * 2  # zeros belong to what is written so
    assert kinds("1_000") == kinds("٣") == kinds("nan") == [False]
    # JSON tells numbers from texts itself; a list has several right ones.
    row = row_of(tmp_path, {"question": "Q", "answer": [1.0, 2]})
    assert (row.is_number, row.is_float) == (True, True)
    question = file_question(entry_of("mine", QuestionFile(), row))
    assert isinstance(question, FileQuestion) and score_here(question, "1") == 1.0
    assert not row_of(tmp_path, {"question": "Q", "answer": [1, "2"]}).is_number
    assert not row_of(tmp_path, {"question": "Q", "answer": "27.0"}).is_number


def test_a_column_may_name_the_scorer_of_each_row(tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl"
    kinds = ("exact", "number")
    path.write_text("".join(json.dumps({**TWO[0], "question": f"{kind}?", "kind": kind}) + "\n" for kind in kinds * 20))
    stream = QuestionStream("mine", parse_file("mine", {"path": str(path), "scorer": "{kind}"}), 0, Split.TRAIN)
    scorers = {item.entry["metadata"]["file_scorer"] for item in map(stream.at, range(len(stream)))}
    assert scorers <= set(kinds) and scorers
    path.write_text(json.dumps({**TWO[0], "kind": "os.system"}))
    with pytest.raises(ConfigError, match=r"kind is 'os\.system': a row's scorer must be one of exact, number"):
        rows_of(path, scorer="{kind}")


@pytest.mark.parametrize(
    ("name", "text", "settings", "message"),
    [
        ("a.csv", "question,answer,answer\nQ,1,2\n", {}, r"its header has the column 'answer' twice: rename one"),
        ("a.csv", 'question,answer\nQ,1\n"R?,2\n"S?",3\n', {}, r"after row 1: .* quotes, write \" twice; end"),
        ("a.csv", 'question,answer\n"Q,1\n', {}, r"after row 0: unexpected end of data; inside double quotes"),
        ("a.jsonl", '{"question": "Q", "answer": 1}', {"question": "Do: question"}, r"in braces: 'Do: \{question\}'$"),
        ("a.csv", "question, answer\nQ,1\n", {}, r"has no column 'answer', but ' answer': remove the space"),
        ("a.jsonl", '{"question": "Q", "answer": 1, "answer": 2}', {}, r"row 1: .*has the column 'answer' twice"),
        ("a.jsonl", '[\n{"question": "Q"}\n]', {}, r"is one list in JSON: let its name end with \.json"),
        ("a.json", '{"question": "Q"}\n{"question": "R"}', {}, r"an object in each line is named \.jsonl"),
        ("a.json", '{"a": 1}', {}, r"must be a list of objects, or an object with one such list"),
        ("a.json.gz", "no gzip", {}, r"cannot be read: BadGzipFile"),
        ("a.xlsx", "", {}, r"must end with .*; save the sheet as \.csv$"),
        ("a.jsonl", '{"question": "Q", "answer": true}', {}, r"not a text or a number but bool: write the word"),
        ("a.jsonl", '{"question": "Q", "answer": []}', {}, r"answer is empty"),
        ("a.jsonl", '{"question": "Q", "answer": [[1]]}', {}, r"but list: a list of right answers has texts"),
        ("a.jsonl", '{"question": "Q", "answer": {"text": ["a"]}}', {}, r"but dict: .* with a dot: answer\.text$"),
        ("a.jsonl", '{"question": "Q", "reward": {"truth": 1}}', {}, r"'question', 'reward', 'reward\.truth': set"),
        ("a.jsonl", '{"question": {"stem": "Q"}, "answer": 1}', {}, r"not a text but dict: .*: question\.stem$"),
        ("a.jsonl", '{"question": ["Q"], "answer": 1}', {}, r"such as question: '\{question\}', which lists"),
        ("a.jsonl", '{"question": 5, "answer": 1}', {}, r"question is not a text but int: put it into a text"),
        ("a.jsonl", '{"question": "Q", "answer": "so 2"}', {"answer_after": "####"}, r"does not contain '####'"),
        ("a.jsonl", '{"prompt": [{"role": "system", "content": "x"}], "answer": 1}', {"question": "prompt"},
         r"prompt has no message of the role 'user'"),
        ("a.jsonl", '{"prompt": [{"role": "user", "content": [{"type": "image"}]}], "answer": 1}',
         {"question": "prompt"}, r"a part of the kind image; only texts can be asked"),
        ("a.jsonl", '{"prompt": [{"from": "human", "value": "Q"}], "answer": 1}', {"question": "prompt"},
         r"a conversation must be a list of \{role, content\}"),
        ("a.jsonl", '{"question": "Q", "options": ["a", "b"], "answer": 1}', {"scorer": "choice"},
         r"does not list its options: set question: \"\{question\}\\n\{options\}\"$"),
        ("a.jsonl", '{"question": "Q", "answer": 1}', {"question": "{question} {options}"}, r"no column 'options'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_line_with_the_way(
    name: str, text: str, settings: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        rows_of(tmp_path / name, **settings)
    assert "\n" not in str(caught.value) and name in str(caught.value)


@pytest.mark.parametrize("answer", [Decimal("1.50"), datetime.date(2020, 1, 2)])
def test_typed_answers_of_parquet_are_told_to_be_texts(answer: Any, tmp_path: Path) -> None:
    pl.DataFrame([{"question": "Q", "answer": answer}]).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=r"answer is not a text .*: save the column as texts"):
        rows_of(tmp_path / "a.parquet")


def test_values_of_other_types_are_asked_as_texts_in_a_template(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = {"on": datetime.date(2020, 1, 2), "price": Decimal("1.50"), "new": True, "raw": b"x", "answer": "2"}
    pl.DataFrame([columns]).write_parquet(path)
    (row,) = rows_of(path, question="{price} on {on}, new: {new}?")
    assert row.question == "1.50 on 2020-01-02, new: True?"
    for name, right in (("new", r"such as question: 'What is \{new\}\?'$"), ("raw", "save the column as texts$")):
        with pytest.raises(ConfigError, match=rf"{name} is not a text but \w+: .*{right}"):
            rows_of(path, question=name)
    with pytest.raises(ConfigError, match=r"raw is not a text but bytes: save the column as texts$"):
        rows_of(path, question="{raw}")


def test_a_number_is_the_place_of_an_option_which_is_said_if_it_is_the_text_of_another(
    tmp_path: Path, warnings: list[str]
) -> None:
    settings = {"question": "{question}\n{options}", "scorer": "choice"}
    row = row_of(tmp_path, {"question": "1 + 1?", "options": ["3", "0", "1", "2"], "answer": 2}, **settings)
    assert row.answer == "C" and "in 1 of 1 rows the answer is the place of one option" in warnings[1]
    row = row_of(tmp_path, {"question": "1 + 1?", "options": ["3", "0", "1", "2"], "answer": "2"}, **settings)
    assert row.answer == "2" and not any("place of one option" in line for line in warnings[2:])
    row_of(tmp_path, {"question": "1 + 1?\nA) 1\nB) 2\nC) 3", "answer": 2}, scorer="choice")
    assert any("in 1 of 1 rows the answer is the place of one option" in line for line in warnings[3:])


def test_digits_of_csv_are_places_of_options_that_the_question_itself_lists(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"

    def answers(options: str, *answers: str) -> list[str]:
        path.write_text("question,answer\n" + "".join(f'"{n}?\n{options}",{a}\n' for n, a in enumerate(answers)))
        return [row.answer for row in rows_of(path, scorer="choice")]

    assert answers("A) w\nB) x\nC) y\n\nName one.", "0", "2", "B", "y") == ["A", "C", "B", "y"]
    assert answers("A) w\nB) x\nC) y", "1", "3", "4") == ["A", "C", "4"]
    assert answers("A) 1\nB) 2\nC) 3\nName one.", "2", "3", "0") == ["2", "3", "A"]
    assert answers("Name one.", "0", "1") == ["0", "1"]


def test_messages_that_are_not_asked_are_counted(tmp_path: Path, warnings: list[str]) -> None:
    row_of(tmp_path, {"prompt": CHAT, "answer": "2"}, question="prompt")
    assert warnings[0].partition(": ")[2] == (
        f"{tmp_path / 'one.jsonl'}: of 1 of 1 rows only the last user message is used; to use a system message, set "
        "`system_prompt`"
    )


@pytest.mark.parametrize(
    ("question", "row"), [("Do: {prompt}", {"prompt": CHAT}), ("d.prompt", {"d": {"prompt": CHAT}})]
)
def test_messages_in_a_template_or_a_nested_column_are_counted_too(
    tmp_path: Path, warnings: list[str], question: str, row: dict[str, Any]
) -> None:
    row_of(tmp_path, {**row, "answer": "2"}, question=question)
    assert any("only the last user message is used" in line for line in warnings)


@pytest.mark.parametrize(
    ("hub", "message"),
    [
        (5, r"hub=5: must be the name of a data set"),
        ({"config": "main"}, r"hub: needs `name`"),
        ({"name": "a/b", "splitt": "x"}, r"hub: unknown key 'splitt'; did you mean split"),
        ({"name": "a/b", "split": "test", "eval_split": "test"}, r"hub\.eval_split: is the same as `hub\.split`"),
    ],
)
def test_a_data_set_of_the_hub_is_named_by_a_mapping(hub: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TaskMix.parse({"mine": {"file": {"hub": hub}}})


def test_a_data_set_of_the_hub_that_cannot_be_had_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    file = parse_file("mine", {"hub": {"name": "openai/no_such_set", "config": "main"}})
    with pytest.raises(
        ConfigError, match=r"tasks\.mine\.file: openai/no_such_set/main \(train\) cannot be loaded"
    ) as caught:
        read_rows("mine", file, Split.TRAIN)
    assert "\n" not in str(caught.value)


def test_rows_of_the_hub_are_those_that_datasets_loads(tmp_path: Path) -> None:
    """A folder of files is a data set for `datasets`, too: what loads one of the hub is the same call."""
    for split, count in (("train", 2), ("test", 1)):
        lines = "".join(json.dumps(row) + "\n" for row in TWO[:count])
        (tmp_path / f"{split}.jsonl").write_text(lines)
    file = parse_file("mine", {"hub": {"name": str(tmp_path), "eval_split": "test"}})
    assert [row.question for row in read_rows("mine", file, Split.TRAIN).rows] == ["1 + 1?", "1 + 2?"]
    assert [row.question for row in read_rows("mine", file, Split.EVAL).rows] == ["1 + 1?"]
    assert [row.number for row in QuestionStream("mine", file, 0, Split.TRAIN).rows] == [2]
    stream = QuestionStream("mine", file, 0, Split.TRAIN, left_out=[1, 2])
    assert (len(stream), stream.left_out) == (0, 1)
    for alone in (True, False):
        with pytest.raises(ConfigError, match="every row of its train split is left out"):
            stream.item(0, alone=alone)


@pytest.fixture
def set_of_two(tmp_path: Path) -> Path:
    """A folder in the form of a data set of the hub, with two configurations; answers are classes, as in MMLU."""
    classes = datasets.Features(
        {
            "question": datasets.Value("string"),
            "choices": datasets.List(datasets.Value("string")),
            "answer": datasets.ClassLabel(names=["A", "B", "C"]),
        }
    )
    rows = [{"question": f"{n}?", "choices": ["w", "x", "y"], "answer": n % 3} for n in range(12)]
    made, configs = datasets.Dataset.from_list(rows, features=classes), []
    for config, size in (("easy", 9), ("hard", 12)):
        (tmp_path / config).mkdir()
        made.select(range(size)).to_parquet(str(tmp_path / config / "train.parquet"))
        configs.append(f"- config_name: {config}\n  data_files: [{{split: train, path: {config}/train.parquet}}]\n")
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{''.join(configs)}---\n")
    return tmp_path


def test_configurations_splits_and_classes_of_the_hub_are_read(set_of_two: Path) -> None:
    settings = {"question": "{question}\n{choices}", "scorer": "choice"}

    def read(part: Split, **hub: str) -> Rows:
        return read_rows("mine", parse_file("mine", {"hub": {"name": str(set_of_two), **hub}, **settings}), part)

    easy, hard = read(Split.TRAIN, config="easy"), read(Split.TRAIN, config="hard")
    assert (len(easy.rows), len(hard.rows), easy.sha256 == hard.sha256) == (9, 12, False)
    assert (easy.rows[2].question, easy.rows[2].answer) == ("2?\nA) w\nB) x\nC) y", "C")
    parts = {"config": "hard", "split": "train[:9]", "eval_split": "train[9:]"}
    assert [len(read(part, **parts).rows) for part in Split] == [9, 3]
    for hub, why in (
        ({}, r"Config name is missing.*\['easy', 'hard'\]"),
        ({"config": "harder"}, r"'harder' not found\. Available: \['easy', 'hard'\]"),
        ({"config": "easy", "split": "validation"}, r"Unknown split \"validation\"\. Should be one of \['train'\]"),
    ):
        with pytest.raises(ConfigError, match=rf"cannot be loaded from the hub: .*{why}") as caught:
            read(Split.TRAIN, **hub)
        assert "\n" not in str(caught.value)


def test_images_beside_the_questions_are_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"question": ["a?", "b?"], "answer": ["1", "2"], "picture": [Image.new("L", (2, 2), n) for n in (5, 250)]}
    datasets.Dataset.from_dict(columns).to_parquet(str(tmp_path / "train.parquet"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "scorer_of_pictures.py").write_text("def score(answer, row):\n    return 1.0\n")
    file = parse_file("mine", {"hub": {"name": str(tmp_path)}, "scorer": "scorer_of_pictures:score"})
    first = read_rows("mine", file, Split.TRAIN)
    question_rows._read.cache_clear()
    second = read_rows("mine", file, Split.TRAIN)
    assert second.rows[0] is not first.rows[0]
    assert second.sha256 == first.sha256
    of_row = entry_of("mine", file, first.rows[0])["metadata"]["row"]
    assert (of_row["question"], sorted(of_row["picture"])) == ("a?", ["bytes", "path"])
    assert of_row["picture"]["bytes"].endswith(" bytes")


def test_the_hub_without_datasets_is_one_line_with_what_to_install(tmp_path: Path) -> None:
    """In an environment of links to everything else that is installed here."""
    (tmp_path / "packages").mkdir()
    for installed in Path(datasets.__file__).parents[1].iterdir():
        if not installed.name.startswith("datasets"):
            (tmp_path / "packages" / installed.name).symlink_to(installed)
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("environment.skyrl_gym.rg_dump.tasks: {mine: {file: {hub: openai/gsm8k}}}")
    path = os.pathsep.join([str(ROOT), str(tmp_path / "packages")])
    command = [sys.executable, "-S", "-m", "rg_env", "tasks", str(recipe)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    line = "rg-env: tasks.mine.file.hub: needs the package datasets (pip install 'rg_env[hub]')\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
