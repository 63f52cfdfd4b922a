"""Scores answers in Ray actors that are spread over the nodes of a cluster. Each actor has a `ScorerPool`.

Invariants:
- No answer scores 0 because an actor or its node died: what was in progress there is scored again by another actor.
- Answers wait in this process while every actor has as many as it may have.
- A lost actor is replaced. If no actor is left, every call raises ScorerPoolError.
Not covered: the death of the node of this process. What a pool remembers about hanging answers is lost with its actor.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from loguru import logger
from ray.exceptions import RayError, RayTaskError

from rg_env.config import PREFIX
from rg_env.errors import ScorerPoolError, need, one_line
from rg_env.scoring.types import AnswerScore, Status
from rg_env.scoring.workers.connection import Job
from rg_env.scoring.workers.number import workers_for
from rg_env.scoring.workers.pool import ScorerPool

_ANSWERS_PER_WORKER = 2
"""Answers that an actor has at once, per worker: one being scored and one waiting, so that no worker waits for Ray."""
_ACTORS_PER_ANSWER = 8
_START_ATTEMPTS = 3
_START_SECONDS = 300.0
"""How long answers wait for a first actor, or for a new one after all were lost."""
_ANSWER_SECONDS = 600.0
"""An actor that takes longer for one answer, which its pool's deadlines rule out, is lost."""

_CLOSED = "the scorer pool is closed"


class _ScorerActor:
    """A scorer pool on the node where Ray places it.

    Args:
        path: import path of the process that scores, which may have users' modules.
        environment: variables that the process that scores may have set since Ray started.
    """

    def __init__(self, workers: int, timeout: float, path: Sequence[str], environment: Mapping[str, str]) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        os.environ.update(environment)
        self._pool = ScorerPool(workers, timeout)

    def start(self) -> str:
        """Wait until a worker is ready. Returns the name of the host."""
        self._pool.start()
        return socket.gethostname()

    def run(self, job: Job) -> AnswerScore:
        return self._pool.run(job)


@dataclass(eq=False, slots=True)
class _Member:
    """An actor that is ready.

    Attributes:
        answers: how many it has.
        lost: set when it is to be replaced.
    """

    handle: Any
    host: str
    answers: int = 0
    lost: threading.Event = field(default_factory=threading.Event)


