r"""The audit of a file of questions: is each right answer paid by its own scorer, and is junk not?

A file whose answers are not what its scorer reads trains on zeros, and nothing else says so. Rows that fail are left
out and named. If they are more than a twentieth, the file is refused, with the key to change.

| tried | fails if |
|---|---|
| the row's own answer, inside the format | it is not solved |
| `x=x`, `0`, `\emptyset`, …, the answer without its last letter, three answers of other rows | one is solved |
| the answer itself | nobody would answer so: sentences, `####`, tags, NaN, more characters than an answer may have |
| the answers of rows with one question | they differ |

Invariant: which rows are left out depends on the file, its settings and the scorers alone, so every process leaves out
the same ones. Not covered: whether an answer is right. A function of the user's decides itself what it pays: its rows
are tried, and nothing is left out.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from enum import Enum
from itertools import batched
from pathlib import Path
from typing import Any, NamedTuple

from loguru import logger
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from rg_env.base.atomic import new_file
from rg_env.base.choices import SOLVED_AT, ResponseFormat, Split
from rg_env.base.errors import ConfigError
from rg_env.base.output import console, print_error
from rg_env.configuration.config import ScorerConfig
from rg_env.runner.caller_guarded import guarded
from rg_env.runner.machine import usable_cores
from rg_env.scoring.audit_rows import How, Tried, junk_for, meaning, other_spelling, response_with, try_rows
from rg_env.scoring.numbers import read_number
from rg_env.scoring.options import options_of
from rg_env.scoring.scorer import Scorer
from rg_env.scoring.types import Status
from rg_env.tasks.item import SCORER_KEY, hash64, same_question
from rg_env.tasks.mix import TaskMix
from rg_env.tasks.question_file import OWN_SCORERS, QuestionFile
from rg_env.tasks.question_rows import Row, read_rows
from rg_env.tasks.questions import entry_of

MOST_LEFT_OUT = 0.05
"""A file with a larger share of rows that fail is refused."""
_JUNK_ROWS = 1000
"""Rows with `math` on which junk is tried, chosen by hash: an answer takes milliseconds."""
_USER_ROWS = 20
"""Rows with a function of the user's that are tried."""
_IN_THIS_PROCESS = 300
"""So many rows are tried without other processes, if their scorers evaluate nothing: a process takes longer."""
_BATCH, _BATCH_OF_MATH = 250, 25
"""Rows that a process tries; with `math`, those of them with junk."""
_BATCH_SECONDS = 20.0
_SAID_EVERY = 20.0
_NAMED_ROWS = 3
_SHOWN, _REASON_SHOWN = 30, 120
_WARM_UP = Tried(
    1, {"question": "?", "answer": "x+1", "metadata": {"source_dataset": "warm_up", SCORER_KEY: "math"}}, ("x+1",), ()
)
"""sympy imports much with its first expression."""
_LIBRARIES = ("math-verify", "latex2sympy2_extended", "sympy")


class Rule(Enum):
    """Why a row is left out, and which key of the file to change."""

    HASHES = ("contains ####", "set answer_after: '####'")
    BOXED = ("contains \\boxed{", "set answer_after: '\\boxed{'")
    TAGS = ("contains a tag of the format", "set answer_after: '<answer>', or name another column as `answer`")
    SENTENCES = (
        "is text of several lines or sentences",
        "name the column of the short answer as `answer`, or cut it with `answer_after`",
    )
    TOO_LONG = ("is longer than scorer.max_answer_chars", "name the column of the short answer as `answer`")
    NO_NUMBER = ("is NaN or infinite", "remove these rows")
    SPELLING = ("is not accepted in another spelling", "set scorer: number")
    SPELLING_OF_SOME = (
        "is not accepted in another spelling",
        "write it as people answer, such as 27 for 27.0, or name the scorer of each row in a column (scorer: '{kind}')",
    )
    UNREWARDED = ("is not accepted by its own scorer", "")
    JUNK = ("accepts junk", "")
    NO_OPTIONS = (
        "is one of several options, which the question does not list",
        'list them in it, such as question: "{question}\\nA) {A}\\nB) {B}"',
    )
    DECIMAL_COMMA = ("has a comma as decimal point", "write 0.5 for 0,5")
    CONTRADICTS = (
        "contradicts another row with the same question",
        "keep the right one, or write both as a list of right answers",
    )
    FAILS = ("is not scored, because your function fails", "fix the function")

    def __init__(self, words: str, cure: str) -> None:
        self.words, self.cure = words, cure


