"""What the server reads of bodies itself, and what it leaves to the workers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rg_env.runner import handover
from rg_env.runner.caller_pool import ScorerPool
from rg_env.scoring import Scorer, Status
from rg_env.scoring.scorer import PackedEntry
from rg_env.serve.bodies import RefusedError, decode, texts
from rg_env.serve.desk import Desk, RequestedItem, find_item
from rg_env.serve.dialects.own_scores import ScoreRequest
from rg_env.serve.dialects.reward_models import _labels

ENTRY = {"question": "?", "answer": "2", "metadata": {"source_dataset": "gcd"}}


def found(entry: object, task: str | None = None) -> RequestedItem:
    content = entry if isinstance(entry, bytes) else json.dumps(entry).encode()
    return asyncio.run(find_item(Desk(Scorer(1)), msgspec.Raw(content), task))


def test_an_entry_stays_json_whatever_it_has() -> None:
    wide = ENTRY | {"lists": [[1]] * 100_000}
    for entry in (wide, json.dumps(wide), {"entry": json.dumps(wide)}):
        item = found(entry)
        assert item.entry == PackedEntry("gcd", json.dumps(wide).encode(), 1)
    assert found(ENTRY, "chain_sum").entry == PackedEntry("chain_sum", json.dumps(ENTRY).encode(), 1)


@pytest.mark.parametrize("metadata", [None, 5, [], {"source_dataset": 5}, {}])
def test_an_entry_names_its_task_or_the_request_does(metadata: object) -> None:
    with pytest.raises(RefusedError, match="the entry names no task"):
        found(ENTRY | {"metadata": metadata})
    assert isinstance(found(ENTRY | {"metadata": metadata}, "gcd").entry, PackedEntry)


def test_what_is_read_here_has_a_size() -> None:
    for entry in (
        ENTRY | {"x": "x" * 2_000_000},
        ENTRY | {"metadata": {"source_dataset": "gcd", "file_scorer": "exact"}, "x": "x" * 300_000},
        {"entry": json.dumps(ENTRY), "task_config": json.dumps({"x": "x" * 64_000})},
    ):
        with pytest.raises(RefusedError, match="has at most") as refused:
            found(entry)
        assert refused.value.status == 413


def test_half_of_a_surrogate_pair_is_read_as_a_character_that_the_guard_rejects() -> None:
    for written, text in (
        (rb'"\ud800"', "\0"),
        (rb'"a\uDC00b"', "a\0b"),
        (rb'"\\ud800 \ud83d\ude00\ud83d"', "\\ud800 \N{GRINNING FACE}\0"),
        (rb'"\ud800\ud83d\ude00"', "\0\N{GRINNING FACE}"),
    ):
        assert decode(written, str) == text
    for broken in (b'"\\', b'"\\u12', b"\xff", b'"\xff"', b"NaN", b""):
        with pytest.raises(RefusedError, match="is not valid JSON"):
            decode(broken, str)


@pytest.mark.parametrize("text", ["", "a", '"', "\\", '\\"', '"",""', "\\\\"])
def test_a_list_has_as_many_texts_as_allowed(text: str) -> None:
    for number in (1, 2, 3):
        written = msgspec.Raw(json.dumps([text] * number).encode())
        assert texts(written, 3, "answer") == [text] * number
    assert texts(msgspec.Raw(json.dumps(text).encode()), 1, "answer") == [text]
    # Every text counts at least half.
    with pytest.raises(RefusedError, match="at most 3 answers"):
        texts(msgspec.Raw(json.dumps([text] * 7).encode()), 3, "answer")


def test_there_is_a_label_for_each_response() -> None:
    labels = msgspec.Raw(b'[1, "a", {}]')
    assert [bytes(label) for label in _labels(labels, 3)] == [b"1", b'"a"', b"{}"]
    for number in (0, 1, 2, 4):
        with pytest.raises(RefusedError, match=f"one label for each of the {number} responses"):
            _labels(labels, number)


def test_a_field_that_nobody_knows_is_an_error_of_bounded_length() -> None:
    with pytest.raises(RefusedError) as refused:
        decode(json.dumps({"x" * 9999: 1}).encode(), ScoreRequest)
    assert len(str(refused.value)) <= 200


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the workers are asked."""
    asked: list[bytes] = []
    run = ScorerPool.run

    async def noting(self: Any, target: bytes, arguments: bytes, check: Callable[[object], Any]) -> Any:
        asked.append(arguments)
        return await run(self, target, arguments, check)

    monkeypatch.setattr(ScorerPool, "run", noting)
    return asked


def test_the_first_answer_of_a_list_decides_whether_the_entry_is_broken(jobs: list[bytes]) -> None:
    broken = found({"question": "?", "answer": "[", "metadata": {"source_dataset": "number_sorting"}})
    right = found(ENTRY)
    with Scorer(1) as scorer:
        desk = Desk(scorer)
        results = asyncio.run(desk.score_answers(broken, ["[1]", "[2]"] * 10))
        assert [result.scored.status for result in results] == [Status.ERROR] * 20 and len(jobs) == 1
        assert [result.answer for result in results] == ["[1]", "[2]"] * 10
        responses = [(broken, f"<think>a</think><answer>{number}</answer>") for number in range(5)]
        results = asyncio.run(desk.score_responses(responses))
        assert [(result.scored.status, result.answer) for result in results] == [
            (Status.ERROR, str(number)) for number in range(5)
        ]
        assert len(jobs) == 2
        # A refused answer says nothing of the others.
        results = asyncio.run(desk.score_answers(right, ["\0", "2", "3"]))
        assert [result.scored.score for result in results] == [0.0, 1.0, 0.0] and len(jobs) == 5
        assert desk.waiting == 0


def test_large_bodies_are_read_in_turn_with_rests_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    sleep = asyncio.sleep

    async def noting(seconds: float) -> None:
        if seconds:
            rests.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noting)

    async def test() -> None:
        desk = Desk(scorer)
        read = []

        async def read_one(number: int, size: int) -> None:
            async with desk.reading(size):
                read.append(number)
                end = time.thread_time() + 0.005
                while time.thread_time() < end:
                    pass

        await read_one(0, 1 << 20)
        assert rests == []  # nobody else is there
        async with desk._turns.turn("another"):
            pass
        await read_one(1, 1000)
        assert rests == []
        reading = [asyncio.ensure_future(read_one(number, 1 << 20)) for number in (2, 3, 4)]
        await sleep(0)
        reading[1].cancel()  # its client leaves while it waits
        await asyncio.gather(*reading, return_exceptions=True)
        assert read == [0, 1, 2, 4]
        assert len(rests) == 2 and min(rests) >= 0.045

    with Scorer(1) as scorer:
        asyncio.run(test())


def test_a_list_is_handed_to_the_scorers_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[object] = []
    hand_over = handover._hand_over

    def noting(coroutine: Any, *others: Any) -> Any:
        handed.append(coroutine)
        return hand_over(coroutine, *others)

    with Scorer(1) as scorer:
        monkeypatch.setattr(handover, "_hand_over", noting)
        results = asyncio.run(Desk(scorer).score_answers(found(ENTRY), ["2", "3"] * 10))
        assert [result.scored.score for result in results] == [1.0, 0.0] * 10
        assert len(handed) == 1
        monkeypatch.undo()
