"""SkyRL's training loops without models: rg_env's trainers, generator and dump with a scripted engine.

Replaced are the parts that need a policy: forward pass, optimizer step and weight sync. The loop, dataloader, dynamic
sampling, staleness control, conversion to tensors, advantages and checkpoints are SkyRL's. The texts that the optimizer
step would receive are kept for comparison with the dump.
"""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyrl.train.dataset import PromptDataset
from transformers import AutoTokenizer

import rg_env
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.rows.eval_set import EvalSet
from rg_env.skyrl.cpu import nano_path
from rg_env.skyrl.experiment import open_writer
from rg_env.skyrl.generator import RGDumpGenerator
from rg_env.skyrl.recorder import Recorder, open_dump
from rg_env.skyrl.train_config import load_run
from rg_env.skyrl.trainers import RGFullyAsyncTrainer, RGTrainer
from rg_env.tasks import Item
from rg_env.terminal.reports import Reports
from tests.skyrl.scripted_engine import ScriptedEngine

TASK = {"chain_sum": {"weight": 1, "config": {"min_terms": 2, "max_terms": 2, "min_digits": 2, "max_digits": 2}}}
BATCH, SAMPLES = 4, 3


SIZE = "environment.skyrl_gym.rg_dump.size"


def settings(folder: Path, **more) -> dict:
    """A run of `BATCH` groups of `SAMPLES` a step; dots in names are written as two underscores."""
    return {
        "trainer.policy.model.path": "nano",
        "trainer.train_batch_size": BATCH,
        "trainer.policy_mini_batch_size": BATCH,
        "trainer.micro_train_batch_size_per_gpu": SAMPLES,
        "trainer.algorithm.advantage_estimator": "grpo",
        "trainer.algorithm.use_kl_loss": False,
        "trainer.epochs": 1,
        "trainer.eval_interval": -1,
        "trainer.eval_before_train": False,
        "trainer.ckpt_interval": -1,
        "trainer.resume_mode": "none",
        "trainer.ckpt_path": str(folder / "checkpoints"),
        "trainer.export_path": str(folder / "exports"),
        "trainer.print_example_interval": -1,
        "generator.n_samples_per_prompt": SAMPLES,
        "generator.sampling_params.max_generate_length": 100,
        "environment.skyrl_gym.max_env_workers": 0,
        "environment.skyrl_gym.rg_dump.device": "cpu",
        "environment.skyrl_gym.rg_dump.dump_dir": str(folder / "dumps"),
        SIZE: 2 * BATCH,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


FULLY_ASYNC = {
    "trainer__fully_async__enabled": True,
    "trainer__fully_async__num_parallel_generation_workers": BATCH + 2,
    "trainer__fully_async__max_staleness_steps": 1,
    "trainer__algorithm__policy_loss_type": "rollout_is",
}


class Script:
    """No two responses are the same text. Of each prompt, the seed says whether its group is mixed or all wrong."""

    def __init__(self, items: Iterable[Item], mixed_share: float = 0.5) -> None:
        self.answers = {item.entry["question"]: item.entry["answer"] for item in items}
        self.mixed_share = mixed_share
        self._numbers = itertools.count()

    def __call__(self, prompt: str, sample: int) -> str:
        question, answer = next(pair for pair in self.answers.items() if pair[0] in prompt)
        mixed = zlib.crc32(question.encode()) % 100 < 100 * self.mixed_share
        said = answer if mixed and sample == 0 else "wrong"
        return f"<think>{next(self._numbers)}</think><answer>{said}</answer>"


class _NoDispatch:
    def get_lcm_dp_size(self) -> int:
        return 1

    def get_node_ids(self) -> list[str]:
        return []

    def empty_cache(self, *args) -> None: ...

    def init_weight_sync_state(self, *args) -> None: ...

    def get_timing_metrics(self) -> dict[str, float]:
        return {}

    def finalize_pending_saves(self, role: str) -> None: ...

    def save_checkpoint(self, role: str, folder: str, tokenizer) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)

    def load_checkpoint(self, *args, **kwargs) -> None: ...

    async def save_weights_for_sampler(self) -> None:
        await asyncio.sleep(0)