_OTHER_SCORERS = {
    "exact": "set scorer: number or math",
    "number": "set scorer: math or exact",
    "math": "set scorer: exact or number",
    "choice": "it must be the letter, the text or the place of an option that the question lists; or set scorer: exact",
}


class Fault(NamedTuple):
    """A row that fails: its number, the rule, and the text that shows it."""

    row: int
    rule: Rule
    text: str


class Audit(NamedTuple):
    """The result of a file.

    Attributes:
        rows: in the file.
        tried: rows whose own answers were tried; `with_junk`: those on which junk was tried as well.
        faults: in order of the rows.
        is_advice: nothing is left out, because the user's function scores.
        place: the file, as messages name it; `scorer`: its setting.
    """

    rows: int
    tried: int
    with_junk: int
    faults: tuple[Fault, ...]
    is_advice: bool = False
    place: str = ""
    scorer: str = ""

    @property
    def left_out(self) -> frozenset[int]:
        """The numbers of the rows that are left out."""
        if self.is_advice:
            return frozenset()
        return frozenset(fault.row for fault in self.faults)

    @property
    def is_refused(self) -> bool:
        # A function that fails whatever it gets decides nothing.
        fails = sum(fault.rule is Rule.FAILS for fault in self.faults)
        return len(self.left_out) > MOST_LEFT_OUT * self.rows or 0 < self.tried == fails


@functools.lru_cache(64)  # once per process, however many data sets have the file
def left_out(audit: Audit) -> frozenset[int]:
    """Return the numbers of the rows that are left out. Says which ones, once per process.

    Raises:
        ConfigError: there are too many.
    """
    lines = lines_of(audit)
    if audit.is_refused:
        raise ConfigError(f"{audit.place}: {lines[0]}")
    for line in lines:
        if audit.is_advice:
            logger.warning("{}: {}; your function decides, so all rows are kept", audit.place, line)
        else:
            logger.warning("{}: left out: {}", audit.place, line)
    return audit.left_out


def left_out_of_mix(
    tasks: Any,
    settings: ScorerConfig,
    format: str,
    before: Mapping[str, Any] | None = None,
    splits: Iterable[Split] = tuple(Split),
) -> dict[str, dict[str, list[int]]]:
    """Return the rows that are left out of the files of a mix, by task and split, for the manifest of a run.

    Args:
        before: what was returned when the run began, if it is continued.

    Raises:
        ConfigError: others were left out when the run began.
    """
    noted: dict[str, dict[str, list[int]]] = {}
    for task, file in TaskMix.parse(tasks).files.items():
        of_file = {}
        for split in splits:
            if numbers := left_out(audit_of(task, file, split, settings, format)):
                of_file[split.value] = sorted(numbers)
        if of_file:
            noted[task] = of_file
    if before is not None and before != noted:
        changed = [task for task in {**before, **noted} if before.get(task) != noted.get(task)]
        raise ConfigError(
            f"tasks.{changed[0]}.file: the rows that are left out are not those of the time when this run began: use "
            "the same scorers, or start anew under another name"
        )
    return noted


def audit_of(
    task: str,
    file: QuestionFile,
    split: Split,
    settings: ScorerConfig | None = None,
    format: str = ResponseFormat.STRICT,
) -> Audit:
    """Return the audit of the file of a split; from the user's cache, if it is there.

    Raises:
        ConfigError: the file cannot be read.
    """
    settings = settings or ScorerConfig()
    how = How(settings.max_answer_chars, settings.normalize, str(format))
    read = read_rows(task, file, split)
    # The other split may say from where places of options are counted.
    content = f"{read.sha256} {read.first_place}"
    audit = _audit(task, file, split, content, how, settings.timeout)
    return audit._replace(place=f"tasks.{task}.file: {file.of_split(split)}", scorer=file.scorer)


