"""What the requests of every dialect share: the scorers and their queue, the items that requests name, replies and
refusals.

Invariant: a place in the queue is given back when its answer is scored, or its client has left. A client takes at most
half of the queue if others have asked lately; alone it leaves an eighth of it for the next client. The bodies of
requests that are being read or answered have a bounded size together, half of which is for one client; not covered:
messages over a WebSocket, of which each is small.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from fastapi import Request
from fastapi.responses import JSONResponse

from rg_env.base.choices import ResponseFormat
from rg_env.base.errors import ConfigError
from rg_env.rows.item_source import item_of_id
from rg_env.runner.caller_guarded import Guarded
from rg_env.runner.handover import wait_async
from rg_env.scoring import AnswerScore, ParsedResponse, Scorer, Status, Violation
from rg_env.scoring.formatting import last_boxed
from rg_env.scoring.parse import is_opened, with_opening
from rg_env.scoring.scorer import Entry, PackedEntry, pack
from rg_env.serve.bodies import Json, RefusedError, absent, decode, json_of, too_many
from rg_env.serve.fairness import FairSlots, Shares
from rg_env.serve.item_makers import ItemMakers, NotMadeError, Wanted
from rg_env.tasks import Item, TaskMix, decode_entry
from rg_env.tasks.item import SCORER_KEY, ItemId
from rg_env.tasks.registry import check_name, check_options

_LONGEST_ID, _MOST_MADE = 200, 4096
_LARGEST_ENTRY, _LARGEST_OF_FILE, _LARGEST_OPTIONS = 2_000_000, 300_000, 64_000
"""Bytes of what is read here, in part or whole."""
_BODIES = 64
"""Of the greatest size that may be held at the same time."""
_SLOW_BYTES = 64 << 10
"""JSON of this size is read in turn, since nothing can interrupt that."""
_REST = 9
"""How many times as long as such reading took the event loop then does nothing of the kind, for anybody."""
_MAKERS = 2
"""Items that are made at the same time: one for a client whose items take seconds, one for all others."""
CLIENT: ContextVar[str] = ContextVar("CLIENT", default="")
"""Whose request is being answered: the address that it came from."""
_MOST_MISTAKES, _LONGEST_NAME = 3, 40
"""What a reply says of a body that does not fit: mistakes, and characters of a name that the client made up."""
_NO_ITEM = "name the item: an entry of Reasoning Gym, or an id such as chain_sum-train-42-0"


class JsonReply(JSONResponse):
    """JSON in ASCII. A text may be half of a surrogate pair, which UTF-8 has no bytes for.

    Routes return it themselves: FastAPI copies what else they return, without the keys that begin with `_sa`.
    """

    def render(self, content: Any) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def explain(mistakes: Sequence[Mapping[str, Any]]) -> str:
    """Say what is wrong with a body in pydantic's words, which never contain the client's values."""
    said = []
    for mistake in mistakes[:_MOST_MISTAKES]:
        place = ".".join(str(part)[:_LONGEST_NAME] for part in mistake["loc"])
        said.append(f"{place}: {mistake['msg']}")
    return "; ".join(said)


@dataclass(frozen=True)
class RequestedItem:
    """The entry that a request is about, packed unless it is of a file, and the options of its task."""

    entry: Entry
    config: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, item: Item) -> RequestedItem:
        if SCORER_KEY in item.entry["metadata"]:
            return cls(item.entry, item.config)
        return cls(pack(item.entry), item.config)


@dataclass(frozen=True)
class ScoredText:
    """A response or an answer with its score; the answer is None where the response has none."""

    scored: AnswerScore
    answer: str | None
    violation: Violation | None = None


@dataclass
class Desk:
    """Hands answers to the scorers, and counts.

    Attributes:
        function: what is served in place of Reasoning Gym's scorers, if anything.
        token: what clients send as `Authorization: Bearer TOKEN`; empty: everybody may ask.
        host: the address that the server was told to listen on.
        most_waiting: answers that may be scored, or wait for it, at the same time; a request has at most half as many.
        most_bytes: of a request with entries or texts.
        tasks: the task mix of episodes, with the files of questions that ids may name.
        left_out: the rows of these files that nobody is asked, by task and split (`rg_env.scoring.audit`).
        rows: of each split, for episodes.
        scored: answers by status.
        made: items by their ids.
        makers: of items.
    """

    scorer: Scorer
    function: Guarded | None = None
    token: str = ""
    most_waiting: int = 4096
    host: str = "127.0.0.1"
    most_bytes: int = 4 << 20
    tasks: TaskMix | None = None
    left_out: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    rows: int = 10_000
    scored: Counter[str] = field(default_factory=Counter)
    made: dict[str, Item] = field(default_factory=dict)
    makers: ItemMakers = field(default_factory=partial(ItemMakers, _MAKERS))
    _waiting_of: Shares = field(default_factory=Shares)
    _bytes_of: Shares = field(default_factory=Shares)
    _reading: FairSlots = field(default_factory=partial(FairSlots, 1))
    _making: FairSlots = field(default_factory=partial(FairSlots, _MAKERS))

    def __post_init__(self) -> None:
        # One more than there are workers, so that none waits for this process between two answers.
        self._slots = self.scorer.workers + 1
        self._turns = FairSlots(self._slots)

    @property
    def most_answers(self) -> int:
        """How many answers a request may have."""
        return max(1, self.most_waiting // 2)

    @property
    def waiting(self) -> int:
        """Answers that are being scored, or wait for it."""
        return self._waiting_of.total()

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Gives a function that counts bytes of a body, until the request is answered.

        The function raises RefusedError: there are too many, of this client or of all.
        """
        client = CLIENT.get()
        most = _BODIES * self.most_bytes
        held = 0

        def hold(number: int) -> None:
            nonlocal held
            if self._bytes_of[client] + number > most // 2 or self._bytes_of.total() + number > most:
                raise RefusedError(503, "too many large requests at the same time; try again")
            self._bytes_of[client] += number
            held += number

        try:
            yield hold
        finally:
            self._bytes_of.give_back(client, held)

    @asynccontextmanager
    async def reading(self, size: int) -> AsyncIterator[None]:
        """Waits until it is the client's turn to have this many bytes of JSON read in the event loop."""
        if size < _SLOW_BYTES:
            yield
            return
        client = CLIENT.get()
        async with self._reading.turn(client):
            start = time.thread_time()
            try:
                yield
            finally:
                if not self._turns.is_alone(client):
                    await asyncio.sleep(_REST * (time.thread_time() - start))

    async def read_body[T](self, request: Request, kind: type[T]) -> T:
        """Return what a request asks for. Raises RefusedError: it is not this."""
        content = await json_of(request)
        async with self.reading(len(content)):
            return decode(content, kind)

    async def run[T](
        self, calls: Sequence[Callable[[], Awaitable[T]]], is_for_all: Callable[[T], bool] | None = None
    ) -> list[T]:
        """Return the results of calls that score an answer each.

        Args:
            is_for_all: whether the first result is that of all calls; then no other is made.

        Raises:
            RefusedError: the request has too many answers, or the queue has no room for all of them now.
        """
        client = CLIENT.get()
        self.check_room(len(calls))
        self._waiting_of[client] += len(calls)
        try:
            # All at once: the way to the thread of the scorers and back takes longer than most answers.
            return await wait_async(self._run_in_turn(client, calls, is_for_all))
        finally:
            self._waiting_of.give_back(client, len(calls))

    async def _run_in_turn[T](
        self, client: str, calls: Sequence[Callable[[], Awaitable[T]]], is_for_all: Callable[[T], bool] | None
    ) -> list[T]:
        """As `run`, in the thread of the scorers."""
        results: dict[int, T] = {}
        waiting = iter(enumerate(calls))

        async def run_next(most: int) -> None:
            for number, call in itertools.islice(waiting, most):
                async with self._turns.turn(client):
                    results[number] = await call()

        if is_for_all is not None and calls:
            await run_next(1)
            if is_for_all(results[0]):
                return [results[0]] * len(calls)
        try:
            # Not a task for each of thousands of answers, whose client may leave before the second is scored.
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(calls), self._slots)):
                    group.create_task(run_next(len(calls)))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [results[number] for number in range(len(calls))]

    def check_room(self, answers: int) -> None:
        """Refuse a request with this many answers if the queue has no room for them. Raises as `run`."""
        most = self.most_answers
        if answers > most:
            raise too_many(most)
        if self.waiting + answers > self.most_waiting:
            raise RefusedError(503, f"more than {self.most_waiting:,} answers would be waiting; try again")
        client = CLIENT.get()
        share = self.most_waiting - self.most_waiting // 8 if self._turns.is_alone(client) else most
        if self._waiting_of[client] + answers > share:
            raise RefusedError(503, f"more than {share:,} of your answers would be waiting; try again")

    async def make(self, wanted: Wanted) -> Item:
        """Return an item, made when it is its client's turn. Raises RefusedError: it does not exist, or not now."""
        async with self._making.turn(CLIENT.get()):
            try:
                return await self.makers.make(wanted)
            except (ConfigError, ValueError) as error:
                raise RefusedError(422, str(error)) from None
            except NotMadeError as error:
                raise RefusedError(503, str(error)) from None

    async def look_up[T](self, function: Callable[[], T]) -> T:
        """Return what a function that reads an item from a file returns. It runs in a thread. Raises as `make`."""
        client = CLIENT.get()
        begun = False

        async def look_up_in_turn() -> T:
            nonlocal begun
            async with self._making.turn(client):
                begun = True
                return await asyncio.to_thread(function)

        reading = asyncio.ensure_future(look_up_in_turn())
        try:
            # A thread cannot be ended, so it keeps its turn until it is done, even if its client leaves.
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            if not begun:
                reading.cancel()
            raise
        except (ConfigError, ValueError) as error:
            raise RefusedError(422, str(error)) from None

    async def item_of_id(self, item_id: str) -> Item | None:
        """Return the item of an id; None if it is not an id. Raises as `make`."""
        if len(item_id) > _LONGEST_ID:
            return None
        if item_id in self.made:
            return self.made[item_id]
        parts = ItemId.parse(item_id)
        if parts is None:
            return None
        if self.tasks is not None and parts.task in self.tasks.files:
            item = await self.look_up(partial(item_of_id, item_id, self.tasks))
            assert item is not None
            if item.index in self.left_out.get(item.task, {}).get(item.split, ()):
                raise RefusedError(422, f"{item_id}: this row is left out, because its answer failed the audit")
        else:
            item = await self.make(item_id)
        # All at once: it is rare, and an item can be made again.
        if len(self.made) > _MOST_MADE:
            self.made.clear()
        # Of two requests that have made the same item meanwhile, both get the first one.
        return self.made.setdefault(item_id, item)

    async def score_responses(self, pairs: Sequence[tuple[RequestedItem, str]], **how: Any) -> list[ScoredText]:
        """Return the scores of responses; `how` as in `Scorer.parse`."""
        self.check_room(len(pairs))
        parsed = [self.scorer.parse(item.entry, text, **how) for item, text in pairs]
        return await self._score_parsed([item for item, _ in pairs], parsed)

    async def _score_parsed(self, items: Sequence[RequestedItem], parsed: Sequence[ParsedResponse]) -> list[ScoredText]:
        answered = [(item, one.answer) for item, one in zip(items, parsed, strict=True) if one.answer is not None]
        scores = iter(await self._score(answered))
        results = []
        for one in parsed:
            scored = AnswerScore.without_score(Status.OK) if one.answer is None else next(scores)
            results.append(ScoredText(scored, one.answer, one.violation))
            self.scored[scored.status.value] += 1
        return results

    async def score_free_text(
        self, item: RequestedItem, text: str, find_box: Callable[[str], str | None] = last_boxed
    ) -> ScoredText:
        """Return the score of a text with an answer block, or else a box, or else nothing but the answer."""
        self.check_room(1)
        # Answers that a think block mentions do not count, wherever the block was opened.
        response = with_opening(text) if is_opened(text) else text
        parsed = self.scorer.parse(item.entry, response, format=ResponseFormat.LENIENT)
        if parsed.violation is Violation.NO_ANSWER and text.strip():
            boxed = find_box(text) or ""
            (result,) = await self.score_answers(item, [boxed.strip() or text.strip()])
        else:
            (result,) = await self._score_parsed([item], [parsed])
        return result

    async def score_answers(self, item: RequestedItem, answers: Sequence[str]) -> list[ScoredText]:
        """Return the scores of bare answers to one item."""
        scores = await self._score([(item, answer) for answer in answers])
        self.scored.update(scored.status.value for scored in scores)
        return [ScoredText(scored, answer) for scored, answer in zip(scores, answers, strict=True)]

    async def _score(self, pairs: Sequence[tuple[RequestedItem, str]]) -> list[AnswerScore]:
        score = self.scorer.score_answer_async
        calls = [partial(score, item.entry, answer, item.config) for item, answer in pairs]
        # Of a list for one item, the first answer decides whether the entry is broken.
        is_one_item = len({id(item) for item, _ in pairs}) == 1
        return await self.run(calls, (lambda scored: scored.status is Status.ERROR) if is_one_item else None)


