"""Signs that a reward is hacked, or that its verifier is broken, in recorded rollouts.

Invariant: a sign concerns one task, or the run, states the counts that it is based on, and is never based on a
single rollout. evidence/attacks.md and evidence/signs.md have the rate of false alarms.
Memory grows with the number of different wrong answers that were rewarded, and as `verdict_signs` says.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rg_env.analysis import verdict_signs
from rg_env.analysis.rescore import question_of
from rg_env.analysis.second_scoring import SIGN as SECOND_SCORING
from rg_env.analysis.second_scoring import second_scoring
from rg_env.analysis.verdict_signs import Reading, TaskFacts
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Dump, GroupRecord, Phase
from rg_env.dump.schema import answered
from rg_env.rollouts.symptoms import CANARIES, CANARY_FAILURES, Steps, find_collapse, planned_steps, read_steps
from rg_env.scoring import parse_response
from rg_env.scoring.formatting import canonical
from rg_env.scoring.scorer import reference_answer

_ONE_WINS, _NO_REASONING = "one answer wins", "no reasoning"
_CANARIES, _COLLAPSE = "canaries fail", "collapse"


class Meaning(NamedTuple):
    """When a sign is reported, and what it cannot see."""

    shows: str
    blind: str


MEANINGS = {
    _ONE_WINS: Meaning(
        "one answer that is not the reference answer has a base score of .5 or more on 10 items",
        "an answer that is a little different each time",
    ),
    _NO_REASONING: Meaning(
        "30% or more (at least 20) of solved responses have an empty think block",
        "a think block with words that lead nowhere",
    ),
    verdict_signs.UNREWARDED: Meaning(
        "3 responses in two groups give the item's own answer, to the letter, and are not solved",
        "items that store no answer; right answers in another notation",
    ),
    verdict_signs.UNEQUAL: Meaning(
        "3 responses in two groups score differently from others in their group with the same answer",
        "a verifier that is wrong about an answer every time; groups whose answers all differ",
    ),
    verdict_signs.FOLLOWS: Meaning(
        "where answers are equal, the reward follows the length of the text or a word in it (permutation test)",
        "rewards with a length penalty, which follow the length by design",
    ),
    verdict_signs.PHANTOM: Meaning(
        "over half, and at least 20, of the groups with a gradient have no solved response",
        "what else a gradient of solved groups teaches",
    ),
    SECOND_SCORING: Meaning(
        "with `--rescore N`: 3 responses, in two of N groups, get a different base score when scored again",
        "a verifier that is wrong in the same way whenever it is asked",
    ),
    _CANARIES: Meaning(
        "during the run, the verifier was wrong about two answers whose score was known",
        "faults of rules and rewards, which canaries do not have; answers that no item has",
    ),
    _COLLAPSE: Meaning(
        "nine of ten responses are equal, or the format rate or the length is a fifth of what it was",
        "a policy that gives up in many words",
    ),
}
NAMES = tuple(MEANINGS)
WHOLE_RUN = "all tasks"
"""In place of a task, for signs of a whole run."""
_ENOUGH_ITEMS = 10
_WINS = 0.5
"""Base score from which an answer wins."""
_ENOUGH_EMPTY, _EMPTY_SHARE = 20, 0.3
"""The smallest number, and share of a task's solved responses with a think block, of empty ones to report."""
_ENOUGH_CANARIES = 2
_EVIDENCE = 5


@dataclass(frozen=True, slots=True)
class SignInTask:
    """One sign in one task: what was seen and may mean, ids of up to five groups, the share of rollouts.

    Attributes:
        step: the first that shows it; None if unknown.
        p: of a sign that is a test, corrected for the number of tests.
    """

    sign: str
    task: str
    what: str
    groups: tuple[str, ...]
    share: float
    step: int | None = None
    p: float | None = None


@dataclass
class Examined:
    """The signs by task, and how many responses, answers, think blocks and reference answers they are based on."""

    responses: int = 0
    answers: int = 0
    think_blocks: int = 0
    references: int = 0
    signs: list[SignInTask] = field(default_factory=list)


@dataclass
class _Seen:
    """What was seen of one task: ids of groups by item for each wrong answer that won, and think blocks."""

    won: dict[str, dict[str, str]] = field(default_factory=dict)
    think: Counter[bool] = field(default_factory=Counter)
    facts: TaskFacts = field(default_factory=TaskFacts)
    empty: dict[str, None] = field(default_factory=dict)


