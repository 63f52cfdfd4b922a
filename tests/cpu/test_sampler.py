from __future__ import annotations

import pickle
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from rg_env.base.errors import ConfigError
from rg_env.skyrl.cpu import sampler as sampler_module
from rg_env.skyrl.cpu.cpu_settings import SamplingParams
from rg_env.skyrl.cpu.sampler import Request, Sample, Sampler, SamplerError

END = 1
PROMPTS = [(2, 5, 6, 3), (2, 7, 7, 7, 8, 9, 3), (2, 12, 3), (2, 5, 6, 3)]


@pytest.fixture
def sampler(model_folder: Path) -> Sampler:
    return Sampler.from_pretrained(str(model_folder), seed=7)


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()


def ask(sampler: Sampler, prompts: Any = PROMPTS, **params: Any) -> list[Sample]:
    made = SamplingParams.from_vllm({"max_tokens": 20, "logprobs": 1, **params})
    return sampler.sample([Request(tuple(prompt), made) for prompt in prompts])


@torch.no_grad()
def plain_logprobs(model: Any, prompt: Any, tokens: list[int], temperature: float = 1.0) -> torch.Tensor:
    """One sequence, no padding, no cache; shape [tokens, vocabulary]."""
    logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1)


def first_token(model: Any, prompt: Any, temperature: float = 1.0) -> torch.Tensor:
    """Probabilities of the first token, which is never the end of the sequence."""
    probabilities = plain_logprobs(model, prompt, [0], temperature)[0].exp()
    probabilities[END] = 0
    return probabilities / probabilities.sum()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.6},
        {"temperature": 1.7, "top_k": 3},
        {"top_p": 0.7},
        {"min_p": 0.2, "top_k": 5, "top_p": 0.9},
    ],
    ids=str,
)
def test_logprobs_are_those_of_the_whole_distribution(sampler: Sampler, model: Any, params: dict[str, Any]) -> None:
    for prompt, response in zip(PROMPTS, ask(sampler, **params), strict=True):
        expected = plain_logprobs(model, prompt, response.token_ids, params.get("temperature", 1.0))
        chosen = expected.gather(-1, torch.tensor(response.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(response.logprobs), chosen, atol=1e-5, rtol=0)


def test_greedy_is_what_hugging_face_generates(sampler: Sampler, model: Any) -> None:
    for prompt, response in zip(PROMPTS, ask(sampler, temperature=0), strict=True):
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt)),
            min_new_tokens=1,
            max_new_tokens=20,
            do_sample=False,
        )
        assert response.token_ids == out[0, len(prompt) :].tolist()


def test_tokens_come_as_often_as_their_probability_says(sampler: Sampler, model: Any) -> None:
    prompt, draws = PROMPTS[0], 4000
    seen = Counter(r.token_ids[0] for r in ask(sampler, [prompt] * draws, max_tokens=1, temperature=1.3))
    expected = first_token(model, prompt, 1.3)
    counts = torch.tensor([float(seen[token]) for token in range(len(expected))])
    assert counts[END] == 0
    others = expected > 0
    chi_square = ((counts - draws * expected) ** 2 / (draws * expected))[others].sum().item()
    assert chi_square < 50  # 19 degrees of freedom: exceeded with probability 2e-4


