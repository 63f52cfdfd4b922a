"""`rg-env config`: the settings of a run, each with where it comes from."""

import json

from typer.testing import CliRunner

from rg_env.cli import app
from tests.documents import ROOT

QUICKSTART = str(ROOT / "configs" / "quickstart.yaml")
RG = "environment.skyrl_gym.rg_dump"


def sources(*words):
    done = CliRunner().invoke(app, ["config", *words, "--json"])
    assert done.exit_code == 0, done.output
    return {entry["name"]: (entry["value"], entry["source"]) for entry in json.loads(done.stdout)}


def test_each_setting_says_where_it_comes_from(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"# my questions\n{RG}:\n  tasks:\n    gcd: 1\ntrainer.seed: 3\ntrainer.eval_interval: 20\n")
    found = sources(QUICKSTART, str(mine), "trainer.seed=7")
    assert found["trainer.seed"] == (7, "command line"), "over the file"
    assert found["trainer.eval_interval"] == (20, f"{mine}, line 6"), "over the recipe"
    assert found[f"{RG}.tasks"] == ({"gcd": 1}, f"{mine}, line 3")
    lines = (ROOT / "configs" / "quickstart.yaml").read_text().splitlines()
    value, source = found["trainer.train_batch_size"]
    assert lines[int(source.rpartition(" ")[2]) - 1] == f"trainer.train_batch_size: {value}"
    assert found["trainer.bf16"] == (False, "device=cpu")
    assert found[f"{RG}.seed"] == (42, "default")
    assert not any(source == "SkyRL's default" for _, source in found.values())
    assert sources(QUICKSTART, "--all")["trainer.algorithm.kl_ctrl.type"][1] == "SkyRL's default"


def test_a_mistake_is_one_line():
    done = CliRunner().invoke(app, ["config", QUICKSTART, "trainer.sede=7"])
    assert "did you mean trainer.seed?" in str(done.exception)
