"""Building the page from a dump, and writing it to disk.

Invariant: the file is written completely or not at all, and replaces another one only with `force`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rg_env.analysis.stats import SOLVED_AT
from rg_env.atomic import replacing
from rg_env.errors import DumpError

if TYPE_CHECKING:
    from rg_env.dump import Dump, Run

MAX_GROUPS = 5_000
"""Default maximum number of groups in the browser."""


def build_report(dump: Dump, *, max_groups: int = MAX_GROUPS, solved_at: float = SOLVED_AT) -> str:
    """The report as HTML; the same dump gives the same text.

    Args:
        dump: from `open_run`. Statistics come from its ledger or, without one, from its texts, with the bias that
            `Dump.caveat` describes.
        max_groups: maximum number of groups in the browser; if there are more, a sample evenly spread over the steps.
        solved_at: a rollout is correct if its base score is at least this, in [0, 1].

    Raises:
        DumpError: the dump has no rollouts, or a file cannot be read.
    """
    from rg_env.analysis.reparse import FAULTS
    from rg_env.analysis.report.explain import notes
    from rg_env.analysis.report.figures import leaderboard, sections
    from rg_env.analysis.report.page import page
    from rg_env.analysis.report.sample import take_sample
    from rg_env.analysis.report.worst import worst_tasks
    from rg_env.analysis.sample import sample_of

    rollouts = sample_of(dump).rollouts
    sample = take_sample(dump, rollouts, max_groups)
    made = sections(rollouts, sample.characters(), dump.levels_frame(), solved_at=solved_at)
    names = dump.names
    summary = {
        "solved_at": solved_at,
        "notes": notes(dump, rollouts, sample),
        "runs": [_about(run, names) for run in dump.runs],
        "leaderboard": leaderboard(rollouts, solved_at=solved_at),
        "violations": FAULTS,
        "sections": [
            asdict(section)
            | {"worst": [asdict(task) for task in worst_tasks(section, sample.groups, solved_at=solved_at)]}
            for section in made
        ],
    }
    return page(_title(dump), summary, sample.groups)


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


def _title(dump: Dump) -> str:
    names = list(dump.names.values())
    return f"Run {names[0]}" if len(names) == 1 else f"{len(names)} runs"


def _about(run: Run, names: Mapping[str, str]) -> dict[str, Any]:
    """The main facts of the manifest, without host and paths, because reports are shared."""
    manifest = run.manifest or {}
    return {
        "run_id": run.run_id,
        "name": names[run.run_id],
        "model": run.model,
        "started": manifest.get("started"),
        "attempt": manifest.get("attempt"),
    }