@dataclass
class _Phase:
    """What was seen of one phase."""

    result: Examined = field(default_factory=Examined)
    tasks: defaultdict[str, _Seen] = field(default_factory=lambda: defaultdict(_Seen))


def find_signs(dump: Dump, *, score_again: int = 0, workers: int = 1) -> Examined:
    """Look for signs in the responses of the train phase; where the dump, or what its conditions leave of it, has only
    evaluations, in those. Errors as `Dump.groups` and `rescore`.

    Args:
        score_again: the number of groups whose responses are scored a second time, by `workers` processes.
    """
    phases = {Phase.TRAIN: _Phase(), Phase.EVAL: _Phase()}
    for group in dump.groups():
        # A group of another environment may have a threshold of its own.
        config = replace(dump.settings_for(group), solved_at=dump.solved_at(group))
        _examine(group, config, phases[group.phase])
    train = phases[Phase.TRAIN]
    examined = train if train.result.responses else phases[Phase.EVAL]
    signs = examined.result.signs
    for task in sorted(examined.tasks):
        signs.extend(_of_texts(task, examined.tasks[task]))
    facts = {task: seen.facts for task, seen in examined.tasks.items()}
    signs.extend(_of_reading(task, reading) for task, reading in verdict_signs.verdict_signs(facts))
    if score_again:
        differing = second_scoring(dump, groups=score_again, workers=workers)
        signs.extend(_of_reading(task, reading) for task, reading in differing)
    if examined is train:
        planned = planned_steps(dump)
        for run_id, steps in read_steps(dump).items():
            signs.extend(_of_run(steps, planned.get(run_id, 0)))
    return examined.result


def _of_reading(task: str, reading: Reading) -> SignInTask:
    sign, what, share, step, p, groups = reading
    return SignInTask(sign, task, what, groups, share, step, p)


def _of_run(steps: Steps, planned: int) -> Iterator[SignInTask]:
    """Yield what the metrics of a run's steps show, given how many were planned."""
    failed, scored, onset = 0.0, 0.0, None
    for step in sorted(steps):
        number, share = steps[step].get(CANARIES) or 0.0, steps[step].get(CANARY_FAILURES) or 0.0
        scored += number
        failed += number * share
        if share and onset is None:
            onset = step
    if failed >= _ENOUGH_CANARIES:
        what = f"the verifier was wrong about {failed:,.0f} of {scored:,.0f} answers whose score was known"
        yield SignInTask(_CANARIES, WHOLE_RUN, what, (), failed / scored, onset)
    collapse = find_collapse(steps, planned)
    if collapse is not None:
        yield SignInTask(_COLLAPSE, WHOLE_RUN, collapse.what, (), 1.0, collapse.step)


def _examine(group: GroupRecord, config: RGDumpConfig, phase: _Phase) -> None:
    """Note what the responses of a group show."""
    result, seen = phase.result, phase.tasks[group.task]
    reference = _reference_of(group)
    seen.facts.note(group, config, reference)
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
        if parsed.think is not None and rollout.base_score >= config.solved_at:
            # Dots and dashes are not reasoning.
            is_empty = not parsed.think.strip(" \t\r\n.…-")
            seen.think[is_empty] += 1
            if is_empty and len(seen.empty) < _EVIDENCE:
                seen.empty[group.group_id] = None


def _reference_of(group: GroupRecord) -> str | None:
    """Return the answer that is scored as right; None if nothing says which one is."""
    question = question_of(group)
    if question is None:
        return group.expected_answer
    # Records that were imported may have an entry as upstream made it, with an answer that scoring corrects.
    entry, _ = question
    return reference_answer(entry) or None


def _of_texts(task: str, seen: _Seen) -> Iterator[SignInTask]:
    for answer, items in seen.won.items():
        if len(items) >= _ENOUGH_ITEMS:
            shown = repr(answer if len(answer) <= 40 else answer[:39] + "…")
            what = (
                f"{shown} was rewarded for {len(items)} or more items although it is not their reference answer. "
                "Unless the task accepts several answers, the scorer rewards a wrong one"
            )
            yield SignInTask(_ONE_WINS, task, what, tuple(items.values())[:_EVIDENCE], 1.0)
    count, of = seen.think[True], seen.think.total()
    if count >= _ENOUGH_EMPTY and count >= _EMPTY_SHARE * of:
        why = "solved responses have an empty think block: the answer does not come from written reasoning"
        yield SignInTask(_NO_REASONING, task, f"{count} of {of} {why}", tuple(seen.empty), count / of)
