"""A synthetic dump of any size, written with the real codec: tasks, steps, failures, violations, lengths."""

from __future__ import annotations

import json
import random
from pathlib import Path

from rg_env.dump import (
    Attempt,
    FileKind,
    GroupRecord,
    NotKept,
    Phase,
    RolloutRecord,
    group_id,
    has_no_signal,
    ledger_line,
    outcome_of,
    to_line,
    write_manifest,
)
from rg_env.dump.files import batch_name
from rg_env.dump.manifest import end_manifest
from rg_env.scoring.types import Status, Violation

RUN_ID = "20261121-000000-beef"
TASKS = [f"task_{number:02d}" for number in range(40)]
ROLLOUTS, PER_STEP, PER_FILE = 8, 64, 100
WORDS = ["let", "us", "count", "then", "carry", "one", "so", "“seven”", "times", "×", "two", "makes", "fourteen", "\n"]


def make_group(number: int, draw: random.Random, thoughts: list[str]) -> GroupRecord:
    """Group `number` of the run; its solve rate rises with the steps."""
    step, task = number // PER_STEP, TASKS[number % len(TASKS)]
    rate = draw.betavariate(1, 1) * min(1.0, 0.3 + step / 2000)
    question, oracle = f"What is {number} + 7?\n{thoughts[number % len(thoughts)][:300]}", str(number + 7)
    rollouts = [make_rollout(k, step, rate, question, oracle, draw, thoughts) for k in range(ROLLOUTS)]
    return GroupRecord(
        item_id=task,
        item=f"{task}-train-42-{number}",
        run_id=RUN_ID,
        attempt=1,
        phase=Phase.TRAIN,
        step=step,
        call=step,
        uid=str(number),
        group_id=group_id(RUN_ID, 1, "train", step, str(number)),
        task=task,
        task_config="{}",
        entry=json.dumps({"question": question, "answer": oracle, "metadata": {"source_dataset": task}}),
        outcome=outcome_of([rollout.base_score for rollout in rollouts]),
        no_signal=has_no_signal([rollout.reward for rollout in rollouts]),
        rollouts=rollouts,
    )


def make_rollout(
    repetition: int, step: int, rate: float, question: str, oracle: str, draw: random.Random, thoughts: list[str]
) -> RolloutRecord:
    violation = draw.choice(list(Violation)) if draw.random() < 0.05 else None
    base = 0.0 if violation else float(draw.random() < rate)
    thought, answer = thoughts[draw.randrange(len(thoughts))], oracle if base else str(draw.randrange(10**6))
    return RolloutRecord(
        conversation=[
            {"role": "user", "content": question},
            {"role": "assistant", "content": f"<think>{thought}</think>\n<answer>{answer}</answer>"},
        ],
        score=base,
        reward=base,
        base_score=base,
        raw_score=None if violation else base,
        tagged_score=None if violation else base / 7,
        violation=violation or "",
        status=Status.OK,
        detail="",
        answer="" if violation else answer,
        response_tokens=len(thought) // 4,
        stop_reason="stop",
        truncated=False,
        penalty_factor=1.0,
        repetition=repetition,
        policy_version=str(step),
    )


def make_dump(
    folder: Path, *, groups: int | None = None, size: float | None = None, texts: bool = True, ledger: bool = True
) -> tuple[int, int]:
    """Write `groups` groups, or as many as needed for `size` bytes.

    Returns:
        groups and bytes that were written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, RUN_ID, Attempt(attempt=1))
    draw = random.Random(7)
    thoughts = [" ".join(draw.choices(WORDS, k=draw.randrange(40, 500))) for _ in range(500)]
    done = written = batch = 0
    while (groups is None or done < groups) and (size is None or written < size):
        count = PER_FILE if groups is None else min(PER_FILE, groups - done)
        members = [make_group(done + k, draw, thoughts) for k in range(count)]
        files: dict[FileKind, list[bytes]] = {FileKind.ROLLOUTS: []} if texts else {}
        if ledger:
            files[FileKind.LEDGER] = []
        at = 0
        for member in members:
            line = to_line(member)
            if texts:
                files[FileKind.ROLLOUTS].append(line)
            if ledger and texts:
                files[FileKind.LEDGER].append(ledger_line(member, FileKind.ROLLOUTS, place=(batch, at)))
            elif ledger:
                files[FileKind.LEDGER].append(ledger_line(member, None, NotKept.ROLLOUTS_OFF))
            at += len(line)
        for kind, lines in files.items():
            content = b"".join(lines)
            (folder / batch_name(kind, RUN_ID, batch)).write_bytes(content)
            written += len(content)
        done, batch = done + count, batch + 1
    end_manifest(folder, RUN_ID, 1, 0, {1: done} if ledger else None)
    return done, written
