"""What a generator of SkyRL's returned, read back as groups of rollouts, and their records.

Invariant: nothing is guessed. Every row of the output belongs to one rollout, in the order in which the rollouts were
asked for, or the whole call is an error. A rollout of rg_dump is the `Rollout` that its environment filled: text,
verdict and reward are of this one object. The reward of any other is the one in the output, and its score is the sum of
all rewards that its environment gave, whatever their range.

Of other environments, what the model wrote and what it was shown after that are decoded from the tokens of the output;
the loss mask says which is which. Not covered: what an environment's `init` adds to the prompt of the row, images, and
the stop reason of a turn that is not the last one of its row, which SkyRL does not keep.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skyrl.train.generators.base import GeneratorInput, GeneratorOutput, TrajectoryID

from rg_env.dataset import ENV_CLASS
from rg_env.dump import DumpWriter, GroupRecord, Phase
from rg_env.dump.schema import Message
from rg_env.errors import RGEnvError
from rg_env.rewards import Origin, Prompt, Rollout, Stopwatch, group_record
from rg_env.scoring.types import AnswerScore, ParsedResponse, Status, Verdict
from rg_env.skyrl.env import SLOT
from rg_env.tasks import Item

_MARK = "\x02content\x02"
_BASE = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]


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
    """What is known of a call's groups before it.

    Args:
        writer: of the dump, if there is one.
        engine: the client of the engine; its `weight_version` is noted where it has one.
        call: its number in the run.
    """
    run_id, attempt = (writer.run_id, writer.attempt) if writer else ("unrecorded", 1)
    metadata = batch.get("batch_metadata")
    phase, step = (Phase(metadata.training_phase), metadata.global_step) if metadata else (Phase.EVAL, None)
    version = getattr(engine, "weight_version", None)
    return Origin(run_id, attempt, phase, step, call, "" if version is None else str(version))


def with_slots(batch: GeneratorInput) -> GeneratorInput:
    """The input of a call, in which each row of rg_dump has a `Rollout` that its environment fills.

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


def read_groups(batch: GeneratorInput, output: GeneratorOutput, reader: TurnReader, began: float) -> list[Group]:
    """The groups of a call in order of appearance.

    Args:
        batch: from `with_slots`.
        began: when the call began, in seconds since 1970-01-01 UTC.

    Raises:
        RGEnvError: it cannot be known which rows of the output belong to which rollout.
    """
    groups: dict[str, Group] = {}
    stop_reasons = output.get("stop_reasons")
    all_extras = batch.get("env_extras") or [None] * len(batch["prompts"])
    names, rows_of_each = _names_and_rows(batch, output)
    for number, (name, rows) in enumerate(zip(names, rows_of_each, strict=True)):
        env_class, extras = batch["env_classes"][number], all_extras[number] or {}
        prompt = _as_messages(batch["prompts"][number])
        rollout: Rollout = extras.get(SLOT) or Rollout()
        rollout.repetition = name.repetition_id
        rollout.stop_reason = stop_reasons[rows[-1]] if rows and stop_reasons else None
        if not rows:
            rollout.verdict = Verdict.no_response("SkyRL asked for no response, or returned none")
        if env_class == ENV_CLASS:
            if rollout.responded:
                rollout.response_tokens = sum(len(output["response_ids"][row]) for row in rows)
            elif rows:
                rollout.verdict = Verdict.no_response(f"the rollout failed ({rollout.stop_reason})")
            rollout.conversation = [*prompt, {"role": "assistant", "content": reader.without_end(rollout.text)}]
        else:
            _set_turns(rollout, prompt, output, rows, reader)
            rollout.stopwatch = _stopwatch(output, rows, began)
        if name.instance_id not in groups:
            question = rollout.item or _prompt_of(env_class, prompt, extras)
            groups[name.instance_id] = Group(name.instance_id, env_class, question)
        group = groups[name.instance_id]
        group.rollouts.append(rollout)
        group.rows.append(rows)
        # SkyRL trains step-wise rows on the reward of the last one.
        rollout.reward = _total(output["rewards"][rows[-1]]) if rows else 0.0
        rollout.score, rollout.masked = rollout.verdict.scored.score, not rows
    return list(groups.values())


