"""From a response to its verdict: format, guard, pool, base score.

Invariant: neither model output nor an entry, which may be corrupt or hostile, makes `score_answer` or `score_response`
raise, and a score of 0 that is not the answer's own doing has a status other than `ok`. They raise only for a mistake
of the caller (an entry that does not name its task) and for a fault of the machine (ScorerPoolError: a run must stop
rather than train on zeros).

All of it happens in one private thread; every method hands over to it and waits (`rg_env.runner.handover`). Only the
workers read an entry, which takes time by its size: here it is pickled, and measured.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from loguru import logger

from rg_env.base.choices import ResponseFormat
from rg_env.base.errors import ConfigError, RGEnvError
from rg_env.base.once import Once
from rg_env.configuration.config import ScorerConfig
from rg_env.configuration.settings import check_fields
from rg_env.runner.failures import LONGEST_REASON, Failure, JobFailedError, ProtocolError, describe, reason_of
from rg_env.runner.handover import wait, wait_async
from rg_env.runner.machine import usable_cores, workers_for
from rg_env.scoring import guard
from rg_env.scoring.base_score import CHEAP, base_score
from rg_env.scoring.formatting import unwrapped, without_separators
from rg_env.scoring.parse import parse_response
from rg_env.scoring.pools import Pools, target_of
from rg_env.scoring.types import AnswerScore, ParsedResponse, Status, Verdict
from rg_env.tasks.item import SCORER_KEY
from rg_env.tasks.upstream.oracles import corrected

if TYPE_CHECKING:
    from rg_env.scoring.file_scorers import FileQuestion, FileScorers
    from rg_env.scoring.upstream import FormScore

_SHOWN = 80
"""Characters of a normalized answer that `detail` shows."""
_MOST_BASELINES = 4096
"""Items whose baselines a scorer keeps."""


class _ToLoguru(logging.Handler):
    """Hands what the runner logs to loguru: the runner itself needs nothing but the standard library."""

    def emit(self, record: logging.LogRecord) -> None:
        logger.opt(exception=record.exc_info).log(record.levelname, "{}", record.getMessage())


def _connect_runners_log() -> None:
    log = logging.getLogger("rg_env.runner")
    log.addHandler(_ToLoguru())
    log.setLevel(logging.DEBUG)
    # loguru decides what is shown, and a handler of the root logger would show it a second time.
    log.propagate = False


_connect_runners_log()


class PackedEntry(NamedTuple):
    """An entry on its way to a worker, which alone reads it.

    Attributes:
        content: a pickle of the entry, or its JSON.
        answer_length: characters of the answer that it stores.
    """

    task: str
    content: bytes
    answer_length: int


Entry = Mapping[str, Any] | PackedEntry


def pack(entry: Mapping[str, Any]) -> PackedEntry:
    """Pack an entry. Raises ConfigError if it does not name its task, or what pickling raises."""
    return PackedEntry(task_of(entry), pickle.dumps(dict(entry)), guard.longest(entry, 0) // 2)


class Scorer(AbstractContextManager["Scorer"]):
    """Scores answers to Reasoning Gym's items in other processes. Thread-safe; a context manager.

    The arguments are the settings `scorer.*`, with the same defaults, ranges and meanings (`ScorerConfig`).

    Raises:
        ConfigError: an argument is out of range.
    """

    def __init__(
        self,
        workers: int | str = ScorerConfig.workers,
        timeout: float = ScorerConfig.timeout,
        max_answer_chars: int = ScorerConfig.max_answer_chars,
        normalize: bool = ScorerConfig.normalize,
        partial_credit: str = ScorerConfig.partial_credit,
    ) -> None:
        if isinstance(workers, ScorerConfig):
            raise ConfigError("Scorer takes the settings one by one: Scorer(**dataclasses.asdict(config))")
        self._settings = ScorerConfig(workers, timeout, max_answer_chars, normalize, partial_credit)
        check_fields(self._settings, "Scorer")
        self.workers = workers_for(workers, usable_cores())
        self._baselines: Once[bytes, float] = Once(_MOST_BASELINES)
        self._pools = Pools(self.workers, timeout)
        self._files: FileScorers | None = None
        """Made with the first question of a file."""

    def score_answer(self, entry: Entry, answer: str, config: Mapping[str, Any] | None = None) -> AnswerScore:
        """Score one answer, bare and as `<answer>…</answer>`; `rg_env.scoring.base_score` says what counts.

        If the task's scorer raises on a form, that form scores 0. If it raises on the item's own answer as well, or the
        entry is corrupt, the status is ERROR. If the machine had no core for the answer's worker, the status is
        TIMEOUT and the answer `excused`.

        Args:
            entry: the item as made by reasoning-gym, also after it went through JSON; `metadata.source_dataset` names
                the task. Not changed. If its stored answer is wrong, a corrected copy is scored
                (`rg_env.tasks.upstream.oracles`). Or the same packed (`pack`), which saves time for several answers.
            answer: any string; anything else is REJECTED.
            config: the options of the task's dataset that differ from the defaults. `seed` and `size` don't matter. One
                that the task does not have, or refuses, is ERROR, because options come with entries.

        Raises:
            ConfigError: the entry does not name its task.
            ScorerPoolError: scorer processes cannot be started, or the scorer is closed.
        """
        return wait(self._score(entry, answer, config or {}))

    async def score_answer_async(
        self, entry: Entry, answer: str, config: Mapping[str, Any] | None = None
    ) -> AnswerScore:
        """As `score_answer`; the running event loop does other things meanwhile."""
        return await wait_async(self._score(entry, answer, config or {}))

    def score_response(
        self,
        entry: Entry,
        text: str,
        config: Mapping[str, Any] | None = None,
        prefilled_think: bool = False,
        format: ResponseFormat | str = ResponseFormat.STRICT,
    ) -> Verdict:
        """Parse a response and score its answer. A violation scores 0 with status OK, because nothing was scored.

        Raises:
            ConfigError: `text` is not a string, or as `score_answer`. ScorerPoolError: as `score_answer`.
        """
        return wait(self._score_response(entry, text, config or {}, prefilled_think, format))

    async def score_response_async(
        self,
        entry: Entry,
        text: str,
        config: Mapping[str, Any] | None = None,
        prefilled_think: bool = False,
        format: ResponseFormat | str = ResponseFormat.STRICT,
    ) -> Verdict:
        """As `score_response`; the running event loop does other things meanwhile."""
        return await wait_async(self._score_response(entry, text, config or {}, prefilled_think, format))

    async def _score_response(
        self,
        entry: Entry,
        text: str,
        config: Mapping[str, Any],
        prefilled_think: bool,
        format: ResponseFormat | str,
    ) -> Verdict:
        parsed = self.parse(entry, text, prefilled_think, format)
        if parsed.answer is None:
            return Verdict(parsed, AnswerScore.without_score(Status.OK))
        return Verdict(parsed, await self._score(entry, parsed.answer, config))

    def parse(
        self,
        entry: Entry,
        text: str,
        prefilled_think: bool = False,
        format: ResponseFormat | str = ResponseFormat.STRICT,
    ) -> ParsedResponse:
        """Return the parts of a response to an item, whose answer `score_answer` scores. Raises as `score_response`."""
        if not isinstance(text, str):
            raise ConfigError(
                f"a response must be a string, not {type(text).__name__}; a request that failed is Verdict.no_response"
            )
        # Of a response, what is too long is a violation; of an answer alone, `_refuse_length` rejects it.
        return parse_response(text, prefilled_think, self._longest(entry), format)

    async def _score(self, entry: Entry, answer: object, config: Mapping[str, Any]) -> AnswerScore:
        """Return the best score of the answer as written and, with `normalize`, without formatting around it."""
        task = task_of(entry)
        if not isinstance(answer, str):
            return AnswerScore.without_score(Status.REJECTED, f"the answer is not a string but {type(answer).__name__}")
        answer = str.__str__(answer)  # of a subclass, which a worker may not be able to make
        try:
            question = self._question_of_file(entry)
            if isinstance(question, str):
                return AnswerScore.without_score(Status.ERROR, question)
            if question is not None:
                score_text = partial(self._score_of_file, entry, question)
            else:
                packed = entry if isinstance(entry, PackedEntry) else pack(entry)
                guard.check_length(task, len(packed.content))
                score_text = partial(self._score_text, packed, target_of(task, config))
            best = await score_text(answer)
            # Not again after a hang or a crash: the same answer would take as long and do the same.
            plain = without_separators(unwrapped(answer)) if self._settings.normalize else answer
            if plain == answer or best.score == 1 or best.status in (Status.TIMEOUT, Status.CRASHED):
                return best
            again = await score_text(plain)
        except RGEnvError:  # a mistake of the caller, or a fault of the machine
            raise
        except guard.BrokenEntry as broken:
            return AnswerScore.without_score(Status.ERROR, str(broken))
        except Exception as error:  # the entry cannot be pickled
            why = f"the entry cannot be used: {describe(error, LONGEST_REASON)}"
            return AnswerScore.without_score(Status.ERROR, why)
        if again.score > best.score:
            return replace(again, normalized=True, detail=f"scored as {plain[:_SHOWN]!r}")
        # Then nobody knows what the answer is worth without its formatting.
        return again if again.had_no_core else best

    def _question_of_file(self, entry: Entry) -> FileQuestion | str | None:
        """As `file_question`; makes what scores such questions with the first one."""
        if isinstance(entry, PackedEntry) or entry["metadata"].get(SCORER_KEY) is None:
            return None
        # Imported here: most runs have no questions of files.
        from rg_env.scoring.file_scorers import FileScorers, file_question

        if self._files is None:
            self._files = FileScorers(self.workers, self._settings.timeout)
            if self.closed:
                self._files.close()  # so that a call says so, and starts nothing
        return file_question(entry)

    async def _score_of_file(self, entry: Any, question: FileQuestion, answer: str) -> AnswerScore:
        """Score an answer to a question of a file, as written or unwrapped."""
        if refused := self._refuse_length(entry, answer):
            return refused
        from rg_env.scoring.file_scorers import with_each_answer

        assert self._files is not None  # made with the question
        best = None
        for right in with_each_answer(question, entry):
            scored = await self._files.score(right, answer)
            if best is None or scored.score > best.score:
                best = scored
            # Not again after a hang or a crash: the same answer would do the same.
            if scored.score == 1 or scored.status in (Status.TIMEOUT, Status.CRASHED):
                break
        assert best is not None
        return best

    def _longest(self, entry: Entry) -> int:
        """Return how many characters an answer may have."""
        most = self._settings.max_answer_chars
        if isinstance(entry, PackedEntry):
            return max(most, 2 * entry.answer_length)
        return guard.longest(entry, most)

    def _refuse_length(self, entry: Entry, answer: str) -> AnswerScore | None:
        longest = self._longest(entry)
        if len(answer) <= longest:
            return None
        why = f"the answer has {len(answer)} characters, more than {longest}"
        return AnswerScore.without_score(Status.REJECTED, why)

    async def _score_text(self, entry: PackedEntry, target: bytes, answer: str) -> AnswerScore:
        """Score an answer, as written or unwrapped, and set its base score."""
        if refused := self._refuse_length(entry, answer):
            return refused
        try:
            result = await self._ask(entry, target, answer, scores_of_reply)
        except JobFailedError as failed:
            return _without_reply(entry.task, failed)
        partial_credit = self._settings.partial_credit
        if result.raw is None or result.tagged is None or partial_credit == "upstream":
            return result
        # With `partial_credit=none`, so that no partial score lies beyond it.
        baseline = 1.0
        if partial_credit == "calibrated":
            try:
                baseline = await self._baseline(entry, target) if entry.task in CHEAP else 0.0
            except _NoBaselineError as unknown:
                return unknown.scored
        return replace(result, score=base_score(entry.task, result.raw, result.tagged, baseline), baseline=baseline)

    async def _baseline(self, entry: PackedEntry, target: bytes) -> float:
        """Return the best score of an item's cheap policies. Raises _NoBaselineError: one has none."""
        # By the whole entry and its options, not by an id: an entry may come from anywhere and say anything of itself.
        key = blake2b(target + entry.content, digest_size=16).digest()
        return await self._baselines.get(key, partial(self._compute_baseline, entry, target))

    async def _compute_baseline(self, entry: PackedEntry, target: bytes) -> float:
        try:
            best = await self._ask(entry, target, None, _check_form)
        except JobFailedError as failed:
            raise _NoBaselineError(_without_reply(entry.task, failed)) from None
        if isinstance(best, str):
            raise _NoBaselineError(AnswerScore.without_score(Status.ERROR, best))
        return best

    async def _ask[T](self, entry: PackedEntry, target: bytes, answer: str | None, check: Callable[[object], T]) -> T:
        """Return what a worker says of an answer; without one, of the item's cheap policies. Raises JobFailedError."""
        pool = await self._pools.for_target(entry.task, target)
        # No `await` between pool and job: a prepared pool without jobs may be ended to make room for another.
        return await pool.run(target, pickle.dumps((entry.content, answer)), check)

    @property
    def closed(self) -> bool:
        return self._pools.closed

    def close(self) -> None:
        """End the processes. May be called more than once."""
        self._pools.close()
        # Afterwards: what is made from here on is closed at once.
        if self._files is not None:
            self._files.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class _NoBaselineError(Exception):
    """A cheap policy of an item has no score.

    Attributes:
        scored: what becomes of the answer that needs the baseline. ERROR if the item cannot be scored, else it was the
            machine, and the answer is excused.
    """

    def __init__(self, policy: AnswerScore) -> None:
        why = f"the item's baseline could not be computed: {policy.detail}"
        super().__init__(why)
        status = Status.ERROR if policy.status is Status.ERROR else Status.TIMEOUT
        self.scored = AnswerScore.without_score(status, why, excused=True)


