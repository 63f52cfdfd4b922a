"""Signs that a verifier, or a reward, does not follow the answer: by task, with the step at which it begins.

Two responses to one question that give the same answer deserve the same score, and the item's own answer deserves the
full one. So no second scoring is needed to see most broken verifiers. Where a sign is a test, its p-value is that of
all comparisons that were made (`_ALPHA`).

Invariant: with a verifier that looks at nothing but item and answer, and rewards without a rule of one's own, `unpaid`,
`unequal` and `follows` are impossible, not just rare.
Not covered: a verifier that is wrong about every occurrence of an answer in the same way. evidence/signs.md has
what each sign found.
`jump` and `partial_alone` compare the steps of one run, so of several at once they say nothing.
Memory grows with the number of groups, and with the words of those responses whose rewards differ although their
answers are equal.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rg_env.config import RGDumpConfig
from rg_env.dump import GroupRecord, Phase, RolloutRecord
from rg_env.dump.schema import answered
from rg_env.scoring.types import Status
from rg_env.symptoms import phantom_cause

UNPAID = "right answer unpaid"
UNEQUAL = "same answer, other score"
FOLLOWS = "reward follows the text"
JUMP = "solve rate jumps"
PARTIAL = "only partial credit rises"
PHANTOM = "phantom groups"
NAMES = (UNPAID, UNEQUAL, FOLLOWS, JUMP, PARTIAL, PHANTOM)

_ALPHA = 0.001
_ENOUGH = 3
"""Responses, and comparisons of two, that contradict the verifier. They are of at least two groups."""
_ENOUGH_STRATA = 10
_STRONG = 0.5
"""The correlation of reward and text from which it counts."""
_WINDOW = 3
"""Steps before and after a jump."""
_JUMP, _STILL = 0.75, 0.15
"""The share of what was unsolved that is solved after a jump, or the other way round, at least; and what the solve rate
of the other tasks changes by, at most."""
_LEAST_JUMP = 0.3
"""What the solve rate changes by in a jump, at least."""
_RISE = 0.15
"""What the partial credit of unsolved responses rises by, from the first quarter of the steps to the last."""
_STEPS_OF_TREND = 8
_ENOUGH_PHANTOMS, _PHANTOM_SHARE = 20, 0.5
"""The smallest number of phantom groups, and share of the groups that have a gradient."""
_ROUNDING = 1e-9
_EVIDENCE = 5
_WORD = re.compile(r"[a-z]{3,}")


class Reading(NamedTuple):
    """What a sign says of a task.

    Attributes:
        share: of the responses or comparisons in which the sign could show.
        step: the first that shows it; None outside of training.
        p: the p-value, corrected for the number of tests; None where a count speaks for itself.
        groups: ids of some that show it.
    """

    sign: str
    what: str
    share: float
    step: int | None
    p: float | None
    groups: tuple[str, ...]


@dataclass
class Contradictions:
    """How often something impossible was seen, of how many times it could have been."""

    number: int = 0
    of: int = 0
    steps: set[int] = field(default_factory=set)
    groups: dict[str, None] = field(default_factory=dict)

    def count(self, group: GroupRecord, *, seen: int, of: int) -> None:
        self.of += of
        if not seen:
            return
        self.number += seen
        self.groups[group.group_id] = None
        if group.step is not None:
            self.steps.add(group.step)

    def reading(self, sign: str, what: str) -> Reading | None:
        """None unless there are enough, in more than one group."""
        if self.number < _ENOUGH or len(self.groups) < 2:
            return None
        shown = f"{self.number:,} of {self.of:,} {what}"
        groups = tuple(self.groups)[:_EVIDENCE]
        return Reading(sign, shown, self.number / self.of, min(self.steps, default=None), None, groups)


@dataclass
class Association:
    """Whether rewards follow a property of the text, among responses that give the same answer to the same question.

    If they do not, each order of the rewards within such a stratum is as likely as any other. So the sum of products
    has mean 0 and variance `variance`, which is exact; that it is normal holds for many strata.
    """

    products: float = 0.0
    variance: float = 0.0
    of_rewards: float = 0.0
    of_values: float = 0.0
    strata: int = 0

    def add(self, values: Sequence[float], rewards: Sequence[float]) -> None:
        """Add a stratum of at least two responses."""
        count = len(values)
        value_mean, reward_mean = sum(values) / count, sum(rewards) / count
        spread = sum((value - value_mean) ** 2 for value in values)
        reward_spread = sum((reward - reward_mean) ** 2 for reward in rewards)
        if not spread or not reward_spread:
            return
        pairs = zip(values, rewards, strict=True)
        self.products += sum((value - value_mean) * (reward - reward_mean) for value, reward in pairs)
        self.variance += spread * reward_spread / (count - 1)
        self.of_values += spread
        self.of_rewards += reward_spread
        self.strata += 1

    @property
    def correlation(self) -> float:
        total = self.of_values * self.of_rewards
        if not total:
            return 0.0
        return self.products / math.sqrt(total)

    @property
    def p(self) -> float:
        if not self.variance:
            return 1.0
        return _two_sided(self.products / math.sqrt(self.variance))

    def is_found(self, tests: int) -> bool:
        """Return whether it is strong and no chance, if so many properties were looked at."""
        is_strong = abs(self.correlation) >= _STRONG and self.strata >= _ENOUGH_STRATA
        return is_strong and self.p * tests < _ALPHA


@dataclass
class StepFacts:
    """One step of a task: the solve rate of the groups of each question, by its id, and the partial credit of unsolved
    responses."""

    solve_rates: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    partial: float = 0.0
    unsolved: int = 0


@dataclass
class TaskFacts:
    """What was seen of one task."""

    unpaid: Contradictions = field(default_factory=Contradictions)
    unequal: Contradictions = field(default_factory=Contradictions)
    length: Association = field(default_factory=Association)
    words: dict[str, Association] = field(default_factory=lambda: defaultdict(Association))
    followed: Contradictions = field(default_factory=Contradictions)
    """Strata with different rewards, of all."""
    phantoms: Contradictions = field(default_factory=Contradictions)
    steps: dict[int, StepFacts] = field(default_factory=lambda: defaultdict(StepFacts))
    runs: set[str] = field(default_factory=set)

    def note(self, group: GroupRecord, config: RGDumpConfig, reference: str | None) -> None:
        """Note what a group shows, whose right answer is `reference`, if that is known."""
        scored = [rollout for rollout in answered(group.rollouts) if rollout.status is Status.OK and not rollout.masked]
        self.runs.add(group.run_id)
        self._note_reference(group, scored, reference, config.solved_at)
        # Nothing is learned from an evaluation.
        if group.phase is Phase.TRAIN and not group.no_signal:
            self.phantoms.count(group, seen=int(bool(phantom_cause(group, config))), of=1)
        strata = defaultdict[tuple[str, str], list[RolloutRecord]](list)
        for rollout in scored:
            strata[rollout.answer.strip(), rollout.violation].append(rollout)
        for (answer, _), rollouts in strata.items():
            if len(rollouts) > 1:
                self._note_stratum(group, rollouts, has_answer=bool(answer))
        if group.step is not None and scored:
            self._note_step(self.steps[group.step], group, scored, config.solved_at)

    def _note_reference(
        self, group: GroupRecord, scored: Sequence[RolloutRecord], reference: str | None, solved_at: float
    ) -> None:
        if not reference:
            return
        # To the letter: what is equal but for case or spaces may be wrong.
        right = unpaid = 0
        for rollout in scored:
            if rollout.answer.strip() == reference.strip():
                right += 1
                if rollout.base_score < solved_at:
                    unpaid += 1
        self.unpaid.count(group, seen=unpaid, of=right)

    def _note_stratum(self, group: GroupRecord, rollouts: Sequence[RolloutRecord], *, has_answer: bool) -> None:
        """Compare responses that give the same answer to the same question, or break the format in the same way."""
        scores = [rollout.base_score for rollout in rollouts]
        if has_answer:
            commonest = Counter(scores).most_common(1)[0][1]
            self.unequal.count(group, seen=len(scores) - commonest, of=len(scores) - 1)
        # A penalty follows the length by design.
        if any(rollout.penalty_factor != 1 for rollout in rollouts):
            return
        rewards = [rollout.reward for rollout in rollouts]
        differs = max(rewards) - min(rewards) > _ROUNDING
        self.followed.count(group, seen=int(differs), of=1)
        if differs:
            texts = [rollout.response for rollout in rollouts]
            self.length.add([float(len(text)) for text in texts], rewards)
            self._note_words(texts, rewards)

    def _note_words(self, texts: Sequence[str], rewards: Sequence[float]) -> None:
        words = [set(_WORD.findall(text.lower())) for text in texts]
        for word in set[str]().union(*words):
            has_word = [float(word in of_text) for of_text in words]
            self.words[word].add(has_word, rewards)

    def _note_step(
        self, facts: StepFacts, group: GroupRecord, scored: Sequence[RolloutRecord], solved_at: float
    ) -> None:
        unsolved = [rollout.base_score for rollout in scored if rollout.base_score < solved_at]
        question = group.item or group.uid or group.group_id
        facts.solve_rates[question].append(1 - len(unsolved) / len(scored))
        facts.partial += sum(unsolved)
        facts.unsolved += len(unsolved)


# ---------------------------------------------------------------------------------------------------------- the signs
def verdict_signs(tasks: dict[str, TaskFacts]) -> Iterator[tuple[str, Reading]]:
    """Yield what the signs say of each task, by its name."""
    for name in sorted(tasks):
        facts = tasks[name]
        others = [of_task for other, of_task in tasks.items() if other != name]
        readings = (
            unpaid(facts),
            unequal(facts),
            follows(facts, tests=len(tasks)),
            jump(facts, others),
            partial_alone(facts, tests=len(tasks)),
            phantoms(facts),
        )
        for reading in readings:
            if reading is not None:
                yield name, reading


def unpaid(facts: TaskFacts) -> Reading | None:
    """Find answers that are the item's own, to the letter, and are not solved."""
    return facts.unpaid.reading(UNPAID, "responses that give the item's own answer were not solved")


