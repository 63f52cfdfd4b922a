"""Reasoning Gym as a taskset of the package `verifiers`, which prime-rl trains on: `vf-eval rg-env-verifiers`.

Invariant: a rollout whose scorer failed is an error of its trace, which verifiers can retry, and never the reward 0.

Not covered: dumps and the length penalty, because verifiers shows a task one rollout at a time, and never its group.
verifiers saves every rollout itself, in `traces.jsonl`.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import openai
import verifiers.v1 as vf
from pydantic import Field, PrivateAttr, model_validator

from rg_env.base.errors import RGEnvError
from rg_env.configuration.config import LengthPenaltyConfig, RGDumpConfig
from rg_env.evaluate.eval_settings import apply_overrides
from rg_env.rollouts.judge import Judge
from rg_env.rollouts.rollout import Rollout
from rg_env.rows.dataset import ReasoningGymDataset, prompt_options
from rg_env.scoring import Verdict
from rg_env.trainers.scoring import checked, item_from_text, item_to_text, text_of

_ENDLESS = 2**62
"""Rows of a dataset of which only the first few are made."""


class ReasoningGymData(vf.TaskData):
    """A question. `id` is the item's id, which is the same in every run.

    Attributes:
        item: the item as JSON: what the scorer needs.
        answer: a right answer, empty if there are several; for people.
    """

    item: str
    answer: str


class ReasoningGymTaskConfig(vf.TaskConfig):
    """`--env.taskset.task.*`.

    Attributes:
        settings: settings of rg_env by name, such as `{"format": "lenient", "scorer.timeout": 10}`.
    """

    settings: dict[str, Any] = Field(default_factory=dict)

    @functools.cached_property
    def rg_env(self) -> RGDumpConfig:
        """All settings of rg_env, made once.

        Raises:
            ConfigError: a setting is unknown or invalid, or has no effect here.
        """
        config = RGDumpConfig()
        # Escapes of JSON for signs such as 😀 are not YAML's.
        typed = {name: json.dumps(value, ensure_ascii=False) for name, value in self.settings.items()}
        apply_overrides(config, [f"{name}={text}" for name, text in typed.items()])
        return checked(config, length_penalty=LengthPenaltyConfig(kind="none"))

    @functools.cached_property
    def judge(self) -> Judge:
        """Of all rollouts. Raises ConfigError: the setting `reward` names no function."""
        # The length is not used: without groups there is no length penalty.
        return Judge(self.rg_env, max_length=1)


class ReasoningGymConfig(vf.TasksetConfig):
    """`--env.taskset.*`.

    Attributes:
        tasks: the task mix, as in the setting `tasks`; None: the default mix.
        split: `train` or `eval`; no question is in both.
        seed: None: the setting `seed`, or `eval_seed` for the eval split.
    """

    tasks: Any = None
    split: Literal["train", "eval"] = "train"
    seed: int | None = None
    task: ReasoningGymTaskConfig = ReasoningGymTaskConfig()

    def dataset(self) -> ReasoningGymDataset:
        """Return the questions. Raises ConfigError."""
        config = self.task.rg_env
        default = config.seed if self.split == "train" else config.eval_seed
        seed = default if self.seed is None else self.seed
        tasks = config.tasks if self.tasks is None else self.tasks
        return ReasoningGymDataset(tasks, _ENDLESS, seed, self.split, **prompt_options(config))

    @model_validator(mode="after")
    def _check(self) -> ReasoningGymConfig:
        # Here, so that a wrong setting is a mistake of the command line and not an error of each rollout.
        try:
            self.dataset()
        except RGEnvError as error:
            raise ValueError(str(error)) from None
        return self


class VerdictState(vf.State):
    """State that metrics and reward of one rollout share. verifiers awaits them together."""

    verdict: Any = None
    _scoring: asyncio.Lock = PrivateAttr(default_factory=asyncio.Lock)


class ReasoningGymTask(vf.Task[ReasoningGymData, VerdictState, ReasoningGymTaskConfig]):
    """Scores the last reply in the scorer processes."""

    @property
    def key(self) -> str:
        return str(self.data.id)

    @vf.stop
    async def answered(self, trace: vf.Trace) -> bool:
        """One reply ends a rollout, whatever the harness."""
        return bool(trace.num_turns)

    @vf.metric
    async def verdict(self, trace: vf.Trace) -> dict[str, float]:
        """Raw and tagged score and the higher of them, all in [0, 1]; whether the question is solved; whether the reply
        has the required format. A reply without it has no raw and tagged score."""
        config, verdict = self.config.rg_env, await self._judge(trace)
        scored = verdict.scored
        metrics = {
            "base_score": scored.score,
            "solved": float(scored.score >= config.solved_at),
            "well_formed": float(verdict.parsed.violation is None),
        }
        # Unknown is left out: a 0 would count in the means of verifiers.
        both = {"raw_score": scored.raw, "tagged_score": scored.tagged}
        return metrics | {name: score for name, score in both.items() if score is not None}

    @vf.reward
    async def reward(self, trace: vf.Trace) -> float:
        """Base score, format bonus and the user's reward function, as in SkyRL's evaluation."""
        verdict = await self._judge(trace)
        rollout = Rollout(verdict, item=item_from_text(self.data.item), text=_text_of(trace))
        await self.config.judge.judge([rollout], penalize=False)
        if rollout.masked:
            raise RuntimeError(rollout.reward_error or _failure_of(rollout.verdict))
        return rollout.reward

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Return whether the scorer gives the stored answer at least `solved_at`; None if there is none."""
        # Some tasks have many right answers and store none.
        if not self.data.answer:
            return None
        config = replace(self.config.rg_env, prefilled_think=False)
        text = f"<think>The stored answer.</think><answer>{self.data.answer}</answer>"
        verdict = await Judge(config).score(item_from_text(self.data.item), text)
        return bool(verdict.scored.score >= config.solved_at)

    async def _judge(self, trace: vf.Trace) -> Verdict:
        """Return the verdict on the last reply, computed once. Raises RuntimeError if the scorer failed."""
        # Metric and reward ask at the same time: the first scores, the other waits for its verdict.
        async with trace.state._scoring:
            if trace.state.verdict is None:
                verdict = await self.config.judge.score(item_from_text(self.data.item), _text_of(trace))
                if verdict.scored.excused:
                    raise RuntimeError(_failure_of(verdict))
                trace.state.verdict = verdict
        result: Verdict = trace.state.verdict
        return result


