"""Imports published results of Reasoning Gym as dumps, and makes the tables of evidence/leaderboard.md.

    python evidence/leaderboard.py import zero-shot/easy --out dumps/easy
    python evidence/leaderboard.py tables dumps/easy/*

`import` reads what Reasoning Gym's `eval/eval.py` writes: `RUN/CATEGORY/TASK.json`, or `results.json` with all tasks,
also the older layout, one completion per item. Each item is made again from its published config. If its question
is the published one, the responses are scored by rg_env in the lenient format; otherwise they have the status
`unscored`. The published score is kept beside ours.

`tables` recounts everything from the ledgers. All means are over tasks of means over responses. `format`, `guard`,
`failure`, `changed` and `partial` are what moves the published score to ours: responses that break the format, that the
guard rejects, whose scorer failed or which today's scorer and corrected answers score otherwise, and partial credit
that does not count.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from rg_env.base.choices import ResponseFormat
from rg_env.base.errors import ConfigError, DumpError, RGEnvError
from rg_env.base.processes import usable_cores
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, DumpWriter, GroupRecord, Phase, new_run_id, open_run, write_manifest
from rg_env.dump.manifest import end_manifest
from rg_env.evaluate.suites import SuiteTask, suite_facts
from rg_env.rollouts.rewards import set_rewards
from rg_env.rollouts.rollout import Origin, Rollout, group_record
from rg_env.rows.prompts import Prompts
from rg_env.scoring import AnswerScore, Scorer, Status, Verdict, parse_response
from rg_env.scoring.types import UNCOUNTED
from rg_env.tasks import Item, encode_entry

DIFFERS = "the installed reasoning-gym makes another question from the published config"
CAUSES = ("format", "guard", "failure", "changed", "partial")
Judge = Callable[[Item, str | None, Sequence[str | None]], Iterable[Verdict]]
"""Scores the responses to an item, given with why it cannot be scored, if so."""


@dataclass(frozen=True)
class Published:
    """The results of one task: each has a list of `completions`, or the keys of its only one."""

    task: str
    options: dict[str, Any]
    system_prompt: str | None
    results: Sequence[Any]

    @cached_property
    def config(self) -> str:
        """The published config as JSON, which says which items are meant."""
        return json.dumps(self.options, sort_keys=True)

    def item(self, index: int) -> tuple[Item, str | None]:
        """The item that the config makes, and None; or what is published of it, and why it cannot be scored."""
        result, seed = self.results[index], self.options.get("seed", 0)
        try:
            item = make_item(self.task, self.config, index)
            if item.entry["question"] == result["question"]:
                return item, None
            problem = DIFFERS
        except ConfigError as error:
            problem = str(error)
        entry = {key: result.get(name) for key, name in (("question", "question"), ("answer", "expected_answer"))}
        entry["metadata"] = {"source_dataset": self.task}
        rest = entry, encode_entry(entry), self.options, encode_entry(self.options)
        return Item(f"{self.task}-published-{seed}-{index}", self.task, "eval", index, seed, *rest), problem

    def responses(self, index: int) -> Iterator[tuple[str | None, float | None]]:
        """Text and published score of each completion; None for what there is not."""
        for one in self.results[index].get("completions", [self.results[index]]):
            text, answer, score = (one.get(key) for key in ("full_model_response", "model_answer", "score"))
            if not isinstance(text, str):
                text = f"<answer>{answer}</answer>" if isinstance(answer, str) else None
            yield text, float(score) if type(score) in (int, float) else None


# All runs of a configuration have the same items, and making them takes longer than scoring the responses to them.
@functools.cache
def make_item(task: str, config: str, index: int) -> Item:
    """Return an item of a published config. Raises ConfigError: the installed reasoning-gym cannot make it."""
    return items_of(task, config).item(index)


@functools.cache
def items_of(task: str, config: str) -> SuiteTask:
    """Return the items of a published config. Raises ConfigError: the installed reasoning-gym cannot make them."""
    options = json.loads(config)
    if "seed" not in options:
        raise ConfigError("the published config has no seed")
    seed, size = options.pop("seed"), options.pop("size", 500)
    return SuiteTask(task, options, size, seed)


def published_in(file: Path) -> Iterator[Published]:
    """The tasks of a file; none if it has other content.

    Raises:
        DumpError: the file is not JSON.
    """
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DumpError(f"{file} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        return
    for found in (content, *(found for one in content.get("categories", []) for found in one.get("datasets", []))):
        name, config, results = (found.get(key) for key in ("name", "config", "results"))
        if isinstance(name, str) and isinstance(config, dict) and isinstance(results, list):
            options = config | config.pop("params", {})
            yield Published(name, options, found.get("system_prompt"), results)


def group_of(published: Published, index: int, origin: Origin, config: RGDumpConfig, judge: Judge) -> GroupRecord:
    """The record of one result, with the published scores beside ours."""
    item, problem = published.item(index)
    prompt = Prompts(published.system_prompt).messages(item.task, published.results[index]["question"])
    texts, scores = zip(*published.responses(index), strict=True)
    judged = [
        Rollout(verdict, None, None, [*prompt, {"role": "assistant", "content": text or ""}], number)
        for number, (text, verdict) in enumerate(zip(texts, judge(item, problem, texts), strict=True))
    ]
    set_rewards(judged, config, max_length=1, penalize=False)
    group = group_record(origin, item, item.id, judged, config.solved_at)
    rollouts = [
        msgspec.structs.replace(rollout, published_score=score)
        for rollout, score in zip(group.rollouts, scores, strict=True)
    ]
    return msgspec.structs.replace(group, rollouts=rollouts)


def import_run(root: Path, folder: Path, judge: Judge) -> None:
    """Write the dump of one run.

    Raises:
        DumpError: a file is not JSON, or the folder cannot be written.
    """
    run_id, questions = new_run_id(), list[tuple[str, str]]()
    config = RGDumpConfig(format=ResponseFormat.LENIENT, dump_eval_rollouts=True, dump_dir=str(folder))
    files = [root] if root.is_file() else sorted(root.rglob("*.json"))
    with DumpWriter(folder, run_id, 1, config) as writer:
        for published in (published for file in files for published in published_in(file)):
            for index in range(len(published.results)):
                if any(published.responses(index)):
                    origin = Origin(run_id, 1, Phase.EVAL, None, len(questions))
                    group = group_of(published, index, origin, config, judge)
                    if not writer.submit([group]).result():
                        raise DumpError(f"{folder} cannot be written: is the disk full?")
                    questions.append((published.task, published.results[index]["question"]))
    summary, name = root / "summary.json", root.name.removesuffix(".json")
    model = json.loads(summary.read_bytes()).get("model") if summary.is_file() else None
    suite = suite_facts(f"published/{name}", questions)
    content = {"attempt": 1, "model": model or name, "settings": config.as_nested(), "suite": suite}
    write_manifest(folder, run_id, Attempt.read(content | {"kind": "import", "imported": "reasoning-gym-eval"}))
    end_manifest(folder, run_id, 1, 0)


def import_all(path: Path, out: Path) -> list[Path]:
    """The dumps of the runs in a folder: `out` for a single run, else a subfolder each.

    Raises:
        RGEnvError: there are no results, a file is not JSON, `out` is not empty, or scorers cannot be started.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DumpError(f"{out} is not empty: choose another folder for --out")
    files = [path] if path.is_file() else sorted(path.rglob("*.json"))
    roots = [file.parent for file in files if file.name == "summary.json"]
    roots = roots or [file for file in files if any(published_in(file))]
    if not roots:
        raise DumpError(f"{path} has no results: name a result file, a run's folder, or a folder of runs")
    folders = [out] if len(roots) == 1 else [out / root.name.removesuffix(".json") for root in roots]
    workers = usable_cores()
    with Scorer(workers=workers) as scorer, ThreadPoolExecutor(workers) as threads:

        def judge_one(item: Item, problem: str | None, text: str | None) -> Verdict:
            if text is None:
                return Verdict.no_response("the file has no response")
            if problem is not None:
                parsed = parse_response(text, format=ResponseFormat.LENIENT)
                return Verdict(parsed, AnswerScore.without_score(Status.UNSCORED, problem))
            return scorer.score_response(item.entry, text, item.config, format=ResponseFormat.LENIENT)

        def judge(item: Item, problem: str | None, texts: Iterable[str | None]) -> Iterable[Verdict]:
            return threads.map(lambda text: judge_one(item, problem, text), texts)

        for root, folder in zip(roots, folders, strict=True):
            import_run(root, folder, judge)
            print(folder, flush=True)
    return folders


