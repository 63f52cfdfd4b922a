"""What the live page is answered while runs are being written: lists and groups, as what is on disk says."""

from __future__ import annotations

import json
import time

import pytest

from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, DumpWriter, write_manifest
from rg_env.dump.manifest import end_manifest
from rg_env.page.following import Following
from tests.analysis.reports import said
from tests.dump.records import RUN_ID, group, manifest, rollout

OTHER_RUN = "20261122-060000-cd34"


@pytest.fixture
def follow():
    """Follows dumps; waits until they have this many groups."""
    followed = []

    def start(*paths, groups):
        followed.append(Following(paths))
        until(lambda: followed[-1].state()["groups"] == groups and followed[-1].version)
        return followed[-1]

    yield start
    for following in followed:
        following.close()


def until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def writer_of(folder, run_id=RUN_ID, attempt=1, **settings):
    write_manifest(folder, run_id, Attempt(attempt=attempt))
    return DumpWriter(folder, run_id, attempt, RGDumpConfig(**settings))


def write(writer, *groups):
    assert writer.submit(list(groups)).result(10)


def ids(answer):
    return [row["group_id"] for row in answer["rows"]]


def test_groups_without_a_text_stay_when_their_file_is_full(tmp_path, follow):
    made = [group(number, [0.0, 0.0]) for number in range(4)]
    with writer_of(tmp_path, groups_per_file=3, dump_failed_rollouts=False) as writer:
        write(writer, made[0])
        following = follow(tmp_path, groups=1)
        write(writer, made[1])
        until(lambda: following.state()["groups"] == 2)
        write(writer, *made[2:])
        until(lambda: following.state()["groups"] == 4)
        assert ids(following.find("", "", 0, 9)) == [each.group_id for each in made]
        assert following.group(RUN_ID, made[1].group_id)["rollouts"][0]["base_score"] == 0


def test_a_condition_on_a_column_that_is_not_held_finds_what_came_since(tmp_path, follow):
    made = [group(number, [rollout(1.0 - number, 0, penalty_factor=0.5)]) for number in range(2)]
    with writer_of(
        tmp_path, dump_rollouts=False, dump_other_rollouts=False
    ) as writer:  # whether its text is kept or not
        write(writer, made[0])
        following = follow(tmp_path, groups=1)
        write(writer, made[1])
        until(lambda: following.state()["groups"] == 2)
        assert ids(following.find("penalty_factor < 1", "", 0, 9)) == [each.group_id for each in made]


def test_a_search_goes_on_where_it_was_when_a_later_attempt_replaces_groups(tmp_path, follow):
    def asked(number, attempt):
        one = rollout(1.0, 0, conversation=said("What?", "here"))
        return group(number, [one], step=number, attempt=attempt, group_id=f"{number} of {attempt}")

    with writer_of(tmp_path) as writer:
        write(writer, asked(1, 1), asked(2, 1), asked(3, 1))
    with writer_of(tmp_path, attempt=2) as writer:
        write(writer, asked(3, 2))
        following = follow(tmp_path, groups=3)
        assert ids(following.find("", "here", 0, 9)) == ["1 of 1", "2 of 1", "3 of 2"]
        write(writer, asked(2, 2), asked(4, 2))
        until(lambda: following.state()["groups"] == 4)
        found = following.find("", "here", 0, 9)
        assert ids(found) == ["1 of 1", "3 of 2", "2 of 2", "4 of 2"] and found["total"] == found["of"]


def test_groups_that_get_other_numbers_are_said(tmp_path, follow):
    names = [f"{run_id} {number}" for number in range(2) for run_id in (RUN_ID, OTHER_RUN)]
    with writer_of(tmp_path) as first, writer_of(tmp_path, OTHER_RUN) as second:
        writers = {RUN_ID: first, OTHER_RUN: second}

        def write_next(name):
            run_id = name.partition(" ")[0]
            write(writers[run_id], group(name, run_id=run_id, group_id=name))

        for name in names[:2]:
            write_next(name)
        following = follow(tmp_path, groups=2)
        for count, name in enumerate(names[2:], 3):
            write_next(name)
            until(lambda count=count: following.state()["groups"] == count)
        assert ids(following.find("", "", 0, 9)) == names and following.state()["renumbered"] == 0
        first.close()
        end_manifest(tmp_path, RUN_ID, 1, 0, {1: 2})
        until(lambda: following.state()["renumbered"] == 1)
        assert ids(following.find("", "", 0, 9)) == [names[0], names[2], names[1], names[3]]


def test_a_run_that_begins_in_a_followed_folder_counts_with_its_own_settings(tmp_path, follow):
    with writer_of(tmp_path) as first:
        write(first, group(0, [0.6, 0.6]))
        following = follow(tmp_path, groups=1)
        write_manifest(tmp_path, OTHER_RUN, Attempt.read(manifest(solved_at=0.5)))
        with DumpWriter(tmp_path, OTHER_RUN, 1, RGDumpConfig()) as second:
            write(second, group(0, [0.6, 0.6], run_id=OTHER_RUN))
            until(lambda: len(json.loads(following.summary)["sections"]) == 2)
            sections = json.loads(following.summary)["sections"]
            assert [section["headline"]["solve_rate"] for section in sections] == [0, 1]
