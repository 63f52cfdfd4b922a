"""What one of SkyRL's loops cannot run or resume from is refused before anything starts; the rest passes."""

import json
import shutil
import zipfile

import pytest
from loguru import logger
from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_vllm_sampling_params
from skyrl.train.config import SamplingParams

from rg_env.base.errors import ConfigError
from rg_env.configuration.settings import set_value
from rg_env.dump import claim_run
from rg_env.skyrl import resumption
from rg_env.skyrl.combinations import OWN_NAMES, check_temperature
from rg_env.skyrl.cpu import cpu_settings, nano_path
from rg_env.skyrl.recorder import resumes
from rg_env.skyrl.resumption import as_settings, finished_at
from rg_env.skyrl.train_config import load_run
from rg_env.train import train
from tests.skyrl.checks.conftest import RG
from tests.skyrl.scripted_training import BATCH, settings


def load(folder, **more):
    return load_run([f"{key}={value}" for key, value in settings(folder, **more).items()]).cfg


@pytest.mark.parametrize("path", ["null", "somewhere/checkpoint", "nowhere/global_step_4"])
def test_resuming_from_a_path_that_is_no_checkpoint_is_refused(tmp_path, path):
    with pytest.raises(ConfigError, match=r"trainer\.resume_path="):
        load(tmp_path, trainer__resume_mode="from_path", trainer__resume_path=path)


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "other" / "global_step_4").mkdir(parents=True)
    cfg = load(tmp_path, trainer__resume_mode="from_path", trainer__resume_path="~/other/global_step_4")
    assert cfg.trainer.resume_path == f"{tmp_path}/other/global_step_4"


@pytest.mark.parametrize("torn", ["", "\0\0"])
def test_a_note_of_the_newest_checkpoint_that_is_cut_off_starts_no_new_run(unfinished, tmp_path, torn):
    """SkyRL does not write it in one step."""
    note = tmp_path / "checkpoints" / "latest_ckpt_global_step.txt"
    note.write_text(torn)
    with pytest.raises(ConfigError, match=r"is empty or cut off: write the number of the newest whole checkpoint into"):
        unfinished()
    for step in (2, 4):
        folder = tmp_path / "checkpoints" / f"global_step_{step}"
        folder.mkdir(exist_ok=True)
        for name in ("trainer_state.pt", "data.pt"):
            with zipfile.ZipFile(folder / name, "w"):
                pass
    (tmp_path / "checkpoints" / "global_step_4" / "model.pt").write_bytes(b"PK")
    with pytest.raises(ConfigError, match=r"into it, 2, or set trainer\.resume_mode=none"):
        unfinished()
    unfinished(trainer__resume_mode="none", trainer__ckpt_path=str(tmp_path / "elsewhere"))


def test_resuming_without_further_checkpoints(tmp_path):
    latest = {"trainer__resume_mode": "latest"}
    load(tmp_path, **latest)
    checkpoint(tmp_path / "checkpoints", 4)
    with pytest.raises(ConfigError, match="set it to 0"):
        load(tmp_path, **latest)
    load(tmp_path, **latest, trainer__ckpt_interval=0)


@pytest.mark.parametrize(
    ("more", "step"),
    [
        ({"trainer__max_training_steps": 4}, 4),
        ({"trainer__max_training_steps": 5, "trainer__epochs": 9}, None),
        ({"trainer__epochs": 2, f"{RG}.size": 2 * BATCH + 1}, 4),
        ({"trainer__epochs": 2, f"{RG}.size": 3 * BATCH}, None),
        ({"trainer__max_training_steps": 4, "trainer__resume_mode": "none", "trainer__ckpt_interval": -1}, None),
    ],
)
def test_a_finished_run_is_known_by_its_steps_or_epochs(tmp_path, more, step):
    checkpoint(tmp_path / "checkpoints", 4)
    more = {
        "trainer__resume_mode": "latest",
        "trainer__ckpt_interval": 1,
        "trainer__max_training_steps": "null",
        **more,
    }
    assert finished_at(load(tmp_path, **more)) == step


