"""Replay of a recorded group through parser, guard, scorer and penalty, with every value next to the recorded one.

Invariant: every value is computed by the code that training uses (`Scorer.judge`, `settle_group`). A value that depends
on a setting that is not in the manifest is not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import compress

from rg_env.analysis.rejudge import Judge, Question, same
from rg_env.config import LengthPenaltyConfig, RGDumpConfig
from rg_env.dump import Dump, GroupRecord, Phase, RolloutRecord, has_no_signal, outcome_of
from rg_env.dump.run_settings import RunSettings
from rg_env.errors import DumpError
from rg_env.rewards import Earned, RewardFunction, Rollout, compose_reward, settle_group
from rg_env.scoring import AnswerScore, Status, Verdict
from rg_env.scoring.base_score import RAW_ALONE
from rg_env.scoring.guard import GUARDED_TASKS

Value = str | float | bool | None


@dataclass(frozen=True, slots=True)
class Step:
    """One value on the way from the response to the reward.

    Attributes:
        name: the name of the recorded field, if there is one.
        why: the explanation.
        recorded, recomputed: the values.
        compared: whether the two can be compared.
    """

    name: str
    why: str
    recorded: Value = None
    recomputed: Value = None
    compared: bool = True

    @property
    def differs(self) -> bool:
        return self.compared and not same(self.recomputed, self.recorded)


@dataclass(frozen=True, slots=True)
class ReplayedRollout:
    """A rollout's text and its values, in the order of computation."""

    repetition: int
    text: str
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Replay:
    """A replayed group.

    Attributes:
        rollouts: in the group's order.
        steps: the values of the group as a whole.
        remarks: what is unknown.
    """

    group: GroupRecord
    question: Question
    rollouts: Sequence[ReplayedRollout]
    steps: Sequence[Step]
    remarks: Sequence[str]

    @property
    def differences(self) -> int:
        return sum(step.differs for steps in (self.steps, *(r.steps for r in self.rollouts)) for step in steps)


def replay(dump: Dump, name: str, *, timeout: float | None = None) -> Replay:
    """Score one group again.

    Args:
        dump: from `open_run`.
        name: the group's id, or its unique beginning or end.
        timeout: seconds per answer; None: as in the run.

    Raises:
        DumpError: no group or several match, its text was not kept, or its line does not contain the question.
    """
    group = find_group(dump, name)
    question = Question.of(group)
    if question is None:
        raise DumpError(f"group {group.group_id} cannot be replayed: its line does not contain the question")
    judge = Judge(dump, workers=1, timeout=timeout)
    verdicts = [judge.verdict(group, question, rollout) for rollout in group.rollouts]
    return _lay_out(group, question, verdicts, judge.settings(group), judge.knows_settings(group))


def _lay_out(
    group: GroupRecord, question: Question, verdicts: Sequence[Verdict], settings: RunSettings, known: bool
) -> Replay:
    config = settings.config
    max_length = config.length_penalty.max_length or settings.max_generate_length
    in_training = group.phase == Phase.TRAIN
    computable = max_length is not None or not in_training or config.length_penalty.kind == "none"
    settled = [
        Rollout(verdict, rollout.response_tokens or 0, rollout.stop_reason)
        for verdict, rollout in zip(verdicts, group.rollouts, strict=True)
    ]
    earned = settle_group(
        settled,
        config,
        max_length=max_length or 1,
        penalize=in_training and computable,
        zero_on_non_stop=settings.zero_reward_on_non_stop,
        reward_function=_recorded(group.rollouts),
    )
    counted = [rollout for rollout, one in zip(settled, earned, strict=True) if not one.masked]
    why_factor = _why_penalty(config.length_penalty, counted, max_length, in_training)
    rollouts = [
        ReplayedRollout(
            recorded.repetition,
            recorded.response,
            [
                *_steps_alone(group, recorded, rollout.verdict),
                *_steps_in_group(recorded, rollout, one, settings, why_factor, computable),
            ],
        )
        for recorded, rollout, one in zip(group.rollouts, settled, earned, strict=True)
    ]
    responded = [r.status.is_counted for r in group.rollouts]
    outcome = outcome_of([v.scored.score for v in compress(verdicts, responded)], config.solved_at)
    silent = has_no_signal([one.reward for one in compress(earned, responded)])
    baseline = max((verdict.scored.baseline for verdict in verdicts), default=0.0)
    steps = [
        Step("baseline", "score of the best cheap policy on the item", group.baseline, baseline),
        Step("outcome", f"from the base scores, solved_at={config.solved_at:g}", str(group.outcome), str(outcome)),
        Step("no_signal", "whether all rewards are equal", group.no_signal, silent, compared=computable),
    ]
    return Replay(group, question, rollouts, steps, list(_remarks(settings, known, computable)))


