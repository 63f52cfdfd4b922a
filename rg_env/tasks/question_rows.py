"""The rows of a file of questions: what of their columns is the question, what the answer, and who scores it.

Invariant: a row that cannot be asked is refused with its number before anything starts; no row is left out in silence.
Not covered: whether an answer is right, and whether its own scorer pays it (`rg_env.scoring.audit`).
"""

from __future__ import annotations

import csv
import datetime
import functools
import importlib.util
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard

from loguru import logger

from rg_env.base.braces import closing_brace
from rg_env.base.choices import Split
from rg_env.base.errors import ConfigError, describe, one_line
from rg_env.base.wording import counted
from rg_env.tasks.item import same_question, split_of_row
from rg_env.tasks.question_file import MOST_ANSWERS, OWN_SCORERS, QuestionFile, columns_in, fill_in
from rg_env.tasks.question_options import NO_OPTIONS, Options, as_list, is_list_of_options, read_lines, read_options
from rg_env.tasks.question_sources import READERS, Source, load_from_hub, open_file

KEPT_READ = 64
"""Files whose rows are kept in memory, for the next data set or command that asks."""
_USUAL_NAMES = ("options", "choices")
"""Of columns that list the options of a question."""
_IN_TEMPLATES = (str, int, float, Decimal, datetime.date, datetime.time, datetime.timedelta)
"""What a template shows as text."""
_PLAIN_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")


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
        places: of the right options, where the file has a place instead of a letter or text; else None.
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
    places: tuple[int | None, ...] = ()


class Rows(NamedTuple):
    """The rows of a file, and the SHA-256 of what they were read from.

    Attributes:
        first_place: of an option, where the file has places of options: 0 or 1.
    """

    rows: tuple[Row, ...]
    sha256: str
    first_place: int = 0


def read_rows(task: str, file: QuestionFile, split: Split) -> Rows:
    """Return the rows of the file of a split, whichever split their questions belong to.

    Raises:
        ConfigError: the file cannot be read, or a row is wrong; with the number of the first.
    """
    if not file.evaluates_elsewhere:
        split = Split.TRAIN
    # Both, because the other split may say from where places of options are counted.
    return _read(task, file, split, tuple(_version(file, each) for each in Split))


def _version(file: QuestionFile, split: Split) -> tuple[int, int] | None:
    """Return size and time of change of a file, so that no cache keeps an older content; None if there is no file."""
    if file.hub is not None:
        return None
    try:
        stat = Path(file.of_split(split)).stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


@functools.lru_cache(KEPT_READ)
def _read(task: str, file: QuestionFile, split: Split, versions: tuple[object, ...]) -> Rows:
    place, source = _place(task, file, split), _open(task, file, split)
    rows, sha256 = _rows_in(place, file, source)
    first = _first_place(task, file, split, rows)
    rows = _with_letters(place, rows, first)
    if not source.is_typed:
        rows = _with_numbers(rows)
    if file.answer in columns_in(file.question):
        line = "{}: every question shows its own answer, {}, at the same place: put the options into one column, in "
        logger.warning(f"{line}an order of their own", place, file.answer)
    _say_repeated(place, rows)
    _say_unasked(place, rows, file)
    _say_unevaluated(place, rows, file)
    return Rows(tuple(rows), sha256, first)


def _place(task: str, file: QuestionFile, split: Split) -> str:
    """Return what messages begin with."""
    return f"tasks.{task}.file: {file.of_split(split)}"


def _open(task: str, file: QuestionFile, split: Split) -> Source:
    place = _place(task, file, split)
    if file.hub is not None:
        part = file.hub.split if split is Split.TRAIN else file.hub.eval_split
        return load_from_hub(place, file.hub, str(part))
    path = Path(file.of_split(split))
    try:
        path.stat()
    except OSError as error:
        from rg_env.base.hints import file_beside

        raise ConfigError(f"{place} cannot be read: {error.strerror}{file_beside(path, READERS)}") from None
    return open_file(place, path)


def _rows_in(place: str, file: QuestionFile, source: Source) -> tuple[list[Row], str]:
    """Return the rows of a file as they are, with places of options, and the SHA-256 of what they were read from."""
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
    except csv.Error as error:
        right = 'inside double quotes, write " twice; end the text with one'
        raise ConfigError(f"{place} cannot be read after row {len(rows)}: {error}; {right}") from None
    except OSError as error:
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
        raise ConfigError(f"{place} has no rows: put each question and its answer on a line below the header")
    return rows, sha256


def _say_repeated(place: str, rows: Sequence[Row]) -> None:
    """Warn of questions that are repeated, on purpose or not; those with different answers are for the audit."""
    repeated = len(rows) - len({same_question(row.question) for row in rows})
    if repeated:
        logger.warning("{}: {} of {} rows repeat the question of an earlier row", place, repeated, len(rows))


