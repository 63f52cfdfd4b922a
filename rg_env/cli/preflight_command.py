"""`rg-env preflight`: is it the model, the format or the task? Asked before a run."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env.atomic import make_new_folder
from rg_env.cli.options import JsonFlag, SettingArguments, show_warnings, spinner
from rg_env.errors import need, need_extra
from rg_env.output import cell, console, new_table, print_json, print_line
from rg_env.wording import counted, rate

if TYPE_CHECKING:
    from rg_env.analysis.preflight import TaskReport
    from rg_env.evaluate.preflight import Preflight
    from rg_env.evaluate.run import EndpointOptions

_AT_ONCE = 128
"""Requests at the same time to an engine of our own: a batch of the CPU's sampler, and enough to fill a GPU."""


def preflight(
    settings: SettingArguments = None,
    *,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Ask this OpenAI-compatible server, which serves the recipe's model. Default: with device=cpu the "
            "CPU's sampler, with GPUs one engine of the recipe.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Find out before a run whether its reward can rise, from a few training questions.

    Is it the model, the format, the scorer or the task? Takes a recipe and settings as `train` does, and shows of each
    task which share is well-formed, cut off and solved, how many groups will have a signal, what other settings would
    pay, and which to change. Takes minutes, most of them the model's. Exit code 1 if something speaks against training.

    Examples:
      rg-env preflight configs/quickstart.yaml
      rg-env preflight configs/grpo_4gpu.yaml --endpoint http://127.0.0.1:8000/v1
    """
    from loguru import logger

    need_extra("endpoints", "openai", "rg-env preflight")
    # Before torch is imported: threads that spin while they wait take the cores from the scorers.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    logger.remove()
    show_warnings()
    typed = list(settings or [])
    with _ready(typed, endpoint) as asked:
        reports = _ask(asked)
    if as_json:
        print_json(_facts(asked, reports))
    else:
        _show(asked, reports, typed)
    raise typer.Exit(int(any(report.alarms for report in reports)))


@contextmanager
def _ready(settings: list[str], endpoint: str | None) -> "Iterator[Preflight]":
    """Check the settings as training does, and reach the model until the block ends.

    Raises:
        ConfigError: the settings cannot work, or training would not ask the tasks of rg_dump.
    """
    from rg_env.evaluate.preflight import Preflight
    from rg_env.evaluate.run import check_server
    from rg_env.skyrl.train_config import load_run
    from rg_env.templates import load_tokenizer

    # What this machine lacks, that of the endpoint may have.
    cfg = load_run(settings, tolerate=(lambda missing: None) if endpoint else None).cfg
    need(not cfg.data.train_data, "data.train_data", cfg.data.train_data, "preflight asks the tasks of rg_dump alone")
    tokenizer = None
    limits: dict[str, Any] = {}
    try:
        tokenizer = load_tokenizer(cfg.trainer.policy.model.path)
        limits = {"tokenizer": tokenizer, "max_prompt_length": cfg.trainer.max_prompt_length}
        limits["chat_template_kwargs"] = dict(cfg.generator.chat_template_kwargs)
    except (OSError, ValueError) as error:
        need(endpoint, "trainer.policy.model.path", cfg.trainer.policy.model.path, f"it has no tokenizer ({error})")
    with _reached(cfg, endpoint, tokenizer) as options:
        check_server(options)
        recipe = Path(cfg.rg_dump.dump_dir).parent
        folder = make_new_folder(recipe.with_name(f"{recipe.name}-preflight"))
        samples, batch = cfg.generator.n_samples_per_prompt, cfg.trainer.train_batch_size
        try:
            yield Preflight(cfg.rg_dump, limits, options, samples, folder, batch)
        finally:
            with suppress(OSError):
                folder.rmdir()  # only an empty one goes


@contextmanager
def _reached(cfg: Any, endpoint: str | None, tokenizer: Any) -> "Iterator[EndpointOptions]":
    """Start what responds, unless a server is named. Yields how to ask it, as the run samples in training."""
    from rg_env.evaluate.endpoint import RequestLimits, Sampling
    from rg_env.evaluate.preflight import LocalModel
    from rg_env.evaluate.run import EndpointOptions
    from rg_env.evaluate.server import program_for, start_server
    from rg_env.skyrl.checks import template_options
    from rg_env.templates import Opening

    engine, params, path = cfg.generator.inference_engine, cfg.generator.sampling_params, cfg.trainer.policy.model.path
    sampling = Sampling(temperature=params.temperature, top_p=params.top_p, max_tokens=params.max_generate_length)
    request: dict[str, Any] = dict(params.additional_kwargs or {})
    # Only what changes something: not every server takes these two.
    for name, neutral in (("top_k", -1), ("min_p", 0.0)):
        if getattr(params, name) != neutral:
            request[name] = getattr(params, name)
    url = endpoint or engine.external_proxy_url or next(iter(engine.external_server_urls or []), None)
    # Training takes the text as it is, so nothing is put in front of it here either.
    options = EndpointOptions(
        url, engine.served_model_name or path, Path(path).name, sampling, RequestLimits(), opening=Opening.PLAIN
    )
    of_template: dict[str, Any] = {"chat_template_kwargs": dict(cfg.generator.chat_template_kwargs)}
    own = RequestLimits(concurrency=_AT_ONCE)
    if url is not None:
        yield replace(options, request=request | (of_template if of_template["chat_template_kwargs"] else {}))
    elif cfg.rg_dump.device == "cpu":
        from rg_env.cpu.local_model import load_here

        client, template = load_here(cfg), template_options(cfg)
        yield replace(options, limits=own, local=lambda how: LocalModel(client, tokenizer, template, how, request))
    else:
        program = program_for(path)
        arguments = ["--tensor-parallel-size", str(engine.tensor_parallel_size)]
        arguments += ["--gpu-memory-utilization", str(engine.gpu_memory_utilization)]
        started = start_server(program, arguments if program.name == "vLLM" else [])
        # The server needs an event loop only while it starts and stops; the questions have one of their own.
        with asyncio.Runner() as runner:
            server = runner.run(started.__aenter__())
            try:
                request |= {**of_template, **program.request}
                yield replace(options, url=server.url, model=path, limits=own, request=request, is_own=True)
            finally:
                runner.run(started.__aexit__(None, None, None))


def _ask(asked: "Preflight") -> "list[TaskReport]":
    """Ask the questions, and once more where the answers call for other lengths or levels."""
    from rg_env.analysis.preflight import add_length, add_levels, report_tasks
    from rg_env.dump import open_run
    from rg_env.tasks import TaskMix

    with spinner("trying the scorers"):
        wrong_scorers = asked.try_scorers()
    asked.ask()
    reports = report_tasks(open_run(*asked.asked), asked.config, wrong_scorers)
    cut_off = [report for report in reports if report.is_cut_off]
    longer = asked.ask_longer([report.task for report in cut_off])
    for report in cut_off:
        dump = open_run(longer) if longer else None
        add_length(report, dump, asked.options.sampling.max_tokens, asked.config)
    others = [report for report in reports if report.needs_level]
    levels = asked.ask_levels([report.task for report in others])
    fixed = {task.name: task.options for task in TaskMix.parse(asked.config.tasks).tasks}
    if levels is not None:
        for report in others:
            add_levels(report, open_run(levels), asked.config, fixed[report.task])
    return reports


def _facts(asked: "Preflight", reports: "Sequence[TaskReport]") -> dict[str, Any]:
    from rg_env.analysis.preflight import settings_of

    seconds_of_step, tokens_of_hour = asked.extrapolated()
    return {
        "alarm": any(report.alarms for report in reports),
        "settings": settings_of(reports),
        "tasks": [asdict(report) for report in reports],
        "samples_per_question": asked.samples,
        "responses": asked.responses,
        "seconds": asked.seconds,
        "extrapolated": {"seconds_of_step": seconds_of_step, "tokens_of_hour": tokens_of_hour},
        "folder": str(asked.folder),
    }


def _show(asked: "Preflight", reports: "Sequence[TaskReport]", typed: list[str]) -> None:
    """Print one screen: a table, what is wrong with each task, what was extrapolated, what to change."""
    table = new_table(["task"], ["questions", "format", "cut off", "solved", "signal", "tokens"], compact=True)
    for report in reports:
        rates = [rate(*share) for share in (report.format, report.cut_off, report.solved, report.signal)]
        table.add_row(cell(report.task), f"{report.questions:,}", *rates, f"{report.tokens or 0:,.0f}")
    console().print(table)
    print_line(
        f"format: well-formed responses; signal: groups of {asked.samples} whose rewards differ; tokens: median; in "
        "brackets: 95% intervals"
    )
    facts = _facts(asked, reports)
    for report in reports:
        lines = [f"ALARM: {alarm}" for alarm in report.alarms] + report.remarks
        if report.paid:
            paid = ", ".join(f"{share:.0%} {reading}" for reading, share in report.paid.items())
            lines.append(f"{rate(report.solved[0])} solved; read otherwise, the same texts or questions: {paid}")
        for line in lines:
            print_line(f"{report.task}: {line}")
    of_step, of_hour = asked.extrapolated()
    print_line(
        f"extrapolated from {counted(asked.responses, 'response')}: those of a step take {of_step:,.0f} s, an hour "
        f"makes {of_hour:,.0f} tokens, without training"
    )
    print_line(f"texts: rg-env dumps show {asked.asked[0]}")
    if changes := facts["settings"]:
        # In quotes where a shell reads a sign as its own.
        shown = [f"'{change}'" if set(change) & set(' {}[]<>"') else change for change in changes]
        print_line(f"change, and ask again: rg-env preflight {' '.join([*typed, *shown])}")
    if facts["alarm"]:
        print_line("do not train yet: with what ALARM says, the reward does not rise")
    else:
        print_line("nothing speaks against training")
