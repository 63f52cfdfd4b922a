"""Why the responses of a run score 0 whatever they answer, in one line, and what usually mends it.

Invariant: says nothing unless at least half of the responses have such a fault. Wrong answers are no fault.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rg_env.dump.reader import Dump, open_run_of
from rg_env.dump.schema import RolloutFacts, RolloutRecord, answered
from rg_env.scoring.types import MEANINGS, Status, Violation
from rg_env.wording import counted

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
    _EMPTY: "a reasoning model may need a larger --max-tokens before it writes anything",
    _CUT: "a larger --max-tokens usually mends it, above all for reasoning models",
    _UNTAGGED: "the model ignores the tags that the prompt asks for, which another system_prompt may mend",
    Violation.NO_THINK: "format=lenient needs no think block; if the chat template opens <think>, prefilled_think=true",
    Violation.UNCLOSED_THINK: "format=lenient takes an answer wherever it is",
    Violation.MULTIPLE_THINK: "format=lenient takes an answer wherever it is",
    Violation.ANSWER_INSIDE_THINK: "format=lenient takes an answer wherever it is",
}
"""What usually mends a fault. The lenient format knows none of these violations."""


def explain_zeros(folder: Path, run_id: str) -> str:
    """Return the commonest fault of the responses of a run, as one line; "" if less than half have one."""
    dump = open_run_of(folder, run_id)
    faults: Counter[str] = Counter()
    for group in dump.ledger():
        faults.update(map(_fault_of, answered(group.rollouts)))
    # The ledger alone is read where most responses are fine, as usual: texts take much longer.
    if 2 * faults[""] > faults.total():
        return ""
    faults = _faults_of_texts(dump) or faults  # the ledger does not know which responses are empty
    responses = faults.total()
    # Only after the total: these are the responses without a fault.
    del faults[""]
    if not faults:
        return ""
    fault, number = faults.most_common(1)[0]
    line = f"{number:,} of {counted(responses, 'response')} {_clause(fault)}"
    if remedy := _REMEDIES.get(fault):
        line += f"; {remedy}"
    return f"{line}; to see some: rg-env dumps show {folder}"


def _faults_of_texts(dump: Dump) -> Counter[str]:
    """Return the number of responses with each fault, of the groups whose texts were kept."""
    faults: Counter[str] = Counter()
    for group in dump.groups():
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
