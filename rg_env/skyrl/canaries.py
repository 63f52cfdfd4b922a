"""Canaries: answers whose score is known, scored between those of the model while a run trains.

A verifier that breaks during a run pays wrong answers or nothing, and no curve says so. A canary is a response that the
model has just written, with its answer replaced: by the item's own, which must be solved, or by that of another item of
the task, which must not. It takes the way of every response: scorer, queue, worker.

Invariant: no canary is in a group, a reward, a record or a random state. Which response has one is decided by order
alone. Not covered: a verifier that is wrong only about answers that no item has, tasks whose items store no answer, and
subclasses of `RGDumpEnv` that score in their own way.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from loguru import logger

from rg_env.base.choices import ResponseFormat
from rg_env.base.errors import RGEnvError
from rg_env.base.wording import counted, rate
from rg_env.configuration.config import PREFIX, RGDumpConfig
from rg_env.rollouts.judge import Judge
from rg_env.rollouts.symptoms import CANARIES, CANARY_FAILURES, RIGHT_UNSOLVED, WRONG_SOLVED
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.scoring.audit_rows import RightAnswers
from rg_env.scoring.formatting import canonical
from rg_env.scoring.parse import parse_response, tag_spans
from rg_env.scoring.scorer import reference_answer
from rg_env.scoring.types import AnswerScore
from rg_env.tasks import Item
from rg_env.tasks.item import ENV_CLASS, SCORER_KEY

if TYPE_CHECKING:
    from rg_env.rollouts.rollout_log import RolloutLog

_OF_STEP = 32
"""Canaries for the responses of a step, half of them right."""
_STEPS = 20
"""Steps that `stop_on_canaries` looks back …"""
_MOST_FAILURES = 0.1
"""… and ends the run above this share."""
_TRIED_ITEMS = 2
"""Items of each task that are tried before the first step."""
_TRIED_ROWS = 256
"""Rows of a file of rows in which those items are looked for."""
_ANSWERS = 8
"""Answers of other items that are kept for each task."""
_WARNINGS = 5
"""Failures of a step that are logged one by one."""
_SHOWN = 60


class Canary(NamedTuple):
    """A response whose score is known: `is_right`, or wrong."""

    item: Item
    text: str
    answer: str
    is_right: bool


@dataclass
class CanaryCounts:
    """Canaries of a step, without those whose scorer got no CPU time."""

    scored: int = 0
    right_unsolved: int = 0
    wrong_solved: int = 0

    @property
    def failures(self) -> int:
        return self.right_unsolved + self.wrong_solved

    def add(self, other: CanaryCounts) -> None:
        """Add the counts of another step."""
        self.scored += other.scored
        self.right_unsolved += other.right_unsolved
        self.wrong_solved += other.wrong_solved

    def metrics(self) -> dict[str, float]:
        """Return the counts by the names of metrics; empty without a canary."""
        if not self.scored:
            return {}
        return {
            CANARY_FAILURES: self.failures / self.scored,
            CANARIES: self.scored,
            RIGHT_UNSOLVED: self.right_unsolved,
            WRONG_SOLVED: self.wrong_solved,
        }


class Canaries:
    """The canaries of a run. There are none until `begin` is called."""

    def __init__(self, config: RGDumpConfig, log: RolloutLog | None = None) -> None:
        self._config, self._log = config, log
        self._judge = Judge(config)
        self._responses_per_step = 0
        self._owed = 0
        """Grows by `_OF_STEP` with each response; a canary is due when it reaches the responses of a step."""
        self._sent = [0, 0]
        """Canaries that were sent: wrong ones, right ones."""
        self._answers: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_ANSWERS))
        self._without_right: set[str] = set()
        self._without_wrong: set[str] = set()
        """Tasks whose right, or whose wrong canaries are left out."""
        self._step = CanaryCounts()
        self._last_steps: deque[CanaryCounts] = deque(maxlen=_STEPS)
        self._total = CanaryCounts()

    # ------------------------------------------------------------------------------------------- before the first step
    async def begin(self, tasks: Mapping[str, Sequence[Item]], responses_per_step: int) -> None:
        """Try every task, and send canaries from now on.

        Args:
            tasks: the first items of each task.
            responses_per_step: a step with fewer than 32 has a canary for each response.

        Raises:
            RGEnvError: no task has a scorer that gives a score; or `stop_on_canaries`, and no task that has answers
                scores them.
        """
        tried = {}
        for task, items in tasks.items():
            known = [item for item in items if reference_answer(item.entry)]
            if known:
                tried[task] = known
        failures = await asyncio.gather(*(self._try_task(task, items) for task, items in tried.items()))
        # Without any score there is nothing to learn, however long the run is.
        if tried and all(failures):
            raise RGEnvError(f"the scorer fails for every task of this run: {failures[0]}")
        if tried and self._without_right.issuperset(tried) and self._config.stop_on_canaries:
            raise RGEnvError(
                f"{PREFIX}.stop_on_canaries: no task of this run scores the answers that its own items store"
            )
        self._responses_per_step = responses_per_step

    async def _try_task(self, task: str, items: Sequence[Item]) -> str:
        """Score the own answers of some items, and those of the others; a task that fails is said and left out.

        Returns:
            what failed if no item got a score from the scorer; else empty.
        """
        failed = []
        unscored = 0
        for item in items:
            own = reference_answer(item.entry)
            self._remember(item.task, own)
            scored = await self._score(Canary(item, self._bare(own), own, is_right=True))
            if scored is None or self._is_solved(scored):
                continue
            failed.append(_sentence(item, own, scored, is_right=True))
            if scored.status.is_scorer_failure:
                unscored += 1
        # If only some fail, it may be the verifier and not the task: then the canaries of the run say so.
        if len(failed) == len(items):
            self._without_right.add(task)
            self._without_wrong.add(task)
            logger.warning("{}, so canaries leave {} out", failed[0], task)
            return failed[0] if unscored == len(items) else ""
        if failed:
            logger.warning("canary: {}: the verifier is wrong", failed[0])
        for item in items:
            other = self._other_answer(item)
            if other is None or task in self._without_wrong:
                continue
            scored = await self._score(Canary(item, self._bare(other), other, is_right=False))
            if scored is not None and self._is_solved(scored):
                self._without_wrong.add(task)
                sentence = _sentence(item, other, scored, is_right=False)
                logger.warning("{}, so {} has no wrong canaries", sentence, task)
        return ""

    def _bare(self, answer: str) -> str:
        return _with_answer("I know it.", answer, self._config) or ""

    # -------------------------------------------------------------------------------------------------- during a step
    async def accompany[T](self, item: Item, text: str, step: Callable[[], Awaitable[T]]) -> T:
        """Score a response of training with `step`, and a canary beside it if one is due."""
        canary = self._next(item, text) if self._responses_per_step else None
        if canary is None:
            return await step()
        # Both are in the queue at once. Awaited here, so that all canaries of a step are scored when its groups are.
        task = asyncio.create_task(self._try(canary))
        try:
            return await step()
        finally:
            await task

    def _next(self, item: Item, text: str) -> Canary | None:
        """Return the canary that goes beside this response; None if none is due, or none can be made of it."""
        # One that could not be made of a response is made of the next, but never more than one beside a response.
        self._owed = min(self._owed + _OF_STEP, 2 * self._responses_per_step)
        own = reference_answer(item.entry)
        if own:
            self._remember(item.task, own)
        if self._owed < self._responses_per_step:
            return None
        wrong, right = self._sent
        kinds = (True, False) if right <= wrong else (False, True)
        for is_right in kinds:
            canary = self._make(item, text, own, is_right=is_right)
            if canary is not None:
                self._owed -= self._responses_per_step
                self._sent[is_right] += 1
                return canary
        return None

    def _make(self, item: Item, text: str, own: str, *, is_right: bool) -> Canary | None:
        without = self._without_right if is_right else self._without_wrong
        if not own or item.task in without:
            return None
        answer = own if is_right else self._other_answer(item)
        if answer is None:
            return None
        changed = _with_answer(text, answer, self._config)
        return None if changed is None else Canary(item, changed, answer, is_right)

    def _remember(self, task: str, answer: str) -> None:
        answers = self._answers[task]
        if answer not in answers:
            answers.append(answer)

    def _other_answer(self, item: Item) -> str | None:
        """Return the last answer of another item of the task; None if all may be right for this one."""
        for answer in reversed(self._answers[item.task]):
            if not _may_be_right(answer, item.entry):
                return answer
        return None

    async def _try(self, canary: Canary) -> None:
        """Score a canary, count it, and say what is wrong."""
        scored = await self._score(canary)
        if scored is None:
            return
        self._step.scored += 1
        passed = self._is_solved(scored) == canary.is_right
        if self._log is not None:
            sentence = _sentence(canary.item, canary.answer, scored, is_right=canary.is_right)
            self._log.log_canary(sentence, passed=passed)
        if passed:
            return
        if canary.is_right:
            self._step.right_unsolved += 1
        else:
            self._step.wrong_solved += 1
        if self._step.failures <= _WARNINGS:
            sentence = _sentence(canary.item, canary.answer, scored, is_right=canary.is_right)
            logger.warning("canary: {}: the verifier is wrong", sentence)

    async def _score(self, canary: Canary) -> AnswerScore | None:
        """Return the score; None if the machine had no CPU time for it, or no scorer could be started."""
        try:
            verdict = await self._judge.score(canary.item, canary.text)
        except RGEnvError:  # the response beside it meets the same, and ends the run
            return None
        scored = verdict.scored
        return None if scored.had_no_core else scored

    def _is_solved(self, scored: AnswerScore) -> bool:
        return scored.score >= self._config.solved_at

    # ------------------------------------------------------------------------------------------------- after a step
    def end_step(self) -> CanaryCounts:
        """Return the counts of the step that has just ended."""
        counts, self._step = self._step, CanaryCounts()
        self._last_steps.append(counts)
        self._total.add(counts)
        return counts

    def line(self) -> str:
        """One line about the canaries so far; empty if there was none."""
        total = self._total
        if not total.scored:
            return ""
        if not total.failures:
            return f"{counted(total.scored, 'answer')} of known score, all as they should be"
        kinds = []
        if total.right_unsolved:
            kinds.append(f"{total.right_unsolved:,} right ones not solved")
        if total.wrong_solved:
            kinds.append(f"{total.wrong_solved:,} wrong ones solved")
        return f"the verifier is wrong about {total.failures:,} of {total.scored:,} known answers: {', '.join(kinds)}"

    @property
    def has_failures(self) -> bool:
        return self._total.failures > 0

    def stop_if_wrong(self) -> None:
        """End the run if the setting says so, and too many canaries of the last steps failed.

        Raises:
            RGEnvError: they did.
        """
        if not self._config.stop_on_canaries or len(self._last_steps) < _STEPS:
            return
        window = CanaryCounts()
        for counts in self._last_steps:
            window.add(counts)
        if window.failures > _MOST_FAILURES * window.scored:
            raise RGEnvError(
                f"the verifier is wrong about {rate(window.failures / window.scored)} of the known answers of the last "
                f"{_STEPS} steps, and {PREFIX}.stop_on_canaries is true; the log names them"
            )


def first_items(rows: Any) -> dict[str, list[Item]]:
    """Return the first items of each task of a training set.

    Args:
        rows: our dataset, or one of SkyRL's, whose first rows are searched.
    """
    result: dict[str, list[Item]] = defaultdict(list)
    if isinstance(rows, ReasoningGymDataset):
        for item in rows.first_items(_TRIED_ITEMS):
            result[item.task].append(item)
        return result
    for index in range(min(len(rows), _TRIED_ROWS)):
        _, env_class, extras, _ = rows[index]
        if env_class != ENV_CLASS:
            continue
        item = Item.from_extra_info(extras.get("extra_info"))
        if len(result[item.task]) < _TRIED_ITEMS:
            result[item.task].append(item)
    return result


def _may_be_right(answer: str, entry: Mapping[str, Any]) -> bool:
    # Answers of a file may be written in several ways, and a question may have several.
    if SCORER_KEY in entry["metadata"]:
        return RightAnswers.of(entry).may_have(answer)
    return canonical(answer) == canonical(reference_answer(entry))


def _with_answer(text: str, answer: str, config: RGDumpConfig) -> str | None:
    """Return a response with another answer. One that violates the format becomes the thought of a well-formed one.

    Returns:
        None if the answer cannot be told from the rest, because it contains a tag.
    """
    parsed = parse_response(text, config.prefilled_think, format=config.format)
    if parsed.answer is not None and parsed.answer_span is not None:
        changed = text[: parsed.answer_span.start] + answer + text[parsed.answer_span.end :]
    else:
        opening = "" if config.prefilled_think else "<think>"
        changed = f"{opening}{_without_tags(text)}</think><answer>{answer}</answer>"
    again = parse_response(changed, config.prefilled_think, len(answer) or 1, config.format)
    return changed if again.answer == answer else None


def _without_tags(text: str) -> str:
    parts, end = [], 0
    for span in tag_spans(text, ResponseFormat.LENIENT):
        parts.append(text[end : span.start])
        end = span.end
    return "".join([*parts, text[end:]])


def _sentence(item: Item, answer: str, scored: AnswerScore, *, is_right: bool) -> str:
    """`chain_sum-train-42-0: its own answer '7' scores 0 (ok)`."""
    whose = "its own answer" if is_right else "the answer of another item"
    shown = answer
    if len(answer) > _SHOWN:
        shown = f"{answer[: _SHOWN - 1]}…"
    detail = ""
    if scored.detail:
        detail = f", {scored.detail}"
    return f"{item.id}: {whose} {shown!r} scores {scored.score:g} ({scored.status}{detail})"
