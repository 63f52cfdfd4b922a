"""SkyRL accepts every file in configs/ with all its values; the CPU counterparts are trained."""

import contextlib
import dataclasses
import functools
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from rg_env.configuration.settings import value_of
from rg_env.dump import open_run
from rg_env.skyrl.cpu import nano_path
from rg_env.skyrl.run_folder import PATHS
from rg_env.skyrl.train_config import load_run
from tests.e2e.conftest import RG
from tests.running import rg_env, run_command

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
RECIPES = sorted([*CONFIGS.glob("*.yaml"), *CONFIGS.glob("cpu/*.yaml")])
GPU_RECIPES = [path for path in RECIPES if path.stem.endswith("gpu")]
PUBLISHED = [path for path in GPU_RECIPES if path.stem not in ("debug_1gpu", "nano_1gpu")]
SOURCES = json.loads((CONFIGS.parent / "tests" / "data" / "recipe_sources.json").read_text())
TWINS = ["ppo"]
"""Trained at every commit: with a critic and a reference."""
WEEKLY_TWINS = ["dapo", "grpo", "reinforce_pp", "rloo"]


def name_of(path):
    return path.relative_to(CONFIGS).with_suffix("").as_posix()


@functools.cache
def load(name):
    """The settings of a recipe; no GPU, hub or vLLM server is needed here."""
    with contextlib.chdir(CONFIGS.parent):
        return load_run([f"{CONFIGS}/{name}.yaml"], tolerate=lambda missing: None).cfg


def leaves(node, prefix=""):
    """Dotted settings of a YAML file, read without rg_env's or SkyRL's help."""
    for key, value in node.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, dict) and dotted != f"{RG}.tasks":
            yield from leaves(value, f"{dotted}.")
        else:
            yield dotted, value


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_skyrl_accepts_the_recipe_with_every_value(path):
    cfg = load(name_of(path))  # SkyRL's parser, our checks, then SkyRL's validate_cfg
    settings = dict(leaves(yaml.safe_load(path.read_text())))
    assert len(settings) > 20
    for name, value in settings.items():
        if value == "nano" and name.endswith("model.path"):
            value = str(nano_path())
        elif name.endswith(("_path", "dump_dir")):
            value = str(CONFIGS.parent / value)
        assert value_of(cfg, name) == value, name


@pytest.mark.parametrize("path", PUBLISHED, ids=name_of)
def test_a_value_that_differs_from_the_source_has_a_comment_with_the_value_there(path):
    """`recipe_sources.json` has the settings of the sources, of SkyRL's at its tag skyrl-v0.4.0."""
    text = path.read_text()
    header = text.partition("# ----")[0]
    (source,) = (values for name, values in SOURCES.items() if name in header)
    for setting, value in source.items():
        chosen = value_of(load(name_of(path)), setting)
        shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        if chosen != value and not (value is None and str(chosen) == "none"):
            line = re.search(rf"^ *{re.escape(setting.removeprefix(RG + '.'))}:.*$", text, re.MULTILINE)
            assert line, f"{setting}: {chosen} here, {value} in the source"
            assert f"# source: {shown}" in line[0], f"{line[0]} ({value} in the source)"


@pytest.mark.parametrize("path", RECIPES, ids=name_of)
def test_a_recipe_is_complete(path):
    """It leaves a model, writes into a folder of its own, and is in the list of recipes."""
    settings = dict(leaves(yaml.safe_load(path.read_text())))
    assert 0 < settings["trainer.hf_save_interval"] <= settings["trainer.max_training_steps"]
    assert {Path(settings[name]).parent for name in PATHS} == {Path("runs", name_of(path).replace("/", "_"))}
    assert f"`configs/{name_of(path)}.yaml`" in (CONFIGS.parent / "docs" / "train.md").read_text()
    if re.search(r"Qwen3-\w+$", settings["trainer.policy.model.path"]):  # thinks, so it is not evaluated greedily
        assert settings["generator.eval_sampling_params.temperature"] == 0.6
        assert settings["generator.eval_sampling_params.top_p"] == 0.95


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
    algorithms = [dataclasses.asdict(load(name).trainer.algorithm) for name in (gpu, cpu)]
    assert algorithms[0] == algorithms[1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, request):
    """Two steps of each twin that is to be tested now: twin → its folder."""
    tests = [item for item in request.session.items if item.originalname == "test_a_cpu_twin_trains"]
    twins = [test.callspec.params["twin"] for test in tests]
    folder = tmp_path_factory.mktemp("twins")
    recipes = [CONFIGS / "cpu" / f"{twin}.yaml" for twin in twins]
    run_command(sys.executable, "-m", "tests.recipe_runs", folder, *recipes, timeout=1500)
    return {twin: folder / twin for twin in twins}


@pytest.mark.slow
@pytest.mark.timeout(1600)
@pytest.mark.parametrize(
    "twin",
    [
        *(pytest.param(twin, marks=pytest.mark.long) for twin in TWINS),
        *(pytest.param(twin, marks=pytest.mark.weekly) for twin in WEEKLY_TWINS),
    ],
)
def test_a_cpu_twin_trains(twin, trained):
    """On real groups, which `rg-env dumps stats` reads."""
    dumps = trained[twin] / "dumps"
    ledger = [line for line in open_run(dumps).ledger() if line.phase == "train"]
    assert {line.step for line in ledger} == {1, 2}
    assert all(len(line.rollouts) == 8 for line in ledger)
    rows = json.loads(rg_env("dumps", "stats", dumps, "--by", "step", "--json").stdout)
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row["groups"] >= 8 for row in rows)

    metrics = json.loads((trained[twin] / "metrics.json").read_text())  # SkyRL's, of the last step
    assert metrics["policy/grad_norm"] > 0
    assert (metrics.get("critic/grad_norm", 0) > 0) == (twin == "ppo")
