"""A GPU recipe on a machine that has too few GPUs, or none."""

import socket
from pathlib import Path

import pytest
import torch

from rg_env.errors import RGEnvError
from rg_env.skyrl.config import load_config

CONFIGS = Path(__file__).resolve().parents[3] / "configs"


def refused(recipe):
    with pytest.raises(RGEnvError) as error:
        load_config([str(CONFIGS / f"{recipe}.yaml")])
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def gpus(monkeypatch):
    """Fakes the number of GPUs."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("rg_env.skyrl.checks.check_hub_models", lambda cfg: None)
    monkeypatch.setattr("rg_env.skyrl.checks._RAY_FOLDER", Path("no such folder"))

    def have(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return have


def test_without_a_gpu_the_recipes_for_the_cpu_are_named(gpus):
    gpus(0)
    assert "configs/cpu/" in refused("ppo_4gpu")


@pytest.mark.parametrize(
    ("recipe", "needed"), [("grpo_1gpu_lora", 1), ("ppo_4gpu", 4), ("dapo_2x8gpu", 16), ("fully_async_8gpu", 8)]
)
def test_one_gpu_less_than_needed(gpus, recipe, needed):
    gpus(needed)
    load_config([str(CONFIGS / f"{recipe}.yaml")])
    gpus(needed - 1)
    assert needed == 1 or f"needs {needed} GPUs and this machine has {needed - 1}" in refused(recipe)


def test_a_cluster_is_asked_by_ray(gpus, monkeypatch):
    gpus(0)
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")
    load_config([str(CONFIGS / "dapo_2x8gpu.yaml")])


@pytest.mark.parametrize("alive", [True, False])
def test_a_ray_that_was_started_on_the_machine_is_joined(gpus, tmp_path, monkeypatch, alive):
    gpus(0)
    monkeypatch.setattr("rg_env.skyrl.checks._RAY_FOLDER", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as ray:
        (tmp_path / "ray_current_cluster").write_text(f"127.0.0.1:{ray.getsockname()[1]}")
        if alive:
            load_config([str(CONFIGS / "dapo_2x8gpu.yaml")])
    if not alive:
        assert "no GPU" in refused("dapo_2x8gpu")
