"""From a response to its verdict: format, guard, pool, one base score.

Invariant: nothing that a model can write makes `Scorer.score` or `Scorer.judge` raise, and every 0 that is not the
answer's own worth says so in its status. What raises is a fault of the caller (an entry without its task) or of the
machine (ScorerPoolError: a run must stop rather than train on zeros).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, astuple, replace
from types import TracebackType
from typing import Any

from rg_env.config import ScorerConfig
from rg_env.errors import ConfigError
from rg_env.scoring import guard
from rg_env.scoring.normalize import other_forms
from rg_env.scoring.parse import parse_response
from rg_env.scoring.types import AnswerScore, Status, Verdict
from rg_env.scoring.workers.pool import Failure, Job, Reply, ScorerPool
from rg_env.tasks.upstream.oracles import corrected

_SHOWN = 80
"""Characters of a normalized answer that `detail` shows."""


class Scorer:
    """Scores answers to Reasoning Gym's items in other processes. Thread-safe; a context manager.

    Args:
        workers: how many answers are scored at once, at least 1.
        timeout: seconds that one answer may take, above 0.
        max_answer_chars: longer answers are refused, at least 1. Items whose own answer is longer than half of this
            allow twice its length.
        normalize: whether an answer that earns less than 1 is scored in the forms of `rg_env.scoring.normalize` too.

    Raises:
        ConfigError: for a number outside its range.
    """

    def __init__(
        self, workers: int = 2, timeout: float = 5.0, max_answer_chars: int = 8192, normalize: bool = False
    ) -> None:
        for name, value, ok in (
            ("workers", workers, workers >= 1),
            ("timeout", timeout, 0 < timeout < float("inf")),
            ("max_answer_chars", max_answer_chars, max_answer_chars >= 1),
        ):
            if not ok:
                raise ConfigError(
                    f"Scorer({name}={value!r}): must be {'above 0' if name == 'timeout' else 'at least 1'}"
                )
        self._max_answer_chars = max_answer_chars
        self._normalize = normalize
        self._pool = ScorerPool(workers, timeout)

    def score(self, entry: Mapping[str, Any], answer: str, config: Mapping[str, Any] | None = None) -> AnswerScore:
        """Score one answer, bare and as `<answer>…</answer>`; the higher counts.

        A form in which the task's scorer raises scores 0 in that form. Where it raises on the bare answer and the other
        form earns nothing, the status is ERROR.

        Args:
            entry: the item as reasoning-gym made it; `metadata.source_dataset` names the task. Not changed; a wrong
                stored answer is corrected first (`rg_env.tasks.upstream.oracles`).
            answer: any text; what is no text is REJECTED.
            config: the options of the task's dataset, where they are not the default. `seed` and `size` don't matter.

        Raises:
            ConfigError: the entry doesn't name its task.
            ScorerPoolError: scorer processes cannot be started any more, or the scorer is closed.
        """
        _task_of(entry)
        entry = corrected(entry)
        best = self._score_as_it_stands(entry, answer, config or {})
        if self._normalize and best.score < 1 and best.status not in (Status.TIMEOUT, Status.CRASHED):
            for form in other_forms(answer) if isinstance(answer, str) else ():
                again = self._score_as_it_stands(entry, form, config or {})
                if again.score > best.score:
                    best = replace(again, normalized=True, detail=f"scored as {form[:_SHOWN]!r}")
        return best

    def _score_as_it_stands(self, entry: Mapping[str, Any], answer: str, config: Mapping[str, Any]) -> AnswerScore:
        task = _task_of(entry)
        refusal = self._refusal(entry, answer)
        if refusal is not None:
            return AnswerScore(None, None, 0.0, Status.REJECTED, refusal)
        job = Job.of(task, config, entry, answer, runs_code=task in guard.EVALUATING_TASKS)
        outcome = self._pool.run(job)
        if isinstance(outcome, Failure):
            return AnswerScore(None, None, 0.0, outcome.status, outcome.detail)
        return _combine(outcome)

    def judge(
        self,
        entry: Mapping[str, Any],
        text: str,
        config: Mapping[str, Any] | None = None,
        prefilled_think: bool = False,
    ) -> Verdict:
        """Take a response apart and score its answer. A violation scores 0, with status OK: nothing was scored.

        Raises: as `score`.
        """
        parsed = parse_response(text, prefilled_think, guard.longest(entry, self._max_answer_chars))
        if parsed.answer is None:
            return Verdict(parsed, None, None, 0.0, Status.OK)
        scored = self.score(entry, parsed.answer, config)
        return Verdict(parsed, scored.raw, scored.tagged, scored.score, scored.status, scored.detail, scored.normalized)

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def close(self) -> None:
        """End the processes. May be called again."""
        self._pool.close()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _refusal(self, entry: Mapping[str, Any], answer: object) -> str | None:
        if not isinstance(answer, str):
            return f"the answer is no text but {type(answer).__name__}"
        if len(answer) > (longest := guard.longest(entry, self._max_answer_chars)):
            return f"the answer has {len(answer)} characters, more than {longest}"
        return guard.check(entry, answer)


def _task_of(entry: Mapping[str, Any]) -> str:
    try:
        task = entry["metadata"]["source_dataset"]
    except (KeyError, TypeError):
        task = None
    if not isinstance(task, str):
        raise ConfigError("an entry without metadata.source_dataset: use the items of reasoning-gym as they are")
    return task


def _combine(reply: Reply) -> AnswerScore:
    raw, tagged = reply.raw, reply.tagged
    if isinstance(raw, str) and (isinstance(tagged, str) or tagged == 0):
        return AnswerScore(None, None, 0.0, Status.ERROR, raw)
    faults = [f"{name}: {form}" for name, form in (("raw", raw), ("tagged", tagged)) if isinstance(form, str)]
    raw = 0.0 if isinstance(raw, str) else raw
    tagged = 0.0 if isinstance(tagged, str) else tagged
    return AnswerScore(raw, tagged, max(raw, tagged), Status.OK, "; ".join(faults))


_shared: dict[tuple[Any, ...], Scorer] = {}
_shared_lock = threading.Lock()


def shared_scorer(settings: ScorerConfig) -> Scorer:
    """The scorer of this process for these settings: made on the first call, and again after it was closed."""
    key = astuple(settings)
    with _shared_lock:
        scorer = _shared.get(key)
        if scorer is None or scorer.closed:
            scorer = _shared[key] = Scorer(**asdict(settings))
        return scorer


def _forget_shared() -> None:
    """In a fork: the scorers belong to the parent, and the lock may be held by a thread that isn't here."""
    global _shared_lock
    _shared.clear()
    _shared_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_shared)
