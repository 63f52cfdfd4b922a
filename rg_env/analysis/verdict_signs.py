"""Signs that a verifier, or a reward, does not follow the answer: by task, with the step at which it begins.

Two responses to one question that give the same answer deserve the same score, and the item's own answer deserves the
full one. So no second scoring is needed to see most broken verifiers. Where a sign is a test, its p-value is that of
all comparisons that were made (`_ALPHA`).

Invariant: with a verifier that looks at nothing but item and answer, and rewards without a rule of the user's own,
`unrewarded`, `unequal` and `follows` are impossible, not just rare.
Not covered: a verifier that is wrong about every occurrence of an answer in the same way. evidence/signs.md has
what each sign found.
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

from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import GroupRecord, Phase, RolloutRecord
from rg_env.dump.schema import answered
from rg_env.rollouts.symptoms import phantom_cause
from rg_env.scoring.types import Status

UNREWARDED = "correct answer not rewarded"
UNEQUAL = "same answer, other score"
FOLLOWS = "reward follows the text"
PHANTOM = "phantom groups"
NAMES = (UNREWARDED, UNEQUAL, FOLLOWS, PHANTOM)

_ALPHA = 0.001
_ENOUGH = 3
"""Responses, and comparisons of two, that contradict the verifier. They are of at least two groups."""
_ENOUGH_STRATA = 10
_STRONG = 0.5
"""The correlation of reward and text from which it counts."""
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
        """Return whether it is strong and not due to chance, given how many properties were examined."""
        is_strong = abs(self.correlation) >= _STRONG and self.strata >= _ENOUGH_STRATA
        return is_strong and self.p * tests < _ALPHA


@dataclass
class TaskFacts:
    """What was seen of one task."""

    unrewarded: Contradictions = field(default_factory=Contradictions)
    unequal: Contradictions = field(default_factory=Contradictions)
    length: Association = field(default_factory=Association)
    words: dict[str, Association] = field(default_factory=lambda: defaultdict(Association))
    followed: Contradictions = field(default_factory=Contradictions)
    """Strata with different rewards, of all."""
    phantoms: Contradictions = field(default_factory=Contradictions)

    def note(self, group: GroupRecord, config: RGDumpConfig, reference: str | None) -> None:
        """Note what a group shows, whose right answer is `reference`, if that is known."""
        scored = [rollout for rollout in answered(group.rollouts) if rollout.status is Status.OK and not rollout.masked]
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

    def _note_reference(
        self, group: GroupRecord, scored: Sequence[RolloutRecord], reference: str | None, solved_at: float
    ) -> None:
        if not reference:
            return
        # To the letter: what is equal but for case or spaces may be wrong.
        right = unrewarded = 0
        for rollout in scored:
            if rollout.answer.strip() == reference.strip():
                right += 1
                if rollout.base_score < solved_at:
                    unrewarded += 1
        self.unrewarded.count(group, seen=unrewarded, of=right)

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


# ---------------------------------------------------------------------------------------------------------- the signs
def verdict_signs(tasks: dict[str, TaskFacts]) -> Iterator[tuple[str, Reading]]:
    """Yield what the signs say of each task, by its name."""
    for name in sorted(tasks):
        facts = tasks[name]
        readings = (
            unrewarded(facts),
            unequal(facts),
            follows(facts, tests=len(tasks)),
            phantoms(facts),
        )
        for reading in readings:
            if reading is not None:
                yield name, reading


def unrewarded(facts: TaskFacts) -> Reading | None:
    """Find answers that are the item's own, to the letter, and are not solved."""
    return facts.unrewarded.reading(UNREWARDED, "responses that give the item's own answer were not solved")


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


def phantoms(facts: TaskFacts) -> Reading | None:
    """Most of the groups that have a gradient have no solved response (`rg_env.rollouts.symptoms`)."""
    seen = facts.phantoms
    if seen.number < _ENOUGH_PHANTOMS or seen.number <= _PHANTOM_SHARE * seen.of:
        return None
    return seen.reading(PHANTOM, "groups with a gradient have no solved response")


# -------------------------------------------------------------------------------------------------------- statistics
def _two_sided(z: float) -> float:
    return math.erfc(abs(z) / math.sqrt(2))