def unequal(facts: TaskFacts) -> Reading | None:
    """Find equal answers to the same question in one group that have different scores."""
    return facts.unequal.reading(UNEQUAL, "responses score otherwise than others that give the same answer")


def follows(facts: TaskFacts, tests: int) -> Reading | None:
    """Find rewards that differ with the length of the text, or with a word in it, while the answer is the same."""
    tests *= 1 + len(facts.words)
    properties = [("the length", facts.length)]
    for word, of_word in facts.words.items():
        properties.append((f"the word {word!r}", of_word))
    # Long texts have more words, so that several may tell the same: the strongest is named.
    properties.sort(key=lambda pair: -abs(pair[1].correlation))
    for name, association in properties:
        if association.is_found(tests):
            what = f"the answer is the same, and the reward follows {name} (correlation {association.correlation:.2f})"
            seen = facts.followed
            share, step = seen.number / seen.of, min(seen.steps, default=None)
            p = min(1.0, association.p * tests)
            return Reading(FOLLOWS, what, share, step, p, tuple(seen.groups)[:_EVIDENCE])
    return None


def jump(facts: TaskFacts, others: Sequence[TaskFacts]) -> Reading | None:
    """Find a solve rate that changes from one step to the next, while that of the other tasks stays."""
    if not others or len(facts.runs) > 1:
        return None
    steps = sorted(facts.steps)
    places = range(_WINDOW, len(steps) - _WINDOW + 1)
    tests = max(1, len(places)) * (1 + len(others))
    best: Reading | None = None
    for place in places:
        before, after = steps[place - _WINDOW : place], steps[place : place + _WINDOW]
        change, p = _change([facts], before, after)
        of_others, _ = _change(others, before, after)
        p = min(1.0, p * tests)
        # A policy that learns also moves its solve rate, but seldom by most of the way in three steps.
        rate = _mean(_rates([facts], before))
        way = 1 - rate if change > 0 else rate
        if abs(change) < max(_LEAST_JUMP, _JUMP * way) or abs(of_others) > _STILL or p >= _ALPHA:
            continue
        if best is None or abs(change) > best.share:
            what = f"the solve rate changed by {change:+.0%}, that of the other tasks by {of_others:+.0%}"
            best = Reading(JUMP, what, abs(change), after[0], p, ())
    return best


