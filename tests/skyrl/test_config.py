"""Settings from files and the command line become SkyRL's config, or one line that says what would be right."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rg_env.base.errors import RGEnvError
from rg_env.skyrl.cpu import nano_path
from rg_env.skyrl.train_config import load_run
from tests.running import ROOT

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


def test_a_whole_value_replaces_the_parts_that_were_set_before(base, tmp_path):
    """Whichever was set first, and wherever."""
    part = tmp_path / "part.yaml"
    part.write_text(f"{RG}.tasks.gcd: 5")
    whole = tmp_path / "whole.yaml"
    whole.write_text(f"{RG}.tasks: {{lcm: 1}}")
    for args, tasks in {
        (base, str(part), "tasks={lcm: 1}"): {"lcm": 1},
        (base, "tasks.gcd=2", "tasks={lcm: 1}"): {"lcm": 1},
        (base, "tasks={lcm: 1}", "tasks.gcd=2"): {"lcm": 1, "gcd": 2},
        (base, str(part), str(whole)): {"lcm": 1},
        (base, str(whole), str(part)): {"lcm": 1, "gcd": 5},
    }.items():
        assert load_run(args).cfg.rg_dump.tasks == tasks, args


def test_files_and_overrides_reach_skyrl(base, tmp_path):
    """Nested and dotted; overrides win over files wherever they stand, and later files over earlier ones."""
    more = tmp_path / "more.yaml"
    more.write_text(f"trainer.policy.optimizer_config.lr: 3e-4\n{RG}.rollout_save_score_threshold: 0.5\n")
    typed = f"{RG}.rollout_save_score_threshold=0.25 {RG}.scorer.workers=3 {RG}.length_penalty.kind=kimi"
    cfg = load_run([*typed.split(), base, str(more), "trainer.override_entrypoint=rg_env.train"]).cfg
    assert (cfg.trainer.train_batch_size, cfg.rg_dump.tasks) == (4, ["chain_sum"])
    assert cfg.trainer.policy.optimizer_config.lr == 3e-4
    assert cfg.rg_dump.rollout_save_score_threshold == 0.25
    assert (cfg.rg_dump.scorer.workers, cfg.rg_dump.length_penalty.kind) == (3, "kimi")


@pytest.mark.parametrize(
    ("text", "args", "right"),
    [
        (None, ["configs/quikstart.yaml"], "did you mean configs/quickstart.yaml?"),
        (None, ["configs/nope.yaml"], "; check the path"),
        (None, [], "configs/quickstart.yaml"),
        ("# nothing\n", [], "no settings"),
        ("a: [1\n", [], "YAML"),
    ],
)
def test_a_file_without_settings_is_one_line(base, tmp_path, text, args, right):
    if text:
        args = [base, str(tmp_path / "other.yaml")]
        Path(args[1]).write_text(text)
    with pytest.raises(RGEnvError) as error:
        load_run(args)
    assert right in str(error.value) and "\n" not in str(error.value)


def test_relative_paths_mean_the_folder_in_which_the_command_runs(base, tmp_path, monkeypatch):
    """Ray's workers run in another folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(nano_path(), "model")
    Path("train.parquet").touch()
    Path("chat.jinja").touch()
    cfg = load_run(
        [
            base,
            "trainer.policy.model.path=model",
            "data.train_data=[train.parquet, some/hub-dataset]",
            "generator.chat_template.source=file",
            "generator.chat_template.name_or_path=chat.jinja",
            "generator.sampling_params.logprobs=null",
        ]
    ).cfg
    assert cfg.trainer.policy.model.path == str(tmp_path / "model")
    assert cfg.data.train_data == [str(tmp_path / "train.parquet"), "some/hub-dataset"]
    assert cfg.generator.chat_template.name_or_path == str(tmp_path / "chat.jinja")


@pytest.mark.long
def test_settings_are_checked_without_importing_vllm(tmp_path):
    """SkyRL's config imports it where it is installed, which takes a quarter of a minute."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise SystemExit('vllm was imported')")
    code = "from rg_env.skyrl.train_config import load_run; load_run(['configs/quickstart.yaml'])"
    # Afterwards, it can still be imported.
    code += "; print('checked'); import vllm"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True)
    assert "checked" in done.stdout, done.stderr
    assert "vllm was imported" in done.stderr
