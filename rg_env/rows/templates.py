"""What a model's chat template and tokenizer do to the tags of the format, found before anything starts.

Invariant: the prompts are those of the run: its system prompt, its worked examples and the opening of the response.
What makes every response score 0 is refused, what makes it likely is a warning, each in one line with the setting that
fixes it. After the check, training and evaluation judge the same text (`judged_text`).
Not covered: thoughts in other tags (`[THINK]`, `<|channel|>`), and templates of servers that somebody else started.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any
from unittest import mock

from rg_env.base.choices import ResponseFormat
from rg_env.base.errors import ConfigError, one_line, refuse, wrong_value
from rg_env.configuration.config import PREFIX, RGDumpConfig
from rg_env.rows.prompts import Message, Prompts
from rg_env.scoring.parse import with_opening

_QUESTION = "How many legs have 2 dogs and 2 hens?"
_THINK, _ANSWER = ("<think>", "</think>"), ("<answer>", "</answer>")
_END = 20
"""Characters at the end of a system message by which it is found in a prompt."""
_SHOWN = 160
"""Characters of a template's error."""


class Opening(StrEnum):
    """How a rendered prompt ends: where the response begins."""

    PLAIN = "plain"
    THINK_OPENED = "think opened"
    THINK_CLOSED = "think closed"


def judged_text(text: str, prefilled_think: bool, opening: Opening | None) -> str:
    """Return the text of a response as it is judged and recorded, in training and evaluation alike.

    Args:
        prefilled_think: the setting, with which the parser itself knows that the prompt opened the block.
        opening: of the rendered prompt: then the check has refused what the settings do not say. None: it is not known,
            as behind a server. Then a text that closes a block which it never opened shows that the prompt opened it.
    """
    closes_unopened = "</think>" in text and "<think>" not in text
    if opening is None and not prefilled_think and closes_unopened:
        return with_opening(text)
    return text


def load_tokenizer(model: str) -> Any:
    """Return the tokenizer of a model folder, or of a model of the hub, as training loads it, but without a warning
    for long texts."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model, trust_remote_code=True, model_max_length=sys.maxsize)


def check_tags(
    setting: str,
    model: str,
    tokenizer: Any,
    config: RGDumpConfig,
    template_options: Mapping[str, Any],
    *,
    keeps_special_tokens: bool = False,
) -> tuple[Opening, list[str]]:
    """Find out what template and tokenizer do to the tags.

    Args:
        setting: the one that names the model.
        template_options: of `apply_chat_template`: the template, if it is not the tokenizer's, and its arguments.
        keeps_special_tokens: responses are decoded with `skip_special_tokens=False`.

    Returns:
        how the prompts end, and warnings, one line each.

    Raises:
        ConfigError: every response would score 0, or no prompt can be rendered.
    """
    if not keeps_special_tokens:
        _check_special_tokens(setting, model, tokenizer, config)
    warnings: list[str] = []
    opening = Opening.PLAIN
    prompts = Prompts.of(config)
    # The prompts of these tasks differ in their worked examples.
    tasks = {str(example["task"]) for example in config.worked_examples if example.get("task")}
    for task in sorted(tasks) or [""]:
        messages = prompts.messages(task, _QUESTION)
        text = _render(model, tokenizer, messages, config, template_options)
        opening = _opening_of(text.rpartition(_QUESTION)[2])
        system = messages[0]["content"] if messages[0]["role"] == "system" else ""
        # By its end alone: a template may remove a think block from any message.
        if system.strip()[-_END:] not in text:
            warnings.append(
                f"the chat template of {model} leaves out the system message, so nothing asks for the format; set "
                "system_prompt=null and show the format in worked_examples, or use another template"
            )
            break
        shown = [message["content"] for message in messages if message["role"] == "assistant"]
        if any("<think>" in response and response not in text for response in shown):
            warnings.append(
                f"the chat template of {model} removes <think>…</think> from earlier turns, so worked_examples show no "
                f"think block; put an example into {PREFIX}.system_prompt as text, or set format=lenient"
            )
            break
    return opening, [*warnings, *_about(opening, model, config, template_options)]


def _about(opening: Opening, model: str, config: RGDumpConfig, template_options: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning if the end of the prompt and the settings do not fit; refuse what cannot score."""
    is_strict = config.format == ResponseFormat.STRICT
    if opening is Opening.THINK_OPENED and is_strict and not config.prefilled_think:
        right = f"the chat template of {model} opens <think> in the prompt, so no response would have one of its own "
        refuse(f"{PREFIX}.prefilled_think", False, f"{right}and every one would score 0; set prefilled_think=true")
    elif opening is Opening.THINK_CLOSED and is_strict:
        other = "use a template that does not"
        if "enable_thinking" in template_options:
            other = "set generator.chat_template_kwargs.enable_thinking=true"
        yield (
            f"the chat template of {model} writes a closed think block into the prompt, after which models rarely "
            f"write one of their own, and {PREFIX}.format=strict scores a response without one as 0; set "
            f"format=lenient, or {other}"
        )
    elif opening is Opening.PLAIN and is_strict and config.prefilled_think:
        yield wrong_value(
            f"{PREFIX}.prefilled_think",
            True,
            f"the chat template of {model} does not open <think>; set prefilled_think=false, or a response passes "
            "that never opened it",
        )


