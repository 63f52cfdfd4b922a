"""What the responses of a preflight say about a run: rates of each task, what is wrong, and the settings that fix it.

Invariant: a rate has its interval; an alarm is one of `rg_env.rollouts.preflight_limits`. A format that is right in
part is reported without an alarm: training teaches it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from rg_env.analysis.other_settings import (
    LENIENT,
    LENIENT_NORMALIZE,
    NORMALIZE,
    PLACES,
    READINGS,
    Payments,
    count_payments,
)
from rg_env.analysis.stats import statistics
from rg_env.base.choices import ResponseFormat
from rg_env.base.wording import counted, rate
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Dump, GroupRecord, open_run
from rg_env.dump.schema import answered
from rg_env.rollouts import preflight_limits as limits
from rg_env.rows.prompts import resolve_system_prompt
from rg_env.tasks.levels import scale_of

Rate = tuple[float | None, float | None, float | None]
"""A share and the ends of its interval."""
_ROUND = 16
"""Lengths are rounded up to a multiple."""
_LONGEST = "generator.sampling_params.max_generate_length"
_EXAMPLE = 'worked_examples=[{question: "What is 2 + 3?", response: "<think>2 + 3 = 5</think><answer>5</answer>"}]'


@dataclass
class TaskReport:
    """What a preflight found about a task.

    Attributes:
        questions, responses: numbers.
        format, cut_off, solved, signal: shares with their intervals: of responses, `signal` of groups.
        tokens: the median length of a response.
        violation: the commonest; "" if there is none.
        paid: share of responses that would be solved with each other reading or length, where that is not `solved`.
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
    violation: str = ""
    paid: dict[str, float] = field(default_factory=dict)
    levels: dict[float, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)

    @property
    def is_cut_off(self) -> bool:
        """Whether a longer limit is to be looked for."""
        return (self.cut_off[0] or 0) > limits.CUT_OFF

    @property
    def has_few_signals(self) -> bool:
        return (self.signal[0] or 0) < limits.FEW_SIGNALS

    @property
    def needs_level(self) -> bool:
        """Whether other levels are to be asked: format and scorer work, and the questions are too hard or too easy."""
        knows_format = 2 * (self.format[0] or 0) > 1 and not self.is_cut_off and not self.alarms
        is_fine = limits.TOO_HARD <= (self.solved[0] or 0) <= limits.TOO_EASY
        return knows_format and not is_fine and scale_of(self.task, {}) is not None

    def say(self, text: str, *settings: str, is_alarm: bool) -> None:
        """Add a sentence, and the settings that it recommends."""
        if is_alarm:
            self.alarms.append(text)
        else:
            self.remarks.append(text)
        self.settings += settings


def report_tasks(dump: Dump, config: RGDumpConfig, wrong_scorers: Mapping[str, str]) -> list[TaskReport]:
    """Return what the responses say about each task, without other lengths and levels.

    Args:
        dump: what was asked with the settings of the run.
        wrong_scorers: of tasks whose scorer is wrong about known answers, a sentence.
    """
    # The parts of the questions are runs of their own, and each run would be a row.
    rows = dump.scan().with_columns(run_id=pl.lit("preflight"))
    medians = dict(rows.group_by("task").agg(pl.col("response_tokens").median()).collect().rows())
    payments = count_payments(dump.groups(), config)
    reports = []
    for row in statistics(rows, "task", solved_at=config.solved_at).to_dicts():
        names = ("format_rate", "truncated", "solve_rate", "no_signal")
        format, cut_off, solved, same = ((row[name], row[f"{name}_low"], row[f"{name}_high"]) for name in names)
        # The lower end of the rest is what the upper end leaves.
        signal = _rest(same[0]), _rest(same[2]), _rest(same[1])
        task = row["task"]
        tokens = medians[task]
        report = TaskReport(task, row["groups"], row["rollouts"], format, cut_off, solved, signal, tokens)
        report.violation = payments[task].commonest_violation
        _judge(report, payments[report.task], config, wrong_scorers.get(report.task, ""))
        reports.append(report)
    return reports


