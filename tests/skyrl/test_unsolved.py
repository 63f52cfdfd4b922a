"""`train_unsolved: false` in SkyRL's loops: groups without a solved response have rewards and no gradient."""

import math

import pytest
from loguru import logger

from rg_env.dump import open_run
from tests.skyrl import scripted_training
from tests.skyrl.scripted_training import BATCH, FULLY_ASYNC, SAMPLES, Script, Told, build, train

RG = "environment__skyrl_gym__rg_dump__"
GATE = {f"{RG}train_unsolved": False, f"{RG}format_bonus": 0.25}
SAMPLING = "trainer__algorithm__dynamic_sampling__"
FULL = {"trainer__fully_async__sample_full_batch": True, "trainer__algorithm__zero_variance_filter": True}
LOOPS = {
    "plain": {},
    "filter": {f"{SAMPLING}type": "filter", f"{RG}size": 8 * BATCH},
    "replace": {f"{SAMPLING}type": "replace", f"{SAMPLING}min_replace_ratio": 0.1},
    "fully async": FULLY_ASYNC,
    "fully async, full batches": {**FULLY_ASYNC, **FULL, f"{RG}size": 8 * BATCH},
}


class Unformatted(Script):
    """The last response of each group is wrong and violates the format, so that no group has equal rewards."""

    def __call__(self, prompt, sample):
        text = super().__call__(prompt, sample)
        return text.replace("<think>", "") if sample == SAMPLES - 1 else text


@pytest.fixture(autouse=True)
def unformatted(monkeypatch):
    monkeypatch.setattr(scripted_training, "Script", Unformatted)


@pytest.mark.parametrize("loop", LOOPS)
def test_only_groups_with_a_solved_response_have_a_gradient(tmp_path, loop):
    trainer = build(tmp_path, **GATE, **LOOPS[loop], trainer__epochs=2)
    train(trainer)
    groups = {group.group_id: group for group in open_run(tmp_path / "dumps").groups()}
    unsolved = {name for name, group in groups.items() if not any(r.base_score == 1 for r in group.rollouts)}
    assert unsolved and len(unsolved) < len(groups)
    trained = {record.group_id for record in open_run(tmp_path / "dumps").trained()}
    assert trained
    if loop not in ("plain", "fully async"):
        assert not trained & unsolved, "others were drawn for them"
    seen = set()
    for group in groups.values():
        rewards = [rollout.reward for rollout in group.rollouts]
        assert rewards == [1.25 if group.group_id not in unsolved else 0.25, 0.25, 0.0]
        for rollout in group.rollouts:
            for step in trainer.advantages.values():
                for advantage in step.get(rollout.response, ()):
                    assert bool(advantage) == (group.group_id not in unsolved)
                    seen.add(group.group_id)
    assert seen >= trained


@pytest.mark.parametrize("estimator", ["grpo", "reinforce++"])
def test_a_step_with_nothing_left_is_said_and_has_no_nan(tmp_path, estimator):
    trainer = build(tmp_path, **GATE, mixed_share=0.0, trainer__algorithm__advantage_estimator=estimator)
    warnings, metrics = [], []
    logger.add(warnings.append, level="WARNING")
    trainer.tracker.log = lambda data, **_: metrics.append(dict(data))
    trainer.reports = Told()
    train(trainer)
    symptoms = [facts["symptoms"] for facts in trainer.reports.sent if "symptoms" in facts]
    text = (
        f"{2 * BATCH} of {2 * BATCH} groups have no solved response but different rewards "
        "(format_bonus=0.25); train_unsolved=false left them out"
    )
    assert symptoms[-1] == [("phantoms", text)]
    assert sum("nothing to learn from" in line for line in warnings) == 2, "in each step"
    assert not any(any(values) for step in trainer.advantages.values() for values in step.values())
    numbers = [value for step in metrics for value in step.values() if isinstance(value, float)]
    assert numbers and all(map(math.isfinite, numbers))
    assert [step["rg_dump/mean_phantom"] for step in metrics if "rg_dump/mean_phantom" in step] == [1.0, 1.0]