class RayScorerPool:
    """The interface of `ScorerPool`, over several nodes.

    Args:
        pools: number of actors; None: one for each node with at least `workers` cores.
        workers: processes of each actor, which reserves as many cores; `auto`: by the cores of the smallest node.
        timeout: as for `ScorerPool`.

    Raises:
        ConfigError: Ray is not running in this process.
    """

    def __init__(self, pools: int | None, workers: int | str, timeout: float) -> None:
        right = "no Ray is running in this process; use processes, or call ray.init() first"
        need(ray.is_initialized(), f"{PREFIX}.scorer.backend", "ray", right)
        cores = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        self.workers = workers = workers_for(workers, int(min(filter(None, cores), default=0)))
        options = {
            "num_cpus": workers,
            "max_concurrency": _ANSWERS_PER_WORKER * workers + 1,
            "scheduling_strategy": "SPREAD",
        }
        environment = {name: value for name, value in os.environ.items() if name.startswith("RG_ENV_")}
        self._actor_class: Any = ray.remote(**options)(_ScorerActor)
        self._arguments = (workers, timeout, list(sys.path), environment)
        self._changed = threading.Condition()
        self._handles: list[Any] = []
        self._ready: list[_Member] = []
        self._failure: str | None = None
        if pools is None:
            pools = max(1, sum(count >= workers for count in cores))
        self._pools = pools
        for _ in range(pools):
            threading.Thread(target=self._keep_one, name="rg_env-scorer-actor", daemon=True).start()

    @property
    def capacity(self) -> int:
        """How many answers can be scored at once now."""
        return self.workers * len(self._ready)

    @property
    def closed(self) -> bool:
        return self._failure == _CLOSED

    def run(self, job: Job) -> AnswerScore:
        """Score one answer, waiting for an actor, and on further ones if some are lost.

        Raises:
            ScorerPoolError: no actor is left, or the pool was closed.
        """
        for _ in range(_ACTORS_PER_ANSWER):
            member = self._check_out()
            try:
                score: AnswerScore = member.handle.run.remote(job).future().result(_ANSWER_SECONDS)
                return score
            except (RayError, TimeoutError) as error:
                if isinstance(error, RayTaskError) and not isinstance(error, ScorerPoolError):
                    raise
                self._lose(member, error)
            finally:
                self._check_in(member)
        why = f"{_ACTORS_PER_ANSWER} scorer actors were lost while they had this answer"
        return AnswerScore.unscored(Status.ERROR, why, starved=True)

    def close(self) -> None:
        """End all actors. Running and later calls raise ScorerPoolError. May be called more than once."""
        with self._changed:
            self._failure = _CLOSED
            for member in self._ready:
                member.lost.set()
            handles, self._handles = self._handles, []
            self._changed.notify_all()
        for handle in handles:
            _kill(handle)

    def _check_out(self) -> _Member:
        """The actor with the fewest answers, and one answer more. Waits while each has as many as it may have."""
        with self._changed:
            while self._failure is None:
                member = min(self._ready, key=lambda member: member.answers, default=None)
                if member is not None and member.answers < _ANSWERS_PER_WORKER * self.workers:
                    member.answers += 1
                    return member
                if not self._changed.wait(_START_SECONDS) and not self._ready:
                    self._fail(
                        f"no scorer actor has started within {_START_SECONDS:g} s; each needs as many free cores of a "
                        f"node as scorer.workers={self.workers}: see `ray status`"
                    )
            raise ScorerPoolError(self._failure)

    def _check_in(self, member: _Member) -> None:
        with self._changed:
            member.answers -= 1
            self._changed.notify()

    def _lose(self, member: _Member, error: BaseException) -> None:
        with self._changed:
            if self._failure is not None or member not in self._ready:
                return
            self._ready.remove(member)
            member.lost.set()
        logger.warning("lost the scorer on {}; its answers are scored elsewhere: {}", member.host, _reason(error))

    def _keep_one(self) -> None:
        """Have one actor, and another one when it is lost. Ends when the pool is closed, or if none starts."""
        failures = 0
        while (handle := self._new_actor()) is not None:
            try:
                member = _Member(handle, handle.start.remote().future().result())
            except Exception as error:
                failures += 1
                if failures == _START_ATTEMPTS:
                    self._give_up(_reason(error))
                    return
            else:
                failures = 0
                logger.info("scoring up to {} answers at once on {}", self.workers, member.host)
                with self._changed:
                    if self._failure is None:
                        self._ready.append(member)
                    else:
                        member.lost.set()
                    self._changed.notify_all()
                member.lost.wait()
            self._forget(handle)

    def _new_actor(self) -> Any:
        """None if the pool is closed, or Ray was shut down, which a new actor would start again."""
        with self._changed:
            if self._failure is not None or not ray.is_initialized():
                return None
            handle = self._actor_class.remote(*self._arguments)
            self._handles.append(handle)
            return handle

    def _forget(self, handle: Any) -> None:
        with self._changed:
            if handle not in self._handles:  # `close` has killed it
                return
            self._handles.remove(handle)
        _kill(handle)

    def _give_up(self, error: str) -> None:
        with self._changed:
            self._pools -= 1
            if not self._pools:
                self._fail(f"scorer actors failed to start {_START_ATTEMPTS} times in a row; the last error: {error}")

    def _fail(self, why: str) -> None:
        if self._failure is None:
            self._failure = why
        self._changed.notify_all()


def _reason(error: BaseException) -> str:
    """The last line of Ray's message, whose others are a traceback or ids."""
    lines = str(getattr(error, "cause", None) or error).strip().splitlines()
    return one_line(lines[-1] if lines else error, 300)


def _kill(handle: Any) -> None:
    if ray.is_initialized():
        with suppress(RayError):
            ray.kill(handle)
