"""Attack Reasoning Gym's tasks at default options and at five levels; write `evidence/attacks.md`.

Run: `python -m evidence.attack_levels [--state FILE] [TASK ...]`. What was measured is kept in the state file, one line
for each task and level, and measured again only for the tasks that are named. A level at which one policy is fully
right more often than `often_right` allows is cut in `rg_env/tasks/levels.json` by hand, with the reason under `cut`,
and its task is named here again.

Three kinds of policies: the attacks of `rg-env attack`, the cheap answers that calibrate partial credit, and programs
of one or two steps over the numbers, words and grids of the question, alone or two of them under one condition. All see
the items of one half with their answers; the best are judged on the other half. So are rules that are learned from 200
items (`rg_env.attack.learned`). Answers are scored by `Scorer` without
its processes, in a fork with limits of CPU time; a `Scorer` with processes then confirms the best.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import itertools
import json
import math
import multiprocessing
import pickle
import re
import resource
import signal
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rg_env.attack.attack_run import FULLY_RIGHT, often_right
from rg_env.attack.attacks import POLICIES, after_colon, attacks, block_of, numbers_of, words_of
from rg_env.attack.learned import counts_of, learned_rules
from rg_env.scoring import Scorer
from rg_env.scoring.base_score import CHEAP
from rg_env.scoring.formatting import canonical
from rg_env.scoring.upstream import FormScore, make_scorer
from rg_env.tasks import hash64, task_names
from rg_env.tasks.levels import base_options, scale_of, why_cut
from rg_env.tasks.soundness import in_default_mix, reason_for
from rg_env.tasks.upstream.patched_dataset import UpstreamDataset

LEVELS = (None, 0.0, 1.0, 0.5, 0.25, 0.75)
"""Complexities in the order in which they are attacked; None: the task's default options."""
ITEMS, FEWEST = 120, 16
LEARNED = 400
"""Items for rules that are learned, of which one half is judged."""
DRAWING, PROGRAMS, SCREENING, JUDGING = 1.0, 0.4, 0.4, 0.4
"""CPU seconds of the parts, for one level of a task."""
SLOW = 0.5
"""CPU seconds after which an answer scores 0, and a draw is given up."""
COUNTED = 7
"""Counts of words and signs, and as many of other kinds, whose ratios are conditions."""
LOST = 30
"""CPU seconds after which the process of a level is ended, and after 20 times as many in wall time."""
SCREENED, FINALISTS, CONFIRMED = 20, 30, 12
PAGE = Path("evidence/attacks.md")

Entry = Mapping[str, Any]
Answers = list[dict[str, str]]
"""For each item, the name of a policy → its answer."""

ADDED = "less|sum|median|mean|product|doubled"
PERFORMED = {
    **dict.fromkeys(("basic_arithmetic", "chain_sum", "decimal_arithmetic", "decimal_chain_sum", "products"), ADDED),
    **dict.fromkeys(("spell_backward", "word_sequence_reversal"), "backward"),
    **dict.fromkeys(("number_sorting", "word_sorting"), "sorted"),
}
"""Task → what is in the names of programs that do what the task asks."""


# -- programs