def _rest(share: float | None) -> float | None:
    return None if share is None else 1 - share


def _judge(report: TaskReport, payments: Payments, config: RGDumpConfig, wrong_scorer: str) -> None:
    """Say what is wrong with the scorer, with what the responses are paid, and with the signal."""
    for reading in READINGS:
        is_more = payments.paid[reading] > payments.solved
        if is_more and (reading != LENIENT_NORMALIZE or payments.best == reading):
            report.paid[reading] = payments.paid[reading] / payments.responses
    if wrong_scorer:
        how = _how_to_score(wrong_scorer.partition(":")[0], "…")
        report.say(f"the scorer is wrong about known answers: {wrong_scorer}{how}", is_alarm=True)
    if payments.right_unrewarded > limits.RIGHT_UNREWARDED * payments.well_formed:
        item, answer = payments.example
        of_all = f"{payments.right_unrewarded:,} of {counted(payments.well_formed, 'well-formed response')}"
        text = f"{of_all} are literally correct and not rewarded, such as {answer!r:.60}"
        if 2 * (payments.paid[NORMALIZE] - payments.solved) >= payments.right_unrewarded:
            report.say(text, NORMALIZE, is_alarm=True)
        else:
            how = _how_to_score(item, json.dumps(f"<think>x</think><answer>{answer}</answer>", ensure_ascii=False))
            report.say(f"{text}: the scorer is broken, or reads another notation{how}", is_alarm=True)
    if payments.best:
        _judge_reading(report, payments, config)


def _how_to_score(item: str, response: str) -> str:
    """Return the command that scores a response to an item, or to the first of its task if the id does not carry the
    task's options or its file."""
    task, mark, _ = item.partition("~")
    named = f"{task} --tasks RECIPE" if mark else item
    return f"; rg-env score {named} --response {response}"


def _judge_reading(report: TaskReport, payments: Payments, config: RGDumpConfig) -> None:
    """Say what the reading that pays most would pay; an alarm if hardly a response is well-formed."""
    reading = payments.best
    share, now = payments.paid[reading] / payments.responses, payments.solved / payments.responses
    is_dead = payments.well_formed < limits.HARDLY_WELL_FORMED * payments.responses
    if not is_dead and share - now < limits.WORTH_SAYING:
        return
    settings = reading.split()
    text = f"{rate(share)} of the responses would be solved with {reading}, now {rate(now)}"
    if reading in PLACES:
        settings = settings_that_ask(config)
        text = f"{rate(share)} of the responses have the right answer {reading}, where no setting reads it: the prompt "
        text += f"must ask for <answer>; now {rate(now)} are solved"
    if not is_dead and reading != NORMALIZE:
        text += " (training teaches the format, too)"
    report.say(text, *settings, is_alarm=is_dead)


def settings_that_ask(config: RGDumpConfig) -> list[str]:
    """Return the settings with which the prompt asks for the tags, or shows them where it asks already."""
    prompt = resolve_system_prompt(config.system_prompt) or ""
    settings = []
    if config.format == ResponseFormat.STRICT:
        settings.append(LENIENT)
    if "<answer>" not in prompt:
        settings.append("system_prompt=think_answer")
    if not config.worked_examples:
        settings.append(_EXAMPLE)
    return settings


