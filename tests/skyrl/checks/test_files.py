"""Mistakes in files of settings: what is empty, in the wrong order, without a recipe, or of another program."""

import pytest

from rg_env.base.errors import ConfigError
from rg_env.skyrl.train_config import load_run
from tests.documents import ROOT

QUICKSTART = str(ROOT / "configs" / "quickstart.yaml")
RG = "environment.skyrl_gym.rg_dump"


def written(folder, text, name="mine.yaml"):
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{RG}:\n#  seed: 3\n", f"{RG}=null: is empty; indent the lines below it, or leave it out"),
        (f"{RG}:\ntasks:\n  gcd: 1\n", f"{RG}=null: is empty; indent the lines below it"),
        ("trainer:\n", "trainer=null: is empty; indent"),
        ("env:\n  group_size: 8\n", "here it is generator.n_samples_per_prompt"),
        (f"{RG}.tasks:\n  chain_sum:2\n  gcd: 1\n", "is a space missing after the colon, here or in the line before?"),
        (f"{RG}.imports: examples/my_task.py\n", "write [examples.my_task]"),
    ],
)
def test_a_file_that_cannot_be_meant(tmp_path, text, said):
    with pytest.raises(ConfigError) as error:
        load_run([QUICKSTART, written(tmp_path, text)])
    assert said in str(error.value)


def test_a_later_file_that_replaces_the_tasks_of_an_earlier_one_is_said(tmp_path, capsys):
    mine = written(tmp_path, f"{RG}.tasks: [gcd]\n")
    assert load_run([mine, QUICKSTART]).cfg.rg_dump.tasks != ["gcd"]
    assert capsys.readouterr().err == f"rg-env: {QUICKSTART} replaces tasks of {mine}\n"
    assert load_run([QUICKSTART, mine]).cfg.rg_dump.tasks == ["gcd"]
    assert capsys.readouterr().err == f"rg-env: {mine} replaces tasks of {QUICKSTART}\n"


def test_a_forgotten_recipe_is_said_before_anything_of_skyrls_is_missing(tmp_path):
    with pytest.raises(ConfigError, match=r"no model is set: name a recipe first, such as configs/quickstart\.yaml"):
        load_run([written(tmp_path, f"{RG}.tasks: [gcd]\n")])


def test_the_exports_of_a_run_are_not_a_model_but_have_some(tmp_path):
    for step in (8, 16):
        (tmp_path / f"global_step_{step}" / "policy").mkdir(parents=True)
        (tmp_path / f"global_step_{step}" / "policy" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"did you mean .*/global_step_16/policy\?"):
        load_run([QUICKSTART, f"trainer.policy.model.path={tmp_path}"])
