"""`rg-env eval` and `rg-env collect`: questions to a model behind a server, until all groups are in a dump.

Invariant: a group is in the dump completely or not at all. A question is done once every request of its group was
answered: a group without any answer is not recorded, and `--resume` asks it again, as it does a group that lost some.
However the command ends, the dump is closed and a server that it started has ended. SIGINT, SIGTERM and SIGHUP drop
the groups in progress. The API key is in no file.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rg_env.config import RGDumpConfig
from rg_env.dump import DumpWriter, Phase, check_folder, new_run_id, write_manifest
from rg_env.dump.files import list_files, runs_with_manifest
from rg_env.dump.manifest import read_manifest
from rg_env.dump.reader import open_run
from rg_env.dump.schema import answered
from rg_env.errors import ConfigError, MissingGroupsError, RGEnvError, as_typed
from rg_env.evaluate.endpoint import Endpoint, EndpointError, Reply, Sampling, base_url
from rg_env.evaluate.server import Server, ServerError, program_for, start_server
from rg_env.evaluate.settings import generator_settings
from rg_env.evaluate.suites import Question, Questions
from rg_env.output import console, counted, print_error, print_text
from rg_env.rewards import Origin, Rollout, Stopwatch, group_record, load_reward, set_rewards
from rg_env.rollout_log import RolloutLog
from rg_env.scoring import Verdict, shared_scorer

_CONCURRENCY = 32
"""Requests at the same time to a server that somebody else started."""
_GIVE_UP = 8
"""After this many groups in succession without any answer the run stops."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FREE = {"dump_dir", "dump_fsync", "debug_logging", "suppress_base_env_logs"}
_FREE_OF_SCORER = {"workers"}
"""Settings that change nothing in the groups, so that a run may be continued with other values."""


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
    name: str
    server_options: Sequence[str] = ()
    request: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int | None = None
    timeout: float = 600.0
    retries: int = 5
    max_tokens_total: int | None = None


@dataclass(frozen=True)
class Job:
    """What a command is to do.

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
        settings["scorer"] = {name: value for name, value in settings["scorer"].items() if name not in _FREE_OF_SCORER}
        sampling = asdict(self.options.sampling)
        plan = {
            "command": self.command,
            "model": self.options.model,
            "groups": len(self.questions),
            "samples": self.samples,
            "sampling": sampling | ({"request": self.options.request} if self.options.request else {}),
            "questions": self.questions.facts,
            "config": settings,
        }
        return dict(json.loads(json.dumps(plan, default=str)))


@dataclass(slots=True)
class Totals:
    """What an attempt has done so far.

    Attributes:
        groups: finished groups; `unanswered`: those without any answer, which are not recorded.
        missing: groups that could not be written.
        answered, solved: rollouts of finished groups with a response, and of those with at least `solved_at`.
        responses, failures: requests that were answered, and that failed for good; `last_failure` says why.
        uncounted: responses whose tokens the server did not count.
        reasoning_apart, think_opened: see `Reply`.
    """

    groups: int = 0
    unanswered: int = 0
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

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def is_over(self, limit: int | None) -> bool:
        """Whether a budget of tokens is used up."""
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
class Finished:
    """How a job ended.

    Attributes:
        done: questions whose every request was answered, of all attempts; `planned`: all questions.
        signum: the signal that stopped it; `error`: what did, after some requests had been answered.
    """

    run_id: str
    folder: Path
    totals: Totals
    done: int
    planned: int
    out_of_tokens: bool = False
    signum: int | None = None
    error: RGEnvError | None = None

    @property
    def exit_code(self) -> int:
        """0; 1 after an error or with groups without any answer; 3 if groups could not be written; 128 + N after
        signal N."""
        if self.signum is not None:
            return 128 + self.signum
        if self.totals.missing:
            return MissingGroupsError.exit_code
        return int(bool(self.error or self.totals.unanswered))


def run_job(job: Job, *, resume: bool) -> Finished:
    """Collect all responses, or those that the run in the folder lacks.

    Raises:
        ConfigError: the folder has an unfinished run, or one with another plan.
        DumpError: the folder cannot be written, or another process writes the run.
        EndpointError: the server refuses or fails all requests. ServerError: none could be started.
    """
    check_folder(job.folder)
    run_id, attempt = claim(job.folder, job.plan, resume=resume)
    planned, totals = len(job.questions), Totals()
    signum, error = None, None
    if len(done_questions(job.folder, run_id)) < planned:
        try:
            signum = asyncio.run(_until_signal(_ask_what_is_left(job, run_id, attempt, totals)))
        except (ConfigError, EndpointError, ServerError) as failure:
            if not totals.responses:
                with suppress(OSError):
                    job.folder.rmdir()  # only an empty one goes: `rg-env runs` would warn about it
                raise
            error = failure
    done = len(done_questions(job.folder, run_id))
    out_of_tokens = totals.is_over(job.options.max_tokens_total) and done < planned
    return Finished(run_id, job.folder, totals, done, planned, out_of_tokens, signum, error)


# --------------------------------------------------------------------------------------------------- which run it is
def claim(folder: Path, plan: Mapping[str, Any], *, resume: bool) -> tuple[str, int]:
    """The id of the run to continue in `folder`, or of a new one, and the number of this attempt, from 1.

    Raises:
        ConfigError: there is an unfinished run and `resume` is not set, or the run to continue had another plan.
    """
    runs = list(_planned_runs(folder))
    unfinished = [run for run in runs if len(done_questions(folder, run[0])) < run[2]["groups"]]
    if unfinished and not resume:
        run_id, _, planned = unfinished[-1]
        raise ConfigError(
            f"{folder} has an unfinished run ({len(done_questions(folder, run_id))} of {planned['groups']} groups): "
            "continue it with --resume, or choose another folder"
        )
    if not runs or not resume:
        return new_run_id(), 1
    run_id, attempts, planned = (unfinished or runs)[-1]
    if differences := list(_differences(planned, plan)):
        raise ConfigError(
            f"--resume with other settings than the run in {folder}: {'; '.join(differences[:3])}; "
            "use the same settings, or another folder"
        )
    return run_id, attempts + 1


def _planned_runs(folder: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Id, number of attempts and plan of the runs in a folder that have a plan, oldest first."""
    for run_id in runs_with_manifest(folder):
        manifest = read_manifest(folder, run_id) or {}
        plan, attempt = manifest.get("plan"), manifest.get("attempt")
        if isinstance(plan, dict) and isinstance(plan.get("groups"), int) and isinstance(attempt, int):
            yield run_id, attempt, plan


