"""Dataset cards: what `datasets` loads from a folder with one, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rg_env.base.errors import ConfigError, DumpError
from rg_env.cli import app
from rg_env.dump import FileKind, open_run
from rg_env.dump.files import zstd

SAMPLE = Path(__file__).parents[2] / "dumps" / "sample"


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(SAMPLE, tmp_path / "run"))


def make_card(*words):
    return CliRunner().invoke(app, ["dumps", "export", "card", *map(str, words)])


def test_datasets_loads_every_kind_of_file(folder, tmp_path):
    import datasets

    ledger = next(folder.glob("*_ledger_*"))
    Path(f"{ledger}.zst").write_bytes(zstd.compress(ledger.read_bytes()))
    ledger.unlink()
    result = make_card(folder, "--license", "cc-by-4.0")
    assert result.exit_code == 0, result.output
    rows = {}
    for name in datasets.get_dataset_config_names(str(folder)):
        loaded = datasets.load_dataset(str(folder), name, cache_dir=str(tmp_path / "cache"))
        rows[name] = {split: table.num_rows for split, table in loaded.items()}
    dump = open_run(folder)
    groups, count = list(dump.groups()), len(list(dump.ledger()))
    assert count > 0
    assert rows["ledger"] == {"train": count}
    assert rows["eval_rollouts"] == {"test": sum(group.phase == "eval" for group in groups)}
    texts = sum(rows[name]["train"] for name in ("rollouts", "FAILED_rollouts", "other_rollouts"))
    assert texts == sum(group.phase == "train" for group in groups)
    assert rows.keys() == set(FileKind)


def test_the_front_matter_has_the_fields_of_the_hub(folder):
    assert make_card(folder).exit_code == 0
    text = (folder / "README.md").read_text()
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["license"] == "unknown"
    assert "license: unknown  # fill in" in text
    assert front["size_categories"] == ["n<1K"]
    assert [config["config_name"] for config in front["configs"] if config.get("default")] == ["rollouts"]
    assert "`spell_backward` (16)" in text


def test_a_card_is_not_replaced_unless_asked(folder):
    (folder / "README.md").write_text("mine")
    error = make_card(folder).exception
    assert isinstance(error, ConfigError)
    assert "--force" in str(error)
    assert (folder / "README.md").read_text() == "mine"
    assert make_card(folder, "--force", "--license", "mit").exit_code == 0
    assert "\nlicense: mit\n" in (folder / "README.md").read_text()


def test_what_has_no_card_is_one_line(folder, tmp_path):
    ledger = next(folder.glob("*_ledger_*"))
    assert "a whole dump folder" in str(make_card(ledger).exception)
    assert "one at a time" in str(make_card(folder, SAMPLE).exception)
    (tmp_path / "new").mkdir()
    shutil.copy(ledger, tmp_path / "new" / f"{ledger.name}.part")
    error = make_card(tmp_path / "new").exception
    assert isinstance(error, DumpError)
    assert "no finished file yet" in str(error)
    shutil.copy(ledger, folder / f"{ledger.name[:-10]}0001.jsonl.part")
    assert "1 file of an unfinished run" in make_card(folder).output
