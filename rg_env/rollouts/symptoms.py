"""Symptoms of a training that does not learn to solve its questions: phantom groups and collapse.

A phantom group has no solved rollout and still a gradient, because something else than being right makes its rewards
differ. With few solved groups, that is most of what a model learns (verl-recipe#125). Training, `stats` and the report
ask the functions here. Not covered: which of two settings that both act on a group did more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rg_env.base.wording import counted
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump.schema import RG_DUMP, GroupRecord, LedgerRecord, Phase, RolloutFacts, answered, has_no_signal

if TYPE_CHECKING:
    from rg_env.dump import Dump

EQUAL = "rg_dump/mean_same_response"
"""The metric: share of a step's responses that are its commonest one, to the letter."""
LENGTH = "rg_dump/mean_response_tokens"
FORMAT = "environment/rg_dump/mean_well_formed"
CANARY_FAILURES = "rg_dump/mean_canary_failures"
"""The metric: share of a step's known answers about which the verifier was wrong (`rg_env.skyrl.canaries`)."""
CANARIES = "rg_dump/canaries"
WRONG_SOLVED = "rg_dump/canaries_wrong_solved"
RIGHT_UNSOLVED = "rg_dump/canaries_right_unsolved"
WATCHED = (EQUAL, LENGTH, FORMAT)
"""The metrics that `collapse` reads."""
_NEARLY_ALL = 0.9
_FALL = 5
"""Format and length have collapsed when they are at most a fifth of what they were."""


def phantom_cause(group: GroupRecord | LedgerRecord, config: RGDumpConfig) -> str:
    """Return the setting that makes the rewards of a group differ although none of its rollouts is solved.

    Args:
        group: masked rollouts are left out, as they are in training.
        config: the settings with which the group was recorded.

    Returns:
        the setting with its value, or "" if the group is not a phantom, or of another environment than rg_dump.
    """
    if group.no_signal or group.environment != RG_DUMP:
        return ""
    # From here on, the first cause that can have made all of the difference is named.
    unmasked = [rollout for rollout in answered(group.rollouts) if not rollout.masked]
    is_solved = any(rollout.base_score >= config.solved_at for rollout in unmasked)
    if is_solved or _all_equal(unmasked):
        return ""
    if any(rollout.custom_reward is not None for rollout in unmasked):
        return f"reward={config.reward}"
    if len({rollout.base_score for rollout in unmasked}) > 1:
        return f"scorer.partial_credit={config.scorer.partial_credit}"
    # What is left has the same base score. SkyRL's switch sets the rewards of cut-off responses to 0.
    not_zeroed = [rollout for rollout in unmasked if rollout.reward != 0 or rollout.stop_reason in ("", "stop")]
    if _all_equal(not_zeroed):
        return "generator.zero_reward_on_non_stop=true"
    well_formed = [rollout for rollout in not_zeroed if not rollout.violation]
    others = [rollout for rollout in not_zeroed if rollout.violation]
    if _all_equal(well_formed) and _all_equal(others):
        return f"format_bonus={config.format_bonus:g}"
    return f"length_penalty.kind={config.length_penalty.kind}"


def _is_seen_solved(line: LedgerRecord, config: RGDumpConfig) -> bool:
    """Return whether the lists of a line show a solved rollout. To make the rollouts of every line would take most of
    the time of `stats`.
    """
    has_masked = any(line.column("masked"))  # these do not count, whatever their score
    return not has_masked and any(score is not None and score >= config.solved_at for score in line.base_score)


def _all_equal(rollouts: Sequence[RolloutFacts]) -> bool:
    return has_no_signal([rollout.reward for rollout in rollouts])


class Symptom(NamedTuple):
    """What is wrong with a training: `phantoms`, `collapse` or `canaries`, and a line about it."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def phantoms(causes: Counter[str], groups: int, *, trained_on: bool = True) -> Symptom | None:
    """Return the symptom of phantom groups among all groups that were trained on; None if there is none.

    Args:
        trained_on: the setting `train_unsolved`. Without it phantoms have no gradient, but their rewards still differ.

    >>> str(phantoms(Counter({"format_bonus=0.2": 3}), 40))
    'phantoms: 3 of 40 groups have no solved response but still a gradient (format_bonus=0.2)'
    """
    if not causes:
        return None
    names = list(causes)
    if len(causes) > 1:  # the number of a single one is that of all phantoms, which the line has already
        names = [f"{name} ({number:,})" for name, number in causes.most_common()]
    share = f"{causes.total():,} of {counted(groups, 'group')}"
    if trained_on:
        return Symptom("phantoms", f"{share} have no solved response but still a gradient ({' and '.join(names)})")
    what = f"{share} have no solved response but different rewards ({' and '.join(names)})"
    return Symptom("phantoms", f"{what}; train_unsolved=false left them out")


Steps = Mapping[int, Mapping[str, float | None]]
"""The metrics of each step, as SkyRL's tracker gets them."""


