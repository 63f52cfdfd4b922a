"""Records of other programs, made into dumps, and dumps made into theirs.

To add a format, write a function of a record, its file and its place there, in `row_formats.py` or in a file of its
own. For each rollout it yields `one_rollout(conversation, reward, group, **facts)` of `records.py`, which says what the
arguments are; it takes values with `get`, `get_reward` and `as_messages`, which refuse wrong types, and raises
ValueError with one line for a record that does not fit. Nothing is guessed: what the program did not save is left out,
and a reward that is not known is NaN. Add the function to `FORMATS`, and under the same name to `_IMPORTS` in
cli/exchange.py, which makes the command; a row to the table of formats in docs/dumps.md; a record to `RECORDS` in
tests/formats/test_odd_values.py, which puts wrong values everywhere; and a test to tests/formats/test_programs.py. If
the program can be run, let tests/formats/make_files.py write a file with it.
"""

from rg_env.formats.atif import atif_document, atif_rows
from rg_env.formats.carry import ExportedDocuments, export_records
from rg_env.formats.importing import Format, Imported, import_records
from rg_env.formats.row_formats import atropos_rows, skyrl_rows, trl_rows, verl_rows
from rg_env.formats.verifiers_traces import episode_of, episode_rows

_LINES = ("*.jsonl", "*.jsonl.zst")
FORMATS = {
    "atif": Format("ATIF", ("*.json", *_LINES), atif_rows),
    "verifiers": Format("verifiers", ("traces.jsonl", "traces.jsonl.zst"), episode_rows),
    "trl": Format("TRL", ("completions_*.parquet",), trl_rows),
    "skyrl": Format("SkyRL", _LINES, skyrl_rows),
    "verl": Format("verl", _LINES, verl_rows),
    "atropos": Format("Atropos", _LINES, atropos_rows),
}
"""What can be imported, by the command's name."""
DOCUMENTS = {"atif": atif_document, "traces": episode_of}
"""What can be exported: the document of a rollout."""

__all__ = ["DOCUMENTS", "FORMATS", "ExportedDocuments", "Format", "Imported", "export_records", "import_records"]
