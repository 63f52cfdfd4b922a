"""`rg-env eval` and `rg-env collect`: options, and what is said at the end."""

import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rg_env.base.atomic import make_new_folder
from rg_env.base.errors import ConfigError, need, need_extra, one_line
from rg_env.base.output import console, print_error, print_json, print_line
from rg_env.base.wording import counted
from rg_env.cli.base import PASS_ON, REQUESTS_PANEL, CommandApp, SettingsCommand, declared_option
from rg_env.cli.options import Imports, JsonFlag, SettingArguments, show_warnings
from rg_env.configuration.config import PREFIX
from rg_env.configuration.user_code import named_modules
from rg_env.evaluate.endpoint import RequestLimits, Sampling, base_url

if TYPE_CHECKING:
    from rg_env.analysis.scores import Summary
    from rg_env.configuration.config import RGDumpConfig
    from rg_env.evaluate.eval_settings import Settings
    from rg_env.evaluate.job import EndpointOptions
    from rg_env.evaluate.outcome import Finished

_SERVER_ARGUMENTS = "rg_env.server_arguments"
_SAY_EVERY = 15.0
"""Seconds between two lines on how far the questions are."""
_option = partial(typer.Option, rich_help_panel=REQUESTS_PANEL)


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """What to ask which model, and how."""

    resume: Annotated[bool, typer.Option("--resume", help="Continue the unfinished run in the dump folder.")] = False
    endpoint: Annotated[
        str | None,
        _option(
            metavar="URL", help="Base URL of an OpenAI-compatible server. The API key is read from OPENAI_API_KEY."
        ),
    ] = None
    model: Annotated[
        str | None,
        _option(
            metavar="MODEL",
            help="With --endpoint, the server's name for the model. Otherwise a folder, a name on the Hugging Face "
            "hub, or nano, for which a server is started: vLLM, or `transformers serve` where vLLM is not installed. "
            "A folder of several global_step_N means each model in turn.",
        ),
    ] = None
    tasks: Annotated[
        str | None,
        _option(
            help="Names, patterns and categories separated by commas, or a mix in YAML. Default: as configured, or "
            "the default mix."
        ),
    ] = None
    imports: Imports = None
    temperature: Annotated[float | None, declared_option(Sampling, "temperature")] = None
    top_p: Annotated[float | None, declared_option(Sampling, "top_p")] = None
    max_tokens: Annotated[int | None, declared_option(Sampling, "max_tokens")] = None


class ServerCommand(SettingsCommand):
    """A command whose arguments after `--` are for the server that it starts."""

    passes_on = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Before Typer parses the rest: it would take these words for settings.
        if "--" in args:
            place = args.index("--")
            args, ctx.meta[_SERVER_ARGUMENTS] = args[:place], args[place + 1 :]
        return super().parse_args(ctx, args)


def collect(
    ctx: typer.Context,
    *,
    groups: Annotated[int, typer.Option(min=1, help="Number of questions.")],
    out: Annotated[Path, typer.Option(help="Dump folder.")],
    settings: SettingArguments = None,
    samples: Annotated[int, typer.Option(min=1, help="Responses per question.")] = 8,
    requests: RequestOptions,
    limits: RequestLimits,
) -> None:
    """Record rollouts on training questions without training.

    The responses come from an OpenAI-compatible server, or from one that is started for MODEL; what follows `--` goes
    to that server. A configuration gives tasks, prompt, sampling and model. Needs neither Ray nor SkyRL.

    Examples:
      rg-env collect --endpoint http://127.0.0.1:8000/v1 --model qwen \\
        --tasks gcd,lcm --groups 100 --out runs/gcd
      rg-env collect configs/quickstart.yaml --groups 50 --out runs/collected
      rg-env collect --model Qwen/Qwen3-4B --groups 100 --out runs/qwen -- --tensor-parallel-size 4
    """
    from rg_env.evaluate.job import Job
    from rg_env.evaluate.run import run_job
    from rg_env.evaluate.suites import train_questions

    _need_folder(out)
    all_settings = _read("collect", settings, requests)
    config = replace(all_settings.rg, dump_dir=str(out))
    options, *others = _models(ctx, "collect", requests, limits, all_settings, samples)
    need(not others, "--model", requests.model, "has several models; name one of its global_step_N")
    questions = train_questions(config, groups)
    job = Job("collect", questions, samples, config, _with_checked_tags(options, config, all_settings))
    finished = run_job(job, resume=requests.resume)
    _print_finished(finished, out)
    _print_why(finished)
    raise typer.Exit(finished.exit_code)


