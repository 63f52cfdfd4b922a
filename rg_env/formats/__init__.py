"""Records of other programs, made into dumps, and dumps made into theirs. CONTRIBUTING.md says how to add a format."""

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
