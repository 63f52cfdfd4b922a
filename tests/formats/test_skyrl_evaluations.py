"""What SkyRL's own generator and writer save of an evaluation is, when imported, what the Recorder recorded of it."""

from __future__ import annotations

import pytest
from skyrl.train.utils.trainer_utils import dump_per_dataset_eval_results

from tests.formats.test_programs import imported
from tests.skyrl.generating import tokenizer
from tests.skyrl.test_recorder import MODES, SAMPLES, prompts, recorded


@pytest.mark.parametrize("mode", ["plain", "turns", "step-wise"])
def test_an_evaluation_has_the_rollouts_and_turns_that_were_recorded(mode, tmp_path):
    rows = prompts("gsm8k" if mode == "plain" else "gsm8k_multi_turn")
    groups, raw, _ = recorded(tmp_path / "recorded", rows, MODES[mode], phase="eval")
    # As `evaluate()` maps rows to prompts: each row of a trajectory has its prompt's extras.
    names = [row["uid"] for row in rows for _ in range(SAMPLES)]
    if mode == "step-wise":
        names = [name.instance_id for name in raw["trajectory_ids"]]
    extras = [rows[int(name)]["env_extras"] for name in names]
    classes = [rows[int(name)]["env_class"] for name in names]
    folder = tmp_path / "dumped_evals" / "global_step_5_evals"
    folder.mkdir(parents=True)
    dump_per_dataset_eval_results(folder, tokenizer(), raw, ["gsm8k"] * len(names), classes, extras, {})
    read, rewards, _ = imported("skyrl", tmp_path / "dumped_evals", tmp_path / "out")
    assert rewards == [[rollout.reward for rollout in group.rollouts] for group in groups]
    for group, recorded_group in zip(read, groups, strict=True):
        turns = [rollout.turns for rollout in recorded_group.rollouts]
        assert [rollout.turns for rollout in group.rollouts] == turns
