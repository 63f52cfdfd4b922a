"""Where SkyRL refuses batch sizes or GPUs, the line names settings, and every value in it is accepted."""

import re
from pathlib import Path

import pytest

from rg_env.errors import ConfigError
from rg_env.skyrl.suggestions import ROWS, suggestion
from rg_env.skyrl.train_config import load_run

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
PLACEMENT = "trainer.placement"
ENGINE = "generator.inference_engine"
REFERENCE = "trainer.algorithm.use_kl_loss=true"
CASES = {
    "quickstart trainer.train_batch_size=20": ["set trainer.train_batch_size=16 or 32"],
    "quickstart trainer.train_batch_size=8": ["set trainer.train_batch_size=16"],
    "quickstart trainer.micro_train_batch_size_per_gpu=100": ["micro_train_batch_size_per_gpu=64 or 128"],
    f"quickstart {PLACEMENT}.policy_num_nodes=3 {PLACEMENT}.ref_num_nodes=3 trainer.micro_train_batch_size_per_gpu=1": [
        "generator.n_samples_per_prompt=6 or 9"
    ],
    f"quickstart {REFERENCE} {PLACEMENT}.colocate_policy_ref=false {PLACEMENT}.ref_num_nodes=3": [
        "workers (policy 1, ref 3)"
    ],
    "cpu/ppo trainer.placement.critic_num_nodes=3 trainer.micro_train_batch_size_per_gpu=1": ["critic 3"],
    f"grpo_4gpu {ENGINE}.num_engines=2": [f"{ENGINE}.num_engines=4", f"{ENGINE}.tensor_parallel_size=2"],
    f"fully_async_8gpu {PLACEMENT}.ref_num_gpus_per_node=2": [f"{PLACEMENT}.ref_num_gpus_per_node=4"],
}


def load(text):
    recipe, *settings = text.split()
    return load_run([f"{CONFIGS}/{recipe}.yaml", *settings], tolerate=lambda missing: None)


@pytest.mark.parametrize("case", CASES)
def test_what_is_suggested_is_accepted(case):
    with pytest.raises(ConfigError) as error:
        load(case)
    message = str(error.value)
    assert "\n" not in message
    for part in CASES[case]:
        assert part in message
    suggested = re.findall(r"([\w.]+)=(\d+)(?: or (\d+))?", message)
    assert suggested, message
    for setting, *values in suggested:
        for value in filter(None, values):
            load(f"{case} {setting}={value}")


def test_every_row_is_about_words_that_skyrl_says():
    """Or about our own: another version of SkyRL may say it otherwise."""
    skyrl = Path(pytest.importorskip("skyrl").__path__[0])
    files = [skyrl / "train" / name for name in ("utils/utils.py", "trainer.py", "fully_async_trainer.py")]
    files.append(CONFIGS.parent / "rg_env" / "skyrl" / "checks.py")
    source = "".join(re.sub(r'"\s*\n\s*f?"', "", file.read_text()) for file in files)
    source = re.sub(r"\{[^{}]*\}", "7", source)
    for row in ROWS:
        assert re.search(row.message, source), row.message


def test_a_message_under_way_names_settings_without_values():
    assert suggestion("train_batch_size 20 should be divisible by policy_mini_batch_size 16", None).startswith(
        "change "
    )
    assert suggestion("something else", None) == ""
