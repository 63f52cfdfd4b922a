"""Write a file aside, then put it in place.

Invariant: a reader finds the old file or the whole new one, never a part; a failed write leaves nothing behind. Not
covered: a power cut (nothing is synced), and a process that is killed leaves its draft, a hidden file.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a draft in the same folder, to be written in the block; on success the draft replaces `path`.

    Raises:
        OSError: from the block, or the draft cannot be renamed.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield draft
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
