"""The counts of a training step or an evaluation, made from the records of its groups.

Invariant: every figure of ours that a tracker, the terminal, the steps file or `gpu-check` shows is that of a `Tally`,
so it equals a recount of the ledger. SkyRL joins the metrics of several `generate()` calls by name, without weights and
over those calls only that have the name (`concatenate_generator_outputs`), and with dynamic sampling it keeps the last
call's; so `write_over` replaces what it joined.

A step's groups are those that it was trained on, and with dynamic sampling all that were generated for it. Not covered:
SkyRL's own metrics, which stay as they are.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from rg_env.base.wording import rate
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import GroupRecord, Outcome, Phase
from rg_env.dump.schema import RG_DUMP, answered, is_all_wrong, is_equal_partial_credit
from rg_env.rollouts.symptoms import EQUAL, LENGTH, phantom_cause
from rg_env.scoring.types import Status, Violation

_OURS = re.compile(r"(environment(_kept|_dropped)?/rg_dump|rg_dump(_kept|_dropped)?)/")
"""Names of our figures. SkyRL's fully-async loop also joins those of kept and of dropped groups."""
_NOT_ON_DISK = "rg_dump/max_groups_not_on_disk"
"""A state of the writer, and no figure of a tally."""


@dataclass
class Counts:
    """Sums over groups. Rollouts without a response count in `asked`, `masked` and `statuses` alone.

    Attributes:
        asked: rollouts, with or without a response; `rollouts`: with one.
        rewards, scores, base_scores, penalty_factors: sums over `rollouts`.
        solved, well_formed, normalized: numbers of `rollouts`.
        equal_partial: mixed groups in which all rollouts have the same partial credit.
        kinds: training groups by the file for their text, whether or not it is kept.
        phantoms: groups without a solved rollout that still have a gradient, by the setting that made it.
        tokens: sum of the lengths of those `rollouts` whose length is known, of which there are `measured`.
        texts: how often each response occurs, by its hash.
    """

    groups: int = 0
    no_signal: int = 0
    equal_partial: int = 0
    asked: int = 0
    masked: int = 0
    rollouts: int = 0
    rewards: float = 0.0
    scores: float = 0.0
    base_scores: float = 0.0
    penalty_factors: float = 0.0
    solved: int = 0
    well_formed: int = 0
    normalized: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    phantoms: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    measured: int = 0
    texts: Counter[int] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        """Add the sums of other groups."""
        for name in _SUMS:
            # Numbers and counters both add with `+`.
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def count_response(self, base_score: float, *, solved: bool, violation: str, normalized: bool) -> None:
        """Count what a verdict says about one response of rg_dump, but its status."""
        self.rollouts += 1
        self.base_scores += base_score
        self.solved += solved
        self.normalized += normalized
        if violation:
            self.violations[violation] += 1
        else:
            self.well_formed += 1

    def shares(self, prefix: str, *, with_zeros: bool) -> dict[str, float]:
        """Means over the responses, by the names of metrics; empty if there is none.

        Args:
            with_zeros: whether a violation or status that does not occur has its 0.
        """
        count = self.rollouts
        if not count:
            return {}
        result = {
            f"{prefix}/mean_base_score": self.base_scores / count,
            f"{prefix}/mean_solved": self.solved / count,
            f"{prefix}/mean_well_formed": self.well_formed / count,
        }
        occurring = {"normalized": self.normalized}
        for violation in Violation:
            occurring[f"violation_{violation}"] = self.violations[violation]
        for status in Status:
            if status is not Status.OK and status.is_counted:
                occurring[f"status_{status}"] = self.statuses[status]
        for name, number in occurring.items():
            if number or with_zeros:
                result[f"{prefix}/mean_{name}"] = number / count
        return result

    def group_shares(self) -> dict[str, float]:
        """Means over the groups of rg_dump, and those over rollouts that only a group's rules decide."""
        result = {}
        for outcome in Outcome:
            result[f"rg_dump/mean_{outcome}"] = self.outcomes[outcome] / self.groups
        result["rg_dump/mean_no_signal"] = self.no_signal / self.groups
        if self.kinds:  # an evaluation has no gradient
            result["rg_dump/mean_phantom"] = self.phantoms.total() / self.groups
        if self.measured:
            result[LENGTH] = self.tokens / self.measured
        if self.texts:
            result[EQUAL] = max(self.texts.values()) / self.texts.total()
        if self.rollouts:
            result["rg_dump/mean_score"] = self.scores / self.rollouts
            result["rg_dump/mean_penalty_factor"] = self.penalty_factors / self.rollouts
        if self.asked:
            result["rg_dump/mean_masked"] = self.masked / self.asked
            result["rg_dump/mean_no_response"] = 1 - self.rollouts / self.asked
        return result


