"""Finishes the files of a run that was killed and will not be resumed, as resumption does.

Invariant: no whole record is changed or removed. A kill at any moment loses nothing: another call does the rest.

Not covered: damage within files. Every reader skips damaged lines and says so.
"""

from __future__ import annotations

from pathlib import Path

from rg_env.dump.lock import RunLock
from rg_env.dump.read.dump import open_run
from rg_env.dump.write.resume import Leftovers, finish_leftovers
from rg_env.errors import DumpError


def recover(folder: str | Path) -> dict[str, Leftovers]:
    """Finish `.part` files, cut off torn last lines, and add ledger lines of texts that have none.

    Args:
        folder: a dump folder.

    Returns:
        what was done, by run.

    Raises:
        DumpError: no dump there, a run is being written now, or the folder cannot be written.
        NewerSchemaError: a file needs a later version of rg_env.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DumpError(f"{folder} is not a folder: only a whole dump folder can be recovered")
    done = {}
    for run in open_run(folder).runs:
        lock = RunLock(folder, run.run_id)
        try:
            done[run.run_id] = finish_leftovers(folder, run.run_id, search_all=True)
        except OSError as error:
            raise DumpError(f"{folder} cannot be written ({error})") from None
        finally:
            lock.release()
    return done
