"""`rg-env eval` and `rg-env collect`: questions to a model behind a server, until all groups are in a dump.

Invariant: no request that was answered and recorded is sent again. A question is complete once every request of its
group was answered; a group without any answer is not recorded. `--resume` sends the requests that are missing, and
records each group anew, with the responses of earlier attempts from their texts; the new line replaces the earlier one.
A group whose text was not kept is asked whole. However the command ends, the dump is closed and a server that it
started has ended. SIGINT, SIGTERM and SIGHUP drop the groups in progress. The API key is in no file.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rg_env.choices import Split
from rg_env.config import RGDumpConfig
from rg_env.dump import DumpWriter, Phase, check_folder, new_run_id, write_manifest
from rg_env.dump.files import list_files, runs_with_manifest
from rg_env.dump.manifest import note_in_manifest, read_manifest
from rg_env.dump.reader import Dump, open_run_of
from rg_env.dump.schema import GroupRecord, LedgerRecord, RolloutRecord, answered
from rg_env.errors import ConfigError, MissingGroupsError, RGEnvError, as_typed, one_line
from rg_env.evaluate.endpoint import Endpoint, EndpointError, Reply, RequestLimits, Responder, Sampling, base_url
from rg_env.evaluate.eval_settings import generator_settings
from rg_env.evaluate.server import Server, ServerError, program_for, start_server
from rg_env.evaluate.suites import Question, Questions
from rg_env.output import console, print_error, print_text
from rg_env.rewards import load_reward, set_rewards
from rg_env.rollout import Origin, Rollout, Stopwatch, group_record
from rg_env.scoring import Status, Verdict, shared_scorer
from rg_env.scoring.audit import left_out_of_mix
from rg_env.scoring.file_scorers import WHY_UNREAD
from rg_env.tasks.mix import read_spec
from rg_env.tasks.questions import hashes_of
from rg_env.templates import Opening, judged_text
from rg_env.wording import counted

if TYPE_CHECKING:
    from rg_env.rollout_log import RolloutLog

_CONCURRENCY = 32
"""Requests at the same time to a server that somebody else started."""
_GIVE_UP = 8
"""After this many groups in succession without any answer the run stops."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FREE = {"dump_dir", "dump_fsync", "debug_logging", "suppress_base_env_logs"}
_FREE_OF_SCORER = {"workers"}
"""Settings that change nothing in the groups, so that a run may be continued with other values."""
_GROUPS_OF_SETTINGS = {"sampling", "config", "config.scorer", "config.length_penalty"}
"""Parts of a plan whose keys are names of settings. Those of other parts are words of the user, such as tasks."""


_TYPED_AS = {
    "command": "the command",
    "groups": "the number of questions",
    "model": "--model",
    "samples": "--samples",
    "sampling.max_tokens": "--max-tokens",
    "sampling.temperature": "--temperature",
    "sampling.top_p": "--top-p",
    "questions.suite.left_out": "the number of questions that the audit of the answers left out",
}
"""What decides an entry of a plan, in the words of the command line."""


@dataclass(frozen=True)
class EndpointOptions:
    """How to reach a model, and what to ask of it.

    Attributes:
        url: of a running server; None: one is started on this machine.
        model: the server's name for the model, or its folder.
        name: of the model in the manifest.
        server_options: further arguments of the server that is started.
        request: further fields of every request.
        opening: how the rendered prompts end; None: unknown.
        local: makes what responds in this process, in place of a server.
        is_own: this process started the server at `url`.
    """

    url: str | None
    model: str
    name: str
    sampling: Sampling
    limits: RequestLimits
    server_options: Sequence[str] = ()
    request: Mapping[str, Any] = field(default_factory=dict)
    opening: Opening | None = None
    local: Callable[[Sampling], Responder] | None = None
    is_own: bool = False


@dataclass(frozen=True)
class Job:
    """A collection or an evaluation.

    Attributes:
        command: `collect`, which records groups of phase train, or `eval`.
        samples: responses to each question.
        config: our settings, complete; the dump is written to `dump_dir`.
    """

    command: str
    questions: Questions
    samples: int
    config: RGDumpConfig
    options: EndpointOptions

    @property
    def folder(self) -> Path:
        return Path(self.config.dump_dir)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """What determines the groups, as JSON: a run is continued with the same plan only."""
        settings = {name: value for name, value in asdict(self.config).items() if name not in _FREE}
        # `scorer` is a group of settings, of which only the number of workers is free.
        settings["scorer"] = {name: value for name, value in settings["scorer"].items() if name not in _FREE_OF_SCORER}
        # The request is there if it is empty, too: a later one that is not is a difference.
        sampling = {**asdict(self.options.sampling), "request": self.options.request}
        plan = {
            "command": self.command,
            "model": self.options.model,
            "groups": len(self.questions),
            "samples": self.samples,
            "sampling": sampling,
            "questions": self.questions.facts,
            "config": settings,
        }
        # As it comes back from the manifest, with which `--resume` compares it: lists for tuples, text for enums.
        return dict(json.loads(json.dumps(plan, default=str)))


