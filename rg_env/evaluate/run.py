"""`rg-env eval` and `rg-env collect`: questions to a model behind a server, until all groups are in a dump.

Invariant: no request that was answered and recorded is sent again. A question is complete once every request of its
group was answered; a group without any answer is not recorded. `--resume` sends the requests that are missing, and
records each group anew, with the responses of earlier attempts from their texts; the new line replaces the earlier one.
A group whose text was not kept is asked whole. However the command ends, the dump is closed and a server that it
started has ended. SIGINT, SIGTERM and SIGHUP drop the groups in progress. The API key is in no file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rg_env.base.choices import Split
from rg_env.base.errors import ConfigError, one_line
from rg_env.base.output import print_error
from rg_env.base.wording import counted
from rg_env.dump import Attempt, DumpWriter, Phase, check_folder, open_dump
from rg_env.dump.entry import open_run_of
from rg_env.dump.files import RunLock, list_files, manifest_name
from rg_env.dump.manifest import note_in_manifest
from rg_env.dump.reader import Dump
from rg_env.dump.schema import GroupRecord, LedgerRecord, RolloutRecord, answered
from rg_env.evaluate.endpoint import Endpoint, EndpointError, Reply, Responder, base_url
from rg_env.evaluate.eval_settings import generator_settings
from rg_env.evaluate.job import EndpointOptions, Job
from rg_env.evaluate.outcome import Answers, Finished, Totals
from rg_env.evaluate.progress import progress, until_signal
from rg_env.evaluate.resumption import Claim, claim
from rg_env.evaluate.server import Server, ServerError, program_for, start_server
from rg_env.evaluate.suites import Question
from rg_env.rollouts.judge import Judge
from rg_env.rollouts.rollout import Origin, Rollout, Stopwatch
from rg_env.rows.templates import judged_text
from rg_env.scoring import Verdict

if TYPE_CHECKING:
    from rg_env.rollouts.rollout_log import RolloutLog

_CONCURRENCY = 32
"""Requests at the same time to a server that somebody else started."""
_GIVE_UP = 8
"""After this many groups in succession without any answer the run stops."""


def run_job(job: Job, *, resume: bool) -> Finished:
    """Collect all responses, or those that the run in the folder lacks.

    Raises:
        ConfigError: the folder has a run that is not continued, or one with another plan.
        DumpError: the folder cannot be written, or another process writes the run.
        EndpointError: the server refuses or fails all requests. ServerError: none could be started.
    """
    check_folder(job.folder)
    # The manifest by which a second command finds the first one is written only when the model answers.
    lock = RunLock(job.folder, "folder", "a run", "--out")
    try:
        return _run_in_folder(job, claim(job.folder, job.plan, resume=resume), resume)
    finally:
        lock.release()
        with suppress(OSError):
            job.folder.rmdir()  # only an empty one goes: `rg-env runs` would warn about it


def _run_in_folder(job: Job, run: Claim, resume: bool) -> Finished:
    if resume and run.attempt == 1:
        print_error(f"{job.folder} has no run to continue, so one begins; for another folder, use --out")
    totals, run_id, attempt = Totals(), run.run_id, run.attempt
    # Nothing is left to ask, and a server takes minutes to start.
    if len(run.answers.complete) == len(job.questions):
        return Finished(job, run_id, totals, run.answers)
    signum, error = None, None
    try:
        signum = asyncio.run(until_signal(_ask_what_is_left(job, run, totals)))
    except (ConfigError, EndpointError, ServerError) as failure:
        # Nothing was answered, so there is nothing to show: the error is all. Otherwise it is shown with the result.
        if not totals.responses:
            if attempt == 1:  # so that the corrected command may have the folder
                (job.folder / manifest_name(run_id)).unlink(missing_ok=True)
            else:
                note_in_manifest(job.folder, run_id, attempt, Attempt(end=f"failed: {one_line(failure)}"))
            raise
        error = failure
    finished = Finished(job, run_id, totals, Answers.of_run(job.folder, run_id), signum, error)
    note_in_manifest(job.folder, run_id, attempt, Attempt(end=finished.end))
    return finished


def _folder_of_logs(dump: Path) -> Path:
    """Return the folder `logs` of the run that a dump folder belongs to: in it, or beside it if it is called
    `dumps`."""
    if dump.name == "dumps":
        return dump.with_name("logs")
    return dump / "logs"


async def _ask_what_is_left(job: Job, run: Claim, totals: Totals) -> None:
    """Reach the model, and send every request that has no answer yet."""
    limits = job.options.limits
    async with AsyncExitStack() as stack:
        # If an earlier attempt had responses, the first refusal of this one may be about one prompt, too.
        connection = await _connect(job.options, stack, has_responded=run.answers.responses > 0)
        was_killed = any(file.is_open for file in list_files(job.folder, run.run_id))
        writer = _open_writer(job, run)
        try:
            answers = run.answers
            if was_killed:  # the writer has completed its ledger
                answers = Answers.of_run(job.folder, run.run_id)
            left = [number for number in range(len(job.questions)) if number not in answers.complete]
            print_error(_announce(job, answers, len(left)))
            log = None
            if job.config.debug_logging:
                from rg_env.rollouts.rollout_log import RolloutLog  # and with it polars, which takes time

                log = RolloutLog(_folder_of_logs(job.folder), job.config)
                print_error(f"rollout log: {log.path}")
            with progress(len(job.questions), len(answers.complete), limits.max_tokens_total) as report:
                state = _Asker(job, run.run_id, run.attempt, connection, answers, writer, totals, report, log)
                await _ask_all(state, left)
        finally:
            totals.missing = writer.close()


@dataclass(frozen=True)
class _Connection:
    """A model that answers; `server` is the one that was started for it, if one was."""

    endpoint: Responder
    concurrency: int
    server: Server | None = None


def check_server(options: EndpointOptions) -> None:
    """Find out at once that no server answers, before questions are made for it. Raises as `Endpoint.check`."""
    url = options.url
    if url is None:
        return  # one is started later

    async def check() -> None:
        async with Endpoint(url, options.model, options.sampling, options.limits) as endpoint:
            await endpoint.check()

    asyncio.run(check())


async def _connect(options: EndpointOptions, stack: AsyncExitStack, *, has_responded: bool) -> _Connection:
    """Reach the server, or start one that ends with the stack.

    Raises:
        EndpointError: it does not answer or refuses the key. ServerError: none could be started.
    """
    if options.local is not None:
        return _Connection(options.local(options.sampling), options.limits.concurrency or _CONCURRENCY)
    url, request, concurrency, server = options.url, options.request, _CONCURRENCY, None
    if url is None:
        program = program_for(options.model)
        server = await stack.enter_async_context(start_server(program, options.server_options))
        url, request, concurrency = server.url, {**request, **program.request}, program.concurrency
    endpoint = Endpoint(
        url,
        options.model,
        options.sampling,
        options.limits,
        request=request,
        is_own=options.is_own or server is not None,
        has_responded=has_responded,
    )
    await stack.enter_async_context(endpoint)
    if server is None:
        await endpoint.check()
    return _Connection(endpoint, options.limits.concurrency or concurrency, server)


def _announce(job: Job, answers: Answers, questions: int) -> str:
    """Say what is about to be asked, and at most how many tokens that takes."""
    earlier = 0
    for group in answers.partial.values():
        if group.text:
            earlier += len(answered(group.rollouts))
    requests = questions * job.samples - earlier
    longest = job.options.sampling.max_tokens
    facts = [f"{counted(requests, 'request')}: {counted(questions, 'question')} × {job.samples}"]
    if earlier:
        facts[0] += f" less {earlier:,} answered before"
    facts += [f"responses of at most {longest:,} tokens", f"{requests * longest:,} in all"]
    return ", ".join(facts)


def _open_writer(job: Job, run: Claim) -> DumpWriter:
    config, options = job.config, job.options
    sampling = asdict(options.sampling)
    settings = generator_settings(config, samples=job.samples, eval_samples=job.samples, **sampling)
    split = Split.TRAIN if job.command == "collect" else Split.EVAL
    return open_dump(
        config,
        job.command,
        model=options.name,
        settings=settings,
        run_id=run.run_id,
        attempt=run.attempt,
        splits=[split],
        model_path=None if options.url else options.model,
        endpoint=options.url and base_url(options.url),
        plan=job.plan,
        suite=job.questions.facts.get("suite"),
    )


async def _ask_all(state: _Asker, numbers: Sequence[int]) -> None:
    """Ask the questions with these numbers, and watch the server meanwhile.

    Raises:
        EndpointError: the server refuses or fails all requests. ServerError: it ended.
    """
    left = iter(numbers)
    server = state.connection.server
    # One group more than fills the slots: while its last requests are awaited, others are sent.
    groups_at_once = -(-state.connection.concurrency // state.job.samples) + 1
    try:
        # The end of the server is an exception in this group, which cancels all requests.
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(server.watch()) if server else None
            await asyncio.wait([tasks.create_task(state.ask_in_turn(left)) for _ in range(groups_at_once)])
            # The watch ends only with the server, for which the group would wait.
            if watch:
                watch.cancel()
    except BaseExceptionGroup as errors:
        # The first one says why; the others are what it has caused.
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
    if state.refusal:
        raise state.refusal


@dataclass
class _Asker:
    """Asks questions, scores the responses and records the groups.

    Attributes:
        answers: of earlier attempts.
        refusal: why no further request can succeed. Groups in progress are finished with what they have.
    """

    job: Job
    run_id: str
    attempt: int
    connection: _Connection
    answers: Answers
    writer: DumpWriter
    totals: Totals
    report: Callable[[Totals], None]
    log: RolloutLog | None = None
    refusal: EndpointError | None = None

    def __post_init__(self) -> None:
        self.phase = Phase.TRAIN if self.job.command == "collect" else Phase.EVAL
        self.judge = Judge(self.job.config, max_length=self.job.options.sampling.max_tokens)
        self.requests = asyncio.Semaphore(self.connection.concurrency)

    @cached_property
    def earlier_texts(self) -> Dump:
        return open_run_of(self.job.folder, self.run_id)

    async def ask_in_turn(self, numbers: Iterator[int]) -> None:
        """Ask one question after the other, until there is a reason to stop."""
        # All of these tasks share the iterator, so a question is asked once.
        for number in numbers:
            if self.refusal or self.totals.is_over(self.job.options.limits.max_tokens_total):
                return
            await self.ask_question(number)

    async def ask_question(self, number: int) -> None:
        """Send the requests that a question lacks, and record its group if any was answered.

        Raises:
            EndpointError: too many groups in succession had no answer.
        """
        # In a thread, because some tasks take seconds to make a question.
        question, earlier = await asyncio.to_thread(self.prepare, number)
        known = {record.repetition for record in earlier}
        lacking = [repetition for repetition in range(self.job.samples) if repetition not in known]
        async with asyncio.TaskGroup() as tasks:
            requests = [tasks.create_task(self.make_rollout(question, repetition)) for repetition in lacking]
        rollouts = [request.result() for request in requests]
        self.totals.add_group(rollouts, self.job.config.solved_at)
        # Without a new response the earlier line of the group stays as it is.
        if any(rollout.responded for rollout in rollouts):
            for record in earlier:
                rollouts.append(await self.restore_rollout(question, record))
            rollouts.sort(key=lambda rollout: rollout.repetition)
            await self.record(question, number, rollouts, self.answers.partial[number] if earlier else None)
        # `_ask_all` raises it, when the groups in progress have been recorded.
        if self.refusal:
            return
        self.report(self.totals)
        if self.totals.unanswered_in_succession >= _GIVE_UP:
            raise EndpointError(
                f"{self.connection.endpoint.url} answered no request of the last {_GIVE_UP} groups "
                f"({self.totals.last_failure}); they are not recorded: continue with --resume"
            )

    def prepare(self, number: int) -> tuple[Question, list[RolloutRecord]]:
        """Return a question, and the responses that it got in earlier attempts, unless their texts are gone."""
        question = self.job.questions.make(number)
        group = self.answers.partial.get(number)
        record = self.earlier_texts.text(self.run_id, group.group_id) if group else None
        return question, answered(record.rollouts) if record else []

    async def make_rollout(self, question: Question, repetition: int) -> Rollout:
        """Send a request, and score the response."""
        # The slot is for the request alone: the next one need not wait for this one's score.
        async with self.requests:
            watch = Stopwatch()
            reply = await self.send(question)
        watch.end_generation()
        text = judged_text(reply.text, self.job.config.prefilled_think, self.job.options.opening)
        if reply.failure is None:
            verdict = await self.judge.score(question.item, text)
            watch.end_scoring()
        else:
            verdict = Verdict.no_response(reply.failure)
        conversation = [*question.messages, {"role": "assistant", "content": text}]
        tokens, stop_reason = reply.completion_tokens, reply.stop_reason
        return Rollout(verdict, tokens, stop_reason, conversation, repetition, watch, question.item, text)

    async def send(self, question: Question) -> Reply:
        """Return the reply to one request. What would fail every further request fails this one, and is kept as
        `refusal`."""
        if self.refusal:
            return Reply(failure=one_line(self.refusal))
        try:
            reply = await self.connection.endpoint.respond(question.messages)
        except EndpointError as refusal:
            self.refusal = refusal
            reply = Reply(failure=one_line(refusal))
        self.totals.add(reply)
        return reply

    async def restore_rollout(self, question: Question, record: RolloutRecord) -> Rollout:
        """Return a rollout of an earlier attempt. It is scored again, because the rules of its group need whole
        verdicts."""
        text, tokens = record.response, record.response_tokens
        verdict = await self.judge.score(question.item, text)
        stop_reason = record.stop_reason or None
        return Rollout(verdict, tokens, stop_reason, record.conversation, record.repetition, None, question.item, text)

    async def record(
        self, question: Question, number: int, rollouts: Sequence[Rollout], earlier: LedgerRecord | None
    ) -> None:
        """Apply the rules of the group and write its record; `earlier` is the line that it replaces."""
        await self.judge.judge(rollouts, penalize=self.phase is Phase.TRAIN)
        origin = Origin(self.run_id, self.attempt, self.phase, None, number)
        record = self.judge.record(origin, question.item, question.item.id, rollouts)
        if earlier:
            record = _with_earlier_times(record, earlier)
        await self.writer.write([record])
        if self.log:
            self.log.log_groups([record])


def _with_earlier_times(record: GroupRecord, earlier: LedgerRecord) -> GroupRecord:
    """Add the times of the rollouts that are taken over, which are known of the whole group only."""
    return replace(
        record,
        started_at=earlier.started_at,
        generation_seconds=(earlier.generation_seconds or 0.0) + (record.generation_seconds or 0.0),
        scoring_seconds=(earlier.scoring_seconds or 0.0) + (record.scoring_seconds or 0.0),
    )
