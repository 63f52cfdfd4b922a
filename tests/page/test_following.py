"""What the live page is answered while runs are being written: lists and groups, as what is on disk says."""

from __future__ import annotations

import time

import pytest

from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Attempt, DumpWriter, write_manifest
from rg_env.page.following import Following
from tests.dump.records import RUN_ID, group

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
