"""The rows of a file of questions: what of their columns is the question, what the answer, and who scores it.

Invariant: a row that cannot be asked is refused with its number before anything starts; no row is left out in silence.
Not covered: whether an answer is right, and whether its own scorer pays it (`rg_env.scoring.audit`).
"""

from __future__ import annotations

import csv
import functools
import importlib.util
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard

from loguru import logger

from rg_env.braces import closing_brace
from rg_env.choices import Split
from rg_env.errors import ConfigError, describe, one_line
from rg_env.tasks.item import same_question
from rg_env.tasks.question_file import MOST_ANSWERS, OWN_SCORERS, QuestionFile, columns_in, fill_in
from rg_env.tasks.question_sources import READERS, Source, load_from_hub, open_file
from rg_env.wording import counted

_KEPT_READ = 8
"""Files whose rows are kept in memory, for the next data set or command that asks."""
_LETTERED = re.compile(r"\(?([A-Z])\s?[).:\]]")


class Row(NamedTuple):
    """A row of a file.

    Attributes:
        number: from 1.
        answer: the first of the `answers`.
        columns: all of them, as they were read.
        scorer: who scores it.
        answers: all that are right, as texts.
        options: those that the question lists, by letter.
        is_number, is_float: whether the file has the answer as a number, and as a floating-point number.
    """

    number: int
    question: str
    answer: str
    columns: Mapping[str, Any]
    scorer: str
    answers: tuple[str, ...]
    options: Mapping[str, str] = MappingProxyType({})
    is_number: bool = False
    is_float: bool = False


class Rows(NamedTuple):
    """The rows of a file, and the SHA-256 of what they were read from."""

    rows: tuple[Row, ...]
    sha256: str


def read_rows(task: str, file: QuestionFile, split: Split) -> Rows:
    """Return the rows of the file of a split, whichever split their questions belong to.

    Raises:
        ConfigError: the file cannot be read, or a row is wrong; with the number of the first.
    """
    if file.hub is not None:
        apart = split is Split.EVAL and file.sets_apart
        return _read_hub(task, file, str(file.hub.eval_split if apart else file.hub.split))
    path = Path(file.of_split(split))
    try:
        stat = path.stat()
    except OSError as error:
        from rg_env.hints import file_beside

        hint = file_beside(path, READERS)
        raise ConfigError(f"tasks.{task}.file: {path} cannot be read: {error.strerror}{hint}") from None
    # Size and time of change are arguments only so that the cache does not keep an older content.
    return _read_path(task, file, path, (stat.st_size, stat.st_mtime_ns))


@functools.lru_cache(_KEPT_READ)
def _read_path(task: str, file: QuestionFile, path: Path, version: tuple[int, int]) -> Rows:
    place = f"tasks.{task}.file: {path}"
    return _read(place, file, open_file(place, path))


@functools.lru_cache(_KEPT_READ)
def _read_hub(task: str, file: QuestionFile, split: str) -> Rows:
    assert file.hub is not None
    place = f"tasks.{task}.file: {file.hub.name} ({split})"
    return _read(place, file, load_from_hub(place, file.hub, split))


def _read(place: str, file: QuestionFile, source: Source) -> Rows:
    rows: list[Row] = []
    faults: list[str] = []
    try:
        for number, columns in source.rows:
            try:
                rows.append(_row_of(number, columns, file))
            except ValueError as fault:
                # All rows are read before the first fault is raised: the message says how many more there are.
                faults.append(f"row {number}: {one_line(fault)}")
        sha256 = source.digest()
    except UnicodeDecodeError:
        raise ConfigError(f"{place} is not in UTF-8; save it in that encoding") from None
    except (OSError, csv.Error) as error:
        after = ""
        if rows:
            after = f" after row {len(rows)}"
        raise ConfigError(f"{place} cannot be read{after}: {describe(error)}") from None
    if faults:
        more = ""
        if len(faults) > 1:
            more = f" (and {counted(len(faults) - 1, 'more row')})"
        raise ConfigError(f"{place}: {faults[0]}{more}")
    if not rows:
        raise ConfigError(f"{place} has no rows")
    _say_repeated(place, rows)
    _say_unasked(place, rows, file)
    _say_places(place, rows, file)
    return Rows(tuple(rows), sha256)


def _say_repeated(place: str, rows: Sequence[Row]) -> None:
    """Warn of questions that are repeated, on purpose or not, and name those that have different answers."""
    first: dict[str, Row] = {}
    repeated, contradictions = 0, []
    for row in rows:
        earlier = first.setdefault(same_question(row.question), row)
        if earlier is row:
            continue
        repeated += 1
        if same_question(earlier.answer) != same_question(row.answer):
            contradictions.append((earlier, row))
    if repeated:
        logger.warning("{}: {} of {} rows repeat the question of an earlier row", place, repeated, len(rows))
    if contradictions:
        earlier, row = contradictions[0]
        pairs = f"rows {earlier.number} ({earlier.answer!r:.40}) and {row.number} ({row.answer!r:.40})"
        if len(contradictions) > 1:
            pairs += f", and {counted(len(contradictions) - 1, 'more pair')}"
        logger.warning("{}: one question has different answers: {}", place, pairs)