def partial_alone(facts: TaskFacts, tests: int) -> Reading | None:
    """Find partial credit of unsolved responses that rises while no more are solved."""
    steps = [step for step in sorted(facts.steps) if facts.steps[step].unsolved]
    if len(steps) < _STEPS_OF_TREND or len(facts.runs) > 1:
        return None
    partial = [facts.steps[step].partial / facts.steps[step].unsolved for step in steps]
    solved = [_mean(_rates([facts], [step])) for step in steps]
    quarter = len(steps) // 4
    first, last = _mean(partial[:quarter]), _mean(partial[-quarter:])
    has_risen = last - first >= _RISE
    solves_more = _mean(solved[-quarter:]) > _mean(solved[:quarter])
    p = min(1.0, _trend(partial) * tests)
    if not has_risen or solves_more or p >= _ALPHA:
        return None
    middle = (first + last) / 2
    onset = next(step for step, value in zip(steps, partial, strict=True) if value >= middle)
    what = f"the partial credit of unsolved responses rose from {first:.2f} to {last:.2f}, and no more are solved"
    return Reading(PARTIAL, what, last - first, onset, p, ())


def phantoms(facts: TaskFacts) -> Reading | None:
    """Most of the groups that have a gradient have no solved response (`rg_env.symptoms`)."""
    seen = facts.phantoms
    if seen.number < _ENOUGH_PHANTOMS or seen.number <= _PHANTOM_SHARE * seen.of:
        return None
    return seen.reading(PHANTOM, "groups with a gradient have no solved response")