async def find_item(
    desk: Desk, item: str | msgspec.Raw, task: str | None = None, options: msgspec.Raw | None = None
) -> RequestedItem:
    """Return the item of a request: an entry, `extra_info` of one of our rows, the JSON of either in a string, or the
    id of an item.

    Raises:
        RefusedError: it is none of these, or its task is unknown.
    """
    try:
        if isinstance(item, msgspec.Raw) and bytes(item).startswith(b'"'):
            item = decode(item, str)
        if isinstance(item, str):
            made = await desk.item_of_id(item)
            if made is not None:
                _check_beside_id(made, task, options)
                return RequestedItem.of(made)
            item = msgspec.Raw(item.strip().encode("utf-8", "surrogatepass"))
        if not bytes(item).startswith(b"{"):
            raise RefusedError(422, _NO_ITEM)
        async with desk.reading(memoryview(item).nbytes):
            return _item_of_json(item, task, options)
    except (ConfigError, ValueError) as error:
        raise RefusedError(422, str(error)) from None


def _check_beside_id(item: Item, task: str | None, options: msgspec.Raw | None) -> None:
    """Refuse another task or options than those that an id stands for."""
    if task not in (None, item.task) or _is_given(options):
        raise RefusedError(422, f"{item.id} has its own task and options: leave out task and config, or send entry")


