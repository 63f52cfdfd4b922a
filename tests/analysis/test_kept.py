"""Rollouts left beside a dump: asked again, the same answer, and never one about other files."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings

from rg_env.analysis import ConditionError, kept, sample_of, statistics
from rg_env.analysis.kept import ROWS_NAME
from rg_env.dump import Dump, open_run
from tests.analysis.samples import groups, write_ledger
from tests.dump.records import group, rollout

CONDITIONS = [
    [],
    ["task=gcd"],
    ["task!=gcd", "step>=3"],
    ["phase=eval"],
    ["violation=none"],
    ["violation=no_think,no_answer"],
    ["status!=ok"],
    ["outcome=mixed", "base_score>0.2"],
    ['difficulty={"terms":2}'],
    ["step=none"],
    ["truncated=yes"],
    ["group_id!=none", "task=gcd"],
]


@pytest.fixture(autouse=True)
def any_dump_is_worth_it(monkeypatch):
    monkeypatch.setattr(kept, "WORTH_KEEPING", 0)


@pytest.fixture
def reads(monkeypatch):
    """How often the files were read."""
    seen = []
    frames = Dump.frames

    def count(self, *args, **kwargs):
        seen.append(args)
        return frames(self, *args, **kwargs)

    monkeypatch.setattr(Dump, "frames", count)
    return seen


def some_groups(number):
    return [group(k, [rollout(float(k % 2)), rollout(0.0)], step=k) for k in range(number)]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(members=groups())
def test_what_was_left_gives_the_same_rows(tmp_path_factory, members):
    folder, elsewhere = tmp_path_factory.mktemp("dump"), tmp_path_factory.mktemp("fresh")
    write_ledger(folder, members)
    write_ledger(elsewhere, members)
    sample_of(open_run(folder))
    for conditions in CONDITIONS:
        (elsewhere / ROWS_NAME).unlink(missing_ok=True)
        assert rows_or_error(folder, conditions) == rows_or_error(elsewhere, conditions), conditions
    assert (folder / ROWS_NAME).exists()


def rows_or_error(folder, conditions):
    try:
        return sample_of(open_run(folder), conditions).rollouts.rows()
    except ConditionError as error:
        return str(error)


def test_asked_again_nothing_is_read(tmp_path, reads):
    write_ledger(tmp_path, some_groups(5))
    first = statistics(open_run(tmp_path), "step")
    assert len(reads) == 1
    assert statistics(open_run(tmp_path), "step").equals(first)
    assert statistics(open_run(tmp_path), "task", where=["step>2"])["groups"].to_list() == [2]
    assert len(reads) == 1


@pytest.mark.parametrize("how", ["longer", "touched", "copied", "another file"])
def test_another_state_of_the_files_is_read_anew(tmp_path, reads, how):
    path = write_ledger(tmp_path, some_groups(5))
    sample_of(open_run(tmp_path))
    stat = path.stat()
    if how == "longer":
        write_ledger(tmp_path, some_groups(6))
    elif how == "copied":
        shutil.copy(path, tmp_path / "copy")
        (tmp_path / "copy").replace(path)
    elif how == "another file":
        (tmp_path / path.name.replace("0000", "0001")).write_bytes(path.read_bytes().replace(b":0:", b":9:"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + (how == "touched")))
    found = sample_of(open_run(tmp_path)).rollouts.height
    assert len(reads) == 2
    assert found == {"longer": 12, "another file": 20}.get(how, 10)


def test_a_part_of_the_files_is_not_answered_from_all_of_them(tmp_path):
    path = write_ledger(tmp_path, some_groups(5))
    (tmp_path / path.name.replace("0000", "0001")).write_bytes(path.read_bytes())
    assert sample_of(open_run(tmp_path)).rollouts.height == 20
    assert sample_of(open_run(path)).rollouts.height == 10


def test_damaged_lines_are_told_every_time(tmp_path):
    path = write_ledger(tmp_path, some_groups(5))
    path.write_bytes(path.read_bytes() + b'{"half a li')
    for _ in range(2):
        dump = open_run(tmp_path)
        assert sample_of(dump).rollouts.height == 10
        assert len(dump.problems) == 1
    assert not (tmp_path / ROWS_NAME).exists()


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"{}\nARROW1", b"[1]\n", None])
def test_damaged_rows_count_as_absent(tmp_path, damage):
    write_ledger(tmp_path, some_groups(5))
    before = sample_of(open_run(tmp_path)).rollouts
    stored = (tmp_path / ROWS_NAME).read_bytes()
    (tmp_path / ROWS_NAME).write_bytes(stored[: len(stored) // 2] if damage is None else damage)
    assert sample_of(open_run(tmp_path)).rollouts.equals(before)
    assert (tmp_path / ROWS_NAME).read_bytes() == stored


def test_dumps_in_several_folders_leave_nothing(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        write_ledger(folder, some_groups(2))
    assert sample_of(open_run(*folders)).rollouts.height == 8
    assert not list(tmp_path.rglob(ROWS_NAME))


def test_a_small_dump_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.undo()
    write_ledger(tmp_path, some_groups(5))
    sample_of(open_run(tmp_path))
    assert not (tmp_path / ROWS_NAME).exists()