def test_a_finished_run_says_so_and_starts_nothing(tmp_path, monkeypatch):
    checkpoint(tmp_path / "checkpoints", 4)
    sent = []
    monkeypatch.setattr("rg_env.train.Reports.send", lambda self, **facts: sent.append(facts))
    more = {"trainer__resume_mode": "latest", "trainer__ckpt_interval": 1, "trainer__max_training_steps": 4}
    train(f"{key}={value}" for key, value in settings(tmp_path, **more).items())
    assert sent[-1]["finished"].startswith(f"the run in {tmp_path}/checkpoints is finished, at step 4; ")


DEFINING = {
    "trainer.policy.optimizer_config.lr": "5.0e-6",
    "trainer.algorithm.advantage_estimator": "rloo",
    "trainer.algorithm.eps_clip_high": "0.3",
    "trainer.policy_mini_batch_size": "2",
    "trainer.seed": "7",
    "generator.sampling_params.temperature": "0.9",
    "generator.n_samples_per_prompt": "6",
    f"{RG}.tasks": "{gcd: 1}",
    f"{RG}.complexity": "0.5",
    f"{RG}.scorer.timeout": "7",
    f"{RG}.length_penalty.kind": "dapo",
    f"{RG}.reward": "examples.costs.of_tokens",
}
FREE = {
    "trainer.micro_train_batch_size_per_gpu": "4",
    "trainer.max_training_steps": "9",
    "trainer.epochs": "3",
    "trainer.eval_interval": "2",
    "trainer.run_name": "other",
    "trainer.logger": "tensorboard",
    "generator.inference_engine.gpu_memory_utilization": "0.5",
    f"{RG}.scorer.workers": "2",
    f"{RG}.groups_per_file": "7",
    f"{RG}.stop_on_canaries": "true",
}


@pytest.fixture
def unfinished(tmp_path):
    """A run with a checkpoint of step 4, which `latest` would continue."""
    latest = {"trainer__resume_mode": "latest", "trainer__ckpt_interval": 1}
    cfg = load(tmp_path, **latest)
    claim_run(cfg.trainer.ckpt_path, resuming=False, settings=as_settings(cfg))
    folder = tmp_path / "checkpoints"
    (folder / "global_step_4").mkdir()
    (folder / "latest_ckpt_global_step.txt").write_text("4")
    return lambda **more: load(tmp_path, **latest | more)


def test_latest_continues_the_same_experiment_only(unfinished, tmp_path):
    for setting, value in DEFINING.items():
        with pytest.raises(ConfigError) as error:
            unfinished(**{setting: value})
        message = str(error.value)
        assert f"{setting} was " in message
        assert "\n" not in message
        assert f"trainer.resume_mode=from_path trainer.resume_path={tmp_path}/checkpoints/global_step_4" in message
    unfinished()
    with pytest.raises(ConfigError, match="and 1 more"):
        unfinished(**dict(list(DEFINING.items())[-4:]))


def test_a_mix_in_a_file_is_compared_by_what_it_says(unfinished, tmp_path):
    mix = tmp_path / "mix.yaml"
    mix.write_text(f"{RG}.tasks: {{gcd: 1}}\n")
    cfg = unfinished(**{f"{RG}.tasks": str(mix), "trainer__resume_mode": "none", "trainer__ckpt_path": f"{tmp_path}/c"})
    claim_run(cfg.trainer.ckpt_path, resuming=False, settings=as_settings(cfg))
    checkpoint(tmp_path / "c", 4)
    again = {f"{RG}.tasks": str(mix), "trainer__ckpt_path": f"{tmp_path}/c"}
    (tmp_path / "c" / "rg_env_run.json").write_text(
        json.dumps({"run_id": "r", "attempt": 1, "settings": as_settings(cfg)})
    )
    unfinished(**again)
    mix.write_text(f"{RG}.tasks: {{gcd: 1, lcm: 1}}\n")
    with pytest.raises(ConfigError, match=r"rg_dump\.tasks was "):
        unfinished(**again)