def _recorded(rollouts: Sequence[RolloutRecord]) -> RewardFunction | None:
    """A reward function that returns what the user's returned in the run, and fails where that failed."""
    if all(rollout.custom_reward is None and rollout.status is not Status.REWARD_ERROR for rollout in rollouts):
        return None
    values = [rollout.custom_reward for rollout in rollouts if rollout.custom_reward is not None]
    return lambda _: values


_DECIDE = ("generator.", "rg_dump.scorer", "rg_dump.length_penalty")
_DECIDE_TOO = ("format", "prefilled_think", "on_scorer_failure", "solved_at", "format_bonus", "binarize_at")
"""The settings that values depend on."""


def _remarks(settings: RunSettings, known: bool, computable: bool) -> Iterable[str]:
    absent = [n for n in settings.absent if n.startswith(_DECIDE) or n.removeprefix("rg_dump.") in _DECIDE_TOO]
    if not known:
        yield "no manifest for this attempt; using the current default settings"
    elif absent:
        yield f"not in the manifest, using the current defaults: {', '.join(absent)}"
    if not computable:
        yield "the length limit is unknown; penalty, score and reward are not compared"


def _steps_alone(group: GroupRecord, rollout: RolloutRecord, verdict: Verdict) -> Iterable[Step]:
    """The values that depend only on the response."""
    parsed, scored = verdict.parsed, verdict.scored
    think = "no think block" if parsed.think is None else f"a think block of {len(parsed.think)} characters"
    yield Step("violation", think, _text(rollout.violation), _text(parsed.violation))
    yield Step("answer", "between the answer tags", rollout.answer, parsed.answer)
    if parsed.answer is None:
        yield Step(
            "status", "nothing to score: guard and scorer were not called", str(rollout.status), str(scored.status)
        )
    else:
        yield Step("status", _why_status(group.task, scored), str(rollout.status), str(scored.status))
    yield Step("raw_score", "the bare answer", rollout.raw_score, scored.raw)
    yield Step("tagged_score", "the answer in its tags", rollout.tagged_score, scored.tagged)
    why = _why_base_score(group.task, scored) if scored.raw is not None else "nothing was scored"
    yield Step("base_score", why, rollout.base_score, scored.score)


def _why_base_score(task: str, scored: AnswerScore) -> str:
    counts = (
        "the bare answer alone, because this task rewards the tags" if task in RAW_ALONE else "the higher of the two"
    )
    return f"{counts}, calibrated by the baseline {scored.baseline:.3g}" if scored.baseline else counts


def _why_status(task: str, result: AnswerScore) -> str:
    guard = f"the guard's rule for {task}" if task in GUARDED_TASKS else f"the guard, without a rule for {task},"
    if result.status is Status.REJECTED:
        return f"{guard} rejected it: {result.detail}"
    scored = "the scorer returned a score" if result.status is Status.OK else "the scorer failed"
    detail = f" ({result.detail})" if result.detail else ""
    return f"{guard} accepted it; {scored}{detail}"


def _steps_in_group(
    recorded: RolloutRecord,
    rollout: Rollout,
    earned: Earned,
    settings: RunSettings,
    why_factor: str,
    computable: bool,
) -> Iterable[Step]:
    """The values that depend on the group."""
    if earned.masked:
        why_factor = "excluded from the loss: the scorer got no CPU time, or failed and on_scorer_failure=mask"
    else:
        why_factor = f"{why_factor}; L = {rollout.response_tokens}"
    yield Step("penalty_factor", why_factor, recorded.penalty_factor, earned.penalty_factor, computable)
    product = f"{rollout.verdict.scored.score:g} × {earned.penalty_factor:g}"
    yield Step("score", product, recorded.score, earned.score, computable)
    yield Step("reward", _why_reward(rollout, earned, settings), recorded.reward, earned.reward, computable)