@dataclass(slots=True)
class Totals:
    """What an attempt has done so far.

    Attributes:
        groups: questions that were asked to the end.
        missing: groups that could not be written.
        answered, solved: responses of finished groups, and those of them with at least `solved_at`.
        responses, failures: requests that were answered, and that failed for good; `last_failure` says why.
        uncounted: responses whose tokens the server did not count.
        reasoning_apart, think_opened: see `Reply`.
        unread: answers that the scorer of their file could not read, by its reason.
    """

    groups: int = 0
    missing: int = 0
    answered: int = 0
    solved: int = 0
    responses: int = 0
    failures: int = 0
    last_failure: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    reasoning_apart: int = 0
    think_opened: int = 0
    unread: Counter[str] = field(default_factory=Counter)

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def is_over(self, limit: int | None) -> bool:
        """Return whether a budget of tokens is used up."""
        return limit is not None and self.tokens >= limit

    def add(self, reply: Reply) -> None:
        if reply.failure is not None:
            self.failures += 1
            self.last_failure = reply.failure
            return
        self.responses += 1
        self.prompt_tokens += reply.prompt_tokens or 0
        self.completion_tokens += reply.completion_tokens or 0
        self.uncounted += reply.completion_tokens is None
        self.reasoning_apart += reply.reasoning_apart
        self.think_opened += reply.think_opened


@dataclass(frozen=True)
class Answers:
    """What the dump of a run has, over all attempts.

    Attributes:
        complete: the numbers of the questions with a response to every request.
        partial: the groups that lost some, by the number of their question.
        responses: rollouts with a response.
    """

    complete: frozenset[int]
    partial: Mapping[int, LedgerRecord]
    responses: int

    @property
    def groups(self) -> int:
        """The number of questions with any response."""
        return len(self.complete) + len(self.partial)

    @classmethod
    def of_run(cls, folder: Path, run_id: str) -> Answers:
        """Count what the ledger has."""
        complete: set[int] = set()
        partial: dict[int, LedgerRecord] = {}
        responses = 0
        for group in open_run_of(folder, run_id).ledger():
            rollouts = group.rollouts
            count = len(answered(rollouts))
            responses += count
            if count == len(rollouts):
                complete.add(group.call)
            else:
                partial[group.call] = group
        return cls(frozenset(complete), partial, responses)


@dataclass(frozen=True)
class Finished:
    """How a job ended.

    Attributes:
        totals: of this attempt; `answers`: of all.
        signum: the signal that stopped it; `error`: what did, after some requests had been answered.
    """

    job: Job
    run_id: str
    totals: Totals
    answers: Answers
    signum: int | None = None
    error: RGEnvError | None = None

    @property
    def planned(self) -> int:
        """The number of all responses that the job wants."""
        return len(self.job.questions) * self.job.samples

    @property
    def is_complete(self) -> bool:
        return len(self.answers.complete) == len(self.job.questions)

    @property
    def out_of_tokens(self) -> bool:
        return self.totals.is_over(self.job.options.limits.max_tokens_total) and not self.is_complete

    @property
    def was_stopped(self) -> bool:
        """Whether something ended it before all requests were sent."""
        return bool(self.out_of_tokens or self.signum is not None or self.error)

    @property
    def end(self) -> str:
        """How it ended, for the manifest."""
        if self.signum is not None:
            return f"stopped by {signal.Signals(self.signum).name}"
        if self.error:
            return f"failed: {one_line(self.error)}"
        if self.out_of_tokens:
            return "stopped at --max-tokens-total"
        return "finished" if self.is_complete else "finished, responses are missing"

    @property
    def exit_code(self) -> int:
        """0; 1 if a response is missing; 3 if groups could not be written; 128 + N after signal N."""
        if self.signum is not None:
            return 128 + self.signum
        if self.totals.missing:
            return MissingGroupsError.exit_code
        return 0 if self.is_complete and not self.error else 1


