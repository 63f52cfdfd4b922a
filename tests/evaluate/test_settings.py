"""A training configuration, read without SkyRL, gives an evaluation what training's own evaluation has."""

from pathlib import Path

import pytest

from rg_env.base.errors import ConfigError
from rg_env.evaluate.eval_settings import read_settings
from rg_env.skyrl.train_config import load_run

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize("name", ["quickstart", "cpu/dapo", "cpu/ppo"])
def test_a_recipe_is_read_as_skyrl_reads_it(name):
    path = str(CONFIGS / f"{name}.yaml")
    theirs, mine = load_run([path]).cfg, read_settings([path], "eval")
    for field in ("tasks", "eval_seed", "num_eval_samples_per_task", "system_prompt", "format", "scorer", "solved_at"):
        assert getattr(mine.rg, field) == getattr(theirs.rg_dump, field), field
    for command, params in (
        ("eval", theirs.generator.eval_sampling_params),
        ("collect", theirs.generator.sampling_params),
    ):
        sampling = mine.sampling(command)
        assert (sampling["temperature"], sampling["top_p"]) == (params.temperature, params.top_p)
        assert sampling["max_tokens"] == params.max_generate_length
    samples = mine.skyrl.get("generator.eval_n_samples_per_prompt", 1)
    assert samples == theirs.generator.eval_n_samples_per_prompt


def test_a_run_name_that_no_folder_can_have_is_refused_as_in_training(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("trainer: {run_name: exp/1}\n")
    with pytest.raises(ConfigError, match=r"trainer\.run_name='exp/1': it names the run's folder; write a"):
        read_settings([str(file)], "eval")
    file.write_text("trainer: {run_name: null}\n")
    assert read_settings([str(file)], "eval").run_name == ""


def test_typed_settings_override_files_and_ours(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("environment: {skyrl_gym: {rg_dump: {seed: 3, scorer.timeout: 9, tasks: {gcd: {weight: 2}}}}}\n")
    given = read_settings([str(file), "seed=4"], "collect", dump_dir="x")
    assert (given.rg.seed, given.rg.scorer.timeout, given.rg.tasks) == (4, 9, {"gcd": {"weight": 2}})
    assert given.rg.dump_dir == "x"
    assert read_settings([], "eval").sampling("eval") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not valid YAML"),
        ("a:\n\tb: 1\n", "indent with spaces, not tabs"),
        ("a:\n  b: 1\n c: 2\n", "lines of one group begin in the same column"),
        ("", "contains no settings"),
        ("environment.skyrl_gym.rg_dump.sede: 3", "did you mean environment.skyrl_gym.rg_dump.seed"),
        ("generator.eval_samplng_params.temperature: 1", "did you mean generator.eval_sampling_params.temperature"),
        ("seed: 3", "unknown setting 'seed'; did you mean environment.skyrl_gym.rg_dump.seed"),
        ("generator.eval_sampling_params.top_k: 20", "requests take only temperature"),
        ("data: {val_data: [a.parquet]}", "the questions are those of --suite"),
    ],
)
def test_mistakes_in_a_file(text, message, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_settings([str(file)], "eval").sampling("eval")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings([str(tmp_path / "none.yaml")], "eval")


@pytest.mark.parametrize(
    ("command", "text", "right"),
    [
        ("eval", "generator.eval_n_samples_per_prompt=two", "must be a whole number of at least 1"),
        ("eval", "generator.eval_n_samples_per_prompt=0", "must be a whole number of at least 1"),
        ("eval", "trainer.max_prompt_length=0", "must be a whole number of at least 1"),
        ("eval", "trainer.policy.model.path=7", "must be a text"),
        ("eval", "generator.eval_sampling_params.additional_kwargs=5", "must be a mapping"),
        ("eval", "generator.eval_sampling_params.temperature=hot", "must be a number of at least 0"),
        ("collect", "generator.chat_template_kwargs=foo", "must be a mapping"),
        ("collect", "generator.sampling_params.top_p=2", "must be a number of at least 0 and at most 1"),
        ("collect", "generator.sampling_params.max_generate_length=null", "must have a value"),
    ],
)
def test_a_wrong_value_of_skyrls_settings_is_refused(command, text, right, tmp_path):
    name, _, value = text.partition("=")
    (tmp_path / "a.yaml").write_text(f"{name}: {value}\n")
    for argument in (text, str(tmp_path / "a.yaml")):
        with pytest.raises(ConfigError, match=rf"{name}=.*: {right}"):
            read_settings([argument], command)


@pytest.mark.parametrize(
    ("fields", "right"),
    [
        ("{temperature: 0.5}", "set generator.sampling_params.temperature instead"),
        ("{seed: 1, max_completion_tokens: 9}", "set generator.sampling_params.max_generate_length instead"),
        ("{n: 8}", "leave it out"),
    ],
)
def test_a_field_that_every_request_has_is_not_replaced(fields, right):
    settings = read_settings([f"generator.sampling_params.additional_kwargs={fields}"], "collect")
    with pytest.raises(ConfigError, match=rf"additional_kwargs=.*: every request has it already; {right}"):
        settings.request("collect")


@pytest.mark.parametrize(
    ("text", "unused"),
    [
        ("train_unsolved=false", ("eval", "collect")),
        ("stop_on_canaries=true", ("eval", "collect")),
        ("experiment_class=mine.Experiment", ("eval", "collect")),
        ("dump_rollouts=false", ("eval",)),
        ("dump_failed_rollouts=false", ("eval",)),
        ("dump_other_rollouts=false", ("eval",)),
        ("rollout_save_score_threshold=0.5", ("eval",)),
    ],
)
def test_what_only_a_training_has_is_refused_if_it_is_typed(text, unused):
    for command in unused:
        with pytest.raises(ConfigError, match=f"{command} only sends requests, so it would have no effect"):
            read_settings([text], command)
    for command in {"eval", "collect"} - set(unused):
        read_settings([text], command)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainer.polcy.model.path=x", "did you mean trainer.policy.model.path"),
        ("scorer.timeuot=3", "did you mean scorer.timeout"),
        ("temperature=1", "generator.eval_sampling_params.temperature.*: write the whole name"),
        ("max_training_steps=3", "trainer.max_training_steps=3: eval only sends requests"),
        ("tasks.gcd=2", "give a mapping as a whole"),
    ],
)
def test_names_are_looked_up_as_in_training(text, message):
    """With short names, suggestions, and no word for a mistyped name but that it is unknown."""
    with pytest.raises(ConfigError, match=message):
        read_settings([text], "eval")
    assert read_settings(["max_prompt_length=99"], "eval").skyrl == {"trainer.max_prompt_length": 99}
