"""verl's reward function: called as verl 0.9 calls it, on a row of an exported file.

verl itself is not installed (143 packages), so the test with its own reward manager is skipped, unless
`pip install --no-deps verl==0.9.1 codetiming` was called. `RECORDED` has the keyword arguments with which
`NaiveRewardManager` of the released wheels of verl 0.9.0 and 0.9.1 calls the function, and those that its
`default_compute_score` takes.
"""

from __future__ import annotations

import asyncio
import inspect
import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from rg_env.base.errors import ConfigError
from rg_env.cli import app
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.skyrl.cpu import nano_path
from rg_env.trainers import verl as ours
from rg_env.trainers.verl import compute_score

RECORDED = {
    "verl/experimental/reward_loop/reward_manager/naive.py": [
        "data_source",
        "solution_str",
        "ground_truth",
        "extra_info",
    ],
    "verl/utils/reward_score/__init__.py": [
        *("data_source", "solution_str", "ground_truth", "extra_info"),
        *("sandbox_fusion_url", "concurrent_semaphore", "memory_limit_mb"),
    ],
}


@pytest.mark.parametrize("place", RECORDED)
def test_verls_arguments_are_taken(place):
    inspect.signature(compute_score).bind(**dict.fromkeys(RECORDED[place]))


def test_a_row_of_an_exported_file_is_scored(tmp_path):
    path = tmp_path / "verl.parquet"
    done = CliRunner().invoke(app, ["dataset", "--out", str(path), "--rows", "2", "--tasks", "gcd", "--format", "verl"])
    assert done.exit_code == 0, done.output
    row = json.loads(pd.read_parquet(path).to_json(orient="records"))[0]
    assert set(row) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    truth = row["reward_model"]["ground_truth"]
    arguments = {"data_source": row["data_source"], "ground_truth": truth, "extra_info": row["extra_info"]}
    right = compute_score(solution_str=f"<think>a</think><answer>{truth}</answer>", **arguments)
    assert right == {"score": 1.0, "acc": 1.0, "violation": "", "status": "ok"}
    assert compute_score(solution_str=f"<answer>{truth}</answer>", **arguments)["violation"] == "no_think"
    assert compute_score(solution_str=f"<answer>{truth}</answer>", format="lenient", **arguments)["score"] == 1.0
    with pytest.raises(ConfigError, match="without its item"):
        compute_score("gcd", "x", "1", {})


def test_verls_own_reward_manager_scores_with_it():
    """Loaded as its configuration names it, by its own loader."""
    verl = pytest.importorskip("verl")
    import numpy as np
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl.trainer.ppo.reward import load_reward_manager

    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    function = {"path": ours.__file__, "name": "compute_score"}
    manager = {"source": "register", "name": "naive"}
    config = OmegaConf.create({"reward": {"custom_reward_function": function, "reward_manager": manager}})
    item = ReasoningGymDataset(["gcd"], size=1).item(0)
    truth = item.entry["answer"]

    async def rewards() -> list[float]:
        loaded = load_reward_manager(config, tokenizer)
        found = []
        for answer in (truth, "-1"):
            ids = tokenizer(f"<think>a</think><answer>{answer}</answer>", return_tensors="pt").input_ids
            row = {"data_source": "gcd", "reward_model": {"ground_truth": truth}, "extra_info": item.extra_info()}
            data = verl.DataProto.from_dict(
                tensors={"prompts": ids[:, :0], "responses": ids, "attention_mask": ids.new_ones(ids.shape)},
                non_tensors={name: np.array([value], dtype=object) for name, value in row.items()},
            )
            found.append((await loaded.run_single(data))["reward_score"])
        return found

    assert asyncio.run(rewards()) == [1.0, 0.0]
