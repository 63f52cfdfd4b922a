"""Which models `--model` names, and what is said of everything else."""

import pytest
from typer.testing import CliRunner

from rg_env.base.errors import ConfigError
from rg_env.cli import app
from rg_env.dump import claim_run
from rg_env.evaluate.server import find_models, run_of


@pytest.fixture
def run(tmp_path):
    """The exports of a run, and its checkpoints, as SkyRL writes them."""
    for step in (100, 20, 40):
        model = tmp_path / "exports" / f"global_step_{step}" / "policy"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
    shards = tmp_path / "checkpoints" / "global_step_30" / "policy"
    (shards / "huggingface").mkdir(parents=True)
    (shards / "model_world_size_1_rank_0.pt").touch()
    return tmp_path


def found(model):
    return [(model.name, model.path) for model in find_models(str(model))]


def refused(model):
    with pytest.raises(ConfigError) as caught:
        found(model)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_of_steps_is_each_of_them_in_order(run):
    exports = run / "exports"
    assert found(exports) == [(f"step {step}", f"{exports}/global_step_{step}/policy") for step in (20, 40, 100)]
    (run / "link").symlink_to(exports)
    assert found(run / "link") == found(exports)


def test_one_folder_is_one_model(run):
    step = run / "exports" / "global_step_20"
    assert found(step) == found(step / "policy") == [("step 20", f"{step}/policy")]
    (run / "mine").mkdir()
    (run / "mine" / "config.json").write_text("{}")
    assert found(run / "mine") == [(f"{run}/mine", f"{run}/mine")]
    assert found("Qwen/Qwen3-4B") == [("Qwen/Qwen3-4B", "Qwen/Qwen3-4B")]
    assert found("nano")[0][0] == "nano"


def test_a_model_of_a_run_has_the_name_of_run_and_step(run):
    """Also after the folder was renamed; its evaluation goes there."""
    exports = run / "exports"
    assert run_of(exports / "global_step_20") is None, "nothing there says that it is a run"
    claim_run(run / "checkpoints", resuming=False)
    (run.parent / "link").unlink(missing_ok=True)
    renamed = run.rename(run.with_name("mine-20261123-101010"))
    (run.parent / "link").symlink_to(renamed.name)
    for folder in (renamed, run.parent / "link"):
        step = folder / "exports" / "global_step_20"
        assert found(step)[0][0] == found(step / "policy")[0][0] == "mine-20261123-101010 step 20"
        assert [name for name, _ in found(folder / "exports")] == [f"{renamed.name} step {n}" for n in (20, 40, 100)]
        assert run_of(step / "policy") == renamed
    (renamed / "mine").mkdir()
    assert run_of(renamed / "mine") is None


def test_what_cannot_be_evaluated(run, monkeypatch):
    step = run / "checkpoints" / "global_step_30"
    for shards in (step, step / "policy", run / "checkpoints"):
        assert "trainer.resume_mode=from_path trainer.resume_path=" in refused(shards)
    adapter = run / "exports" / "global_step_20" / "policy"
    (adapter / "adapter_config.json").write_text("{}")  # SkyRL writes config.json beside it
    message = refused(run / "exports" / "global_step_20")
    assert "this is a LoRA adapter without weights; merge it" in message
    assert "AutoTokenizer" in message
    assert "there is no such folder" in refused(run / "nothing")
    monkeypatch.chdir(run)
    assert "there is no such folder" in refused("exports/global_step_7"), "no name on a hub"
    (run / "empty").mkdir()
    assert "not a model folder" in refused(run / "empty")


def test_the_address_of_the_server_is_not_the_users_to_choose(tmp_path):
    done = CliRunner().invoke(app, ["eval", "--model", "nano", "--out", str(tmp_path), "--", "--port=3"])
    assert "`-- --port=3`: the server that --model starts has a free port" in str(done.exception)