@functools.lru_cache(16)
def _audit(task: str, file: QuestionFile, split: Split, content: str, how: How, timeout: float) -> Audit:
    read = read_rows(task, file, split)
    # A column names ours only.
    is_users = file.scorer_column is None and file.scorer not in OWN_SCORERS
    kept = _cache_of(file, content, how)
    if not is_users and (found := _read_cache(kept)) is not None:
        return found
    # First what a look at the answer says; the others are tried.
    faults, left = [], []
    contradicting = frozenset() if is_users else _contradicting(read.rows)
    for row in read.rows:
        rule = None if is_users else _rule_of_row(row, how.longest)
        if row.number in contradicting:
            rule = Rule.CONTRADICTS
        if rule:
            faults.append(Fault(row.number, rule, row.answer[:_SHOWN]))
        else:
            left.append(row)
    tried = _to_try(task, file, left)
    with_junk = sum(bool(row.junk) for row in tried)
    if is_users:
        faults += _try_users(tried, how, timeout)
    else:
        what = f"{task}: trying {len(tried):,} answers of {file.of_split(split)}"
        if with_junk < len(tried):
            what += f", junk on {with_junk:,} of the rows"
        faults += _try(tried, how, timeout, what)
    faults.sort(key=lambda fault: fault.row)
    audit = Audit(len(read.rows), len(tried), with_junk, tuple(faults), is_users)
    # A function of the user's may be another one tomorrow, whatever its file contains; twenty rows are soon tried.
    if not is_users:
        _write_cache(kept, audit)
    return audit


# -- what a look at the answer says

_TAG = re.compile(r"</?(?:think|answer)>")
_END_OF_SENTENCE = re.compile(r"[^\W\d_]{4,}[.!?][\"')]?\s+[\"'(]?[^\W\d_a-z]|[。！？]\s*\S|\n")
_COMMAND = re.compile(r"\\(?:begin|end)\{\w+\*?\}|\\[A-Za-z]+")
# A sign of Chinese or Japanese counts as a word, since no spaces stand between these.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_]{2,}")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,(?:[0-9]{1,2}|[0-9]{4,})")
_LEAST_WORDS = 5
"""Of the longest line of a text: five names in a line each are a list, which somebody may well answer."""


def _rule_of_row(row: Row, longest: int) -> Rule | None:
    """Return why nobody can give the answer of a row; None if somebody might."""
    if row.scorer == "choice" and not row.options and not options_of(row.question, None):
        return Rule.NO_OPTIONS
    if row.scorer == "number" and _DECIMAL_COMMA.fullmatch(row.answer):
        return Rule.DECIMAL_COMMA
    return _rule_of_answer(row.answer, longest)


def _rule_of_answer(answer: str, longest: int) -> Rule | None:
    """Return why nobody would give this answer; None if somebody might."""
    if "####" in answer:
        return Rule.HASHES
    if _TAG.search(answer):
        return Rule.TAGS
    if "\\boxed{" in answer:
        return Rule.BOXED
    if len(answer) > longest:
        return Rule.TOO_LONG
    if answer.casefold().lstrip("+-") in ("nan", "inf", "infinity"):
        return Rule.NO_NUMBER
    # A grid, a matrix or a list may have lines, too: they are a text only if one of them has words.
    plain = _COMMAND.sub(" ", answer)
    words = max(len(_WORD.findall(line)) for line in plain.splitlines() or [""])
    if words >= _LEAST_WORDS and _END_OF_SENTENCE.search(plain):
        return Rule.SENTENCES
    return None


def _contradicting(rows: Sequence[Row]) -> frozenset[int]:
    """Return the numbers of rows whose question has different right answers, of which each row pays its own alone."""
    by_question: dict[str, list[Row]] = {}
    for row in rows:
        by_question.setdefault(same_question(row.question), []).append(row)
    found: set[int] = set()
    for same in by_question.values():
        # Answers that are written in different ways are one.
        meanings = {frozenset(map(meaning, row.answers)) for row in same}
        if len(meanings) > 1:
            for row in same:
                found.add(row.number)
    return frozenset(found)


# -- what is tried


