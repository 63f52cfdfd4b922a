"""Signs of reward hacking in recorded rollouts.

Invariant: a finding concerns one task, states the counts and the groups that it is based on, and is never based on a
single rollout. docs/evidence/attacks.md has the rate of false alarms.
Not covered: trends over steps, and policies that give up or repeat themselves: those are bad, but no reward is hacked.
Memory grows with the number of different wrong answers that were rewarded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from rg_env.config import RGDumpConfig
from rg_env.dump import Dump, GroupRecord, Phase
from rg_env.dump.schema import answered
from rg_env.scoring import parse_response
from rg_env.scoring.parse import canonical

NAMES = ("one answer wins", "no reasoning")
_ENOUGH_ITEMS = 10
_WINS = 0.5
"""Base score from which an answer wins."""
_RIGHT = 0.99
_ENOUGH_EMPTY, _EMPTY_SHARE = 20, 0.3
"""The smallest number, and share of a task's solved responses with a think block, of empty ones to report."""
_EVIDENCE = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One sign in one task: what was seen and may mean, ids of up to five groups, the share of rollouts."""

    sign: str
    task: str
    what: str
    groups: tuple[str, ...]
    share: float


@dataclass
class Examined:
    """The findings by task, and how many responses, answers, think blocks and reference answers they are based on."""

    responses: int = 0
    answers: int = 0
    think_blocks: int = 0
    references: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass
class _Seen:
    """What was seen of one task: ids of groups by item for each wrong answer that won, and think blocks."""

    won: dict[str, dict[str, str]] = field(default_factory=dict)
    think: Counter[bool] = field(default_factory=Counter)
    empty: dict[str, None] = field(default_factory=dict)


@dataclass
class _Phase:
    """What was seen of one phase."""

    result: Examined = field(default_factory=Examined)
    tasks: defaultdict[str, _Seen] = field(default_factory=lambda: defaultdict(_Seen))


def find_signs(dump: Dump) -> Examined:
    """Look for signs in the responses of the train phase; where the dump, or what its conditions leave of it, has only
    evaluations, in those. Errors as `Dump.groups`.
    """
    phases = {Phase.TRAIN: _Phase(), Phase.EVAL: _Phase()}
    for group in dump.groups():
        _examine(group, dump.settings_for(group), phases[group.phase])
    train = phases[Phase.TRAIN]
    examined = train if train.result.responses else phases[Phase.EVAL]
    for task in sorted(examined.tasks):
        examined.result.findings.extend(_findings(task, examined.tasks[task]))
    return examined.result


def _examine(group: GroupRecord, config: RGDumpConfig, phase: _Phase) -> None:
    """Note what the responses of a group show."""
    result, seen = phase.result, phase.tasks[group.task]
    reference = group.expected_answer
    for rollout in answered(group.rollouts):
        if not rollout.conversation:
            continue
        parsed = parse_response(rollout.response, config.prefilled_think, format=config.format)
        answer = (rollout.answer or parsed.answer or "").strip()
        result.responses += 1
        if answer:
            result.answers += 1
        if parsed.think is not None:
            result.think_blocks += 1
        if reference is not None:
            result.references += 1
        if answer and reference is not None and rollout.base_score >= _WINS:
            # The reference answer in another notation is not wrong. Items beyond enough would only take memory.
            is_wrong = canonical(answer) != canonical(reference)
            if is_wrong and len(seen.won.get(answer, ())) < _ENOUGH_ITEMS:
                seen.won.setdefault(answer, {}).setdefault(group.item, group.group_id)
        if parsed.think is not None and rollout.base_score >= _RIGHT:
            # Dots and dashes are no reasoning.
            is_empty = not parsed.think.strip(" \t\r\n.…-")
            seen.think[is_empty] += 1
            if is_empty and len(seen.empty) < _EVIDENCE:
                seen.empty[group.group_id] = None


def _findings(task: str, seen: _Seen) -> Iterator[Finding]:
    for answer, items in seen.won.items():
        if len(items) >= _ENOUGH_ITEMS:
            shown = repr(answer if len(answer) <= 40 else answer[:39] + "…")
            what = (
                f"{shown} was rewarded for {len(items)} or more items although it is not their reference answer. "
                "Unless the task accepts several answers, the scorer rewards a wrong one"
            )
            yield Finding(NAMES[0], task, what, tuple(items.values())[:_EVIDENCE], 1.0)
    count, of = seen.think[True], seen.think.total()
    if count >= _ENOUGH_EMPTY and count >= _EMPTY_SHARE * of:
        why = "solved responses have an empty think block: the answer does not come from written reasoning"
        yield Finding(NAMES[1], task, f"{count} of {of} {why}", tuple(seen.empty), count / of)
