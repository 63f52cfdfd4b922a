"""The lines that Atropos' Reasoning Gym environment saves: `item_id`, and rollouts with a conversation and a score.

The score is the one after the length penalty. Groups that were all correct are not in these files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rg_env.dump import GroupRecord, Phase
from rg_env.dump.files import parse_name
from rg_env.formats.records import as_messages, get_objects, get_reward, one_rollout


def atropos_rows(line: dict[str, Any], path: Path, place: int) -> Iterator[GroupRecord]:
    """The rollouts of a line. Files of one run have its id in their names."""
    file = parse_name(path)
    run_id = re.sub(r"[^\w.-]", "-", path.name.partition(".jsonl")[0] if file is None else file.run_id)
    group = {"phase": Phase.TRAIN, "run_id": run_id, "task": line["item_id"], "uid": f"{path.name}:{place}"}
    rollouts = get_objects(line, "rollouts")
    if not rollouts or not all("conversation" in rollout for rollout in rollouts):
        raise ValueError("has no `rollouts` with a `conversation`")
    for rollout in rollouts:
        yield one_rollout(as_messages(get_objects(rollout, "conversation")), get_reward(rollout, "score"), group)
