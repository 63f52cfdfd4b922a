"""A run or evaluation never writes into another one's folder, and nobody loses checkpoints to SkyRL's cleaning up.

The folders and processes are real, and so are the evaluations; the trainings leave out their steps, which
tests/e2e/test_loops.py has.
"""

import errno
import multiprocessing
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from rg_env.base import atomic
from rg_env.base.errors import ConfigError, DumpError
from rg_env.cli import app
from rg_env.dump import Attempt, DumpWriter, claim_run, write_manifest
from rg_env.dump.run_file import lock_checkpoints
from rg_env.dump.run_files import dump_folders
from rg_env.skyrl.experiment import RGExperiment
from rg_env.skyrl.recorder import open_dump
from rg_env.skyrl.resumption import as_settings
from rg_env.skyrl.train_config import RGTrainConfig, load_run
from tests.documents import ROOT
from tests.evaluate.server import completion, serving

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


@pytest.mark.parametrize("kind", ["folder of a run", "folder of others", "file", "link elsewhere", "broken link"])
def test_what_has_the_links_name_stays_as_it_is(tmp_path, kind):
    mine = tmp_path / "runs" / "quickstart"
    mine.parent.mkdir()
    if kind.startswith("folder"):
        (mine / ("dumps" if "run" in kind else "eval-20261123-101010")).mkdir(parents=True)
        (mine / "notes.txt").write_text("mine")
    elif kind == "file":
        mine.write_text("mine")
    else:
        mine.symlink_to(tmp_path if kind == "link elsewhere" else tmp_path / "nothing")
    before = everything_in(mine.parent)
    cfg = None
    if kind == "file":
        with pytest.raises(ConfigError, match="Not a directory"):
            start()
    else:
        cfg = start()
        (folder,) = folders(cfg)
        assert folder.name.startswith("quickstart-2")
    assert before.items() <= everything_in(mine.parent).items()


def everything_in(folder: Path) -> dict[Path, object]:
    """What is in a folder: the target of each link, the content of each file."""
    found = {}
    for path in folder.rglob("*"):
        found[path] = path.readlink() if path.is_symlink() else path.is_file() and path.read_bytes()
    return found


def test_latest_finds_the_newest_run_without_a_link(tmp_path):
    """As where somebody has a folder of that name, or on a disk without links."""
    first, second = start("resume_mode=latest"), start("resume_mode=none")
    checkpoint(first, 4)
    checkpoint(second, 6)
    link = tmp_path / "runs" / "quickstart"
    link.unlink()
    assert folders(start("resume_mode=latest")) == folders(second)
    link.mkdir()
    assert folders(start("resume_mode=latest")) == folders(second)


def test_the_newest_run_is_the_one_that_was_started_last_although_the_clock_was_set_back(tmp_path, monkeypatch):
    checkpoint(start("resume_mode=none"), 4)
    for name in ("quickstart-eval-99990101-000000", "quickstart-9", "quickstart-99999999-999999"):
        (tmp_path / "runs" / name).mkdir()
    monkeypatch.setattr(atomic, "time", SimpleNamespace(strftime=lambda _: "20010203-040500"))
    last = start("resume_mode=none")
    checkpoint(last, 6)
    (tmp_path / "runs" / "quickstart").unlink()
    shutil.rmtree(tmp_path / "runs" / "quickstart-99999999-999999")
    assert folders(start("resume_mode=latest")) == folders(last)


def test_a_run_in_the_links_place_is_continued_once_it_is_renamed(tmp_path):
    real = tmp_path / "runs" / "quickstart"
    (real / "checkpoints").mkdir(parents=True)
    (real / "checkpoints" / "global_step_4").mkdir()
    (real / "checkpoints" / "latest_ckpt_global_step.txt").write_text("4")
    with pytest.raises(ConfigError, match="rename it to quickstart-2") as refused:
        start("resume_mode=latest")
    name = str(refused.value).partition("rename it to ")[2].partition(";")[0]
    real.rename(real.with_name(name))
    assert folders(start("resume_mode=latest")) == {real.with_name(name)}


