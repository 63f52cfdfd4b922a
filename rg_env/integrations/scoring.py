"""What the integrations share: items as text columns, responses of any type, verdicts of a whole batch at once.

Invariant: a rollout whose scorer failed is masked, whatever the settings say, so that no trainer learns from its 0.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.evaluate.endpoint import with_reasoning
from rg_env.rollout import Stopwatch
from rg_env.scoring import Verdict, shared_scorer
from rg_env.tasks import Item


def checked(config: RGDumpConfig | None, **changes: Any) -> RGDumpConfig:
    """Return a copy of the settings for a trainer that leaves out masked rollouts.

    Raises:
        ConfigError: a setting is invalid, or has no effect outside SkyRL.
    """
    result = dataclasses.replace(config or RGDumpConfig(), on_scorer_failure="mask", **changes)
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
    reasoning = message.get("reasoning_content")
    return with_reasoning(reasoning, content) if isinstance(reasoning, str) and reasoning.strip() else content


def judge_all(config: RGDumpConfig, items: Iterable[Item], texts: Sequence[str]) -> list[tuple[Verdict, Stopwatch]]:
    """Return the verdicts of responses, in order, and how long each took. All scorer processes are used at once.

    Raises:
        ScorerPoolError: the scorer processes cannot be started.
    """
    scorer = shared_scorer(config.scorer)

    def judge(item: Item, text: str) -> tuple[Verdict, Stopwatch]:
        watch = Stopwatch()
        verdict = scorer.score_response(item.entry, text, item.config, config.prefilled_think, config.format)
        watch.end_scoring()
        return verdict, watch

    # Threads, because they only wait for the scorer processes.
    with ThreadPoolExecutor(scorer.workers) as threads:
        return list(threads.map(judge, items, texts))
