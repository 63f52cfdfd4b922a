"""The documents say what the code does."""

import re
from pathlib import Path

import pytest

from rg_env.config import RGDumpConfig
from rg_env.skyrl.config import known_keys

ROOT = Path(__file__).resolve().parents[1]
PREFIX = "environment.skyrl_gym.rg_dump."


def documented():
    rows = re.findall(r"^\| `([\w.]+)` \| (.*?) \|", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE)
    return dict(rows)


def default_of(name):
    value = RGDumpConfig()
    for part in name.split("."):
        value = getattr(value, part)
    return "null" if value is None else str(value).lower()


def test_every_setting_is_documented_with_its_default():
    ours = {key.removeprefix(PREFIX) for key in known_keys() if key.startswith(PREFIX)}
    table = documented()
    assert set(table) == ours
    assert {name: default_of(name) for name in table} == table


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_commands_in_the_readme_exist():
    from typer.testing import CliRunner

    from rg_env.cli import app

    commands = set(re.findall(r"^    rg-env (dumps \w+|\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert {"train", "dumps stats"} <= commands
    for command in commands:
        assert CliRunner().invoke(app, [*command.split(), "--help"]).exit_code == 0
