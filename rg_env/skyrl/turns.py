"""The turns of a rollout in an environment other than rg_dump: what the model wrote, and what it was shown after that.

Around `SkyRLGymGenerator` and its subclasses the turns are what the environment got and returned, noted while it was
called (`note_turns`). They are exact in SkyRL's plain, step-wise and single-message modes. Of any other generator, and
in SkyRL's batched mode, they are the runs of the loss mask, decoded.

Invariant: nothing is parsed and nothing is guessed. A number of tokens that the loss mask does not tell is unknown.
Texts are what was written, and numbers of tokens what is trained on: SkyRL's chat templates may drop thinking between.

Not covered: the observation after the last turn, which the model never saw; images; the stop reason of a turn that is
not the last one of its output row, which SkyRL does not keep.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from skyrl.train.generators.base import GeneratorInterface, GeneratorOutput
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator

from rg_env.dump.schema import Message
from rg_env.tasks.item import ENV_CLASS


@dataclass(slots=True)
class Dialog:
    """What one environment got and returned.

    Attributes:
        prompt: what `init` returned, None before that.
        messages: the model's turns, each followed by the observations that the environment returned.
    """

    prompt: list[Message] | None = None
    messages: list[Message] = field(default_factory=list)

    def note(self, method: str, arguments: Sequence[Any], result: Any) -> None:
        """Note a call of the environment. SkyRL changes the lists afterwards, so they are copied."""
        if method == "init":
            self.prompt = as_messages(result[0])
        elif method == "step":
            processed = result.get("postprocessed_action")  # SkyRL trains on this one instead
            action = arguments[0] if processed is None else processed
            self.messages.append({"role": "assistant", "content": action})
            self.messages += as_messages(result["observations"])


_dialogs_of_call: ContextVar[list[Dialog] | None] = ContextVar("dialogs_of_call", default=None)
_dialog_of_rollout: ContextVar[Dialog | None] = ContextVar("dialog_of_rollout", default=None)


@contextmanager
def noted_dialogs() -> Iterator[list[Dialog]]:
    """Inside the block, every rollout of a generator with `note_turns` adds its dialog to the list, in the order of the
    batch.
    """
    dialogs: list[Dialog] = []
    token = _dialogs_of_call.set(dialogs)
    try:
        yield dialogs
    finally:
        _dialogs_of_call.reset(token)


def note_turns(generator: GeneratorInterface) -> None:
    """Let a generator note what its environments get and return; one that is not SkyRL's own is left as it is."""
    if not isinstance(generator, SkyRLGymGenerator):
        return
    # SkyRL 0.4.0 calls every method of an environment through `_run_in_executor_if_available`, so no environment has to
    # be wrapped, and what it got and returned passes here unchanged.
    run_loop = generator.agent_loop
    run_method = generator._run_in_executor_if_available

    def agent_loop(prompt: Any, env_class: str, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        # Not a coroutine function: SkyRL calls this once per rollout, in the order of the batch, and only then awaits
        # what was returned. So the list has that order, too.
        loop: Awaitable[Any] = run_loop(prompt, env_class, *args, **kwargs)
        dialogs = _dialogs_of_call.get()
        if dialogs is None:
            return loop
        dialog = Dialog()
        dialogs.append(dialog)
        # Ours keep text and verdict in their slot; their dialog only holds the place in the list.
        return loop if env_class == ENV_CLASS else _with_dialog(dialog, loop)

    def run_in_executor(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Awaitable[Any]:
        call: Awaitable[Any] = run_method(method, *args, **kwargs)
        dialog = _dialog_of_rollout.get()
        if dialog is not None:
            return _noted(dialog, method, args, call)
        return call

    generator.agent_loop = agent_loop
    generator._run_in_executor_if_available = run_in_executor


async def _with_dialog(dialog: Dialog, loop: Awaitable[Any]) -> Any:
    """Run an agent loop whose calls of its environment are noted in `dialog`.

    SkyRL runs each loop as a task, and a task has a context of its own: loops at the same time do not mix.
    """
    token = _dialog_of_rollout.set(dialog)
    try:
        return await loop
    finally:
        _dialog_of_rollout.reset(token)


async def _noted(dialog: Dialog, method: Callable[..., Any], arguments: Sequence[Any], call: Awaitable[Any]) -> Any:
    result = await call
    dialog.note(getattr(method, "__name__", ""), arguments, result)  # a `functools.partial` has none
    return result


class Turns(NamedTuple):
    """The turns of a rollout.

    Attributes:
        messages: from the first turn to the last one, without the prompt.
        tokens: the number of tokens of each turn of the model, None where it is unknown.
    """

    messages: list[Message]
    tokens: list[int | None]


def read_turns(dialog: Dialog | None, output: GeneratorOutput, rows: range, tokenizer: Any) -> Turns:
    """Read the turns of a rollout from its dialog, or else from the loss mask.

    Args:
        dialog: None if nothing was noted.
        rows: of the rollout in the output.
        tokenizer: of the policy.
    """
    if dialog is None or not dialog.messages:
        return _decoded_turns(output, rows, tokenizer)
    messages = []
    count = 0
    for message in _up_to_the_last_turn(dialog.messages):
        if message["role"] == "assistant":
            count += 1
            # A copy: the dialog keeps what the environment got.
            message = message | {"content": without_end(message["content"], tokenizer)}
        messages.append(message)
    return Turns(messages, _tokens_of_turns(count, output, rows))


def _up_to_the_last_turn(messages: Sequence[Message]) -> list[Message]:
    """Drop the observation after the last turn, which the model never saw. There must be a turn."""
    last = max(number for number, message in enumerate(messages) if message["role"] == "assistant")
    return list(messages[: last + 1])


def _tokens_of_turns(count: int, output: GeneratorOutput, rows: range) -> list[int | None]:
    """Return the lengths of the runs of ones in the loss masks, if there are as many as turns."""
    lengths: list[int | None] = []
    for row in rows:
        lengths += [length for is_models, length in _runs(output["loss_masks"][row]) if is_models]
    if len(lengths) == count:
        return lengths
    # With overlong filtering the mask is 0 everywhere. The row of a single turn still ends with the turn.
    if count == 1 and len(rows) == 1 and not lengths:
        return [len(output["response_ids"][rows[0]])]
    return [None] * count


def _decoded_turns(output: GeneratorOutput, rows: range, tokenizer: Any) -> Turns:
    """Decode the turns that the loss mask shows: runs of 1 are the model's, runs of 0 are observations.

    A row whose mask is 0 everywhere (overlong filtering) is one message of the model, of unknown length.
    """
    messages: list[Message] = []
    tokens: list[int | None] = []
    for row in rows:
        ids, mask = output["response_ids"][row], output["loss_masks"][row]
        is_filtered = bool(ids) and not any(mask)
        start = 0
        runs = [(True, len(ids))] if is_filtered else list(_runs(mask))
        for is_models, length in runs:
            # With special tokens, because those inside a turn, such as a tool call's, belong to what the model wrote.
            text = tokenizer.decode(ids[start : start + length], skip_special_tokens=False)
            start += length
            if is_models:
                messages.append({"role": "assistant", "content": without_end(text, tokenizer)})
                tokens.append(None if is_filtered else length)
            else:
                messages.append({"role": "user", "content": text})
    return Turns(_up_to_the_last_turn(messages) if tokens else [], tokens)


def _runs(mask: Sequence[int]) -> Iterator[tuple[bool, int]]:
    """Yield the runs of equal values: whether the tokens are the model's, and how many there are."""
    for is_models, run in itertools.groupby(mask, key=bool):
        yield is_models, len(list(run))


def without_end(text: str, tokenizer: Any) -> str:
    """Return a response without the end token, which SkyRL's HTTP client may leave and a chat template adds again."""
    for name in ("eos_token", "pad_token"):
        end = getattr(tokenizer, name, None)
        if isinstance(end, str) and end:
            text = text.removesuffix(end)
    return text


def as_messages(prompt: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Messages of SkyRL's; content that is not text is JSON."""
    messages: list[Message] = []
    for message in prompt:
        content = message.get("content")
        text = content if isinstance(content, str) else json.dumps(content)
        messages.append({"role": str(message["role"]), "content": text})
    return messages
