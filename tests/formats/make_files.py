"""Writes `files/` with the real programs: SkyRL's `dump_per_dataset_eval_results`, a step of TRL's trainer, and verl's
writer, taken from the source of a wheel that is unpacked in the folder given. `make_traces` writes the others.

    python -m tests.formats.make_files VERL_WHEEL_FOLDER
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.skyrl.cpu import nano_path
from tests.trainers.trl_run import TASKS, train

FILES = Path(__file__).parent / "files"


def folder_for(*names: str) -> Path:
    """A new folder among the files."""
    shutil.rmtree(FILES / names[0], ignore_errors=True)
    folder = FILES.joinpath(*names)
    folder.mkdir(parents=True)
    return folder


def skyrl() -> None:
    """Two rollouts of each of four questions. One reward is per token, one is unknown, and the last is too high."""
    from skyrl.train.utils.trainer_utils import dump_per_dataset_eval_results
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    dataset = ReasoningGymDataset(TASKS, size=4, split="eval")
    rows = [dataset[k // 2] for k in range(8)]
    answers = [row[2]["reward_spec"]["ground_truth"] for row in rows]
    wrong = {1: "b", 2: "é", 4: "c", 6: "b", 7: "a"}
    texts = [f"<think>a</think><answer>{wrong.get(k, answer)}</answer>" for k, answer in enumerate(answers)]
    output = {
        "prompt_token_ids": [tokenizer.apply_chat_template(row[0], return_dict=False) for row in rows],
        "response_ids": [tokenizer.encode(text) for text in texts],
        "rewards": [1.0, 0.0, 0.0, [0.0, 1.0], 0.0, float("nan"), 0.0, 1.0],
        "stop_reasons": [*["stop"] * 7, "length"],
    }
    extras = [row[2] for row in rows]
    sources = [extra["data_source"] for extra in extras]
    classes = [row[1] for row in rows]
    folder = folder_for("skyrl", "global_step_4_evals")
    dump_per_dataset_eval_results(folder, tokenizer, output, sources, classes, extras, {"eval/all/avg_score": 0.5})


def trl() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"per_device_train_batch_size": 4, "max_completion_length": 16}
        train(folder, f"{folder}/dump", max_steps=1, logging_steps=1, log_completions=True, **sizes)
        saved = list(Path(folder, "completions").iterdir())
        into = folder_for("trl")
        for path in saved:
            shutil.copy(path, into)


def verl(wheel: Path) -> None:
    source = (wheel / "verl" / "trainer" / "ppo" / "v1" / "trainer_base.py").read_text()
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    (write,) = [node for node in functions if node.name == "_write_generations"]
    write.decorator_list = []
    names: dict = {"json": json, "os": os}
    exec(compile(ast.Module([write], []), "verl", "exec"), names)
    prompts = ["system\nReason.\nuser\nWhat is 1+1?\nassistant\n"] * 2 + ["user\nWhat is 2+2?\nassistant\n"] * 2
    keys = [f"{question}_{sample}_0" for question in ("q7", "q8") for sample in range(2)]
    names["_write_generations"](
        prompts, ["2", "3", "4", "<answer>é</answer>"], ["2", "2", "4", "4"], [1.0, 0.0, 1.0, 1.0],
        {"uid": keys, "acc": [True, False, True, True]}, folder_for("verl"), 3,
    )  # fmt: skip


if __name__ == "__main__":
    verl(Path(sys.argv[1]))
    skyrl()
    trl()
