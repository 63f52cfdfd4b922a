"""Every attack on every item of a task, scored by `Scorer` as in training, and the command `rg-env attack`.

| hole | when |
|---|---|
| code | the text of an answer called a function that only the scorer's process has (`rg_env.attack.probes`) |
| poison | afterwards the right answer of an item, or a wrong one, has another score than before |
| free reward | a text that is not the item's answer scores 0.3 or more, on average over all items |
| often right | one attack is fully right on more than 0.4 of the items: 0.75 where there are two answers, 0.5 for three; or a rule that is learned from half of 400 items is, on the other half |
| growth | time or memory grows much faster than the answer: contained, since a limit ends the process |
| hang, crash, exception | the scorer used up its CPU time, its process died, or it raised: contained, so the answer scored 0 |

Invariant: no attack reaches the calling process.
"""  # noqa: E501

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from loguru import logger
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rg_env.attack.attacked_items import Entry, draw_entries, options_of
from rg_env.attack.attacks import Attack, attacks
from rg_env.attack.learned import learned_rules
from rg_env.attack.probes import Prober
from rg_env.base.errors import describe
from rg_env.base.output import cell, console, print_error, print_text
from rg_env.base.wording import yes_or_no
from rg_env.scoring import AnswerScore, Scorer, Status
from rg_env.scoring.audit_rows import JUNK
from rg_env.scoring.formatting import canonical
from rg_env.tasks import TaskMix, TaskSpec, task_names

FREE_REWARD = 0.3
FULLY_RIGHT = 1 - 1e-9
_DEADLINE = 1.0
"""CPU seconds per answer."""
_SAID_EVERY = 10.0
"""Seconds."""
_OTHERS = 40
"""Items whose answers the attacks may know, at most."""
_LEARNED = 400
"""Items for rules that are learned: they are fitted on one half and judged on the other."""
_LEAST_JUDGED = 50
"""With fewer items in that half, chance decides too much."""


class Hole(StrEnum):
    """Achievement of an attack."""

    CODE = "code"
    POISON = "poison"
    FREE_REWARD = "free reward"
    OFTEN_RIGHT = "often right"
    GROWTH = "growth"
    HANG = "hang"
    CRASH = "crash"
    EXCEPTION = "exception"


CONTAINED = {Status.TIMEOUT: Hole.HANG, Status.CRASHED: Hole.CRASH, Status.ERROR: Hole.EXCEPTION}
_GAINS = {Hole.CODE, Hole.POISON, Hole.FREE_REWARD, Hole.OFTEN_RIGHT}
"""Holes that an answer can use."""
_STOPPING = (Status.TIMEOUT, Status.CRASHED)


Score = Callable[[Entry, str], AnswerScore]
"""Scores an answer to an item as in training."""
Reference = dict[str, tuple[Status, float]]
"""Texts and what they scored, to see whether an attack changes the scores of others."""


@dataclass(frozen=True, slots=True)
class Hit:
    """An attack that achieved something; `value`: its mean score, or the share of items on which it is right."""

    hole: Hole
    attack: str
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class AttackedTask:
    """The result of the attacks on one task.

    Attributes:
        counts: whether a hole makes the command fail: the task was named, or is in the default mix.
        best: the attack with the highest mean score.
        mean, right: its mean score, and the share of items on which it is fully right.
        problem: why the task could not be attacked, in one line; else empty.
    """

    task: str
    counts: bool
    hits: tuple[Hit, ...] = ()
    best: str = ""
    mean: float = 0.0
    right: float = 0.0
    problem: str = ""

    @property
    def fails(self) -> bool:
        """Whether an answer can gain something, or nobody knows, in a task that counts."""
        gained = any(hit.hole in _GAINS for hit in self.hits)
        return self.counts and (gained or bool(self.problem))


