"""Any scorer in processes that can be killed."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rg_env.base.errors import ConfigError, ScorerPoolError
from rg_env.scoring import Guarded, GuardedScore, Status, guarded


def behave(how: str, *given: Any) -> Any:
    """A scorer that does what it is told."""
    match how:
        case "hang":
            while True:
                pass
        case "sleep":
            time.sleep(10**6)
        case "die":
            os._exit(3)
        case "exit":
            raise SystemExit(3)
        case "write":
            Path(given[0]).write_text("written")
        case "token":
            return len(os.environ.get("RG_ENV_TEST_TOKEN", ""))
    return given[0] if given else 1


async def wait() -> float:
    return 1.0


@functools.wraps(behave)
def another(*arguments: Any) -> float:
    return 0.0


@pytest.fixture(scope="module")
def behaving() -> Iterator[Guarded]:
    with guarded(behave, timeout=1.0, workers=2) as made:
        yield made


def test_numbers_and_flat_dicts_of_numbers_are_values_and_anything_else_an_error(behaving: Guarded) -> None:
    pair = {"correct": 1, "length": np.float64(0.25)}
    for returned, value in ((-3, -3.0), (pair, {"correct": 1.0, "length": 0.25}), ({}, {})):
        assert behaving.score("return", returned) == GuardedScore(value)
    for returned in (None, [1.0], {"a": math.nan}, {"a": {"b": 1.0}}, {1: 1.0}, {"x" * 9000: 1.0}):
        score = behaving.score("return", returned)
        assert (score.value, score.status) == (None, Status.ERROR)
        assert score.detail


def test_no_call_hangs_or_crashes_the_caller_or_scores_0(behaving: Guarded) -> None:
    ends = {"hang": Status.TIMEOUT, "sleep": Status.TIMEOUT, "die": Status.CRASHED, "exit": Status.ERROR}
    for how, status in ends.items():
        score = behaving.score(how)
        assert (score.value, score.status) == (None, status)
        assert score.detail
        assert behaving.score("return", 1) == GuardedScore(1.0)


def test_many_calls_in_an_event_loop(behaving: Guarded) -> None:
    async def all_of_them() -> list[GuardedScore]:
        return await asyncio.gather(*(behaving.ascore("return", number) for number in range(50)))

    assert [score.value for score in asyncio.run(all_of_them())] == [float(number) for number in range(50)]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the sandbox needs Linux")
def test_the_sandbox_is_on_unless_it_is_turned_off(
    behaving: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RG_ENV_TEST_TOKEN", "secret")
    file = tmp_path / "file"
    assert behaving.score("write", str(file)).status == Status.ERROR
    with guarded(f"{__name__}:behave", workers=1, sandbox=False) as free:
        assert free.score("write", str(file)).status == Status.ERROR  # it returned a path, which is no number
        assert free.score("token").value == 0.0
    assert file.read_text() == "written"


def test_a_name_may_have_a_dot_before_the_function() -> None:
    with guarded("math.factorial") as factorial:
        assert factorial.score(5).value == 120


def test_what_other_processes_cannot_import_and_numbers_out_of_range_are_refused_at_once() -> None:
    here = f"{__name__}:no_such_function"
    paths = ("__main__:score", "no_such_module:score", here, "math:pi")
    for scorer in (lambda: 1.0, wait, *paths):
        with pytest.raises(ConfigError, match="must be a function at the top of a module that other processes can"):
            guarded(scorer)
    for name in ("factorial", ""):
        with pytest.raises(ConfigError, match="names no function; write module:function"):
            guarded(name)
    with pytest.raises(ConfigError, match="is the name of a function other than the given one"):
        guarded(another)
    for bad in ({"timeout": 0.0}, {"workers": 0}, {"workers": "many"}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            guarded("math:factorial", **bad)  # type: ignore[arg-type]


def test_a_closed_one_says_so() -> None:
    for calls in (0, 1):
        factorial = guarded("math:factorial", workers=1)
        assert [factorial.score(3).value for _ in range(calls)] == [6.0] * calls
        factorial.close()
        with pytest.raises(ScorerPoolError, match="closed"):
            factorial.score(3)
