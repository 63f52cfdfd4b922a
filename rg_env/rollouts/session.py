"""One command against an endpoint, from its options to a finished dump.

Invariant: the dump is closed however the command ends. SIGINT, SIGTERM and SIGHUP drop the groups in progress; all
finished ones are in the dump. The API key is in no file.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rg_env.config import RGDumpConfig
from rg_env.dump import DumpWriter, Phase, check_folder, write_manifest
from rg_env.rollouts.endpoint import Endpoint, Sampling
from rg_env.rollouts.plan import Claim, Plan, claim, done_groups
from rg_env.rollouts.progress import Prices, showing_progress
from rg_env.rollouts.questions import Questions
from rg_env.rollouts.run import EndpointRun, Totals
from rg_env.rollouts.settings import generator_settings

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class EndpointOptions:
    """How to reach a model, and what that may cost.

    Attributes:
        concurrency: requests at the same time.
        timeout: seconds for one try of a request; `retries`: further tries.
        max_tokens_total: no new group is started once this many tokens have been used; None: no limit.
    """

    url: str
    model: str
    sampling: Sampling
    concurrency: int = 32
    timeout: float = 600.0
    retries: int = 5
    max_tokens_total: int | None = None
    prices: Prices = field(default_factory=Prices)


@dataclass(frozen=True)
class Finished:
    """How a command ended.

    Attributes:
        done: groups in the dump, of all attempts; `planned`: groups in the plan.
        signum: the signal that stopped it, or None.
        missing: groups that could not be written.
    """

    run_id: str
    folder: Path
    totals: Totals
    done: int
    planned: int
    out_of_tokens: bool
    signum: int | None
    missing: int

    @property
    def exit_code(self) -> int:
        """0; 1 if groups could not be written or no request was answered; 128 + N after signal N."""
        if self.signum is not None:
            return 128 + self.signum
        return int(bool(self.missing) or (self.totals.failures > 0 and not self.totals.responses))


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
        EndpointError: the server refuses or fails all requests.
    """
    sampling = asdict(options.sampling)
    plan = Plan(command, options.model, len(questions), samples, sampling, questions.facts, config)
    folder = Path(config.dump_dir)
    check_folder(folder)
    run = claim(folder, plan, resume=resume)
    if len(run.done) >= plan.groups:
        return Finished(run.run_id, folder, Totals(), len(run.done), plan.groups, False, None, 0)
    return asyncio.run(_run(run, plan, questions, options))


async def _run(run: Claim, plan: Plan, questions: Questions, options: EndpointOptions) -> Finished:
    config, folder = plan.config, Path(plan.config.dump_dir)
    endpoint = Endpoint(options.url, options.model, options.sampling, timeout=options.timeout, retries=options.retries)
    async with endpoint:
        await endpoint.check()
        with _writer(run, plan, endpoint.url) as writer:
            done = done_groups(folder, run.run_id)  # the writer has completed the ledger of a killed attempt
            with showing_progress(plan.groups, len(done), options.prices, options.max_tokens_total) as report:
                collection = EndpointRun(
                    questions,
                    endpoint,
                    config,
                    writer,
                    samples=plan.samples,
                    phase=Phase.TRAIN if plan.command == "collect" else Phase.EVAL,
                    concurrency=options.concurrency,
                    max_tokens_total=options.max_tokens_total,
                    report=report,
                )
                signum = await _until_signal(collection.run({call for call, _ in done}))
            missing = writer.close()
    finished = len(done_groups(folder, run.run_id))
    stopped = collection.out_of_tokens and finished < plan.groups
    return Finished(run.run_id, folder, collection.totals, finished, plan.groups, stopped, signum, missing)


async def _until_signal(work: Any) -> int | None:
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


def _writer(run: Claim, plan: Plan, url: str) -> DumpWriter:
    writer = DumpWriter.from_config(plan.config, run.run_id, run.attempt)
    try:
        write_manifest(writer.folder, run.run_id, _manifest(run, plan, url))
    except BaseException:
        writer.close()
        raise
    return writer


def _manifest(run: Claim, plan: Plan, url: str) -> dict[str, Any]:
    return {
        "attempt": run.attempt,
        "model": plan.model,
        "endpoint": url,
        "plan": plan.facts(),
        "suite": plan.questions.get("suite"),
        "settings": generator_settings(plan.config, samples=plan.samples, eval_samples=plan.samples, **plan.sampling),
        "task_mix": plan.config.tasks,
    }
