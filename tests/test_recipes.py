"""Every file in configs/ is a run that SkyRL accepts, and says what it does; the CPU twins really train."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from rg_env.cpu import nano_path
from rg_env.skyrl_config import load_config
from tests.e2e.conftest import RG, rg_env

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
RECIPES = sorted(CONFIGS.rglob("*.yaml"))
TWINS = ["dapo", "grpo", "ppo", "reinforce_pp", "rloo"]


def name_of(path):
    return path.relative_to(CONFIGS).with_suffix("").as_posix()


@pytest.fixture(autouse=True)
def a_cluster_somewhere(monkeypatch):
    """GPU recipes are refused on a machine without a GPU, unless a cluster is named."""
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")


def leaves(node, prefix=""):
    """Dotted settings of a YAML file, read without rg_env's or SkyRL's help."""
    for key, value in node.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, dict) and dotted != f"{RG}.tasks":
            yield from leaves(value, f"{dotted}.")
        else:
            yield dotted, value


def reached(cfg, dotted):
    node = cfg
    for part in dotted.split("."):
        node = getattr(node, part)
    return node


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_skyrl_accepts_the_recipe_and_has_every_value_of_it(path, monkeypatch):
    monkeypatch.chdir(CONFIGS.parent)
    cfg = load_config([str(path)])  # SkyRL's parser, our checks, then SkyRL's validate_cfg
    settings = dict(leaves(yaml.safe_load(path.read_text())))
    assert len(settings) > 20
    for name, value in settings.items():
        if value == "nano" and name.endswith("model.path"):
            value = str(nano_path())
        elif name == f"{RG}.dump_dir":
            value = str(Path(value).resolve())
        assert reached(cfg, name) == value, name


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_a_recipe_writes_into_a_folder_of_its_own(path):
    settings = dict(leaves(yaml.safe_load(path.read_text())))
    folders = {Path(settings[f"trainer.{name}"]).parent for name in ("ckpt_path", "export_path", "log_path")}
    folders.add(Path(settings[f"{RG}.dump_dir"]).parent)
    assert folders == {Path("runs", name_of(path).replace("/", "_"))}


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_a_recipe_is_in_the_list_of_recipes(path):
    page = (CONFIGS.parent / "docs" / "recipes.md").read_text()
    assert f"`configs/{name_of(path)}.yaml`" in page


@pytest.mark.parametrize(
    ("gpu", "cpu"),
    [
        ("dapo_8gpu", "cpu/dapo"),
        ("fully_async_8gpu", "cpu_vllm_async"),
        ("grpo_4gpu", "cpu/grpo"),
        ("ppo_4gpu", "cpu/ppo"),
        ("reinforce_pp_4gpu", "cpu/reinforce_pp"),
        ("rloo_4gpu", "cpu/rloo"),
    ],
)
def test_a_cpu_twin_has_the_algorithm_of_its_gpu_recipe(gpu, cpu):
    """All of SkyRL's algorithm settings are equal, down to those that neither file names."""
    algorithms = [dataclasses.asdict(load_config([f"{CONFIGS}/{name}.yaml"]).trainer.algorithm) for name in (gpu, cpu)]
    assert algorithms[0] == algorithms[1]


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS)
def test_a_cpu_twin_trains(twin, tmp_path):
    rg_env(
        "train",
        CONFIGS / "cpu" / f"{twin}.yaml",
        "trainer.max_training_steps=2",
        "trainer.train_batch_size=8",
        "trainer.policy_mini_batch_size=8",
        "trainer.critic_mini_batch_size=8",
        "trainer.micro_train_batch_size_per_gpu=64",
        "trainer.micro_forward_batch_size_per_gpu=64",
        "trainer.eval_interval=-1",
        "trainer.eval_before_train=false",
        f"trainer.ckpt_path={tmp_path}/checkpoints",
        f"trainer.export_path={tmp_path}/exports",
        f"trainer.log_path={tmp_path}/logs",
        f"{RG}.dump_dir={tmp_path}/dumps",
        f"{RG}.suppress_base_env_logs=false",
    )
    rows = json.loads(rg_env("dumps", "stats", tmp_path / "dumps", "--by", "step", "--json").stdout)
    assert [row["step"] for row in rows] == [1, 2]
