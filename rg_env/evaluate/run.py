"""One command against a server, from its options to a finished dump: `eval` and `collect`.

Invariant: a group is in the dump completely or not at all. A question is done once every request of its group was
answered: groups without any answer are not recorded, and `--resume` asks them again, as it does groups that lost some.
The dump is closed and a server that was started has ended, however the command ends. SIGINT, SIGTERM and SIGHUP drop the
groups in progress. The API key is in no file.
"""  # noqa: E501

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rg_env.config import RGDumpConfig
from rg_env.dump import DumpWriter, Phase, check_folder, new_run_id, write_manifest
from rg_env.dump.files import list_files, manifest_name
from rg_env.dump.manifest import read_manifest
from rg_env.dump.reader import open_run
from rg_env.dump.schema import answered
from rg_env.errors import ConfigError, MissingGroupsError, RGEnvError, as_typed
from rg_env.evaluate.endpoint import Endpoint, EndpointError, Reply, Sampling
from rg_env.evaluate.server import Server, ServerError, program_for, serving
from rg_env.evaluate.settings import generator_settings
from rg_env.evaluate.suites import Question, Questions
from rg_env.output import console, counted, print_error, print_text
from rg_env.rewards import Origin, Rollout, Stopwatch, group_record, group_rewards, load_reward
from rg_env.rollout_log import RolloutLog
from rg_env.scoring import Verdict, shared_scorer

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GIVE_UP = 8
"""After this many groups in succession without any answer the run stops."""
_FREE = {"dump_dir", "dump_fsync", "debug_logging", "suppress_base_env_logs"}
_FREE_OF_SCORER = {"workers"}
"""Settings that change nothing in the groups, so that a run may be continued with other values."""


# ------------------------------------------------------------------------------------------------- what is to be done
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
class Plan:
    """What determines the groups of a run.

    Attributes:
        command: `collect` or `eval`.
        model: its name on the server, or its folder.
        groups: number of questions; `samples`: rollouts of each.
        sampling: sampling parameters.
        questions: `Questions.facts`.
    """

    command: str
    model: str
    groups: int
    samples: int
    sampling: Mapping[str, Any]
    questions: Mapping[str, Any]
    config: RGDumpConfig

    def facts(self) -> dict[str, Any]:
        """The plan as JSON, for the manifest."""
        settings = {name: value for name, value in asdict(self.config).items() if name not in _FREE}
        settings["scorer"] = {name: value for name, value in settings["scorer"].items() if name not in _FREE_OF_SCORER}
        return dict(json.loads(json.dumps({**asdict(self), "config": settings}, default=str)))


@dataclass(frozen=True)
class Claim:
    """The run that a command writes: its attempt, from 1, and the numbers of the questions that are done."""

    run_id: str
    attempt: int
    done: frozenset[int]


def claim(folder: Path, plan: Plan, *, resume: bool) -> Claim:
    """Find the run in `folder` to continue, or start a new one.

    Raises:
        ConfigError: there is an unfinished run and `resume` is not set, or the run to continue had another plan.
    """
    runs = list(_planned_runs(folder))
    unfinished = [(facts, run) for facts, run in runs if len(run.done) < facts["groups"]]
    if not resume and unfinished:
        facts, run = unfinished[-1]
        raise ConfigError(
            f"{folder} has an unfinished run ({len(run.done)} of {facts['groups']} groups): "
            "continue it with --resume, or choose another folder"
        )
    if not resume or not runs:
        return Claim(new_run_id(), 1, frozenset())
    facts, run = (unfinished or runs)[-1]
    if differences := list(_differences(facts, plan.facts())):
        raise ConfigError(
            f"--resume with other settings than the run in {folder}: {'; '.join(differences[:3])}; "
            "use the same settings, or another folder"
        )
    return run


def _planned_runs(folder: Path) -> Iterator[tuple[dict[str, Any], Claim]]:
    """Plan and state of the runs in a folder that have a plan, oldest first."""
    before, _, after = manifest_name("*").partition("*")
    for path in sorted(folder.glob(manifest_name("*"))) if folder.is_dir() else ():
        run_id = path.name.removeprefix(before).removesuffix(after)
        manifest = read_manifest(folder, run_id) or {}
        plan, attempt = manifest.get("plan"), manifest.get("attempt")
        if isinstance(plan, dict) and isinstance(plan.get("groups"), int) and isinstance(attempt, int):
            yield plan, Claim(run_id, attempt + 1, done_questions(folder, run_id))


