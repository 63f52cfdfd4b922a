"""Training data from a dump as JSON lines: supervised examples (`Sft`) and preference pairs (`Dpo`).

Invariant: what a model is trained toward is solved, unless a lower minimum score is asked for; it follows the format
and is not truncated. A response is written as it was recorded, behind a `<think>` that the chat template wrote, or
without its think block on request. Each rollout (`Sft`) or group (`Dpo`) that is read and not written is counted once,
under the first reason that applies.
The file appears whole or not at all. Memory grows by digests of the examples, not with their texts.
Not covered: prompts without responses, for which `rg-env dataset` makes rows; balancing tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import jsonlines
import msgspec
import orjson
import polars as pl

from rg_env.analysis.reparse import without_think
from rg_env.analysis.stats import threshold
from rg_env.base.atomic import check_output, new_file
from rg_env.base.choices import Think
from rg_env.base.wording import visible
from rg_env.dump import Dump, GroupRecord, Phase, RolloutRecord
from rg_env.dump.schema import RG_DUMP, as_violation
from rg_env.dump.table import PARTS_OF_GROUPS
from rg_env.scoring.types import Status

Row = dict[str, Any]
_ORIGIN = ("task", "item", "group_id", "phase")
"""Values that are never null, as a step may be: `datasets` infers types from the first of several files."""


class Reason(StrEnum):
    """Why something was left out, as users read it."""

    EVALUATION = "evaluation groups (training on them contaminates later evaluations; --include-eval)"
    NO_TEXT = "groups that are only in the ledger: their text was not kept"
    NO_PAIR = "groups without a good response (--min-score) and one that is worse by the margin (--margin)"
    NO_RESPONSE = "rollouts that do not end with a response to a prompt"
    NO_SCORE = "rollouts without a score, most because their scorer failed (a score of 0 is then meaningless)"
    VIOLATION = "rollouts that violate the format"
    REJECTED = "rollouts whose answer was rejected by the guard"
    TRUNCATED = "rollouts truncated at the length limit"
    LOW_SCORE = "rollouts below the minimum score (--min-score)"
    THINK_STAYS = "rollouts whose think block cannot be removed (--think drop)"
    NOT_BEST = "rollouts beyond the best of their group (--per-group)"
    DUPLICATE = "examples that differ from an earlier one only in whitespace"


@dataclass(frozen=True, slots=True)
class Sft:
    """`messages`, as TRL's `SFTTrainer` expects them.

    Attributes:
        min_score: minimum base score, in [0, 1]; None: that of a solved rollout.
        per_group: maximum number of responses per group, the best first.
    """

    min_score: float | None = None
    per_group: int = 1

    def rows(self, rollouts: Sequence[RolloutRecord], min_score: float, left_out: Counter[Reason]) -> Iterator[Row]:
        """Yield the lines made from a group's rollouts; counts what is left out."""
        good = []
        for rollout in rollouts:
            flaw = _flaw(rollout, min_score)
            if flaw is None:
                good.append(rollout)
            else:
                left_out[flaw] += 1
        # Ties are not broken by length: that would teach the model to skip reasoning wherever guessing works.
        good.sort(key=lambda rollout: (-rollout.base_score, -rollout.score))
        left_out[Reason.NOT_BEST] += len(good[self.per_group :])
        for best in good[: self.per_group]:
            yield {"messages": best.conversation, "base_score": best.base_score, "score": best.score}


@dataclass(frozen=True, slots=True)
class Dpo:
    """`prompt`, `chosen`, `rejected`, as TRL's `DPOTrainer` expects them: a group's best and worst response by score.

    Attributes:
        min_score: minimum base score of the chosen response, in [0, 1]; None: that of a solved rollout.
        margin: minimum difference between the two scores, which are those after the length penalty; in (0, 1].
    """

    min_score: float | None = None
    margin: float = 0.5

    def rows(self, rollouts: Sequence[RolloutRecord], min_score: float, left_out: Counter[Reason]) -> Iterator[Row]:
        """As `Sft.rows`."""
        good = [rollout for rollout in rollouts if _flaw(rollout, min_score) is None]
        chosen = max(good, key=lambda rollout: (rollout.score, rollout.base_score), default=None)
        rejected = min(rollouts, key=lambda rollout: rollout.score, default=None)
        if chosen is not None and rejected is not None and chosen.score - rejected.score >= self.margin:
            *prompt, right = chosen.conversation
            *prompt_of_rejected, wrong = rejected.conversation
            # Trainers take one prompt for both; the prompts of several turns usually differ.
            if prompt == prompt_of_rejected and right != wrong:
                scores = {"score_chosen": chosen.score, "score_rejected": rejected.score}
                yield {"prompt": prompt, "chosen": [right], "rejected": [wrong], **scores}
                return
        left_out[Reason.NO_PAIR] += 1


@dataclass
class Exported:
    """How many groups and rollouts were read, and examples written and left out; `notes` are warnings."""

    groups: int = 0
    rollouts: int = 0
    per_task: Counter[str] = field(default_factory=Counter)
    left_out: Counter[Reason] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.per_task.total()


