"""`guarded`: any Python function, in processes that can be killed.

Invariants:
- Whatever the function does with its arguments (hang, crash, raise, exit), the caller gets a value or a status with its
  reason, and never a 0 that the function did not return.
- Every call runs in a process that has seen no other call, so that no argument changes a later value, even if the
  function evaluates it. Not with `fresh=False`.
"""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from .caller_pool import ScorerPool
from .child_process import find_function, make_answerer, plain_value
from .failures import ConfigError, Failure, JobFailedError, ProtocolError, describe, reason_of
from .handover import wait, wait_async
from .machine import usable_cores, workers_for

Value = float | dict[str, float]
Example = tuple[tuple[Any, ...], Any]
"""Arguments of a call, and the value that it must have."""
_MEMORY_MB = 1024


@dataclass(frozen=True, slots=True)
class GuardedScore:
    """What became of one call.

    Attributes:
        value: the finite number, or the flat dict of finite numbers, that the function returned; None if it did not.
        status: `ok` if there is a value, else a `Failure`.
        detail: one line for people; empty if `status` is `ok`.
        excused: a timeout because the machine had no core for the process.
    """

    value: Value | None
    status: str = "ok"
    detail: str = ""
    excused: bool = False


class Guarded(AbstractContextManager["Guarded"]):
    """A function in processes of its own, which start with the first call. Made by `guarded`. Thread-safe.

    Attributes:
        examples: those that it was made with.
    """

    def __init__(self, target: bytes, pool: ScorerPool, examples: Sequence[Example] = ()) -> None:
        self._target = target
        self._pool = pool
        self.examples = examples

    def score(self, *args: Any) -> GuardedScore:
        """Call the function with these arguments, which must be picklable.

        Raises:
            ScorerPoolError: the processes cannot be started, or were closed.
        """
        # Pickled here: `__reduce__` of an argument is the caller's code, which must not run in the private thread.
        return wait(self._score(pickle.dumps(args)))

    async def ascore(self, *args: Any) -> GuardedScore:
        """As `score`; the running event loop does other things meanwhile."""
        return await wait_async(self._score(pickle.dumps(args)))

    async def afailed_examples(self) -> list[str]:
        """Call the function with its examples again, and return one line for each that has another value now.

        One that the machine had no core for has not failed. Raises as `score`.
        """
        failed = []
        for arguments, value in self.examples:
            scored = await self.ascore(*arguments)
            if scored.value != value and not scored.excused:
                failed.append(f"{arguments!r} scores {scored.value}, not {value} ({scored.detail or scored.status})")
        return failed

    async def _score(self, arguments: bytes) -> GuardedScore:
        try:
            result = await self._pool.run(self._target, arguments, _check)
        except JobFailedError as failed:
            return GuardedScore(None, failed.failure, str(failed), failed.excused)
        if isinstance(result, str):
            return GuardedScore(None, Failure.ERROR, result)
        return GuardedScore(result)

    def close(self) -> None:
        """End the processes. May be called more than once; later calls of `score` raise ScorerPoolError."""
        self._pool.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def guarded(
    scorer: str | Callable[..., Any],
    *,
    timeout: float = 5.0,
    workers: int | str = "auto",
    sandbox: bool = True,
    fresh: bool = True,
    examples: Sequence[Example] = (),
) -> Guarded:
    """Put a scorer into processes that can be killed.

    Unless `fresh=False`, each call runs in a process of its own, a fork of one that has imported the function and
    called it with the examples, but never with an argument of `score`. So random generators begin every call in the
    same state.

    Args:
        scorer: `module:function` or `module.function`, or a function at the top of a module. It returns a number or a
            flat dict of numbers.
        timeout: CPU seconds per call, above 0; in wall time at most four times that. Without the sandbox only the
            latter counts, because threads and children do not show in the process.
        workers: calls at the same time, at least 1, or `auto` (half of the cores).
        sandbox: without it, the function may use files, the network, threads and any amount of memory.
        fresh: False: a process serves many calls, which is faster. Only for functions that evaluate nothing of their
            arguments and keep nothing of them: such an argument could change all later values.
        examples: pairs of arguments (a tuple) and the value for them. They warm the function up (caches, late imports)
            before the forks.

    Raises:
        ConfigError: there is no such function, or other processes could not import it.

    The first call raises ScorerPoolError if an example has another value, or if threads run after the examples.

    >>> with guarded("math:factorial", timeout=1.0, examples=[((4,), 24)]) as factorial:
    ...     factorial.score(5).value, factorial.score(-1).detail
    (120.0, 'ValueError: factorial() not defined for negative values')
    >>> with guarded("time:sleep", timeout=1.0) as sleep:
    ...     str(sleep.score(60).status)
    'timeout'
    """
    _need(_is_number(timeout) and timeout > 0, "timeout", timeout, "must be a number above 0")
    _need(workers == "auto" or _is_whole(workers), "workers", workers, "must be auto or a whole number of at least 1")
    path = _path_of(scorer)
    right = "must be pairs of arguments and a value, such as [((5,), 120.0)]"
    # Refused here and not by the server: a mistake of the caller is an error of this line.
    pairs = [_as_example(example) for example in examples]
    _need(all(pairs), "examples", examples, right)
    _need(fresh or not pairs, "examples", examples, "need fresh=True")
    modules = [make_answerer.__module__, path.partition(":")[0]]
    # The target, which the processes make ready: they import `make_answerer` by its name, and call it with the path of
    # the function. What it returns answers the calls.
    target = pickle.dumps((make_answerer.__module__, make_answerer.__name__, path))
    preparation = pickle.dumps((target, pairs)) if fresh else b""
    memory_mb = _MEMORY_MB if sandbox else 0
    size = workers_for(workers, usable_cores())
    pool = ScorerPool(size, timeout, lambda: modules, memory_mb, fresh=fresh, preparation=preparation)
    return Guarded(target, pool, [pair for pair in pairs if pair])


