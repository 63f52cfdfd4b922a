"""Files that are compressed, and files that are renamed while they are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from backports import zstd

from rg_env.config import RGDumpConfig
from rg_env.dump import DumpWriter, open_lines, open_run
from tests.dump.records import RUN_ID, group


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    with DumpWriter(tmp_path, RUN_ID, 1, RGDumpConfig(groups_per_file=3)) as writer:
        writer.submit([group(k) for k in range(7)])
    return tmp_path


def _compress(path: Path) -> Path:
    compressed = path.with_name(path.name + ".zst")
    compressed.write_bytes(zstd.compress(path.read_bytes()))
    return compressed


def test_files_that_get_their_later_names_after_they_were_found_are_read(dump):
    final = next(dump.glob("*_ledger_*_0000.jsonl"))
    part = final.with_name(final.name + ".part")
    content = final.read_bytes()
    with open_lines(part) as lines:
        assert lines.read() == content
    _compress(final)
    final.unlink()
    for name in (part, final):
        with open_lines(name) as lines:
            assert b"".join(lines) == content
    with pytest.raises(FileNotFoundError), open_lines(dump / "nothing.jsonl.part"):
        pass


def test_damaged_compressed_data_cost_only_what_comes_after_them(dump):
    path = _compress(next(dump.glob("*_ledger_*_0000.jsonl")))
    path.with_suffix("").unlink()
    path.write_bytes(path.read_bytes()[:-30])
    for read in (lambda found: list(found.ledger()), lambda found: found.ledger_frame()):
        found = open_run(dump)
        read(found)
        (problem,) = found.problems
        assert "0000.jsonl.zst" in str(problem)
        assert "damaged zstd data" in str(problem)
