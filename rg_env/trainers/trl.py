"""Reasoning Gym for TRL's `GRPOTrainer`: `to_dataset` makes its training set, `GRPOReward` its reward function.

Invariant: a group is the completions of one prompt, all of them; a batch that TRL cut in the middle of a group is an
error, never a misaligned group. A completion whose scorer failed gets None, and its status is in the dump. TRL keeps a
completion out of the loss to which every reward function gives None. Beside another function that gives it a number,
None counts as 0 in TRL's sum (1.16), as a wrong answer does.

Not covered: tools, images, and when generation began, which TRL tells no reward function.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from loguru import logger

from rg_env.base.errors import ConfigError, RGEnvError, describe
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import DumpWriter, GroupRecord, Phase, open_dump
from rg_env.evaluate.eval_settings import generator_settings
from rg_env.rollouts.judge import Judge
from rg_env.rollouts.rollout import Origin, Rollout
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.tasks import Item
from rg_env.trainers.scoring import checked, item_from_text, item_to_text, text_of

if TYPE_CHECKING:
    import datasets
    from trl import GRPOConfig


def to_dataset(rows: ReasoningGymDataset, count: int | None = None) -> datasets.Dataset:
    """Return the first `count` rows (None: all) as a dataset for `GRPOTrainer`, in memory.

    Returns:
        the columns `prompt` (messages), `task`, and `rg_item`, which `GRPOReward` needs.
    """
    from datasets import Dataset

    columns = []
    for index in range(len(rows) if count is None else count):
        row = rows.row(index)
        item = item_to_text(row["extra_info"])
        columns.append({"prompt": row["prompt"], "task": row["data_source"], "rg_item": item})
    return Dataset.from_list(columns)


_Groups = list[list[Rollout]]
"""Groups after the rules of the group."""


class GRPOReward:
    """Reward function for `GRPOTrainer`: `GRPOTrainer(reward_funcs=GRPOReward(args), args=args, …)`.

    Rewards are computed as in SkyRL's train phase: base score, length penalty, format bonus, `reward`. Items of the
    eval split get no length penalty.

    Args:
        args: the trainer's; `num_generations`, `num_generations_eval` and `max_completion_length` are used.
        config: our settings; None: the defaults. `on_scorer_failure` is always `mask`.
        dump: folder for a dump of every group, or None. The first process of a distributed run writes it for all.
        model: its name in the dump.

    Raises:
        ConfigError: a setting is invalid.
        DumpError: the dump folder cannot be written.
    """

    def __init__(
        self, args: GRPOConfig, config: RGDumpConfig | None = None, *, dump: str | Path | None = None, model: str = ""
    ) -> None:
        self.__name__ = "rg_env"  # TRL's name for its metrics
        folder = {} if dump is None else {"dump_dir": str(dump)}
        self.config = checked(config, **folder)
        self._samples = {
            Phase.TRAIN: args.num_generations,
            Phase.EVAL: getattr(args, "num_generations_eval", None) or args.num_generations,
        }
        self._max_length: int = args.max_completion_length
        self._judge = Judge(self.config, max_length=self._max_length)
        self._calls = itertools.count()
        self._has_warned = False
        self._dumps = dump is not None
        self._processes: int = getattr(args, "world_size", 1)
        # One process writes for all: a run id has one lock.
        first = getattr(args, "process_index", 0) == 0
        self.writer = self._open(args, model) if self._dumps and first else None

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        rg_item: Sequence[str],
        trainer_state: Any = None,
        **_: Any,
    ) -> list[float | None]:
        """Return the reward of each completion; None, with one warning, if it cannot be scored.

        Args:
            prompts, completions: texts, or lists of messages.
            rg_item: the column of `to_dataset`.

        Raises:
            ConfigError: the batch does not consist of whole groups, or a row is not from `to_dataset`.
            ScorerPoolError: the scorer processes cannot be started.
        """
        scored: _Groups = []
        failure: Exception | None = None
        try:
            scored = self._score(prompts, completions, completion_ids, rg_item)
        except Exception as error:  # the other processes wait for this one below
            failure = error
        gathered = self._of_all_processes(scored, failure) if self._dumps else []
        if failure is not None:
            raise failure
        self._write(gathered, trainer_state and trainer_state.global_step)
        rewards: list[float | None] = []
        for group in scored:
            for rollout in group:
                rewards.append(None if rollout.masked else rollout.reward)
        self._warn_of_none(rewards.count(None), len(rewards))
        return rewards

    def _warn_of_none(self, unknown: int, count: int) -> None:
        """Say once what TRL makes of None: a reward function cannot know whether there are others."""
        if unknown and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "{} of {} completions of a batch could not be scored and get None: TRL keeps them out of the loss if "
                "GRPOReward is the only reward function; with others, None counts as 0 in TRL's sum",
                unknown,
                count,
            )

    def _score(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        rg_item: Sequence[str],
    ) -> _Groups:
        """Return the groups of a batch with their rewards."""
        items = [item_from_text(text) for text in rg_item]
        blocks = list(self._blocks(items))  # before anything is scored, so that a wrong batch costs no time
        texts = [text_of(completion) for completion in completions]
        judgments = self._judge.score_all(items, texts)

        # One rollout for each completion, in the order of the batch.
        rollouts: list[Rollout] = []
        parts = zip(items, prompts, texts, completion_ids, judgments, strict=True)
        for item, prompt, text, ids, (verdict, watch) in parts:
            # TRL does not tell why a response ended: one that is as long as it may be counts as cut off.
            stop_reason = "length" if len(ids) >= self._max_length else "stop"
            conversation = [*_messages(prompt), {"role": "assistant", "content": text}]
            rollout = Rollout(
                verdict=verdict,
                response_tokens=len(ids),
                stop_reason=stop_reason,
                conversation=conversation,
                stopwatch=watch,
                item=item,
                text=text,
            )
            rollouts.append(rollout)

        # The groups, each judged by its rules.
        groups: _Groups = []
        for block in blocks:
            group = [replace(rollouts[row], repetition=number) for number, row in enumerate(block)]
            self._judge.judge_blocking(group, penalize=_item(group).split == Phase.TRAIN)
            groups.append(group)
        return groups

    def close(self) -> None:
        """Finish the dump. Otherwise that happens when the process ends."""
        if self.writer is not None:
            self.writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _blocks(self, items: Sequence[Item]) -> Iterator[range]:
        """Yield the rows of each group: TRL's samplers repeat a prompt `num_generations` times in succession."""
        # By counting, not by comparing neighbors: the same prompt may be drawn twice in succession.
        start = 0
        while start < len(items):
            block = range(start, start + self._samples[Phase(items[start].split)])
            if block.stop > len(items) or len({items[row].id for row in block}) > 1:
                raise ConfigError(
                    f"TRL passed a group that is not {len(block)} completions of one prompt: make "
                    "per_device_train_batch_size × steps_per_generation, and per_device_eval_batch_size, multiples of "
                    "num_generations; items of the eval split belong in eval_dataset"
                )
            yield block
            start = block.stop

    def _of_all_processes(self, scored: _Groups, failure: Exception | None) -> _Groups:
        """Gather the groups of all processes. TRL calls the reward functions of all processes for the same step.

        Raises:
            RGEnvError: another process failed.
        """
        if self._processes == 1:
            return scored
        from accelerate.utils import gather_object

        # Every process takes part, also one that failed: the others would wait for it for ever.
        gathered: list[tuple[_Groups, str]] = gather_object([(scored, describe(failure) if failure else "")])
        failures = [text for _, text in gathered if text]
        if failures and failure is None:
            raise RGEnvError(f"another process of this run failed: {failures[0]}")
        return [group for groups, _ in gathered for group in groups]

    def _write(self, groups: _Groups, steps: int | None) -> None:
        """Record groups after this many steps of the optimizer."""
        if self.writer is None:
            return
        call = next(self._calls)
        counts = Counter[str]()
        records: list[GroupRecord] = []
        for group in groups:
            # The same question may come twice in a call; `#2` makes the second a group of its own.
            item = _item(group)
            counts[item.id] += 1
            uid = item.id if counts[item.id] == 1 else f"{item.id}#{counts[item.id]}"
            step = steps
            if step is not None and item.split == Phase.TRAIN:
                step += 1  # TRL counts a step when it is done; an evaluation is of the step before it
            origin = Origin(self.writer.run_id, 1, Phase(item.split), step, call)
            record = self._judge.record(origin, item, uid, group)
            # TRL tells nobody when generation began: the watch measured the scoring alone.
            records.append(msgspec.structs.replace(record, started_at=None, generation_seconds=None))
        self.writer.write_blocking(records)

    def _open(self, args: GRPOConfig, model: str) -> DumpWriter:
        settings = generator_settings(
            self.config,
            samples=self._samples[Phase.TRAIN],
            eval_samples=self._samples[Phase.EVAL],
            max_tokens=self._max_length,
            temperature=args.temperature,
            top_p=args.top_p,
        )
        return open_dump(self.config, "train", model=model, settings=settings, trainer="trl")


def _item(group: Sequence[Rollout]) -> Item:
    item = group[0].item
    assert item is not None
    return item


def _messages(prompt: Any) -> list[dict[str, str]]:
    """Return the messages of a prompt, which may be a text."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    messages = []
    for message in prompt:
        if isinstance(message, Mapping):
            messages.append({"role": message["role"], "content": text_of([message])})
    return messages
