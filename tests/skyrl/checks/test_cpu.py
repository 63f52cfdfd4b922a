"""What cannot run on the CPU is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
from skyrl.train.config import SkyRLTrainConfig

from rg_env.cpu import CPU_OVERRIDES
from rg_env.errors import ConfigError
from rg_env.skyrl.checks import check_cpu


def config(**changes: Any) -> Any:
    cfg = SkyRLTrainConfig.from_cli_overrides([f"{key}={value}" for key, value in CPU_OVERRIDES.items()])
    for key, value in changes.items():
        *path, name = key.split("__")
        owner = cfg
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, name, value)
    return cfg


def test_the_overrides_make_a_run_that_passes() -> None:
    check_cpu(config())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("trainer__strategy", "megatron", "trainer.strategy='megatron': cannot run on the CPU; use fsdp"),
        ("trainer__flash_attn", True, "trainer.flash_attn=true: cannot run on the CPU; set it to false"),
        ("trainer__bf16", True, "trainer.bf16=true: cannot run on the CPU"),
        ("trainer__placement__colocate_all", True, "trainer.placement.colocate_all=true: cannot run"),
        ("trainer__placement__policy_num_gpus_per_node", 4, "set it to 1, and policy_num_nodes to the"),
        ("trainer__policy__model__lora__rank", 8, "trainer.policy.model.lora.rank=8: cannot run on the CPU"),
        ("trainer__ref__sequence_parallel_size", 2, "trainer.ref.sequence_parallel_size=2"),
        ("generator__inference_engine__model_dtype", "float16", "model_dtype='float16': cannot run on the CPU"),
        ("generator__inference_engine__num_engines", 2, "there is one sampler"),
        (
            "generator__sampling_params__repetition_penalty",
            1.2,
            "generator.sampling_params: .*unknown field `repetition_penalty`",
        ),
        ("generator__eval_sampling_params__logprobs", 3, "generator.eval_sampling_params: .*`int` <= 1"),
        ("generator__sampling_params__additional_kwargs", {"best": 1}, "unknown field `best`"),
        ("generator__sampling_params__additional_kwargs", {"seed": 1}, "unknown field `seed`"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(key: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        check_cpu(config(**{key: value}))
    assert "\n" not in str(refusal.value)
