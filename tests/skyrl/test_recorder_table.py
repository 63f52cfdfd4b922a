"""The table in docs/your-code.md: every generator, loop and kind of environment, in SkyRL's loops without models."""

import itertools
import json
import re
import zlib
from collections import Counter
from pathlib import Path

import pytest
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.trainer import RayPPOTrainer

from rg_env.dump import open_run
from rg_env.dump.validate import validate
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.skyrl.generator import RGDumpGenerator
from rg_env.skyrl.trainers import RecordingTrainer
from tests.skyrl.scripted_training import BATCH, FULLY_ASYNC, SAMPLES, TASK, NoModels, Script, build, train

ROOT = Path(__file__).resolve().parents[2]
SAMPLING = "trainer__algorithm__dynamic_sampling__"
LOOPS = {
    "synchronous": {},
    "asynchronous": FULLY_ASYNC,
    "step-wise": {"generator__step_wise_trajectories": True},
    "merged": {"generator__step_wise_trajectories": True, "generator__merge_stepwise_output": True},
    "filter": {f"{SAMPLING}type": "filter", f"{SAMPLING}max_sample_batches": 30, "trainer__epochs": 3},
    "replace": {f"{SAMPLING}type": "replace", f"{SAMPLING}min_replace_ratio": 0.0},
}


class Sync(NoModels, RecordingTrainer, RayPPOTrainer): ...


class Async(NoModels, RecordingTrainer, FullyAsyncRayPPOTrainer): ...


class Rows:
    """Rows of each environment by turns, as a dataset of SkyRL's."""

    def __init__(self):
        self.of_rg = ReasoningGymDataset(TASK, size=4 * BATCH)

    def __len__(self):
        return 4 * BATCH

    def __getitem__(self, number):
        env_class = list(ENVIRONMENTS.values())[number % 3]
        if env_class == "rg_dump":
            return (*self.of_rg[number][:3], str(number))
        extras = {"reward_spec": {"ground_truth": str(number)}, "extra_info": {}}
        return [{"role": "user", "content": f"item {number}"}], env_class, extras, str(number)

    def collate_fn(self, rows):
        names = ("prompt", "env_class", "env_extras", "uid")
        return [dict(zip(names, row, strict=True)) for row in rows]


class Answers(Script):
    """No two responses are the same; the first sample of about every second item is right."""

    def __call__(self, prompt, sample):
        item = re.search(r"item (\d+)", prompt)
        if item is None:
            return super().__call__(prompt, sample)
        right = sample == 0 and zlib.crc32(item[1].encode()) % 2
        return f"<{next(self._numbers)}> #### {item[1] if right else 'none'}"


def trained(folder, generator_class, loop):
    more = {"generator__max_input_length": 512, "generator__max_turns": 1 if loop in ("filter", "replace") else 2}
    more |= {"data__train_data": f"[{__file__}]", "data__dataloader__num_workers": 0, **LOOPS[loop]}
    rows = Rows()
    trainer = build(
        folder,
        trainer_class=Async if loop == "asynchronous" else Sync,
        generator_class=generator_class,
        rows=rows,
        script=Answers(rows.of_rg.item(index) for index in range(len(rows))),
        **more,
    )
    train(trainer)
    return trainer


class OneOfTheirs(SkyRLGymGenerator):
    """As in SkyRL's integrations: takes no `disable_tqdm`, names its rows."""

    async def generate(self, input_batch):
        output = await super().generate(input_batch, True)
        return output | {"trajectory_ids": output.get("trajectory_ids") or list(input_batch["trajectory_ids"])}


GENERATORS = {"SkyRLGymGenerator": SkyRLGymGenerator, "RGDumpGenerator": RGDumpGenerator, "your own": OneOfTheirs}
ENVIRONMENTS = {"`rg_dump`": "rg_dump", "one turn": "gsm8k", "several turns": "gsm8k_multi_turn"}


def table():
    """Of the page: (generator, loop) → environment → content."""
    lines = (ROOT / "docs" / "your-code.md").read_text().split("| generator |")[1].split("\n\n")[0].splitlines()
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {
        (generator.strip("`"), loop): dict(zip(header[1:], cells, strict=True))
        for generators, loops, *cells in rows
        for generator, loop in itertools.product(generators.split(", "), loops.split(", "))
    }


@pytest.mark.parametrize(("generator", "loop"), list(itertools.product(GENERATORS, LOOPS)))
def test_every_row_of_the_table(tmp_path, generator, loop):
    content = {env_class: set(table()[generator, loop][name].split(", ")) for name, env_class in ENVIRONMENTS.items()}
    trainer = trained(tmp_path, GENERATORS[generator], loop)
    dump = open_run(tmp_path / "dumps")
    groups = {group.group_id: group for group in dump.groups()}
    assert len(groups) == trainer.generated and validate(tmp_path / "dumps").good
    assert {group.environment for group in groups.values()} == content.keys()
    for group in groups.values():
        assert content[group.environment] == {"groups", "trained"} | (
            {"verdicts"} if group.environment == "rg_dump" else {"turns"}
        )
        for rollout in group.rollouts:
            if group.environment == "rg_dump":
                assert (rollout.raw_score is None) == bool(rollout.violation)
            else:
                several = group.environment == "gsm8k_multi_turn" and trainer.cfg.generator.max_turns > 1
                assert len(json.loads(rollout.each_turn)) == rollout.turns <= 1 + several
    said = [
        (re.search(r"<\d+>|<think>\d+<", message["content"])[0], group.group_id)
        for group in groups.values()
        for rollout in group.rollouts
        for message in rollout.conversation
        if message["role"] == "assistant"
    ]
    given = Counter()
    for step, texts in trainer.given.items():
        for text, rows in texts.items():
            (group_id,) = {group_id for words, group_id in said if words in text}
            given[step, group_id] += rows
    assert given == {(record.step, record.group_id): record.rollouts for record in dump.trained()}
    if loop == "step-wise":
        assert max(given.values()) > SAMPLES, "a rollout of two turns has two rows"
    if loop == "merged":
        assert max(given.values()) == SAMPLES, "SkyRL joined the rows of every rollout"