def _why_penalty(
    penalty: LengthPenaltyConfig, group: Sequence[Rollout], max_length: int | None, in_training: bool
) -> str:
    """The penalty with the group's numbers, as a formula of L. Formulas and sources: `rg_env.scoring.length`."""
    if not in_training:
        return "no length penalty in evaluation"
    if penalty.kind == "none":
        return "no length penalty configured"
    if max_length is None:
        return f"{penalty.kind}: the length limit is unknown"
    weight = "" if penalty.weight == 1 else f"{penalty.weight:g} × "
    match penalty.kind:
        case "atropos":
            if any(rollout.verdict.scored.score < penalty.correct_at for rollout in group):
                return f"atropos: not every base score is at least {penalty.correct_at:g}: no penalty"
            free = penalty.threshold * max_length
            return f"atropos: 1 − clip((L − {free:g}) / {max_length - free:g}, 0, 1)"
        case "dapo":
            buffer = penalty.buffer or f"{max_length} // 4"
            return f"dapo, added to the reward: {weight}soft overlong punishment, M = {max_length}, B = {buffer}"
        case _:
            lengths = [rollout.response_tokens or 0 for rollout in group]
            shortest, longest = min(lengths, default=0), max(lengths, default=0)
            return (
                f"kimi, added to the reward: {weight}(0.5 − (L − {shortest}) / {longest - shortest}); wrong: at most 0"
            )


def _why_reward(rollout: Rollout, earned: Earned, settings: RunSettings) -> str:
    config: RGDumpConfig = settings.config
    if earned.reward_error:
        return "0, and kept out of the loss: the reward function failed"
    if earned.masked:
        return "the mean of the other rewards, so that it has no effect"
    if settings.zero_reward_on_non_stop and not rollout.stopped:
        return "0: generation did not stop by itself (zero_reward_on_non_stop)"
    well_formed = rollout.verdict.parsed.violation is None
    custom = earned.custom_reward
    paid = earned.score if custom is None else custom * earned.penalty_factor
    alone = compose_reward(paid, well_formed, config)
    name = "the score" if custom is None else f"the custom reward {custom:g} × penalty factor"
    parts = [name if config.binarize_at is None else f"1 if {name} is at least {config.binarize_at:g}, else 0"]
    if config.format_bonus and well_formed:
        parts.append(f"{config.format_bonus:g} for the format")
    if not same(earned.reward, alone):
        parts.append(f"({earned.reward - alone:g}) for the length")
    return " + ".join(parts)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def find_group(dump: Dump, name: str) -> GroupRecord:
    """The group with this id, or the only one whose id begins or ends with it.

    Raises:
        DumpError: no group or several, with near matches; or the text was not kept.
    """
    known = {record.group_id: (record.text, record.text_reason) for record in dump.ledger(all_attempts=True)}
    if not any(_fits(name, group_id) for group_id in known):
        known |= {group.group_id: (None, None) for group in dump.groups(all_attempts=True)}
    fitting = [name] if name in known else [group_id for group_id in known if _fits(name, group_id)]
    if len(fitting) > 1:
        raise DumpError(f"{len(fitting)} groups match {name!r}: {_some(fitting)}")
    if not fitting:
        tails = {group_id.rsplit(":", 1)[-1]: group_id for group_id in known}
        near = get_close_matches(name, known, cutoff=0.5) or [
            tails[t] for t in get_close_matches(name, tails, cutoff=0.5)
        ]
        hint = f"; similar: {_some(near)}" if near else f"; there are {_some(list(known))}" if known else ""
        raise DumpError(f"no group {name!r} in this dump{hint}")
    group_id = fitting[0]
    kind, why_not_kept = known[group_id]
    if why_not_kept is not None:
        raise DumpError(f"the text of group {group_id} was not kept ({why_not_kept}), so it cannot be replayed")
    for group in dump.groups(None if kind is None else [kind], ids=[group_id], all_attempts=True):
        return group
    raise DumpError(f"the text of group {group_id} is missing: see `rg-env dumps validate`")


def _fits(name: str, group_id: str) -> bool:
    return group_id.startswith(name) or group_id.endswith(name)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