def _to_try(task: str, file: QuestionFile, rows: Sequence[Row]) -> list[Tried]:
    """Return what is tried on the rows. Which of them, and which answers of others, a hash decides."""
    # In the order of a hash: the rows on which junk is tried are a sample, not the beginning of the file.
    in_turn = sorted(rows, key=lambda row: hash64("audit", row.question))
    golds = list(dict.fromkeys(row.answer for row in in_turn))
    tried: list[Tried] = []
    math_rows = 0
    for row in in_turn:
        is_ours = row.scorer in OWN_SCORERS
        if not is_ours and len(tried) == _USER_ROWS:
            break
        own = list(row.answers)
        if is_ours and (other := other_spelling(row)):
            own.append(other)
        junk: tuple[str, ...] = ()
        math_rows += row.scorer == "math"
        if row.scorer != "math" or math_rows <= _JUNK_ROWS:
            # A dozen answers of others, of which three that mean something else are taken.
            start = hash64("junk", row.question) % len(golds)
            junk = junk_for(row, [golds[(start + step) % len(golds)] for step in range(min(12, len(golds)))])
        tried.append(Tried(row.number, entry_of(task, file, row), tuple(own), junk))
    # In the order of the file, so that the rows with junk, which take the time, lie among the others.
    return sorted(tried, key=lambda row: row.number)


def _try(rows: Sequence[Tried], how: How, timeout: float, what: str) -> list[Fault]:
    """Try the rows by our scorers, here or in processes, many to each."""
    by_number = {row.number: row for row in rows}
    has_math = any(row.entry["metadata"][SCORER_KEY] == "math" for row in rows)
    # The others evaluate nothing, and are done before a process has started.
    if not has_math and len(rows) <= _IN_THIS_PROCESS:
        failed = try_rows(rows, how)
    else:
        failed = _try_in_processes(rows, how, timeout, what, has_math)
    faults = [_fault(by_number[int(number)], int(place)) for number, place in failed.items()]
    # No scorer of numbers reads words.
    if any(read_number(row.entry["answer"]) is None for row in rows):
        for place, fault in enumerate(faults):
            if fault.rule is Rule.SPELLING:
                faults[place] = fault._replace(rule=Rule.SPELLING_OF_SOME)
    return faults


def _try_users(rows: Sequence[Tried], how: How, timeout: float) -> list[Fault]:
    """Try the rows by the user's function, which gets a process for each text, as in training."""
    faults = []
    with Scorer(usable_cores(), timeout, how.longest, how.normalize) as scorer:
        for row in rows:
            for place, text in enumerate((*row.own, *row.junk), 1):
                verdict = scorer.score_response(row.entry, response_with(text), format=how.format)
                if verdict.scored.status is not Status.OK and not verdict.scored.had_no_core:
                    why = verdict.scored.detail or str(verdict.scored.status)
                    faults.append(Fault(row.number, Rule.FAILS, why[:_REASON_SHOWN]))
                    break
                is_own = place <= len(row.own)
                # What had no core says nothing about the function.
                if not verdict.scored.had_no_core and (verdict.scored.score >= SOLVED_AT) != is_own:
                    faults.append(_fault(row, -place if is_own else place - len(row.own)))
                    break
    return faults


def _fault(row: Tried, place: int) -> Fault:
    if place > 0:
        return Fault(row.number, Rule.JUNK, row.junk[place - 1][:_SHOWN])
    text = row.own[-place - 1]
    # The answer as the file has it, or only another way to write it?
    rule = Rule.SPELLING
    if text in (row.entry["answer"], *row.entry["metadata"].get("answers", ())):
        rule = Rule.UNREWARDED
    return Fault(row.number, rule, text[:_SHOWN])


