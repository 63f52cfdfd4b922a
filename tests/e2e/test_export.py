"""`rg-env eval --model EXPORTS` asks what the run's own evaluation asked, and gets the same responses.

The run samples with rg_env's sampler, the evaluation with `transformers serve`; both greedily.
"""

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from rg_env.dump import open_run
from rg_env.dump.validate import validate
from rg_env.skyrl.cpu import nano_path
from tests.e2e.conftest import RG
from tests.running import rg_env

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(
    params=[
        pytest.param(False, id="plain", marks=pytest.mark.long),
        pytest.param(True, id="prefilled", marks=pytest.mark.weekly),
    ]
)
def prefilled(request):
    return request.param


@pytest.fixture
def model(prefilled, tmp_path):
    """nano; `prefilled` with a chat template that opens the think block in the prompt."""
    if not prefilled:
        return nano_path()
    folder = shutil.copytree(nano_path(), tmp_path / "model")
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text(template.replace("assistant\n{%", "assistant\n<think>{%"))
    return folder


@pytest.fixture
def prompts(tmp_path, monkeypatch):
    """The token ids of the prompts that the sampler of a run or a server was given, and how often each."""
    folder = tmp_path / "prompts"
    folder.mkdir()
    monkeypatch.setenv("PROMPT_SPY", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "prompt_spy"), prepend=os.pathsep)

    def of(who):
        return [Counter(path.read_text().splitlines()) for path in folder.glob(f"{who}-*")]

    return of


def test_evaluation_of_every_exported_step(short_run, model, prefilled, prompts, tmp_path):
    config = tmp_path / "run.yaml"
    # Paths of a file are the recipe's: the run gets a folder of its own, and `run` links to it.
    run = tmp_path / "run"
    shared = [str(setting).replace(f"{tmp_path}/", f"{run}/") for setting in short_run[1:]]
    values = dict(setting.split("=", 1) for setting in [*shared, *map(str, settings(model, prefilled))])
    config.write_text("".join(f"{name}: {value}\n" for name, value in values.items()))
    rg_env("train", short_run[0], config, timeout=700)
    again = tmp_path / "again"
    command = ("eval", short_run[0], config, "--model", run / "exports", "--out", again)
    done = rg_env(*command, "--json", timeout=700)
    results = json.loads(done.stdout)
    exported, results = ((1, 2), results) if prefilled else ((2,), [results])
    assert [result["name"] for result in results] == [f"{run.resolve().name} step {step}" for step in exported]

    last = next(again.glob("*step_2")) if prefilled else again
    before, after = (evaluated(folder) for folder in (run / "dumps", last))
    assert len(before) == 16
    assert {item: group.rollouts[0].conversation for item, group in after.items()} == {
        item: group.rollouts[0].conversation for item, group in before.items()
    }
    assert {item: group.rollouts[0].base_score for item, group in after.items()} == {
        item: group.rollouts[0].base_score for item, group in before.items()
    }
    texts = [group.rollouts[0].conversation[-1]["content"] for group in after.values()]
    assert any("</think>" in text and "<answer>" in text for text in texts)
    assert any(text.startswith("<think>") for text in texts) != prefilled

    (sampled,), served = prompts("sampler"), prompts("server")
    assert served == [served[0]] * len(exported), "all steps were asked the same"
    assert sum(served[0].values()) == 16
    assert served[0] <= sampled, "the server made the token ids of SkyRL's prompts"
    assert validate(last).good
    assert "nothing left to do" in rg_env(*command, "--resume").stderr


def settings(model, prefilled):
    return [
        f"trainer.policy.model.path={model}",
        f"{RG}.prefilled_think={str(prefilled).lower()}",
        f"{RG}.dump_eval_rollouts=true",
        f"{RG}.num_eval_samples_per_task=8",
        "generator.eval_n_samples_per_prompt=1",
        "generator.eval_sampling_params.temperature=0.0",
        "generator.eval_sampling_params.max_generate_length=64",
        "trainer.eval_interval=2",
        f"trainer.hf_save_interval={1 if prefilled else 2}",  # one export is enough at every commit
        "trainer.ckpt_interval=1",
    ]


def evaluated(folder):
    """The groups of the last evaluation by item."""
    groups = [group for group in open_run(folder).groups() if group.phase == "eval"]
    last = max((group.step or 0) for group in groups)
    return {group.item: group for group in groups if (group.step or 0) == last}
