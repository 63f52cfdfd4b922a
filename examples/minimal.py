"""One group from the question to the statistics, with the functions that training uses. No SkyRL, no GPU, no model.

python examples/minimal.py
"""

from __future__ import annotations

import tempfile

from rg_env import ReasoningGymDataset, RGDumpConfig, Scorer
from rg_env.analysis import statistics
from rg_env.dump import DumpWriter, new_run_id, open_run, write_manifest
from rg_env.rewards import Rollout, set_rewards
from rg_env.rollout import Origin, group_record
from rg_env.scoring.length import LengthPenaltyConfig
from rg_env.tasks import Item


def main(folder: str) -> None:
    config = RGDumpConfig(tasks=["chain_sum"], dump_dir=folder, length_penalty=LengthPenaltyConfig(kind="kimi"))

    # Item: a question of Reasoning Gym, the same for (seed, split, task, index) on every machine.
    dataset = ReasoningGymDataset(config.tasks, seed=config.seed, system_prompt=config.system_prompt)
    row = dataset.row(0)
    item = Item.from_extra_info(row["extra_info"])
    print("question:", item.entry["question"])

    # Prompt: the messages that SkyRL gives to the policy.
    prompt = row["prompt"]

    # Responses: a policy would sample them. These four stand for a group of four samples.
    right = item.entry["answer"]
    responses = [
        f"<think>I add from left to right.</think><answer>{right}</answer>",
        f"<think>{'I count on my fingers. ' * 20}</think><answer>{right}</answer>",
        "<think>I guess.</think><answer>about a hundred</answer>",
        f"The answer is {right}.",
    ]

    # Verdicts: the format is checked, and a worker process scores each answer, raw and as `<answer>…</answer>`.
    with Scorer(workers=1) as scorer:
        verdicts = [scorer.score_response(item.entry, text, item.config) for text in responses]

    # Group: the rollouts of one prompt.
    group = [
        Rollout(
            verdict=verdict,
            response_tokens=len(text.split()),  # a tokenizer would count them
            stop_reason="stop",
            conversation=[*prompt, {"role": "assistant", "content": text}],
            repetition=number,
            item=item,
        )
        for number, (text, verdict) in enumerate(zip(responses, verdicts, strict=True))
    ]

    # Rewards: the rules of the group, such as the length penalty, turn base scores into scores and rewards.
    set_rewards(group, config, max_length=100, penalize=True)
    for rollout in group:
        why = rollout.verdict.parsed.violation or rollout.verdict.scored.status
        print(f"base score {rollout.verdict.scored.score:.2f} ({why}), reward {rollout.reward:.2f}")

    # Dump: one line for the group in the ledger, and one with its texts.
    run_id = new_run_id()
    write_manifest(folder, run_id, {"attempt": 1, "kind": "train", "model": "none", "settings": config.as_nested()})
    origin = Origin(run_id, attempt=1, phase="train", step=1, call=0)
    record = group_record(origin, item, item.id, group, config.solved_at)
    with DumpWriter(folder, run_id, 1, config) as writer:
        writer.submit([record])

    # Statistics: what `rg-env dumps stats` prints, as a polars table.
    dump = open_run(folder)
    print(statistics(dump.scan()).select("task", "groups", "rollouts", "solve_rate", "mean_score"))
    print("recorded answers:", [rollout.answer for found in dump.groups() for rollout in found.rollouts])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(temporary)