def _try_in_processes(rows: Sequence[Tried], how: How, timeout: float, what: str, has_math: bool) -> dict[str, float]:
    failed: dict[str, float] = {}
    size = _BATCH
    options: dict[str, Any] = {"workers": usable_cores()}
    if has_math:
        size = _BATCH_OF_MATH * len(rows) // max(1, sum(bool(row.junk) for row in rows))
        options["examples"] = [(([_WARM_UP], how), {})]
    # The user's own data may see each other: one process tries many rows.
    in_batches, one_by_one = (guarded(try_rows, timeout=limit, **options) for limit in (_BATCH_SECONDS, timeout))
    threads, progress = ThreadPoolExecutor(usable_cores()), _progress(what, len(rows))
    with in_batches as of_batch, one_by_one as of_one, threads, progress as advance:

        def try_batch(batch: Sequence[Tried]) -> dict[str, float]:
            scored = of_batch.score(batch, how)
            if isinstance(scored.value, dict):
                return scored.value
            # A row hangs or crashes its scorer, and may be any of them: one by one, each text in a process of its own.
            found: dict[str, float] = {}
            for row in batch:
                found |= _try_alone(row, lambda texts: of_one.score([texts], how))
            return found

        started = {threads.submit(try_batch, batch): len(batch) for batch in batched(rows, size)}
        try:
            for done in as_completed(started):
                failed |= done.result()
                advance(started[done])
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def _try_alone(row: Tried, score: Callable[[Tried], Any]) -> dict[str, float]:
    """Try the texts of a row one by one. An own answer without a score is not paid, and junk without one is not."""
    for place, text in enumerate(row.own, 1):
        scored = score(row._replace(own=(text,), junk=()))
        if scored.value != {} and not scored.excused:
            return {str(row.number): float(-place)}
    for place, text in enumerate(row.junk, 1):
        if score(row._replace(own=(), junk=(text,))).value:
            return {str(row.number): float(place)}
    return {}


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields a function to call after rows: a bar on a terminal, a line now and then elsewhere, if it takes long."""
    terminal, shown, done = console(stderr=True), time.monotonic(), 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        row = bar.add_task(what, total=total)

        def advance(count: int) -> None:
            nonlocal shown, done
            done += count
            bar.advance(row, count)
            if bar.disable and time.monotonic() - shown > _SAID_EVERY:
                shown = time.monotonic()
                print_error(f"{what}: {done:,} of {total:,}")

        yield advance


# -- what is said


def lines_of(audit: Audit) -> list[str]:
    """Return a line for each rule, that with the most rows first: how many, the first rows, and the key to change."""
    by_rule: dict[Rule, list[Fault]] = {}
    for fault in audit.faults:
        by_rule.setdefault(fault.rule, []).append(fault)
    lines = []
    for rule, faults in sorted(by_rule.items(), key=lambda pair: -len(pair[1])):
        named = ", ".join(f"{fault.row} ({fault.text!r})" for fault in faults[:_NAMED_ROWS])
        of = audit.tried if audit.is_advice else audit.rows
        line = f"the answer of {len(faults):,} of {of:,} rows {rule.words}, such as of row {named}"
        cure = rule.cure or ("" if audit.is_advice else _OTHER_SCORERS.get(audit.scorer, ""))
        lines.append(f"{line}: {cure}" if cure else line)
    return lines


# -- the cache


def _cache_of(file: QuestionFile, content: str, how: How) -> Path:
    """Return where the audit of this file is kept."""
    settings = [file.question, file.answer, file.answer_after, file.scorer, file.tolerance, *how]
    key = hashlib.sha256(json.dumps([content, settings, _version()]).encode()).hexdigest()
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return folder / "rg_env" / "audits" / f"{key[:32]}.json"


@functools.cache
def _version() -> str:
    """Return a hash of the code that decides, ours and that of the libraries."""
    hashed = hashlib.sha256(sys.version.encode())
    package = Path(__file__).parents[1]
    # What reads the rows decides, too.
    for path in sorted([*package.glob("scoring/*.py"), *package.glob("tasks/question*.py")]):
        hashed.update(path.read_bytes())
    for library in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            hashed.update(importlib.metadata.version(library).encode())
    return hashed.hexdigest()


def _read_cache(path: Path) -> Audit | None:
    try:
        rows, tried, with_junk, faults, is_advice = json.loads(path.read_text())
        named = tuple(Fault(row, Rule[rule], text) for row, rule, text in faults)
        return Audit(rows, tried, with_junk, named, is_advice)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write_cache(path: Path, audit: Audit) -> None:
    faults = [(fault.row, fault.rule.name, fault.text) for fault in audit.faults]
    try:
        with new_file(path) as draft:
            draft.write_text(json.dumps([audit.rows, audit.tried, audit.with_junk, faults, audit.is_advice]))
    except (OSError, ConfigError) as error:
        logger.info("the audit is not kept, so every process makes it again: {}", error)
