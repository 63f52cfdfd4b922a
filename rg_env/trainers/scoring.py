"""What TRL and verifiers share: items as text columns, and responses of any type.

Invariant: a rollout whose scorer failed is masked, whatever the settings say, so that no trainer learns from its 0.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from rg_env.base.errors import need
from rg_env.configuration.config import RGDumpConfig
from rg_env.evaluate.endpoint import with_reasoning
from rg_env.tasks import Item

_OF_SKYRL = ("train_unsolved", "stop_on_canaries", "debug_logging", "experiment_class")
"""Settings that only a training with SkyRL has."""


def checked(config: RGDumpConfig | None, **changes: Any) -> RGDumpConfig:
    """Return a copy of the settings for a trainer that leaves out masked rollouts.

    Raises:
        ConfigError: a setting is invalid, or has no effect outside SkyRL.
    """
    config = config or RGDumpConfig()
    for name in _OF_SKYRL:
        value, neutral = getattr(config, name), getattr(RGDumpConfig, name)
        need(value == neutral, name, value, "has no effect outside SkyRL; leave it out")
    result = dataclasses.replace(config, on_scorer_failure="mask", **changes)
    result.validate()
    return result


def item_to_text(extra_info: Mapping[str, Any]) -> str:
    """Return the item of a row, as one JSON string that no dataset format changes."""
    return json.dumps(extra_info)


def item_from_text(text: object) -> Item:
    """Return the item in a row's text.

    Raises:
        ConfigError: the row was not made by `rg_env`.
    """
    try:
        info = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        info = None
    return Item.from_extra_info(info)


def text_of(completion: Any) -> str:
    """Return the text of a completion: a string, or messages of which the last is the response.

    Reasoning that the trainer's parser took out of the text becomes its think block again.
    """
    if isinstance(completion, str) or not completion:
        return completion or ""
    message = completion[-1]
    content = message.get("content") or ""
    if not isinstance(content, str):  # content parts
        content = "".join(part.get("text", "") for part in content)
    # Of templates such as gpt-oss', TRL's parser calls it `thinking`.
    reasoning = message.get("reasoning_content") or message.get("thinking")
    return with_reasoning(reasoning, content) if isinstance(reasoning, str) and reasoning.strip() else content
