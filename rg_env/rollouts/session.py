"""One command against a server, from its options to a finished dump.

Invariant: a group is in the dump completely or not at all, and each question at most once, however the run ends and how
often it is resumed; a request that fails for good is a rollout with status `no_response`. The dump is closed and a
server that was started has ended, however the command ends. SIGINT, SIGTERM and SIGHUP drop the groups in progress. The
API key is in no file.

Groups in which no request was answered are held back until a later group shows that the server works. If too many in
succession fail, the run stops without recording them, so that `--resume` tries them again.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dump import DumpWriter, Phase, check_folder, write_manifest
from rg_env.dump.schema import GroupRecord, answered
from rg_env.errors import MissingGroupsError, RGEnvError
from rg_env.output import counted, print_error
from rg_env.rewards import Rollout, group_rewards, load_reward
from rg_env.rollouts.endpoint import Endpoint, EndpointError, Sampling
from rg_env.rollouts.group import Origin, group_record
from rg_env.rollouts.plan import Claim, Plan, claim, done_questions
from rg_env.rollouts.progress import Totals, showing_progress
from rg_env.rollouts.questions import Question, Questions
from rg_env.rollouts.server import Server, ServerError, program_for, serving
from rg_env.rollouts.settings import generator_settings
from rg_env.rollouts.stopwatch import Stopwatch
from rg_env.scoring import Verdict, shared_scorer

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GIVE_UP = 8
"""After this many groups in succession without any response the run stops, or after all groups in progress."""


@dataclass(frozen=True)
class EndpointOptions:
    """How to reach a model, and what that may cost.

    Attributes:
        url: of a running server; None: one is started on this machine.
        model: the server's name for the model, or its folder.
        name: of the model in the manifest.
        server_options: further arguments of the server that is started.
        request: further fields of every request.
        concurrency: requests at the same time; None: as suits the server.
        timeout: seconds for one try of a request; `retries`: further tries.
        max_tokens_total: no new group is started once this many tokens have been used; None: no limit.
    """

    url: str | None
    model: str
    sampling: Sampling
    name: str = ""
    server_options: Sequence[str] = ()
    request: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int | None = None
    timeout: float = 600.0
    retries: int = 5
    max_tokens_total: int | None = None


@dataclass(frozen=True)
class Finished:
    """How a command ended.

    Attributes:
        done: groups in the dump, of all attempts; `planned`: groups in the plan.
        signum: the signal that stopped it, or None; `error`: what did, if groups were recorded before.
        missing: groups that could not be written.
    """

    run_id: str
    folder: Path
    totals: Totals
    done: int
    planned: int
    out_of_tokens: bool = False
    signum: int | None = None
    error: RGEnvError | None = None
    missing: int = 0

    @property
    def exit_code(self) -> int:
        """0; 1 after an error, or if no request was answered; 3 if groups are missing from the dump; 128 + N after
        signal N."""
        if self.signum is not None:
            return 128 + self.signum
        if self.error or (self.totals.failures > 0 and not self.totals.responses):
            return 1
        return MissingGroupsError.exit_code if self.missing else 0


def run_endpoint(
    command: str,
    questions: Questions,
    samples: int,
    config: RGDumpConfig,
    options: EndpointOptions,
    *,
    resume: bool,
) -> Finished:
    """Collect `samples` responses to every question, or what is missing of them.

    Args:
        command: `collect` (phase train) or `eval`.
        config: our settings, complete; the dump is written to `dump_dir`.

    Raises:
        ConfigError: the folder has an unfinished run, or one with another plan.
        DumpError: the folder cannot be written, or another process writes the run.
        EndpointError: the server refuses or fails all requests. ServerError: none could be started.
    """
    sampling = asdict(options.sampling) | ({"request": dict(options.request)} if options.request else {})
    plan = Plan(command, options.model, len(questions), samples, sampling, questions.facts, config)
    folder = Path(config.dump_dir)
    check_folder(folder)
    run = claim(folder, plan, resume=resume)
    if len(run.done) >= plan.groups:
        return Finished(run.run_id, folder, Totals(), len(run.done), plan.groups)
    return asyncio.run(_Session(run, plan, questions, options).run())


class _Session:
    """One attempt of a run."""

    def __init__(self, run: Claim, plan: Plan, questions: Questions, options: EndpointOptions) -> None:
        self._run, self._plan, self._questions, self._options = run, plan, questions, options
        self._folder = Path(plan.config.dump_dir)
        self._phase = Phase.TRAIN if plan.command == "collect" else Phase.EVAL
        self._reward = load_reward(plan.config)
        self._totals = Totals()
        self._unanswered: list[GroupRecord] = []
        self._missing = 0

    async def run(self) -> Finished:
        error = signum = None
        try:
            signum = await _until_signal(self._work())
        except (EndpointError, ServerError) as found:
            if not self._totals.responses:
                raise
            error = found
        done = len(done_questions(self._folder, self._run.run_id))
        stopped = self._out_of_tokens and done < self._plan.groups
        return Finished(
            self._run.run_id, self._folder, self._totals, done, self._plan.groups, stopped, signum, error, self._missing
        )

    @property
    def _out_of_tokens(self) -> bool:
        most = self._options.max_tokens_total
        return most is not None and self._totals.tokens >= most

    async def _work(self) -> None:
        async with AsyncExitStack() as stack:
            options, server, url = self._options, None, self._options.url
            request, concurrency = dict(options.request), options.concurrency or 32
            if url is None:
                program = program_for(options.model)
                server = await stack.enter_async_context(serving(program, options.server_options))
                url, request = server.url, {**request, **program.request}
                concurrency = options.concurrency or program.concurrency
            endpoint = Endpoint(
                url,
                options.model,
                options.sampling,
                timeout=options.timeout,
                retries=options.retries,
                is_own=server is not None,
                request=request,
            )
            self._endpoint = await stack.enter_async_context(endpoint)
            if server is None:
                await endpoint.check()
            self._writer = self._open_writer()
            try:
                await self._collect(concurrency, server)
            finally:
                self._missing = self._writer.close()

    def _open_writer(self) -> DumpWriter:
        plan, run, options = self._plan, self._run, self._options
        sampling = asdict(options.sampling)
        writer = DumpWriter.from_config(plan.config, run.run_id, run.attempt)
        manifest = {
            "attempt": run.attempt,
            "model": options.name or options.model,
            "model_path": options.model if options.url is None else None,
            "endpoint": self._endpoint.url if options.url else None,
            "plan": plan.facts(),
            "suite": plan.questions.get("suite"),
            "settings": generator_settings(plan.config, samples=plan.samples, eval_samples=plan.samples, **sampling),
            "task_mix": plan.config.tasks,
        }
        try:
            write_manifest(writer.folder, run.run_id, manifest)
        except BaseException:
            writer.close()
            raise
        return writer

    async def _collect(self, concurrency: int, server: Server | None) -> None:
        """Collect every question that is not done, and watch the server meanwhile.

        Raises:
            EndpointError: the server refuses or fails all requests. ServerError: it ended.
        """
        plan = self._plan
        done = done_questions(self._folder, self._run.run_id)  # the writer has completed the ledger of a killed attempt
        numbers = iter([number for number in range(len(self._questions)) if number not in done])
        questions = plan.groups - len(done)
        requests = counted(questions * plan.samples, "request")
        print_error(f"{requests}: {counted(questions, 'question')} × {plan.samples}")
        self._requests = asyncio.Semaphore(concurrency)
        self._workers = -(-concurrency // plan.samples) + 1
        with showing_progress(plan.groups, len(done), self._options.max_tokens_total) as self._report:
            try:
                async with asyncio.TaskGroup() as tasks:
                    watch = tasks.create_task(server.watch()) if server else None
                    await asyncio.wait([tasks.create_task(self._ask(numbers)) for _ in range(self._workers)])
                    if watch:
                        watch.cancel()
            except ExceptionGroup as errors:
                raise _first_error(errors) from None
            await self._write(self._unanswered)

    async def _ask(self, numbers: Iterator[int]) -> None:
        while not self._out_of_tokens and (number := next(numbers, None)) is not None:
            question = await asyncio.to_thread(self._questions.__getitem__, number)
            await self._group(number, question)

    async def _group(self, number: int, question: Question) -> None:
        config, totals = self._plan.config, self._totals
        async with asyncio.TaskGroup() as tasks:
            requests = [tasks.create_task(self._rollout(question, k)) for k in range(self._plan.samples)]
        rollouts = [request.result() for request in requests]
        rewards = group_rewards(
            rollouts,
            config,
            max_length=self._options.sampling.max_tokens,
            penalize=self._phase is Phase.TRAIN,
            custom=await self._reward.rate_async(rollouts, config) if self._reward else None,
        )
        origin = Origin(self._run.run_id, self._run.attempt, self._phase, None, number)
        record = group_record(origin, question.item, question.item.id, rollouts, rewards, config.solved_at)
        responded = answered(record.rollouts)
        totals.groups += 1
        totals.solved += sum(rollout.base_score >= config.solved_at for rollout in responded)
        self._unanswered.append(record)
        if responded:
            held, self._unanswered = self._unanswered, []
            await self._write(held)
        elif len(self._unanswered) >= max(_GIVE_UP, self._workers):
            raise EndpointError(
                f"{self._endpoint.url} answered no request of the last {len(self._unanswered)} groups "
                f"({totals.last_failure}); they are not recorded: continue with --resume"
            )
        self._report(totals)

    async def _rollout(self, question: Question, repetition: int) -> Rollout:
        async with self._requests:
            watch = Stopwatch()
            reply = await self._endpoint.respond(question.messages)
        watch.responded()
        self._totals.add(reply)
        config, item = self._plan.config, question.item
        if reply.failure is not None:
            text, verdict, tokens, stop_reason = "", Verdict.no_response(reply.failure), None, None
        else:
            opened = reply.think_opened and not config.prefilled_think
            text = f"<think>{reply.text}" if opened else reply.text
            verdict = await shared_scorer(config.scorer).score_response_async(
                item.entry, text, item.config, config.prefilled_think, config.format
            )
            watch.scored()
            tokens, stop_reason = reply.completion_tokens, reply.stop_reason
        conversation = [*question.messages, {"role": "assistant", "content": text}]
        return Rollout(verdict, tokens, stop_reason, conversation, repetition, watch, item, text)

    async def _write(self, records: list[GroupRecord]) -> None:
        if records:
            await self._writer.write(records)


def _first_error(error: BaseException) -> BaseException:
    """The first error in nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _until_signal(work: Coroutine[Any, Any, None]) -> int | None:
    """Run `work`; a signal cancels it. Returns the signal, or None if it ended by itself."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    received: list[int] = []

    handled = {one: now for one in _SIGNALS if (now := signal.getsignal(one)) is not signal.SIG_IGN}  # nohup: SIGHUP

    def stop(signum: int) -> None:
        received.append(signum)
        task.cancel()
        for other in handled:
            loop.remove_signal_handler(other)
            signal.signal(other, lambda number, _: os._exit(128 + number))  # although the disk hangs

    for signum in handled:
        loop.add_signal_handler(signum, stop, signum)
    try:
        await task
    except asyncio.CancelledError:
        if not received:
            raise
    finally:
        for signum, before in handled.items():
            loop.remove_signal_handler(signum)
            signal.signal(signum, before)
    return received[0] if received else None
