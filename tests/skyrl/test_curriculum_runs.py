"""Curricula in SkyRL's real loops, with a scripted policy that learns and is reset in the middle."""

import re
from itertools import pairwise

import pytest

from rg_env.analysis.rescore import rescore
from rg_env.dump import FileKind, TrainedRecord, open_lines, open_run, record_from_line
from rg_env.dump.repair.validate import validate
from tests.skyrl.scripted_training import BATCH, FULLY_ASYNC, build, train

# torchdata's own, in each StatefulDataLoader that SkyRL builds
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

RG = "environment__skyrl_gym__rg_dump__"
STEPS, RESET, KILLED = 24, 12, 15
SETTINGS = {
    f"{RG}complexity_mode": "curriculum",
    f"{RG}items": "null",
    f"{RG}size": STEPS * BATCH,
    f"{RG}dump_other_rollouts": True,
    "generator__sampling_params__max_generate_length": 400,
    "trainer__ckpt_interval": 4,
    "trainer__resume_mode": "latest",
}
TASKS = {"chain_sum": 1.0, "coin_flip": 1.0}


class Reset:
    """Adds right until step `RESET`, and wrong from then on. A function of prompt and step."""

    trainer = None

    def __call__(self, prompt, sample):
        found = re.search(r"problem: ([\d +-]+) =", prompt)
        right = found is not None and self.trainer.global_step < RESET
        answer = sum(int(term.replace(" ", "")) for term in re.findall(r"[+-]? ?\d+", found[1])) if right else "no idea"
        return f"<think>{sample}</think><answer>{answer}</answer>"


def start(folder, **more):
    policy = Reset()
    policy.trainer = build(folder, tasks=TASKS, script=policy, **SETTINGS, **more)
    return policy.trainer


def drawn(folder):
    """What was decided about each row, in order."""
    return [
        (line.step, line.item, line.level, line.complexity, line.draw_probability, line.controller_version)
        for line in open_run(folder / "dumps").ledger()
    ]


def moves(folder):
    """What is recorded about each move of a level, in order."""
    return [(one.step, one.task, one.before, one.after, one.reason) for one in open_run(folder / "dumps").levels()]


def trained_groups(dump):
    """The ids of the groups that the checkpoints were trained on: of each step, those of its last attempt."""
    groups = {}
    for file in dump.runs[0].files_of(FileKind.TRAINED):
        with open_lines(file.path) as lines:
            for record in (record_from_line(TrainedRecord, line) for line in lines):
                groups.setdefault(record.step, {}).setdefault(record.attempt, set()).add(record.group_id)
    return {group for attempts in groups.values() for group in attempts[max(attempts)]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    train(start(folder))
    return folder


def test_levels_rise_and_fall_with_the_policy(whole):
    assert validate(whole / "dumps").good
    levels = [(step, after) for step, task, _, after, _ in moves(whole) if task == "chain_sum"]
    assert levels
    before = [level for step, level in levels if step < RESET]
    after = [level for step, level in levels if step >= RESET]
    assert before == sorted(before)
    assert before[-1] > 0.3
    assert after == sorted(after, reverse=True)
    assert after[-1] < before[-1]
    assert "coin_flip" not in {task for _, task, *_ in moves(whole)} or all(
        last < first for _, task, first, last, _ in moves(whole) if task == "coin_flip"
    )


def test_the_record_has_the_level_of_every_group(whole):
    dump = open_run(whole / "dumps")
    for line in dump.ledger():
        assert line.level
        assert 0 <= line.complexity <= 1
        assert line.controller_version == max(0, line.step - 2), "planned when the step before it began"
    assert not sum(task.changed for task in rescore(dump, workers=1).tasks.values())


def test_metrics_have_levels(tmp_path):
    trainer = start(tmp_path, trainer__max_training_steps=2)
    logged = []
    trainer.tracker.log = lambda metrics, **_: logged.append(metrics)
    train(trainer)
    assert logged[0]["level/mean_chain_sum"] == 0.3


def test_a_killed_run_resumes_at_the_same_levels_with_the_same_items(tmp_path, whole):
    killed = start(tmp_path)
    killed.fail_at = KILLED
    with pytest.raises(RuntimeError, match="middle of a step"):
        train(killed)
    train(start(tmp_path, attempt=2))
    assert validate(tmp_path / "dumps").good
    assert {line.attempt for line in open_run(tmp_path / "dumps").ledger()} == {1, 2}
    assert drawn(tmp_path) == drawn(whole)
    assert moves(tmp_path) == moves(whole)


def test_a_curriculum_in_the_fully_async_loop(tmp_path):
    first = start(tmp_path, **FULLY_ASYNC)
    first.fail_at = KILLED
    with pytest.raises(RuntimeError, match="middle of a step"):
        train(first)
    resumed = start(tmp_path, attempt=2, **FULLY_ASYNC)
    train(resumed)
    assert validate(tmp_path / "dumps").good
    dump = open_run(tmp_path / "dumps")
    lines = list(dump.ledger(all_attempts=True))
    kept = trained_groups(dump)
    trained = [line for line in lines if line.group_id in kept]
    assert len({line.uid for line in trained}) == len(trained) == STEPS * BATCH, "every row once, over the crash too"
    ups = [one.after > one.before for one in dump.levels() if one.task == "chain_sum"]
    assert True in ups
    assert False in ups
    # An attempt begins at the levels of the checkpoint, which may lack the last moves of the attempt before it.
    for attempt in (1, 2):
        moves = [one for one in dump.levels(all_attempts=True) if one.attempt == attempt and one.task == "chain_sum"]
        assert all(one.after == two.before for one, two in pairwise(moves))