def test_a_name_that_is_set_is_that_of_the_folder(tmp_path):
    named = start("trainer.run_name=my experiment")
    (folder,) = folders(named)
    assert folder.name.startswith("my experiment-2")
    assert (tmp_path / "runs" / "my experiment").resolve() == folder
    assert start().trainer.run_name == "quickstart", "the folder's name where nobody sets one"
    assert folders(start("trainer.run_name=other", "resume_mode=latest")) != folders(named)
    checkpoint(named, 4)
    assert folders(start("trainer.run_name=my experiment", "resume_mode=latest")) == folders(named)
    for name in ("a/b", "..", "''", "' '"):
        with pytest.raises(ConfigError, match=r"trainer\.run_name=.*without slashes"):
            start(f"trainer.run_name={name}")


def test_a_run_without_any_path_has_a_folder_too(tmp_path):
    settings = yaml.safe_load(Path(CONFIG).read_text())
    for name in ("ckpt_path", "export_path", "log_path"):
        del settings[f"trainer.{name}"]
    del settings["environment.skyrl_gym.rg_dump"]["dump_dir"]
    Path("mine.yaml").write_text(yaml.safe_dump(settings))
    run = load_run(["mine.yaml"])
    run.folder.enter(run.cfg)
    (folder,) = folders(run.cfg)
    assert folder.name.startswith("train-2")
    assert folder.parent == tmp_path / "runs"


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
    again[-1] = "trainer.max_ckpts_to_keep=-1"
    if mode == "from_path":
        start(*again)  # of the same run, which begins again at an earlier step
    else:
        with pytest.raises(ConfigError, match="has a checkpoint of step 9"):
            start(*again)
    assert early.is_dir()


def test_a_given_folder_with_models_of_another_run_is_refused(tmp_path):
    (tmp_path / "mine" / "global_step_60").mkdir(parents=True)
    with pytest.raises(ConfigError, match="has a model of step 60 of another run"):
        start("trainer.export_path=mine")
    start("trainer.export_path=mine", "trainer.hf_save_interval=-1")


def test_a_run_whose_checkpoints_are_elsewhere_goes_on_in_its_own_folder():
    elsewhere = ("trainer.ckpt_path=mine", "resume_mode=latest")
    first = start(*elsewhere)
    claim_run(first.trainer.ckpt_path, resuming=False, settings=as_settings(first))
    checkpoint(first, 4)
    start()  # the link names another run now
    again = start(*elsewhere)
    assert again.rg_dump.dump_dir == first.rg_dump.dump_dir


# ------------------------------------------------------------------------------------- trainings and evaluations
SUITE = "tasks: {gcd: {size: 1}}\nformat: lenient\n"


def train(_: str) -> None:
    """A training without its steps: its folder, its run id, a manifest, a checkpoint and an exported model."""
    cfg = start()
    run_id, attempt = claim_run(cfg.trainer.ckpt_path, resuming=False, settings=as_settings(cfg))
    with DumpWriter(cfg.rg_dump.dump_dir, run_id, attempt):
        write_manifest(cfg.rg_dump.dump_dir, run_id, Attempt(attempt=attempt))
    (Path(cfg.trainer.export_path) / "global_step_2" / "policy").mkdir(parents=True)
    checkpoint(cfg, 2)


def evaluation_of(url: str) -> list[str]:
    return ["eval", CONFIG, "--endpoint", url, "--model", "m", "--suite", "suite.yaml"]


def evaluate(url: str) -> None:
    """`rg-env eval` of a model behind a server, with the configuration of the trainings."""
    done = CliRunner().invoke(app, evaluation_of(url))
    assert done.exit_code == 0, done.output


@pytest.fixture
def server():
    Path("suite.yaml").write_text(SUITE)
    with serving(lambda number, body: completion("<answer>1</answer>")) as running:
        yield running.url


