"""Which exported models `--checkpoint` names, and what is said of everything else."""

import pytest

from rg_env.errors import ConfigError
from rg_env.rollouts.checkpoints import find_checkpoints


@pytest.fixture
def run(tmp_path):
    """A run with checkpoints up to step 40, and exports of which step 100 is from an earlier run."""
    for step in (20, 40, 100):
        export(tmp_path, step)
    for step in (30, 40):
        shards = tmp_path / "checkpoints" / f"global_step_{step}" / "policy"
        (shards / "huggingface").mkdir(parents=True)
        (shards / "model_world_size_1_rank_0.pt").touch()
    (tmp_path / "checkpoints" / "latest_ckpt_global_step.txt").write_text("40")
    return tmp_path


def export(folder, step):
    model = folder / "exports" / f"global_step_{step}" / "policy"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")


def found(which, run):
    return [one.name for one in find_checkpoints(str(which), run / "checkpoints", run / "exports")]


def refused(which, run):
    with pytest.raises(ConfigError) as caught:
        found(which, run)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_newest_is_said_by_skyrl(run):
    assert found("latest", run) == ["step 40"], "not an earlier run's step 100"
    assert found("all", run) == ["step 20", "step 40"]
    (run / "checkpoints" / "latest_ckpt_global_step.txt").write_text("30")
    assert ", only 20; name one of these" in refused("latest", run)
    (run / "checkpoints" / "latest_ckpt_global_step.txt").unlink()
    for which in ("latest", "all"):
        assert "which says what is newest, cannot be read" in refused(which, run)


def test_folders(run):
    step = run / "exports" / "global_step_20"
    (one,) = find_checkpoints(str(step), None, None)
    assert (one.name, one.folder) == ("step 20", step / "policy")
    assert found(step / "policy", run) == ["step 20"]
    assert found(run / "exports", run) == ["step 20", "step 40", "step 100"]
    (run / "mine").mkdir()
    (run / "mine" / "config.json").write_text("{}")
    assert found(run / "mine", run) == [str(run / "mine")]


def test_what_cannot_be_evaluated(run):
    step = run / "checkpoints" / "global_step_30"
    for shards in (step, step / "policy", run / "checkpoints"):
        message = refused(shards, run)
        assert f"trainer.resume_mode=from_path trainer.resume_path={step} trainer.hf_save_interval=1" in message
    (run / "adapter").mkdir()
    (run / "adapter" / "adapter_config.json").write_text("{}")
    assert "only a LoRA adapter; merge it" in refused(run / "adapter", run)
    assert "there is no model" in refused(run / "nothing", run)
    with pytest.raises(ConfigError, match="needs the configuration of the run"):
        find_checkpoints("latest", None, None)
