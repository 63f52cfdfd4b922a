"""A new run never writes into another run's folder, and nobody loses checkpoints to SkyRL's cleaning up."""

from pathlib import Path

import pytest

from rg_env.errors import ConfigError
from rg_env.skyrl.config import RGTrainConfig, load_run

CONFIG = str(Path(__file__).parents[2] / "configs" / "quickstart.yaml")
PATHS = ("ckpt_path", "export_path", "log_path")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def start(*args: str) -> RGTrainConfig:
    """What `rg-env train` does with its paths before anything starts."""
    run = load_run([CONFIG, "trainer.ckpt_interval=0", *args])
    run.folder.enter(run.cfg)
    return run.cfg


def folders(cfg: RGTrainConfig) -> set[Path]:
    return {Path(path).parent for path in (*(getattr(cfg.trainer, name) for name in PATHS), cfg.rg_dump.dump_dir)}


def checkpoint(cfg: RGTrainConfig, step: int) -> Path:
    folder = Path(cfg.trainer.ckpt_path, f"global_step_{step}")
    folder.mkdir(parents=True)
    Path(cfg.trainer.ckpt_path, "latest_ckpt_global_step.txt").write_text(str(step))
    return folder


def test_each_new_run_has_a_folder_of_its_own_and_the_link_names_the_newest(tmp_path):
    first, second = start(), start()
    (one,), (other,) = folders(first), folders(second)
    assert one != other
    assert {one.parent, other.parent} == {tmp_path / "runs"}
    assert one.name.startswith("quickstart-2")
    assert (tmp_path / "runs" / "quickstart").resolve() == other
    assert Path(second.trainer.ckpt_path).name == "checkpoints"


def test_latest_continues_the_newest_run_and_begins_one_where_there_is_no_checkpoint():
    first = start("resume_mode=latest")
    assert folders(start("resume_mode=latest")) != folders(first), "it has no checkpoint to continue from"
    begun = start("resume_mode=latest")
    checkpoint(begun, 4)
    assert folders(start("resume_mode=latest")) == folders(begun)
    assert folders(start("resume_mode=none")) != folders(begun)


def test_a_real_folder_of_that_name_is_kept_beside_it(tmp_path):
    kept = tmp_path / "runs" / "quickstart" / "dumps"
    kept.mkdir(parents=True)
    (folder,) = folders(start())
    assert (tmp_path / "runs" / f"{folder.name}-before" / "dumps").is_dir()
    assert (tmp_path / "runs" / "quickstart").resolve() == folder


def test_a_folder_with_other_files_is_left_as_it_is(tmp_path):
    mine = tmp_path / "runs" / "quickstart"
    mine.mkdir(parents=True)
    (mine / "notes.txt").touch()
    assert folders(start()) == {mine}
    assert [path.name for path in mine.parent.iterdir()] == ["quickstart"]


def test_a_path_from_the_command_line_and_a_url_are_kept(tmp_path):
    cfg = start("dump_dir=mine", "trainer.export_path=s3://bucket/exports")
    assert cfg.rg_dump.dump_dir == str(tmp_path / "mine")
    assert cfg.trainer.export_path == "s3://bucket/exports"
    assert Path(cfg.trainer.ckpt_path).parent.name.startswith("quickstart-2")


def test_a_branch_from_an_earlier_step_leaves_the_run_alone():
    cfg = start()
    early = checkpoint(cfg, 2)
    checkpoint(cfg, 9)
    branch = start("resume_mode=from_path", f"resume_path={early}")
    assert folders(branch) != folders(cfg)


@pytest.mark.parametrize("mode", ["none", "from_path"])
def test_a_given_folder_with_later_checkpoints_is_refused(tmp_path, mode):
    cfg = start("trainer.ckpt_path=mine", "trainer.max_ckpts_to_keep=3")
    early = checkpoint(cfg, 2)
    checkpoint(cfg, 9)
    again = ["trainer.ckpt_path=mine", f"resume_mode={mode}"] + [f"resume_path={early}"] * (mode == "from_path")
    again += ["trainer.ckpt_interval=1", "trainer.max_ckpts_to_keep=3"]
    with pytest.raises(ConfigError, match=r"has a checkpoint of step 9, and SkyRL would delete each new one"):
        start(*again)
    start(*again, "trainer.max_ckpts_to_keep=-1")
    assert early.is_dir()
