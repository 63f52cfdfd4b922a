"""The messages of a prompt: system prompt, worked examples and question."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rg_env.base.choices import ResponseFormat
from rg_env.base.errors import ConfigError, need_number, refuse
from rg_env.configuration.config import PREFIX, RGDumpConfig

THINK_ANSWER = (
    "Reason step by step between <think> and </think>. Then give only the final answer between <answer> and </answer>."
)
"""The default: one think block, then one answer block, as `parse_response` requires."""

Message = dict[str, str]

_STRICT_FORM = "<think>…</think> and then <answer>…</answer>"
_REQUIRED = {"question", "response"}


def resolve_system_prompt(name_or_text: str | None) -> str | None:
    """Return the system prompt that a setting names or contains.

    Args:
        name_or_text: `think_answer` (ours), a key of `reasoning_gym.utils.SYSTEM_PROMPTS`, any other text
            (used verbatim), or None for no system prompt.

    Raises:
        ConfigError: for a single word that is not a known name: a typo, not a prompt.
    """
    if name_or_text is None or name_or_text == "think_answer":
        return THINK_ANSWER if name_or_text else None
    from rg_env.tasks.upstream.patched_dataset import reasoning_gym

    prompts = reasoning_gym().utils.SYSTEM_PROMPTS
    if name_or_text in prompts:
        return str(prompts[name_or_text])
    if not name_or_text.strip() or len(name_or_text.split()) == 1:
        known = ", ".join(["think_answer", *prompts])
        refuse("system_prompt", name_or_text, f"no such prompt; use one of {known}, or your own text")
    return name_or_text


def _check_worked_examples(examples: object, format: str, files: Collection[str]) -> None:
    """Refuse examples that would teach the wrong format, or stand before no question."""
    from rg_env.scoring import parse_response
    from rg_env.tasks.registry import check_name

    if not isinstance(examples, (list, tuple)):
        raise ConfigError(f"worked_examples must be a list of {{question, response}}, not {type(examples).__name__}")
    for number, example in enumerate(examples):
        if not isinstance(example, Mapping) or not _REQUIRED <= set(example) <= _REQUIRED | {"task"}:
            raise ConfigError(f"worked_examples[{number}]: needs `question` and `response` (and may name a `task`)")
        if not all(isinstance(example[key], str) for key in _REQUIRED):
            raise ConfigError(f"worked_examples[{number}]: question and response must be texts")
        if example.get("task") is not None and str(example["task"]) not in files:
            try:
                check_name(str(example["task"]))
            except ConfigError as error:
                raise ConfigError(f"worked_examples[{number}]: {error}") from None
        # Read as a model's response is: an example that would score 0 teaches the model to score 0.
        violation = parse_response(example["response"], format=format).violation
        if violation is not None:
            right = "<answer>…</answer>" if format == ResponseFormat.LENIENT else _STRICT_FORM
            raise ConfigError(f"worked_examples[{number}]: its response breaks the format ({violation}); write {right}")


def format_warning(config: RGDumpConfig) -> str | None:
    """Return a warning if the format requires a think block that no message asks for or shows."""
    system_prompt = resolve_system_prompt(config.system_prompt)
    shown = any(example.get("task") is None for example in config.worked_examples)  # before every question
    if "<think>" in (system_prompt or "") or shown or config.prefilled_think or config.format == ResponseFormat.LENIENT:
        return None
    missing = "the system prompt never asks for <think>" if system_prompt else "there is no system prompt"
    return (
        f"{missing}, but {PREFIX}.format=strict scores every response without {_STRICT_FORM} as 0; "
        f"set {PREFIX}.format=lenient or system_prompt=think_answer, "
        "or prefilled_think=true if the chat template opens <think>"
    )


class Prompts:
    """Makes the prompts of questions, and counts their tokens.

    Args:
        system_prompt: a name or a text (`resolve_system_prompt`), or None.
        worked_examples: `{question, response}` pairs before the question; one with a `task`, before its questions only.
        format: `strict` or `lenient`, the format that the worked examples must have.
        tokenizer: counts tokens; needed only with `max_prompt_length`.
        max_prompt_length: in tokens, at least 1. Items with longer prompts are redrawn; None: any length will do.
        chat_template_kwargs: arguments of the tokenizer's chat template.
        files: names of the mix for files of questions, which examples may have as their `task`.

    Raises:
        ConfigError: an argument is impossible.
    """

    def __init__(
        self,
        system_prompt: str | None = "think_answer",
        worked_examples: Iterable[Mapping[str, Any]] = (),
        format: str = ResponseFormat.STRICT,
        tokenizer: Any = None,
        max_prompt_length: int | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        files: Collection[str] = (),
    ) -> None:
        if max_prompt_length is not None:
            need_number("max_prompt_length", max_prompt_length, whole=True, at_least=1)
            if tokenizer is None:
                raise ConfigError(f"max_prompt_length={max_prompt_length} needs a tokenizer to count the tokens")
        _check_worked_examples(worked_examples, format, files)
        self._worked_examples, self._system_prompt = worked_examples, resolve_system_prompt(system_prompt)
        self._tokenizer, self.max_length, self.format = tokenizer, max_prompt_length, format
        self._chat_template_kwargs = dict(chat_template_kwargs or {})

    @classmethod
    def of(cls, config: RGDumpConfig) -> Prompts:
        """Return the prompts of the settings, whatever their length. With examples, raises also for a wrong mix."""
        from rg_env.tasks.mix import TaskMix

        files = TaskMix.parse(config.tasks).files if config.worked_examples else ()
        return cls(config.system_prompt, config.worked_examples, config.format, files=files)

    def messages(self, task: str, question: str) -> list[Message]:
        """Return the conversation before a response: system prompt, worked examples as turns, the question."""
        messages = []
        if self._system_prompt:
            messages.append({"role": "system", "content": self._system_prompt})
        for example in self._worked_examples:
            if example.get("task") in (None, task):
                messages.append({"role": "user", "content": example["question"]})
                messages.append({"role": "assistant", "content": example["response"]})
        return [*messages, {"role": "user", "content": question}]

    def length(self, task: str, question: str) -> int:
        """Tokens of the prompt as SkyRL counts them, including the chat template's opening of the response."""
        # Transformers 5 returns a dict otherwise.
        options = {"add_generation_prompt": True, "tokenize": True, "return_dict": False, **self._chat_template_kwargs}
        return len(self._tokenizer.apply_chat_template(self.messages(task, question), **options))
