"""What a record of ours carries through another program's format, and the files of an export.

Invariant: a rollout that was exported comes back equal, with its group's values, if its texts come back as they were;
with `prefilled_think` its text has the `<think>` of the chat template, since the other program has no such setting.
Not covered: groups without rollouts or text, records of steps and of training, and the manifest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonlines
import msgspec

from rg_env.base.atomic import check_output, new_file
from rg_env.base.choices import SOLVED_AT
from rg_env.base.errors import DumpError
from rg_env.dump import Dump, GroupRecord, NewerSchemaError, RolloutRecord, from_line
from rg_env.dump.schema import answered
from rg_env.formats.records import Row

_encode = msgspec.json.Encoder().encode


def name_of(group: GroupRecord, rollout: RolloutRecord) -> str:
    """Return what an export calls a rollout: no other one of any run has this name."""
    return f"{group.group_id}#{rollout.repetition}"


@dataclass
class ExportedDocuments:
    """The result: what was written, and how many groups are only in the ledger."""

    groups: int = 0
    rollouts: int = 0
    without_text: int = 0


def carried(group: GroupRecord, rollout: RolloutRecord) -> dict[str, Any]:
    """Give all values of a rollout and its group but texts.

    `advantage` is the reward minus the mean of the group's; it is for readers elsewhere. `roles` are those of the
    messages, of which other formats have fewer.
    """
    advantage = None
    if rollout.status.is_counted:
        rewards = [other.reward for other in answered(group.rollouts)]
        advantage = rollout.reward - sum(rewards) / len(rewards)
    return {
        "group": msgspec.structs.replace(group, rollouts=[]),
        "rollout": msgspec.structs.replace(rollout, conversation=[]),
        "advantage": advantage,
        "roles": [message["role"] for message in rollout.conversation],
    }


def restored(values: Any, texts: Sequence[object]) -> Row:
    """Return the rollout of what `carried` gave, with these texts; a ValueError if they do not fit."""
    try:
        pairs = zip(values["roles"], texts, strict=True) if values["roles"] else ()
        conversation = [{"role": role, "content": text} for role, text in pairs]
        rollout = {**values["rollout"], "conversation": conversation}
        group = from_line(GroupRecord, _encode({**values["group"], "rollouts": [rollout]}))
    except (KeyError, TypeError, ValueError, OverflowError, NewerSchemaError) as error:
        raise ValueError(f"the values of rg_env's record do not fit ({error})") from None
    # It becomes a part of file names, and the document may come from anywhere.
    if not re.fullmatch(r"[\w.-]{1,200}", group.run_id):
        raise ValueError("the run id is not a name")
    return Row(group, key=name_of(group, group.rollouts[0]))


def export_records(
    dump: Dump,
    document: Callable[[GroupRecord, RolloutRecord, str], Mapping[str, Any]],
    out: Path,
    *,
    force: bool = False,
) -> ExportedDocuments:
    """Write every rollout whose text was kept as a document of another program; nothing if there is none.

    Args:
        document: makes it of a rollout, with the name of the run's model.
        out: a name that ends in `.jsonl` gets a line for each; any other is a folder that gets a file for each.
        force: replace a file of this name.

    Raises:
        ConfigError: `out` cannot be written, or is a file that exists. DumpError: it is a folder that exists.
    """
    as_lines = out.suffix.lower() == ".jsonl"
    if as_lines:
        out = check_output(out, ".jsonl", force=force)
    elif os.path.exists(out):
        raise DumpError(f"{out} exists; choose another --out")
    models = {run.run_id: run.model for run in dump.runs}
    result = ExportedDocuments()

    def documents() -> Iterator[Mapping[str, Any]]:
        for group in dump.groups():
            result.groups += 1
            solved_at = dump.solved_at(group)
            if solved_at != SOLVED_AT:  # a document has no settings, which say it of our groups
                group = msgspec.structs.replace(group, solved_at=solved_at)
            for rollout in dump.with_opening(group).rollouts:
                result.rollouts += 1
                yield document(group, rollout, models.get(group.run_id, ""))

    result.without_text = sum(not record.text for record in dump.ledger())
    # Asked before anything is made: without a text there is neither a file nor a folder.
    if next(dump.groups(), None) is None:
        return result
    with new_file(out) as draft:
        if as_lines:
            with draft.open("wb") as file:
                jsonlines.Writer(file, dumps=_encode).write_all(documents())
        else:
            draft.mkdir()
            for number, values in enumerate(documents()):
                (draft / f"{number:06d}.json").write_bytes(_encode(values))
    return result
