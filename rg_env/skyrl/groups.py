"""What a generator of SkyRL's returned, read back as groups of rollouts.

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
from rg_env.dump.schema import Message
from rg_env.errors import RGEnvError
from rg_env.rewards import Prompt, Rollout, Stopwatch
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


def with_slots(batch: GeneratorInput) -> GeneratorInput:
    """The input of a call, in which each row of rg_dump has a `Rollout` that its environment fills."""
    extras = batch.get("env_extras")
    if extras is not None:
        extras = [
            {**(extra or {}), SLOT: Rollout()} if env_class == ENV_CLASS else extra
            for extra, env_class in zip(extras, batch["env_classes"], strict=True)
        ]
    return {**batch, "env_extras": extras}


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
        prompt = [_message(message) for message in batch["prompts"][number]]
        rollout: Rollout = extras.get(SLOT) or Rollout()
        rollout.repetition = name.repetition_id
        rollout.stop_reason = stop_reasons[rows[-1]] if rows and stop_reasons else None
        if not rows:
            rollout.verdict = Verdict.no_response("SkyRL asked for no response, or returned none")
        question: Item | Prompt
        if env_class == ENV_CLASS:
            question = rollout.item = rollout.item or Item.from_extra_info(extras.get("extra_info"))
            if rollout.responded:
                rollout.response_tokens = sum(len(output["response_ids"][row]) for row in rows)
            elif rows:
                rollout.verdict = Verdict.no_response(f"the rollout failed ({rollout.stop_reason})")
            rollout.conversation = [*prompt, {"role": "assistant", "content": reader.without_end(rollout.text)}]
        else:
            question = _prompt(env_class, prompt, extras)
            _read(rollout, prompt, output, rows, reader)
            rollout.stopwatch = _stopwatch(output, rows, began)
        group = groups.setdefault(name.instance_id, Group(name.instance_id, env_class, question))
        group.rollouts.append(rollout)
        group.rows.append(rows)
        # SkyRL trains step-wise rows on the reward of the last one.
        rollout.reward = _total(output["rewards"][rows[-1]]) if rows else 0.0
        rollout.score, rollout.masked = rollout.verdict.scored.score, not rows
    return list(groups.values())


def mark_rows(output: GeneratorOutput, groups: Sequence[Group], group_ids: Sequence[str]) -> None:
    """Put into the output, beside each row, the id of its group in the record, and whether it is kept out of the loss.

    SkyRL slices and concatenates these lists as all others. Step-wise rows have a `trajectory_id`; here all have.
    """
    count = len(output["response_ids"])
    ids, masked, names = [""] * count, [False] * count, [TrajectoryID("", 0)] * count
    for group, group_id in zip(groups, group_ids, strict=True):
        for rollout, rows in zip(group.rollouts, group.rows, strict=True):
            for row in rows:
                ids[row], masked[row] = group_id, rollout.masked
                names[row] = TrajectoryID(group.uid, rollout.repetition)
    output.update({"group_ids": ids, "masked": masked, "trajectory_ids": names})


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
        matches = spans and (not returned or all(_key(returned[row]) == _key(name) for row in spans[0]))
        rows.append(spans.popleft() if matches else range(0))
    if spans and returned:
        name = returned[spans[0][-1]]
        raise RGEnvError(f"the generator returned rollout {name.to_string()} in another place than it was asked for")
    return names, rows


def _key(name: TrajectoryID) -> tuple[str, int]:
    return name.instance_id, name.repetition_id


def _read(
    rollout: Rollout, prompt: Sequence[Message], output: GeneratorOutput, rows: range, reader: TurnReader
) -> None:
    """Set what the output says about a rollout of another environment: its turns and its score."""
    stop_reasons = output.get("stop_reasons")
    said: list[Message] = []
    rollout.turns = []
    for row in rows:
        messages, tokens = reader.turns(output["response_ids"][row], output["loss_masks"][row])
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


def _prompt(env_class: str, messages: Sequence[Message], extras: Mapping[str, Any]) -> Prompt:
    """The prompt of another environment, whose id is the same in every run and epoch."""
    digest = hashlib.blake2b(json.dumps([env_class, messages]).encode(), digest_size=8).hexdigest()
    task = str(extras.get("data_source") or env_class)
    return Prompt(env_class, task, f"{task}-{digest}")


def _message(message: Mapping[str, Any]) -> Message:
    content = message.get("content")
    return {"role": str(message["role"]), "content": content if isinstance(content, str) else json.dumps(content)}


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
        marks = {role: self._marks(role) for role in ("user", "tool", "system", "assistant")}
        if assistant := marks.pop("assistant"):
            self._ends.append(assistant[1].strip())
        self._header = assistant[0].strip() if assistant else ""
        found = {role: pair for role, pair in marks.items() if pair}
        longest_first = sorted(found.items(), key=lambda item: -len(item[1][0]))
        blocks = [f"{re.escape(a)}(?P<{role}>.*?){re.escape(b.rstrip())}" for role, (a, b) in longest_first]
        self._block = re.compile("|".join(blocks), re.DOTALL) if blocks else re.compile("(?!)")

    def without_end(self, text: str) -> str:
        """A response without the end token, which SkyRL's HTTP client may leave and a chat template adds again."""
        for end in self._ends[:2]:
            text = text.removesuffix(end)
        return text

    def turns(self, ids: Sequence[int], mask: Sequence[int]) -> tuple[list[Message], list[int | None]]:
        """The messages in the response of one output row, and the number of tokens of each assistant's turn."""
        if not any(mask):
            messages = self._unmasked(self._decoded(ids))
            said = sum(message["role"] == "assistant" for message in messages)
            return messages, [len(ids)] if len(messages) == 1 else [None] * said
        messages, counts = [], list[int | None]()
        for is_said, run in itertools.groupby(zip(ids, mask, strict=True), key=lambda pair: bool(pair[1])):
            tokens = [token for token, _ in run]
            if is_said:
                messages.append({"role": "assistant", "content": self._said(self._decoded(tokens))})
                counts.append(len(tokens))
            else:
                messages += self._shown(self._decoded(tokens))
        return messages, counts

    def _shown(self, text: str) -> list[Message]:
        """The messages in what the model was shown between two turns."""
        if found := [self._message(block) for block in self._block.finditer(text)]:
            return found
        for end in self._ends:
            text = text.removeprefix(end)
        if self._header and self._header in text:
            text = text.rpartition(self._header)[0]
        return [{"role": "user", "content": text}] if text.strip() else []

    def _unmasked(self, text: str) -> list[Message]:
        """All messages of a response; what is in no message of another role is the assistant's."""
        messages, end = list[Message](), 0
        for block in self._block.finditer(text):
            messages += [self._assistant(text[end : block.start()]), self._message(block)]
            end = block.end()
        return [*messages, self._assistant(text[end:])]

    def _assistant(self, text: str) -> Message:
        opened = text.lstrip("\n")
        if self._header and opened.startswith(self._header):
            text = opened.removeprefix(self._header).removeprefix("\n")
        return {"role": "assistant", "content": self._said(text)}

    @staticmethod
    def _message(block: re.Match[str]) -> Message:
        role = str(block.lastgroup)
        return {"role": role, "content": block[role]}

    def _said(self, text: str) -> str:
        """What the model wrote, without the end of its turn."""
        for end in self._ends:
            if text.rstrip("\n").endswith(end):
                return text.rstrip("\n").removesuffix(end)
        return text

    def _decoded(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def _marks(self, role: str) -> tuple[str, str] | None:
        """What the chat template puts before and after a message of a role, if anything."""
        try:
            base = self._tokenizer.apply_chat_template(_BASE[: 1 if role == "assistant" else 2], tokenize=False)
            whole = self._tokenizer.apply_chat_template(
                [*_BASE[: 1 if role == "assistant" else 2], {"role": role, "content": _MARK}], tokenize=False
            )
        except Exception:  # a template may refuse a role in its own way
            return None
        before, mark, after = whole.removeprefix(base).partition(_MARK)
        return (before, after) if mark and before.strip() and after.strip() and whole.startswith(base) else None