def _say_unevaluated(place: str, rows: Sequence[Row], file: QuestionFile) -> None:
    """Warn of a file that is too small for a hash to set apart any of its questions."""
    if file.evaluates_elsewhere:
        return
    for row in rows:
        if split_of_row(row.question) is Split.EVAL:
            return
    line = "{}: one eighth of the questions is held out for evaluation, and none of these {}: set `{}`"
    logger.warning(line, place, counted(len(rows), "row"), "hub.eval_split" if file.hub else "eval_path")


def _say_unasked(place: str, rows: Sequence[Row], file: QuestionFile) -> None:
    """Warn of conversations of which only the last message of the user is asked."""
    longer = 0
    for row in rows:
        for name in columns_in(file.question) or [file.question]:
            chat = _value(row.columns, name, "question")
            if not _is_chat(chat):
                continue
            of_user = [number for number, message in enumerate(chat) if message["role"] == "user"]
            if of_user[-1] > 0:
                longer += 1
                break
    if longer:
        line = "{}: of {} of {} rows only the last user message is used; to use a system message, set `system_prompt`"
        logger.warning(line, place, longer, len(rows))


def _first_place(task: str, file: QuestionFile, split: Split, rows: Sequence[Row]) -> int:
    """Return the place of a first option, where the file has places of options: 0 or 1.

    It is 1 if no place is 0 and one is the number of options. Where neither 0 nor that number is there, the other split
    decides, if it is elsewhere. Warns of 1, and where nothing decides.
    """
    if not _places_in(rows):
        return 0
    line = f"{_place(task, file, split)}: the answers are places of options"
    first, last = _told_first_place(rows)
    if last:
        here = "{}, counted from 1: that of row {} is {}, which is the last"
        logger.warning(here, line, last.number, len(_options_of(last)))
    if first is None and file.evaluates_elsewhere:
        other = Split.TRAIN if split is Split.EVAL else Split.EVAL
        others, _ = _rows_in(_place(task, file, other), file, _open(task, file, other))
        first, last = _told_first_place(others)
        if last:
            logger.warning("{}, counted from 1, as those of {}", line, file.of_split(other))
    if first is None:
        logger.warning("{}, taken from 0; nothing says that they are not counted from 1: write letters", line)
    return first or 0


def _told_first_place(rows: Sequence[Row]) -> tuple[int | None, Row | None]:
    """Return the place of a first option, if the places in these rows tell it, and the row that tells that it is 1."""
    if 0 in _places_in(rows):
        return 0, None
    for row in rows:
        if len(_options_of(row)) in row.places:
            return 1, row
    return None, None


def _places_in(rows: Sequence[Row]) -> set[int | None]:
    return set(itertools.chain.from_iterable(row.places for row in rows)) - {None}


def _options_of(row: Row) -> Mapping[str, str]:
    return row.options or read_lines(row.question)


def _with_letters(place: str, rows: Sequence[Row], first: int) -> list[Row]:
    """Return the rows with letters where the file has places of options, of which the first is 0 or 1. Warns of places
    that are the text of another option."""
    doubtful, lettered = 0, []
    for row in rows:
        if not row.places:
            lettered.append(row)
            continue
        answers, is_doubtful = [], False
        letter_of = {text: letter for letter, text in _options_of(row).items()}
        for answer, at in zip(row.answers, row.places, strict=True):
            # A place beyond the options becomes a letter that none has, or stays: the audit leaves that row out.
            letter = answer
            if at is not None and at - first < len(ascii_uppercase):
                letter = ascii_uppercase[at - first]
                # An option that reads as the place.
                is_doubtful |= letter_of.get(str(at), letter) != letter
            answers.append(letter)
        doubtful += is_doubtful
        lettered.append(row._replace(answer=answers[0], answers=tuple(answers)))
    if doubtful:
        line = "{}: in {} of {} rows the answer is the place of one option, counted from {}, and the text of another"
        logger.warning(f"{line}: the place counts; write texts in quotes", place, doubtful, len(rows), first)
    return lettered


def _with_numbers(rows: list[Row]) -> list[Row]:
    """Return the rows with numbers as answers where all texts that `exact` compares are numbers, as in a column of
    CSV. Zeros at the beginning belong to a text, such as that of a ZIP code."""
    numbers = []
    for row in rows:
        if row.scorer == "exact":
            if not all(map(_PLAIN_NUMBER.fullmatch, row.answers)):
                return rows
            row = row._replace(is_number=True, is_float=not row.answer.lstrip("+-").isdecimal())
        numbers.append(row)
    return numbers


# -- one row


