"""docs/coming-from.md names every setting of the Atropos environment's README, and what behaves differently."""

import re

import pytest

from rg_env.base.errors import ConfigError
from rg_env.configuration.config import RGDumpConfig
from rg_env.configuration.setting_names import FOREIGN, find_setting
from rg_env.skyrl.train_config import known_settings
from tests.documents import ROOT

PAGE = (ROOT / "docs" / "coming-from.md").read_text()
PREFIX = "environment.skyrl_gym.rg_dump."

README_SETTINGS = {
    "dump_rollouts": False,
    "dump_failed_rollouts": False,
    "rollout_save_score_threshold": 0.7,
    "num_eval_samples_per_task": 5,
    "eval_seed": 123,
    "debug_logging": False,
    "suppress_base_env_logs": True,
    "seed": 42,
}
"""Settings with the same names, and their defaults in Atropos."""
README_OTHER_SETTINGS = {
    *("tokenizer_name", "group_size", "max_token_length", "mask_too_long_completions"),
    *("complexity_mode", "curriculum_target_accuracy"),
}
BEHAVIOR = {
    *("tasks", "difficulty `curriculum`", "answer format", "dual-format scoring", "partial credit", "length penalty"),
    *("successful rollouts", "failed rollouts", "evaluation"),
}
"""What that README describes and rg_env does differently."""


def rows(heading):
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


ELSEWHERE = {
    name: (re.findall(r"`([^`]+)`", settings), note)
    for heading in ("Settings of the Atropos environment", "Settings and modules of an older SkyRL")
    for names, settings, note in rows(heading)
    for name in re.findall(r"`([^`]+)`", names)
}
"""Names elsewhere → our settings, and a note."""


def test_every_setting_of_the_readme_is_named_and_what_replaces_it_exists():
    same_names = PAGE.split("These keep their names, ")[1].split("\n\n")[0]
    assert README_SETTINGS.keys() <= set(re.findall(r"`(\w+)`", same_names))
    assert {PREFIX + name for name in README_SETTINGS} <= known_settings().keys()
    assert ELSEWHERE.keys() >= README_OTHER_SETTINGS
    for name, (settings, note) in ELSEWHERE.items():
        assert name not in known_settings() and set(settings) <= set(known_settings()), name
        assert settings or note, name


def test_the_message_for_a_name_elsewhere_names_what_replaces_it_as_the_page_does():
    of_page = {name.rpartition(".")[2]: (settings or [""])[0] for name, (settings, _) in ELSEWHERE.items()}
    del of_page["entrypoints"]
    assert of_page == FOREIGN
    for name, replacement in FOREIGN.items():
        expected = f"here it is {replacement}" if replacement else "nothing replaces it (docs/coming-from.md)"
        with pytest.raises(ConfigError, match=re.escape(expected)):
            find_setting(name)
    assert find_setting("trainer.policy.model.fake_int4_qat.group_size")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("group_sise", "coming-from.md"),  # group_size is only that of an experiment, which nobody means
        ("nonsense", "coming-from.md"),
        ("length_penalty", "did you mean environment.skyrl_gym.rg_dump.length_penalty.kind?"),
        ("rg_dump.task", "did you mean environment.skyrl_gym.rg_dump.task?"),
    ],
)
def test_unknown_names_that_are_no_ones(key, message):
    with pytest.raises(ConfigError) as error:
        find_setting(key)
    assert message in str(error.value)
    assert "fake_int4_qat" not in str(error.value)


def test_the_defaults_that_differ_are_all_listed():
    ours = RGDumpConfig()
    differ = {name: default for name, default in README_SETTINGS.items() if getattr(ours, name) != default}
    shown = {name.strip("`"): (theirs, here) for name, theirs, here, _ in rows("Defaults that differ")}
    assert shown == {name: (str(theirs).lower(), str(getattr(ours, name)).lower()) for name, theirs in differ.items()}


def test_settings_that_moved_into_the_engine_exist():
    moved = PAGE.split("are now in `generator.inference_engine`: ")[1].split(".\n")[0]
    names = re.findall(r"`(\w+)`", moved)
    assert len(names) > 10 and {f"generator.inference_engine.{name}" for name in names} <= known_settings().keys()


def test_every_difference_in_behavior_has_a_row_that_names_a_setting_or_a_page():
    table = rows("Behavior")
    assert {row[0] for row in table} >= BEHAVIOR
    for subject, theirs, ours, see in table:
        assert theirs and ours, subject
        settings = [name for name in re.findall(r"`([^`]+)`", see) if not name.startswith("rg-env ")]
        assert settings or "](" in see or "rg-env " in see, subject
        assert {PREFIX + name for name in settings} <= set(known_settings()), subject


@pytest.mark.parametrize("setting", ["format", "scorer.partial_credit"])
def test_values_that_the_page_recommends_are_accepted(setting):
    for value in re.findall(rf"`{setting}=(\w+)`", PAGE):
        limits = known_settings()[PREFIX + setting].limits
        assert value in limits.get("choices", ("true",))