def _text_of(trace: vf.Trace) -> str:
    """Return the last reply."""
    return text_of([message.model_dump() for message in trace.assistant_messages])


class ReasoningGymTaskset(vf.Taskset[ReasoningGymTask, ReasoningGymConfig]):
    """Endless; `-n` says how many questions a run takes."""

    INFINITE = True

    def load(self) -> Iterator[ReasoningGymTask]:
        dataset = self.config.dataset()
        for row in map(dataset.row, itertools.count()):
            # verifiers takes the system prompt apart from the messages.
            system = [message["content"] for message in row["prompt"] if message["role"] == "system"]
            messages = [message for message in row["prompt"] if message["role"] != "system"]
            system_prompt = system[0] if system else None
            info = row["extra_info"]
            data = ReasoningGymData(
                id=info["item"],
                name=row["data_source"],
                system_prompt=system_prompt,
                prompt=messages,
                item=item_to_text(info),
                answer=row["reward_spec"]["ground_truth"],
            )
            yield ReasoningGymTask(data, self.config.task)


class OneReply(vf.Harness[vf.HarnessConfig]):
    """Sends the prompt and ends: no program, no tools, and so no process for each rollout."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """As in verifiers. Its server at `endpoint` adds the sampling parameters and keeps errors of the model."""
        system, prompt = self.resolve_prompt(data)
        messages: list[Any] = [] if system is None else [{"role": "system", "content": system}]
        if isinstance(prompt, str):
            prompt = [vf.UserMessage(content=prompt)]
        messages += [message.model_dump(exclude_none=True) for message in prompt or []]
        # No retries and no timeout here: verifiers has its own for the whole rollout.
        try:
            async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, timeout=None) as client:
                await client.chat.completions.create(model=ctx.model, messages=messages)
        except openai.OpenAIError as error:
            return vf.ProgramResult(exit_code=1, stdout="", stderr=str(error))
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class ReasoningGymEnvConfig(vf.EnvConfig):
    """`--env.*`. The agent runs on this machine unless `--env.agent.runtime.type` says otherwise."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class ReasoningGymEnv(vf.Env[ReasoningGymEnvConfig]):
    """One agent, one reply."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        await agents.agent.run(task)


def _failure_of(verdict: Verdict) -> str:
    return f"the scorer failed ({verdict.scored.status}): {verdict.scored.detail}"
