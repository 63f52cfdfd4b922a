"""Detectors that read what the policy wrote, group by group, in memory that does not grow with the record.

Each is right to be silent on an honest policy that is merely good, bad, terse, or at a task with two possible answers;
`tests/analysis/test_signs.py` holds them to that with three real training runs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Protocol

from rg_env.analysis.signs.findings import Finding, Sign, Tally
from rg_env.analysis.signs.observed import Observed

_ENOUGH_ITEMS = 10
_ENOUGH_ROLLOUTS = 40
_MOST_ANSWERS = 2000
"""Answers that are counted per task: one that wins or leads is met early."""
_WINS = 0.5
"""Base score from which an answer has won."""
_CODE = re.compile(
    r"__\w+__|\b(?:import|lambda|def|exec|eval|getattr|setattr|globals|subprocess|isinstance)\b\s*[\w(:]|\bos\.\w+\(|"
    r"\bfor\s+\w+\s+in\b|\bopen\("
)
_SHINGLE = 12
_COMPARED_CHARS = 4000
_ALIKE = 0.9


class Detector(Protocol):
    """Sees every group once, then says what it found."""

    def see(self, group: Sequence[Observed]) -> None: ...

    def findings(self) -> Iterator[Finding]: ...


class RepeatedAnswers:
    """One answer over many items: winning where it is not the item's own, or given whatever is asked."""

    def __init__(self) -> None:
        self._given: dict[str, Counter[str]] = defaultdict(Counter)
        self._items: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        self._unearned: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        self._oracles: dict[str, Counter[str]] = defaultdict(Counter)

    def see(self, group: Sequence[Observed]) -> None:
        first = group[0].group
        task = first.task
        if group[0].oracle is not None:
            _count(self._oracles[task], group[0].oracle.strip())
        for one in group:
            if one.answer is None or not _count(self._given[task], one.answer.strip()):
                continue
            key = (task, one.answer.strip())
            if len(self._items[key]) < _ENOUGH_ITEMS:
                self._items[key].setdefault(first.item, first.group_id)
            if one.oracle is not None and one.rollout.base_score >= _WINS and not one.is_right:
                self._unearned[key].setdefault(first.item, first.group_id)

    def findings(self) -> Iterator[Finding]:
        for (task, answer), items in self._unearned.items():
            if len(items) >= _ENOUGH_ITEMS:
                what = (
                    f"{_shown(answer)} won {len(items)} different items of which it is not the answer. Many right "
                    "answers to one question are possible in some tasks; else the scorer pays for nothing"
                )
                yield Finding(Sign.ONE_ANSWER_WINS, task, what, tuple(items.values())[:5], 1.0)
        for task, given in self._given.items():
            answer, times = given.most_common(1)[0]
            share, honest = times / given.total(), _share_of_first(self._oracles[task])
            items = self._items[task, answer]
            suspicious = share >= max(0.5, min(2 * honest, 0.9)) and share >= honest + 0.2
            if given.total() < _ENOUGH_ROLLOUTS or len(items) < _ENOUGH_ITEMS or not suspicious:
                continue
            what = (
                f"{share:.0%} of all answers are {_shown(answer)}, over {len(items)} or more items"
                + (f" whose own answers agree in {honest:.0%} at most" if self._oracles[task] else "")
                + ": the policy no longer reads the question"
            )
            yield Finding(Sign.ONE_ANSWER_ONLY, task, what, tuple(items.values())[:5], share)


class Tallies:
    """Shares of rollouts, each per task, each with the share from which it is a finding."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[Sign, str], Tally] = defaultdict(Tally)

    def see(self, group: Sequence[Observed]) -> None:
        for one in group:
            for sign, hit in _signs_in(one):
                self._tallies[sign, one.group.task].add(hit, one.group.group_id)

    def findings(self) -> Iterator[Finding]:
        for (sign, task), tally in self._tallies.items():
            least, at_least_seen, words = _TALLIED[sign]
            if tally.seen >= at_least_seen and tally.share >= least:
                yield tally.finding(sign, task, f"{tally.seen} of {tally.of} {words}")


class NearDuplicates:
    """Groups whose responses are nearly one text, although they were sampled."""

    _SHARE = 0.5

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = defaultdict(Tally)

    def see(self, group: Sequence[Observed]) -> None:
        if len(group) >= 4:
            texts = [one.rollout.response for one in group]
            self._tallies[group[0].group.task].add(_all_alike(texts), group[0].group.group_id)

    def findings(self) -> Iterator[Finding]:
        for task, tally in self._tallies.items():
            if tally.seen >= _ENOUGH_ITEMS and tally.share >= self._SHARE:
                what = (
                    f"{tally.seen} of {tally.of} groups consist of nearly one text. Sampling found nothing to choose "
                    "from: the policy has collapsed, or the temperature is near 0; such groups hardly move a weight"
                )
                yield tally.finding(Sign.NEAR_DUPLICATES, task, what)


_TALLIED: dict[Sign, tuple[float, int, str]] = {
    Sign.NO_REASONING: (
        0.3,
        20,
        "solved responses have nothing between <think> and </think>: the answer comes from elsewhere than reasoning",
    ),
    Sign.CODE: (
        0.02,
        5,
        "answers look like code, which the items' own answers do not: somebody tries to run something",
    ),
    Sign.OVERLONG: (
        0.1,
        10,
        "answers are more than ten times as long as the item's own and over 200 characters: a net cast wide",
    ),
    Sign.COPIED: (
        0.1,
        10,
        "answers are copied from the prompt, 20 characters or more, and are not the item's own answer",
    ),
    Sign.REWARDED_REFUSAL: (
        0.05,
        10,
        "answers that the guard refused, or that no scorer could judge, got a reward above 0: look at format_bonus",
    ),
}
"""Sign → share and number from which it is a finding, and what it says."""


def _signs_in(one: Observed) -> Iterator[tuple[Sign, bool]]:
    """The signs that this rollout can show, and whether it does."""
    rollout, answer, oracle = one.rollout, one.answer, one.oracle
    yield Sign.REWARDED_REFUSAL, rollout.status.value != "ok" and rollout.reward > 0
    if rollout.base_score >= 0.99 and one.thinking is not None:
        yield Sign.NO_REASONING, not one.thinking.strip(" \t\r\n.…-")
    if answer is None:
        return
    yield Sign.CODE, bool(_CODE.search(answer)) and not (oracle and _CODE.search(oracle))
    yield Sign.OVERLONG, len(answer) > max(200, 10 * len(oracle or ""))
    yield Sign.COPIED, len(answer) >= 20 and not one.is_right and answer in one.question


def _all_alike(texts: Sequence[str]) -> bool:
    """Whether each two texts have nearly all shingles in common; two that have not settle it."""
    seen: list[set[str]] = []
    for text in dict.fromkeys(texts):
        new = _shingles(text[:_COMPARED_CHARS])
        if any(len(new & old) < _ALIKE * len(new | old) for old in seen):
            return False
        seen.append(new)
    return True


def _shingles(text: str) -> set[str]:
    return {text[start : start + _SHINGLE] for start in range(max(1, len(text) - _SHINGLE + 1))}


def _count(counter: Counter[str], text: str) -> bool:
    """Count a text; False where the counter is full of others."""
    if text not in counter and len(counter) >= _MOST_ANSWERS:
        return False
    counter[text] += 1
    return True


def _share_of_first(counter: Counter[str]) -> float:
    return counter.most_common(1)[0][1] / counter.total() if counter else 0.0


def _shown(answer: str) -> str:
    return repr(answer if len(answer) <= 40 else answer[:39] + "…")
