"""Dumps: the records of a run, written so that they survive a crash, and read back.

Imports neither torch nor ray nor skyrl.
"""

from rg_env.dump.column_types import ColumnTypes
from rg_env.dump.entry import open_run
from rg_env.dump.files import check_folder, open_lines
from rg_env.dump.manifest import Attempt, Manifest, new_run_id, write_manifest
from rg_env.dump.opening import open_dump
from rg_env.dump.reader import Dump
from rg_env.dump.run_file import claim_run
from rg_env.dump.run_files import Run
from rg_env.dump.schema import (
    SCHEMA_VERSION,
    BadLineError,
    FileKind,
    GroupRecord,
    LedgerRecord,
    NewerSchemaError,
    NotKept,
    Outcome,
    Phase,
    RolloutRecord,
    StepRecord,
    TrainedRecord,
    from_line,
    group_id,
    has_no_signal,
    ledger_line,
    outcome_of,
    to_line,
)
from rg_env.dump.writer import DumpWriter, close_all, route

__all__ = [
    "SCHEMA_VERSION",
    "Attempt",
    "BadLineError",
    "ColumnTypes",
    "Dump",
    "DumpWriter",
    "FileKind",
    "GroupRecord",
    "LedgerRecord",
    "Manifest",
    "NewerSchemaError",
    "NotKept",
    "Outcome",
    "Phase",
    "RolloutRecord",
    "Run",
    "StepRecord",
    "TrainedRecord",
    "check_folder",
    "claim_run",
    "close_all",
    "from_line",
    "group_id",
    "has_no_signal",
    "ledger_line",
    "new_run_id",
    "open_dump",
    "open_lines",
    "open_run",
    "outcome_of",
    "route",
    "to_line",
    "write_manifest",
]
