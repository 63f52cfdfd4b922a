"""One command against a server, from its options to a finished dump.

Invariant: the dump is closed and a server that was started has ended, however the command ends. SIGINT, SIGTERM and
SIGHUP drop the groups in progress; all finished ones are in the dump. The API key is in no file.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dump import DumpWriter, Phase, check_folder, write_manifest
from rg_env.errors import RGEnvError
from rg_env.output import print_error
from rg_env.rollouts.endpoint import Endpoint, EndpointError, Sampling
from rg_env.rollouts.plan import Claim, Plan, claim, done_questions
from rg_env.rollouts.progress import showing_progress
from rg_env.rollouts.questions import Questions
from rg_env.rollouts.run import EndpointRun, Totals, first_error
from rg_env.rollouts.server import Server, ServerError, program_for, serving
from rg_env.rollouts.settings import generator_settings

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
        """0; 1 after an error, or if groups could not be written or no request was answered; 128 + N after signal N."""
        if self.signum is not None:
            return 128 + self.signum
        return int(bool(self.error or self.missing) or (self.totals.failures > 0 and not self.totals.responses))


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
        self._collection: EndpointRun | None = None
        self._missing = 0

    async def run(self) -> Finished:
        error = signum = None
        try:
            signum = await _until_signal(self._work())
        except (EndpointError, ServerError) as found:
            if not (self._collection and self._collection.totals.responses):
                raise
            error = found
        totals = self._collection.totals if self._collection else Totals()
        done = len(done_questions(self._folder, self._run.run_id))
        finished = Finished(self._run.run_id, self._folder, totals, done, self._plan.groups)
        stopped = bool(self._collection and self._collection.out_of_tokens) and done < self._plan.groups
        return replace(finished, out_of_tokens=stopped, signum=signum, error=error, missing=self._missing)

    async def _work(self) -> None:
        async with AsyncExitStack() as stack:
            options, server, url = self._options, None, self._options.url
            request, concurrency = dict(options.request), options.concurrency or 32
            if url is None:
                program = program_for(options.model)
                server = await stack.enter_async_context(serving(program, options.server_options))
                url, request = server.url, {**request, **program.request}
                concurrency = options.concurrency or program.concurrency
            endpoint = await stack.enter_async_context(
                Endpoint(
                    url,
                    options.model,
                    options.sampling,
                    timeout=options.timeout,
                    retries=options.retries,
                    is_own=server is not None,
                    request=request,
                )
            )
            if server is None:
                await endpoint.check()
            writer = self._writer(endpoint.url)
            try:
                await self._collect(endpoint, writer, concurrency, server)
            finally:
                self._missing = writer.close()

    async def _collect(self, endpoint: Endpoint, writer: DumpWriter, concurrency: int, server: Server | None) -> None:
        plan, most = self._plan, self._options.max_tokens_total
        done = done_questions(self._folder, self._run.run_id)  # the writer has completed the ledger of a killed attempt
        questions = plan.groups - len(done)
        print_error(f"{questions * plan.samples:,} requests: {questions:,} questions × {plan.samples}")
        with showing_progress(plan.groups, len(done), most) as report:
            self._collection = EndpointRun(
                self._questions,
                endpoint,
                plan.config,
                writer,
                samples=plan.samples,
                phase=Phase.TRAIN if plan.command == "collect" else Phase.EVAL,
                concurrency=concurrency,
                max_tokens_total=most,
                report=report,
            )
            try:
                async with asyncio.TaskGroup() as tasks:
                    watch = tasks.create_task(server.watch()) if server else None
                    await self._collection.run(done)
                    if watch:
                        watch.cancel()
            except ExceptionGroup as errors:
                raise first_error(errors) from None

    def _writer(self, url: str) -> DumpWriter:
        plan, run, options = self._plan, self._run, self._options
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


async def _until_signal(work: Coroutine[Any, Any, None]) -> int | None:
    """Run `work`; a signal cancels it. Returns the signal, or None if it ended by itself."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    received: list[int] = []

    def stop(signum: int) -> None:
        received.append(signum)
        task.cancel()

    with _handling(loop, stop):
        try:
            await task
        except asyncio.CancelledError:
            if not received:
                raise
    return received[0] if received else None


@contextmanager
def _handling(loop: asyncio.AbstractEventLoop, stop: Any) -> Iterator[None]:
    before = {signum: signal.getsignal(signum) for signum in _SIGNALS}
    handled = [signum for signum, handler in before.items() if handler is not signal.SIG_IGN]  # nohup ignores SIGHUP
    for signum in handled:
        loop.add_signal_handler(signum, stop, signum)
    try:
        yield
    finally:
        for signum in handled:
            loop.remove_signal_handler(signum)
            signal.signal(signum, before[signum])