class Collapse(NamedTuple):
    """The first step at which the model had collapsed, and how that showed."""

    step: int
    what: str


def collapse(steps: Steps, total: int = 0) -> Symptom | None:
    """Return the symptom of a collapse; None if there is none. Arguments as in `find_collapse`."""
    found = find_collapse(steps, total)
    if not found:
        return None
    return Symptom("collapse", f"at step {found.step}, {found.what}")


def find_collapse(steps: Steps, total: int = 0) -> Collapse | None:
    """Return the first step at which the model had collapsed; None if there is none.

    That is a step in which nine of ten responses are equal, or in which the format rate or the length of responses is
    at most a fifth of its mean over the first quarter of the steps.

    Args:
        total: number of the last step that is planned; by default the last of `steps`.
    """
    numbers = sorted(steps)
    if not numbers:
        return None
    # Of the planned steps, so that the quarter does not grow while a run goes on.
    quarter = max(1, (total or numbers[-1]) // 4)
    early = [steps[number] for number in numbers if number <= quarter]
    means = {}
    for name in (FORMAT, LENGTH):
        means[name] = _mean([metrics.get(name) for metrics in early])
    for number in numbers:
        share = steps[number].get(EQUAL)
        if share is not None and share >= _NEARLY_ALL:
            return Collapse(number, f"{share:.0%} of the responses are equal")
        if number <= quarter:  # it is part of what later steps are compared with
            continue
        for name, words in ((FORMAT, "format rate"), (LENGTH, "length of responses")):
            now, before = steps[number].get(name), means[name]
            if now is not None and before and now <= before / _FALL:
                return Collapse(number, f"the {words} fell from {before:.3g} to {now:.3g}")
    return None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return sum(known) / len(known)


def read_symptoms(dump: Dump) -> Iterator[str]:
    """Yield one line for each symptom of the training runs in a dump; of several runs, each begins with the run's name.

    Runs whose settings are not known have none. Where conditions may have removed the rollouts that solved a group, no
    group is called a phantom.
    """
    if not dump.settings:
        return
    groups, causes = Counter[str](), defaultdict[str, Counter[str]](Counter)
    trained_on: dict[str, bool] = {}
    for line in dump.ledger():
        config = dump.settings.get((line.run_id, line.attempt))
        if config is None or line.phase is not Phase.TRAIN or line.environment != RG_DUMP:
            continue
        groups[line.run_id] += 1
        trained_on[line.run_id] = config.train_unsolved
        # Without whole groups, the rollout that solved one may be missing. The cheap test comes before the dear one.
        if not dump.whole_groups or _is_seen_solved(line, config):
            continue
        cause = phantom_cause(line, config)
        if cause:
            causes[line.run_id][cause] += 1
    steps, planned = read_steps(dump), planned_steps(dump)
    for run_id, number in groups.items():
        name = ""
        if len(groups) > 1:
            name = f"{dump.names.get(run_id, run_id)}: "
        of_groups = phantoms(causes[run_id], number, trained_on=trained_on[run_id])
        for symptom in (of_groups, collapse(steps[run_id], planned.get(run_id, 0))):
            if symptom:
                yield f"{name}{symptom}"


def planned_steps(dump: Dump) -> dict[str, int]:
    """Return the number of steps that each run was started for, by run; without those whose manifest does not say."""
    planned = {}
    for run in dump.runs:
        total = run.noted.planned_steps
        if total:
            planned[run.run_id] = total
    return planned


def read_steps(dump: Dump) -> dict[str, dict[int, Mapping[str, float | None]]]:
    """Return the metrics of each step, by run. Those of several records of a step are joined: a resumed run evaluates
    again after the step from which it continues, and what that step was trained with is in the record before."""
    steps = defaultdict[str, dict[int, Mapping[str, float | None]]](dict)
    for record in dump.steps():
        of_run, metrics = steps[record.run_id], dict(zip(record.name, record.value, strict=True))
        of_run[record.step] = {**of_run.get(record.step, {}), **metrics}
    return steps