def _row_of(number: int, columns: object, file: QuestionFile) -> Row:
    """Return a row. Raises ValueError: why it is none."""
    if isinstance(columns, ValueError):
        raise columns
    if not isinstance(columns, Mapping):
        raise ValueError("is not a JSON object")
    if None in columns:  # where csv keeps what is left over
        raise ValueError("has more values than there are columns: put a text that has commas in double quotes")
    scorer = _scorer(columns, file)
    question, options = _question(columns, file.question, is_choice=scorer == "choice")
    value = _value(columns, file.answer, "answer")
    answers = _answers(value, file)
    for name, text in (("question", question), *(("answer", answer) for answer in answers)):
        if not text:
            raise ValueError(f"{getattr(file, name)} is empty")
        if not text.isascii():
            text.encode()  # raises for half of a surrogate pair, which no tokenizer takes
    values = value if isinstance(value, list) else [value]
    are_numbers = [isinstance(each, (int, float)) for each in values]
    numbers = {"is_number": all(are_numbers), "is_float": isinstance(values[0], float)}
    places: tuple[int | None, ...] = ()
    if scorer == "choice":
        options = _options(question, options, columns, file)
        answers = tuple(options.letters.get(answer, answer) for answer in answers)
        numbered = {str(each) for each in itertools.compress(values, are_numbers)}
        texts = options.texts or read_lines(question)
        # As in TruthfulQA. Read as places, they would be the first two options.
        if len(values) == len(texts) > 1 and all(each in (0, 1) for each in values):
            raise ValueError(f"{file.answer} has a 0 or 1 for each option: write the letters of the right ones instead")
        places = tuple(_place_of(answer, answer in numbered, texts) for answer in answers)
    return Row(number, question, answers[0], columns, scorer, answers, options.texts, **numbers, places=places)


def _place_of(answer: str, is_number: bool, options: Mapping[str, str]) -> int | None:
    """Return the place that an answer is; None if it is a letter or the text of an option.

    A number is a place, as in MMLU. Digits in a text are one, as in HellaSwag, unless an option reads so.
    """
    if not (answer.isascii() and answer.isdecimal()) or len(answer) > 2:
        return None
    # Behind the last option of a question, other lines may follow.
    texts = {text.partition("\n")[0] for text in options.values()}
    if not is_number and (not texts or answer in texts or int(answer) > len(options)):
        return None
    return int(answer)


def _options(question: str, options: Options, columns: Mapping[str, Any], file: QuestionFile) -> Options:
    """Return the options of a question, also if no template names their column.

    Raises:
        ValueError: the question does not show those of a column with a usual name.
    """
    if options.texts or read_lines(question):
        return options
    for name in _USUAL_NAMES:
        if name not in columns or name == file.answer:
            continue
        options = _options_in(name, columns[name])
        if any(text in question for text in options.texts.values()):
            return options
        if len(options.texts) > 1:
            template = file.question if columns_in(file.question) else f"{{{file.question}}}"
            right = json.dumps(f"{template}\n{{{name}}}", ensure_ascii=False)  # as YAML has it, too
            raise ValueError(f"the question does not list its options: set question: {right}")
    for name, value in columns.items():
        if name in (*_USUAL_NAMES, file.answer):
            continue
        # Any other list may be of tags, or of numbers.
        with suppress(ValueError):
            options = _options_in(name, value)
            if len(options.texts) > 1 and all(text in question for text in options.texts.values()):
                return options
    return NO_OPTIONS


def _options_in(name: str, value: Any) -> Options:
    """Return the options that a column lists; none if it lists nothing. Raises ValueError: not as options are."""
    listed = as_list(name, value)
    return read_options(name, listed) if is_list_of_options(listed) else NO_OPTIONS


def _value(columns: Mapping[Any, Any], name: str, setting: str) -> Any:
    """Return what a column has, or one in a column (`reward_model.ground_truth`)."""
    if name in columns:
        return columns[name]
    value: Any = columns
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            from rg_env.base.hints import missing_column

            raise ValueError(missing_column(setting, name, columns))
        value = value[part]
    return value


def _question(columns: Mapping[str, Any], template: str, *, is_choice: bool) -> tuple[str, Options]:
    """Return the text of the question, and the options that it lists."""
    names = columns_in(template)
    options = NO_OPTIONS
    # One column, which may hold a conversation.
    if not names:
        value = _value(columns, template, "question")
        text = _last_of("user", template, value) if _is_chat(value) else _need_text(template, value)
        return _plain(text), options
    texts = {}
    for name in names:
        value = _value(columns, name, "question")
        if is_choice:
            value = as_list(name, value)
        if isinstance(value, (list, Mapping)) and not _is_chat(value):
            options = read_options(name, value)
            texts[name] = options.shown
        elif value is None:  # an input that not every instruction has
            texts[name] = ""
        elif isinstance(value, _IN_TEMPLATES):
            texts[name] = str(value)
        else:
            texts[name] = _last_of("user", name, value) if _is_chat(value) else _need_text(name, value)
    return _plain(fill_in(template, texts)), options


def _need_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        raise ValueError(f"{name} is empty")
    from rg_env.base.hints import no_question

    raise ValueError(f"{name} is not a text but {type(value).__name__}{no_question(name, value)}")


def _plain(text: str) -> str:
    """Return a text with the line ends of Unix and without white space around it."""
    return text.replace("\r\n", "\n").strip()


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
    from rg_env.base.hints import no_answer

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
