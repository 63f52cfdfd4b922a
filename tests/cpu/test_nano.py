"""The shipped policy: it loads, its tokens match its card, and its figures hold."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from types import ModuleType
from typing import Any

import pytest
import reasoning_gym
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from rg_env import ReasoningGymDataset, Scorer
from rg_env.scoring import parse_response
from rg_env.skyrl.cpu import nano_path
from tests.documents import ROOT

TOLERANCE = 0.05


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(nano_path())


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "scripts" / "train_nano.py"
    spec = importlib.util.spec_from_file_location("train_nano", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_it_is_small_and_the_quickstart_trains_on_what_it_was_taught(script: ModuleType) -> None:
    assert sum(file.stat().st_size for file in nano_path().iterdir()) <= 5_000_000
    settings = yaml.safe_load((ROOT / "configs" / "quickstart.yaml").read_text())
    tasks = settings["environment.skyrl_gym.rg_dump"]["tasks"]
    assert tasks == {name: script.NANO_TASKS[name] for name in tasks}


def test_it_samples_text_from_a_chat_prompt(tokenizer: Any, script: ModuleType) -> None:
    model = AutoModelForCausalLM.from_pretrained(nano_path(), dtype=torch.float32)
    assert model.config.vocab_size == len(tokenizer)
    assert model.get_input_embeddings().weight.data_ptr() != model.get_output_embeddings().weight.data_ptr()
    messages = ReasoningGymDataset(script.NANO_TASKS).row(0)["prompt"]
    inputs = tokenizer.apply_chat_template(
        [messages] * 16, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    torch.manual_seed(0)
    output = model.generate(**inputs, max_new_tokens=64, do_sample=True)
    texts = tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert sum("</answer>" in text for text in texts) >= 8
    assert len(set(texts)) > 1


def test_its_tokens_and_chat_template(tokenizer: Any) -> None:
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    for text in ("<think>1é2字</think>\n<answer>42 ≠ 41</answer>", " neon  sun\t\n\nZ-9"):
        assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text
    question = "Spell this word backward (example: sun -> nus): plumb"
    assert tokenizer.tokenize(question)[-5:] == list("plumb"), "words to work on are letters"
    assert tokenizer.tokenize("<think>417</think>") == ["<think>", "4", "1", "7", "</think>"]


def test_prompts_and_solutions_are_short(tokenizer: Any, script: ModuleType) -> None:
    dataset = ReasoningGymDataset(script.NANO_TASKS)
    for index in range(60):
        messages = dataset.row(index)["prompt"]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert len(prompt) <= 128  # the quickstart's max_prompt_length
        assert len(tokenizer.tokenize(script.worked_solution(dataset.item(index).entry))) < 64


@pytest.mark.parametrize("task", ["chain_sum", "leg_counting", "spell_backward"])
def test_worked_solutions_are_well_formed_and_right(script: ModuleType, task: str) -> None:
    dataset = reasoning_gym.create_dataset(task, seed=7, size=50, **script.NANO_TASKS[task]["config"])
    for entry, at_once in itertools.product(dataset, [False, True]):
        parsed = parse_response(script.worked_solution(entry, at_once=at_once))
        assert parsed.violation is None and parsed.think
        assert dataset.score_answer(parsed.answer, entry) == 1.0


@pytest.mark.long
@pytest.mark.slow
def test_its_eval_figures_are_those_of_its_card(tokenizer: Any, script: ModuleType) -> None:
    card = (nano_path() / "README.md").read_text()
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", card, flags=re.MULTILINE)
    assert {name for name, *_ in rows} == {"all", *script.NANO_TASKS}
    model = AutoModelForCausalLM.from_pretrained(nano_path(), dtype=torch.float32)
    with Scorer(workers=1) as scorer:
        figures = script.evaluate(model, tokenizer, script.eval_examples(200), scorer, seed=0)
    for name, *written in rows:
        measured = (figures[name].format, figures[name].solved, figures[name].given_format)
        assert measured == pytest.approx([float(value) for value in written], abs=TOLERANCE), name
