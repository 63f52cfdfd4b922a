"""From a response to its verdict: format, guard, pool, base score.

Invariant: no model output makes `Scorer.score` or `Scorer.judge` raise, and the status of every 0 that the answer did
not earn itself says so. They raise only for a mistake of the caller (an entry that does not name its task) and for a
fault of the machine (ScorerPoolError: a run must stop rather than train on zeros).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rg_env.choices import ResponseFormat
from rg_env.config import PREFIX, ScorerConfig, check_fields
from rg_env.errors import ConfigError, refuse
from rg_env.processes import usable_cores
from rg_env.scoring import guard
from rg_env.scoring.base_score import PartialCredit, base_score
from rg_env.scoring.baselines import BaselineCache
from rg_env.scoring.guard import arithmetic
from rg_env.scoring.load import Load
from rg_env.scoring.normalize import other_forms
from rg_env.scoring.parse import parse_response
from rg_env.scoring.types import AnswerScore, Status, Verdict
from rg_env.scoring.workers.connection import Job
from rg_env.scoring.workers.number import workers_for
from rg_env.scoring.workers.pool import ScorerPool
from rg_env.tasks.upstream.oracles import corrected

if TYPE_CHECKING:
    from rg_env.scoring.workers.ray_pool import RayScorerPool

_SHOWN = 80
"""How many characters of a normalized answer `detail` shows."""


class Scorer:
    """Scores answers to Reasoning Gym's items in other processes. Thread-safe; a context manager.

    Args:
        workers: number of answers scored at the same time, at least 1, or `auto` (`rg_env.scoring.workers.number`).
        timeout: CPU seconds that one answer may take, above 0; its wall time is at most four times that.
        max_answer_chars: longer answers are rejected, at least 1. If twice the length of an item's own answer is more,
            that is the limit for the item.
        normalize: also score an answer that earns less than 1 in the forms of `rg_env.scoring.normalize`.
        partial_credit: `upstream`, `calibrated` or `none`: how scores between 0 and 1 count (`PartialCredit`).
        backend: `processes` of this machine, or `ray`: actors on the nodes of the cluster that this process uses.
        pools: ray: number of actors, each with `workers` processes; None: one for each node with as many cores.

    Raises:
        ConfigError: a number is out of range, or the backend is `ray` and Ray is not running.
    """

    def __init__(
        self,
        workers: int | str = ScorerConfig.workers,
        timeout: float = ScorerConfig.timeout,
        max_answer_chars: int = ScorerConfig.max_answer_chars,
        normalize: bool = ScorerConfig.normalize,
        partial_credit: str = ScorerConfig.partial_credit,
        backend: str = ScorerConfig.backend,
        pools: int | None = ScorerConfig.pools,
    ) -> None:
        settings = ScorerConfig(workers, timeout, max_answer_chars, normalize, partial_credit, backend, pools)
        check_fields(settings, "Scorer")
        self._max_answer_chars = max_answer_chars
        self._normalize = normalize
        self._partial_credit = PartialCredit(partial_credit)
        self._baselines = BaselineCache(self._score_upstream)
        self._pool = _make_pool(settings)
        self._load = Load(lambda: self._pool.capacity)
        self._computable: set[bytes] = set()

    def score(self, entry: Mapping[str, Any], answer: str, config: Mapping[str, Any] | None = None) -> AnswerScore:
        """Score one answer, bare and as `<answer>…</answer>`; `rg_env.scoring.base_score` says what counts.

        If the task's scorer raises on one form, that form scores 0. If it raises on the bare answer and the tagged form
        scores 0, the status is ERROR. If the machine had no core for the answer's worker, the result is `starved`.

        Args:
            entry: the item as made by reasoning-gym; `metadata.source_dataset` names the task. Not changed. If its
                stored answer is wrong, a corrected copy is scored (`rg_env.tasks.upstream.oracles`).
            answer: any string; anything else is REJECTED.
            config: the options of the task's dataset that differ from the defaults. `seed` and `size` don't matter.

        Raises:
            ConfigError: the entry does not name its task.
            ScorerPoolError: scorer processes cannot be started, or the scorer is closed.
        """
        task = _task_of(entry)
        entry = corrected(entry)
        best = self._score_form(task, config or {}, entry, answer)
        if self._normalize and best.score < 1 and best.status not in (Status.TIMEOUT, Status.CRASHED):
            for form in other_forms(answer, str(entry.get("question", ""))) if isinstance(answer, str) else ():
                again = self._score_form(task, config or {}, entry, form)
                if again.starved:
                    return again
                if again.score > best.score:
                    best = replace(again, normalized=True, detail=f"scored as {form[:_SHOWN]!r}")
        return best

    def _score_form(self, task: str, config: Mapping[str, Any], entry: Mapping[str, Any], answer: str) -> AnswerScore:
        result = self._score_upstream(task, config, entry, answer)
        if result.raw is None or result.tagged is None:
            return result
        baseline = self._baseline(task, config, entry)
        if baseline is None:
            return AnswerScore.unscored(Status.TIMEOUT, "no core was free for the item's baseline", starved=True)
        score = base_score(task, result.raw, result.tagged, baseline)
        if score == result.score and not baseline:
            return result
        return replace(result, score=score, baseline=baseline)

    def _score_upstream(
        self, task: str, config: Mapping[str, Any], entry: Mapping[str, Any], answer: str
    ) -> AnswerScore:
        """As guard and pool have it, without a baseline."""
        refusal = self._refusal(entry, answer)
        if refusal is not None:
            return AnswerScore.unscored(Status.REJECTED, refusal)
        with self._load.one_answer():
            if task in arithmetic.COMPUTED_TASKS:
                return self._compute(task, config, entry, answer)
            return self._pool.run(Job.of(task, config, entry, answer, guard.calls_code(task, answer)))

    def _compute(self, task: str, config: Mapping[str, Any], entry: Mapping[str, Any], answer: str) -> AnswerScore:
        """The scores of arithmetic. A worker scores the first answer, to check reasoning-gym's version and the options,
        and those whose scores cannot be computed."""
        job = Job.of(task, config, entry, answer, calls_code=False)
        if job.scorer in self._computable and not self.closed:
            scores = arithmetic.score(entry, answer, config)
            if scores is not None:
                return AnswerScore.of_forms(*scores)
        score = self._pool.run(job)
        if score.status is Status.OK:
            self._computable.add(job.scorer)
        return score

    def _baseline(self, task: str, config: Mapping[str, Any], entry: Mapping[str, Any]) -> float | None:
        match self._partial_credit:
            case PartialCredit.UPSTREAM:
                return 0.0
            case PartialCredit.CALIBRATED:
                return self._baselines.of(task, config, entry)
            case PartialCredit.NONE:
                return 1.0

    def judge(
        self,
        entry: Mapping[str, Any],
        text: str,
        config: Mapping[str, Any] | None = None,
        prefilled_think: bool = False,
        format: ResponseFormat | str = ResponseFormat.STRICT,
    ) -> Verdict:
        """Parse a response and score its answer. A violation scores 0 with status OK, because nothing was scored.

        Raises: as `score`.
        """
        parsed = parse_response(text, prefilled_think, guard.longest(entry, self._max_answer_chars), format)
        if parsed.answer is None:
            return Verdict(parsed, AnswerScore.unscored(Status.OK))
        return Verdict(parsed, self.score(entry, parsed.answer, config))

    def take_load(self) -> dict[str, float]:
        """How long scoring took and how many answers waited since this was last called, as metrics; may be empty."""
        return self._load.take()

    @property
    def workers(self) -> int:
        """How many answers are scored at the same time, in each pool."""
        return self._pool.workers

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def close(self) -> None:
        """End the processes. May be called more than once."""
        self._pool.close()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _refusal(self, entry: Mapping[str, Any], answer: object) -> str | None:
        if not isinstance(answer, str):
            return f"the answer is not a string but {type(answer).__name__}"
        if len(answer) > (longest := guard.longest(entry, self._max_answer_chars)):
            return f"the answer has {len(answer)} characters, more than {longest}"
        return guard.check(entry, answer)


def _make_pool(settings: ScorerConfig) -> ScorerPool | RayScorerPool:
    """The pool of the backend. Raises ConfigError."""
    if settings.backend == "processes":
        return ScorerPool(workers_for(settings.workers, usable_cores()), settings.timeout)
    try:
        from rg_env.scoring.workers.ray_pool import RayScorerPool
    except ImportError:
        refuse(f"{PREFIX}.scorer.backend", "ray", "Ray is not installed; use processes")
    return RayScorerPool(settings.pools, settings.workers, settings.timeout)


def _task_of(entry: Mapping[str, Any]) -> str:
    try:
        task = entry["metadata"]["source_dataset"]
    except (KeyError, TypeError):
        task = None
    if not isinstance(task, str):
        raise ConfigError("the entry has no metadata.source_dataset: use the items of reasoning-gym unchanged")
    return task


_shared: dict[tuple[Any, ...], Scorer] = {}
_shared_lock = threading.Lock()


def shared_scorer(settings: ScorerConfig) -> Scorer:
    """The scorer of this process for these settings, created on first use and again after it was closed."""
    key = _key(settings)
    with _shared_lock:
        scorer = _shared.get(key)
        if scorer is None or scorer.closed:
            scorer = _shared[key] = Scorer(**asdict(settings))
        return scorer


def _key(settings: ScorerConfig) -> tuple[Any, ...]:
    return tuple(vars(settings).values())  # `dataclasses.astuple` copies each value, for every answer


def take_shared_load(settings: ScorerConfig) -> dict[str, float]:
    """`Scorer.take_load` of the scorer of this process for these settings; empty if there is none."""
    scorer = _shared.get(_key(settings))
    return {} if scorer is None else scorer.take_load()


def _forget_shared() -> None:
    """After a fork: the scorers belong to the parent, and the lock may be held by a thread that this process lacks."""
    global _shared_lock
    _shared.clear()
    _shared_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_shared)
