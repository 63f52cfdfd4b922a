"""Questions that a client is asked and answers once: what dialects with sessions share.

Invariant: an episode has one verdict, of the first answer that could be scored, so nobody tries candidates until one is
right. An answer that the machine could not score has no reward, and another one may be sent. Episodes end after
`idle_seconds` without a request, there are at most `most` (of one client, half as many), and only who knows the key of
an episode, which the server makes, has it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from loguru import logger

from rg_env.base.errors import RGEnvError, describe
from rg_env.base.once import Once
from rg_env.configuration.config import RGDumpConfig
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.scoring import Status
from rg_env.serve.bodies import RefusedError
from rg_env.serve.desk import CLIENT, Desk, RequestedItem, ScoredText
from rg_env.serve.fairness import Shares
from rg_env.serve.item_makers import RowWanted
from rg_env.tasks import Item, Split

MOST_EPISODES = 8192
IDLE_SECONDS = 900.0


class OverError(RefusedError):
    """The episode has its verdict, or is waiting for it."""

    def __init__(self) -> None:
        super().__init__(409, "the question has been answered; begin another one")


class AnswerOutcome(NamedTuple):
    """What an answer has earned. `reward` is None where the machine could not score it, or nothing was answered."""

    reward: float | None
    status: str
    violation: str = ""
    detail: str = ""

    @property
    def done(self) -> bool:
        return self.reward is not None

    def about(self) -> dict[str, str]:
        """Return what is told beside the reward."""
        return {"status": self.status, "violation": self.violation, "detail": self.detail}


UNANSWERED = AnswerOutcome(None, "")


@dataclass
class Episode:
    """A question, and the answer that is scored or was.

    Attributes:
        client: whose share of the episodes it takes.
        task_id: names the answer to a client that has lost the connection and asks again.
        answers: how many it has had; more than one only after an excused one.
    """

    item: Item
    client: str = ""
    task_id: str = ""
    used: float = 0.0
    answers: int = 0
    scoring: asyncio.Task[AnswerOutcome] | None = None

    @property
    def outcome(self) -> AnswerOutcome | None:
        """The verdict; None before there is one."""
        if self.scoring is None or not self.scoring.done() or self.scoring.cancelled():
            return None
        return self.scoring.result()


@dataclass
class Episodes:
    """The rows that clients may ask for, and their running episodes by key."""

    desk: Desk
    most: int = MOST_EPISODES
    idle_seconds: float = IDLE_SECONDS
    _running: OrderedDict[str, Episode] = field(default_factory=OrderedDict)
    _of_client: Shares = field(default_factory=Shares)
    _rows: Once[Split, ReasoningGymDataset] = field(default_factory=partial(Once, len(Split)))
    _secret: bytes = field(default_factory=partial(secrets.token_bytes, 16))

    # Keys.

    def new_key(self) -> str:
        """Return a key for an episode. It is signed, not kept, so that keys of which nothing comes cost nothing."""
        name = secrets.token_hex(16)
        return f"{name}-{self._signature(name)}"

    def _signature(self, name: str) -> str:
        return hmac.new(self._secret, name.encode(), hashlib.sha256).hexdigest()[:32]

    def check_key(self, key: str) -> None:
        """Refuse a key that this server has not made: one that a client has thought of could be guessed by others."""
        name, _, signature = key.partition("-")
        if not hmac.compare_digest(signature.encode(), self._signature(name).encode()):
            raise RefusedError(410, "this server has no such session: create one, and use the id that it gets")

    # Rows.

    async def rows(self, split: str) -> ReasoningGymDataset:
        """Return the rows of a split, made when they are first asked for."""
        if split not in list(Split):
            raise RefusedError(422, f"split must be {' or '.join(Split)}, not {split[:40]!r}")
        name = Split(split)
        return await self._rows.get(name, partial(asyncio.to_thread, self._make_rows, name))

    def _make_rows(self, split: Split) -> ReasoningGymDataset:
        return ReasoningGymDataset(self.desk.tasks, self.desk.rows, _seed_of(split), split)

    async def item_of_row(self, split: str, index: int) -> Item:
        """Return the item of a row. Raises RefusedError: there is no such row."""
        rows = await self.rows(split)
        check_index(rows, index)
        task = rows.task_of_run(index)
        if task.file is None:
            name = Split(split)
            return await self.desk.make(RowWanted(task, _seed_of(name), name, index))
        return await self.desk.look_up(partial(rows.item, index))

    async def item_of_id(self, item_id: str) -> Item:
        """Return the item of an id. Raises RefusedError: it names none."""
        item = await self.desk.item_of_id(item_id)
        if item is None:
            raise RefusedError(422, f"{item_id[:40]!r} is not an item id, such as chain_sum-train-42-0")
        return item

    # Episodes.

    def start(self, key: str, item: Item) -> Episode:
        """Return a new episode under this key. Raises RefusedError: there are too many."""
        self._end_idle()
        client = CLIENT.get()
        # What is left is in use: idle episodes have just ended.
        share = max(1, self.most // 2)
        if len(self._running) >= self.most or self._of_client[client] >= share:
            raise RefusedError(503, f"{self._of_client[client]:,} of your sessions are open; end some, or try again")
        episode = Episode(item, client, used=time.monotonic())
        self._running[key] = episode
        self._of_client[client] += 1
        return episode

    def find(self, key: str) -> Episode:
        """Return the episode of this key, whose time starts again. Raises RefusedError: it does not exist."""
        self._end_idle()
        if key not in self._running:
            raise RefusedError(410, "no such episode: it has ended or never started")
        episode = self._running[key]
        episode.used = time.monotonic()
        self._running.move_to_end(key)
        return episode

    def get(self, key: str) -> Episode | None:
        return self._running.get(key)

    def end(self, key: str) -> None:
        """Forget the episode, if it is there; an answer that waits to be scored gives its place back."""
        episode = self._running.pop(key, None)
        if episode is None:
            return
        if episode.scoring is not None:
            episode.scoring.cancel()
        self._of_client.give_back(episode.client)

    def _end_idle(self) -> None:
        # The least recently used come first.
        oldest = time.monotonic() - self.idle_seconds
        while self._running:
            key, episode = next(iter(self._running.items()))
            if episode.used > oldest:
                break
            self.end(key)

    def submit(self, episode: Episode, text: str, *, is_response: bool) -> asyncio.Task[AnswerOutcome]:
        """Begin to score the answer of an episode. It goes on when its client loses the connection.

        Args:
            is_response: the text is a whole response (`Desk.score_free_text`), not the bare answer.

        Raises:
            OverError: the episode has its answer. RefusedError: the queue is full now.
        """
        if episode.scoring is not None:
            outcome = episode.outcome
            if outcome is None or outcome.done:
                raise OverError
        # A full queue is an error of this request. Later it would become the outcome of the episode.
        self.desk.check_room(1)
        episode.answers += 1
        episode.task_id = secrets.token_hex(16)
        episode.scoring = asyncio.ensure_future(self._score(episode.item, text, is_response))
        return episode.scoring

    async def _score(self, item: Item, text: str, is_response: bool) -> AnswerOutcome:
        requested = RequestedItem(item.entry, item.config)
        try:
            if is_response:
                return _outcome(await self.desk.score_free_text(requested, text))
            (result,) = await self.desk.score_answers(requested, [text])
            return _outcome(result)
        except Exception as error:
            if not isinstance(error, (RefusedError, RGEnvError, OSError, MemoryError)):  # not of the machine
                logger.opt(exception=error).warning("an answer could not be scored: {}", describe(error))
            return AnswerOutcome(None, Status.ERROR.value, detail=describe(error))


def _seed_of(split: Split) -> int:
    """Return the seed of the rows of a split, as of a run with our settings."""
    config = RGDumpConfig()
    return config.seed if split is Split.TRAIN else config.eval_seed


def check_index(rows: ReasoningGymDataset, index: int) -> None:
    """Refuse a number that no row has."""
    if not 0 <= index < len(rows):
        raise RefusedError(422, f"index must be at least 0 and below {len(rows)}, not {index}")


def _outcome(result: ScoredText) -> AnswerOutcome:
    scored = result.scored
    return AnswerOutcome(
        reward=None if scored.excused else scored.score,
        status=scored.status.value,
        violation=result.violation.value if result.violation else "",
        detail=scored.detail[:1000],
    )
