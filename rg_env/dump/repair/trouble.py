"""The kinds of problems in a dump, each with advice."""

from __future__ import annotations

from rg_env.dump.repair.findings import Kind

_RECOVER = "`rg-env dumps recover` writes a copy without it"
_ASK = "find out who changed the files; `rg-env dumps replay` shows what the numbers would be"


class Trouble(Kind):
    """A kind of finding of `validate`."""

    DAMAGED = "damaged_line", "`rg-env dumps recover` saves what is whole in it"
    CONTRADICTION = "contradiction", _ASK
    DUPLICATE = "duplicate", _RECOVER
    ORDER = "order", _ASK
    NO_LEDGER_LINE = "no_ledger_line", "`rg-env dumps recover` makes it again from the text"
    NO_TEXT = "no_text", "look for the missing file; `rg-env dumps recover` marks the text as lost"
    DISAGREEMENT = "disagreement", "`rg-env dumps recover` makes the ledger line again from the text"
    UNKNOWN_GROUP = "unknown_group", _RECOVER
    GAP = "gap", "look for the missing file; `rg-env dumps recover` closes the gap"
    UNFINISHED = "unfinished", "resume the run, or use `rg-env dumps recover`"
    EMPTY = "empty_file", _RECOVER
    OVERFULL = "overfull", _ASK
    SETTINGS = "settings", "compare the manifest; were the settings or the files changed by hand?"
    WRONG_FILE = "wrong_file", "move the line to the file it belongs to, or restore the file's name"
    MANIFEST = "manifest", "restore it from a backup; without it settings cannot be checked"
