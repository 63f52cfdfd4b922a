"""A dump as one HTML file: statistics, charts and a browser of groups.

Invariant: the file is self-contained (it opens from disk, without network), the same dump gives the same bytes, and
model output is never treated as markup or code: texts are compressed data that the page inserts as text nodes. The file
is written completely or not at all, and replaces another one only with `force`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from rg_env.analysis.reparse import MEANINGS
from rg_env.analysis.report.figures import sections, worst_tasks
from rg_env.analysis.report.groups import MAX_TEXT, Shown, groups_to_show
from rg_env.analysis.report.page import page
from rg_env.analysis.stats import SOLVED_AT, Measured, above_threshold_unsolved, measure_dump
from rg_env.atomic import replacing
from rg_env.dump import Dump
from rg_env.errors import DumpError
from rg_env.output import counted

MAX_GROUPS = 5_000
"""Default maximum number of groups in the browser."""
_SHOWN_PROBLEMS = 20


def build_report(dump: Dump, *, max_groups: int = MAX_GROUPS, solved_at: float = SOLVED_AT) -> str:
    """The report as HTML; the same dump gives the same text.

    Args:
        dump: from `open_run`, or a part of it. Statistics come from its ledger or, without one, from its texts, with
            the bias that `Dump.caveat` describes.
        max_groups: maximum number of groups in the browser; if there are more, a sample evenly spread over the steps.
        solved_at: a rollout is correct if its base score is at least this, in [0, 1], unless its group says otherwise.

    Raises:
        DumpError: the dump has no rollouts, or a file cannot be read.
    """
    found = measure_dump(dump, solved_at=solved_at)
    made = sections(found)  # before the groups are read: together, they need the most memory
    shown = groups_to_show(dump, found, max_groups)
    names = dump.names
    title = f"Run {next(iter(names.values()))}" if len(names) == 1 else f"{len(names)} runs"
    summary = {
        "solved_at": solved_at,
        "notes": [*_source(dump), *_missing(found, shown), *_unsolved(found), *_sampling(shown), *_problems(dump)],
        "runs": [  # without host and paths, because reports are shared
            {"run_id": run.run_id, "name": names[run.run_id], "model": run.model}
            | {key: (run.manifest or {}).get(key) for key in ("started", "attempt")}
            | {"settings": list(_settings(run.manifest or {}))}
            for run in dump.runs
        ],
        "violations": MEANINGS,
        "sections": [section | {"worst": list(worst_tasks(section, shown.groups, solved_at))} for section in made],
    }
    return page(title, summary, shown.groups)


def write_report(dump: Dump, out: str | Path, *, force: bool = False, **options: Any) -> Path:
    """Write the report to a file.

    Args:
        out: the file; its name ends in `.html`.
        force: replace a file of that name.
        options: as for `build_report`.

    Raises:
        DumpError: as `build_report`; or the file cannot be written, has another suffix, or exists already.
    """
    out = Path(out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise DumpError(f"{out}: the name of a report must end in .html")
    if out.exists() and not force:
        raise DumpError(f"{out} exists: choose another name, or replace it with --force")
    if not out.parent.is_dir():
        raise DumpError(f"{out} cannot be written: there is no folder {out.parent}")
    text = build_report(dump, **options)
    try:
        with replacing(out) as draft:
            draft.write_text(text, "utf-8")
    except OSError as error:
        raise DumpError(f"{out} cannot be written ({error.strerror})") from None
    return out


_SETTINGS = {
    "algorithm": "trainer.algorithm.advantage_estimator",
    "learning rate": "trainer.policy.optimizer_config.lr",
    "prompts per step": "trainer.train_batch_size",
    "rollouts per prompt": "generator.n_samples_per_prompt",
    "mini-batch": "trainer.policy_mini_batch_size",
    "KL loss": "trainer.algorithm.use_kl_loss",
    "temperature": "generator.sampling_params.temperature",
    "longest response": "generator.sampling_params.max_generate_length",
    "length penalty": "environment.skyrl_gym.rg_dump.length_penalty.kind",
    "seed": "trainer.seed",
    "seed of the questions": "environment.skyrl_gym.rg_dump.seed",
}
"""The settings of a run that the page shows, where the manifest has them."""


def _settings(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, path in _SETTINGS.items():
        value = reduce(
            lambda part, key: part.get(key) if isinstance(part, Mapping) else None,
            path.split("."),
            manifest.get("settings"),
        )
        if value is not None and not isinstance(value, (Mapping, list)):
            yield name, ("yes" if value else "no") if isinstance(value, bool) else str(value)


# The notes at the top of the page: how the statistics were computed, and what is missing or was skipped.


def _source(dump: Dump) -> list[str]:
    if dump.caveat:
        return [f"{dump.caveat[0].upper()}{dump.caveat[1:]}."]
    scope = "count every group and every rollout; they" if dump.has_every_group else "do not count every group; they"
    return [
        *(f"Missing: {what}." for what in dump.missing),
        f"Statistics and charts {scope} come from the ledger.",
        "Brackets and bands are 95 % confidence intervals, clustered by group.",
    ]


def _missing(found: Measured, shown: Shown) -> Iterator[str]:
    rollouts = found.rollouts
    lacking = {
        "steps (no curves, no heat map)": not rollouts["step"].count(),
        "token counts (no lengths)": not rollouts["response_tokens"].count(),
        "raw and tagged scores": not rollouts["raw_score"].count(),
        "violations, scoring failures and truncation": not any(group["schema_version"] for group in shown.groups),
    }
    absent = [name for name, is_absent in lacking.items() if is_absent]
    if absent:
        yield f"Not in this dump: {'; '.join(absent)}."


def _unsolved(found: Measured) -> Iterator[str]:
    if count := above_threshold_unsolved(found):
        yield f"{counted(count, 'group')} above the threshold, none solved: by partial credit alone."


def _sampling(shown: Shown) -> Iterator[str]:
    count = len(shown.groups)
    parts = [
        f"The browser has all {count:,} groups"
        if count == shown.total
        else f"The browser has {count:,} of {shown.total:,} groups, sampled evenly over the steps"
    ]
    if shown.with_text < count:
        parts.append(f"{shown.with_text:,} of them with their text (the dump settings decide which texts are kept)")
    yield ", ".join(parts) + "."
    if shown.thinned > 1:
        yield f"To keep this file small, only one in {shown.thinned} groups in the browser has its text."
    if shown.shortened:
        yield f"The middle of texts of more than {MAX_TEXT:,} characters is omitted ({shown.shortened:,} of them)."


def _problems(dump: Dump) -> Iterator[str]:
    problems = [f"Skipped: {problem}." for problem in dump.problems]
    yield from problems[:_SHOWN_PROBLEMS]
    if (more := len(problems) - _SHOWN_PROBLEMS) > 0:
        yield f"… and {more:,} more skipped lines."
