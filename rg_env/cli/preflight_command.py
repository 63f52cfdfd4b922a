"""`rg-env preflight`: is it the model, the format or the task? Asked before a run."""

import asyncio
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env.base.atomic import make_new_folder
from rg_env.base.errors import need, need_extra
from rg_env.base.output import cell, console, new_table, print_json, print_line
from rg_env.base.wording import counted, rate
from rg_env.cli.base import PASS_ON, CommandApp, SettingsCommand
from rg_env.cli.options import JsonFlag, SettingArguments, show_warnings, spinner

if TYPE_CHECKING:
    from rg_env.analysis.preflight import TaskReport
    from rg_env.evaluate.job import EndpointOptions
    from rg_env.evaluate.preflight import Preflight

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
    facts = _facts(asked, reports)
    if as_json:
        print_json(facts)
    else:
        of_endpoint = ["--endpoint", endpoint] if endpoint else []
        _show(facts, reports, [*of_endpoint, *typed])
    raise typer.Exit(int(facts["alarm"]))


@contextmanager
def _ready(settings: list[str], endpoint: str | None) -> "Iterator[Preflight]":
    """Check the settings as training does, and reach the model until the block ends.

    Raises:
        ConfigError: the settings cannot work, or training would not ask the tasks of rg_dump.
    """
    from rg_env.evaluate.endpoint import base_url
    from rg_env.evaluate.preflight import Preflight
    from rg_env.evaluate.run import check_server
    from rg_env.rows.templates import load_tokenizer
    from rg_env.skyrl.train_config import load_run

    if endpoint:
        base_url(endpoint)  # refuses what is not an address before the settings are read, which takes seconds
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
    from rg_env.evaluate.job import EndpointOptions
    from rg_env.evaluate.preflight import LocalModel
    from rg_env.evaluate.server import program_for, start_server
    from rg_env.rows.templates import Opening
    from rg_env.skyrl.checks import template_options

    engine, params, path = cfg.generator.inference_engine, cfg.generator.sampling_params, cfg.trainer.policy.model.path
    sampling = Sampling(temperature=params.temperature, top_p=params.top_p, max_tokens=params.max_generate_length)
    request: dict[str, Any] = dict(params.additional_kwargs or {})
    # Only what changes something: not every server takes these two.
    for name, neutral in (("top_k", -1), ("min_p", 0.0)):
        if getattr(params, name) != neutral:
            request[name] = getattr(params, name)
    model = engine.served_model_name or path
    url = endpoint or engine.external_proxy_url or next(iter(engine.external_server_urls or []), None)
    # Training takes the text as it is, so nothing is put in front of it here either.
    options = EndpointOptions(url, model, Path(path).name, sampling, RequestLimits(), opening=Opening.PLAIN)
    own_limits, of_template = RequestLimits(concurrency=_AT_ONCE), dict(cfg.generator.chat_template_kwargs)
    if url is None and cfg.rg_dump.device == "cpu":
        from rg_env.skyrl.cpu.local_model import load_here

        client, template = load_here(cfg), template_options(cfg)

        def respond_here(how: Sampling) -> LocalModel:
            return LocalModel(client, tokenizer, template, how, request)

        yield replace(options, limits=own_limits, local=respond_here)
        return
    if of_template:
        request["chat_template_kwargs"] = of_template
    if url is not None:
        yield replace(options, request=request)
        return
    program = program_for(path)
    arguments = ["--tensor-parallel-size", str(engine.tensor_parallel_size)]
    arguments += ["--gpu-memory-utilization", str(engine.gpu_memory_utilization)]
    if program.name != "vLLM":
        arguments = []
    started = start_server(program, arguments)
    # The server needs an event loop only while it starts and stops; the questions have one of their own.
    with asyncio.Runner() as runner:
        server = runner.run(started.__aenter__())
        try:
            request |= program.request
            yield replace(options, url=server.url, model=path, limits=own_limits, request=request, is_own=True)
        finally:
            # With what has been raised: the log of a server that failed is kept.
            runner.run(started.__aexit__(*sys.exc_info()))


