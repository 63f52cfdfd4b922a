"""Every wrong value of a setting is refused in one line that names the setting."""

import pytest

from rg_env.base.errors import ConfigError
from rg_env.configuration.config import LengthPenaltyConfig, RGDumpConfig, ScorerConfig
from rg_env.configuration.settings import check_value, read_file, read_value


@pytest.mark.parametrize(
    ("config", "message"),
    [
        *(
            ({name: value}, rf"rg_dump\.{name}")
            for name, value in [
                ("rollout_save_score_threshold", -0.1),
                ("rollout_save_score_threshold", float("nan")),
                ("size", -5),
                ("size", 2.5),
                ("groups_per_file", True),
                ("on_scorer_failure", "ignore"),
                ("complexity", "curriculum"),
                ("complexity", True),
                ("dump_rollouts", "yes"),
                ("imports", [1]),
                ("worked_examples", [3]),
            ]
        ),
        ({"scorer": ScorerConfig(workers=0)}, r"scorer\.workers=0: must be a whole number of at least 1"),
        ({"scorer": ScorerConfig(workers="8")}, r"scorer\.workers='8': must be auto, or a whole number"),
        ({"length_penalty": LengthPenaltyConfig(threshold=1.0)}, r"length_penalty\.threshold"),
    ],
)
def test_a_wrong_value_is_refused_by_name(config, message):
    RGDumpConfig().validate()
    with pytest.raises(ConfigError, match=message) as error:
        RGDumpConfig(**config).validate()
    assert "\n" not in str(error.value)


def test_the_values_of_a_mapping_are_checked():
    check_value("by_name", {"a": 0.5}, dict[str, float], {"at_most": 1})
    with pytest.raises(ConfigError, match=r"by_name\[a\]='0.5': must be a number at most 1"):
        check_value("by_name", {"a": "0.5"}, dict[str, float], {"at_most": 1})


@pytest.mark.parametrize(
    "content",
    [
        "trainer: {epochs: 1}\ntrainer.epochs: 2",
        "trainer.epochs: 2\ntrainer: {epochs: 1}",
        "trainer.epochs: 2\ntrainer.epochs: 2",
        "tasks: {a: 1}\ntasks.b: 2",
    ],
)
def test_a_setting_given_twice_in_a_file_is_refused(tmp_path, content):
    path = tmp_path / "run.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match="given twice"):
        read_file(path, lambda name: name not in ("trainer",))


@pytest.mark.parametrize("text", ["2024-13-45", "!!int x", "0x_", "9" * 5000, "[" * 1000, "!!timestamp x", "!!bool x"])
def test_what_yaml_cannot_read_is_one_line(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(f"trainer.seed: {text}")
    for read in (lambda: read_file(path, lambda name: True), lambda: read_value("trainer.seed", text)):
        with pytest.raises(ConfigError) as error:
            read()
        assert "\n" not in str(error.value)
