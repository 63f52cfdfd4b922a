"""The index of a dump: the same rows with its cache and without; a stale cache is not used; the dump stays as it is."""

from __future__ import annotations

import os
import shutil
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env.browser import Query, index
from rg_env.browser.index import ChangedError, index_rows, last_attempts_only, read_row, text_files
from rg_env.browser.plain import matching_groups
from rg_env.dump import DumpWriter, FileKind, open_run, to_line
from rg_env.dump.files import batch_name
from rg_env.dump.open_file import zstd
from rg_env.dump.read import frames
from rg_env.scoring.types import Status, Violation
from tests.dump.records import RUN_ID, group, rollout, violating

ATROPOS = b'{"item_id": "gcd", "rollouts": [{"conversation": [], "score": 0.5}, {"conversation": [], "score": NaN}]}\n'


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache folder, empty at first, in which small dumps are cached too."""
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setattr(index, "WORTH_CACHING", 1)
    return home / "rg_env"


def cached(cache):
    (path,) = cache.iterdir()
    return path


def write(folder, batch, groups, kind=FileKind.ROLLOUTS):
    path = folder / batch_name(kind, RUN_ID, batch)
    path.write_bytes(b"".join(line if isinstance(line, bytes) else to_line(line) for line in groups))
    return path


def rows_of(*paths):
    chunks = list(index_rows(open_run(*paths)))
    assert not chunks or (chunks[-1].done, chunks[-1].total) == (chunks[-1].total, chunks[-1].total)
    return pl.concat([pl.DataFrame(schema=index.SCHEMA), *(chunk.rows for chunk in chunks)]).sort("file", "line")


def scanned(monkeypatch):
    """The files that are read line by line from now on."""
    seen = []
    plain = index._scan
    monkeypatch.setattr(index, "_scan", lambda files: seen.extend(file.path.name for file in files) or plain(files))
    return seen


def test_a_row_says_what_the_reader_reads(tmp_path):
    odd = rollout(0.25, status=Status.TIMEOUT)
    write(tmp_path, 0, [group(0, [1.0, 0.5]), b"\n", group("é\ud800\n", [violating(), odd], step=None), b"{torn"])
    write(tmp_path, 1, [ATROPOS])
    write(tmp_path, 0, [group(7, [0.0], phase="eval")], FileKind.EVAL)
    dump = open_run(tmp_path)
    rows = rows_of(tmp_path)
    sound = rows.filter(pl.col("problem").is_null())
    assert [read_row(text_files(dump), row) for row in sound.iter_rows(named=True)] == list(dump.groups())
    assert rows.filter(pl.col("problem").is_not_null()).select("line", "problem").rows() == [
        (4, dump.problems[0].reason)
    ]
    first, second, atropos, evaluation = sound.iter_rows(named=True)
    assert (first["best"], first["mean"], first["worst"], first["violation"]) == (1.0, 0.75, 0.5, [None, None])
    assert (second["violation"], second["status"]) == (["no_answer", None], ["ok", "timeout"])
    assert second["step"] is None
    assert (atropos["task"], atropos["mean"], atropos["run_id"]) == ("gcd", 0.5, RUN_ID)
    assert evaluation["phase"] == "eval"


def test_foreign_lines_may_hold_anything_where_we_have_numbers(tmp_path):
    odd = [
        b'{"item_id": 5, "group_id": 7, "step": "soon", "attempt": 1e300, "rollouts": [], "phase": null}\n',
        b'{"item_id": "a", "group_id": {}, "call": NaN, "uid": [], "level": {"a": 1}, "task": null, "step": 1%s,'
        b' "rollouts": [{"conversation": [], "score": NaN, "truncated": "no", "policy_version": 3}]}\n' % (b"0" * 30),
        b'{"item_id": "b", "rollouts": [{"conversation": [], "score": 1, "response_tokens": 1.5, "normalized": []}]}\n',
        b'{"item_id": "c", "rollouts": [{"conversation": [], "score": 1, "raw_score": "high"}]}\n',
    ]
    write(tmp_path, 0, [*odd, group(1)])
    dump = open_run(tmp_path)
    rows = rows_of(tmp_path)
    assert rows["problem"][3] == "'high' where a number is required"
    rows = rows.filter(pl.col("problem").is_null())
    read = [read_row(text_files(dump), row) for row in rows.iter_rows(named=True)]
    assert [group.item_id for group in read] == ["5", "a", "b", "chain_sum"]
    assert rows["step"].to_list() == [None, None, None, 1]
    assert rows["policy_version"].to_list()[1] == ["3"] and rows["best"][1] is None
    assert dump.ledger_frame()["group_id"].to_list() == [rows["group_id"][k] for k in (1, 2, 3, 3)]


@given(st.lists(st.lists(st.sampled_from([0.0, 0.3, 1.0]), max_size=3), min_size=1, max_size=8))
def test_rows_from_the_index_are_those_read_without_it(tmp_path_factory, scores):
    folder = tmp_path_factory.mktemp("dump")
    write(folder, 0, [group(k, s, task=f"task{k % 2}") for k, s in enumerate(scores)])
    without = rows_of(folder)
    with pytest.MonkeyPatch.context() as patch:
        seen = scanned(patch)
        assert rows_of(folder).equals(without)
    assert seen == []


def test_only_what_changed_is_read_again(tmp_path, monkeypatch):
    write(tmp_path, 0, [group(0)])
    last = write(tmp_path, 1, [group(1)])
    rows_of(tmp_path)
    seen = scanned(monkeypatch)
    rows_of(tmp_path)
    assert seen == []
    write(tmp_path, 1, [group(1), group(2)])
    write(tmp_path, 2, [group(3)])
    assert rows_of(tmp_path)["group_id"].to_list() == [g.group_id for g in map(group, range(4))]
    assert seen == [last.name, batch_name(FileKind.ROLLOUTS, RUN_ID, 2)]


@pytest.mark.parametrize("how", ["size", "time", "inode"])
def test_a_file_that_is_not_what_it_was_is_read_again(tmp_path, how, monkeypatch):
    path = write(tmp_path, 0, [group(0)])
    rows_of(tmp_path)
    stat = path.stat()
    if how == "size":
        path.write_bytes(path.read_bytes() + to_line(group(1)))
    elif how == "inode":
        shutil.copy(path, tmp_path / "copy")
        (tmp_path / "copy").replace(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + (how == "time")))
    seen = scanned(monkeypatch)
    rows_of(tmp_path)
    assert seen == [path.name]


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"ARROW1", "half", "other columns", "a folder"])
def test_a_damaged_cache_is_ignored(tmp_path, cache, damage):
    write(tmp_path, 0, [group(0), group(1)])
    before = rows_of(tmp_path)
    path = cached(cache)
    stored = path.read_bytes()
    if damage == "other columns":
        pl.read_ipc(path).drop("best").write_ipc(path)
    elif damage == "a folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(stored[: len(stored) // 2] if damage == "half" else damage)
    assert rows_of(tmp_path).equals(before)
    assert path.is_dir() or path.read_bytes() == stored


def test_damaged_compressed_data_cost_only_themselves(tmp_path):
    path = write(tmp_path, 0, [])
    with zstd.open(f"{path}.zst", "wb") as file:
        file.writelines(to_line(group(k)) for k in range(9))
    whole = path.with_name(f"{path.name}.zst")
    path.unlink()
    whole.write_bytes(whole.read_bytes()[:-9])
    write(tmp_path, 1, [group(10)])
    rows = pl.concat(chunk.rows for chunk in index_rows(open_run(tmp_path)))
    (why,) = rows["problem"].drop_nulls()
    assert "damaged zstd data" in why and "the rest of the file is lost" in why
    assert rows["group_id"].drop_nulls().to_list() == [group(10).group_id]


@given(
    st.lists(
        st.sampled_from(["small", "big", "blank", "indented", "empty", "atropos", "torn", "surrogate"]), max_size=9
    ),
    st.lists(st.integers(0, 2), max_size=3),
    st.integers(1, 2000),
)
def test_rows_lead_to_their_lines(tmp_path_factory, kinds, breaks, at_once):
    folder = tmp_path_factory.mktemp("dump")
    made = {
        "small": to_line(group("s", [1.0, 0.25])),
        "big": to_line(group("b", [rollout(0.5, detail="x" * 3000), violating(1)])),
        "blank": b" \t\n",
        "indented": b"  " + ATROPOS,
        "empty": to_line(group("e", [])),
        "atropos": ATROPOS,
        "torn": b'{"item_id": \n',
        "surrogate": to_line(group("\ud800", [1.0], task="\uffff\udc00")),
    }
    cuts = [0, *sorted(min(cut * 3, len(kinds)) for cut in breaks), len(kinds)]
    for batch, (start, end) in enumerate(pairwise(cuts)):
        write(folder, batch, [made[kind] for kind in kinds[start:end]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "_AT_ONCE", at_once)
        rows = rows_of(folder)
    dump = open_run(folder)
    groups = list(dump.groups())
    sound = rows.filter(pl.col("problem").is_null())
    assert [read_row(text_files(dump), row) for row in sound.iter_rows(named=True)] == groups
    assert rows.height - sound.height == kinds.count("torn")
    columns = list(frames.ROLLOUT_SCHEMA)
    exploded = sound.filter(pl.col("score").list.len() > 0).explode(columns).select(*frames.SCHEMA)
    assert exploded.equals(dump.ledger_frame())


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, cache):
    path = write(tmp_path, 0, [group(0)])
    cache.write_bytes(b"a file where the folder should be")
    assert rows_of(tmp_path).height == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_nothing_behind(tmp_path, cache, monkeypatch):
    path = write(tmp_path, 0, [group(0)])

    def full(self, file, **options):
        file.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_ipc", full)
    assert rows_of(tmp_path).height == 1
    assert not list(cache.iterdir())
    assert list(tmp_path.iterdir()) == [path]


def test_old_caches_are_removed(tmp_path, cache, monkeypatch):
    monkeypatch.setattr("rg_env.browser.cache._CACHES_KEPT", 2)
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, 0, [group(0)])
        rows_of(folder)
        os.utime(max(cache.iterdir(), key=lambda path: path.stat().st_mtime_ns), (number, number))
    assert [path.stat().st_mtime for path in sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime)] == [2, 3]


def test_a_cache_is_only_for_its_own_folder(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).mkdir()
        write(tmp_path / name, 0, [group(name)])
    rows_of(tmp_path / "a")
    seen = scanned(monkeypatch)
    assert rows_of(tmp_path / "b")["group_id"].to_list() == [group("b").group_id]
    assert len(seen) == 1


def test_a_single_file_does_not_cost_its_neighbors_their_cache(tmp_path, monkeypatch):
    write(tmp_path, 0, [group(0)])
    rows_of(tmp_path)
    other = tmp_path / "mine.jsonl"
    other.write_bytes(ATROPOS)
    rows_of(other)
    seen = scanned(monkeypatch)
    rows_of(tmp_path)
    rows_of(other)
    assert seen == []


def test_a_small_dump_is_not_cached(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(index, "WORTH_CACHING", 1_000_000)
    write(tmp_path, 0, [group(0)])
    rows_of(tmp_path)
    assert not cache.exists()


def test_printing_does_without_a_cache(tmp_path, cache):
    write(tmp_path, 0, [group(0)])
    assert len(list(matching_groups(open_run(tmp_path), Query()))) == 1
    assert not cache.exists()


def test_the_dump_folder_stays_as_it_is(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.submit([group(k) for k in range(3)]).result(5)
    before = sorted(tmp_path.iterdir())
    rows_of(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_line_that_moved_is_noticed(tmp_path):
    path = write(tmp_path, 0, [group(0), group(1)])
    rows = list(rows_of(tmp_path).iter_rows(named=True))
    path.write_bytes(to_line(group(5, task="gcd")) + to_line(group(6)))
    files = text_files(open_run(tmp_path))
    for row in rows:
        with pytest.raises(ChangedError, match="reload it"):
            read_row(files, row)


def test_a_batch_that_gets_its_final_name_meanwhile_is_still_read(tmp_path):
    path = write(tmp_path, 0, [group(0)])
    part = path.rename(f"{path}.part")
    dump = open_run(tmp_path)
    part.rename(path)
    (chunk,) = index_rows(dump)
    assert read_row(text_files(dump), chunk.rows.row(0, named=True)).uid == "0"


def test_a_batch_that_was_compressed_meanwhile_is_still_read(tmp_path):
    path = write(tmp_path, 0, [group(0), group(1)])
    dump = open_run(tmp_path)
    with zstd.open(f"{path}.zst", "wb") as file:
        file.write(path.read_bytes())
    path.unlink()
    for seen in (dump, open_run(tmp_path)):
        (chunk,) = index_rows(seen)
        read = [read_row(text_files(seen), row).uid for row in chunk.rows.iter_rows(named=True)]
        assert read == ["0", "1"]


def test_steps_that_were_done_again_are_left_out_as_the_reader_leaves_them_out(tmp_path):
    for attempt, steps in ((1, [1, 2, 3]), (2, [3, 4])):
        with DumpWriter(tmp_path, RUN_ID, attempt) as writer:
            groups = [
                group(f"{attempt}-{s}", [1.0, violating(1, Violation.NO_THINK)], step=s, attempt=attempt) for s in steps
            ]
            assert writer.submit([*groups, group(f"{attempt}-none", step=None, attempt=attempt)]).result(5)
    dump = open_run(tmp_path)
    kept = last_attempts_only(dump, rows_of(tmp_path))
    assert sorted(kept["group_id"]) == sorted(g.group_id for g in dump.groups())
    assert kept.height == rows_of(tmp_path).height - 1
