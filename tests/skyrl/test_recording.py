"""RecordingTrainer in front of stand-ins for SkyRL's trainers."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rg_env.dump import DumpWriter, open_run
from rg_env.errors import ConfigError
from rg_env.skyrl.trainers import RecordingTrainer
from tests.dump.records import RUN_ID, group


class Saving:
    def save_checkpoints(self):
        self.on_disk = [line.uid for line in open_run(self.generator.writer.folder).ledger()] if self.reads else []
        return "checkpoint"


class Trainer(RecordingTrainer, Saving):
    def __init__(self, writer, reads=True):
        self.generator, self.global_step, self.reads = SimpleNamespace(writer=writer), 7, reads


def test_a_checkpoint_waits_for_everything_that_it_covers(tmp_path):
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        writer.submit([group(number) for number in range(200)])
        trainer = Trainer(writer)
        assert trainer.save_checkpoints() == "checkpoint"
    assert len(trainer.on_disk) == 200


def test_a_checkpoint_is_saved_although_the_disk_fails_and_one_line_names_the_groups(tmp_path, monkeypatch, warnings):
    write, full = os.write, os.open("/dev/full", os.O_WRONLY)
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        monkeypatch.setattr(
            os,
            "write",
            lambda fd, data: write(full if tmp_path.name in str(Path(f"/proc/self/fd/{fd}").readlink()) else fd, data),
        )
        writer.submit([group(number) for number in range(7)])
        assert Trainer(writer, reads=False).save_checkpoints() == "checkpoint"
        monkeypatch.undo()
    (line,) = [text for text in warnings if "checkpoint" in text]
    assert group(0).group_id in line and "and 2 more" in line


def test_wrong_use_is_one_line():
    trainer = Trainer(None)
    trainer.generator = object()
    with pytest.raises(ConfigError, match="needs a generator that records"):
        asyncio.run(trainer.train())