def run_job(job: Job, *, resume: bool) -> Finished:
    """Collect all responses, or those that the run in the folder lacks.

    Raises:
        ConfigError: the folder has a run that is not continued, or one with another plan.
        DumpError: the folder cannot be written, or another process writes the run.
        EndpointError: the server refuses or fails all requests. ServerError: none could be started.
    """
    check_folder(job.folder)
    run_id, attempt = claim(job.folder, job.plan, resume=resume)
    totals, answers = Totals(), Answers.of_run(job.folder, run_id)
    # Nothing is left to ask, and a server takes minutes to start.
    if len(answers.complete) == len(job.questions):
        return Finished(job, run_id, totals, answers)
    signum, error = None, None
    try:
        signum = asyncio.run(_until_signal(_ask_what_is_left(job, run_id, attempt, totals)))
    except (ConfigError, EndpointError, ServerError) as failure:
        # Nothing was answered, so there is nothing to show: the error is all. Otherwise it is shown with the result.
        if not totals.responses:
            note_in_manifest(job.folder, run_id, attempt, {"end": f"failed: {one_line(failure)}"})
            with suppress(OSError):
                job.folder.rmdir()  # only an empty one goes: `rg-env runs` would warn about it
            raise
        error = failure
    finished = Finished(job, run_id, totals, Answers.of_run(job.folder, run_id), signum, error)
    note_in_manifest(job.folder, run_id, attempt, {"end": finished.end})
    return finished


# --------------------------------------------------------------------------------------------------- which run it is
def claim(folder: Path, plan: Mapping[str, Any], *, resume: bool) -> tuple[str, int]:
    """Return the id of the run to continue in `folder`, or of a new one, and the number of this attempt, from 1.

    Raises:
        ConfigError: without `resume`, there is a run in the folder; with it, none that can be continued with this plan.
    """
    runs = list(_planned_runs(folder))
    if not runs or not resume:
        _need_unused(folder, runs)
        return new_run_id(), 1
    # If all of them are finished, the newest: nothing will be asked.
    run_id, attempts, planned = next(_unfinished(folder, runs), runs[-1])
    if differences := _as_somebody_typed(_differences(planned, plan)):
        raise ConfigError(
            f"--resume with other settings than the run in {folder}: {'; '.join(differences[:3])}; "
            "use the same settings, or another folder"
        )
    return run_id, attempts + 1


def _need_unused(folder: Path, runs: Sequence[_PlannedRun]) -> None:
    """Refuse a folder that has a dump: readers would take both runs for one result."""
    if unfinished := next(_unfinished(folder, runs), None):
        done = len(Answers.of_run(folder, unfinished.run_id).complete)
        raise ConfigError(
            f"{folder} has an unfinished run ({done} of {unfinished.plan['groups']} groups): "
            "continue it with --resume, or choose another folder"
        )
    if runs_with_manifest(folder) or list_files(folder):
        raise ConfigError(f"{folder} has the dump of a finished run: choose another folder")


def _unfinished(folder: Path, runs: Sequence[_PlannedRun]) -> Iterator[_PlannedRun]:
    """Yield the runs with questions that are not complete, newest first."""
    for run in reversed(runs):
        if len(Answers.of_run(folder, run.run_id).complete) < run.plan["groups"]:
            yield run


class _PlannedRun(NamedTuple):
    """A run of `eval` or `collect` in a folder, with its number of attempts."""

    run_id: str
    attempts: int
    plan: dict[str, Any]


def _planned_runs(folder: Path) -> Iterator[_PlannedRun]:
    """Yield the runs in a folder that have a plan, oldest first."""
    for run_id in runs_with_manifest(folder):
        manifest = read_manifest(folder, run_id) or {}
        plan, attempt = manifest.get("plan"), manifest.get("attempt")
        if isinstance(plan, dict) and isinstance(plan.get("groups"), int) and isinstance(attempt, int):
            yield _PlannedRun(run_id, attempt, plan)


def _as_somebody_typed(differences: Iterable[str]) -> list[str]:
    """Return differences of plans with the names that options and settings have on the command line.

    That the questions are others is said only if nothing else says why.
    """
    own, of_questions = [], False
    for difference in differences:
        name, _, values = difference.partition(" ")
        if name in _TYPED_AS:
            own.append(f"{_TYPED_AS[name]} {values}")
        elif name.startswith("questions."):
            of_questions = True
        else:
            own.append(f"{name.removeprefix('config.').removeprefix('sampling.request.')} {values}")
    if of_questions and not own:
        own.append("the questions are others: those of another suite, task mix, seed or file")
    return own