def _check_special_tokens(setting: str, model: str, tokenizer: Any, config: RGDumpConfig) -> None:
    """Refuse a tokenizer whose decoder leaves out tags that the format needs."""
    needed = [*_ANSWER]
    if config.format == ResponseFormat.STRICT:
        needed = [*_THINK, *_ANSWER]
    lost = []
    for tag in needed:
        ids = tokenizer.encode(tag, add_special_tokens=False)
        if tag not in tokenizer.decode(ids, skip_special_tokens=True):
            lost.append(tag)
    if not lost:
        return
    remedy = 'write "special": false for them in tokenizer.json and tokenizer_config.json of a copy of the model'
    if not set(lost) & set(_ANSWER):
        remedy += f", or set {PREFIX}.format=lenient"
    refuse(
        setting,
        model,
        f"{', '.join(lost)} are special tokens of its tokenizer, which decoding leaves out (skip_special_tokens=true, "
        f"as SkyRL always sets it), so every response would score 0; {remedy}; `rg-env eval` and `collect` can set "
        "generator.sampling_params.additional_kwargs={skip_special_tokens: false}",
    )


def _render(
    model: str, tokenizer: Any, messages: list[Message], config: RGDumpConfig, options: Mapping[str, Any]
) -> str:
    """Return the prompt as text.

    Raises:
        ConfigError: the template fails; says whether that is because of the system message.
    """

    def render(conversation: list[Message]) -> str:
        return str(tokenizer.apply_chat_template(conversation, add_generation_prompt=True, tokenize=False, **options))

    try:
        return render(messages)
    except Exception as error:  # a template can raise anything
        why = f"the chat template of {model} refuses the prompt ({one_line(error, _SHOWN)})"
    takes_the_rest = False
    with suppress(Exception):
        takes_the_rest = bool(render(messages[1:]))
    if messages[0]["role"] == "system" and takes_the_rest:
        why += "; set system_prompt=null, and show the format in worked_examples or set format=lenient"
        raise ConfigError(wrong_value(f"{PREFIX}.system_prompt", config.system_prompt, why))
    raise ConfigError(f"{why}; name another model or template, or leave out {PREFIX}.worked_examples")


def _opening_of(end: str) -> Opening:
    """Return how the text behind a question ends. A template may write the beginning of a thought behind `<think>`, so
    the tag need not be the last text."""
    opened, closed = (end.rfind(tag) for tag in _THINK)
    if opened > closed:
        return Opening.THINK_OPENED
    if closed >= 0:
        return Opening.THINK_CLOSED
    return Opening.PLAIN


@contextmanager
def system_message_optional(tokenizer: Any) -> Iterator[None]:
    """Inside the block, the tokenizer leaves out a system message that its template refuses.

    For SkyRL's generator, which renders one of its own when it is made, and needs it for observations of several turns
    only.
    """
    apply = tokenizer.apply_chat_template

    def without_what_is_refused(conversation: Iterable[Message], *args: Any, **kwargs: Any) -> Any:
        try:
            return apply(conversation, *args, **kwargs)
        except Exception:
            rest = [message for message in conversation if message["role"] != "system"]
            return apply(rest, *args, **kwargs)

    with mock.patch.object(tokenizer, "apply_chat_template", without_what_is_refused):
        yield