_SUMS = [field.name for field in fields(Counts)]


class Tally:
    """Counts groups, by environment and task.

    Args:
        config: says which rollouts are solved, and from which base score the text of a group is kept as a success.
        groups: are counted at once.
    """

    def __init__(self, config: RGDumpConfig, groups: Iterable[GroupRecord] = ()) -> None:
        self._config = config
        self._of_tasks: dict[tuple[str, str], Counts] = defaultdict(Counts)
        self.count(groups)

    def count(self, groups: Iterable[GroupRecord]) -> None:
        """Count groups."""
        for group in groups:
            self._count_group(self._of_tasks[group.environment, group.task], group)

    def _count_group(self, counts: Counts, group: GroupRecord) -> None:
        responses = answered(group.rollouts)
        base_scores = [rollout.base_score for rollout in responses]
        # Groups of other environments have their own.
        solved_at = self._config.solved_at if group.solved_at is None else group.solved_at
        counts.groups += 1
        counts.no_signal += group.no_signal
        counts.equal_partial += is_equal_partial_credit(base_scores, solved_at)
        counts.outcomes[group.outcome] += 1
        if group.phase is Phase.TRAIN:
            counts.kinds[self._kind_of(base_scores)] += 1
            if cause := phantom_cause(group, self._config):
                counts.phantoms[cause] += 1

        # Every rollout that was asked for counts here, below only those with a response.
        for rollout in group.rollouts:
            counts.asked += 1
            counts.masked += rollout.masked
            counts.statuses[rollout.status] += 1
        for rollout in responses:
            counts.rewards += rollout.reward
            counts.scores += rollout.score
            counts.penalty_factors += rollout.penalty_factor
            counts.texts[hash(rollout.response)] += 1
            if rollout.response_tokens is not None:
                counts.tokens += rollout.response_tokens
                counts.measured += 1
            # By the base score, as everywhere: a penalty changes what a response is worth, not whether it is right.
            solved = rollout.base_score >= solved_at
            counts.count_response(
                rollout.base_score, solved=solved, violation=rollout.violation, normalized=rollout.normalized
            )

    def _kind_of(self, base_scores: Sequence[float]) -> str:
        if not base_scores:
            return "without a response"
        if max(base_scores) > self._config.rollout_save_score_threshold:
            return "above the threshold"
        return "all wrong" if is_all_wrong(base_scores) else "other"

    def total(self, environment: str | None = None) -> Counts:
        """Return the counts of all groups, or of those of one environment."""
        result = Counts()
        for (of_environment, _), counts in self._of_tasks.items():
            if environment in (None, of_environment):
                result.add(counts)
        return result

    def figures(self) -> dict[str, float]:
        """Our metrics of the groups of rg_dump, by name; empty if there is none.

        The shares of all tasks together have their zeros. A single task has what occurs.
        """
        ours = self.total(RG_DUMP)
        if not ours.groups:
            return {}
        result = ours.group_shares()
        shares = named_shares(ours, "")
        for (environment, task), counts in self._of_tasks.items():
            if environment == RG_DUMP:
                shares |= named_shares(counts, task)
        for name, share in shares.items():
            result[f"environment/{name}"] = share
        return result

    @property
    def means(self) -> dict[str, float]:
        """Mean reward, and the shares of solved and of well-formed rollouts; without those that no rollout has."""
        total, ours = self.total(), self.total(RG_DUMP)
        result = {}
        if total.rollouts:
            result["reward"] = total.rewards / total.rollouts
            result["solved"] = total.solved / total.rollouts
        if ours.rollouts:  # other environments ask for no format
            result["format"] = ours.well_formed / ours.rollouts
        return result

    def means_line(self) -> str:
        """Return the means as text: `reward 0.50 solved 25% format 100%`."""
        parts = []
        for name, mean in self.means.items():
            shown = f"{mean:.2f}" if name == "reward" else rate(mean)
            parts.append(f"{name} {shown}")
        return " ".join(parts)

    def groups_line(self) -> str:
        """Return the counts as one line; empty if there was no group."""
        total = self.total()
        if not total.groups:
            return ""
        correct, failed = total.outcomes[Outcome.ALL_CORRECT], total.outcomes[Outcome.ALL_FAILED]
        mixed = f"{total.outcomes[Outcome.MIXED]} mixed"
        if total.equal_partial:
            mixed += f" ({total.equal_partial} unsolved with equal partial credit)"
        mean = f"{total.scores / total.rollouts:.3f}" if total.rollouts else "none"
        parts = [f"groups: {correct} all correct, {mixed}, {failed} all wrong", f"mean score {mean}"]
        if total.violations:
            parts.append(f"violations: {_with_counts(total.violations)}")
        tasks = Counter[str]()
        for (_, task), counts in self._of_tasks.items():
            tasks[task] += counts.groups
        parts.append(f"tasks: {_with_counts(tasks)}")
        return " | ".join(parts)


