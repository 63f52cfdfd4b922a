"""A prompt and a format that do not fit are a warning before the run."""

import pytest
from loguru import logger

from rg_env.skyrl.config import load_config
from tests.skyrl.checks.conftest import RG


@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ([], 0),
        ([f"{RG}.system_prompt=simple"], 1),
        ([f"{RG}.system_prompt=simple", f"{RG}.format=lenient"], 0),
        ([f"{RG}.system_prompt=simple", f"{RG}.prefilled_think=true"], 0),
    ],
)
def test_a_system_prompt_without_think_is_one_warning(args, settings, warnings):
    lines = []
    sink = logger.add(lines.append, level="WARNING", format="{message}")
    try:
        load_config([*args, *settings])
    finally:
        logger.remove(sink)
    found = [line for line in lines if "never asks for <think>" in line]
    assert len(found) == warnings
    assert all(f"set {RG}.format=lenient" in line for line in found)


def test_an_unknown_format_is_refused(refusal):
    assert "must be one of strict, lenient" in refusal(f"{RG}.format=loose")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([f"{RG}.size=1"], "size=1: must be at least trainer.train_batch_size"),
        ([f"{RG}.complexity=2"], "complexity=2: must be a number of at least 0 and at most 1"),
        ([f"{RG}.complexity=random", f"{RG}.tasks=[acre]"], "no task of the mix has levels"),
        ([f"{RG}.complexity=0.5", "data.train_data=[README.md]"], "has no effect with data.train_data"),
    ],
)
def test_difficulty_that_makes_no_sense_is_refused(refusal, settings, expected):
    assert expected in refusal(*settings)


@pytest.mark.parametrize(("settings", "count"), [(["1.0"], 1), (["0.99"], 0), (["1", f"{RG}.dump_rollouts=false"], 0)])
def test_a_threshold_that_nothing_exceeds_is_one_warning(args, settings, count, warnings):
    threshold, *more = settings
    load_config([*args, f"{RG}.rollout_save_score_threshold={threshold}", *more])
    assert len([line for line in warnings if "no score is above it" in line]) == count