def record_groups(
    origin: Origin, groups: Sequence[Group], output: GeneratorOutput, solved_at: Mapping[str, float]
) -> list[GroupRecord]:
    """The records of a call's groups. In training, two lists are put into the output: `group_ids`, the id of each row's
    group in the record, and `masked`, whether the row is kept out of the loss.

    SkyRL slices and concatenates these lists as all others. Step-wise rows have a `trajectory_id`; here all have.

    Args:
        solved_at: by env class, the score from which a rollout counts as solved; 0.99 for all others.
    """
    records = [
        group_record(origin, group.question, group.uid, group.rollouts, solved_at.get(group.env_class, 0.99))
        for group in groups
    ]
    if origin.phase is Phase.TRAIN:
        count = len(output["response_ids"])
        ids, masked, names = [""] * count, [False] * count, [TrajectoryID("", 0)] * count
        for group, record in zip(groups, records, strict=True):
            for rollout, rows in zip(group.rollouts, group.rows, strict=True):
                for row in rows:
                    ids[row], masked[row] = record.group_id, rollout.masked
                    names[row] = TrajectoryID(group.uid, rollout.repetition)
        output.update({"group_ids": ids, "masked": masked, "trajectory_ids": names})
    return records


def _names_and_rows(batch: GeneratorInput, output: GeneratorOutput) -> tuple[Sequence[TrajectoryID], list[range]]:
    """The id and the output rows of each rollout that was asked for."""
    if "group_ids" in output:
        raise RGEnvError("the groups of this batch are recorded already: use one Recorder for a run")
    asked, returned, last_flags = batch.get("trajectory_ids"), output.get("trajectory_ids"), output.get("is_last_step")
    ends = [row for row, is_last in enumerate(last_flags or [True] * len(output["response_ids"]), 1) if is_last]
    spans = deque(range(start, end) for start, end in itertools.pairwise([0, *ends]))
    names = asked or ([returned[span[-1]] for span in spans] if returned else None)
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
    rows = []
    for name in names:
        matches = spans and (not returned or all(returned[row].to_string() == name.to_string() for row in spans[0]))
        rows.append(spans.popleft() if matches else range(0))
    if spans and returned:
        name = returned[spans[0][-1]]
        raise RGEnvError(f"the generator returned rollout {name.to_string()} in another place than it was asked for")
    return names, rows


def _set_turns(
    rollout: Rollout, prompt: Sequence[Message], output: GeneratorOutput, rows: range, reader: TurnReader
) -> None:
    """Set what the output says about a rollout of another environment: its turns and its score."""
    stop_reasons = output.get("stop_reasons")
    said: list[Message] = []
    rollout.turns = []
    for row in rows:
        messages, tokens = reader.read_turns(output["response_ids"][row], output["loss_masks"][row])
        said += messages
        reasons = [None] * (len(tokens) - 1) + [stop_reasons[row] if stop_reasons else None]
        rollout.turns += [
            {"tokens": count, "stop_reason": reason} for count, reason in zip(tokens, reasons, strict=False)
        ]
    rollout.conversation = [*prompt, *said]
    counts = [turn["tokens"] for turn in rollout.turns]
    rollout.response_tokens = None if None in counts else sum(counts)
    if rows:
        score = sum(_total(output["rewards"][row]) for row in rows)
        rollout.verdict = Verdict(ParsedResponse(None, None, None), AnswerScore(None, None, score, Status.OK))


def _prompt_of(env_class: str, messages: Sequence[Message], extras: Mapping[str, Any]) -> Prompt:
    """The prompt of another environment, whose id is the same in every run and epoch."""
    digest = hashlib.blake2b(json.dumps([env_class, messages]).encode(), digest_size=8).hexdigest()
    task = str(extras.get("data_source") or env_class)
    return Prompt(env_class, task, f"{task}-{digest}")


def _as_messages(prompt: Sequence[Mapping[str, Any]]) -> list[Message]:
    """A prompt of SkyRL's; content that is no text is JSON."""
    contents = [message.get("content") for message in prompt]
    texts = [content if isinstance(content, str) else json.dumps(content) for content in contents]
    return [{"role": str(message["role"]), "content": text} for message, text in zip(prompt, texts, strict=True)]


def _total(reward: float | Sequence[float]) -> float:
    return float(sum(reward)) if isinstance(reward, Sequence) else float(reward)


def _stopwatch(output: GeneratorOutput, rows: range, began: float) -> Stopwatch | None:
    """The times that SkyRL measured, if it did, with the beginning of the call as the rollout's."""
    times, splits = output.get("trajectory_generation_times"), output.get("trajectory_time_splits") or {}
    if not times or not rows:
        return None
    row = rows[-1]
    watch = Stopwatch()
    watch.began, watch.ended = began, began + times[row]
    watch.generation = splits["llm"][row] if "llm" in splits else times[row]
    watch.scoring = splits["env"][row] if "env" in splits else 0.0
    return watch