def _without_reply(task: str, failed: JobFailedError) -> AnswerScore:
    why = f"no scorer for {task}: " if failed.failure is Failure.ERROR else ""
    return AnswerScore.without_score(Status(failed.failure), f"{why}{failed}", failed.excused)


def scores_of_reply(reply: object) -> AnswerScore:
    """Return what a worker says of an answer, as `make_scorer` does. Raises ProtocolError for all else."""
    match reply:
        case str():
            return AnswerScore.without_score(Status.ERROR, reason_of(reply))
        case [reason]:
            return AnswerScore.without_score(Status.REJECTED, reason_of(reason))
        case [raw, tagged]:
            return AnswerScore.of_forms(_check_form(raw), _check_form(tagged))
    raise ProtocolError("the reply does not have two forms")


def _check_form(form: object) -> FormScore:
    is_score = isinstance(form, float) and 0 <= form <= 1
    return form if is_score else reason_of(form)  # type: ignore[return-value]


def reference_answer(entry: Mapping[str, Any]) -> str:
    """Return the answer that is scored as right: the one that the entry stores, corrected; empty if it stores none."""
    try:
        # An entry may come from anywhere, and correcting it takes time that grows with its size.
        guard.check_size(entry)
        answer = corrected(entry).get("answer")
    except (guard.BrokenEntry, LookupError, TypeError, AttributeError):
        return ""
    return "" if answer is None else str(answer).strip()


def task_of(entry: Entry) -> str:
    if isinstance(entry, PackedEntry):
        return entry.task
    try:
        task = entry["metadata"]["source_dataset"]
    except Exception:
        task = None
    if not isinstance(task, str):
        raise ConfigError("the entry has no metadata.source_dataset: use the items of reasoning-gym unchanged")
    return task


_shared: dict[tuple[Any, ...], Scorer] = {}
"""By process, because a scorer works in the process that made it, and settings."""


def shared_scorer(settings: ScorerConfig) -> Scorer:
    """Return the scorer of this process for these settings, created on first use and again after it was closed."""
    key = (os.getpid(), *vars(settings).values())  # `dataclasses.astuple` copies each value, for every answer
    # Two threads may make one each: `setdefault` gives both the same, and the other never starts a process.
    scorer = _shared.get(key) or _shared.setdefault(key, Scorer(**asdict(settings)))
    if scorer.closed:
        scorer = _shared[key] = Scorer(**asdict(settings))
    return scorer
