"""The lines that Atropos' Reasoning Gym environment saves: `item_id`, and rollouts with a conversation and a score.

The score is the one after the length penalty. Groups that were all correct are not in these files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rg_env.dump.files import parse_name
from rg_env.formats.importing import Row, as_messages, as_number, as_text, scored_rollout


def atropos_rows(line: Mapping[str, Any], path: Path, place: int) -> Iterator[Row]:
    """The rollouts of a line. Files of one run have its id in their names."""
    task, rollouts = as_text(line.get("item_id")), line.get("rollouts")
    if not task:
        raise ValueError("has no `item_id`")
    if not isinstance(rollouts, list) or not rollouts:
        raise ValueError("has no `rollouts`")
    file = parse_name(path)
    run_id = re.sub(r"[^\w.-]", "-", path.name.partition(".jsonl")[0] if file is None else file.run_id)
    for number, rollout in enumerate(rollouts):
        if not isinstance(rollout, Mapping) or not isinstance(rollout.get("conversation"), list):
            raise ValueError(f"rollout {number} has no `conversation`")
        score = as_number(rollout.get("score"), "score")
        conversation = as_messages(rollout["conversation"])
        yield Row(scored_rollout(conversation, score), {"run_id": run_id, "task": task}, f"{path.name}:{place}")
