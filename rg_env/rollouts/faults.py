"""Why the responses of a run score 0 whatever they answer, or why its reward is dead, in one line with the setting.

Invariant: a fault of responses is named only if at least half of them have one. Wrong answers are not such a fault;
where all groups of the first steps have only wrong ones, or only right ones, the reward is dead.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rg_env.base.wording import counted, rate
from rg_env.dump.entry import open_run_of
from rg_env.dump.reader import Dump
from rg_env.dump.schema import RG_DUMP, GroupRecord, LedgerRecord, Outcome, Phase, RolloutFacts, RolloutRecord, answered
from rg_env.rollouts.preflight_limits import DEAD_CUT_OFF, DEAD_FORMAT, FEW_SIGNALS
from rg_env.scoring.types import MEANINGS, Status, Violation

_EMPTY = "empty"
_CUT = "cut"
_UNTAGGED = "untagged"
_CLAUSES = {
    _EMPTY: "are empty",
    _CUT: "were cut off at the maximum length before they had a valid format",
    _UNTAGGED: "have no <answer>…</answer>",
}
"""What is said of faults that are neither a violation nor a status."""
_REMEDIES = {
    _EMPTY: "a reasoning model may need a larger {length} before it writes anything",
    _CUT: "a larger {length} usually fixes it, above all for reasoning models",
    _UNTAGGED: "the model ignores the tags that the prompt asks for: worked_examples show them",
    Violation.NO_THINK: "format=lenient needs no think block; if the chat template opens <think>, prefilled_think=true",
    Violation.UNCLOSED_THINK: "format=lenient takes an answer wherever it is",
    Violation.MULTIPLE_THINK: "format=lenient takes an answer wherever it is",
    Violation.ANSWER_INSIDE_THINK: "format=lenient takes an answer wherever it is",
}
"""What usually fixes a fault. The lenient format knows none of these violations."""
_LENGTHS = {"train": "generator.sampling_params.max_generate_length"}
"""What limits the length of responses, by the kind of the run; in other kinds an option."""


def explain_zeros(folder: Path, run_id: str) -> str:
    """Return the commonest fault of the responses of a run, as one line; "" if less than half have one."""
    dump = open_run_of(folder, run_id)
    faults = _faults_in(dump.ledger())
    # The ledger alone is read where most responses are fine, as usual: texts take much longer.
    if 2 * faults[""] > faults.total():
        return ""
    # The ledger does not know which responses are empty. The texts may be those of the few that are fine.
    of_texts = _faults_in(dump.groups())
    if of_texts and 2 * of_texts[""] <= of_texts.total():
        faults = of_texts
    responses = faults.total()
    # Only after the total: these are the responses without a fault.
    del faults[""]
    if not faults:
        return ""
    fault, number = faults.most_common(1)[0]
    line = f"{number:,} of {counted(responses, 'response')} {_clause(fault)}"
    if remedy := _remedy(fault, dump):
        line += f"; {remedy}"
    return f"{line}; to see some: rg-env dumps show {shlex.quote(str(folder))}"


def _remedy(fault: str, dump: Dump) -> str:
    """Return what usually fixes a fault, in the words of the run's settings or options; empty if nothing does."""
    length = _LENGTHS.get(dump.runs[0].noted.kind, "--max-tokens")
    return _REMEDIES.get(fault, "").format(length=length)


def explain_dead_reward(folder: Path, run_id: str, steps: int) -> str:
    """Return why the reward of the first steps of a training is dead, as one line; "" if it is not.

    It is if hardly a group has different rewards, hardly a response is well-formed, or all are cut off.

    Args:
        steps: number of the last of these steps.
    """
    dump = open_run_of(folder, run_id)
    outcomes: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    signals = well_formed = cut_off = 0
    for group in dump.ledger():
        if group.phase is not Phase.TRAIN or group.environment != RG_DUMP or (group.step or 0) > steps:
            continue
        outcomes[group.outcome] += 1
        signals += not group.no_signal
        for rollout in answered(group.rollouts):
            well_formed += not rollout.violation
            cut_off += rollout.truncated
            faults[_fault_of(rollout)] += 1
    responses, groups = faults.total(), outcomes.total()
    if not responses:
        return ""
    if cut_off >= DEAD_CUT_OFF * responses:
        why, remedy = "every response is cut off", _remedy(_CUT, dump)
    elif well_formed < DEAD_FORMAT * responses:
        fault = faults.most_common(1)[0][0]
        shown = rate(well_formed / responses, digits=1)
        why, remedy = f"{shown} of the responses are well-formed, and most {_clause(fault)}", _remedy(fault, dump)
    elif signals < FEW_SIGNALS * groups:
        remedy = "the questions are too easy: raise complexity"
        if 2 * outcomes[Outcome.ALL_FAILED] > groups:
            remedy = "the questions are too hard: lower complexity"
        why = f"the rewards differ in {rate(signals / groups, digits=1)} of the groups"
    else:
        return ""
    parts = [f"the reward is dead: in the first {steps} steps, {why}", remedy, "`rg-env preflight` finds the setting"]
    return "; ".join(filter(None, parts))


def _faults_in(groups: Iterable[LedgerRecord | GroupRecord]) -> Counter[str]:
    """Return the number of responses with each fault; "" for those without."""
    faults: Counter[str] = Counter()
    for group in groups:
        faults.update(map(_fault_of, answered(group.rollouts)))
    return faults


def _fault_of(rollout: RolloutFacts) -> str:
    """Return why a response scores 0 whatever it answers; "" if it does not."""
    if rollout.status not in (Status.OK, Status.REWARD_ERROR):  # the user's function fails without changing scores
        return rollout.status.value
    if not rollout.violation:
        return ""
    response = rollout.response if isinstance(rollout, RolloutRecord) else None
    if response is not None and not response.strip():
        return _EMPTY
    # A response that was cut off lacks the rest of its format; the limit is the cause, not the format.
    if rollout.truncated:
        return _CUT
    if response is not None and "<answer>" not in response.lower():
        return _UNTAGGED
    return rollout.violation


def _clause(fault: str) -> str:
    if fault in _CLAUSES:
        return _CLAUSES[fault]
    if fault in list(Violation):
        return f"violate the format: {fault} ({MEANINGS[Violation(fault)]})"
    return f"could not be scored (status {fault})"
