"""Packed rows against SkyRL's own model wrapper: the same logprobs, entropies and gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rg_env.cpu import packing
from rg_env.cpu.packing import HFModelWrapper, Pack, PackedModelWrapper, can_pack
from tests.cpu.toy import build_model

PROMPTS, WIDTH = 9, 6


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PackedModelWrapper:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "llama":
        build_model(folder)
    else:
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.for_model(
            request.param, vocab_size=21, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=8, initializer_range=0.3,
        )  # fmt: skip
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    wrapper = PackedModelWrapper(str(folder), bf16=False)
    assert can_pack(wrapper.model.config)
    return wrapper.eval()


def batch(groups: list[tuple[int, list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences and attention mask as SkyRL lays them out: (prompt length, response lengths) per group."""
    generator = torch.Generator().manual_seed(1)
    sequences, attention = [], []
    for length, responses in groups:
        prompt = torch.randint(5, 21, (PROMPTS,), generator=generator)
        for response in responses:
            row = torch.cat([prompt, torch.randint(5, 21, (WIDTH,), generator=generator)])
            kept = torch.zeros(PROMPTS + WIDTH, dtype=torch.long)
            kept[PROMPTS - length : PROMPTS + response] = 1
            sequences.append(row * kept)
            attention.append(kept)
    return torch.stack(sequences), torch.stack(attention)


def run(
    model: HFModelWrapper, forward: type[HFModelWrapper], groups: list[tuple[int, list[int]]]
) -> tuple[torch.Tensor, ...]:
    sequences, attention = batch(groups)
    real = attention[:, -WIDTH:].float()
    model.zero_grad()
    logprobs, output = forward.forward(
        model, sequences, WIDTH, attention, temperature=0.8, return_output=True, compute_entropy=True
    )
    entropy = output["entropy"][:, -WIDTH - 1 : -1] * real
    weights = torch.randn(logprobs.shape, generator=torch.Generator().manual_seed(2))
    ((logprobs * real * weights).sum() + 0.1 * entropy.sum()).backward()
    gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return (logprobs * real).detach(), entropy.detach(), gradients


lengths = st.lists(st.integers(0, WIDTH), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None)
@given(groups=st.lists(st.tuples(st.integers(1, PROMPTS), lengths), min_size=1, max_size=3))
def test_equal_to_skyrls_own(model: PackedModelWrapper, groups: list[tuple[int, list[int]]]) -> None:
    packed, plain = (run(model, kind, groups) for kind in (PackedModelWrapper, HFModelWrapper))
    for ours, theirs in zip(packed, plain, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-3)


def test_rows_are_cut_where_they_get_long(model: PackedModelWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [(5, [6, 6, 6, 6, 6])]
    whole = run(model, PackedModelWrapper, groups)
    monkeypatch.setattr(packing, "LONGEST_RESPONSES", 12)
    sequences, attention = batch(groups)
    assert Pack.of(sequences, attention.bool(), WIDTH).tokens.shape == (3, 5 + 2 * 5)
    for ours, theirs in zip(run(model, PackedModelWrapper, groups), whole, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-3)


def test_a_prompt_goes_through_once() -> None:
    sequences, attention = batch([(9, [6, 2, 4]), (4, [1])])
    pack = Pack.of(sequences, attention.bool(), WIDTH)
    assert pack.tokens.shape == (2, 9 + 5 + 1 + 3)
    assert pack.positions[0].tolist() == [*range(9), *range(9, 14), 9, *range(9, 12)]
    assert pack.kept == 18 - 3, "logits from the end of the shortest prompt on"


def test_what_bounds_its_own_attention_is_not_packed(tmp_path: Path) -> None:
    from transformers import MistralConfig, Qwen2Config

    assert not can_pack(MistralConfig(sliding_window=5))
    assert not can_pack(Qwen2Config(use_sliding_window=True, sliding_window=4, max_window_layers=1))