def done_questions(folder: Path, run_id: str) -> frozenset[int]:
    """The numbers of the questions whose group is in the ledger with an answer to every request."""
    files = [file.path for file in list_files(folder, run_id)]
    ledger = open_run(*files).ledger(all_attempts=True) if files else ()
    return frozenset(group.call for group in ledger if len(answered(group.rollouts)) == len(group.rollouts))


def _differences(old: Any, new: Any, name: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
    elif old != new:
        yield f"{name} was {as_typed(old):.60}, is now {as_typed(new):.60}"


def evaluation_folder(configured: str) -> Path:
    """A new folder next to the configured one."""
    return Path(configured).parent / f"eval-{datetime.now(UTC):%Y%m%d-%H%M%S}"


# --------------------------------------------------------------------------------------------------- what was done
@dataclass(slots=True)
class Totals:
    """What has been done so far.

    Attributes:
        groups: finished groups; `unanswered`: those without any answer, which are not recorded.
        answered, solved: rollouts of finished groups with a response, and of those with at least `solved_at`.
        responses, failures: requests that were answered, and that failed for good; `last_failure` says why.
        reasoning_apart, think_opened: see `Reply`.
        uncounted: responses whose tokens the server did not count.
        missing: groups that could not be written.
    """

    groups: int = 0
    missing: int = 0
    unanswered: int = 0
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
    """How a command ended.

    Attributes:
        done: questions whose every request was answered, of all attempts; `planned`: all questions.
        signum: the signal that stopped it, or None; `error`: what did, if groups were recorded before.
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
    def incomplete(self) -> int:
        """Questions that were asked to the end and lost some answers, or all."""
        return 0 if self.out_of_tokens or self.signum is not None or self.error else self.planned - self.done

    @property
    def exit_code(self) -> int:
        """0; 1 after an error or with groups without any answer; 3 if groups could not be written; 128 + N after
        signal N."""
        if self.signum is not None:
            return 128 + self.signum
        if self.totals.missing:
            return MissingGroupsError.exit_code
        return int(bool(self.error or self.totals.unanswered))


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
    folder, totals = Path(config.dump_dir), Totals()
    check_folder(folder)
    run = claim(folder, plan, resume=resume)
    if len(run.done) >= plan.groups:
        return Finished(run.run_id, folder, totals, len(run.done), plan.groups)
    error: RGEnvError | None = None
    signum = None
    try:
        signum = asyncio.run(_until_signal(_collect(run, plan, questions, options, totals)))
    except (EndpointError, ServerError) as failure:
        if not totals.responses:
            raise
        error = failure
    done = len(done_questions(folder, run.run_id))
    out_of_tokens = _is_out_of_tokens(totals, options) and done < plan.groups
    return Finished(run.run_id, folder, totals, done, plan.groups, out_of_tokens, signum, error)


def _is_out_of_tokens(totals: Totals, options: EndpointOptions) -> bool:
    return options.max_tokens_total is not None and totals.tokens >= options.max_tokens_total


# -------------------------------------------------------------------------------------------------------- one attempt
async def _collect(run: Claim, plan: Plan, questions: Questions, options: EndpointOptions, totals: Totals) -> None:
    """Reach the model, and collect every question that is not done."""
    async with AsyncExitStack() as stack:
        url, request, server = options.url, dict(options.request), None
        concurrency = options.concurrency or 32
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
        await stack.enter_async_context(endpoint)
        if server is None:
            await endpoint.check()
        writer = _open_writer(run, plan, options, endpoint.url)
        try:
            done = done_questions(writer.folder, run.run_id)  # the writer has completed the ledger of a killed attempt
            left = [number for number in range(plan.groups) if number not in done]
            _say_what_is_asked(len(left), plan)
            with _progress(plan.groups, len(done), options.max_tokens_total) as report:
                attempt = _Attempt(run, plan, questions, options, endpoint, writer, totals, report, concurrency)
                await _ask_all(attempt, left, server)
        finally:
            totals.missing = writer.close()


def _say_what_is_asked(left: int, plan: Plan) -> None:
    requests, longest = left * plan.samples, int(plan.sampling["max_tokens"])
    print_error(
        f"{counted(requests, 'request')}: {counted(left, 'question')} × {plan.samples}, at most {longest:,} tokens "
        f"each, {requests * longest:,} in all"
    )


def _open_writer(run: Claim, plan: Plan, options: EndpointOptions, url: str) -> DumpWriter:
    sampling = asdict(options.sampling)
    writer = DumpWriter.from_config(plan.config, run.run_id, run.attempt)
    manifest = {
        "attempt": run.attempt,
        "model": options.name or options.model,
        "model_path": options.model if options.url is None else None,
        "endpoint": url if options.url else None,
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


async def _ask_all(attempt: _Attempt, numbers: Sequence[int], server: Server | None) -> None:
    """Ask the questions with these numbers, several at a time, and watch the server meanwhile.

    Raises:
        EndpointError: the server refuses or fails all requests. ServerError: it ended.
    """
    left = iter(numbers)

    async def ask() -> None:
        while not _is_out_of_tokens(attempt.totals, attempt.options) and (number := next(left, None)) is not None:
            await attempt.group(number)

    try:
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(server.watch()) if server else None
            at_once = -(-attempt.concurrency // attempt.plan.samples) + 1
            await asyncio.wait([tasks.create_task(ask()) for _ in range(at_once)])
            if watch:
                watch.cancel()
    except BaseExceptionGroup as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


class _Attempt:
    """Asks questions and records their groups."""

    def __init__(
        self,
        run: Claim,
        plan: Plan,
        questions: Questions,
        options: EndpointOptions,
        endpoint: Endpoint,
        writer: DumpWriter,
        totals: Totals,
        report: Callable[[Totals], None],
        concurrency: int,
    ) -> None:
        self.plan, self.options, self.totals, self.concurrency = plan, options, totals, concurrency
        self._run, self._questions, self._endpoint, self._writer = run, questions, endpoint, writer
        self._report = report
        self._phase = Phase.TRAIN if plan.command == "collect" else Phase.EVAL
        self._reward = load_reward(plan.config)
        self._log = RolloutLog(writer.folder.parent / "logs") if plan.config.debug_logging else None
        self._requests = asyncio.Semaphore(concurrency)
        self._unanswered_in_succession = 0

    async def group(self, number: int) -> None:
        """Ask a question and record its group, unless no request was answered.

        Raises:
            EndpointError: too many groups in succession had no answer.
        """
        config, totals = self.plan.config, self.totals
        question = await asyncio.to_thread(self._questions.__getitem__, number)
        async with asyncio.TaskGroup() as tasks:
            requests = [tasks.create_task(self._rollout(question, k)) for k in range(self.plan.samples)]
        rollouts = [request.result() for request in requests]
        responded = [rollout for rollout in rollouts if rollout.responded]
        totals.groups += 1
        if not responded:
            self._count_unanswered()
        else:
            self._unanswered_in_succession = 0
            totals.answered += len(responded)
            totals.solved += sum(rollout.verdict.scored.score >= config.solved_at for rollout in responded)
            rewards = group_rewards(
                rollouts,
                config,
                max_length=self.options.sampling.max_tokens,
                penalize=self._phase is Phase.TRAIN,
                custom=await self._reward.rate_async(rollouts, config) if self._reward else None,
            )
            origin = Origin(self._run.run_id, self._run.attempt, self._phase, None, number)
            record = group_record(origin, question.item, question.item.id, rollouts, rewards, config.solved_at)
            await self._writer.write([record])
            if self._log:
                self._log.add([record])
        self._report(totals)

    def _count_unanswered(self) -> None:
        self.totals.unanswered += 1
        self._unanswered_in_succession += 1
        if self._unanswered_in_succession >= _GIVE_UP:
            raise EndpointError(
                f"{self._endpoint.url} answered no request of the last {_GIVE_UP} groups "
                f"({self.totals.last_failure}); they are not recorded: continue with --resume"
            )

    async def _rollout(self, question: Question, repetition: int) -> Rollout:
        async with self._requests:
            watch = Stopwatch()
            reply = await self._endpoint.respond(question.messages)
        watch.responded()
        self.totals.add(reply)
        config, item = self.plan.config, question.item
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
        text = f"{totals.responses / seconds:.1f} responses/s, {totals.tokens:,}{most} tokens"
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