def add_length(report: TaskReport, dump: Path | None, limit: int, config: RGDumpConfig) -> None:
    """Say which limit cuts off few responses of a task.

    Args:
        dump: the same questions, asked with a higher limit; None: the model has no room for one.
        limit: of the run, in tokens.
    """
    text = f"{rate(report.cut_off[0])} of the responses are cut off at {limit:,} tokens"
    is_alarm = (report.cut_off[0] or 0) >= 1 - limits.HARDLY_WELL_FORMED
    rollouts = []
    if dump is not None:
        for group in _groups_of(report.task, dump):
            rollouts += answered(group.rollouts)
    if dump is not None and not rollouts:
        report.say(f"{text}; every request with a higher limit failed: ask again", is_alarm=is_alarm)
        return
    cut_off = sum(rollout.truncated for rollout in rollouts)
    if cut_off >= limits.CUT_OFF * len(rollouts):
        more = "the model has no room for more"
        if rollouts:
            more = f"{rate(cut_off / len(rollouts))} still are with a multiple of it: the model does not come to an end"
        report.say(f"{text}; {more}; name another model", is_alarm=is_alarm)
        return
    # All but less than CUT_OFF of them are at most so long.
    lengths = sorted(rollout.response_tokens or 0 for rollout in rollouts)
    enough = lengths[int((1 - limits.CUT_OFF) * len(lengths))]
    setting = f"{_LONGEST}={-(-enough // _ROUND) * _ROUND}"
    solved = sum(rollout.base_score >= config.solved_at for rollout in rollouts) / len(rollouts)
    report.paid[setting] = solved
    report.say(
        f"{text}; with {setting} {rate(solved)} are solved, now {rate(report.solved[0])}", setting, is_alarm=is_alarm
    )


def _groups_of(task: str, dump: Path) -> Iterator[GroupRecord]:
    for group in open_run(dump).groups():
        if group.task == task:
            yield group


def add_levels(report: TaskReport, dump: Path, config: RGDumpConfig, fixed: Mapping[str, Any]) -> None:
    """Say at which levels a task is neither too hard nor too easy.

    Args:
        dump: questions of all levels.
        fixed: the options that the run gives the task.
    """
    solved: dict[float, list[bool]] = defaultdict(list)
    for group in _groups_of(report.task, dump):
        for rollout in answered(group.rollouts):
            solved[group.complexity or 0.0].append(rollout.base_score >= config.solved_at)
    for level, scores in sorted(solved.items()):
        report.levels[level] = sum(scores) / len(scores)
    how = "too easy"
    if (report.solved[0] or 0) < limits.TOO_HARD:
        how = "too hard"
    text = f"{how}: {rate(report.solved[0])} solved"
    if not solved:
        report.say(f"{text}; every request for other levels failed: ask again", is_alarm=report.has_few_signals)
        return
    shown = ", ".join(f"{rate(share)} at {level:g}" for level, share in report.levels.items())
    text = f"{text}; by complexity: {shown}"
    good = [level for level, share in report.levels.items() if limits.TOO_HARD <= share <= limits.TOO_EASY]
    if not good:
        report.say(f"{text}; none of them fits: leave the task out", is_alarm=report.has_few_signals)
        return
    level = min(good, key=lambda level: abs(report.levels[level] - 0.5))
    setting = f"complexity={level:g}"
    scale = scale_of(report.task, {})
    if fixed and scale is not None:  # they would win over the complexity
        options = json.dumps(scale.options(level)).replace('"', "")
        setting = f"tasks.{report.task}.config={options}"
    report.say(text, setting, is_alarm=report.has_few_signals)


def add_signal(report: TaskReport) -> None:
    """Say that hardly a group will have a signal, with the reason if nothing was said before."""
    if not report.has_few_signals:
        return
    why = ""
    if not report.remarks and not report.alarms:
        why = f"; {rate(report.solved[0])} are solved, and {rate(report.format[0])} well-formed"
        if report.violation:
            why += f", most others {report.violation}"
    shown = rate(report.signal[0])
    text = f"the rewards differ in {shown} of the groups, and only these teach anything{why}"
    report.say(text, is_alarm=True)


def settings_of(reports: Sequence[TaskReport]) -> list[str]:
    """Return the settings of all tasks, each once: of several values the first, of lengths the largest."""
    values: dict[str, str] = {}
    for report in reports:
        for setting in report.settings:
            name, _, value = setting.partition("=")
            if name == _LONGEST:
                value = str(max(int(value), int(values.pop(name, 0))))
            values.setdefault(name, value)
    return [f"{name}={value}" for name, value in values.items()]
