"""One group from the question to the statistics, with the functions that training uses. No SkyRL, no GPU, no model.

python examples/minimal.py
"""

from __future__ import annotations

import tempfile

from rg_env import Judge, ReasoningGymDataset, RGDumpConfig, Rollout
from rg_env.analysis import statistics
from rg_env.configuration.config import LengthPenaltyConfig
from rg_env.dump import open_dump, open_run
from rg_env.rollouts.rollout import Origin
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
    judge = Judge(config, max_length=100)
    verdicts = [judge.score_blocking(item, text) for text in responses]

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
    judge.judge_blocking(group, penalize=True)
    for rollout in group:
        why = rollout.verdict.parsed.violation or rollout.verdict.scored.status
        print(f"base score {rollout.verdict.scored.score:.2f} ({why}), reward {rollout.reward:.2f}")

    # Dump: one line for the group in the ledger, and one with its texts.
    with open_dump(config, "train", model="none") as writer:
        origin = Origin(writer.run_id, attempt=1, phase="train", step=1, call=0)
        writer.submit([judge.record(origin, item, item.id, group)])

    # Statistics: what `rg-env dumps stats` prints, as a polars table.
    dump = open_run(folder)
    print(statistics(dump.scan()).select("task", "groups", "rollouts", "solve_rate", "mean_score"))
    print("recorded answers:", [rollout.answer for found in dump.groups() for rollout in found.rollouts])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(temporary)