def export(
    dump: Dump,
    kind: Sft | Dpo,
    out: Path,
    *,
    think: Think = Think.KEEP,
    include_eval: bool = False,
    force: bool = False,
) -> Exported:
    """Write a data set, unless no example remains.

    Args:
        out: ends in `.jsonl`.
        think: whether responses keep their think block.
        include_eval: include evaluation groups.
        force: replace a file of this name.
    """
    out = check_output(out, ".jsonl", force=force)
    result = Exported()
    rows = _examples(dump, kind, think, include_eval, result)
    # The first example is asked for before the file is made: without one, there is none.
    first = next(rows, None)
    if first is not None:
        with new_file(out) as draft, draft.open("wb") as file:
            jsonlines.Writer(file, dumps=orjson.dumps).write_all(chain([first], rows))
    # Groups without a text are not among those that were read; the ledger has them.
    wanted = (pl.col("text") == "") & (pl.lit(include_eval) | (pl.col("phase") != Phase.EVAL.value))
    without_text = dump.scan().filter(wanted).select(pl.col("group_id").n_unique())
    result.left_out[Reason.NO_TEXT] += without_text.collect(engine="streaming").item()
    return result


def _examples(dump: Dump, kind: Sft | Dpo, think: Think, include_eval: bool, result: Exported) -> Iterator[Row]:
    """Yield the lines of all groups; counts them and what is left out."""
    seen: set[bytes] = set()
    evaluations, asks = 0, False
    for group in dump.groups():
        result.groups += 1
        result.rollouts += len(group.rollouts)
        if group.phase == Phase.EVAL and not include_eval:
            result.left_out[Reason.EVALUATION] += 1
            continue
        if group.phase == Phase.EVAL:
            evaluations += 1
        # Whether a system prompt asks for a think block, which the note below is about.
        asks = asks or _asks_for_think(group)
        min_score = kind.min_score
        if min_score is None:
            min_score = dump.solved_at(group)
        usable = list(_usable(dump.with_opening(group), think, result.left_out))
        for row in kind.rows(usable, min_score, result.left_out):
            # A digest in place of the text: memory must not grow with the texts.
            digest = _digest(row)
            if digest in seen:
                result.left_out[Reason.DUPLICATE] += 1
            else:
                seen.add(digest)
                result.per_task[group.task] += 1
                yield row | {name: getattr(group, name) for name in _ORIGIN}
    if evaluations:
        result.notes.append(
            f"CONTAMINATED: {evaluations} evaluation groups are included (--include-eval). "
            "A policy trained on this set can no longer be evaluated on those questions."
        )
    result.notes += assumed_phases(dump)
    if asks and think is Think.DROP:
        result.notes.append("Think blocks were dropped from the responses, but some system prompts still ask for one.")


def assumed_phases(dump: Dump) -> list[str]:
    """Return a line if runs were imported whose records do not say whether they are of an evaluation."""
    phases = {str(run.imported["assumed_phase"]) for run in dump.runs if run.imported.get("assumed_phase")}
    if not phases:
        return []
    assumed = visible(", ".join(sorted(phases)), one_line=True)
    return [
        f"The phase of imported rollouts was assumed ({assumed}), because no record says it: evaluation questions may "
        "be among training groups. `rg-env dumps import … --phase` sets it."
    ]


def _asks_for_think(group: GroupRecord) -> bool:
    if not group.rollouts or not group.rollouts[0].conversation:
        return False
    first = group.rollouts[0].conversation[0]
    return first["role"] == "system" and "<think>" in first["content"]


def _usable(group: GroupRecord, think: Think, left_out: Counter[Reason]) -> Iterator[RolloutRecord]:
    """Yield the rollouts with a text and a reliable score, with the response as it is exported."""
    for rollout in group.rollouts:
        *prompt, last = rollout.conversation or [{"role": "", "content": ""}]
        response: str | None = last["content"]
        if not prompt or last["role"] != "assistant" or not response:
            left_out[Reason.NO_RESPONSE] += 1
        elif rollout.status.is_scorer_failure or math.isnan(rollout.base_score) or math.isnan(rollout.score):
            left_out[Reason.NO_SCORE] += 1
        elif think is Think.DROP and not (response := without_think(response, as_violation(rollout.violation))):
            left_out[Reason.THINK_STAYS] += 1
        else:
            yield msgspec.structs.replace(rollout, conversation=[*prompt, last | {"content": response}])


def _flaw(rollout: RolloutRecord, min_score: float) -> Reason | None:
    """Return why nothing should be trained toward a response; None if it is a good one."""
    if rollout.violation:
        return Reason.VIOLATION
    if rollout.status is Status.REJECTED:
        return Reason.REJECTED
    if rollout.truncated:
        return Reason.TRUNCATED
    if rollout.base_score >= min_score:
        return None
    return Reason.LOW_SCORE


def _digest(row: Row) -> bytes:
    """Return a digest that is equal for examples whose messages differ only in whitespace."""
    messages = []
    for value in row.values():
        if isinstance(value, list):  # of messages; the others are scores
            for message in value:
                words = " ".join(message["content"].split())
                messages.append(f"{message['role']}\0{words}")
    return blake2b("\0\0".join(messages).encode(), digest_size=16).digest()


def export_table(dump: Dump, out: Path) -> int:
    """Write the rows of `Dump.scan` as Parquet, with their types. Returns their number. Errors as `scan`."""
    # Alone, a table has no settings, which say it of our groups.
    is_ours = pl.col("environment") == RG_DUMP
    solved_at = pl.when(is_ours).then(threshold(dump, None)).otherwise("solved_at")
    metadata = {} if dump.whole_groups else {PARTS_OF_GROUPS: "true"}
    with new_file(out) as draft:
        dump.scan().with_columns(solved_at=solved_at).sink_parquet(draft, metadata=metadata)
        return int(pl.scan_parquet(draft).select(pl.len()).collect().item())
