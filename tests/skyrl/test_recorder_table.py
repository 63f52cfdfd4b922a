"""The table in docs/recorder.md: every generator, loop and kind of environment, in SkyRL's own loops without models."""

import asyncio
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
from transformers import AutoTokenizer

import rg_env
from rg_env.cpu import nano_path
from rg_env.dataset import ReasoningGymDataset
from rg_env.dump import open_run
from rg_env.dump.validate import validate
from rg_env.skyrl.config import load_config
from rg_env.skyrl.generator import RGDumpGenerator
from rg_env.skyrl.recorder import Recorder, open_dump
from rg_env.skyrl.trainers import RecordingTrainer
from tests.skyrl.scripted_engine import ScriptedEngine
from tests.skyrl.scripted_training import BATCH, FULLY_ASYNC, TASK, NoModels, Script, _Tracker, settings

ROOT = Path(__file__).resolve().parents[2]


SAMPLING = "trainer__algorithm__dynamic_sampling__"
LOOPS = {
    "synchronous": {},
    "asynchronous": FULLY_ASYNC,
    "step-wise": {"generator__step_wise_trajectories": True},
    "filter": {f"{SAMPLING}type": "filter", f"{SAMPLING}max_sample_batches": 30, "trainer__epochs": 3},
    "replace": {f"{SAMPLING}type": "replace", f"{SAMPLING}min_replace_ratio": 0.0},
}


class Consumed:
    """Keeps how many rows of each step are not padded."""

    def train_critic_and_policy(self, data):
        rows = len(data["sequences"]) - data.metadata.get("pad_size", 0)
        self.consumed = getattr(self, "consumed", {}) | {self.global_step: rows}
        return super().train_critic_and_policy(data)


class Sync(Consumed, NoModels, RecordingTrainer, RayPPOTrainer): ...


class Async(Consumed, NoModels, RecordingTrainer, FullyAsyncRayPPOTrainer): ...


class Rows:
    """Rows of gsm8k or of its variant with turns, as a dataset of SkyRL's."""

    def __init__(self, env_class):
        self.env_class = env_class

    def __len__(self):
        return 4 * BATCH

    def __getitem__(self, number):
        extras = {"reward_spec": {"ground_truth": str(number)}, "extra_info": {}}
        return [{"role": "user", "content": f"item {number}"}], self.env_class, extras, str(number)

    def collate_fn(self, rows):
        names = ("prompt", "env_class", "env_extras", "uid")
        return [dict(zip(names, row, strict=True)) for row in rows]


class Answers:
    """No two responses are the same; the first sample of about every second item is right."""

    def __init__(self):
        self.numbers = itertools.count()

    def __call__(self, prompt, sample):
        item = re.search(r"item (\d+)", prompt)[1]
        right = sample == 0 and zlib.crc32(item.encode()) % 2
        return f"{next(self.numbers)} #### {item if right else 'none'}"


def trained(folder, generator_class, loop, env_class):
    more = LOOPS[loop] | ({} if env_class != "gsm8k_multi_turn" else {"generator__max_turns": 2})
    given = settings(folder, generator__max_input_length=512, trainer__logger="console", **more)
    given |= {"environment.env_class": env_class, "data.train_data": f"[{__file__}]"}
    cfg = load_config([f"{key}={value}" for key, value in given.items()])
    cfg.data.dataloader.num_workers = 0
    rg_env.register()
    tokenizer = AutoTokenizer.from_pretrained(nano_path(), padding_side="left")
    dataset, script = Rows(env_class), Answers()
    if env_class == "rg_dump":
        dataset = ReasoningGymDataset(TASK, size=4 * BATCH)
        script = Script(dataset.item(index) for index in range(len(dataset)))
    engine = ScriptedEngine(tokenizer, script)
    writer = open_dump(cfg, folder / "dumps")
    parts = {
        "generator_cfg": cfg.generator,
        "skyrl_gym_cfg": cfg.environment.skyrl_gym,
        "inference_engine_client": engine,
        "tokenizer": tokenizer,
    }
    if generator_class is RGDumpGenerator:
        generator = RGDumpGenerator(**parts, writer=writer)
    else:
        generator = Recorder(generator_class(**parts), writer, tokenizer)
    trainer = (Async if loop == "asynchronous" else Sync)(
        cfg=cfg,
        tracker=_Tracker(),
        tokenizer=tokenizer,
        train_dataset=dataset,
        eval_dataset=None,
        inference_engine_client=engine,
        generator=generator,
        colocate_pg=None,
    )
    with writer:
        asyncio.run(trainer.train())
    return trainer


class OneOfTheirs(SkyRLGymGenerator):
    """As in SkyRL's integrations: takes no `disable_tqdm`, names its rows."""

    async def generate(self, input_batch):
        output = await super().generate(input_batch, True)
        return output | {"trajectory_ids": output.get("trajectory_ids") or list(input_batch["trajectory_ids"])}


GENERATORS = {"SkyRLGymGenerator": SkyRLGymGenerator, "RGDumpGenerator": RGDumpGenerator, "one's own": OneOfTheirs}
ENVIRONMENTS = {"`rg_dump`": "rg_dump", "one turn": "gsm8k", "several turns": "gsm8k_multi_turn"}


def table():
    """The cells of the page: (generator, loop, environment, content)."""
    lines = (ROOT / "docs" / "recorder.md").read_text().split("| generator |")[1].split("\n\n")[0].splitlines()
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    for generators, loops, *cells in rows:
        for generator, loop in itertools.product(generators.split(", "), loops.split(", ")):
            for environment, content in zip(header[1:], cells, strict=True):
                yield generator.strip("`"), loop, environment, content


def test_the_table_has_every_combination():
    cells = {cell[:3] for cell in table()}
    assert cells == set(itertools.product(GENERATORS, LOOPS, ENVIRONMENTS))


@pytest.mark.parametrize(("generator", "loop", "environment", "content"), list(table()))
def test_every_cell_of_the_table(tmp_path, generator, loop, environment, content):
    env_class = ENVIRONMENTS[environment]
    trainer = trained(tmp_path, GENERATORS[generator], loop, env_class)
    dump = open_run(tmp_path / "dumps")
    groups = {group.group_id: group for group in dump.groups()}
    kept = set(content.split(", "))
    assert kept == {"groups", "trained"} | ({"verdicts"} if env_class == "rg_dump" else {"turns"})
    assert len(groups) == trainer.generated and validate(tmp_path / "dumps").good
    assert {group.environment for group in groups.values()} == {env_class}
    rollouts = [rollout for group in groups.values() for rollout in group.rollouts]
    if env_class == "rg_dump":
        assert all((one.raw_score is None) == bool(one.violation) for one in rollouts)
    else:
        turns = [json.loads(one.each_turn) for one in rollouts]
        assert {len(of_rollout) for of_rollout in turns} <= ({1} if env_class == "gsm8k" else {1, 2})
        assert [len(of_rollout) for of_rollout in turns] == [one.turns for one in rollouts]
    trained_on = Counter()
    for record in dump.trained():
        assert record.group_id in groups
        trained_on[record.step] += record.rollouts
    assert trained_on == trainer.consumed
    assert sorted(trained_on) == sorted(trainer.given)
