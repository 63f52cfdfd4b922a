"""From a model behind an endpoint to a trained policy: `collect`, `dumps export sft`, TRL's `SFTTrainer` on nano."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset
from typer.testing import CliRunner

from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.evaluate.suites import train_questions
from rg_env.skyrl.cpu import nano_path
from tests.evaluate.server import Answer, completion, serving

GROUPS = 24


@pytest.mark.long
@pytest.mark.slow
def test_collected_responses_train_nano_with_trl(tmp_path: Path) -> None:
    import trl  # takes seconds

    questions = train_questions(RGDumpConfig(tasks=["spell_backward"]), GROUPS)
    entries = [questions.make(number).item.entry for number in range(GROUPS)]
    answers = {entry["question"]: entry["answer"] for entry in entries}

    def script(number: int, body: dict[str, Any]) -> Answer:
        answer = answers[body["messages"][-1]["content"]]
        return completion(f"<think>{' '.join(answer)}</think><answer>{answer if number % 4 else 'no'}</answer>")

    def run(*arguments: object) -> None:
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert done.exit_code == 0, done.output

    with serving(script) as server:
        reach = ("--endpoint", server.url, "--model", "m", "--tasks", "spell_backward")
        run("collect", *reach, "--groups", GROUPS, "--samples", 2, "--out", tmp_path / "dump")
    run("dumps", "export", "sft", tmp_path / "dump", "--out", tmp_path / "sft.jsonl")
    data = load_dataset(
        "json", data_files=str(tmp_path / "sft.jsonl"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert {row["messages"][-2]["content"] for row in data} <= set(answers)
    assert len(data) >= GROUPS // 2
    for row in data:
        assert f"<answer>{answers[row['messages'][-2]['content']]}</answer>" in row["messages"][-1]["content"]

    settings = trl.SFTConfig(
        output_dir=str(tmp_path / "model"),
        max_steps=12,
        per_device_train_batch_size=8,
        learning_rate=5e-4,
        lr_scheduler_type="constant",
        logging_steps=1,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        model_init_kwargs={"dtype": "float32"},
    )
    trainer = trl.SFTTrainer(model=str(nano_path()), args=settings, train_dataset=data.select_columns(["messages"]))
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 12
    assert all(map(math.isfinite, losses))
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3]), losses
