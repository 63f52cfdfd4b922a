"""Every wrong value of a setting is refused in one line that names the setting."""

import dataclasses

import pytest

from rg_env.config import LengthPenaltyConfig, RGDumpConfig, ScorerConfig
from rg_env.errors import ConfigError


def test_the_defaults_are_valid():
    RGDumpConfig().validate()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("rollout_save_score_threshold", 1.5),
        ("rollout_save_score_threshold", -0.1),
        ("rollout_save_score_threshold", float("nan")),
        ("rollout_save_score_threshold", "high"),
        ("size", 0),
        ("size", -5),
        ("size", 2.5),
        ("seed", -1),
        ("num_eval_samples_per_task", 0),
        ("groups_per_file", 0),
        ("groups_per_file", True),
        ("on_scorer_failure", "ignore"),
        ("format_bonus", -1.0),
        ("dump_fsync", "group"),
        ("device", "tpu"),
        ("complexity_mode", "uniform"),
        ("curriculum_target_accuracy", 0),
        ("curriculum_target_accuracy", 1.0),
        ("sampling", "uniform"),
        ("sampling", "adaptive"),
        ("items", 0),
        ("dump_rollouts", "yes"),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting, value):
    config = dataclasses.replace(RGDumpConfig(), **{setting: value})
    with pytest.raises(ConfigError) as error:
        config.validate()
    message = str(error.value)
    assert f"rg_dump.{setting}=" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        (RGDumpConfig(scorer=ScorerConfig(workers=0)), "scorer.workers=0: must be a whole number of at least 1"),
        (RGDumpConfig(scorer=ScorerConfig(workers=1.5)), "scorer.workers=1.5: must be a whole number of at least 1"),
        (RGDumpConfig(scorer=ScorerConfig(workers="8")), "scorer.workers='8': must be auto, or a whole number"),
        (RGDumpConfig(scorer=ScorerConfig(timeout=0)), "scorer.timeout"),
        (RGDumpConfig(length_penalty=LengthPenaltyConfig(kind="quadratic")), "length_penalty.kind"),
        (RGDumpConfig(length_penalty=LengthPenaltyConfig(threshold=1.0)), "length_penalty.threshold"),
        (RGDumpConfig(length_penalty=LengthPenaltyConfig(max_length=0)), "length_penalty.max_length"),
    ],
)
def test_nested_settings_are_checked_too(config, setting):
    with pytest.raises(ConfigError, match=setting.replace(".", r"\.")):
        config.validate()
