"""A hundred mistakes: each is one line with the right hint or none, and leaves nothing behind."""

import json

import huggingface_hub.constants
import pytest

from rg_env.base.errors import ConfigError
from rg_env.configuration.settings import check_value, value_of
from rg_env.skyrl.train_config import RGTrainConfig, known_settings, load_run
from tests.running import run_program
from tests.skyrl.checks.mistakes import MISTAKES, NOTHING, SEVERAL, THROUGH_THE_COMMAND


def files(folder):
    return sorted(folder.rglob("*"))


@pytest.fixture
def run(args, tmp_path):
    """A valid run that would write into folders that do not exist yet."""
    return [*args, *(f"trainer.{name}_path={tmp_path}/new/{name}" for name in ("log", "export"))]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(mistake, refusal, run, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    before = files(tmp_path)
    message = refusal(*run, *(mistake.split() if mistake in SEVERAL else [mistake]))
    assert MISTAKES[mistake] in message
    assert (NOTHING in message) == (MISTAKES[mistake] == NOTHING)
    assert "Error" not in message
    assert len(message) < 400
    assert files(tmp_path) == before


def test_the_command_exits_2_with_one_line_before_torch_and_ray_are_imported(run, tmp_path):
    """Ten of them as a user types them, checked in this process, and two of them as training does, in another."""
    before = files(tmp_path)
    mistakes = [*THROUGH_THE_COMMAND, *THROUGH_THE_COMMAND[:2]]
    commands = [[*run, mistake, *["--check"] * (number < 10)] for number, mistake in enumerate(mistakes)]
    slow_modules = json.dumps(["torch", "ray", "transformers"])
    done = run_program("typed_commands", json.dumps([["train", *words] for words in commands]), slow_modules)
    for mistake, (code, out, error, slow) in zip(mistakes, json.loads(done.stdout), strict=True):
        assert (code, out, error.count("\n"), slow) == (2, "", 1, []), error
        assert error.startswith("rg-env: ") and MISTAKES[mistake] in error
    assert files(tmp_path) == before


def test_skyrls_own_defaults_are_accepted():
    """Every default of SkyRL, given explicitly, passes the checks of types and limits."""
    cfg = RGTrainConfig()
    for name, setting in known_settings().items():
        value = value_of(cfg, name)
        if value is not None:  # in an optional group that is null
            check_value(name, value, setting.kind, setting.limits)


def test_the_names_are_those_of_the_registries():
    from skyrl.train.utils.tracking import Tracking
    from skyrl.train.utils.trainer_utils import ResumeMode

    names = {
        "trainer.logger": Tracking.supported_backends,
        "trainer.resume_mode": [mode.value for mode in ResumeMode],
    }
    assert {name: known_settings()[name].limits["choices"] for name in names} == names


def refusals(run, mistakes):
    with pytest.raises(ConfigError) as refusal:
        load_run([*run, *mistakes.split()])
    return str(refusal.value).splitlines()


def test_all_mistakes_of_a_command_line_are_said_at_once(run):
    of_values = refusals(
        run,
        "--fast lr=1e-4 trainer.seed=foo frob=1 trainer.epochs=0 tasks=[chain_summ] reward=json.dunps "
        "trainer.ckpt_path=/proc/x trainer.policy.model.path=nowhere",
    )
    assert len(of_values) == 9
    for name in ["--fast", "lr", "seed", "frob", "epochs", "chain_summ", "reward", "ckpt_path", "nowhere"]:
        assert any(name in line for line in of_values), name
    together = refusals(run, "size=3 n_samples_per_prompt=1 trainer.bf16=true tasks=[chain_summ]")
    assert len(together) == 4
    (alone,) = refusals(run, "imports=my_tasks tasks=[mine]")
    assert "write [my_tasks]" in alone, "which tasks there are is not known without them"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], None),
        (["system_prompt=simple"], "never asks for <think>"),
        (["system_prompt=simple", "rg_dump.format=lenient"], None),
        (["system_prompt=simple", "prefilled_think=true"], "does not open <think>; set prefilled_think=false"),
    ],
)
def test_what_is_allowed_but_never_meant_is_one_warning(run, given, expected, warnings):
    load_run([*run, *given])
    assert [expected in line for line in warnings] == [True] * (expected is not None)


@pytest.mark.parametrize("everything", [[], ["--verbose"]])
@pytest.mark.parametrize("more", [[], ["trainer.policy.fsdp_config.mixed_precision=null"]])
def test_check_prints_settings_that_can_be_read_again(run, more, everything, tmp_path, capsys):
    from rg_env.train import main

    before = files(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([*run, *more, *everything, "--check"])
    shown = capsys.readouterr()
    assert (ended.value.code, shown.err) == (0, "")
    assert files(tmp_path) == before
    assert "\n# The settings are valid. `rg-env config` " in shown.out
    assert ("max_grad_norm" in shown.out) == bool(everything)
    assert ("mtp_num_layers" in shown.out) == bool(everything), "SkyRL has set it, not the user"
    printed = tmp_path / "printed.yaml"
    printed.write_text(shown.out)
    assert load_run([str(printed)]).cfg == load_run([*run, *more]).cfg


def test_check_names_the_tasks_whose_prompts_are_too_long(run, capsys):
    from rg_env.train import main

    with pytest.raises(SystemExit) as ended:
        main([*run, "tasks=[chain_sum, acre]", "--check"])
    assert ended.value.code == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rg-env: warning: 1 of 2 tasks left out of the mix: acre (its prompts do not fit")