def test_what_makes_no_experiment_may_change(unfinished):
    lines = []
    number = logger.add(lines.append, level="INFO")
    unfinished(**FREE)
    logger.remove(number)
    assert any("continuing with other settings" in line for line in lines)


def checkpoint(folder, step):
    (folder / f"global_step_{step}").mkdir(parents=True)
    (folder / "latest_ckpt_global_step.txt").write_text(str(step))
    (folder / "rg_env_run.json").write_text(json.dumps({"run_id": f"of-{folder.name}", "attempt": 1}))
    return folder / f"global_step_{step}"


def test_nano_is_the_same_model_wherever_rg_env_is_installed(unfinished, monkeypatch, tmp_path):
    copy = shutil.copytree(nano_path(), tmp_path / "elsewhere" / "nano")
    with pytest.raises(ConfigError, match=r"trainer\.policy\.model\.path was 'nano', is now '/"):
        unfinished(trainer__policy__model__path=str(copy))
    monkeypatch.setattr(cpu_settings, "NANO_FOLDER", copy)
    monkeypatch.setattr(resumption, "NANO_FOLDER", copy)
    assert unfinished().trainer.policy.model.path == str(copy)


@pytest.mark.parametrize("from_", ["latest", "own", "own, by another name", "other", "none"])
def test_the_run_goes_on_from_its_own_checkpoints_only(tmp_path, from_):
    own, other = checkpoint(tmp_path / "checkpoints", 4), checkpoint(tmp_path / "other", 8)
    (tmp_path / "link").symlink_to(own.parent)
    paths = {"own": own, "own, by another name": tmp_path / "link" / own.name, "other": other}
    resume = {"trainer__resume_mode": "from_path" if from_ in paths else from_, "trainer__ckpt_interval": 1}
    if from_ in paths:
        resume["trainer__resume_path"] = f"{paths[from_]}/"
    if from_ in ("other", "none"):
        resume["trainer__ckpt_interval"] = 0  # a new run would delete the checkpoint
    cfg = load(tmp_path, **resume)
    run_id, attempt = claim_run(cfg.trainer.ckpt_path, resuming=resumes(cfg))
    if from_ in ("other", "none"):
        assert attempt == 1
        assert not run_id.startswith("of-")
    else:
        assert (run_id, attempt) == ("of-checkpoints", 2)


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"generator__merge_stepwise_output": True}, "merge_stepwise_output"),
        ({"generator__max_turns": 2}, "dynamic_sampling"),
    ],
)
@pytest.mark.parametrize("sampling", ["filter", "replace"])
def test_dynamic_sampling_that_would_die_in_the_first_step_is_refused(tmp_path, change, setting, sampling):
    stepwise = {"generator__step_wise_trajectories": True, "trainer__algorithm__dynamic_sampling__type": sampling}
    load(tmp_path, **stepwise)
    with pytest.raises(ConfigError, match=setting):
        load(tmp_path, **stepwise, **change)


HOT = {"generator__sampling_params__temperature": 0.7, f"{RG}.device": "cuda"}


def test_what_skyrl_sends_itself():
    assert get_vllm_sampling_params(SamplingParams()).keys() == OWN_NAMES.keys()


@pytest.mark.parametrize(
    ("change", "is_refused"),
    [
        ({}, False),
        ({"trainer__algorithm__policy_loss_type": "rollout_is"}, True),
        ({"trainer__algorithm__off_policy_correction__tis_ratio_type": "token"}, True),
        ({"trainer__algorithm__off_policy_correction__tis_ratio_type": "token", f"{RG}.device": "cpu"}, False),
    ],
)
def test_vllms_logprobs_at_another_temperature_are_refused_where_they_are_used(tmp_path, change, is_refused):
    cfg = load(tmp_path)
    cfg.trainer.algorithm.temperature = None  # as before SkyRL completes it
    for name, value in (HOT | change).items():
        set_value(cfg, name.replace("__", "."), value)
    mistakes = [right for _, right in check_temperature(cfg)]
    assert [right[:42] for right in mistakes] == is_refused * ["vLLM returns the logprobs of temperature 1"]