def _differences(old: Any, new: Any, name: str = "") -> Iterator[str]:
    """Compare two plans. A setting that only one of the two programs has is no difference."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = old.keys() | new.keys()
        if name in _GROUPS_OF_SETTINGS:
            keys = old.keys() & new.keys()
        for key in sorted(keys):
            yield from _differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
    elif old != new:
        yield f"{name} was {as_typed(old):.60}, is now {as_typed(new):.60}"


# ------------------------------------------------------------------------------------------------------- one attempt
def _folder_of_logs(dump: Path) -> Path:
    """Return the folder `logs` of the run that a dump folder belongs to: in it, or beside it if it is called
    `dumps`."""
    if dump.name == "dumps":
        return dump.with_name("logs")
    return dump / "logs"


async def _ask_what_is_left(job: Job, run_id: str, attempt: int, totals: Totals) -> None:
    """Reach the model, and send every request that has no answer yet."""
    limits = job.options.limits
    async with AsyncExitStack() as stack:
        connection = await _connect(job, run_id, stack)
        writer = _open_writer(job, run_id, attempt)
        try:
            answers = Answers.of_run(job.folder, run_id)  # the writer has completed the ledger of a killed attempt
            left = [number for number in range(len(job.questions)) if number not in answers.complete]
            print_error(_announce(job, answers, len(left)))
            log = None
            if job.config.debug_logging:
                from rg_env.rollout_log import RolloutLog  # and with it polars, which takes time

                log = RolloutLog(_folder_of_logs(job.folder))
                print_error(f"log of rollouts: {log.path}")
            with _progress(len(job.questions), len(answers.complete), limits.max_tokens_total) as report:
                state = _Attempt(job, run_id, attempt, connection, answers, writer, totals, report, log)
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


async def _connect(job: Job, run_id: str, stack: AsyncExitStack) -> _Connection:
    """Reach the server, or start one that ends with the stack.

    Raises:
        EndpointError: it does not answer or refuses the key. ServerError: none could be started.
    """
    options = job.options
    if options.local is not None:
        return _Connection(options.local(options.sampling), options.limits.concurrency or _CONCURRENCY)
    # If an earlier attempt had responses, the first refusal of this one may be about one prompt, too.
    settings: dict[str, Any] = {"has_responded": Answers.of_run(job.folder, run_id).responses > 0}
    if options.url is not None:
        settings |= {"request": options.request, "is_own": options.is_own}
        endpoint = Endpoint(options.url, options.model, options.sampling, options.limits, **settings)
        await stack.enter_async_context(endpoint)
        await endpoint.check()
        return _Connection(endpoint, options.limits.concurrency or _CONCURRENCY)
    program = program_for(options.model)
    server = await stack.enter_async_context(start_server(program, options.server_options))
    request = {**options.request, **program.request}
    endpoint = Endpoint(
        server.url, options.model, options.sampling, options.limits, request=request, is_own=True, **settings
    )
    await stack.enter_async_context(endpoint)
    return _Connection(endpoint, options.limits.concurrency or program.concurrency, server)


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


def _open_writer(job: Job, run_id: str, attempt: int) -> DumpWriter:
    config, options = job.config, job.options
    sampling = asdict(options.sampling)
    settings = generator_settings(config, samples=job.samples, eval_samples=job.samples, **sampling)
    split = Split.TRAIN if job.command == "collect" else Split.EVAL
    earlier = read_manifest(Path(config.dump_dir), run_id)  # of the attempt that is resumed, if any
    mix = read_spec(config.tasks)
    manifest = {
        "attempt": attempt,
        "kind": job.command,
        "model": options.name,
        "model_path": None if options.url else options.model,
        "endpoint": options.url and base_url(options.url),
        "plan": job.plan,
        "suite": job.questions.facts.get("suite"),
        "settings": settings,
        "task_mix": mix,
        "question_files": hashes_of(config.tasks, earlier),
        "questions_left_out": left_out_of_mix(config.tasks, config.scorer, config.format, earlier, splits=[split]),
    }
    # First the writer, which takes the lock of the run: the manifest must not be that of a second process.
    writer = DumpWriter(config.dump_dir, run_id, attempt, config)
    try:
        write_manifest(writer.folder, run_id, manifest)
    except BaseException:
        writer.close()
        raise
    return writer


async def _ask_all(state: _Attempt, numbers: Sequence[int]) -> None:
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
class _Attempt:
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
    unanswered_in_succession: int = 0
    refusal: EndpointError | None = None

    def __post_init__(self) -> None:
        config = self.job.config
        self.phase = Phase.TRAIN if self.job.command == "collect" else Phase.EVAL
        self.reward = load_reward(config)
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
        self.count(rollouts)
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
        if self.unanswered_in_succession >= _GIVE_UP:
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
            verdict = await self.score(question, text)
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
        verdict = await self.score(question, text)
        stop_reason = record.stop_reason or None
        return Rollout(verdict, tokens, stop_reason, record.conversation, record.repetition, None, question.item, text)

    async def score(self, question: Question, text: str) -> Verdict:
        config, item = self.job.config, question.item
        scorer = shared_scorer(config.scorer)
        return await scorer.score_response_async(item.entry, text, item.config, config.prefilled_think, config.format)

    def count(self, rollouts: Sequence[Rollout]) -> None:
        """Add the new rollouts of a group to the totals."""
        responded = [rollout for rollout in rollouts if rollout.responded]
        solved_at = self.job.config.solved_at
        self.totals.groups += 1
        self.totals.answered += len(responded)
        self.totals.solved += sum(rollout.verdict.scored.score >= solved_at for rollout in responded)
        for rollout in responded:
            scored = rollout.verdict.scored
            if scored.status is Status.OK and scored.detail in WHY_UNREAD.values():
                self.totals.unread[scored.detail] += 1
        self.unanswered_in_succession = 0 if responded else self.unanswered_in_succession + 1

    async def record(
        self, question: Question, number: int, rollouts: Sequence[Rollout], earlier: LedgerRecord | None
    ) -> None:
        """Apply the rules of the group and write its record; `earlier` is the line that it replaces."""
        config = self.job.config
        custom = None
        if self.reward:
            custom = await self.reward.rate_async(rollouts, config)
        set_rewards(
            rollouts,
            config,
            max_length=self.job.options.sampling.max_tokens,
            penalize=self.phase is Phase.TRAIN,
            custom=custom,
        )
        origin = Origin(self.run_id, self.attempt, self.phase, None, number)
        record = group_record(origin, question.item, question.item.id, rollouts, config.solved_at)
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


# ------------------------------------------------------------------------------------------- the terminal and signals
@contextmanager
def _progress(planned: int, done: int, max_tokens_total: int | None) -> Iterator[Callable[[Totals], None]]:
    """Yields a function to call after every group: a bar on a terminal, a line per tenth of the run elsewhere."""
    terminal, began = console(stderr=True), time.monotonic()
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("groups, {task.description}"), TimeRemainingColumn())
    bar = Progress(*columns, console=terminal, disable=not terminal.is_terminal)
    task = bar.add_task("waiting for the first responses", total=planned, completed=done)

    def show(totals: Totals) -> None:
        before, finished = int(bar.tasks[0].completed), done + totals.groups
        seconds = max(time.monotonic() - began, 1e-3)
        most = f" of {max_tokens_total:,}" if max_tokens_total is not None else ""
        text = f"{totals.responses / seconds:.1f} responses/s, {totals.tokens:,}{most} tokens with the prompts"
        if totals.answered:
            text += f", solved {totals.solved / totals.answered:.2f}"
        if totals.failures:
            text += f", {totals.failures} failed"
        bar.update(task, completed=finished, description=text)
        # Where there is no bar, a line for each tenth of the run that this group completes.
        if bar.disable and finished * 10 // planned > before * 10 // planned:
            print_text(f"{finished}/{planned} groups, {text}", stderr=True)

    with bar:
        yield show


async def _until_signal(work: Coroutine[Any, Any, None]) -> int | None:
    """Run `work`; a signal cancels it. Returns the signal, or None if it ended by itself."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    received: list[int] = []
    handlers = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    handled = {signum: before for signum, before in handlers.items() if before is not signal.SIG_IGN}  # as nohup does

    def stop(signum: int) -> None:
        received.append(signum)
        task.cancel()
        # The first signal lets the dump be closed. From now on, another one ends the process at once.
        for again in handled:
            loop.remove_signal_handler(again)
            signal.signal(again, lambda number, _: os._exit(128 + number))  # although the disk hangs

    for signum in handled:
        loop.add_signal_handler(signum, stop, signum)
    try:
        await task
    except asyncio.CancelledError:
        if not received:  # somebody else canceled this
            raise
    finally:
        for signum, before in handled.items():
            loop.remove_signal_handler(signum)
            signal.signal(signum, before)
    return received[0] if received else None