_CHOICES: dict[str, Callable[[list[float]], float]] = {
    "first": lambda x: x[0],
    "second": lambda x: x[1],
    "last but one": lambda x: x[-2],
    "last": lambda x: x[-1],
    "largest": max,
    "smallest": min,
    "second largest": lambda x: sorted(x)[-2],
    "commonest": statistics.mode,
    "median": statistics.median,
    "mean": statistics.fmean,
    "sum": sum,
    "number": len,
    "number of different": lambda x: len(set(x)),
    "number of ones in": lambda x: x.count(1),
    "number of zeros in": lambda x: x.count(0),
    "last less its predecessor of": lambda x: x[-1] - x[-2],
    "first less the last of": lambda x: x[0] - x[-1],
    "largest less the smallest of": lambda x: max(x) - min(x),
    "product of the last two of": lambda x: x[-1] * x[-2],
    "sum of the last two of": lambda x: x[-1] + x[-2],
}
_CHANGES: dict[str, Callable[[float], float]] = {
    "": lambda n: n,
    " + 1": lambda n: n + 1,
    " - 1": lambda n: n - 1,
    " doubled": lambda n: 2 * n,
    " halved": lambda n: n / 2,
    " negated": lambda n: -n,
}
_TEXTS: dict[str, Callable[[str], str]] = {
    "": lambda text: text,
    ", backward": lambda text: text[::-1],
    ", upper case": str.upper,
    ", without spaces": lambda text: re.sub(r"[\s,]", "", text),
    ", its length": lambda text: str(len(text)),
    ", its words backward": lambda text: " ".join(text.split()[::-1]),
    ", its letters sorted": lambda text: "".join(sorted(text)),
    ", its first word": lambda text: text.split()[0],
    ", its last word": lambda text: text.split()[-1],
    ", all but its first character": lambda text: text[1:],
    ", all but its last character": lambda text: text[:-1],
    ", twice": lambda text: text * 2,
}
_LISTS: dict[str, Callable[[list[str]], list[str]]] = {
    "": lambda words: words,
    ", backward": lambda words: words[::-1],
    ", sorted": sorted,
    ", without repetitions": lambda words: list(dict.fromkeys(words)),
    ", the first": lambda words: words[:1],
    ", the last": lambda words: words[-1:],
    ", the longest": lambda words: [max(words, key=len)],
    ", the shortest": lambda words: [min(words, key=len)],
    ", the commonest": lambda words: [statistics.mode(words)],
    ", all but the first": lambda words: words[1:],
    ", all but the last": lambda words: words[:-1],
    ", their number": lambda words: [str(len(words))],
}


def _commonest(grid: list[list[Any]], rank: int) -> Any:
    return Counter(itertools.chain(*grid)).most_common()[rank][0]


_GRIDS: dict[str, Callable[[list[list[Any]]], list[list[Any]]]] = {
    "": lambda grid: grid,
    ", transposed": lambda grid: [list(row) for row in zip(*grid, strict=True)],
    ", turned right": lambda grid: [list(row) for row in zip(*grid[::-1], strict=True)],
    ", turned over": lambda grid: [row[::-1] for row in grid[::-1]],
    ", mirrored": lambda grid: [row[::-1] for row in grid],
    ", upside down": lambda grid: grid[::-1],
    ", all its commonest": lambda grid: [[_commonest(grid, 0)] * len(row) for row in grid],
    ", all its rarest": lambda grid: [[_commonest(grid, -1)] * len(row) for row in grid],
    ", row by row": lambda grid: [list(itertools.chain(*grid))],
    ", the first row": lambda grid: grid[:1],
    ", the last row": lambda grid: grid[-1:],
    ", every second row and column": lambda grid: [row[::2] for row in grid[::2]],
}


