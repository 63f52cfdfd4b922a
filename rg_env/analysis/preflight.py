"""What the responses of a preflight say about a run: rates of each task, what is wrong, and the settings that fix it.

Invariant: a rate has its interval; an alarm is one of those of `rg_env.preflight_limits`. A format that is right in
part is said and is no alarm: training teaches it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from rg_env.analysis.other_settings import PLACES, Payments, Reading, count_payments
from rg_env.analysis.stats import statistics
from rg_env.choices import ResponseFormat
from rg_env.config import RGDumpConfig
from rg_env.dump import Dump
from rg_env.preflight_limits import (
    CUT_OFF,
    FEW_SIGNALS,
    HARDLY_WELL_FORMED,
    RIGHT_UNPAID,
    TOO_EASY,
    TOO_HARD,
    WORTH_SAYING,
)
from rg_env.prompts import resolve_system_prompt
from rg_env.tasks.levels import scale_of
from rg_env.wording import counted, rate

Rate = tuple[float | None, float | None, float | None]
"""A share and the ends of its interval."""
_RATES = ("format_rate", "truncated", "solve_rate", "no_signal")
_ROUND = 16
"""Lengths are rounded up to a multiple."""
_LONGEST = "generator.sampling_params.max_generate_length"
_EXAMPLE = "worked_examples=[{question: What is 2 + 3?, response: <think>2 + 3 = 5</think><answer>5</answer>}]"
_SETTINGS = {
    Reading.NORMALIZE: ["scorer.normalize=true"],
    Reading.PREFILLED: ["prefilled_think=true"],
    Reading.LENIENT: ["format=lenient"],
    Reading.LENIENT_NORMALIZE: ["format=lenient", "scorer.normalize=true"],
}


@dataclass
class TaskReport:
    """What a preflight found about a task.

    Attributes:
        questions, responses: numbers.
        format, cut_off, solved, signal: shares with their intervals: of responses, `signal` of groups.
        tokens: the median length of a response.
        paid: share of responses that would be solved with each other reading, if it is another than `solved`.
        levels: solve rate at each complexity that was asked.
        remarks: sentences; `alarms`: those that speak against training.
        settings: `key=value`, as typed.
    """

    task: str
    questions: int
    responses: int
    format: Rate
    cut_off: Rate
    solved: Rate
    signal: Rate
    tokens: float | None
    paid: dict[str, float] = field(default_factory=dict)
    levels: dict[float, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)

    @property
    def is_cut_off(self) -> bool:
        """Whether a longer limit is to be looked for."""
        return (self.cut_off[0] or 0) > CUT_OFF

    @property
    def needs_level(self) -> bool:
        """Whether other levels are to be asked: the format is known, and the questions are too hard or too easy."""
        solved, format = self.solved[0] or 0, self.format[0] or 0
        has_levels = scale_of(self.task, {}) is not None
        return has_levels and not self.is_cut_off and 2 * format > 1 and not TOO_HARD <= solved <= TOO_EASY

    def say(self, text: str, settings: Sequence[str] = (), *, is_alarm: bool = False) -> None:
        """Add a sentence, and the settings that it recommends."""
        (self.alarms if is_alarm else self.remarks).append(text)
        self.settings += [setting for setting in settings if setting not in self.settings]


def report_tasks(dump: Dump, config: RGDumpConfig, wrong_scorers: Mapping[str, str]) -> list[TaskReport]:
    """Return what the responses say about each task, without other lengths and levels.

    Args:
        dump: what was asked with the settings of the run.
        wrong_scorers: of tasks whose scorer is wrong about known answers, a sentence.
    """
    # The parts of the questions are runs of their own; a run more would be a row more.
    rows = dump.scan().with_columns(run_id=pl.lit("preflight").cast(pl.String))
    table = statistics(rows, "task", solved_at=config.solved_at)
    medians = dict(rows.group_by("task").agg(pl.col("response_tokens").median()).collect().rows())
    payments = count_payments(dump.groups(), config)
    reports = []
    for row in table.to_dicts():
        format, cut_off, solved, no_signal = (_rate(row, name) for name in _RATES)
        # The lower end of the rest is what the upper end leaves.
        signal = _rest(no_signal[0]), _rest(no_signal[2]), _rest(no_signal[1])
        task = row["task"]
        tokens = medians.get(task)
        report = TaskReport(task, row["groups"], row["rollouts"], format, cut_off, solved, signal, tokens)
        _judge(report, payments[task], config, wrong_scorers.get(task, ""))
        reports.append(report)
    return reports


def _rate(row: Mapping[str, Any], name: str) -> Rate:
    return row[name], row[f"{name}_low"], row[f"{name}_high"]


def _rest(share: float | None) -> float | None:
    return None if share is None else 1 - share


def _judge(report: TaskReport, payments: Payments, config: RGDumpConfig, wrong_scorer: str) -> None:
    """Say what is wrong with the scorer, with what the responses are paid, and with the signal."""
    for reading in Reading:
        if payments.readings[reading] > payments.solved:
            report.paid[reading.value] = payments.readings[reading] / payments.responses
    if wrong_scorer:
        show = f"`rg-env score {wrong_scorer.partition(':')[0]} --response …` shows why"
        report.say(f"the scorer is wrong about known answers: {wrong_scorer}; {show}", is_alarm=True)
    if payments.right_unpaid > RIGHT_UNPAID * payments.well_formed:
        _judge_unpaid(report, payments)
    best = payments.best()
    if best is not None:
        _judge_reading(report, payments, config, *best)
    if (report.signal[0] or 0) < FEW_SIGNALS:
        shown = rate(report.signal[0])
        report.say(f"the rewards differ in {shown} of the groups, and only these teach anything", is_alarm=True)


def _judge_unpaid(report: TaskReport, payments: Payments) -> None:
    item, answer = payments.example
    text = (
        f"{payments.right_unpaid:,} of {counted(payments.well_formed, 'well-formed response')} are right to the letter"
    )
    more = payments.readings[Reading.NORMALIZE] - payments.solved
    if 2 * more >= payments.right_unpaid:
        report.say(text, _SETTINGS[Reading.NORMALIZE], is_alarm=True)
        return
    show = f"the scorer is broken, or reads another notation: rg-env score {item} --response {_tagged(answer)}"
    report.say(f"{text}; {show}", is_alarm=True)


def _tagged(answer: str) -> str:
    return json.dumps(f"<think>x</think><answer>{answer}</answer>", ensure_ascii=False)


def _judge_reading(report: TaskReport, payments: Payments, config: RGDumpConfig, reading: Reading, number: int) -> None:
    """Say what the reading that pays most would pay; an alarm if hardly a response is well-formed."""
    share, now = number / payments.responses, payments.solved / payments.responses
    is_dead = payments.well_formed < HARDLY_WELL_FORMED * payments.responses
    if not is_dead and share - now < WORTH_SAYING:
        return
    if reading in PLACES:
        settings = ["format=lenient", *settings_that_ask(config)]
        if config.format == ResponseFormat.LENIENT:
            settings.remove("format=lenient")
        what = f"the answer stands elsewhere ({reading}), where no setting reads it: the prompt must ask for <answer>"
        text = f"{what}; read there, {rate(share)} are solved, now {rate(now)}"
    else:
        settings = _SETTINGS[reading]
        text = f"{rate(share)} of the responses would be solved with {' '.join(settings)}, now {rate(now)}"
    if not is_dead and reading is not Reading.NORMALIZE:
        text += " (training teaches the format, too)"
    report.say(text, settings, is_alarm=is_dead)


def settings_that_ask(config: RGDumpConfig) -> list[str]:
    """Return the settings with which the prompt asks for the tags, or shows them where it asks already."""
    prompt = resolve_system_prompt(config.system_prompt) or ""
    asks = "<answer>" in prompt and (config.format == ResponseFormat.LENIENT or "<think>" in prompt)
    settings = [] if asks else ["system_prompt=think_answer"]
    return settings if config.worked_examples else [*settings, _EXAMPLE]


def add_length(report: TaskReport, dump: Dump | None, limit: int, config: RGDumpConfig) -> None:
    """Say which limit cuts off few responses of a task.

    Args:
        dump: the same questions, asked with a higher limit; None: the model has no room for one.
        limit: of the run, in tokens.
    """
    text = f"{rate(report.cut_off[0])} of the responses are cut off at {limit:,} tokens"
    is_alarm = (report.cut_off[0] or 0) >= 1 - HARDLY_WELL_FORMED
    lengths: list[int] = []
    cut_off = solved = 0
    for group in dump.groups() if dump else ():
        if group.task != report.task:
            continue
        for rollout in group.rollouts:
            lengths.append(rollout.response_tokens or 0)
            cut_off += rollout.truncated
            solved += rollout.base_score >= config.solved_at
    if not lengths or cut_off >= CUT_OFF * len(lengths):
        longest = f", and {rate(cut_off / len(lengths))} at {max(lengths):,}" if lengths else ""
        report.say(f"{text}{longest}: the model does not come to an end; name another model", is_alarm=is_alarm)
        return
    # All but less than CUT_OFF of them are at most so long.
    enough = sorted(lengths)[int((1 - CUT_OFF) * len(lengths))]
    enough = -(-enough // _ROUND) * _ROUND
    paid = solved / len(lengths)
    report.paid[f"{_LONGEST}={enough}"] = paid
    more = (
        f"{enough:,} cut off fewer than {rate(CUT_OFF)}, and {rate(paid)} are solved then, now {rate(report.solved[0])}"
    )
    report.say(f"{text}; {more}", [f"{_LONGEST}={enough}"], is_alarm=is_alarm)


def add_levels(report: TaskReport, dump: Dump, config: RGDumpConfig, fixed: Mapping[str, Any]) -> None:
    """Say at which levels a task is neither too hard nor too easy.

    Args:
        dump: questions of all levels.
        fixed: the options that the run gives the task.
    """
    solved: dict[float, list[bool]] = {}
    for group in dump.groups():
        if group.task == report.task and group.complexity is not None:
            scores = solved.setdefault(group.complexity, [])
            scores += [rollout.base_score >= config.solved_at for rollout in group.rollouts]
    report.levels = {level: sum(scores) / len(scores) for level, scores in sorted(solved.items())}
    good = [level for level, share in report.levels.items() if TOO_HARD <= share <= TOO_EASY]
    how = "too hard" if (report.solved[0] or 0) < TOO_HARD else "too easy"
    shown = ", ".join(f"{rate(share)} at {level:g}" for level, share in report.levels.items())
    is_alarm = (report.signal[0] or 0) < FEW_SIGNALS
    text = f"{how}: {rate(report.solved[0])} solved; by complexity: {shown}"
    if not good:
        report.say(
            f"{text}; no level between {rate(TOO_HARD)} and {rate(TOO_EASY)}: leave the task out", is_alarm=is_alarm
        )
        return
    # The level nearest to one half.
    level = min(good, key=lambda level: abs(report.levels[level] - 0.5))
    scale = scale_of(report.task, {})
    setting = f"complexity={level:g}"
    if fixed and scale is not None:  # they would win over the complexity
        setting = f"tasks.{report.task}.config={_yaml(scale.options(level))}"
    report.say(text, [setting], is_alarm=is_alarm)


def _yaml(options: Mapping[str, Any]) -> str:
    """Return options as YAML in one line, as a shell takes it in quotes."""
    return json.dumps(dict(options)).replace('"', "")


def settings_of(reports: Sequence[TaskReport]) -> Iterator[str]:
    """Yield the settings of all tasks, each once; of one that tasks want to have different values, the largest."""
    values: dict[str, str] = {}
    for report in reports:
        for setting in report.settings:
            name, _, value = setting.partition("=")
            if name == _LONGEST and name in values:
                value = str(max(int(value), int(values[name])))
            values.setdefault(name, value)
            if name == _LONGEST:
                values[name] = value
    for name, value in values.items():
        yield f"{name}={value}"