class TurnReader:
    """Reads the turns of a rollout back from its tokens. Knows the marks of the tokenizer's chat template.

    Tokens with loss mask 1 are the model's, runs of 0 are observations; the text of a message is the decoded text,
    without the marks that the template puts around it. Where its marks are not found, the observation is one message of
    the user. Where the whole loss mask is 0 (overlong filtering), only the marks separate turns, and the number of
    tokens of each is unknown if there are several.

    Args:
        tokenizer: of the policy. Without a chat template only the end tokens are known.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        tokens = (getattr(tokenizer, name, None) for name in ("eos_token", "pad_token"))
        self._ends = [token for token in tokens if isinstance(token, str) and token]
        self._header, end_of_turn = (mark.strip() for mark in self._marks_of("assistant"))
        self._ends += [end_of_turn] if end_of_turn else []
        marks = [(*self._marks_of(role), role) for role in ("user", "tool", "system")]
        longest_first = sorted((mark for mark in marks if mark[0]), key=lambda mark: -len(mark[0]))
        blocks = [f"{re.escape(start)}(?P<{role}>.*?){re.escape(end.rstrip())}" for start, end, role in longest_first]
        self._block = re.compile("|".join(blocks), re.DOTALL) if blocks else re.compile("(?!)")

    def without_end(self, text: str) -> str:
        """A response without the end token, which SkyRL's HTTP client may leave and a chat template adds again."""
        for end in self._ends[:2]:
            text = text.removesuffix(end)
        return text

    def read_turns(self, ids: Sequence[int], mask: Sequence[int]) -> tuple[list[Message], list[int | None]]:
        """The messages in the response of one output row, and the number of tokens of each assistant's turn."""
        if not any(mask):
            messages = self._read_unmasked(self._decode(ids))
            turns = sum(message["role"] == "assistant" for message in messages)
            return messages, [len(ids)] if len(messages) == 1 else [None] * turns
        messages, counts = [], list[int | None]()
        for is_models, run in itertools.groupby(zip(ids, mask, strict=True), key=lambda pair: bool(pair[1])):
            tokens = [token for token, _ in run]
            if is_models:
                messages.append(self._read_assistant(self._decode(tokens)))
                counts.append(len(tokens))
            else:
                messages += self._read_observation(self._decode(tokens))
        return messages, counts

    def _read_observation(self, text: str) -> list[Message]:
        """The messages in what the model was shown between two turns."""
        if messages := [_message_in(block) for block in self._block.finditer(text)]:
            return messages
        for end in self._ends:
            text = text.removeprefix(end)
        if self._header and self._header in text:
            text = text.rpartition(self._header)[0]
        return [{"role": "user", "content": text}] if text.strip() else []

    def _read_unmasked(self, text: str) -> list[Message]:
        """All messages of a response; what is in no message of another role is the assistant's."""
        messages, end = list[Message](), 0
        for block in [*self._block.finditer(text), None]:
            said = text[end : block.start() if block else None]
            opened = said.lstrip("\n")
            if self._header and opened.startswith(self._header):
                said = opened.removeprefix(self._header).removeprefix("\n")
            messages.append(self._read_assistant(said))
            if block:
                messages.append(_message_in(block))
                end = block.end()
        return messages

    def _read_assistant(self, text: str) -> Message:
        """What the model wrote, without the end of its turn."""
        for end in self._ends:
            if text.rstrip("\n").endswith(end):
                return {"role": "assistant", "content": text.rstrip("\n").removesuffix(end)}
        return {"role": "assistant", "content": text}

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _marks_of(self, role: str) -> tuple[str, str]:
        """What the chat template puts before and after a message of a role; empty where that cannot be told."""
        base = _BASE[: 1 if role == "assistant" else 2]
        try:
            before = self._tokenizer.apply_chat_template(base, tokenize=False)
            whole = self._tokenizer.apply_chat_template([*base, {"role": role, "content": _MARK}], tokenize=False)
        except Exception:  # a template may refuse a role in its own way
            return "", ""
        start, mark, end = whole.removeprefix(before).partition(_MARK)
        return (start, end) if mark and start.strip() and end.strip() and whole.startswith(before) else ("", "")


def _message_in(block: re.Match[str]) -> Message:
    role = str(block.lastgroup)
    return {"role": role, "content": block[role]}