def _say_unasked(place: str, rows: Sequence[Row], file: QuestionFile) -> None:
    """Warn of conversations of which only the last message of the user is asked."""
    longer = 0
    for row in rows:
        chat = row.columns.get(file.question)
        if _is_chat(chat):
            of_user = [place for place, message in enumerate(chat) if message["role"] == "user"]
            longer += of_user[-1] > 0
    if longer:
        line = "{}: of {} of {} rows only the last message of the user is asked; set `system_prompt` for a system's"
        logger.warning(line, place, longer, len(rows))


def _say_places(place: str, rows: Sequence[Row], file: QuestionFile) -> None:
    """Warn of numbers that are the place of one option, as in MMLU, and the text of another."""
    doubtful = 0
    for row in rows:
        if row.scorer == "choice" and row.is_number:
            number = str(_value(row.columns, file.answer, "answer"))
            doubtful += any(text == number and letter != row.answer for letter, text in row.options.items())
    if doubtful:
        line = "{}: in {} of {} rows the answer is the place of one option, counted from 0, and the text of another"
        logger.warning(f"{line}: the place counts; write texts in quotes", place, doubtful, len(rows))


# -- one row


def _row_of(number: int, columns: object, file: QuestionFile) -> Row:
    """Return a row. Raises ValueError: why it is none."""
    if isinstance(columns, ValueError):
        raise columns
    if not isinstance(columns, Mapping):
        raise ValueError("is not a JSON object")
    if None in columns:  # where csv keeps what is left over
        raise ValueError("has more values than there are columns: put a text that has commas in double quotes")
    question, options = _question(columns, file.question)
    value = _value(columns, file.answer, "answer")
    answers = _answers(value, file)
    for name, text in (("question", question), *(("answer", answer) for answer in answers)):
        if not text:
            raise ValueError(f"{getattr(file, name)} is empty")
        if not text.isascii():
            text.encode()  # raises for half of a surrogate pair, which no tokenizer takes
    scorer = _scorer(columns, file)
    if scorer == "choice":
        _need_options(question, options, columns)
        if isinstance(value, int) and 0 <= value < len(ascii_uppercase):  # the option's place
            answers = (ascii_uppercase[value],)
    is_number = isinstance(value, (int, float))
    return Row(number, question, answers[0], columns, scorer, answers, options, is_number, isinstance(value, float))


def _need_options(question: str, options: Mapping[str, str], columns: Mapping[str, Any]) -> None:
    """Refuse a question that asks for one of several options and does not show them."""
    in_column = listed_options(columns)
    if isinstance(in_column, list) and not options and not any(str(option) in question for option in in_column):
        name = "options" if "options" in columns else "choices"
        raise ValueError(f"the question does not list its options: set question: '{{question}}\\n{{{name}}}'")


def listed_options(columns: Mapping[str, Any]) -> Any:
    """Return what a row has in a column of options that no template names."""
    return columns.get("options", columns.get("choices"))


def _value(columns: Mapping[Any, Any], name: str, setting: str) -> Any:
    """Return what a column has, or one in a column (`reward_model.ground_truth`)."""
    if name in columns:
        return columns[name]
    value: Any = columns
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            from rg_env.hints import missing_column

            raise ValueError(missing_column(setting, name, columns))
        value = value[part]
    return value


def _question(columns: Mapping[str, Any], template: str) -> tuple[str, dict[str, str]]:
    """Return the text of the question, and the options that it lists."""
    names = columns_in(template)
    options: dict[str, str] = {}
    # One column, which may hold a conversation.
    if not names:
        value = _value(columns, template, "question")
        text = _last_of("user", template, value) if _is_chat(value) else _need_text(template, value)
        return _plain(text), options
    texts = {}
    for name in names:
        value = _value(columns, name, "question")
        if isinstance(value, (list, Mapping)) and not _is_chat(value):
            options, texts[name] = _listed(name, value)
        elif value is None:  # an input that not every instruction has
            texts[name] = ""
        elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
            texts[name] = str(value)
        else:
            texts[name] = _last_of("user", name, value) if _is_chat(value) else _need_text(name, value)
    return _plain(fill_in(template, texts)), options


def _need_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        raise ValueError(f"{name} is empty")
    from rg_env.hints import no_question

    raise ValueError(f"{name} is not a text but {type(value).__name__}{no_question(name, value)}")