def named_shares(counts: Counts, task: str) -> dict[str, float]:
    """Return the shares of a task, or of all tasks together (`""`), which have their zeros. SkyRL puts `environment/`
    before the names."""
    prefix = f"rg_dump/{task}" if task else "rg_dump"
    return counts.shares(prefix, with_zeros=not task)


def write_over(metrics: dict[str, Any], tally: Tally, prefix: str = "") -> None:
    """Put the figures of a tally in the place of ours that SkyRL joined by name. Without a group of ours, nothing.

    Args:
        metrics: as SkyRL sends them to the tracker; changed in place.
        prefix: `eval/all/` for an evaluation.
    """
    figures = tally.figures()
    if not figures:
        return
    # All of ours go first: a figure that only some of the joined calls had, and the step has not, would stay otherwise.
    for name in list(metrics):
        own_name = name.removeprefix(prefix)
        if name.startswith(prefix) and _OURS.match(own_name) and own_name != _NOT_ON_DISK:
            del metrics[name]
    for name, value in figures.items():
        metrics[prefix + name] = value


def is_unsolved(group: GroupRecord, solved_at: float) -> bool:
    """Return whether a group of rg_dump has responses, and none of them is solved."""
    if group.environment != RG_DUMP:
        return False
    responses = answered(group.rollouts)
    return bool(responses) and all(rollout.base_score < solved_at for rollout in responses)


def why_every_reward_call_failed(groups: Sequence[GroupRecord]) -> str:
    """Return the commonest failure of the user's reward function, if it was called for most of these groups and
    returned nothing usable for any; else empty."""
    errors = Counter[str]()
    called = 0
    for group in groups:
        responses = answered(group.rollouts)
        called += bool(responses)
        for rollout in responses:
            # Not by its status: the function also rates answers whose scorer failed.
            if rollout.custom_reward is not None:
                return ""
            if rollout.status is Status.REWARD_ERROR:
                errors[rollout.detail] += 1
    # Where most requests fail, a few calls say little about the function.
    if not errors or called <= len(groups) / 2:
        return ""
    return errors.most_common(1)[0][0]


def _with_counts(counts: Counter[str]) -> str:
    """Names with their counts, the most frequent first: `gcd 3, lcm 1`."""
    # By name among equal counts, so that equal tallies make equal lines.
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in ordered)
