"""Packed rows against SkyRL's own model wrapper: the same logprobs, entropies and gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors

from rg_env.skyrl.cpu import packing
from rg_env.skyrl.cpu.packing import HFModelWrapper, Pack, PackedModelWrapper, can_pack
from tests.cpu.toy import build_model

PROMPTS, WIDTH = 9, 6
"""Most tokens of a prompt and of a response."""


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


Groups = list[tuple[int, list[int]]]


def batch(groups: Groups) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(prompt length, response lengths) per group, laid out by SkyRL: sequences, attention mask, response mask."""
    generator = torch.Generator().manual_seed(1)

    def draw(count: int) -> list[int]:
        return torch.randint(5, 21, (count,), generator=generator).tolist()

    prompts = [prompt for length, responses in groups for prompt in [draw(length)] * len(responses)]
    responses = [draw(length) for _, lengths in groups for length in lengths]
    ones = [[1] * len(response) for response in responses]
    rewards = [[0.0] * len(response) for response in responses]
    sequences, attention, real, *_ = convert_prompts_responses_to_batch_tensors(0, prompts, responses, rewards, ones)
    return sequences, attention, real


def run(model: HFModelWrapper, forward: type[HFModelWrapper], groups: Groups) -> tuple[torch.Tensor, ...]:
    sequences, attention, real = batch(groups)
    width = real.shape[1]
    model.zero_grad()
    logprobs, output = forward.forward(
        model, sequences, width, attention, temperature=0.8, return_output=True, compute_entropy=True
    )
    entropy = output["entropy"][:, -width - 1 : -1] * real
    weights = torch.randn(logprobs.shape, generator=torch.Generator().manual_seed(2))
    ((logprobs * real * weights).sum() + 0.1 * entropy.sum()).backward()
    gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return (logprobs * real).detach(), entropy.detach(), gradients


lengths = st.lists(st.integers(1, WIDTH), min_size=1, max_size=4)


@settings(max_examples=15)
@given(groups=st.lists(st.tuples(st.integers(1, PROMPTS), lengths), min_size=1, max_size=3))
def test_equal_to_skyrls_own(model: PackedModelWrapper, groups: Groups) -> None:
    packed, plain = (run(model, kind, groups) for kind in (PackedModelWrapper, HFModelWrapper))
    for ours, theirs in zip(packed, plain, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-3)


def test_rows_are_cut_where_they_get_long(model: PackedModelWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [(5, [6, 6, 6, 6, 6])]
    whole = run(model, PackedModelWrapper, groups)
    monkeypatch.setattr(packing, "LONGEST", 12)
    sequences, attention, _ = batch(groups)
    assert Pack.of(sequences, attention.bool(), 6).tokens.shape == (3, 5 + 2 * 5)
    for ours, theirs in zip(run(model, PackedModelWrapper, groups), whole, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-3)


def test_what_sequences_share_goes_through_once() -> None:
    """Two responses to one prompt that begin alike, and another prompt."""
    sequences = torch.tensor([[7, 8, 9, 10, 11, 12], [0, 7, 8, 9, 10, 13], [0, 0, 0, 8, 9, 5]])
    pack = Pack.of(sequences, sequences > 0, 3)
    assert pack.tokens.tolist() == [[7, 8, 9, 10, 11, 8, 9]]
    assert pack.positions.tolist() == [[0, 1, 2, 3, 4, 0, 1]]
    seen = [[place for place, sees in enumerate(row) if sees] for row in pack.mask[0, 0].tolist()]
    assert seen == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4], [5], [5, 6]]
    assert pack.predicted.tolist() == [[True] * 3, [True] * 3, [False, True, True]]
    first = 7 - pack.kept
    assert (pack.columns + first).tolist() == [[2, 3, 4], [1, 2, 3], [first, 5, 6]]


def test_what_bounds_its_own_attention_is_not_packed(tmp_path: Path) -> None:
    from transformers import MistralConfig, Qwen2Config

    assert not can_pack(MistralConfig(sliding_window=5))
    assert not can_pack(Qwen2Config(use_sliding_window=True, sliding_window=4, max_window_layers=1))
