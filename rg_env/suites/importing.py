"""Imports the results of Reasoning Gym's evaluations as a dump: scored by our scorer, with the published score beside.

Invariant: a response is scored only if the item that its config makes today has the published question. Otherwise it
has the status `unscorable`, is counted, and keeps its published score. Memory does not grow with the size of the files.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from rg_env.choices import ResponseFormat
from rg_env.config import RGDumpConfig
from rg_env.dump import DumpWriter, GroupRecord, Phase, new_run_id, write_manifest
from rg_env.errors import ConfigError, DumpError
from rg_env.prompts import build_messages
from rg_env.rewards import settle_group
from rg_env.rollouts.group import JudgedRollout, Origin, group_record
from rg_env.scoring import Scorer, Verdict, parse_response
from rg_env.suites.items import DEFAULT_SIZE, SuiteTask
from rg_env.suites.published import PublishedDataset, PublishedResponse, PublishedResult, read_results
from rg_env.suites.suite import Fingerprint
from rg_env.tasks import Item, decode_entry, encode_entry

_AHEAD = 8
"""Results in progress per worker."""
_DIFFERS = "the installed reasoning-gym makes another question from the published config"


@dataclass(slots=True)
class ImportedTask:
    """Counts and sums of scores of one task in one run.

    Attributes:
        items: results imported.
        unscorable: items whose question is not the one that the config makes today.
        responses: scorable responses, over which the following are sums.
        published: of the published scores.
        upstream: of Reasoning Gym's `score_answer` today, on the bare answer; 0 where our guard or format refuses it.
        ours: of the base scores.
    """

    items: int = 0
    unscorable: int = 0
    responses: int = 0
    published: float = 0.0
    upstream: float = 0.0
    ours: float = 0.0

    def add(self, group: GroupRecord) -> None:
        self.items += 1
        scored = [rollout for rollout in group.rollouts if rollout.status.is_counted]
        self.unscorable += bool(group.rollouts) and not scored
        self.responses += len(scored)
        self.published += sum(rollout.published_score or 0.0 for rollout in scored)
        self.upstream += sum(rollout.raw_score or 0.0 for rollout in scored)
        self.ours += sum(rollout.base_score for rollout in scored)


@dataclass(slots=True)
class ImportedRun:
    """One imported run.

    Attributes:
        name: of its folder or file.
        model: as its summary says; the name if there is none.
        folder: of its dump.
        tasks: by name.
    """

    name: str
    model: str
    folder: Path
    run_id: str
    tasks: dict[str, ImportedTask] = field(default_factory=dict)

    def mean(self, score: str) -> float:
        """Mean over tasks of the mean of `published`, `upstream` or `ours`, over scorable responses."""
        means = [getattr(task, score) / task.responses for task in self.tasks.values() if task.responses]
        return math.fsum(means) / len(means) if means else math.nan


def import_evaluations(
    path: Path, out: Path, *, workers: int, advance: Callable[[int], object] = lambda _: None
) -> list[ImportedRun]:
    """Import the results of Reasoning Gym's evaluations.

    Args:
        path: a result file, the folder of a run, or a folder of such folders.
        out: folder for the dump: directly if there is one run, otherwise in a subfolder for each.
        workers: number of responses scored in parallel, at least 1.
        advance: called with the size of each finished file in bytes.

    Returns:
        the runs, by name.

    Raises:
        DumpError: there are no results, a file is not JSON, or `out` is not empty.
        ScorerPoolError: scorers cannot be started.
    """
    files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
    if not files:
        raise DumpError(f"{path} has no JSON files: give a result file, a run's folder or a folder of runs")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DumpError(f"{out} is not empty: choose another folder for --out")
    config = RGDumpConfig(format=ResponseFormat.LENIENT, dump_eval_rollouts=True)
    config.scorer.workers = workers
    runs: dict[Path, _Run] = {}
    roots = {_root_of(file) for file in files if _has_results(file)}
    if not roots:
        raise DumpError(f"{path} has no results of an evaluation: no `results` with a `question` in its JSON files")
    with ExitStack() as stack:
        scorer = stack.enter_context(Scorer(**asdict(config.scorer)))
        threads = stack.enter_context(ThreadPoolExecutor(workers))
        for file in sorted(files, key=lambda file: (file.stem, file)):  # by task, whose items are then made once
            root = _root_of(file)
            if root in roots:
                if root not in runs:
                    folder = out if len(roots) == 1 else out / root.name.removesuffix(".json")
                    runs[root] = stack.enter_context(_Run(root, folder, config))
                runs[root].import_file(file, scorer, threads, workers * _AHEAD)
            advance(file.stat().st_size)
        for run in runs.values():
            run.finish()
    return sorted((run.imported for run in runs.values()), key=lambda run: run.name)


def _has_results(file: Path) -> bool:
    return next(read_results(file), None) is not None


def _root_of(file: Path) -> Path:
    """The folder of a run for `RUN/CATEGORY/TASK.json`, where RUN has a summary; otherwise the file."""
    run = file.parent.parent
    return run if (run / "summary.json").is_file() else file.parent if file.name == "results.json" else file


class _Run:
    """Writes the dump of one run."""

    def __init__(self, root: Path, folder: Path, config: RGDumpConfig) -> None:
        self.imported = ImportedRun(root.name.removesuffix(".json"), _model_of(root), folder, new_run_id())
        self._config = replace(config, dump_dir=str(folder))
        self._writer = DumpWriter.from_config(self._config, self.imported.run_id, 1)
        self._fingerprint = Fingerprint()
        self._call = 0

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def import_file(self, file: Path, scorer: Scorer, threads: ThreadPoolExecutor, ahead: int) -> None:
        for result, item, verdicts in _judged(file, scorer, threads, ahead):
            group = self._record(result, item, verdicts)
            self._fingerprint.add(item.task, result.question)
            self.imported.tasks.setdefault(item.task, ImportedTask()).add(group)
            if not self._writer.submit([group]).result():
                raise DumpError(f"{self.imported.folder} cannot be written: is the disk full?")

    def finish(self) -> None:
        """Write the manifest, which has the fingerprint of all questions."""
        write_manifest(
            self.imported.folder,
            self.imported.run_id,
            {
                "attempt": 1,
                "model": self.imported.model,
                "settings": self._config.as_nested(),
                "suite": self._fingerprint.as_manifest(f"published/{self.imported.name}"),
                "imported": "reasoning-gym-eval",
            },
        )

    def _record(self, result: PublishedResult, item: Item, verdicts: Sequence[Verdict]) -> GroupRecord:
        prompt = build_messages(result.question, item.task, result.dataset.system_prompt)
        judged = [
            JudgedRollout(
                verdict=verdict,
                response_tokens=None,
                stop_reason=None,
                conversation=[*prompt, {"role": "assistant", "content": response.text or ""}],
                repetition=number,
                stopwatch=None,
            )
            for number, (response, verdict) in enumerate(zip(result.responses, verdicts, strict=True))
        ]
        earned = settle_group(judged, self._config, max_length=1, penalize=False)
        origin = Origin(self.imported.run_id, 1, Phase.EVAL, None, self._call)
        self._call += 1
        group = group_record(origin, item, item.id, judged, earned, self._config.solved_at)
        rollouts = [
            replace(rollout, published_score=response.score)
            for rollout, response in zip(group.rollouts, result.responses, strict=True)
        ]
        return replace(group, rollouts=rollouts)


def _model_of(root: Path) -> str:
    """The model that the summary or the results of a run name."""
    try:
        content = json.loads((root / "summary.json").read_bytes())
        model = content["model"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        model = None
    return model if isinstance(model, str) else root.name.removesuffix(".json")


def _judged(
    file: Path, scorer: Scorer, threads: ThreadPoolExecutor, ahead: int
) -> Iterator[tuple[PublishedResult, Item, list[Verdict]]]:
    waiting: deque[tuple[PublishedResult, Item, list[Future[Verdict]]]] = deque()

    def take() -> tuple[PublishedResult, Item, list[Verdict]]:
        result, item, verdicts = waiting.popleft()
        return result, item, [verdict.result() for verdict in verdicts]

    for result in read_results(file):
        if not result.responses:
            continue
        item, problem = _item_of(result)
        judging = [threads.submit(_judge, scorer, item, problem, response) for response in result.responses]
        waiting.append((result, item, judging))
        if len(waiting) >= ahead:
            yield take()
    while waiting:
        yield take()


def _judge(scorer: Scorer, item: Item, problem: str | None, response: PublishedResponse) -> Verdict:
    if response.text is None:
        return Verdict.no_response("the file has no response")
    if problem is not None:
        return Verdict.unscorable(parse_response(response.text, format=ResponseFormat.LENIENT), problem)
    return scorer.judge(item.entry, response.text, item.config, format=ResponseFormat.LENIENT)


def _item_of(result: PublishedResult) -> tuple[Item, str | None]:
    """The item that the config makes, and None; or what is published of it, and why it cannot be scored."""
    dataset = result.dataset
    try:
        item = _made(_task(dataset), result.index)
        if item.entry["question"] == result.question:
            return item, None
        problem = _DIFFERS
    except ConfigError as error:
        problem = str(error)
    entry = {"question": result.question, "answer": result.answer, "metadata": {"source_dataset": dataset.task}}
    item = Item(
        id=f"{dataset.task}-published-{dataset.seed}-{result.index}",
        task=dataset.task,
        split="eval",
        index=result.index,
        seed=dataset.seed or 0,
        entry=entry,
        entry_json=encode_entry(entry),
        config=dict(dataset.options),
        config_json=encode_entry(dict(dataset.options)),
    )
    return item, problem


def _task(dataset: PublishedDataset) -> SuiteTask:
    if dataset.seed is None:
        raise ConfigError("the published config has no seed")
    size = DEFAULT_SIZE if dataset.size is None else dataset.size
    return _suite_task(dataset.task, encode_entry(dict(dataset.options)), size, dataset.seed)


@lru_cache(maxsize=4)
def _suite_task(task: str, options: str, size: int, seed: int) -> SuiteTask:
    return SuiteTask(task, decode_entry(options), size, seed)


@lru_cache(maxsize=256)
def _made(task: SuiteTask, index: int) -> Item:
    return task.item(index)
