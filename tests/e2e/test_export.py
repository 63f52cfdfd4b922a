"""The model folder that a run leaves can be evaluated, with the result that the run itself had at its end."""

import pytest

from rg_env.dump import open_run
from tests.e2e.conftest import RG, ROOT, rg_env

EVALUATION = [
    f"{RG}.dump_eval_rollouts=true",
    f"{RG}.num_eval_samples_per_task=8",
    "generator.eval_n_samples_per_prompt=1",
    "generator.eval_sampling_params.temperature=0.0",
]


def responses(folder, step):
    groups = [group for group in open_run(folder).groups() if group.phase == "eval" and group.step == step]
    return {group.item: group.rollouts[0].conversation[-1]["content"] for group in groups}


@pytest.mark.long
@pytest.mark.slow
def test_the_exported_model_gives_the_responses_of_the_last_evaluation(short_run, tmp_path):
    rg_env("train", *short_run, *EVALUATION, "trainer.hf_save_interval=2", "trainer.eval_interval=2")
    model = tmp_path / "exports" / "global_step_2" / "policy"
    again = tmp_path / "again"
    settings = [*EVALUATION, f"trainer.policy.model.path={model}", f"trainer.log_path={tmp_path}/logs"]
    rg_env("eval", ROOT / "configs" / "quickstart.yaml", *settings, "--out", again)
    before = responses(tmp_path / "dumps", 2)
    assert len(before) == 16
    assert responses(again, None) == before