def attack_tasks(
    tasks: str | None = None,
    items: int = 20,
    progress: Callable[[str, int, int], None] = lambda task, done, total: None,
    advance: Callable[[str, int, int], None] = lambda task, done, total: None,
) -> list[AttackedTask]:
    """Attack the scorers.

    Args:
        tasks: a task mix; None: every task, including those outside the default mix, which then do not count.
        items: per task, at least 1.
        progress: called before each task with its name, its number and the number of tasks.
        advance: called before each attack with the task's name, the attack's number and the number of attacks.

    Raises:
        ConfigError: the mix is invalid.
        ScorerPoolError: scorer processes cannot be started.
    """
    # Without a mix, those of the default one: they alone make the command fail.
    counted = {task.name: task for task in TaskMix.parse(tasks).tasks}
    if tasks:
        specs = list(counted.values())
    else:
        specs = [TaskSpec(name) for name in task_names()]
    attacked = []
    for number, task in enumerate(specs):
        progress(task.name, number, len(specs))
        # A scorer for each task, so that no task suffers from what another's answers did.
        with Scorer(workers=1, timeout=_DEADLINE) as scorer:
            attacked.append(_attack(task, task.name in counted, items, scorer, advance))
    return attacked


def _learned_hits(entries: Sequence[Entry], limit: float) -> tuple[list[Hit], Hit]:
    """Return the rules that are learned from one half of the items and too often right on the other; and the best one.

    Right is here what is the item's own answer, so that nothing needs to be scored.
    """
    pairs = []
    for entry in entries:
        if entry["answer"] is not None:
            pairs.append((str(entry["question"]).strip(), str(entry["answer"])))
    half = len(pairs) // 2
    best = Hit(Hole.OFTEN_RIGHT, "")
    # On the items that a rule was fitted on, it is right too often to say anything.
    if half < _LEAST_JUDGED:
        return [], best
    hits = []
    questions, answers = zip(*pairs[:half], strict=True)
    for rule in learned_rules(questions, answers):
        right = 0
        for question, answer in pairs[half:]:
            if canonical(rule.answer(question) or "") == canonical(answer):
                right += 1
        hit = Hit(Hole.OFTEN_RIGHT, rule.name, right / (len(pairs) - half))
        best = max(best, hit, key=lambda hit: hit.value)
        if hit.value > limit:
            hits.append(hit)
    return hits, best


def _attack(
    spec: TaskSpec,
    counts: bool,
    items: int,
    scorer: Scorer,
    advance: Callable[[str, int, int], None],
) -> AttackedTask:
    task = spec.name
    try:
        # Drawn once for all: the attacked items, those whose answers are known, and those that rules learn from.
        drawn = draw_entries(spec, items + _OTHERS, _LEARNED)
    except Exception as error:  # whatever a user's generator raises
        return AttackedTask(task, counts, problem=describe(error))
    if len(drawn) < items + _OTHERS:  # of a file, whose other half says what may be known
        items = (len(drawn) + 1) // 2
    entries = drawn[: items + _OTHERS]
    # The first items are attacked; the attacks may know the answers of the others.
    limit = often_right(_own_answers(entries))
    others = _own_answers(entries[items:])
    attacked = entries[:items]
    score = functools.partial(scorer.score_answer, config=options_of(spec))

    # A right and a wrong answer are scored before and after each attack: what changes these scores is poison.
    texts = (str(attacked[0]["answer"]), "wrong", *others[:1])
    before = _reference(score, attacked[0], texts)
    hits: list[Hit] = []
    best = ("", 0.0, 0.0)
    # A file's audit has tried the same on each row; here they say what a policy earns with one of them.
    every = attacks(others, JUNK if spec.file is not None else ())
    for number, attack in enumerate(every):
        advance(task, number, len(every))
        scores, earned, status = _scores(score, attacked, attack)
        mean = sum(scores) / items
        right = sum(score >= FULLY_RIGHT for score in scores) / items
        best = max(best, (attack.name, mean, right), key=lambda result: result[1])
        if hole := CONTAINED.get(status):
            hits.append(Hit(hole, attack.name))
        after = _reference(score, attacked[0], texts)
        if _has_changed(before, after):
            hits.append(Hit(Hole.POISON, attack.name))
            break  # what is scored from here on says nothing
        # One hole for an attack: what earns a free reward is often right as well.
        if earned / items >= FREE_REWARD:
            hits.append(Hit(Hole.FREE_REWARD, attack.name, earned / items))
        elif right > limit:
            hits.append(Hit(Hole.OFTEN_RIGHT, attack.name, right))
    hits += _probe(attacked[0], options_of(spec))
    learned, rule = _learned_hits(drawn, limit)
    best = max(best, (rule.attack, rule.value, rule.value), key=lambda result: result[1])
    return AttackedTask(task, counts, (*hits, *learned), *best)


