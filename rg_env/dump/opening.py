"""Opening the dump of a run: the lock first, then the manifest.

Invariant: the writer of the manifest holds the lock of the run, so that it is never that of a second process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rg_env.base.choices import Split
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump.manifest import Attempt, Manifest, new_run_id, read_manifest, write_manifest
from rg_env.dump.writer import DumpWriter


def open_dump(
    config: RGDumpConfig,
    kind: str,
    *,
    model: str,
    settings: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    attempt: int = 1,
    splits: Iterable[Split] = tuple(Split),
    **facts: Any,
) -> DumpWriter:
    """Open the dump of a run on our questions in `config.dump_dir`. Every trainer calls it.

    Args:
        kind: `train`, `eval` or `collect`.
        model: its name.
        settings: of the run, nested; None: those of `config`.
        run_id: of the run; None: a new one. `attempt`: its number, from 1.
        splits: those whose questions are asked.
        facts: further fields of `Attempt`.

    Raises:
        ConfigError: a file of questions, or what the audit left out of it, has changed since the run began.
        DumpError: the folder cannot be written, or another process writes this run.
    """
    from rg_env.scoring.audit import left_out_of_mix
    from rg_env.tasks.mix import read_spec
    from rg_env.tasks.questions import hashes_of

    run_id = run_id or new_run_id()
    earlier = read_manifest(Path(config.dump_dir), run_id) or Manifest()  # of the attempt that is resumed, if any
    before = earlier.questions_left_out
    left_out = left_out_of_mix(config.tasks, config.scorer, config.format, before, splits=splits)
    hashes = hashes_of(config.tasks, earlier.question_files)
    start = Attempt(
        attempt=attempt,
        kind=kind,
        model=model,
        settings=dict(settings or config.as_nested()),
        task_mix=read_spec(config.tasks),
        question_files=hashes,
        questions_left_out=left_out,
        **facts,
    )
    return open_with(config.dump_dir, run_id, start, config)


def open_with(folder: str | Path, run_id: str, start: Attempt, config: RGDumpConfig | None = None) -> DumpWriter:
    """Open a dump with this start of an attempt: of imports, and of trainers whose questions are not ours.

    Args:
        config: as of `DumpWriter`.

    Raises:
        DumpError: the folder cannot be written, or another process writes this run.
    """
    writer = DumpWriter(folder, run_id, start.attempt or 1, config)
    try:
        write_manifest(writer.folder, run_id, start)
    except BaseException:
        writer.close()
        raise
    return writer
