"""`guarded`: any scorer that is a Python function, in processes that can be killed.

Invariant: whatever the function does with its arguments (hang, crash, raise, exit), the caller gets a value or a status
with its reason, and never a 0 that the function did not return. Its processes have the sandbox and the deadlines of all
scorers, but there is no guard: an argument that the function evaluates can change its later scores.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from rg_env.errors import ConfigError, describe, need
from rg_env.processes import usable_cores
from rg_env.scoring.fork_server import JobFailedError, ProtocolError, reason_of
from rg_env.scoring.pool import ScorerPool, wait, wait_async
from rg_env.scoring.scorer import workers_for
from rg_env.scoring.types import ScorerConfig, Status
from rg_env.scoring.worker import Reply, number_of, reason_for
from rg_env.settings import check_fields

Value = float | dict[str, float]
_LONGEST_REPLY = 8000


@dataclass(frozen=True, slots=True)
class GuardedScore:
    """What became of one call.

    Attributes:
        value: the finite number, or the flat dict of finite numbers, that the function returned; None if it did not.
        status: OK if there is a value; else TIMEOUT, CRASHED, or ERROR: the function raised or returned anything else.
        detail: one line for people; empty if `status` is OK.
        starved: a TIMEOUT because the machine had no core for the process.
    """

    value: Value | None
    status: Status = Status.OK
    detail: str = ""
    starved: bool = False


class Guarded(AbstractContextManager["Guarded"]):
    """A function in processes of its own, which start with the first call. Made by `guarded`. Thread-safe."""

    def __init__(self, path: str, timeout: float, workers: int, memory_mb: int) -> None:
        self._target = pickle.dumps((__name__, "make_answerer", path))
        self._pool = ScorerPool(workers, timeout, lambda: [__name__, path.partition(":")[0]], memory_mb)

    def score(self, *args: Any) -> GuardedScore:
        """Call the function with these arguments, which must be picklable.

        Raises:
            ScorerPoolError: the processes cannot be started, or were closed.
        """
        return wait(self._score(args))

    async def ascore(self, *args: Any) -> GuardedScore:
        """As `score`; the running event loop does other things meanwhile."""
        return await wait_async(self._score(args))

    async def _score(self, args: tuple[Any, ...]) -> GuardedScore:
        try:
            result = await self._pool.run(self._target, pickle.dumps(args), _check)
        except JobFailedError as failed:
            return GuardedScore(None, failed.status, str(failed), failed.starved)
        return GuardedScore(None, Status.ERROR, result) if isinstance(result, str) else GuardedScore(result)

    def close(self) -> None:
        """End the processes. May be called more than once; later calls of `score` raise ScorerPoolError."""
        self._pool.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def guarded(
    scorer: str | Callable[..., Any], *, timeout: float = 5.0, workers: int | str = "auto", sandbox: bool = True
) -> Guarded:
    """Put a scorer into processes that can be killed.

    Args:
        scorer: `module:function`, or a function at the top of a module. It returns a number or a flat dict of numbers.
        timeout: CPU seconds per call, above 0; in wall time at most four times that.
        workers: calls at the same time, at least 1, or `auto` (half of the cores).
        sandbox: without it, the function may use files, the network, threads and any amount of memory.

    Raises:
        ConfigError: there is no such function, or other processes could not import it.

    >>> with guarded("math:factorial", timeout=1.0) as factorial:
    ...     factorial.score(5).value, factorial.score(10**9).status.value, factorial.score(-1).detail
    (120.0, 'timeout', 'ValueError: factorial() not defined for negative values')
    """
    check_fields(ScorerConfig(workers, timeout), "guarded")
    path = scorer if isinstance(scorer, str) else f"{scorer.__module__}:{getattr(scorer, '__qualname__', '')}"
    right = "must be a function at the top of a module that other processes can import, as module:function"
    need("<" not in path and not path.startswith("__main__:"), "guarded", path, right)
    try:
        function = _find(path)
    except Exception as error:
        raise ConfigError(f"guarded={path!r}: {right} ({describe(error)})") from error
    need(callable(function) and not inspect.iscoroutinefunction(function), "guarded", path, right)
    need(function is scorer or scorer == path, "guarded", path, "is the name of another function than the given one")
    return Guarded(path, timeout, workers_for(workers, usable_cores()), 1024 if sandbox else 0)


def make_answerer(path: str) -> Callable[[bytes], Reply]:
    """What a worker does for this function."""
    function = _find(path)

    def answer(arguments: bytes) -> Reply:
        try:
            return _plain(function(*pickle.loads(arguments)))
        except BaseException as error:
            return reason_for(error)

    return answer


def _find(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _plain(value: Any) -> Reply:
    """A value as JSON has it, or the reason why it is none."""
    values = value if isinstance(value, dict) else {"": value}
    numbers = {key: number for key, each in values.items() if (number := number_of(each)) is not None}
    are_named = len(numbers) == len(values) and all(isinstance(key, str) for key in numbers)
    if are_named and len(json.dumps(numbers)) < _LONGEST_REPLY:
        return numbers if isinstance(value, dict) else numbers[""]
    return f"the scorer returned {value!r:.60}, which is no finite number and no small dict of finite numbers"


def _check(reply: object) -> Value | str:
    if isinstance(reply, str):
        return reason_of(reply)
    values = reply.values() if isinstance(reply, dict) else [reply]
    if not all(isinstance(value, float) and math.isfinite(value) for value in values):
        raise ProtocolError("neither numbers nor a reason")
    return reply  # type: ignore[return-value]