def _ask(asked: "Preflight") -> "list[TaskReport]":
    """Ask the questions, and once more where the answers call for other lengths or levels."""
    from rg_env.analysis.preflight import add_length, add_levels, add_signal, report_tasks
    from rg_env.dump import open_run
    from rg_env.tasks import TaskMix

    with spinner("testing the scorers"):
        wrong_scorers = asked.try_scorers()
    asked.ask()
    reports = report_tasks(open_run(*asked.asked), asked.config, wrong_scorers)
    of_task = {report.task: report for report in reports}
    cut_off = [task for task, report in of_task.items() if report.is_cut_off]
    longer = asked.ask_longer(cut_off)
    for task in cut_off:
        add_length(of_task[task], longer, asked.options.sampling.max_tokens, asked.config)
    other_levels = [task for task, report in of_task.items() if report.needs_level]
    levels = asked.ask_levels(other_levels)
    if levels is not None:
        for spec in TaskMix.parse(asked.config.tasks).tasks:
            if spec.name in other_levels:
                add_levels(of_task[spec.name], levels, asked.config, spec.options)
    for report in reports:
        add_signal(report)
    return reports


def _facts(asked: "Preflight", reports: "Sequence[TaskReport]") -> dict[str, Any]:
    """Return what was found, as JSON. A step and an hour are extrapolated."""
    from rg_env.analysis.preflight import settings_of

    seconds = max(asked.seconds, 1e-3)
    of_response = seconds / max(asked.responses, 1)
    facts = {name: getattr(asked, name) for name in ("samples", "responses", "tokens", "seconds")}
    facts["seconds_of_step"] = of_response * asked.batch * asked.samples
    facts["tokens_of_hour"] = asked.tokens / seconds * 3600
    facts["dumps"] = [str(folder) for folder in asked.asked]
    facts["settings"] = settings_of(reports)
    facts["alarm"] = any(report.alarms for report in reports)
    return facts | {"tasks": [asdict(report) for report in reports]}


def _show(facts: dict[str, Any], reports: "Sequence[TaskReport]", typed: list[str]) -> None:
    """Print one screen: a table, what is wrong with each task, what was extrapolated, what to change."""
    table = new_table(["task"], ["questions", "format", "cut off", "solved", "signal", "tokens"], compact=True)
    for report in reports:
        rates = [rate(*share) for share in (report.format, report.cut_off, report.solved, report.signal)]
        table.add_row(cell(report.task), f"{report.questions:,}", *rates, f"{report.tokens or 0:,.0f}")
    console().print(table)
    print_line(
        f"format: well-formed responses; signal: groups of {facts['samples']} whose rewards differ; tokens: median; in "
        "brackets: 95% intervals"
    )
    for report in reports:
        for alarm in report.alarms:
            print_line(f"{report.task}: ALARM: {alarm}")
        for remark in report.remarks:
            print_line(f"{report.task}: {remark}")
        if report.paid:
            paid = ", ".join(f"{share:.0%} {reading}" for reading, share in report.paid.items())
            print_line(f"{report.task}: now {rate(report.solved[0])} are solved; read in another way: {paid}")
    print_line(
        f"extrapolated from {counted(facts['responses'], 'response')}: those of a step take "
        f"{facts['seconds_of_step']:,.0f} s, an hour makes {facts['tokens_of_hour']:,.0f} tokens, without training"
    )
    print_line(f"texts: rg-env dumps show {shlex.quote(facts['dumps'][0])}")
    if changes := facts["settings"]:
        names = {change.partition("=")[0] for change in changes}
        kept = [word for word in typed if word.partition("=")[0] not in names]
        print_line(f"change, and ask again: {shlex.join(['rg-env', 'preflight', *kept, *changes])}")
    if facts["alarm"]:
        print_line("do not train yet: the reward cannot rise until the ALARM above is resolved")
    else:
        print_line("nothing speaks against training")


commands = CommandApp("The command alone.")
commands.command(cls=SettingsCommand, context_settings=PASS_ON)(preflight)