def evaluate(
    ctx: typer.Context,
    *,
    settings: SettingArguments = None,
    suite: Annotated[
        str,
        typer.Option(
            metavar="SUITE",
            help="Questions: fixed, rg_easy, rg_hard or a YAML file (docs/collect.md).",
            autocompletion=lambda: ["fixed", "rg_easy", "rg_hard"],
        ),
    ] = "fixed",
    items: Annotated[
        int | None,
        typer.Option(min=1, help="Ask only N questions, evenly over categories and tasks, to try a suite cheaply."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Responses per question. Default: as configured, or 1.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Dump folder. Default: a new folder.")] = None,
    requests: RequestOptions,
    limits: RequestLimits,
    as_json: JsonFlag = False,
) -> None:
    """Evaluate a model on a suite of questions.

    The responses come from an OpenAI-compatible server, or from one that is started for MODEL; what follows `--` goes
    to that server. A configuration gives tasks, prompt, sampling and model. Needs neither Ray nor SkyRL.

    Examples:
      rg-env eval --endpoint http://127.0.0.1:8000/v1 --model qwen --suite rg_easy --items 200
      rg-env eval --model runs/NAME/exports/global_step_60 -- --tensor-parallel-size 4
      rg-env eval configs/quickstart.yaml --model runs/quickstart/exports
    """
    from rg_env.analysis.scores import summarize
    from rg_env.evaluate.job import Job
    from rg_env.evaluate.run import check_server, run_job
    from rg_env.evaluate.suites import load_suite, suite_questions

    has_own = f"the suite {suite} has its own tasks; leave it out"
    need(requests.tasks is None or suite == "fixed", "--tasks", requests.tasks, has_own)
    if out is not None:
        _need_folder(out)
    all_settings = _read("eval", settings, requests, suite)
    config = all_settings.rg
    # A user who typed the setting has named the folder, as with --out.
    if out is None and any(arg.removeprefix(f"{PREFIX}.").startswith("dump_dir=") for arg in settings or []):
        out = Path(config.dump_dir)
    if out is None and requests.resume:
        raise ConfigError("--resume needs --out, the folder of the evaluation to continue")
    samples = samples or all_settings.skyrl.get("generator.eval_n_samples_per_prompt", 1)
    models = _models(ctx, "eval", requests, limits, all_settings, samples)
    # Before the questions are made, which takes longer. If the run is finished, its server may be gone.
    if not requests.resume:
        if suite != "fixed":
            load_suite(suite)  # called for its exception: a suite that is not there is a nearer mistake
        check_server(models[0])
    # The training's limit of prompts holds where its questions are asked, and where a tokenizer is at hand.
    is_limited = all_settings.has_file and requests.endpoint is None and suite == "fixed"
    limits_of_prompts = _limits(all_settings, models[0].model) if is_limited else {}
    with _making_questions() as note:
        questions = suite_questions(suite, config, items, note=note, **limits_of_prompts)
    summaries: list[Summary] = []
    # Only now, so that a mistake in the questions leaves no folder behind.
    if out is None:
        out = make_new_folder(_stem_of_evaluation(all_settings, models[0]))
    ended: list[Finished] = []
    try:
        for options in models:
            folder = out
            if len(models) > 1:
                folder = out / options.name.replace(" ", "_")
            known = limits_of_prompts.get("tokenizer") if options is models[0] else None
            options = _with_checked_tags(options, config, all_settings, known)
            job = Job("eval", questions, samples, replace(config, dump_dir=str(folder)), options)
            finished = run_job(job, resume=requests.resume)
            _print_finished(finished, out)
            ended.append(finished)
            if finished.answers.responses:
                summaries.append(summarize(folder, finished.run_id, options.name, finished.planned))
            if finished.was_stopped:
                break
    finally:
        # Also after an error: the models that were evaluated before it have their scores.
        with suppress(OSError):
            out.rmdir()  # only an empty one goes
        if summaries:
            _print_scores(summaries, as_json)
        for finished in ended:
            _print_why(finished)
    raise typer.Exit(max(finished.exit_code for finished in ended))


def _stem_of_evaluation(settings: "Settings", model: "EndpointOptions") -> Path:
    """Where the folder of an evaluation begins: in that of the run whose model it is, otherwise beside all runs.

    docs/collect.md promises these names; readers find a dump by its files.
    """
    from rg_env.evaluate.server import run_of

    run = run_of(model.model) if model.url is None else None
    if run is not None:
        return run / "eval"
    recipe = Path(settings.rg.dump_dir).expanduser().parent  # runs/NAME
    if settings.has_file and recipe.name:
        return recipe.with_name(f"{settings.run_name or recipe.name}-eval")
    return Path("runs", f"{Path(model.model).name}-eval")


# ---------------------------------------------------------------------------------------------- what the options say
def _read(command: str, settings: list[str] | None, requests: RequestOptions, suite: str = "fixed") -> "Settings":
    need_extra("endpoints", "openai", f"rg-env {command}")
    from rg_env.evaluate.eval_settings import read_settings

    ours = {}
    for name in ("tasks", "imports"):
        if value := getattr(requests, name):
            ours[name] = value
    all_settings = read_settings(settings or [], command, suite, **ours)
    _set_up_logging(all_settings.rg)
    return all_settings


def _need_folder(out: Path) -> None:
    """Refuse the name of a file where a folder is made."""
    is_file = out.suffix in (".csv", ".json", ".jsonl", ".parquet")
    need(not is_file, "--out", str(out), f"a dump is a folder; write --out {shlex.quote(str(out.with_suffix('')))}")


def _set_up_logging(config: "RGDumpConfig") -> None:
    """Log only warnings, and never the values of variables; with `suppress_base_env_logs` only ours and the user's."""
    from loguru import logger

    modules = ("rg_env", *named_modules(config))

    def is_shown(record: Any) -> bool:
        return not config.suppress_base_env_logs or (record["name"] or "").startswith(modules)

    logger.remove()
    show_warnings(filter=is_shown)


def _models(
    ctx: typer.Context,
    command: str,
    requests: RequestOptions,
    limits: RequestLimits,
    settings: "Settings",
    samples: int,
) -> "list[EndpointOptions]":
    """Return the models that `--model` names, and how to reach them. Warns of several samples that are equal.

    Raises:
        ConfigError: no model or server, or options that do not go together.
    """
    from rg_env.base.hub import check_hub_model
    from rg_env.evaluate.job import EndpointOptions
    from rg_env.evaluate.server import Model, find_models, program_for

    url, arguments = requests.endpoint, ctx.meta.get(_SERVER_ARGUMENTS, [])
    if url and not requests.model:
        raise ConfigError("--endpoint needs --model, the server's name for the model")
    if url and arguments:
        raise ConfigError(f"`-- {' '.join(arguments)}` is for a server that --model starts; leave out --endpoint")
    for word in arguments:
        if word.partition("=")[0] in ("--host", "--port"):
            raise ConfigError(f"`-- {word}`: the server that --model starts has a free port of 127.0.0.1; leave it out")
    name = requests.model or settings.skyrl.get("trainer.policy.model.path")
    if not name:
        raise ConfigError("name a model with --model, or a running server with --endpoint")
    models = [Model(name, name)] if url else find_models(name)
    if url:
        base_url(url)  # refuses what is not an address
    else:
        program_for(models[0].path)  # refuses an environment that has none
        if not os.path.isdir(models[0].path):
            check_hub_model("--model", models[0].path)
    sampling_values = settings.sampling(command)
    for name_of_option in ("temperature", "top_p", "max_tokens"):
        value = getattr(requests, name_of_option)
        if value is not None:
            sampling_values[name_of_option] = value
    sampling = Sampling(**sampling_values)
    request = settings.request(command)
    if samples > 1:
        once = f"are the same response {samples} times"
        if sampling.temperature == 0:
            print_error(f"{samples} samples of a question at temperature 0 {once}: set --temperature 1, or --samples 1")
        elif request.get("seed") is not None:
            cure = "leave out `seed` of additional_kwargs, or set --samples 1"
            print_error(f"{samples} samples of a question with one seed {once}: {cure}")
    return [EndpointOptions(url, model.path, model.name, sampling, limits, arguments, request) for model in models]


def _with_checked_tags(
    options: "EndpointOptions", config: "RGDumpConfig", settings: "Settings", tokenizer: Any = None
) -> "EndpointOptions":
    """Return the options with how the prompts end, if the server is to be started here: then its tokenizer is known.

    Args:
        tokenizer: of the model, if it has been loaded.

    Raises:
        ConfigError: with this template or tokenizer, every response would score 0.
    """
    from rg_env.rows.templates import check_tags, load_tokenizer

    if options.url is not None:
        return options
    try:
        tokenizer = load_tokenizer(options.model) if tokenizer is None else tokenizer
    except (ImportError, OSError, ValueError):  # the server says what it cannot load
        return options
    keeps = options.request.get("skip_special_tokens") is False
    opening, warnings = check_tags(
        "--model", options.name, tokenizer, config, settings.chat_template_kwargs, keeps_special_tokens=keeps
    )
    for warning in warnings:
        print_error(f"warning: {warning}")
    return replace(options, opening=opening)


def _limits(settings: "Settings", model: str) -> dict[str, Any]:
    """Return how long a prompt may be, as in the training that the configuration is for."""
    from rg_env.rows.templates import load_tokenizer

    try:
        tokenizer = load_tokenizer(model)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{model}: no tokenizer can be read there ({one_line(error, 200)})") from None
    return {
        "tokenizer": tokenizer,
        "max_prompt_length": settings.skyrl.get("trainer.max_prompt_length", 512),
        "chat_template_kwargs": settings.chat_template_kwargs,
    }


# -------------------------------------------------------------------------------------------------- what is said
@contextmanager
def _making_questions() -> Iterator[Callable[[str], None]]:
    """Yields a function that shows how far the questions are: on a terminal at once, elsewhere a line now and then."""
    shown = time.monotonic()

    def say(progress: str) -> None:
        nonlocal shown
        if time.monotonic() - shown >= _SAY_EVERY:
            shown = time.monotonic()
            print_error(f"generating questions: {progress}")

    screen = console(stderr=True)
    if not screen.is_terminal:
        yield say
        return
    with screen.status("generating questions") as status:
        yield lambda progress: status.update(f"generating questions: {progress}")


def _print_finished(finished: "Finished", out: Path) -> None:
    """Say what was done, on standard error, and what the reader of the dump has to know.

    Args:
        out: the folder to continue: that of the dump, or the one around those of several models.
    """
    totals, answers, folder = finished.totals, finished.answers, finished.job.folder
    facts = [f"{answers.groups} of {len(finished.job.questions)} groups in {folder}"]
    if answers.partial:
        facts[0] += f", {len(answers.partial)} of them without all responses"
    facts.append(f"run {finished.run_id}")
    if totals.responses:
        tokens = f"{totals.prompt_tokens:,} tokens of prompts + {totals.completion_tokens:,} of responses"
        facts.append(f"{counted(totals.responses, 'response')}, {tokens}")
    print_error("; ".join(facts))
    opened = totals.think_opened if finished.job.options.opening is None else 0
    remarks = (
        (totals.failures, "request", f"failed (status no_response), the last one: {totals.last_failure}"),
        (totals.reasoning_apart, "response", "with the reasoning apart: it is recorded as the think block"),
        (opened, "response", "to a prompt that opened <think>: it was added; train with prefilled_think=true"),
        (totals.uncounted, "response", "whose tokens the server did not count: the total lacks them"),
        *((number, "answer", f"scored 0 ({why})") for why, number in totals.unread.items()),
    )
    for number, noun, what in remarks:
        if number:
            print_error(f"{counted(number, noun)} {what}")
    if finished.error:
        print_error(finished.error)
    _print_what_is_missing(finished, out)


def _print_what_is_missing(finished: "Finished", out: Path) -> None:
    """Say how many responses are missing, and how to get them."""
    totals, folder = finished.totals, finished.job.folder
    missing = finished.planned - finished.answers.responses
    again = f"--resume --out {shlex.quote(str(out))}"
    if totals.missing:
        print_error(f"{counted(totals.missing, 'group')} of this run missing from {folder}: the disk failed")
    elif finished.out_of_tokens:
        print_error(f"stopped at --max-tokens-total, which is for each attempt; continue with {again}")
    elif finished.error or finished.signum is not None:
        print_error(f"interrupted; rerun with {again} continues")
    elif missing:
        lacking = f"{missing:,} of {counted(finished.planned, 'response')} missing"
        print_error(f"{lacking}: rerun with {again} to ask for them")
    elif not totals.groups:
        print_error("nothing left to do: all groups were already in the dump")


def _print_why(finished: "Finished") -> None:
    """Say why most scores are 0, if that is not the answers' doing, and, of `collect`, why no text was kept."""
    from rg_env.dump import open_run
    from rg_env.rollouts.faults import explain_zeros

    if finished.answers.responses and (why := open_run(finished.job.folder).why_no_texts()):
        print_error(why)
    if finished.answers.responses and (reason := explain_zeros(finished.job.folder, finished.run_id)):
        print_error(reason)


def _print_scores(summaries: "list[Summary]", as_json: bool) -> None:
    """Print the scores of one run, or a table over several."""
    from rg_env.analysis.scores import render

    if as_json:
        results = [summary.as_dict() for summary in summaries]
        if len(results) == 1:
            print_json(results[0])
        else:
            print_json(results)
        return
    screen = console()
    screen.print(render(summaries, screen.width))
    for summary in summaries:
        asked = ""
        suite = summary.suite or {}
        if left_out := suite.get("left_out"):
            questions = suite["questions"]
            asked = f"{questions:,} of {counted(questions + left_out, 'question')} (the others were left out); "
        responses = f"{summary.responses:,} of {counted(summary.planned, 'response')}"
        print_line(f"{asked}{responses}; dump: {summary.folder}")


commands = CommandApp("Commands that ask a model.")
commands.command("eval", cls=ServerCommand, context_settings=PASS_ON)(evaluate)
commands.command(cls=ServerCommand, context_settings=PASS_ON)(collect)
