"""docs/coming-from.md has a row for every setting and behavior of the Atropos environment's README."""

import re

import pytest

from rg_env.config import RGDumpConfig
from rg_env.skyrl.checks.other_names import ATROPOS, OLDER_SKYRL, as_sentence, other_name
from rg_env.skyrl.config import known_settings
from tests.documents import ROOT

PAGE = (ROOT / "docs" / "coming-from.md").read_text()
PREFIX = "environment.skyrl_gym.rg_dump."

README_SETTINGS = {
    "dump_rollouts": False,
    "dump_failed_rollouts": False,
    "rollout_save_score_threshold": 0.7,
    "complexity_mode": None,
    "curriculum_target_accuracy": 0.7,
    "num_eval_samples_per_task": 5,
    "eval_seed": 123,
    "debug_logging": False,
    "suppress_base_env_logs": True,
    "seed": 42,
    "mask_too_long_completions": True,
}
"""Settings with the same names, and their defaults in Atropos."""
README_OTHER_SETTINGS = {"tokenizer_name", "group_size", "max_token_length"}
README_BEHAVIOR = {
    *("tasks", "installation", "starting a run", "repeatability"),
    *("difficulty `None`", "difficulty `random`", "difficulty `curriculum`", "curriculum target"),
    *("curriculum statistics", "complexity mappings", "changing one task's difficulty"),
    *("answer format", "system prompt", "dual-format scoring", "partial credit", "length penalty"),
    *("successful rollouts", "failed rollouts", "folder of the dump", "names and lines of the files", "save progress"),
    *("evaluation", "logging", "debug mode", "no rollouts were saved", "adding tasks"),
}
"""The sections and lists of that README, one subject each."""


def rows(heading):
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()[3:] if "|" in line]


@pytest.mark.parametrize(
    ("heading", "table"),
    [("Settings of the Atropos environment", ATROPOS), ("Settings and modules of an older SkyRL", OLDER_SKYRL)],
)
def test_the_page_has_the_table_that_answers_unknown_names(heading, table):
    shown = {
        name.strip("`"): (tuple(re.findall(r"`([^`]+)`", settings)), note) for name, settings, note in rows(heading)
    }
    assert shown == {name: (other.settings, other.note) for name, other in table.items()}


def test_every_setting_of_the_readme_has_a_row():
    assert README_SETTINGS.keys() | README_OTHER_SETTINGS <= ATROPOS.keys()


@pytest.mark.parametrize("table", [ATROPOS, OLDER_SKYRL])
def test_a_replacement_exists_or_the_note_says_why_there_is_none(table):
    for name, other in table.items():
        assert set(other.settings) <= set(known_settings()), name
        assert other.settings or other.note, name
        assert other_name(name) == other
        assert name not in known_settings()
        assert as_sentence(other).startswith(("use ", "there is no such setting: "))


def test_the_defaults_that_differ_are_all_listed():
    ours = RGDumpConfig()
    differ = {name: default for name, default in README_SETTINGS.items() if getattr(ours, name) != default}
    shown = {name.strip("`"): (theirs, here) for name, theirs, here, _ in rows("Defaults that differ")}
    assert shown == {name: (str(theirs).lower(), str(getattr(ours, name)).lower()) for name, theirs in differ.items()}


def test_every_behavior_of_the_readme_has_a_row_that_names_a_setting_or_a_page():
    table = rows("Behavior")
    assert {row[0] for row in table} >= README_BEHAVIOR
    for subject, theirs, ours, see in table:
        assert theirs and ours, subject
        settings = [name for name in re.findall(r"`([^`]+)`", see) if not name.startswith("rg-env ")]
        assert settings or "](" in see or "rg-env " in see, subject
        assert {PREFIX + name for name in settings} <= set(known_settings()), subject


@pytest.mark.parametrize("setting", ["format", "scorer.partial_credit", "dump_other_rollouts"])
def test_values_that_the_page_recommends_are_accepted(setting):
    for value in re.findall(rf"`{setting}=(\w+)`", PAGE):
        limits = known_settings()[PREFIX + setting].limits
        assert value in limits.get("choices", ("true",))
