"""Collects groups of responses from an endpoint, scores them and writes them to a dump.

Invariant: a group is in the dump completely or not at all, and each question at most once, however the run ends and
how often it is resumed. A request that fails for good is a rollout with status `no_response`.

Groups in which no request was answered are held back until a later group shows that the server works. If too many in
succession fail, the run stops without recording them, so that `--resume` tries them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

from rg_env.config import RGDumpConfig
from rg_env.dump.schema import GroupRecord, answered
from rg_env.dump.write.writer import DumpWriter
from rg_env.rewards import Rollout, settle_group
from rg_env.rollouts.endpoint import Endpoint, EndpointError, Failure, Response
from rg_env.rollouts.group import Origin, group_record
from rg_env.rollouts.questions import Question, Questions
from rg_env.rollouts.stopwatch import Stopwatch
from rg_env.scoring import Verdict, shared_scorer
from rg_env.user_code import load_reward

_GIVE_UP = 8
"""After this many groups in succession without any response the run stops, or after all groups in progress."""


@dataclass(slots=True)
class Totals:
    """What has been done so far.

    Attributes:
        failures: requests that failed for good; `last_failure` says why the last one did.
        solved: rollouts with at least `solved_at`.
        reasoning_apart, think_opened: see `Response`.
        uncounted: responses whose tokens the server did not count.
    """

    groups: int = 0
    responses: int = 0
    solved: int = 0
    failures: int = 0
    last_failure: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    reasoning_apart: int = 0
    think_opened: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def add(self, reply: Response | Failure) -> None:
        if isinstance(reply, Failure):
            self.failures += 1
            self.last_failure = reply.detail
            return
        self.responses += 1
        self.prompt_tokens += reply.prompt_tokens or 0
        self.completion_tokens += reply.completion_tokens or 0
        self.uncounted += reply.completion_tokens is None
        self.reasoning_apart += reply.reasoning_apart
        self.think_opened += reply.think_opened


class EndpointRun:
    """One attempt of a run.

    Args:
        samples: responses per question.
        phase: `train` or `eval`.
        concurrency: requests at the same time.
        max_tokens_total: no new group is started once this many tokens, of prompts and responses, have been used.
        report: called after every finished group.
    """

    def __init__(
        self,
        questions: Questions,
        endpoint: Endpoint,
        config: RGDumpConfig,
        writer: DumpWriter,
        *,
        samples: int,
        phase: str,
        concurrency: int,
        max_tokens_total: int | None = None,
        report: Callable[[Totals], object] = lambda _: None,
    ) -> None:
        self._questions = questions
        self._endpoint = endpoint
        self._config = config
        self._writer = writer
        self._samples = samples
        self._phase = phase
        self._requests = asyncio.Semaphore(concurrency)
        self._workers = -(-concurrency // samples) + 1
        self._max_tokens = max_tokens_total
        self._report = report
        self._reward = load_reward(config)
        self._unanswered: list[GroupRecord] = []
        self.totals = Totals()

    @property
    def out_of_tokens(self) -> bool:
        return self._max_tokens is not None and self.totals.tokens >= self._max_tokens

    async def run(self, done: Container[int]) -> Totals:
        """Collect every question whose number is not among those that are done.

        Raises:
            EndpointError: the server refuses or fails all requests. Finished groups are recorded.
        """
        numbers = (number for number in range(len(self._questions)) if number not in done)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._workers):
                    tasks.create_task(self._work(numbers))
        except ExceptionGroup as errors:
            raise first_error(errors) from None
        await self._write(self._unanswered)
        return self.totals

    async def _work(self, numbers: Iterator[int]) -> None:
        while not self.out_of_tokens and (number := next(numbers, None)) is not None:
            question = await asyncio.to_thread(self._questions.__getitem__, number)
            await self._collect(number, question)

    async def _collect(self, number: int, question: Question) -> None:
        async with asyncio.TaskGroup() as tasks:
            requests = [tasks.create_task(self._rollout(question, k)) for k in range(self._samples)]
        rollouts = [request.result() for request in requests]
        earned = settle_group(
            rollouts,
            self._config,
            max_length=self._endpoint.sampling.max_tokens,
            penalize=self._phase == "train",
            reward_function=self._reward,
        )
        origin = Origin(self._writer.run_id, self._writer.attempt, self._phase, None, number)
        record = group_record(origin, question.item, question.item.id, rollouts, earned, self._config.solved_at)
        responded = answered(record.rollouts)
        self.totals.groups += 1
        self.totals.solved += sum(rollout.base_score >= self._config.solved_at for rollout in responded)
        self._unanswered.append(record)
        if responded:
            held, self._unanswered = self._unanswered, []
            await self._write(held)
        elif len(self._unanswered) >= max(_GIVE_UP, self._workers):
            raise EndpointError(
                f"{self._endpoint.url} answered no request of the last {len(self._unanswered)} groups "
                f"({self.totals.last_failure}); they are not recorded: continue with --resume"
            )
        self._report(self.totals)

    async def _rollout(self, question: Question, repetition: int) -> Rollout:
        async with self._requests:
            watch = Stopwatch()
            reply = await self._endpoint.respond(question.messages)
        watch.responded()
        self.totals.add(reply)
        if isinstance(reply, Failure):
            return self._judged(question, "", Verdict.no_response(reply.detail), None, None, repetition, watch)
        config, item = self._config, question.item
        opened = reply.think_opened and not config.prefilled_think
        text = f"<think>{reply.text}" if opened else reply.text
        scorer = shared_scorer(config.scorer)
        verdict = await asyncio.to_thread(
            scorer.judge, item.entry, text, item.config, config.prefilled_think, config.format
        )
        watch.scored()
        return self._judged(question, text, verdict, reply.completion_tokens, reply.stop_reason, repetition, watch)

    @staticmethod
    def _judged(
        question: Question,
        text: str,
        verdict: Verdict,
        tokens: int | None,
        stop_reason: str | None,
        repetition: int,
        watch: Stopwatch,
    ) -> Rollout:
        conversation = [*question.messages, {"role": "assistant", "content": text}]
        return Rollout(verdict, tokens, stop_reason, conversation, repetition, watch)

    async def _write(self, records: list[GroupRecord]) -> None:
        if records:
            await self._writer.write(records, self._config.dump_ack_timeout)


def first_error(error: BaseException) -> BaseException:
    """The first error in nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
