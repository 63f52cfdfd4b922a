"""RGDumpEnv by itself, as any SkyRL generator drives it, with the real scorer pool behind it."""

import pytest
from loguru import logger

from rg_env.base.errors import ConfigError
from rg_env.configuration.config import RGDumpConfig
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.skyrl.env import RGDumpEnv, as_config

TASK = {"chain_sum": {"weight": 1, "config": {"min_terms": 2, "max_terms": 2}}}


@pytest.fixture(scope="module")
def row():
    return ReasoningGymDataset(TASK, size=1).row(0)


def answer_of(row):
    return row["reward_spec"]["ground_truth"]


def step(row, text, config=None):
    env = RGDumpEnv(env_config=config or RGDumpConfig(), extras={"extra_info": row["extra_info"]})
    prompt, _ = env.init(row["prompt"])
    assert prompt == row["prompt"]
    return env, env.step(text)


def test_an_answer_is_scored_with_its_format(row):
    config = RGDumpConfig(format_bonus=0.5)
    env, out = step(row, f"<think>sum</think><answer>{answer_of(row)}</answer>", config)
    assert (out["reward"], out["done"], out["observations"]) == (1.5, True, [])
    assert out["metadata"]["parsed_answer"] == answer_of(row)
    assert env.get_metrics()["solved"]
    env, out = step(row, answer_of(row), config)
    assert out["reward"] == 0.0
    assert env.get_metrics()["violation"] == "no_think"
    assert env.get_metrics()["raw_score"] is None


@pytest.mark.parametrize("text", ["", "\x00", "\ud800", "<answer>" * 10_000, "<think></think><answer>\ud800</answer>"])
def test_no_text_raises(row, text):
    _, out = step(row, text)
    assert out["reward"] == 0.0


def test_without_a_slot_it_says_once_that_nothing_is_recorded(row, monkeypatch):
    monkeypatch.setattr(RGDumpEnv, "_warned_unrecorded", False)
    said = []
    handler = logger.add(said.append, level="WARNING", format="{message}")
    try:
        for _ in range(3):
            step(row, "x")
    finally:
        logger.remove(handler)
    assert [message for message in said if "records nothing" in message] == said[:1]


def test_a_row_that_is_not_ours_is_refused_in_one_line():
    with pytest.raises(ConfigError, match="ReasoningGymDataset"):
        RGDumpEnv(extras={"reward_spec": {"ground_truth": "4"}})


def test_settings_arrive_in_every_form_skyrl_passes_them():
    assert as_config({}) == RGDumpConfig()
    assert as_config({"scorer": {"workers": 3}}).scorer.workers == 3
    with pytest.raises(ConfigError, match="sede"):
        as_config({"sede": 1})


def test_metrics_are_shares_overall_and_per_task():
    def episode(task, base, violation=None, status="ok", normalized=False):
        solved = base >= 0.99
        seen = {"task": task, "base_score": base, "solved": solved, "violation": violation, "status": status}
        return seen | {"normalized": normalized}

    metrics = RGDumpEnv.aggregate_metrics(
        [
            episode("a", 1.0, normalized=True),
            episode("a", 0.5),
            episode("b", 0.0, "no_think"),
            episode("b", 0.0, None, "timeout"),
            {},
        ]
    )
    assert metrics["rg_dump/mean_base_score"] == 0.375
    assert metrics["rg_dump/mean_well_formed"] == 0.75
    assert metrics["rg_dump/a/mean_solved"] == 0.5
    assert metrics["rg_dump/a/mean_normalized"] == 0.5
    assert "rg_dump/b/mean_normalized" not in metrics
    assert metrics["rg_dump/b/mean_violation_no_think"] == 0.5
    assert metrics["rg_dump/b/mean_status_timeout"] == 0.5
    assert metrics["rg_dump/mean_violation_no_answer"] == metrics["rg_dump/mean_status_crashed"] == 0
    assert "rg_dump/b/mean_violation_no_answer" not in metrics
    assert RGDumpEnv.aggregate_metrics([{}]) == {}
