"""Reads the turns of a rollout back from its tokens: what the model wrote, and what it was shown after that.

Invariant: nothing is lost. Tokens with loss mask 1 are the model's, runs of 0 are observations; the text of a message
is the decoded text, without the marks that the tokenizer's chat template puts around it. Where the template's marks are
not found, the observation is one message of the user.

Where the whole loss mask is 0 (overlong filtering), only the template's marks separate turns, and the number of tokens
of each is unknown if there are several.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from rg_env.dump.schema import Message

_MARK = "\x02content\x02"
_BASE = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]


class TurnReader:
    """Knows the marks of a tokenizer's chat template.

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