def done_questions(folder: Path, run_id: str) -> frozenset[int]:
    """The numbers of the questions whose group is in the ledger with an answer to every request."""
    files = [file.path for file in list_files(folder, run_id)]
    ledger = open_run(*files).all_attempts().ledger() if files else ()
    return frozenset(group.call for group in ledger if len(answered(group.rollouts)) == len(group.rollouts))


def _differences(old: Any, new: Any, name: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
    elif old != new:
        yield f"{name} was {as_typed(old):.60}, is now {as_typed(new):.60}"


# ------------------------------------------------------------------------------------------------------- one attempt
async def _ask_what_is_left(job: Job, run_id: str, attempt: int, totals: Totals) -> None:
    """Reach the model, and ask every question that is not done."""
    options = job.options
    async with AsyncExitStack() as stack:
        url, request, server = options.url, dict(options.request), None
        concurrency = options.concurrency or _CONCURRENCY
        if url is None:
            program = program_for(options.model)
            server = await stack.enter_async_context(start_server(program, options.server_options))
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
        await stack.enter_async_context(endpoint)
        if server is None:
            await endpoint.check()
        writer = _open_writer(job, run_id, attempt)
        try:
            done = done_questions(job.folder, run_id)  # the writer has completed the ledger of a killed attempt
            left = [number for number in range(len(job.questions)) if number not in done]
            longest = options.sampling.max_tokens
            print_error(
                f"{counted(len(left) * job.samples, 'request')}: {counted(len(left), 'question')} × {job.samples}, "
                f"responses of at most {longest:,} tokens, {len(left) * job.samples * longest:,} in all"
            )
            with _progress(len(job.questions), len(done), options.max_tokens_total) as report:
                requests = asyncio.Semaphore(concurrency)
                state = _Attempt(job, run_id, attempt, endpoint, requests, writer, totals, report)
                await _ask_all(state, left, -(-concurrency // job.samples) + 1, server)
        finally:
            totals.missing = writer.close()


def _open_writer(job: Job, run_id: str, attempt: int) -> DumpWriter:
    config, options = job.config, job.options
    samples = {"samples": job.samples, "eval_samples": job.samples}
    manifest = {
        "attempt": attempt,
        "model": options.name,
        "model_path": None if options.url else options.model,
        "endpoint": options.url and base_url(options.url),
        "plan": job.plan,
        "suite": job.questions.facts.get("suite"),
        "settings": generator_settings(config, **samples, **asdict(options.sampling)),
        "task_mix": config.tasks,
    }
    writer = DumpWriter(config.dump_dir, run_id, attempt, config)
    try:
        write_manifest(writer.folder, run_id, manifest)
    except BaseException:
        writer.close()
        raise
    return writer


async def _ask_all(state: _Attempt, numbers: Sequence[int], groups_at_once: int, server: Server | None) -> None:
    """Ask the questions with these numbers, and watch the server meanwhile.

    Raises:
        EndpointError: the server refuses or fails all requests. ServerError: it ended.
    """
    left = iter(numbers)
    try:
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(server.watch()) if server else None
            await asyncio.wait([tasks.create_task(state.ask_in_turn(left)) for _ in range(groups_at_once)])
            if watch:
                watch.cancel()
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


@dataclass
class _Attempt:
    """Asks questions, scores the responses and records the groups."""

    job: Job
    run_id: str
    attempt: int
    endpoint: Endpoint
    requests: asyncio.Semaphore
    writer: DumpWriter
    totals: Totals
    report: Callable[[Totals], None]
    unanswered_in_succession: int = 0

    def __post_init__(self) -> None:
        config = self.job.config
        self.phase = Phase.TRAIN if self.job.command == "collect" else Phase.EVAL
        self.reward = load_reward(config)
        self.log = RolloutLog(self.writer.folder.parent / "logs") if config.debug_logging else None

    async def ask_in_turn(self, numbers: Iterator[int]) -> None:
        """Ask one question after the other, until the budget of tokens is used up."""
        for number in numbers:
            if self.totals.is_over(self.job.options.max_tokens_total):
                return
            await self.ask_question(number)

    async def ask_question(self, number: int) -> None:
        """Ask a question as often as the job wants, and record its group unless nothing was answered.

        Raises:
            EndpointError: too many groups in succession had no answer.
        """
        config, totals = self.job.config, self.totals
        question = await asyncio.to_thread(self.job.questions.make, number)
        async with asyncio.TaskGroup() as tasks:
            requests = [tasks.create_task(self.make_rollout(question, k)) for k in range(self.job.samples)]
        rollouts = [request.result() for request in requests]
        responded = [rollout for rollout in rollouts if rollout.responded]
        totals.groups += 1
        totals.answered += len(responded)
        totals.solved += sum(rollout.verdict.scored.score >= config.solved_at for rollout in responded)
        if responded:
            self.unanswered_in_succession = 0
            set_rewards(
                rollouts,
                config,
                max_length=self.job.options.sampling.max_tokens,
                penalize=self.phase is Phase.TRAIN,
                custom=await self.reward.rate_async(rollouts, config) if self.reward else None,
            )
            origin = Origin(self.run_id, self.attempt, self.phase, None, number)
            record = group_record(origin, question.item, question.item.id, rollouts, config.solved_at)
            await self.writer.write([record])
            if self.log:
                self.log.log_groups([record])
        else:
            totals.unanswered += 1
            self.unanswered_in_succession += 1
        self.report(totals)
        if self.unanswered_in_succession >= _GIVE_UP:
            raise EndpointError(
                f"{self.endpoint.url} answered no request of the last {_GIVE_UP} groups ({totals.last_failure}); "
                "they are not recorded: continue with --resume"
            )

    async def make_rollout(self, question: Question, repetition: int) -> Rollout:
        """Ask once, and score the response."""
        config, item = self.job.config, question.item
        async with self.requests:
            watch = Stopwatch()
            reply = await self.endpoint.respond(question.messages)
        watch.end_generation()
        self.totals.add(reply)
        if reply.failure is None:
            text = f"<think>{reply.text}" if reply.think_opened and not config.prefilled_think else reply.text
            verdict = await shared_scorer(config.scorer).score_response_async(
                item.entry, text, item.config, config.prefilled_think, config.format
            )
            watch.end_scoring()
        else:
            text, verdict = "", Verdict.no_response(reply.failure)
        conversation = [*question.messages, {"role": "assistant", "content": text}]
        tokens, stop_reason = reply.completion_tokens, reply.stop_reason
        return Rollout(verdict, tokens, stop_reason, conversation, repetition, watch, item, text)


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
        for again in handled:
            loop.remove_signal_handler(again)
            signal.signal(again, lambda number, _: os._exit(128 + number))  # although the disk hangs

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
