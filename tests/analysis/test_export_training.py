"""An exported set trains the small shipped policy with plain `transformers`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from rg_env.analysis.export import Sft, export
from rg_env.cpu import nano_path
from rg_env.dump import open_run

SAMPLE = Path(__file__).parents[2] / "dumps" / "sample"


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_an_sft_set_trains_nano(tmp_path, one_thread):
    result = export(open_run(SAMPLE), Sft(), tmp_path / "train.jsonl")
    data = load_dataset(str(tmp_path), split="train", cache_dir=str(tmp_path / "cache"))
    assert len(data) == result.rows
    data = data.select(range(8))
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    tokenizer.padding_side = "right"
    model = AutoModelForCausalLM.from_pretrained(nano_path(), dtype=torch.float32)
    batch = tokenizer.apply_chat_template(list(data["messages"]), return_tensors="pt", return_dict=True, padding=True)
    labels = torch.full_like(batch["input_ids"], -100)  # only the responses are learned, including their end
    for row, ids, messages in zip(labels, batch["input_ids"], data["messages"], strict=True):
        start = len(tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, return_dict=False))
        end = start + len(tokenizer(messages[-1]["content"])["input_ids"]) + 1
        assert ids[end - 1] == tokenizer.eos_token_id
        row[start:end] = ids[start:end]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    losses = []
    for _ in range(6):
        loss = model(**batch, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0], losses