# -------------------------------------------------------------------------------------------------------- statistics
def _change(tasks: Sequence[TaskFacts], before: Sequence[int], after: Sequence[int]) -> tuple[float, float]:
    """Return the change of the mean solve rate of questions between two sets of steps, and its p-value."""
    early = _rates(tasks, before)
    late = _rates(tasks, after)
    if not early or not late:
        return 0.0, 1.0
    change = _mean(late) - _mean(early)
    # Pooled over both, as if nothing had changed: then it is 0 only where all questions are equal.
    pooled = [*early, *late]
    mean = _mean(pooled)
    variance = sum((rate - mean) ** 2 for rate in pooled) / len(pooled)
    if not variance:
        return change, 1.0
    return change, _two_sided(change / math.sqrt(variance * (1 / len(early) + 1 / len(late))))


def _rates(tasks: Sequence[TaskFacts], steps: Sequence[int]) -> list[float]:
    """Return the solve rate of each question at these steps; a question in several groups is not several questions."""
    result: list[float] = []
    for facts in tasks:
        of_question = defaultdict[str, list[float]](list)
        for step in steps:
            if step not in facts.steps:
                continue
            for question, rates in facts.steps[step].solve_rates.items():
                of_question[question] += rates
        result += map(_mean, of_question.values())
    return result


def _trend(values: Sequence[float]) -> float:
    """Return the one-sided p-value of a rise by Mann and Kendall's test.

    >>> round(_trend([1, 2, 3, 4, 5, 6, 7, 8]), 4), round(_trend([3, 1, 2, 3, 1, 2, 3, 1]), 1)
    (0.0004, 0.7)
    """
    count, concordance = len(values), 0
    for place, value in enumerate(values):
        for later in values[place + 1 :]:
            concordance += (later > value) - (later < value)
    variance = count * (count - 1) * (2 * count + 5) / 18
    # By one toward 0: the statistic is a whole number, the normal distribution is not.
    return math.erfc((concordance - 1) / math.sqrt(2 * variance)) / 2


def _two_sided(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))


def _mean(values: Sequence[float]) -> float:
    if not values:
        return 0.0
    return sum(values) / len(values)