@pytest.mark.parametrize("order", ["TTEE", "ETET"])  # each after each
def test_trainings_and_evaluations_in_any_order_share_nothing(tmp_path, server, order):
    """Two of each in an empty folder: whatever was there stays as it was, and each makes one folder."""
    runs = tmp_path / "runs"
    for letter in order:
        before = everything_in(runs)
        before.pop(runs / "quickstart", None)  # the link, which names the newest run
        folders_before = set(runs.glob("*"))
        train(server) if letter == "T" else evaluate(server)
        assert before.items() <= everything_in(runs).items()
        new = {path for path in set(runs.glob("*")) - folders_before if not path.is_symlink()}
        assert len(new) == 1
        assert len(dump_folders(new.pop())) == 1
    assert (runs / "quickstart").is_symlink()
    assert len(dump_folders(runs)) == 4


@pytest.mark.long
def test_two_trainings_and_two_evaluations_at_once_share_nothing(tmp_path, server):
    """Processes of their own, as a script starts them; the trainings begin in the same moment."""
    fork = multiprocessing.get_context("fork")
    begin = fork.Barrier(2)

    def train_with_the_other() -> None:
        begin.wait()
        train(server)

    command = [sys.executable, "-m", "rg_env", *evaluation_of(server)]
    evaluations = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
    trainings = [fork.Process(target=train_with_the_other) for _ in range(2)]
    for training in trainings:
        training.start()
    for training in trainings:
        training.join()
    assert [training.exitcode for training in trainings] == [0, 0]
    assert [evaluation.wait() for evaluation in evaluations] == [0, 0]
    runs = tmp_path / "runs"
    dumps = dump_folders(runs)
    assert len(dumps) == 4
    for dump in dumps:
        assert len(list(dump.glob("*_manifest_*"))) == 1
    assert len(list(runs.glob("quickstart-eval-2*"))) == 2
    assert (runs / "quickstart").resolve() in {dump.parent for dump in dumps}


# ------------------------------------------------------------------------------------------- one folder of checkpoints
def opened(cfg: RGTrainConfig) -> DumpWriter:
    """The dump of a run, as its experiment opens it."""
    experiment = RGExperiment.__new__(RGExperiment)
    experiment.cfg = cfg
    return experiment.writer


def test_a_second_resumption_is_refused_whatever_its_dump_folder_and_counts_no_attempt():
    first = start()
    opened(first).close()
    checkpoint(first, 2)
    checkpoints = Path(first.trainer.ckpt_path)
    second = start("resume_mode=latest", "dump_dir=elsewhere")
    command = [sys.executable, "-m", "tests.programs.checkpoints_holder", checkpoints]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as resumption:
        assert resumption.stdout.readline().split()[1] == "2"
        before = everything_in(checkpoints)
        holder = f"a run is being written to {checkpoints} by process {resumption.pid} on "
        with pytest.raises(DumpError, match=f"^{re.escape(holder)}[^\n]*: wait until it ends"):
            opened(second)
        assert everything_in(checkpoints) == before
        resumption.kill()
    with opened(second) as writer:
        assert writer.attempt == 3
    assert not [path for path in checkpoints.iterdir() if "lock" in path.name]


def test_runs_of_a_recorder_share_a_folder_only_without_checkpoints(tmp_path):
    cfg = start("trainer.ckpt_path=mine")
    with open_dump(cfg, "one"), open_dump(cfg, "two"):
        cfg.trainer.ckpt_interval = 5
        with open_dump(cfg, "three"), pytest.raises(DumpError, match=r"another trainer\.ckpt_path \(if none"):
            open_dump(cfg, "four")
    with pytest.raises(DumpError):
        open_dump(cfg, Path(CONFIG))
    open_dump(cfg, "four").close()


def test_a_disk_without_locks_gets_a_warning(tmp_path, monkeypatch, warnings):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    assert lock_checkpoints(tmp_path) == []
    assert "No locks available" in warnings[0]
