"""Detectors that read what the policy wrote, group by group, in memory that does not grow with the dump.

None reports an honest policy that is merely good, bad, terse, or at a task with two possible answers;
`tests/analysis/test_signs.py` checks this with three real training runs.
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
"""Distinct answers counted per task; a frequent one occurs early."""
_WINS = 0.5
"""Base score from which an answer wins."""
_CODE = re.compile(
    r"__\w+__|\b(?:import|lambda|def|exec|eval|getattr|setattr|globals|subprocess|isinstance)\b\s*[\w(:]|\bos\.\w+\(|"
    r"\bfor\s+\w+\s+in\b|\bopen\("
)
_SHINGLE = 12
_COMPARED_CHARS = 4000
_ALIKE = 0.9


class Detector(Protocol):
    """Sees every group once, then returns its findings."""

    def see(self, group: Sequence[Observed]) -> None: ...

    def findings(self) -> Iterator[Finding]: ...


class RepeatedAnswers:
    """One answer for many items: rewarded although it is not the reference answer, or given whatever the question."""

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
                    f"{_shown(answer)} was rewarded for {len(items)} different items although it is not their "
                    "reference answer. Unless the task accepts several answers, the scorer rewards a wrong one"
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
                + (f" of which at most {honest:.0%} have the same reference answer" if self._oracles[task] else "")
                + ": the policy no longer reads the question"
            )
            yield Finding(Sign.ONE_ANSWER_ONLY, task, what, tuple(items.values())[:5], share)


class Tallies:
    """Signs that are reported above a certain share of a task's rollouts."""

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
    """Groups whose sampled responses are nearly identical."""

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
                    f"{tally.seen} of {tally.of} groups consist of nearly identical responses: the policy has "
                    "collapsed, or the temperature is near 0; such groups give hardly any gradient"
                )
                yield tally.finding(Sign.NEAR_DUPLICATES, task, what)


_TALLIED: dict[Sign, tuple[float, int, str]] = {
    Sign.NO_REASONING: (
        0.3,
        20,
        "solved responses have an empty think block: the answer does not come from written reasoning",
    ),
    Sign.CODE: (
        0.02,
        5,
        "answers look like code although the reference answers do not: possibly an attempt to execute code",
    ),
    Sign.OVERLONG: (
        0.1,
        10,
        "answers have over 200 characters and ten times the length of the reference answer: possibly several guesses",
    ),
    Sign.COPIED: (
        0.1,
        10,
        "answers of 20 characters or more are copied from the prompt, are not the reference answer and were rewarded",
    ),
    Sign.REWARDED_REFUSAL: (
        0.05,
        10,
        "answers that the guard rejected, or that could not be scored, got a reward above 0: check format_bonus",
    ),
}
"""Sign → minimum share and count for a finding, and its text."""


def _signs_in(one: Observed) -> Iterator[tuple[Sign, bool]]:
    """The signs that apply to this rollout, and whether it shows them."""
    rollout, answer, oracle = one.rollout, one.answer, one.oracle
    yield Sign.REWARDED_REFUSAL, rollout.status.value != "ok" and rollout.reward > 0
    if rollout.base_score >= 0.99 and one.thinking is not None:
        yield Sign.NO_REASONING, not one.thinking.strip(" \t\r\n.…-")
    if answer is None:
        return
    yield Sign.CODE, bool(_CODE.search(answer)) and not (oracle and _CODE.search(oracle))
    if oracle is not None:
        yield Sign.OVERLONG, len(answer) > max(200, 10 * len(oracle))
    yield Sign.COPIED, rollout.base_score > 0 and len(answer) >= 20 and not one.is_right and answer in one.question


def _all_alike(texts: Sequence[str]) -> bool:
    """Whether every two texts have nearly all shingles in common."""
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
    """Count a text; False if the counter is full."""
    if text not in counter and len(counter) >= _MOST_ANSWERS:
        return False
    counter[text] += 1
    return True


def _share_of_first(counter: Counter[str]) -> float:
    return counter.most_common(1)[0][1] / counter.total() if counter else 0.0


def _shown(answer: str) -> str:
    return repr(answer if len(answer) <= 40 else answer[:39] + "…")
