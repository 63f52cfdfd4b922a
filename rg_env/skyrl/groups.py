"""The groups of one `generate()` call: their rollouts are made before it, and filled and recorded after it.

In this order: `with_slots` makes a `Rollout` for each row, its environment fills in text and verdict, `fill_groups`
what only SkyRL's output says, the rules of groups judge it (`RGDumpGenerator`; none with a `Recorder`), and
`record_groups` makes the records.

Invariant: nothing is guessed. Every row of the output belongs to one rollout, in the order in which the rollouts were
asked for, or the whole call is an error. A rollout of rg_dump is the `Rollout` that its environment filled: text,
verdict and reward are of this one object. The reward of any other is the one in the output, and its score is the sum of
all rewards that its environment gave, whatever their range. A sum that is not a finite number is not a score: such a
rollout is `unscored`, and masked.

Their turns are read by `turns.py`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loguru import logger
from skyrl.train.generators.base import GeneratorInput, GeneratorOutput, TrajectoryID

from rg_env.base.errors import RGEnvError
from rg_env.dump import DumpWriter, GroupRecord, Phase
from rg_env.dump.schema import Message
from rg_env.rollouts.rollout import Origin, Prompt, Rollout, Stopwatch
from rg_env.scoring.types import AnswerScore, ParsedResponse, Status, Verdict
from rg_env.skyrl.env import SLOT
from rg_env.skyrl.turns import Dialog, Turns, as_messages, read_turns, without_end
from rg_env.tasks import Item
from rg_env.tasks.item import ENV_CLASS


@dataclass(slots=True)
class Group:
    """The rollouts of one prompt in one `generate()` call.

    Attributes:
        uid: SkyRL's uid of the prompt.
        env_class: the environment that scored it.
        question: an item of rg_dump, or the prompt of another environment.
        rollouts: in the order of the call, with the rewards of the output until the rules of the group are applied.
        rows: of each rollout, its rows in the output: one, or one for each turn in step-wise mode, where a rollout that
            was never answered has none.
    """

    uid: str
    env_class: str
    question: Item | Prompt
    rollouts: list[Rollout] = field(default_factory=list)
    rows: list[range] = field(default_factory=list)


def origin_of(batch: GeneratorInput, writer: DumpWriter | None, engine: Any, call: int) -> Origin:
    """Note where a call's groups come from, as far as it is known before the call.

    Args:
        writer: of the dump, if there is one.
        engine: the client of the engine; its `weight_version` is noted where it has one.
        call: its number in the run.
    """
    run_id, attempt = "unrecorded", 1
    if writer:
        run_id, attempt = writer.run_id, writer.attempt
    # SkyRL's trainers say phase and step; a caller of `generate()` without them does not train.
    phase, step = Phase.EVAL, None
    metadata = batch.get("batch_metadata")
    if metadata:
        phase, step = Phase(metadata.training_phase), metadata.global_step
    version = getattr(engine, "weight_version", None)
    return Origin(run_id, attempt, phase, step, call, "" if version is None else str(version))


def with_slots(batch: GeneratorInput) -> GeneratorInput:
    """Return the input of a call, in which each row of rg_dump has a `Rollout` that its environment fills.

    Raises:
        ConfigError: a row of rg_dump has no item.
    """
    all_extras = batch.get("env_extras")
    if all_extras is None:
        return batch
    with_slot: list[dict[str, Any]] = []
    before, item = None, None
    for extras, env_class in zip(all_extras, batch["env_classes"], strict=True):
        if env_class == ENV_CLASS:
            info = (extras or {}).get("extra_info")
            if item is None or info != before:  # the rollouts of a group have equal rows
                before, item = info, Item.from_extra_info(info)
            with_slot.append({**extras, SLOT: Rollout(item=item)})
        else:
            with_slot.append(extras)
    return {**batch, "env_extras": with_slot}


def fill_groups(
    batch: GeneratorInput, output: GeneratorOutput, *, dialogs: Sequence[Dialog], tokenizer: Any, began: float
) -> list[Group]:
    """Return the groups of a call in order of appearance, with everything that the output says filled into their
    rollouts.

    Args:
        batch: from `with_slots`.
        dialogs: what the environments got and returned, in the order of the batch; of another length if the generator
            did not run one agent loop for each rollout.
        tokenizer: of the policy.
        began: when the call began, in seconds since 1970-01-01 UTC.

    Raises:
        RGEnvError: it cannot be known which rows of the output belong to which rollout.
    """
    groups: dict[str, Group] = {}
    stop_reasons = output.get("stop_reasons")
    all_extras = batch.get("env_extras") or [None] * len(batch["prompts"])
    names, rows_of_each = _names_and_rows(batch, output)
    knows_dialogs = len(dialogs) == len(names)
    for number, (name, rows) in enumerate(zip(names, rows_of_each, strict=True)):
        env_class, extras = batch["env_classes"][number], all_extras[number] or {}
        prompt = as_messages(batch["prompts"][number])
        rollout: Rollout = extras.get(SLOT) or Rollout()
        rollout.repetition = name.repetition_id
        rollout.stop_reason = stop_reasons[rows[-1]] if rows and stop_reasons else None
        # Without a row there is no response, whatever the environment of an unfinished rollout has filled in.
        if not rows:
            rollout.verdict = Verdict.no_response("SkyRL requested no response, or returned none")
        if env_class == ENV_CLASS:
            _fill_ours(rollout, rows, output)
            rollout.conversation = [*prompt, {"role": "assistant", "content": without_end(rollout.text, tokenizer)}]
        else:
            dialog = dialogs[number] if knows_dialogs else None
            _fill_other(rollout, prompt, dialog, read_turns(dialog, output, rows, tokenizer), output, rows)
            rollout.stopwatch = _stopwatch(output, rows, began)
        if name.instance_id not in groups:
            # The question is that of the first rollout: those of a group have the same.
            question = rollout.item or _prompt_of(env_class, prompt, extras)
            groups[name.instance_id] = Group(name.instance_id, env_class, question)
        group = groups[name.instance_id]
        group.rollouts.append(rollout)
        group.rows.append(rows)
        # SkyRL trains step-wise rows on the reward of the last one.
        rollout.reward = _total(output["rewards"][rows[-1]]) if rows else 0.0
        rollout.score = rollout.verdict.scored.score
        rollout.masked = not rollout.verdict.scored.status.is_counted
    return list(groups.values())


def record_groups(
    origin: Origin,
    groups: Sequence[Group],
    output: GeneratorOutput,
    record: Callable[[Origin, Item | Prompt, str, Sequence[Rollout]], GroupRecord],
) -> list[GroupRecord]:
    """Return the records of a call's groups. In training, lists are put into the output that say of each row: `groups`,
    the record of its group, `group_ids`, the id of that, and `masked`, whether the row is kept out of the loss.

    SkyRL slices and concatenates these lists as all others. Step-wise rows have a `trajectory_id`; here all have.

    Args:
        record: makes the record of a group, as `Judge.record` does.
    """
    records = [record(origin, group.question, group.uid, group.rollouts) for group in groups]
    # SkyRL's evaluation needs none of these lists, and would have to join them.
    if origin.phase is Phase.TRAIN:
        count = len(output["response_ids"])
        ids, masked, names = [""] * count, [False] * count, [TrajectoryID("", 0)] * count
        of_rows: list[GroupRecord | None] = [None] * count
        for group, of_group in zip(groups, records, strict=True):
            for rollout, rows in zip(group.rollouts, group.rows, strict=True):
                for row in rows:
                    ids[row], masked[row], of_rows[row] = of_group.group_id, rollout.masked, of_group
                    names[row] = TrajectoryID(group.uid, rollout.repetition)
        output.update({"groups": of_rows, "group_ids": ids, "masked": masked, "trajectory_ids": names})
    return records


class UnscoredWarning:
    """Logs once, for the first call in which environments give rewards that are not finite numbers, how many there are.

    Args:
        effect: what becomes of these rollouts.
    """

    def __init__(self, effect: str) -> None:
        self._effect = effect
        self._has_said = False

    def say(self, groups: Sequence[Group]) -> None:
        if self._has_said:
            return
        unscored, count = Counter[str](), 0
        for group in groups:
            count += len(group.rollouts)
            for rollout in group.rollouts:
                unscored[group.env_class] += rollout.verdict.scored.status is Status.UNSCORED
        if not unscored.total():
            return
        self._has_said = True
        environments = ", ".join(name for name, number in unscored.items() if number)
        logger.warning(
            "{} of {} rewards in a call are not finite numbers ({}): recorded with the status unscored; {}",
            unscored.total(),
            count,
            environments,
            self._effect,
        )


def _names_and_rows(batch: GeneratorInput, output: GeneratorOutput) -> tuple[Sequence[TrajectoryID], list[range]]:
    """Return the id and the output rows of each rollout that was asked for."""
    if "group_ids" in output:
        raise RGEnvError("the groups of this batch are recorded already: use one Recorder for a run")
    asked, returned = batch.get("trajectory_ids"), output.get("trajectory_ids")
    last_flags = output.get("is_last_step")
    # A span is the rows of one returned rollout: they end with a row that is its last step. Without flags, each row is.
    is_last_step = last_flags or [True] * len(output["response_ids"])
    ends = [row for row, is_last in enumerate(is_last_step, 1) if is_last]
    spans = deque(range(start, end) for start, end in itertools.pairwise([0, *ends]))
    # What the trainer asked for comes first, because a rollout that is missing in the output is only there.
    names = asked or None
    if names is None and returned:
        names = [returned[span[-1]] for span in spans]
    if names is None:
        raise RGEnvError(
            "neither the trainer nor the generator gave `trajectory_ids`, so that the rollouts of a group are unknown: "
            "return them in the GeneratorOutput"
        )
    # In step-wise mode, SkyRL returns no row of a rollout whose prompt is over generator.max_input_length.
    may_be_missing = asked and returned and last_flags
    if len(spans) != len(batch["prompts"]) and not may_be_missing:
        raise RGEnvError(
            f"the generator returned {len(spans)} rollouts for {len(batch['prompts'])} prompts, so that no row can be "
            "recorded: it must return all of them in order, several rows of one with `is_last_step`"
        )
    # Both are in the order of the call, so a rollout whose name the next span does not have has no rows. A span that is
    # left over at the end was returned in another order.
    rows = []
    for name in names:
        if spans and _is_of(name, spans[0], returned):
            rows.append(spans.popleft())
        else:
            rows.append(range(0))
    if spans and returned:
        name = returned[spans[0][-1]]
        raise RGEnvError(f"the generator returned rollout {name.to_string()} in another position than it was requested")
    return names, rows


def _is_of(rollout: TrajectoryID, rows: range, returned: Sequence[TrajectoryID] | None) -> bool:
    """Return whether these rows are of a rollout, by the ids in the output; without ids, all are in order."""
    if not returned:
        return True
    return all(returned[row].to_string() == rollout.to_string() for row in rows)


def _fill_ours(rollout: Rollout, rows: range, output: GeneratorOutput) -> None:
    """Complete a rollout of rg_dump: it has one turn, whose text and verdict its environment has filled in."""
    if rollout.responded:
        rollout.response_tokens = sum(len(output["response_ids"][row]) for row in rows)
    elif rows:  # SkyRL has a row, but the environment got no response
        rollout.verdict = Verdict.no_response(f"the rollout failed ({rollout.stop_reason})")


def _fill_other(
    rollout: Rollout,
    prompt: Sequence[Message],
    dialog: Dialog | None,
    turns: Turns,
    output: GeneratorOutput,
    rows: range,
) -> None:
    """Set the turns and the score of a rollout of another environment."""
    # An environment may change its prompt in `init`; what it returned is what the model saw.
    if dialog is not None and dialog.prompt is not None:
        prompt = dialog.prompt
    reasons: list[str | None] = [None] * len(turns.tokens)
    stop_reasons = output.get("stop_reasons")
    if stop_reasons and len(rows) == len(reasons):
        reasons = [stop_reasons[row] for row in rows]  # step-wise: a row for each turn
    elif stop_reasons and reasons:  # one row for all turns: SkyRL keeps the last one's
        reasons[-1] = stop_reasons[rows[-1]]
    rollout.turns = []
    for count, reason in zip(turns.tokens, reasons, strict=True):
        rollout.turns.append({"tokens": count, "stop_reason": reason})
    rollout.conversation = [*prompt, *turns.messages]
    # One turn of unknown length makes the sum unknown, too: it would be too small.
    known = [count for count in turns.tokens if count is not None]
    rollout.response_tokens = None
    if len(known) == len(turns.tokens):
        rollout.response_tokens = sum(known)
    if rows:
        score = sum(_total(output["rewards"][row]) for row in rows)
        scored = AnswerScore(None, None, score, Status.OK)
        if not math.isfinite(score):
            scored = AnswerScore(None, None, math.nan, Status.UNSCORED, f"the environment's reward is {score}")
        rollout.verdict = Verdict(ParsedResponse(None, None, None), scored)


def _prompt_of(env_class: str, messages: Sequence[Message], extras: Mapping[str, Any]) -> Prompt:
    """Identify the prompt of another environment by its text, so that its id is the same in every run and epoch."""
    digest = hashlib.blake2b(json.dumps([env_class, messages]).encode(), digest_size=8).hexdigest()
    task = str(extras.get("data_source") or env_class)
    return Prompt(env_class, task, f"{task}-{digest}")


def _total(reward: float | Sequence[float]) -> float:
    if isinstance(reward, Sequence):
        return float(sum(reward))
    return float(reward)


def _stopwatch(output: GeneratorOutput, rows: range, began: float) -> Stopwatch | None:
    """Return the times that SkyRL measured, if it did, with the beginning of the call as the rollout's."""
    times = output.get("trajectory_generation_times")
    splits = output.get("trajectory_time_splits") or {}
    if not times or not rows:
        return None
    row = rows[-1]
    watch = Stopwatch()
    watch.began, watch.ended = began, began + times[row]
    # Without SkyRL's split, all of the time counts as generation.
    watch.generation = splits["llm"][row] if "llm" in splits else times[row]
    watch.scoring = splits["env"][row] if "env" in splits else 0.0
    return watch
