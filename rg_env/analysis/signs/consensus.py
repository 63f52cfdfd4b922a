"""Items on which models agree on an answer that scores low: either all are wrong, or the stored answer or scorer is.

Invariant: each model has one vote per item, for the answer that more than half of its answered samples give; a later
group of the same model and item replaces the vote. With a single model, three quarters of its samples have to agree, in
a task that it mostly solves, because a weak policy repeats its own mistakes; a good one does so, too, so that this is
something to read and no sign of a fault. Answers are compared without case and
whitespace, and numbers by value. Memory grows with the number of items, not with texts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rg_env.analysis.signs.findings import Agreement, Finding, Sign
from rg_env.analysis.signs.observed import Observed
from rg_env.dump import Run
from rg_env.scoring.same_answer import normal_form

_RIGHT = 0.99
_SAMPLES = 4
"""Fewest answers of a single model."""
_UNANIMOUS = 0.75
_MOSTLY_SOLVED = 0.5
_SHOWN = 5
_LONGEST = 200
"""Characters of an answer that are kept."""


@dataclass(slots=True)
class _Vote:
    """The vote of a model on an item: `answer` is None if its samples disagree or its answer scored well."""

    group_id: str
    answer: str | None
    text: str
    agree: int
    of: int
    score: float


class Consensus:
    """Sees every group, then returns one finding per task.

    Args:
        runs: runs without a known model count as models.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self._models = {run.run_id: run.model for run in runs if run.model}
        self._votes: dict[tuple[str, str], dict[str, _Vote]] = defaultdict(dict)
        self._solved: dict[str, Counter[bool]] = defaultdict(Counter)

    def see(self, group: Sequence[Observed]) -> None:
        first = group[0].group
        answers = [(normal_form(one.answer), one) for one in group if one.answer is not None]
        if not first.item or not answers:
            return
        self._solved[first.task].update(one.rollout.base_score >= _RIGHT for _, one in answers)
        answer, agree = Counter(form for form, _ in answers).most_common(1)[0]
        mine = [one for form, one in answers if form == answer]
        score = max(one.rollout.base_score for one in mine)
        low = 2 * agree > len(answers) and score < _RIGHT
        model = self._models.get(first.run_id, first.run_id)
        self._votes[first.task, first.item][model] = _Vote(
            first.group_id, answer if low else None, (mine[0].answer or "")[:_LONGEST], agree, len(answers), score
        )

    @property
    def several(self) -> bool:
        """Whether there are several models to agree."""
        return len({model for votes in self._votes.values() for model in votes}) > 1

    def findings(self) -> Iterator[Finding]:
        found: dict[str, list[Agreement]] = defaultdict(list)
        items: Counter[str] = Counter()
        several = self.several
        for (task, item), votes in self._votes.items():
            items[task] += 1
            if agreement := _among_models(item, votes) if several else self._among_samples(task, item, votes):
                found[task].append(agreement)
        for task, agreements in found.items():
            agreements.sort(key=lambda one: (-one.agree / one.of, -one.agree, one.item))
            who = "the models" if several else "most samples"
            what = (
                f"on {len(agreements)} of {items[task]} items, {who} agree on an answer that scores below {_RIGHT}: "
                "either all are wrong, or the stored answer or the scorer is"
            )
            groups = tuple(one.groups[0] for one in agreements[:_SHOWN])
            yield Finding(Sign.CONSENSUS, task, what, groups, len(agreements) / items[task], tuple(agreements))

    def _among_samples(self, task: str, item: str, votes: dict[str, _Vote]) -> Agreement | None:
        solved = self._solved[task]
        (vote,) = votes.values()
        if vote.answer is None or vote.of < _SAMPLES or vote.agree < _UNANIMOUS * vote.of:
            return None
        if solved[True] < _MOSTLY_SOLVED * solved.total():
            return None
        return Agreement(item, vote.text, vote.agree, vote.of, vote.score, (vote.group_id,))


def _among_models(item: str, votes: dict[str, _Vote]) -> Agreement | None:
    """An answer of at least two models, and of more than half of those that answered the item."""
    counts = Counter(vote.answer for vote in votes.values() if vote.answer is not None)
    if not counts:
        return None
    answer, agree = counts.most_common(1)[0]
    if agree < 2 or 2 * agree <= len(votes):
        return None
    mine = [vote for vote in votes.values() if vote.answer == answer]
    score = max(vote.score for vote in mine)
    return Agreement(item, mine[0].text, agree, len(votes), score, tuple(vote.group_id for vote in mine))