def by_task(folder: Path) -> pl.DataFrame:
    """Means over the responses of each task, and for each cause the number of responses that it changed."""
    raw, published = pl.col("raw_score").fill_null(0.0), pl.col("published_score").fill_null(0.0)
    status, counted = pl.col("status"), pl.col("status").is_in(list(UNCOUNTED)).not_()
    cause = (
        pl.when(pl.col("violation") != "")
        .then(pl.lit("format"))
        .otherwise(status.replace_strict({"ok": "changed", "rejected": "guard"}, default="failure"))
    )
    steps = {name: pl.when(cause == name).then(raw - published).otherwise(0.0) for name in CAUSES[:-1]}
    steps["partial"] = pl.col("base_score") - raw
    means = {"published": published, "upstream": raw, "ours": pl.col("base_score"), **steps}
    return (
        open_run(folder)
        .ledger_frame()
        .group_by("task")
        .agg(
            pl.len().alias("responses"),
            (status == "unscored").sum().alias("unscored"),
            published.mean().alias("published, all"),
            *(value.filter(counted).mean().alias(name) for name, value in means.items()),
            *((value.filter(counted).abs() > 1e-9).sum().alias(f"{name} responses") for name, value in steps.items()),
        )
    )


def tables(folders: Iterable[Path]) -> Iterator[str]:
    """The tables, line by line."""
    every = pl.concat(by_task(folder).with_columns(run=pl.lit(folder.name)) for folder in folders)
    scores = ("published, all", "published", "upstream", "ours")
    runs = every.group_by("run").agg(pl.col("responses", "unscored").sum(), pl.col(*scores, *CAUSES).mean())
    yield f"| {' | '.join(['run', 'responses', 'unscored', *scores, *CAUSES])} |"
    yield "|---|" + "---|" * (2 + len(scores) + len(CAUSES))
    for row in runs.sort("published, all", descending=True).iter_rows(named=True):
        cells = [
            row["run"],
            f"{row['responses']:,}",
            f"{row['unscored']:,}",
            *(f"{row[name]:.3f}" for name in scores),
        ]
        yield f"| {' | '.join([*cells, *(f'{row[name]:+.4f}' for name in CAUSES)])} |"
    for cause in CAUSES:
        effect = every.group_by("task").agg(pl.col(cause).sum() / runs.height, pl.col(f"{cause} responses").sum())
        largest = effect.filter(pl.col(cause).abs() >= 0.005).sort(pl.col(cause).abs(), descending=True)
        shown = (f"`{task}` {change:+.3f} ({number})" for task, change, number in largest.iter_rows())
        yield f"\n{cause}: {', '.join(shown) or '-'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    importing = commands.add_parser("import", help="make a dump of each run from published results")
    importing.add_argument("results", type=Path, help="a result file, a run's folder, or a folder of runs")
    importing.add_argument("--out", type=Path, required=True, help="empty folder")
    commands.add_parser("tables", help="print the tables").add_argument("dumps", type=Path, nargs="+")
    given = parser.parse_args()
    try:
        folders = import_all(given.results, given.out) if given.command == "import" else given.dumps
    except RGEnvError as error:
        sys.exit(f"leaderboard: {error}")
    print("\n".join(tables(folders)))


if __name__ == "__main__":
    main()