def _path_of(scorer: str | Callable[..., Any]) -> str:
    """`module:function` of a function that other processes can import. Raises ConfigError."""
    is_name = isinstance(scorer, str)
    # A function is named by its place, because only a name can be sent to another process.
    path = scorer if isinstance(scorer, str) else f"{scorer.__module__}:{getattr(scorer, '__qualname__', '')}"
    if is_name and ":" not in path:  # module.function means the same
        module, _, name = path.rpartition(".")
        path = f"{module}:{name}" if module else path
    module, _, name = path.partition(":")
    _need(module and name, "guarded", path, "names no function; write module:function")
    right = "must be a function at the top of a module that other processes can import, as module:function"
    _need("<" not in path and not path.startswith("__main__:"), "guarded", path, right)
    try:
        function = find_function(path)
    except (Exception, SystemExit) as error:  # a script ends the program when it is imported
        raise ConfigError(f"guarded={path!r}: {right} ({describe(error)})") from error
    _need(callable(function) and not inspect.iscoroutinefunction(function), "guarded", path, right)
    # Other processes find what has this name now: not a function that was decorated or replaced later.
    _need(function is scorer or is_name, "guarded", path, "is the name of a function other than the given one")
    return path


def _as_example(example: object) -> Example | None:
    """Return the pair with a value as replies have it; None if it is not a pair, or the value is not a number."""
    if not isinstance(example, (tuple, list)) or len(example) != 2:
        return None
    arguments, value = example
    if not isinstance(arguments, (tuple, list)):
        return None
    number = plain_value(value)
    if isinstance(number, str):
        return None
    return (tuple(arguments), number)


def _need(ok: object, name: str, value: object, right: str) -> None:
    """Raise the ConfigError of a wrong argument unless `ok`."""
    if not ok:
        raise ConfigError(f"{name}={value!r}: {right}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check(reply: object) -> Value | str:
    if isinstance(reply, str):
        return reason_of(reply)
    # The worker may be controlled by an answer, so that whatever it says is looked at, value by value.
    values = reply.values() if isinstance(reply, dict) else [reply]
    if not all(isinstance(value, float) and math.isfinite(value) for value in values):
        raise ProtocolError("neither numbers nor a reason")
    return reply  # type: ignore[return-value]
