"""`rg-env preflight`: is it the model, the format or the task? Asked before a run."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env.atomic import make_new_folder
from rg_env.cli.options import JsonFlag, SettingArguments, show_warnings, spinner
from rg_env.errors import ConfigError, need, need_extra
from rg_env.output import cell, console, new_table, print_json, print_line
from rg_env.wording import counted, rate

if TYPE_CHECKING:
    from rg_env.analysis.preflight import TaskReport
    from rg_env.evaluate.preflight import Preflight


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
    """Ask a few training questions before a run: is it the model, the format or the task?

    Takes a recipe and settings as `train` does, and shows of each task which share is well-formed, cut off and solved,
    how many groups will have a signal, what other settings would pay, and which to change. Takes minutes, most of them
    the model's. Exit code 1 if something speaks against training.

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
    with _ready(list(settings or []), endpoint) as asked:
        reports = _ask(asked)
    is_alarm = any(report.alarms for report in reports)
    if as_json:
        print_json(_facts(asked, reports, is_alarm))
    else:
        _show(asked, reports, list(settings or []), is_alarm)
    raise typer.Exit(int(is_alarm))


@contextmanager
def _ready(settings: list[str], endpoint: str | None) -> "Iterator[Preflight]":
    """Check the settings as training does, and reach the model until the block ends.

    Raises:
        ConfigError: the settings cannot work, or training would not ask the tasks of rg_dump.
    """
    from rg_env.evaluate.preflight import Preflight, one_engine, options_of
    from rg_env.skyrl.checks import template_options
    from rg_env.skyrl.train_config import load_run
    from rg_env.templates import Opening, load_tokenizer

    # What this machine lacks, the machine of the endpoint may have.
    cfg = load_run(settings, tolerate=(lambda missing: None) if endpoint else None).cfg
    need(not cfg.data.train_data, "data.train_data", cfg.data.train_data, "preflight asks the tasks of rg_dump alone")
    try:
        tokenizer = load_tokenizer(cfg.trainer.policy.model.path)
    except (OSError, ValueError) as error:
        if endpoint is None:
            raise ConfigError(f"{cfg.trainer.policy.model.path}: no tokenizer can be read there ({error})") from None
        tokenizer = None
    limits: dict[str, Any] = {}
    if tokenizer is not None:
        limits = {"tokenizer": tokenizer, "max_prompt_length": cfg.trainer.max_prompt_length}
        limits["chat_template_kwargs"] = dict(cfg.generator.chat_template_kwargs)
    engine = cfg.generator.inference_engine
    url = endpoint or engine.external_proxy_url or next(iter(engine.external_server_urls or []), None)
    with _serving(cfg, url, tokenizer, template_options(cfg), one_engine) as (address, is_own):
        # Training takes the text as it is, so nothing is put in front of it here either.
        options = options_of(cfg, address, is_own=is_own, model=engine.served_model_name, opening=Opening.PLAIN)
        recipe = Path(cfg.rg_dump.dump_dir).parent
        folder = make_new_folder(recipe.with_name(f"{recipe.name}-preflight"))
        samples = cfg.generator.n_samples_per_prompt
        yield Preflight(cfg.rg_dump, limits, options, samples, folder, cfg.trainer.train_batch_size)


@contextmanager
def _serving(
    cfg: Any, url: str | None, tokenizer: Any, template_options: Mapping[str, Any], one_engine: Any
) -> Iterator[tuple[str, bool]]:
    """Serve the policy, unless a server is named. Yields its address, and whether this process started it."""
    if url is not None:
        yield url, False
    elif cfg.rg_dump.device == "cpu":
        from rg_env.cpu.chat_server import serve_sampler

        with serve_sampler(cfg, tokenizer, template_options) as address:
            yield address, True
    else:
        with one_engine(cfg) as address:
            yield address, True


def _ask(asked: "Preflight") -> "list[TaskReport]":
    """Ask the questions, and once more where the answers call for other lengths or levels."""
    from rg_env.analysis.preflight import add_length, add_levels, report_tasks
    from rg_env.dump import open_run
    from rg_env.evaluate.run import check_server
    from rg_env.tasks import TaskMix

    check_server(asked.options)
    with spinner("trying the scorers"):
        wrong_scorers = asked.try_scorers()
    asked.ask()
    reports = report_tasks(open_run(*asked.asked), asked.config, wrong_scorers)
    cut_off = [report for report in reports if report.is_cut_off]
    if cut_off:
        longer = asked.ask_longer([report.task for report in cut_off])
        for report in cut_off:
            limit = asked.options.sampling.max_tokens
            add_length(report, open_run(longer) if longer else None, limit, asked.config)
    other_levels = [report for report in reports if report.needs_level]
    levels = asked.ask_levels([report.task for report in other_levels]) if other_levels else None
    if levels:
        fixed = {task.name: task.options for task in TaskMix.parse(asked.config.tasks).tasks}
        for report in other_levels:
            add_levels(report, open_run(levels), asked.config, fixed[report.task])
    return reports


def _facts(asked: "Preflight", reports: "Sequence[TaskReport]", is_alarm: bool) -> dict[str, Any]:
    from rg_env.analysis.preflight import settings_of

    step, hour = asked.extrapolated()
    return {
        "alarm": is_alarm,
        "settings": list(settings_of(reports)),
        "tasks": [asdict(report) for report in reports],
        "samples_per_question": asked.samples,
        "responses": asked.responses,
        "seconds": asked.seconds,
        "extrapolated_seconds_per_step": step,
        "extrapolated_tokens_per_hour": hour,
        "folder": str(asked.folder),
    }


def _show(asked: "Preflight", reports: "Sequence[TaskReport]", typed: list[str], is_alarm: bool) -> None:
    """Print one screen: a table, what is wrong with each task, what to change, and what was extrapolated."""
    from rg_env.analysis.preflight import settings_of

    screen = console()
    numbers = ["questions", "format", "cut off", "solved", "signal", "tokens"]
    table = new_table(["task"], numbers, compact=True)
    for report in reports:
        rates = [rate(*report.format), rate(*report.cut_off), rate(*report.solved), rate(*report.signal)]
        tokens = "–" if report.tokens is None else f"{report.tokens:,.0f}"
        table.add_row(cell(report.task), f"{report.questions:,}", *rates, tokens)
    screen.print(table)
    print_line(
        f"format: well-formed responses; signal: groups of {asked.samples} whose rewards differ; tokens: median; "
        "in brackets: 95% intervals"
    )
    for report in reports:
        for remark in report.alarms:
            print_line(f"ALARM {report.task}: {remark}")
        for remark in report.remarks:
            print_line(f"{report.task}: {remark}")
        if report.paid:
            paid = ", ".join(f"{share:.0%} {name}" for name, share in report.paid.items())
            print_line(f"{report.task}: solved {rate(report.solved[0])}; the same texts read otherwise: {paid}")
    step, hour = asked.extrapolated()
    print_line(
        f"extrapolated from {counted(asked.responses, 'response')}: the responses of a step take {step:,.0f} s, an "
        f"hour makes {hour:,.0f} tokens, without training"
    )
    print_line(f"responses: rg-env dumps show {asked.asked[0]}")
    changes = list(settings_of(reports))
    if changes:
        shown = " ".join(f"'{change}'" if set(change) & set(' {}[]"<>$') else change for change in changes)
        print_line(f"change, and ask again: rg-env preflight {' '.join(typed)} {shown}")
    if is_alarm:
        print_line("do not train yet: what ALARM says makes the reward fail to rise")
    else:
        print_line("nothing speaks against training")
