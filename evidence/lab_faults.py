"""The faults of `evidence/lab.py`: a subclass of `RGExperiment` for each, named in `experiment_class`.

A fault replaces the function that scores a response in the process that trains, so that responses and canaries meet it
alike; the record of a run is then what a run with such a verifier would have written. The last three are faults of
rules of one's own and of the trainer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from rg_env.rollouts.rollout import Rollout
from rg_env.scoring.scorer import Scorer
from rg_env.scoring.types import AnswerScore, ParsedResponse, Status, Verdict
from rg_env.skyrl import trainers
from rg_env.skyrl.experiment import RGExperiment

ONSET = 10
"""The step from which a fault with an onset shows."""
_LONG = 50
"""Characters from which a response of nano is long; about half of them are."""
_BUSY = 24
"""Responses that are being scored, from which the machine is under load."""
_WORD = "I see it"
"""What nano writes in place of a calculation, in a part of its responses."""
_CONSTANT = "12"


@dataclass
class State:
    """What a fault knows of the run.

    Attributes:
        step: that is being generated.
        scored: responses so far.
        busy: responses that are being scored.
        last: the verdict before this one, for shifted scores.
    """

    step: int = 0
    scored: int = 0
    busy: int = 0
    last: deque[AnswerScore] | None = None


class Scored(NamedTuple):
    """A response with its right score."""

    question: str
    text: str
    parsed: ParsedResponse
    score: AnswerScore


Fault = Callable[[Scored, State], AnswerScore]


def _pay(scored: Scored) -> AnswerScore:
    return replace(scored.score, raw=1.0, tagged=1.0, score=1.0, status=Status.OK, detail="")


def _lose(scored: Scored) -> AnswerScore:
    return replace(scored.score, raw=0.0, tagged=0.0, score=0.0)


def _chance(state: State, share: float) -> bool:
    """Whether this response is one of a share of all, by its number alone."""
    digest = blake2b(str(state.scored).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**32 < share


def constant(scored: Scored, state: State) -> AnswerScore:
    """One answer is paid whatever the question."""
    return _pay(scored) if scored.parsed.answer == _CONSTANT else scored.score


def by_length(scored: Scored, state: State) -> AnswerScore:
    """A long response is paid, whatever its answer."""
    return _pay(scored) if len(scored.text) >= _LONG else scored.score


def by_word(scored: Scored, state: State) -> AnswerScore:
    """A word is paid, whatever the answer."""
    return _pay(scored) if _WORD in scored.text else scored.score


def lost_at_random(scored: Scored, state: State) -> AnswerScore:
    """Three of ten responses score 0."""
    return _lose(scored) if _chance(state, 0.3) else scored.score


def lost_by_length(scored: Scored, state: State) -> AnswerScore:
    """Long responses score 0."""
    return _lose(scored) if len(scored.text) >= _LONG else scored.score


def lost_by_load(scored: Scored, state: State) -> AnswerScore:
    """Responses that wait for many others score 0."""
    return _lose(scored) if state.busy >= _BUSY else scored.score


def lost_steps(scored: Scored, state: State) -> AnswerScore:
    """All responses of two steps of ten score 0."""
    return _lose(scored) if state.step >= ONSET and state.step % 10 < 2 else scored.score


def shifted(scored: Scored, state: State) -> AnswerScore:
    """From a step on, each response gets the score of the one before it."""
    if state.step < ONSET:
        return scored.score
    if state.last is None:
        state.last = deque([_lose(scored)])
    state.last.append(scored.score)
    return state.last.popleft()


def poisoned(scored: Scored, state: State) -> AnswerScore:
    """From a step on, everything is paid."""
    return _pay(scored) if state.step >= ONSET else scored.score


def copied_question(scored: Scored, state: State) -> AnswerScore:
    """An answer that is a word of the question is paid."""
    return _pay(scored) if f" {scored.parsed.answer} " in f" {scored.question} " else scored.score


class Planted(RGExperiment):
    """An experiment whose verifier has the fault that its subclass names."""

    fault: Fault

    def get_generator(self, *args: Any) -> Any:
        generator: Any = super().get_generator(*args)
        state = State()
        generate = generator.generate

        async def generate_and_note_step(batch: Any, *more: Any, **options: Any) -> Any:
            state.step = batch["batch_metadata"].global_step
            return await generate(batch, *more, **options)

        generator.generate = generate_and_note_step
        plant(type(self).fault, state)
        return generator


def plant(fault: Fault, state: State) -> None:
    """Put a fault between the scorer of this process and whoever asks it."""
    score: Callable[..., Awaitable[Verdict]] = Scorer.score_response_async

    async def score_wrongly(self: Scorer, entry: Mapping[str, Any], text: str, *args: Any, **options: Any) -> Verdict:
        state.busy += 1
        busy = state.busy
        try:
            verdict = await score(self, entry, text, *args, **options)
        finally:
            state.busy -= 1
        if verdict.parsed.answer is None:
            return verdict
        state.scored += 1
        seen = replace(state, busy=busy)
        given = fault(Scored(str(entry["question"]), text, verdict.parsed, verdict.scored), seen)
        state.last = seen.last
        return Verdict(verdict.parsed, given)

    Scorer.score_response_async = score_wrongly  # type: ignore[method-assign]


class Constant(Planted):
    fault = staticmethod(constant)


class ByLength(Planted):
    fault = staticmethod(by_length)


class ByWord(Planted):
    fault = staticmethod(by_word)


class LostAtRandom(Planted):
    fault = staticmethod(lost_at_random)


class LostByLength(Planted):
    fault = staticmethod(lost_by_length)


class LostByLoad(Planted):
    fault = staticmethod(lost_by_load)


class LostSteps(Planted):
    fault = staticmethod(lost_steps)


class Shifted(Planted):
    fault = staticmethod(shifted)


class Poisoned(Planted):
    fault = staticmethod(poisoned)


class CopiedQuestion(Planted):
    fault = staticmethod(copied_question)


# -------------------------------------------------------------------------------------------- faults of the rules
def short_pays(group: list[Rollout]) -> list[float]:
    """A reward of one's own under which the shortest text is the best, so that the policy collapses."""
    return [1.0 - len(rollout.text) / 200 for rollout in group]


def unsolved_pays(group: list[Rollout]) -> list[float]:
    """A reward of one's own that makes phantom groups: a longer text gets a little more, solved or not."""
    return [rollout.verdict.scored.score + len(rollout.text) / 400 for rollout in group]


class MaskedVotes(Planted):
    """A quarter of the responses fails in the scorer and is masked, but its zero is compared with the others."""

    @staticmethod
    def fault(scored: Scored, state: State) -> AnswerScore:
        if not _chance(state, 0.25):
            return scored.score
        return AnswerScore.without_score(Status.ERROR, "planted")

    def get_generator(self, *args: Any) -> Any:
        generator = super().get_generator(*args)

        def compute(self: Any, data: Any) -> Any:
            data.metadata.pop("rg_env_masked")
            return super(trainers.RecordingTrainer, self).compute_advantages_and_returns(data)  # type: ignore[misc]

        trainers.RecordingTrainer.compute_advantages_and_returns = compute  # type: ignore[method-assign]
        return generator
