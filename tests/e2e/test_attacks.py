"""If one rollout in ten attacks the reward, training continues and no other reward changes."""

import json
import sys

import pytest

from rg_env.dump import open_run
from rg_env.scoring import Status
from tests.e2e.attack_run import TEXTS
from tests.e2e.conftest import RG
from tests.running import ROOT, run_command

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(1500)]
TASKS = {
    "leg_counting": {"config": {"min_animals": 1, "max_animals": 2, "max_instances": 3}},
    "spell_backward": {"config": {"min_word_len": 3, "max_word_len": 5}},
    "coin_flip": {},
}
ACTS = {"scorer": "tests.scoring.file_scorer_functions.acting"}


def run(mode, folder, short_run):
    """A run of three steps without learning; its rollouts with (step, item, text)."""
    folder.mkdir()
    path = folder / "acts.jsonl"
    rows = [{"question": f"Who acts for {number}?", "answer": f"nobody {number}"} for number in range(100)]
    path.write_text("\n".join(map(json.dumps, rows)))
    tasks = TASKS | {"acts": {"file": ACTS | {"path": str(path)}}}
    overrides = [
        "trainer.max_training_steps=3",
        "trainer.policy.optimizer_config.lr=0",
        "trainer.max_prompt_length=640",  # nano says nonsense that far out, which is good enough to be left alone
        "trainer.policy.model_config_kwargs={max_position_embeddings: 1024}",
        f"{RG}.tasks={json.dumps(tasks)}",
        f"{RG}.length_penalty.kind=none",  # depends on the group: an attack would change the other rewards
        f"{RG}.scorer.timeout=2",
        f"{RG}.dump_other_rollouts=true",
        f"{RG}.dump_dir={folder}/dumps",
        # A new run is refused among the checkpoints of another one.
        *(f"trainer.{name}_path={folder}/{name}" for name in ("ckpt", "export", "log")),
    ]
    script = ROOT / "tests" / "e2e" / "attack_run.py"
    run_command(sys.executable, script, mode, *short_run, *overrides)
    return [
        ((group.step, group.item, rollout.conversation[-1]["content"]), rollout)
        for group in open_run(folder / "dumps").groups()
        for rollout in group.rollouts
    ]


def test_attacks_end_in_the_record_and_move_no_other_reward(tmp_path, short_run):
    left_alone = run("left_alone", tmp_path / "left_alone", short_run)
    rollouts = run("attacked", tmp_path / "attacked", short_run)
    attacks = [rollout for (_, _, text), rollout in rollouts if text in TEXTS]
    harmless = [(key, rollout) for key, rollout in rollouts if key[2] not in TEXTS]

    assert len(rollouts) == len(left_alone) == 3 * 8 * 8
    assert 0.05 < len(attacks) / len(rollouts) < 0.2
    scores = [rollout.base_score for rollout in attacks]
    assert max(scores) < 0.9  # `nan` shares a letter with many a word: spell_backward rewards that
    assert sum(scores) / len(scores) < 0.1

    rewards = {key: rollout.reward for key, rollout in left_alone}
    same = [(key, rollout) for key, rollout in harmless if key in rewards]
    # All but those in which another order of arrival moved a logit's last bit (rg_env/skyrl/cpu/sampler.py).
    assert len(same) >= 0.95 * len(harmless)
    assert all(rollout.reward == rewards[key] for key, rollout in same)

    assert {Status.REJECTED, Status.TIMEOUT, Status.CRASHED} <= {rollout.status for rollout in attacks}


def test_scorers_that_start_no_more_stop_the_run_with_one_line_and_a_whole_record(tmp_path, short_run):
    script = ROOT / "tests" / "e2e" / "disturbed_run.py"
    done = run_command(sys.executable, script, "without_scorers", *short_run, check=False)
    assert done.returncode == 1, done.stderr[-4000:]  # no wrong setting: the run was under way
    assert "log: " in done.stdout
    assert "failed " in done.stdout.splitlines()[-1]
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("rg-env: the scorer processes")
    assert "no such wheel" in last
    assert not list((tmp_path / "dumps").glob("*.part"))
    ledger = list(open_run(tmp_path / "dumps").ledger())
    assert [line.step for line in ledger] == [1] * 8  # the first batch whole, and no row of zeros after it
    assert all(rollout.status is not Status.ERROR for line in ledger for rollout in line.rollouts)
