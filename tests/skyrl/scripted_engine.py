"""An inference engine with scripted responses: the only part that tests of the generator replace."""

from __future__ import annotations

from collections.abc import Callable


class ScriptedEngine:
    """Answers sample n of each prompt with `script(prompt, n)`.

    SkyRL's agent loops call the engine in any order; the session id identifies the sample. In batched mode there is no
    session id, and the samples of a prompt arrive in order.

    A response ending in `…` is cut off: stop reason `length`, no end-of-sequence token.
    """

    weight_version = 7
    model_name = "scripted"

    def __init__(self, tokenizer, script: Callable[[str, int], str]) -> None:
        self.tokenizer = tokenizer
        self.script = script
        self._seen: dict[tuple[int, ...], int] = {}

    async def generate(self, input_batch, model=None):
        responses, ids, reasons = [], [], []
        sessions = input_batch.get("session_ids") or [None] * len(input_batch["prompt_token_ids"])
        for prompt, session in zip(input_batch["prompt_token_ids"], sessions, strict=True):
            if session is not None:
                number = int(session.rpartition("_")[2])
            else:
                number = self._seen.get(tuple(prompt), 0)
                self._seen[tuple(prompt)] = number + 1
            text = self.script(self.tokenizer.decode(prompt), number)
            cut = text.endswith("…")
            text = text.removesuffix("…")
            responses.append(text)
            ids.append(self.tokenizer.encode(text, add_special_tokens=False))
            if not cut:
                ids[-1].append(self.tokenizer.eos_token_id)
            reasons.append("length" if cut else "stop")
        return {
            "responses": responses,
            "response_ids": ids,
            "stop_reasons": reasons,
            "response_logprobs": [[-0.5] * len(row) for row in ids],
            "prompt_logprobs": None,
            "rollout_expert_indices": None,
        }

    async def finish_session(self, session_id: str) -> None:
        pass