@pytest.mark.parametrize("params", [{"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.3}, {"top_k": 4, "top_p": 0.8}], ids=str)
def test_only_what_a_cut_leaves_is_sampled(sampler: Sampler, model: Any, params: dict[str, Any]) -> None:
    prompt = PROMPTS[1]
    seen = {r.token_ids[0] for r in ask(sampler, [prompt] * 2000, max_tokens=1, **params)}
    probabilities = first_token(model, prompt)
    ranked = probabilities.argsort(descending=True).tolist()
    kept = ranked[: params.get("top_k", len(ranked))]
    kept = [t for t in kept if probabilities[t] >= params.get("min_p", 0) * probabilities.max()]
    if "top_p" in params:
        share = probabilities[kept] / probabilities[kept].sum()
        kept = kept[: int(((share.cumsum(0) - share) < params["top_p"]).sum())]
    assert seen == set(kept)


def test_a_batch_may_mix_parameters(sampler: Sampler) -> None:
    makes = [
        {"temperature": 0},
        {"temperature": 1.0, "top_k": 2},
        {"max_tokens": 1},
        {"temperature": 0},
    ]
    params = [SamplingParams.from_vllm({"max_tokens": 20, **made}) for made in makes]
    responses = sampler.sample([Request(prompt, made) for prompt, made in zip(PROMPTS, params, strict=True)])
    greedy = ask(sampler, temperature=0)
    assert responses[0].token_ids == greedy[0].token_ids == responses[3].token_ids
    assert len(responses[2].token_ids) == 1


# ---------------------------------------------------------------------- how responses end
def test_end_of_sequence_ends_a_response_and_is_kept(sampler: Sampler) -> None:
    ended = [r for r in ask(sampler, PROMPTS * 20) if r.stop_reason == "stop"]
    assert ended
    for response in ended:
        assert response.token_ids[-1] == 1 and 1 not in response.token_ids[:-1]
        assert "<eos>" not in response.text
    assert all(len(r.token_ids) == len(r.logprobs) for r in ended)


@pytest.mark.parametrize("stop", [["b"], ["ab", "e"], ["ic"]], ids=str)
def test_stop_strings_end_inside_tokens(sampler: Sampler, stop: list[str]) -> None:
    """The toy vocabulary has `abc` and `de` as one token each: `b` ends inside of one."""
    decode = sampler._tokenizer.decode
    responses = ask(sampler, PROMPTS * 30, stop=stop)
    ended = [r for r in responses if r.stop_reason == "stop" and r.token_ids[-1] != 1]
    assert len(ended) > 20
    for response in ended:
        whole, before = (decode(ids, skip_special_tokens=True) for ids in (response.token_ids, response.token_ids[:-1]))
        first = decode(response.token_ids[:1], skip_special_tokens=True)  # is not searched

        def ends(text: str, first: str = first) -> list[int]:
            found = ((text.find(s, max(0, len(first) - len(s) + 1)), len(s)) for s in stop)
            return [at + length for at, length in found if at >= 0]

        assert ends(whole) and not ends(before), "the last token completes it"
        assert response.text == whole[: ends(whole)[0]]
    cut = [r for r in responses if r.stop_reason == "length"]
    assert cut
    for response in cut:
        first = decode(response.token_ids[:1], skip_special_tokens=True)
        assert not any(s in response.text[len(first) :] for s in stop)
    if "b" in stop:
        assert any(decode(r.token_ids, skip_special_tokens=True) != r.text for r in ended)


def test_a_prompt_near_the_end_of_the_context_gets_what_room_there_is(sampler: Sampler) -> None:
    responses = ask(sampler, [[5] * 253] * 20)
    assert {len(response.token_ids) for response in responses if response.stop_reason == "length"} == {3}
    with pytest.raises(ConfigError, match="256 tokens fills the model's context"):
        ask(sampler, [[5] * 256])
    with pytest.raises(ConfigError, match="prompt is empty"):
        ask(sampler, [[]])


# ---------------------------------------------------------------------- sameness
def test_the_same_seed_gives_the_same_samples_in_any_order(model_folder: Path) -> None:
    first, second, other = (Sampler.from_pretrained(str(model_folder), seed=seed) for seed in (7, 7, 8))
    straight = ask(first)
    mixed = ask(second, [PROMPTS[2], PROMPTS[0], PROMPTS[1]]) + ask(second, [PROMPTS[3]])
    assert [r.token_ids for r in straight] == [mixed[i].token_ids for i in (1, 2, 0, 3)]
    assert straight[0].token_ids != straight[3].token_ids, "samples of one prompt differ"
    assert [r.token_ids for r in ask(other)] != [r.token_ids for r in straight]
    assert [r.token_ids for r in ask(first)] != [r.token_ids for r in straight], "asked again, new samples"


def test_sharing_prompts_and_dropping_rows_change_nothing(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [Request(prompt, SamplingParams(max_tokens=30)) for prompt in PROMPTS[:3] for _ in range(8)]
    widths: list[int] = []
    forward = sampler_module._Batch.forward
    monkeypatch.setattr(
        sampler_module._Batch, "forward", lambda self, tokens: (widths.append(len(tokens)), forward(self, tokens))[1]
    )
    batched = Sampler.from_pretrained(str(model_folder), seed=7).sample(requests)
    assert widths[0] > 12 and widths[-1] <= 12, "rows that ended left the batch"

    alone = Sampler.from_pretrained(str(model_folder), seed=7)
    one_by_one = [alone.sample([request])[0] for request in requests]
    assert [r.token_ids for r in batched] == [r.token_ids for r in one_by_one]
    for left, right in zip(batched, one_by_one, strict=True):
        # float32 noise between matrices of different heights: 1.1e-5 at a logprob of -3.1 was seen
        np.testing.assert_allclose(left.logprobs, right.logprobs, rtol=1e-5, atol=1e-5)


def test_sliding_windows_are_sampled_right(tmp_path: Path) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    from tests.cpu.toy import build_tokenizer

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=21, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=5, eos_token_id=1, initializer_range=0.3,
    )  # fmt: skip
    model = MistralForCausalLM(config).eval()
    sampler = Sampler(model, build_tokenizer())
    for prompt, response in zip(PROMPTS, ask(sampler), strict=True):
        chosen = plain_logprobs(model, prompt, response.token_ids).gather(-1, torch.tensor(response.token_ids)[:, None])
        torch.testing.assert_close(torch.tensor(response.logprobs), chosen[:, 0], atol=1e-5, rtol=0)


# ---------------------------------------------------------------------- weights
def test_new_weights_are_used_and_start_new_streams(sampler: Sampler, model: Any) -> None:
    before = ask(sampler, [PROMPTS[0]])
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    sampler.load_weights(state)
    assert ask(sampler, [PROMPTS[0]])[0].token_ids != before[0].token_ids
    state["lm_head.weight"] = state["lm_head.weight"].flip(0)
    sampler.load_weights(state)
    (greedy,) = ask(sampler, [PROMPTS[0]], temperature=0)
    assert greedy.token_ids[0] == 20 - int(plain_logprobs(model, PROMPTS[0], [0]).argmax())


def test_tied_weights_move_together_or_not_at_all(tied_model_folder: Path) -> None:
    sampler = Sampler.from_pretrained(str(tied_model_folder))
    state = {name: tensor.clone() for name, tensor in sampler._model.state_dict().items()}
    state["model.embed_tokens.weight"] += 1
    with pytest.raises(SamplerError, match="are one weight in the sampler, but differ in the policy"):
        sampler.load_weights(state)
    state["lm_head.weight"] += 1
    sampler.load_weights(state)
    assert torch.equal(sampler._model.state_dict()["lm_head.weight"], state["model.embed_tokens.weight"])


def test_a_policy_that_diverged_is_named(sampler: Sampler) -> None:
    state = {name: tensor.clone() for name, tensor in sampler._model.state_dict().items()}
    state["model.norm.weight"] *= torch.nan
    sampler.load_weights(state)
    with pytest.raises(SamplerError, match="training has diverged"):
        ask(sampler)


def test_a_rollout_leaves_less_behind_than_its_prompt(model_folder: Path) -> None:
    sampler = Sampler.from_pretrained(str(model_folder))
    for number in range(20):
        sampler.sample([Request((3,) * 30, SamplingParams(max_tokens=1), f"session {number}")])
    assert sys.getsizeof((3,) * 30) > 200 > len(pickle.dumps(sampler._requests)) / 20