class NoModels:
    """Mixin in front of a trainer of SkyRL's.

    `given[step]` counts the responses in the step's training batch, `rewards[text]` and `advantages[step][text]` have
    what each of the rows with this text was given; `generated` counts the groups that `generate()` has returned.
    """

    fail_at: int | None = None

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.dispatch = _NoDispatch()
        self.given: dict[int, Counter[str]] = {}
        self.rewards: dict[str, list[float]] = defaultdict(list)
        self.advantages: dict[int, dict[str, list[float]]] = {}
        self.generated = 0
        generate = self.generator.generate

        async def counted(batch, disable_tqdm=False):
            output = await generate(batch, disable_tqdm=disable_tqdm)
            self.generated += len({row.instance_id for row in batch["trajectory_ids"]})
            return output

        self.generator.generate = counted

    def fwd_logprobs_values_reward(self, training_input):
        for key in ("base_action_log_probs", "action_log_probs", "values"):
            training_input[key] = None
        for text, reward in zip(self._texts(training_input), training_input["rewards"], strict=False):
            self.rewards[text].append(reward.sum().item())
        return training_input

    def _execute_training_step(self, model, data):
        if self.global_step == self.fail_at:
            raise RuntimeError("the end, in the middle of a step")
        texts = self._texts(data)
        self.given[self.global_step] = Counter(texts)
        advantages = self.advantages[self.global_step] = defaultdict(list)
        for text, of_tokens in zip(texts, data["advantages"], strict=False):
            advantages[text].append(of_tokens[of_tokens.abs().argmax()].item())  # its tokens all have the same
        return {}

    def _texts(self, batch) -> list[str]:
        """The responses in a training batch, without the rows that SkyRL padded."""
        real = len(batch["sequences"]) - batch.metadata.get("pad_size", 0)
        width = batch["response_mask"].shape[1]
        return [
            self.tokenizer.decode(row[-width:][mask.bool()], skip_special_tokens=True)
            for row, mask in zip(batch["sequences"][:real], batch["response_mask"][:real], strict=True)
        ]

    def _cleanup_old_checkpoints(self) -> None:
        """Goes to every node of a Ray cluster."""


class SyncTrainer(NoModels, RGTrainer): ...


class FullyAsyncTrainer(NoModels, RGFullyAsyncTrainer): ...


@dataclass(frozen=True)
class Told(Reports):
    """Keeps what the terminal is told."""

    sent: list[dict[str, Any]] = field(default_factory=list)

    def send(self, **facts: Any) -> None:
        self.sent.append(facts)


class _Tracker:
    def log(self, *args, **kwargs) -> None: ...

    def finish(self) -> None: ...


def build(
    folder: Path,
    *,
    attempt: int = 1,
    mixed_share: float = 0.5,
    trainer_class=None,
    generator_class=RGDumpGenerator,
    rows=None,
    script=None,
    eval_size: int = 0,
    **more,
):
    """A trainer that is ready to `train()`.

    Args:
        rows: a dataset of SkyRL's, whose dump is opened as that of SkyRL's own trainers; ours without it.
    """
    typed = settings(folder, **more)
    # In a file: beside files of rows it would be refused, but it says how long the script is.
    folder.mkdir(parents=True, exist_ok=True)
    recipe = folder / "size.yaml"
    recipe.write_text(f"{SIZE}: {typed.pop(SIZE)}\n")
    cfg = load_run([str(recipe), *(f"{key}={value}" for key, value in typed.items())]).cfg
    rg_env.register()
    tokenizer = AutoTokenizer.from_pretrained(nano_path(), padding_side="left")
    rg = cfg.rg_dump
    writer = open_writer(cfg, "run", attempt) if rows is None else open_dump(cfg, folder / "dumps")
    if rows is None:
        rows = ReasoningGymDataset(TASK, size=rg.size, seed=rg.seed, complexity=rg.complexity)
        script = Script(map(rows.item_of_run, range(rg.size * cfg.trainer.epochs)), mixed_share)
    evaluation = None
    if eval_size:
        evaluation = EvalSet(TASK, samples_per_task=eval_size)
        script.answers |= Script(evaluation.items).answers
    if cfg.data.train_data and isinstance(rows, ReasoningGymDataset):
        rows = PromptDataset(cfg.data.train_data, tokenizer, cfg.trainer.max_prompt_length, num_workers=1)
    engine = ScriptedEngine(tokenizer, script)
    of_skyrl = (cfg.generator, cfg.environment.skyrl_gym, engine, tokenizer)
    if generator_class is RGDumpGenerator:
        generator = RGDumpGenerator(*of_skyrl, writer=writer)
    else:
        generator = Recorder(generator_class(*of_skyrl), writer, tokenizer)
    if trainer_class is None:
        trainer_class = FullyAsyncTrainer if cfg.trainer.fully_async.enabled else SyncTrainer
    return trainer_class(
        cfg=cfg,
        tracker=_Tracker(),
        tokenizer=tokenizer,
        train_dataset=rows,
        eval_dataset=evaluation,
        inference_engine_client=engine,
        generator=generator,
        colocate_pg=None,
    )


def train(trainer) -> None:
    """Train to the end; the record is closed then."""
    with trainer.generator.writer:
        asyncio.run(trainer.train())
