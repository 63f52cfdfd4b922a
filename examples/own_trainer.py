"""A trainer of your own: prompts in, texts out, rewards back. Rules of groups, reward function, canaries and dump are
rg_env's, as in SkyRL. The "model" has three habits and learns which one pays: python examples/own_trainer.py runs/own
"""

from __future__ import annotations

import asyncio
import math
import random
import sys

from rg_env import Judge, ReasoningGymDataset, RGDumpConfig, Rollout
from rg_env.dump import DumpWriter, Phase, open_dump
from rg_env.rollouts.rollout import Origin, Stopwatch
from rg_env.skyrl.canaries import Canaries
from rg_env.tasks import Item

STEPS, BATCH, SAMPLES, MAX_TOKENS = 20, 4, 8, 64


class Policy:
    """Probabilities of three ways to respond, trained with the policy gradient."""

    def __init__(self) -> None:
        self.logits, self.random = [0.0, 0.0, 0.0], random.Random(0)

    def respond(self, item: Item) -> tuple[int, str]:
        weights = [math.exp(logit) for logit in self.logits]
        habit = self.random.choices(range(3), weights)[0]
        answer, guess = item.entry["answer"], self.random.randint(0, 99)
        return habit, (f"It is {answer}.", wrap(str(guess)), wrap(answer))[habit]

    def learn(self, habit: int, advantage: float) -> None:
        self.logits[habit] += 0.2 * advantage


def wrap(answer: str) -> str:
    return f"<think>Let me see.</think><answer>{answer}</answer>"


async def train(config: RGDumpConfig, policy: Policy, writer: DumpWriter) -> list[float]:
    """Return the mean reward of each step."""
    rows = ReasoningGymDataset(config.tasks, STEPS * BATCH, config.seed)
    judge, canaries, means = Judge(config, max_length=MAX_TOKENS), Canaries(config), []
    await canaries.begin({"chain_sum": [rows.item(0), rows.item(1)]}, BATCH * SAMPLES)

    async def sample(item: Item, messages: list[dict[str, str]], number: int) -> tuple[int, Rollout]:
        watch = Stopwatch()
        habit, text = policy.respond(item)
        watch.end_generation()
        verdict = await canaries.accompany(item, text, lambda: judge.score(item, text))
        watch.end_scoring()
        conversation, tokens = [*messages, {"role": "assistant", "content": text}], len(text.split())
        return habit, Rollout(verdict, tokens, "stop", conversation, number, watch, item, text)

    for step in range(STEPS):
        records, rewards = [], []
        for index in range(step * BATCH, (step + 1) * BATCH):
            item, messages = rows.item(index), rows.row(index)["prompt"]
            sampled = await asyncio.gather(*(sample(item, messages, number) for number in range(SAMPLES)))
            habits, group = zip(*sampled, strict=True)
            await judge.judge(group, penalize=True)  # the user's reward, the length penalty and masks
            origin = Origin(writer.run_id, writer.attempt, Phase.TRAIN, step + 1, step)
            records.append(judge.record(origin, item, f"{item.id}#{index}", group))
            mean = sum(rollout.reward for rollout in group) / SAMPLES
            for habit, rollout in zip(habits, group, strict=True):
                if not rollout.masked:
                    policy.learn(habit, rollout.reward - mean)
            rewards += [rollout.reward for rollout in group]
        await writer.write(records)  # returns when the operating system has them
        means.append(sum(rewards) / len(rewards))
        print(f"step {step + 1}: reward {means[-1]:.2f}, canaries that failed: {canaries.end_step().failures}")
    return means


if __name__ == "__main__":
    settings = RGDumpConfig(tasks=["chain_sum"], dump_dir=f"{sys.argv[1]}/dumps", reward="examples.costs.of_tokens")
    with open_dump(settings, "train", model="three habits") as dump_writer:
        asyncio.run(train(settings, Policy(), dump_writer))
