from __future__ import annotations

from typing import Any

import pytest
from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_sampling_params_for_backend
from skyrl.train.config import SamplingParams as SkyRLSamplingParams

from rg_env.base.errors import ConfigError
from rg_env.skyrl.cpu.cpu_settings import SamplingParams, cpu_threads
from tests.running import run_program


def test_what_skyrl_sends_is_understood() -> None:
    skyrl = SkyRLSamplingParams(max_generate_length=5, temperature=0.7, stop=["</answer>"])
    params = SamplingParams.from_vllm(get_sampling_params_for_backend("vllm", skyrl))
    assert params == SamplingParams(max_tokens=5, temperature=0.7, stop=("</answer>",), logprobs=1)
    neutral = {"repetition_penalty": 1.0, "logit_bias": None, "top_k": -1, "stop": None, "logprobs": None}
    assert SamplingParams.from_vllm(neutral) == SamplingParams()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"repetition_penalty": 1.1}, "unknown field `repetition_penalty`"),
        ({"logprobs": 5}, r"`int` <= 1 - at `\$.logprobs`, in {'logprobs': 5}"),
        ({"temperature": -1}, r"`float` >= 0.0 - at `\$.temperature`"),
        ({"top_p": 0}, r"`float` > 0.0 - at `\$.top_p`"),
        ({"top_k": 2.5}, r"Expected `int`, got `float` - at `\$.top_k`"),
        ({"max_tokens": 0}, r"`int` >= 1 - at `\$.max_tokens`"),
        ({"stop": [""]}, "length >= 1"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_refused_in_one_line(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        SamplingParams.from_vllm(params)
    assert "\n" not in str(refusal.value)


def test_threads_are_the_cores_shared_by_the_workers_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RG_ENV_CPU_THREADS", raising=False)
    monkeypatch.setattr("rg_env.skyrl.cpu.cpu_settings.usable_cores", lambda: 6)
    assert [cpu_threads(workers) for workers in (1, 2, 4, 12)] == [6, 3, 1, 1]
    monkeypatch.setenv("RG_ENV_CPU_THREADS", "3")
    assert cpu_threads(2) == 3
    monkeypatch.setenv("RG_ENV_CPU_THREADS", "many")
    with pytest.raises(ConfigError, match="RG_ENV_CPU_THREADS='many': must be a whole number of at least 1"):
        cpu_threads()


def test_a_look_at_the_settings_imports_neither_torch_nor_ray() -> None:
    done = run_program("loaded", "rg_env.skyrl.cpu:CPU_OVERRIDES")
    assert done.stdout == "[]\n"