def _probe(entry: Entry, options: Mapping[str, Any]) -> list[Hit]:
    hits = []
    with Prober(entry, options) as prober:
        for found in prober.find():
            hole = Hole.CODE if found.is_code else Hole.GROWTH
            if found.failure is not None:
                hole = CONTAINED[Status(found.failure)]
            hits.append(Hit(hole, found.probe))
    return hits


def _own_answers(entries: Sequence[Entry]) -> list[str]:
    return [str(entry["answer"]) for entry in entries if entry["answer"] is not None]


def often_right(answers: Sequence[str]) -> float:
    """Share of items on which one answer may be right: 0.4, or half more than by chance among two or three."""
    return max(0.4, 1.5 / max(2, len(set(answers))))


def _scores(score: Score, entries: Sequence[Entry], attack: Attack) -> tuple[list[float], float, Status]:
    """Return the scores of an attack, their sum where its text is not the right answer, and the worst status.

    An attack that stops the scorer is not tried again.
    """
    scores: list[float] = []
    earned, worst = 0.0, Status.OK
    for entry in entries:
        text = attack.answer(str(entry["question"]).strip())
        if text is None:
            scored = AnswerScore.without_score(Status.OK)
        else:
            scored = score(entry, text)
        scores.append(scored.score)
        # A policy that finds the right answer has solved the item, and earns its score.
        if text is not None and (entry["answer"] is None or canonical(text) != canonical(str(entry["answer"]))):
            earned += scored.score
        if scored.status in CONTAINED and not scored.had_no_core:
            worst = scored.status
        if worst in _STOPPING:
            break
    return scores, earned, worst


def _reference(score: Score, entry: Entry, texts: Sequence[str]) -> Reference:
    """Return the scores of texts, less those for which the machine had no core: these prove nothing."""
    reference = {}
    for text in texts:
        scored = score(entry, text)
        if not scored.had_no_core:
            reference[text] = (scored.status, round(scored.score, 9))
    return reference


def _has_changed(before: Reference, after: Reference) -> bool:
    """Return whether a text that was scored both times has another score now."""
    return any(before[text] != after[text] for text in before.keys() & after.keys())


def run_command(tasks: str | None, items: int) -> int:
    """`rg-env attack`: progress on standard error, the result on standard output; 1 if a task fails, else 0."""
    TaskMix.parse(tasks)  # before anything is shown
    logger.disable("rg_env")  # timeouts are expected here
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console(stderr=True)) as bar:
            row = bar.add_task("starting", total=None)

            def show(task: str, done: int, total: int) -> None:
                bar.update(row, description=task, completed=done, total=total)

            shown = -_SAID_EVERY

            def show_attack(task: str, done: int, total: int) -> None:
                nonlocal shown
                bar.update(row, description=f"{task}: {done} of {total} attacks")
                # Where there is no bar, a line now and then.
                if not bar.console.is_terminal and time.monotonic() - shown > _SAID_EVERY:
                    shown = time.monotonic()
                    print_error(f"{task}: {done} of {total} attacks")

            attacked = attack_tasks(tasks, items, show, show_attack)
    finally:
        logger.enable("rg_env")
    # A row for each task, red where it makes the command fail.
    table = Table("task", "counts", "holes", "best attack", "mean score", "fully right", box=None)
    table.columns[0].no_wrap = True
    for result in attacked:
        counts = yes_or_no(result.counts)
        holes = result.problem or _list_holes(result.hits) or "–"
        scores = (f"{result.mean:.2f}", f"{result.right:.2f}")
        style = "red" if result.fails else ""
        table.add_row(cell(result.task), counts, cell(holes), cell(result.best or "–"), *scores, style=style)
    console().print(table)
    failed = [result.task for result in attacked if result.fails]
    total = sum(result.counts for result in attacked)
    print_text(f"\nholes that an answer can use: {', '.join(failed) or 'none'} ({len(failed)} of {total} tasks)")
    return 1 if failed else 0


def _list_holes(hits: Sequence[Hit]) -> str:
    """Return each hole with its number of attacks, and with the attack that gained most."""
    by_hole: dict[Hole, list[Hit]] = {}
    for hit in hits:
        by_hole.setdefault(hit.hole, []).append(hit)
    texts = []
    for hole, group in by_hole.items():
        top = max(group, key=lambda hit: hit.value)
        value = ""
        if top.value:
            value = f" {top.value:.2f}"
        texts.append(f"{hole} ×{len(group)} ({top.attack}{value})")
    return ", ".join(texts)