def _plain(text: str) -> str:
    """Return a text with the line ends of Unix and without white space around it."""
    return text.replace("\r\n", "\n").strip()


def _listed(name: str, value: Any) -> tuple[dict[str, str], str]:
    """Return options by letter, and their list in the question: "A) …" in a line each, unless they have letters."""
    labels: Sequence[str] = ascii_uppercase
    if isinstance(value, Mapping):
        # As ARC has them: {"text": […], "label": […]}; or by letter: {"A": …}.
        labels, value = list(value), list(value.values())
        if sorted(labels) == ["label", "text"] and all(isinstance(part, list) for part in value):
            labels, value = value[labels.index("label")], value[labels.index("text")]
    texts = []
    for option in value:
        if not isinstance(option, (str, int, float)) or isinstance(option, bool):
            raise ValueError(f"{name} has an option that is not a text but {type(option).__name__}")
        texts.append(_plain(str(option)))
    if len(texts) > len(labels):
        raise ValueError(f"{name} has {len(texts)} options, and there are {len(labels)} letters")
    # Options that begin with their letters are listed as they are, and known without them.
    letters = [_LETTERED.match(text) for text in texts]
    if all(match and match[1] == letter for match, letter in zip(letters, ascii_uppercase, strict=False)):
        bare = [_LETTERED.sub("", text, count=1).strip() for text in texts]
        return dict(zip(ascii_uppercase, bare, strict=False)), "\n".join(texts)
    options = dict(zip(map(str, labels), texts, strict=False))
    return options, "\n".join(f"{label}) {text}" for label, text in options.items())


def _answers(value: Any, file: QuestionFile) -> tuple[str, ...]:
    """Return all right answers as texts."""
    name = file.answer
    if _is_chat(value):
        value = _last_of("assistant", name, value)
    # A list is several right answers, not an answer that is a list.
    given = value if isinstance(value, list) else [value]
    if not given:
        raise ValueError(f"{name} is empty")
    if len(given) > MOST_ANSWERS:
        raise ValueError(f"{name} has {len(given)} answers, more than {MOST_ANSWERS}")
    answers = [_answer(name, one) for one in given]
    if file.answer_after is not None:
        answers = [_after(file.answer_after, name, answer) for answer in answers]
    return tuple(dict.fromkeys(answers))


def _answer(name: str, value: Any) -> str:
    if value is None:
        raise ValueError(f"{name} is empty")
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return _plain(str(value))
    from rg_env.hints import no_answer

    raise ValueError(f"{name} is not a text or a number but {type(value).__name__}{no_answer(name, value)}")


def _after(mark: str, name: str, answer: str) -> str:
    """Return what stands behind the last mark: up to the brace that closes it, where it ends with one, or to the tag
    that closes it, where it is one."""
    _, found, rest = answer.rpartition(mark)
    if not found:
        raise ValueError(f"{name} does not contain {mark!r} (answer_after): {answer:.40}")
    if mark.endswith("{"):
        start = len(answer) - len(rest)
        closing = closing_brace(answer, start - 1)
        return _plain(rest if closing < 0 else answer[start:closing])
    if mark.startswith("<") and mark.endswith(">"):
        return _plain(rest.partition(f"</{mark[1:]}")[0])
    return _plain(rest)


def _scorer(columns: Mapping[str, Any], file: QuestionFile) -> str:
    column = file.scorer_column
    if column is None:
        return file.scorer
    scorer = _value(columns, column, "scorer")
    # No functions: a file is data, and does not say what is called.
    if scorer not in OWN_SCORERS:
        raise ValueError(f"{column} is {scorer!r:.40}: a row's scorer must be one of {', '.join(OWN_SCORERS)}")
    if scorer == "math" and not _has_math():
        raise ValueError(f"{column} is 'math', which needs math-verify (pip install math-verify)")
    return str(scorer)


@functools.cache
def _has_math() -> bool:
    return importlib.util.find_spec("math_verify") is not None


# -- conversations


def _is_chat(value: object) -> TypeGuard[list[Mapping[str, Any]]]:
    """Return whether this is a conversation: a list of messages with role and content."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(message, Mapping) and {"role", "content"} <= message.keys() for message in value)


def _last_of(role: str, name: str, chat: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the last message of a role."""
    for message in reversed(chat):
        if message["role"] != role:
            continue
        # Both forms of OpenAI's messages: a text, or a list of parts.
        content = message["content"]
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        texts = []
        for part in parts:
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            if kind != "text" or not isinstance(part.get("text"), str):
                raise ValueError(f"{name} has a message with a part of the kind {kind}; only texts can be asked")
            texts.append(part["text"])
        return "".join(texts)
    raise ValueError(f"{name} has no message of the role {role!r}")