def _is_given(options: msgspec.Raw | None) -> bool:
    return options is not None and bytes(options) not in (b"", b"null", b"{}")


class _Head(msgspec.Struct):
    """What is read of an entry, or of `extra_info` of a row."""

    answer: Json = absent()
    metadata: Json = absent()
    entry: str | None = None
    task_config: str = "{}"


class _Metadata(msgspec.Struct):
    source_dataset: str | None = None
    file_scorer: Json = absent()


def _item_of_json(content: msgspec.Raw, task: str | None, options: msgspec.Raw | None) -> RequestedItem:
    written = _bounded(content, _LARGEST_ENTRY)
    head = decode(content, _Head)
    checked = None
    if head.entry is not None:
        checked = decode_entry(_bounded(head.task_config.encode(), _LARGEST_OPTIONS))
        written = head.entry.encode()
        head = decode(written, _Head)
    metadata = _Metadata()
    with suppress(RefusedError):  # the metadata are something else
        metadata = decode(head.metadata, _Metadata)
    name = task or metadata.source_dataset
    if name is None:
        raise RefusedError(422, "the entry names no task: send `task`, or keep its metadata.source_dataset")
    if bytes(metadata.file_scorer):  # a question of a file, which the scorer checks
        return RequestedItem(decode_entry(_bounded(written, _LARGEST_OF_FILE)))
    check_name(name)
    if options is not None and _is_given(options):
        given = decode(_bounded(options, _LARGEST_OPTIONS), dict[str, Any], "config")
        checked = check_options(name, given)
    answer = bytes(head.answer)
    length = len(decode(answer, str)) if answer.startswith(b'"') else 0
    return RequestedItem(PackedEntry(name, written, length), checked)


def _bounded(content: bytes | msgspec.Raw, most: int) -> bytes:
    """Return what is read in this process, which takes time by its size."""
    written = bytes(content)
    if len(written) > most:
        raise RefusedError(413, f"an entry of this kind, or its options, has at most {most:,} bytes")
    return written
