"""Settings from files and the command line become SkyRL's config, or one line that says what would be right."""

import shutil
from pathlib import Path

import pytest

from rg_env.cpu import nano_path
from rg_env.errors import RGEnvError
from rg_env.skyrl.config import known_settings, load_config

RG = "environment.skyrl_gym.rg_dump"


@pytest.fixture
def base(tmp_path):
    """The smallest valid CPU run, in its own folder."""
    path = tmp_path / "run.yaml"
    path.write_text(
        f"""
trainer:
  policy.model.path: nano
  train_batch_size: 4
  policy_mini_batch_size: 4
  ckpt_path: {tmp_path}/ckpt
generator.n_samples_per_prompt: 2
{RG}:
  device: cpu
  dump_dir: {tmp_path}/dumps
  tasks: [chain_sum]
"""
    )
    return str(path)


def refusal(*args):
    with pytest.raises(RGEnvError) as error:
        load_config(args)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_yaml_nested_and_dotted_reaches_skyrl(base):
    cfg = load_config([base])
    assert cfg.trainer.train_batch_size == 4
    assert cfg.rg_dump.tasks == ["chain_sum"]
    assert cfg.environment.env_class == "rg_dump"


def test_overrides_win_over_files_wherever_they_stand(base):
    cfg = load_config([f"{RG}.rollout_save_score_threshold=0.25", base, "trainer.policy.optimizer_config.lr=1e-4"])
    assert cfg.rg_dump.rollout_save_score_threshold == 0.25
    assert cfg.trainer.policy.optimizer_config.lr == 1e-4


def test_small_numbers_in_yaml_are_numbers(base, tmp_path):
    more = tmp_path / "more.yaml"
    more.write_text("trainer.policy.optimizer_config.lr: 3e-4\n")
    assert load_config([base, str(more)]).trainer.policy.optimizer_config.lr == 3e-4


def test_nested_settings_of_ours_are_typed(base):
    cfg = load_config([base, f"{RG}.scorer.workers=3", f"{RG}.length_penalty.kind=kimi"])
    assert cfg.rg_dump.scorer.workers == 3
    assert cfg.rg_dump.length_penalty.kind == "kimi"


def test_skyrls_switch_to_us_is_no_setting(base):
    load_config([base, "trainer.override_entrypoint=rg_env.train"])


def test_a_file_that_is_not_there_suggests_one_with_a_similar_name():
    assert "did you mean configs/quickstart.yaml?" in refusal("configs/quikstart.yaml")
    assert refusal("configs/nope.yaml").endswith("; check the path")


def test_nothing_at_all_is_refused():
    assert "quickstart.yaml" in refusal()


def test_a_file_without_settings_is_refused(base, tmp_path):
    empty = tmp_path / "empty.yaml"
    empty.write_text("# nothing\n")
    assert "no settings" in refusal(base, str(empty))
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1\n")
    assert "YAML" in refusal(base, str(broken))


def test_every_known_key_is_dotted_and_ours_are_among_them():
    keys = known_settings()
    assert f"{RG}.length_penalty.kind" in keys
    assert "trainer.policy.optimizer_config.lr" in keys


def test_relative_paths_mean_the_folder_in_which_the_command_runs(base, tmp_path, monkeypatch):
    """Ray's workers run in another folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(nano_path(), "model")
    Path("train.parquet").touch()
    Path("chat.jinja").touch()
    cfg = load_config(
        [
            base,
            "trainer.policy.model.path=model",
            "data.train_data=[train.parquet, some/hub-dataset]",
            "generator.chat_template.source=file",
            "generator.chat_template.name_or_path=chat.jinja",
            "generator.sampling_params.logprobs=null",
        ]
    )
    assert cfg.trainer.policy.model.path == str(tmp_path / "model")
    assert cfg.data.train_data == [str(tmp_path / "train.parquet"), "some/hub-dataset"]
    assert cfg.generator.chat_template.name_or_path == str(tmp_path / "chat.jinja")