def grids_of(question: str) -> Iterator[tuple[str, list[list[Any]], Callable[[list[list[Any]]], str]]]:
    """The grids of a question, each with how to write one like it."""
    for place, text in (("last", block_of(question)), ("first", question[: len(question) // 2])):
        for sign, cell in ((" ", r"\S{1,3}(\s\S{1,3})+"), ("", r"\S{2,}")):
            rows = [
                line.split(sign or None) if sign else list(line.strip())
                for line in text.splitlines()
                if re.fullmatch(cell, line.strip())
            ]
            if rows and len({len(row) for row in rows}) == 1:
                yield f"the {place} grid", rows, functools.partial(as_lines, sign)
    matrices = re.findall(r"\[\s*\[[\d\s,\[\]-]+\]\s*\]", question)[::-1]
    for name, text in zip(("the last matrix", "the last matrix but one"), matrices, strict=False):
        with contextlib.suppress(json.JSONDecodeError):
            yield name, json.loads(text), json.dumps


def as_lines(sign: str, grid: list[list[Any]]) -> str:
    return "\n".join(sign.join(row) for row in grid)


def programs(question: str) -> dict[str, str]:
    """Program → its answer to the question."""
    made: dict[str, str] = {}

    def add(name: str, make: Callable[..., str], *values: Any) -> None:
        try:
            made[name] = make(*values)[:8000]
        except (ArithmeticError, ValueError, IndexError, TypeError):
            return  # the program does not fit the question

    sources = {
        "all numbers": [float(number) for number in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", question)[-600:]],
        "the last line's numbers": numbers_of(question),
        "the block": [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", block_of(question))[:2000]],
    }
    for (source, numbers), (choice, choose) in itertools.product(sources.items(), _CHOICES.items()):
        with contextlib.suppress(ArithmeticError, ValueError, IndexError):
            value = choose(numbers)
            for step, change in _CHANGES.items():
                made[f"the {choice} of {source}{step}"] = f"{change(value):.10g}"
    quotes, brackets = (re.findall(pattern, question) for pattern in (r"[\"'`]([^\"'`]+)[\"'`]", r"\[([^\[\]]+)\]"))
    texts = {
        "the last quotes": quotes[-1] if quotes else "",
        "the first quotes": quotes[0] if quotes else "",
        "the last brackets": brackets[-1] if brackets else "",
        "after the last colon": after_colon(question),
        "the last line": question.splitlines()[-1],
        "the last paragraph": question.split("\n\n")[-1],
        "the block": block_of(question),
    }
    for (source, text), (name, edit) in itertools.product(texts.items(), _TEXTS.items()):
        add(f"{source}{name}", edit, text)
    block = texts["the block"]
    signs = [sign for sign, _ in Counter(re.sub(r"[\s,|]", "", block)).most_common(4)]
    for blank, sign in itertools.product("_?❔.0", signs):
        if blank in block and blank != sign:
            made[f"the block, {blank} replaced by its commonest sign number {signs.index(sign) + 1}"] = block.replace(
                blank, sign
            )
    lists = {
        "the list": words_of(question),
        "the words": texts["after the last colon"].split(),
        "the names": re.findall(r"(?<![.?!\n] )\b[A-Z][a-z]+\b", question),
    }
    for (source, words), (name, pick) in itertools.product(lists.items(), _LISTS.items()):
        add(f"{source}{name}", lambda pick, words: ", ".join(pick(words)), pick, words)
        add(f"{source}{name}, with spaces", lambda pick, words: " ".join(pick(words)), pick, words)
        add(f"{source}{name}, as JSON", lambda pick, words: json.dumps(pick(words), ensure_ascii=False), pick, words)
    for source, grid, write in grids_of(question):
        for name, turn in _GRIDS.items():
            add(f"{source}{name}", lambda write, turn, grid: write(turn(grid)), write, turn, grid)
        for rank, (value, number) in enumerate(Counter(itertools.chain(*grid)).most_common(3)):
            add(f"how often {source} has its value number {rank + 1}", str, number)
            add(f"{source}, its value number {rank + 1}", str, value)
        add(f"{source}, its rows", str, len(grid))
        add(f"{source}, its columns", str, len(grid[0]))
    return made


def conditions(questions: Sequence[str]) -> dict[str, Callable[[str], bool]]:
    """Conditions of which a program may take one of two ways."""
    frequent = Counter(word for question in questions for word in set(re.findall(r"\w+", question)))
    words = [word for word, number in frequent.most_common() if 0.1 < number / len(questions) < 0.9][:60]
    long = statistics.median(map(len, questions))
    chosen: dict[str, Callable[[str], bool]] = {
        "the last two numbers are equal": lambda question: len(set(numbers_of(question)[-2:])) == 1,
        "the last number is the largest": lambda question: (
            numbers_of(question)[-1:] == [max(numbers_of(question), default=0)]
        ),
        "the number of numbers is even": lambda question: len(numbers_of(question)) % 2 == 0,
        "the question is long": lambda question: len(question) > long,
    }
    signs_of = [set(re.findall(r"[^\w\s]{1,2}", question)) for question in questions]
    frequent = Counter(itertools.chain(*signs_of))
    words += [sign for sign, number in frequent.most_common(40) if 0.1 < number / len(questions) < 0.9]
    chosen |= {f"the question has `{word}`": _contains(word) for word in words}
    return chosen | ratio_conditions(questions)


Condition = Callable[[str], bool]
Measure = Callable[[str], float]


def ratio_conditions(questions: Sequence[str]) -> dict[str, Condition]:
    """Conditions that a count of the question by another is above a quartile of the known questions."""
    counts = counts_of(questions)
    counts = [*counts[:COUNTED], *counts[-COUNTED:]]
    cached: dict[str, Measure] = {count.name: functools.cache(count.of) for count in counts}
    chosen: dict[str, Condition] = {}
    for above, below in itertools.permutations(cached, 2):
        ratio = _ratio(cached[above], cached[below])
        for threshold in dict.fromkeys(statistics.quantiles(map(ratio, questions), n=4)):
            chosen[f"{above} by {below} + 1 is above {threshold:.4g}"] = _exceeds(ratio, threshold)
    return chosen


def _contains(text: str) -> Condition:
    return lambda question: text in question


def _ratio(above: Measure, below: Measure) -> Measure:
    return lambda question: above(question) / (below(question) + 1)


def _exceeds(measure: Measure, threshold: float) -> Condition:
    return lambda question: measure(question) > threshold


def with_conditions(answers: Answers, entries: Sequence[Entry], known: int) -> None:
    """Add the best three programs that take one of two ways: their parts are right most often on the known items."""
    right: dict[str, int] = Counter()
    for bit, (entry, made) in enumerate(zip(entries[:known], answers, strict=False)):
        answer = canonical(str(entry["answer"]))
        for name, text in made.items():
            if len(text) < 4 * len(answer) + 20 and canonical(text) == answer:
                right[name] += 1 << bit
    questions = [entry["question"].strip() for entry in entries]
    pairs = []
    for name, holds in conditions(questions[:known]).items():
        true = sum(1 << bit for bit, question in enumerate(questions[:known]) if holds(question))
        ways = [max(right, key=lambda way: (right[way] & mask).bit_count(), default="") for mask in (true, ~true)]
        if len({*ways}) == 2:
            total = (right[ways[0]] & true).bit_count() + (right[ways[1]] & ~true).bit_count()
            pairs.append((total, f"if {name}: {ways[0]}, else {ways[1]}", holds, ways))
    for _, name, holds, ways in sorted(pairs, key=lambda pair: -pair[0])[:3]:
        for question, made in zip(questions, answers, strict=True):
            text_of_way = made.get(ways[not holds(question)])
            if text_of_way is not None:
                made[name] = text_of_way


# -- one level of one task


class InThisProcess:
    """A scorer pool without processes: does here what a worker does."""

    async def run(self, target: bytes, arguments: bytes, check: Callable[[object], Any]) -> Any:
        signal.setitimer(signal.ITIMER_PROF, SLOW)
        try:
            return check(_scorer_of(target)(arguments))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


@functools.cache
def _scorer_of(target: bytes) -> Callable[[bytes], list[FormScore] | str]:
    _, _, task, options = pickle.loads(target)
    return make_scorer(task, options)


class Scores:
    """The scores of answers to the items of a level, by `Scorer` without processes; each is computed once."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._scorer = Scorer(workers=1)
        self._scorer._pools._audited = InThisProcess()  # type: ignore[assignment]
        self._known: dict[tuple[int, str], float] = {}

    def of(self, entry: Entry, text: str) -> float:
        key = id(entry), text
        if key not in self._known:
            scored = self._loop.run_until_complete(self._scorer._score(entry, text, self._options))
            assert "the entry cannot be used" not in scored.detail, scored.detail
            self._known[key] = scored.score
        return self._known[key]


def draw(task: str, options: Mapping[str, Any]) -> list[Entry]:
    """Up to `LEARNED` items, fewer where they are slow."""
    dataset = UpstreamDataset(task, options)
    entries: list[Entry] = []
    start = math.inf
    for number in range(4 * LEARNED):
        signal.setitimer(signal.ITIMER_PROF, 2 * SLOW)
        with contextlib.suppress(Exception):  # an unusable draw, or a slow one
            entries.append(dataset.make(hash64("attack", task, number) >> 32))
        signal.setitimer(signal.ITIMER_PROF, 0)
        start = min(start, time.process_time())  # the first draw loads what the task needs
        spent = time.process_time() - start
        if len(entries) == LEARNED or (spent > DRAWING and len(entries) >= FEWEST) or spent > 5 * DRAWING:
            return entries
    return entries


def attack_level(task: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The best policies of a level, chosen on one half of the items and judged on the other."""
    drawn = draw(task, options)
    entries = drawn[:ITEMS]
    if len(entries) < 4:
        raise TimeoutError("items are too slow")
    rights = [str(entry["answer"]) for entry in entries[: len(entries) // 2] if entry["answer"] is not None]
    suite = attacks([text for text, _ in Counter(rights).most_common(30)])
    answers: Answers = []
    start = time.process_time()
    for entry in entries:
        if time.process_time() - start > PROGRAMS and len(answers) >= FEWEST:
            break
        question = entry["question"].strip()
        made = {attack.name: text for attack in suite if (text := attack.answer(question)) is not None}
        cheap = CHEAP[task](entry) if task in CHEAP else iter(())
        made |= {f"cheap answer {number + 1}": text for number, text in enumerate(itertools.islice(cheap, 8))}
        made |= programs(question)
        answers.append({name: text for name, text in made.items() if not re.search(PERFORMED.get(task, "$^"), name)})
    entries, known = entries[: len(answers)], len(answers) // 2
    with_conditions(answers, entries, known)
    scores = Scores(options)
    totals = dict.fromkeys(itertools.chain(*answers[:known]), 0.0)
    fixed = [attack.name for attack in suite if attack.name not in POLICIES]
    screened = _add_scores(scores, entries[:SCREENED], answers, list(totals), totals, SCREENING)
    chosen = _first(totals, FINALISTS) + _first(totals, 4, fixed) + [name for name in totals if name.startswith("if ")]
    finals = dict.fromkeys(chosen, 0.0)
    _add_scores(scores, entries[SCREENED:known], answers[SCREENED:], chosen, finals, JUDGING)
    names = dict.fromkeys([*_first(finals, 6), *_first(finals, 2, fixed)])
    judged = [_judged(scores, entries[known:], answers[known:], name) for name in names]
    judged += judged_rules(scores, drawn)
    return {
        "items": len(entries),
        "screened": screened,
        "policies": len(set(itertools.chain(*answers))),
        "limit": often_right(rights),
        "prior": max((result["right"] for result in judged if result["policy"] in fixed), default=0.0),
        "most_right": {**max(judged, key=lambda result: result["right"])},
        "highest": {**max(judged, key=lambda result: result["mean"])},
    }


def judged_rules(scores: Scores, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Rules that are learned from one half of the items, on the other half."""
    known, others = entries[: len(entries) // 2], entries[len(entries) // 2 :]
    known = [entry for entry in known if entry["answer"] is not None]
    if not known:
        return []
    rules = learned_rules([entry["question"].strip() for entry in known], [str(entry["answer"]) for entry in known])
    results = []
    for rule in rules:
        answers = [{rule.name: rule.answer(entry["question"].strip()) or ""} for entry in others]
        results.append(_judged(scores, others, answers, rule.name, 2 * JUDGING))
    return results


def _first(totals: Mapping[str, float], number: int, names: Sequence[str] | None = None) -> list[str]:
    return sorted(totals if names is None else totals.keys() & names, key=lambda name: -totals[name])[:number]


def _add_scores(
    scores: Scores,
    entries: Sequence[Entry],
    answers: Answers,
    names: Sequence[str],
    totals: dict[str, float],
    limit: float,
) -> int:
    """Add each policy's scores, item by item, until the time is over. Returns the number of items."""
    start = time.process_time()
    for number, (entry, made) in enumerate(zip(entries, answers, strict=False)):
        for name in names:
            if time.process_time() - start > limit and number:
                return number
            if name in made:
                totals[name] += scores.of(entry, made[name])
    return len(entries)


def _judged(
    scores: Scores, entries: Sequence[Entry], answers: Answers, name: str, limit: float = JUDGING / 4
) -> dict[str, Any]:
    """A policy, the share of items on which it is fully right, its mean score, and some of its answers with scores."""
    start, earned = time.process_time(), []
    for entry, made in zip(entries, answers, strict=True):
        earned.append(scores.of(entry, made[name]) if name in made else 0.0)
        if time.process_time() - start > limit and len(earned) >= FEWEST // 2:
            break
    shown = [
        (entry, made[name], score) for entry, made, score in zip(entries, answers, earned, strict=False) if name in made
    ]
    right = sum(score >= FULLY_RIGHT for score in earned) / len(earned)
    return {
        "policy": name,
        "right": round(right, 3),
        "mean": round(statistics.fmean(earned), 3),
        "judged": len(earned),
        "answers": shown[:CONFIRMED],
    }


def in_a_fork(task: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The result of `attack_level`; `lost` says why there is none."""

    def stop(*_: object) -> None:
        raise TimeoutError

    def run() -> None:
        receiver.close()
        resource.setrlimit(resource.RLIMIT_CPU, (LOST, LOST))
        resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))
        signal.signal(signal.SIGPROF, stop)
        try:
            sender.send_bytes(pickle.dumps(attack_level(task, options) | {"seconds": round(time.process_time(), 1)}))
        except Exception as error:
            sender.send_bytes(pickle.dumps({"lost": f"{type(error).__name__}: {error}"}))

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run, daemon=True)
    process.start()
    sender.close()
    try:
        return pickle.loads(receiver.recv_bytes()) if receiver.poll(20 * LOST) else {"lost": "no result in time"}
    except EOFError:
        return {"lost": f"the process ended: more than {LOST} CPU seconds, or too much memory"}
    finally:
        process.kill()
        process.join()


# -- all levels of all tasks


def measure(tasks: Sequence[str], state: Path) -> None:
    """Attack what the state file lacks, breadth first: a level of all tasks, then the next level."""
    done = _read(state)
    commit = current_commit()
    unconfirmed = []
    for complexity, task in itertools.product(LEVELS, tasks):
        scale = scale_of(task, {})
        if (task, complexity) in done or (complexity is not None and scale is None):
            continue
        options = base_options(task) if scale is None or complexity is None else scale.options(complexity)
        record = {"task": task, "c": complexity, "options": json.loads(json.dumps(options))}
        same = [other for other in done.values() if other["task"] == task and other["options"] == record["options"]]
        record = ({**same[0]} if same else in_a_fork(task, options) | {"commit": commit}) | record
        for name in () if same or "lost" in record else _BEST:
            unconfirmed.append((record, name, options, record[name].pop("answers")))
        done[task, complexity] = record
        _write(state, record)
        print(
            task, complexity, record.get("lost", [tuple(record.get(name, {}).values()) for name in _BEST]), flush=True
        )
    # After all forks: a scorer has a thread, and a fork in which it held a lock would wait for ever.
    with Scorer(workers=1) as scorer:
        for record, name, options, answers in unconfirmed:
            equal = [
                abs(scorer.score_answer(entry, text, options).score - score) < 1e-9 for entry, text, score in answers
            ]
            record[name] |= {"confirmed": sum(equal), "compared": len(equal)}
            _write(state, record)


_BEST = ("most_right", "highest")


def current_commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _write(state: Path, record: Mapping[str, Any]) -> None:
    with state.open("a") as out:
        out.write(json.dumps(record) + "\n")


def _read(state: Path) -> dict[tuple[str, float | None], dict[str, Any]]:
    """The last record of each task and level."""
    lines = state.read_text().splitlines() if state.exists() else []
    return {(record["task"], record["c"]): record for record in map(json.loads, lines)}


# -- the page

_HEAD = """# Attacks on the scorers

Asked: can an answer get a reward without solving its question, on any task, at any level of difficulty?

Done: `python -m evidence.attack_levels`, for each task at the commit in its row (reasoning-gym 0.1.25), with its
default options and, where it has levels, at c = 0, 0.25, 0.5, 0.75 and 1; up to {items} items each, fewer where they
are slow. Each item got {texts} texts (malformed, deep, wide and long ones, constants, frequent answers of other items)
and the answers of policies that solve nothing: parts of the question, programs of one or two steps over its numbers,
words and grids, and pairs of these under one condition on its words, its signs or a ratio of its counts. The best on
one half of the items were judged on the other half. The same was done with rules that are learned from up to {known}
items: a threshold for a count of the question or for a ratio of two, and the answer to the most similar question. What
runs code or hangs is [found by probes](upstream-findings.md#2-one-line-of-text-hangs-the-scorer), which harm nothing.

In the last run ({date}): {tasks} tasks, {levels} levels, {policies} answers for each item; of the best policies'
answers, {confirmed} got the same score from `Scorer` with its processes.{lost} Rows of commit `2cc67bc`, of tasks that
are not in the default mix, are older than conditions on signs and ratios, and than rules that are learned.

A level is not used if one policy is fully right on more than 0.4 of the items (0.5 where there are three answers, 0.75
where there are two). Not covered: programs of three steps, and policies that perform the task itself.
"""
_ALL = """The share of items on which the best policy is fully right; in brackets its mean score where that is higher.
*Prior*: the best constant's share at default options. –: no such level, or not measured.

"""
_MOST = """All that are right on 0.25 of the items or more, or score as much on average.

"""
_CUT, _MIX, _BEST_OF, _OUT, _AFTER = (
    "Levels and options that are not used",
    "All tasks of the default mix",
    "The best policies",
    "Tasks that are not in the default mix",
    "Rules of one sign or one ratio",
)

Row = tuple[str, ...]


def page(records: Mapping[tuple[str, float | None], dict[str, Any]], old: str) -> str:
    """`evidence/attacks.md`. What the old page says about other tasks, and below the tables, stays."""
    measured = {key: record for key, record in records.items() if "lost" not in record}
    tasks = {task for task, _ in measured}
    levels = sorted(LEVELS, key=lambda c: -1 if c is None else c)
    rows, left_out = _kept(old, _MIX, tasks), _kept(old, _OUT, tasks)
    best = _kept(old, _BEST_OF, tasks)
    for task in sorted(tasks):
        of_levels = [measured.get((task, c)) for c in levels]
        plain = measured.get((task, None))
        commits = sorted({record["commit"] for record in of_levels if record})
        commit = ", ".join(f"`{name}`" for name in commits)
        if not in_default_mix(task):
            if plain is not None:
                left_out.append((f"`{task}`", *_policies(plain)[-1], reason_for(task), commit))
            continue
        prior = f"{plain['prior']:.2f}" if plain else "–"
        rows.append((f"`{task}`", prior, *(_cell(record) for record in of_levels), commit))
        for c, record in zip(levels, of_levels, strict=True):
            if record and max(record[name]["mean"] for name in _BEST) >= 0.25:
                best.extend((f"`{task}`", _level(c), *policy) for policy in _policies(record))
    in_mix = {row[0] for row in rows if in_default_mix(row[0].strip("`"))}
    tables = {
        _CUT: _table(("task", "end", "reason", "in their place"), _cuts()),
        _MIX: _ALL
        + _table(("task", "prior", *map(_level, levels), "commit"), sorted(row for row in rows if row[0] in in_mix)),
        _BEST_OF: _MOST
        + _table(
            ("task", "level", "policy", "fully right", "mean"),
            sorted((row for row in best if row[0] in in_mix), key=lambda row: row[0]),
        ),
        _OUT: _table(
            ("task", "best policy at default options", "fully right", "mean", "left out because", "commit"),
            sorted(left_out),
        ),
    }
    texts = [f"\n## {title}\n\n{text}" for title, text in tables.items()]
    return _head(records, measured) + "".join(texts) + "\n" + old[old.index(f"## {_AFTER}") :]


def _head(records: Mapping[tuple[str, float | None], Any], measured: Mapping[tuple[str, float | None], Any]) -> str:
    lost = [f"`{task}` at {_level(c)}" for task, c in records.keys() - measured.keys()]
    answers = sorted(record["policies"] for record in measured.values())
    judged = [record[name] for record in measured.values() for name in _BEST]
    confirmed, compared = (sum(result.get(key, 0) for result in judged) for key in ("confirmed", "compared"))
    return _HEAD.format(
        date=time.strftime("%Y-%m-%d"),
        levels=len(measured),
        tasks=len({task for task, _ in measured}),
        texts=len(attacks([])) - len(POLICIES),
        policies=f"{answers[0]} to {answers[-1]:,}",
        items=ITEMS,
        known=LEARNED // 2,
        confirmed=f"{confirmed:,} of {compared:,}",
        lost=f" Too slow: {', '.join(sorted(lost))}." if lost else "",
    )


def _cuts() -> list[Row]:
    """What is not used because a policy is right too often."""
    cuts: list[Row] = []
    for task in task_names():
        for end, reason in why_cut(task).items():
            if "right on" in reason:
                instead = f"`{json.dumps(base_options(task))}`" if end == "defaults" else ""
                cuts.append((f"`{task}`", "upstream's defaults" if instead else end, reason, instead))
    return cuts


def _kept(old: str, title: str, measured: Container[str]) -> list[Row]:
    """The rows of a table of the old page, but for those of tasks that were measured again."""
    section = old[old.index(f"## {title}\n") :]
    section = section[: section.index("\n## ")]
    rows = [tuple(re.split(r"(?<!\\) \| ", line[2:-2])) for line in section.splitlines() if line.startswith("| `")]
    return [row for row in rows if row[0].strip("`") not in measured]


def _level(complexity: float | None) -> str:
    return "default" if complexity is None else f"c = {complexity:g}"


def _cell(record: dict[str, Any] | None) -> str:
    if record is None:
        return "–"
    right, mean = record["most_right"]["right"], record["highest"]["mean"]
    return f"{right:.2f}" + (f" ({mean:.2f})" if mean >= right + 0.02 else "")


def _policies(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The policies that are most often right and that score most, each once."""
    results = {record[name]["policy"]: record[name] for name in _BEST}
    return [
        (policy.replace("|", "\\|").replace("\n", " "), f"{result['right']:.2f}", f"{result['mean']:.2f}")
        for policy, result in results.items()
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--state", type=Path, default=Path("/tmp/attack_levels.jsonl"))
    arguments = parser.parse_args()
    if arguments.tasks:
        kept = [record for record in _read(arguments.state).values() if record["task"] not in arguments.tasks]
        arguments.state.write_text("".join(f"{json.dumps(record)}\n" for record in kept))
    measure(arguments.tasks or task_names(), arguments.state)
    PAGE.write_text(page(_read(arguments.state), PAGE.read_text()))


if __name__ == "__main__":
    main()
