"""A hundred mistakes: each is one line with the right hint or none, and leaves nothing behind."""

import json
import subprocess
import sys

import huggingface_hub.constants
import pytest

from rg_env.skyrl.config import known_settings, load_config
from tests.skyrl.checks.mistakes import MISTAKES, NOTHING, RG, THROUGH_THE_COMMAND


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
    message = refusal(*run, mistake)
    assert MISTAKES[mistake] in message
    assert (NOTHING in message) == (MISTAKES[mistake] == NOTHING)
    assert "Error" not in message
    assert len(message) < 400
    assert files(tmp_path) == before


def test_the_command_exits_2_with_one_line_before_torch_and_ray_are_imported(run, tmp_path):
    """Ten of them as a user types them; the table above covers the rest."""
    before = files(tmp_path)
    probe = (
        "import io, json, sys\n"
        "from contextlib import redirect_stderr, redirect_stdout\n"
        "from rg_env.cli import main\n"
        "from rg_env.train import run_command, train\n"
        "run, mistakes = json.loads(sys.argv[1])\n"
        "for mistake in mistakes:\n"  # in this process, whose imports can be seen
        "    with redirect_stderr(io.StringIO()):\n"
        "        assert run_command(train, [*run, mistake]) == 2\n"
        "slow = [name for name in ('torch', 'ray', 'transformers') if name in sys.modules]\n"
        "for mistake in mistakes:\n"
        "    sys.argv = ['rg-env', 'train', *run, mistake]\n"
        "    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as error:\n"
        "        try: main()\n"
        "        except SystemExit as end: code = end.code\n"
        "    print(json.dumps([code, out.getvalue(), error.getvalue(), slow]))"
    )
    given = json.dumps([run, THROUGH_THE_COMMAND])
    done = subprocess.run([sys.executable, "-c", probe, given], capture_output=True, text=True, check=True)
    answers = map(json.loads, done.stdout.splitlines())
    for mistake, (code, out, error, slow) in zip(THROUGH_THE_COMMAND, answers, strict=True):
        assert (code, out, error.count("\n"), slow) == (2, "", 1, []), error
        assert error.startswith("rg-env: ") and MISTAKES[mistake] in error
    assert files(tmp_path) == before


def test_skyrls_own_defaults_are_accepted():
    """Every default of SkyRL, given explicitly, passes the checks of types and limits."""
    from rg_env.skyrl.checks import check_setting, value_of
    from rg_env.skyrl.config import RGTrainConfig

    cfg = RGTrainConfig()
    for name in known_settings():
        try:
            value = value_of(cfg, name)
        except AttributeError:  # inside an optional group that is null
            continue
        check_setting(name, value, known_settings())


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
    assert shown.out.startswith("# The settings are valid.")
    assert ("max_grad_norm" in shown.out) == bool(everything)
    printed = tmp_path / "printed.yaml"
    printed.write_text(shown.out)
    assert load_config([str(printed)]) == load_config([*run, *more])


def test_check_only_warns_of_what_this_machine_lacks(capsys, monkeypatch):
    from rg_env.train import main

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for more, code in (([], 0), ([f"{RG}.size=0"], 2)):
        with pytest.raises(SystemExit) as ended:
            main(["configs/grpo_4gpu.yaml", "--check", *more])
        assert ended.value.code == code
        shown = capsys.readouterr().err
        assert shown.count("\n") == (2 if code == 0 else 1)
        assert ("no GPU" in shown and "`hf download" in shown) == (code == 0)
