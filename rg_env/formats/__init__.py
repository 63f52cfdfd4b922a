"""Records of other programs, made into dumps, and dumps made into theirs.

To add a format, write a function of a record and its `Place`, in `row_formats.py` or in a file of its own. For each
rollout it yields `one_rollout(conversation, reward, group, **facts)` of `records.py`, which says what the arguments
are; a row that may be one turn of a rollout has a `turn`, one that the program may save again a `key`. The function
takes values with `get`, `get_reward` and `as_messages`, which refuse wrong types, and raises ValueError with one line
for a record that does not fit. Nothing is guessed: what the program did not save is left out, also the phase, and a
reward that is not known is NaN. Add the function to `FORMATS` (`Format` has what can be said of it), and under the
same name to `_IMPORTS` in cli/exchange.py, which makes the command; a line to the list of formats in docs/dumps.md; a
record to `RECORDS` in tests/formats/test_odd_values.py, which puts wrong values everywhere; and a test to
tests/formats/test_programs.py. If the program can be run, let tests/formats/make_files.py write a file with it.
"""

from rg_env.dump import Phase
from rg_env.dump.files import COMPRESSED
from rg_env.formats.atif import atif_document, atif_rows, trials_without_trajectory
from rg_env.formats.carry import ExportedDocuments, export_records
from rg_env.formats.importing import Format, Imported, import_records
from rg_env.formats.nemo_gym import gym_rows
from rg_env.formats.row_formats import (
    atropos_rows,
    folder_of_evaluations,
    skyrl_rows,
    trl_remark,
    trl_rows,
    verl_remark,
    verl_rows,
)
from rg_env.formats.together import without_copies, without_overlap
from rg_env.formats.verifiers_traces import episode_of, episode_rows


def _compressed_too(name: str) -> tuple[str, ...]:
    """Return the pattern of a file's name, and those of the same file compressed."""
    return (name, *(f"{name}{ending}" for ending in COMPRESSED))


_LINES = _compressed_too("*.jsonl")
_TRACES = _compressed_too("traces.jsonl")
_CHUNKS = _compressed_too("[0-9][0-9][0-9][0-9][0-9].jsonl")
"""What prime-rl fills one after the other, in `monitors/file/traces/stream`."""
_BEFORE_TRACES = ("results.jsonl", "*rollouts.jsonl")
FORMATS = {
    "atif": Format(
        program="ATIF",
        files=(("trajectory*.json",), ("*.json", *_LINES)),
        # Simulated users, what an agent made, subagents, and continuations, which are read with what they continue.
        skips=r"(^|/)(user-agent|artifacts)/|\.summarization-[^/]*$|\.cont-\d+\.json$",
        rows=atif_rows,
        phase=Phase.EVAL,
        once=without_copies,
        left_out=trials_without_trajectory,
        reads_reward=True,
    ),
    "verifiers": Format(
        program="verifiers",
        files=((*_TRACES, *_CHUNKS), _BEFORE_TRACES),
        skips=r"(^|/)(annotations|live)/",
        rows=episode_rows,
        phase=Phase.EVAL,
        once=without_copies,
        reads_reward=True,
    ),
    "trl": Format(
        program="TRL",
        files=(("completions_*.parquet",),),
        rows=trl_rows,
        shortest=1,  # an evaluation replaces the completions of its step
        once=without_overlap,
        repeats_evaluations=True,
        run_of=lambda path: path.parent,
        remark=trl_remark,
        reads_reward=True,
    ),
    "skyrl": Format(program="SkyRL", files=(_LINES,), rows=skyrl_rows, has_turns=True, run_of=folder_of_evaluations),
    "verl": Format(
        program="verl",
        files=(_LINES,),
        rows=verl_rows,
        has_turns=True,
        run_of=lambda path: path.parent,
        remark=verl_remark,
        reads_reward=True,
    ),
    "atropos": Format(
        program="Atropos",
        files=(_LINES,),
        rows=atropos_rows,
        never_saved="Atropos saves no group that is all correct: rates are too low",
    ),
    "nemo-gym": Format(
        program="NeMo Gym",
        files=(_compressed_too("*rollouts.jsonl"), _LINES),
        skips=r"_(failures|materialized_inputs|reward_profiling|aggregate_metrics|agent_metrics)\.jsonl",
        rows=gym_rows,
        phase=Phase.EVAL,
        run_of=lambda path: path.parent,
        reads_reward=True,
    ),
}
"""What can be imported, by the command's name."""
DOCUMENTS = {"atif": atif_document, "traces": episode_of}
"""What can be exported: the document of a rollout."""

__all__ = ["DOCUMENTS", "FORMATS", "ExportedDocuments", "Format", "Imported", "export_records", "import_records"]
