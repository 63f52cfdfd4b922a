"""Our trainers in SkyRL's real loops, over a scripted engine (see `tests.skyrl.scripted_training`).

The record has every group that was generated, once, and says of every step exactly what the optimizer was given.
"""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean, stdev
from types import SimpleNamespace

import pytest
import torch
from loguru import logger
from skyrl.train.trainer import RayPPOTrainer

from rg_env.base.errors import ConfigError, RGEnvError
from rg_env.dump import DumpWriter, StepRecord, group_id, open_run
from rg_env.dump.part_file import PartFile
from rg_env.dump.validate import validate
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.skyrl.steps import StepTracking
from rg_env.skyrl.trainers import RecordingTrainer
from tests.dump.records import RUN_ID, group
from tests.skyrl import scripted_training
from tests.skyrl.scripted_training import BATCH, FULLY_ASYNC, SAMPLES, TASK, NoModels, Script, Told, build, train

# torchdata's own, in each StatefulDataLoader that SkyRL builds
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

RG = "environment__skyrl_gym__rg_dump__"
KEEP_ALL = {f"{RG}dump_other_rollouts": True, f"{RG}dump_eval_rollouts": True}
FILTER = {"trainer__algorithm__dynamic_sampling__type": "filter"}
REPLACE = {
    "trainer__algorithm__dynamic_sampling__type": "replace",
    "trainer__algorithm__dynamic_sampling__min_replace_ratio": 0.1,
}


class Stock(NoModels, RayPPOTrainer): ...


STEP_WISE = {"generator__step_wise_trajectories": True}


def trained_in(folder):
    """step → group id → rows, as the record has it."""
    steps = defaultdict(Counter)
    for record in open_run(folder).all_attempts().trained():
        assert record.group_id not in steps[record.step], "recorded twice"
        steps[record.step][record.group_id] = record.rollouts
    return dict(steps)


def given_to(trainer, folder):
    """step → group id → rows, by the texts that the optimizer step was given; no two responses are the same text."""
    group_of = {
        rollout.conversation[-1]["content"]: group.group_id
        for group in open_run(folder).all_attempts().groups()
        for rollout in group.rollouts
    }
    steps = {}
    for step, texts in trainer.given.items():
        steps[step] = Counter()
        for text, rows in texts.items():
            steps[step][group_of[text]] += rows
    return steps


def run(folder, **settings):
    """Train; what holds in every loop is checked here.

    Returns:
        the trainer, the ledger's lines, and what the record says was trained on.
    """
    trainer = build(folder, **{**KEEP_ALL, **settings})
    train(trainer)
    validation = validate(folder / "dumps")
    assert validation.good, [str(finding) for finding in validation.kept]
    ledger = list(open_run(folder / "dumps").ledger())
    assert len({line.group_id for line in ledger}) == len(ledger)
    assert len(ledger) == trainer.generated, "every group that generate() returned, once"
    kept = [group.group_id for group in open_run(folder / "dumps").groups()]
    assert sorted(kept) == sorted(line.group_id for line in ledger)
    for line in ledger:
        assert line.group_id == group_id("run", 1, line.phase, line.call, line.uid)
        assert [r.repetition for r in line.rollouts] == list(range(SAMPLES if line.phase == "train" else 1))
    trained = trained_in(folder / "dumps")
    assert trained == given_to(trainer, folder / "dumps")
    assert {group for step in trained.values() for group in step} <= {g.group_id for g in ledger if g.phase == "train"}
    return trainer, ledger, trained


@pytest.mark.parametrize("estimator", ["grpo", "rloo"])
def test_the_advantage_of_each_row_is_that_of_its_rollouts_reward(tmp_path, estimator):
    run(tmp_path, trainer__algorithm__advantage_estimator=estimator, trainer__epochs=2)
    dump = open_run(tmp_path / "dumps")
    rewards = {line.group_id: line.column("reward") for line in dump.ledger()}
    advantages = set()
    for record in dump.trained():
        assert sorted(record.repetition) == list(range(SAMPLES))
        of_group = rewards[record.group_id]
        for repetition, advantage in zip(record.repetition, record.advantage, strict=True):
            others = [reward for number, reward in enumerate(of_group) if number != repetition]
            expected = of_group[repetition] - mean(others)
            if estimator == "grpo":
                spread = stdev(of_group)
                expected = (of_group[repetition] - mean(of_group)) / spread if spread else 0.0
            assert advantage == pytest.approx(expected, abs=1e-4)
            advantages.add(round(advantage, 2))
    assert len(advantages) > 2


@pytest.mark.parametrize(
    "settings",
    [
        {},
        STEP_WISE,
        {**STEP_WISE, "generator__merge_stepwise_output": True},
        {"trainer__policy_mini_batch_size": BATCH // 2, "trainer__update_epochs_per_batch": 2},
    ],
    ids=["plain", "step-wise", "step-wise merged", "mini-batches"],
)
def test_several_epochs(tmp_path, settings):
    _, ledger, trained = run(tmp_path, trainer__epochs=2, **settings)
    uids = [line.uid for line in ledger]
    assert len(set(uids)) == len(uids) == 4 * BATCH
    assert len({line.item for line in ledger}) == 4 * BATCH, "every epoch has new items"
    assert [set(trained[step]) for step in (1, 2, 3, 4)] == [
        {line.group_id for line in ledger if line.step == step} for step in (1, 2, 3, 4)
    ]
    assert {rows for groups in trained.values() for rows in groups.values()} == {SAMPLES}


EQUAL = {f"{RG}format_bonus": 0.2}
"""All wrong responses of a group have the reward .2. NumPy's standard deviation of three times .2 is not 0."""
FEW = {"mixed_share": 0.2, "trainer__epochs": 8}


@pytest.mark.parametrize(
    "settings", [{}, STEP_WISE, EQUAL, FEW], ids=["plain", "step-wise", "rewards of .2", "few groups with signal"]
)
def test_dynamic_sampling_filter_drops_and_collects(tmp_path, settings):
    """Also if the first batch of a step has no signal."""
    _, ledger, trained = run(tmp_path, **{**FILTER, "trainer__epochs": 4, f"{RG}size": 5 * BATCH, **settings})
    by_id = {line.group_id: line for line in ledger}
    for step, groups in trained.items():
        assert len(groups) == BATCH
        assert {by_id[group].step for group in groups} == {step}
        assert not any(by_id[group].no_signal for group in groups)
    calls = {step: len({line.call for line in ledger if line.step == step}) for step in trained}
    assert max(calls.values()) > 1, "some step was filled by several generate() calls"
    assert sum(len(groups) for groups in trained.values()) < sum(not line.no_signal for line in ledger)
    signals = Counter(line.call for line in ledger if not line.no_signal)
    assert settings is not FEW or any(signals[line.call] == 0 for line in ledger), "no batch was without a signal"


def test_too_many_batches_without_signal_end_the_run(tmp_path):
    limit = {"trainer__algorithm__dynamic_sampling__max_sample_batches": 2}
    with pytest.raises(RGEnvError, match="max_sample_batches=2"):
        train(build(tmp_path, **FILTER, **limit, mixed_share=0.0, trainer__epochs=4))


def test_a_reward_function_that_fails_for_every_group_ends_the_run_at_the_first_step(tmp_path, monkeypatch):
    """In spite of `filter`, which would draw one batch without a signal after the other. The function is tried before
    the run, so it fails of what this policy says.
    """
    function = "def reward(rollouts):\n    return [1 / (one.verdict.parsed.answer != 'wrong') for one in rollouts]\n"
    (tmp_path / "often_failing.py").write_text(function)
    monkeypatch.syspath_prepend(tmp_path)
    trainer = build(tmp_path, mixed_share=0.0, **FILTER, **{f"{RG}reward": "often_failing.reward"}, trainer__epochs=4)
    failed = r"step 1: the reward function failed for every group.*ZeroDivisionError"
    with pytest.raises(RGEnvError, match=failed):
        train(trainer)
    assert {line.step for line in open_run(tmp_path / "dumps").ledger()} == {1}


def test_what_an_epoch_leaves_over_is_said(tmp_path):
    trainer = build(tmp_path, **FILTER, mixed_share=0.0, trainer__epochs=2)
    warnings: list[str] = []
    logger.add(warnings.append, level="WARNING")  # after the trainer has set up its log
    train(trainer)
    assert trainer.given == {}
    assert sum("its 2 generated batches are not trained on" in line for line in warnings) == 2, "after each epoch"


@pytest.mark.parametrize("settings", [{}, STEP_WISE, EQUAL], ids=["plain", "step-wise", "rewards of .2"])
def test_dynamic_sampling_replace_repeats_groups(tmp_path, settings):
    """Rows of the batch with the same text have the same advantage, and the recorded reward."""
    trainer, ledger, trained = run(tmp_path, **REPLACE, **settings, trainer__epochs=2, **{f"{RG}size": 4 * BATCH})
    by_id = {line.group_id: line for line in ledger}
    for groups in trained.values():
        assert sum(groups.values()) == BATCH * SAMPLES
        assert all(rows % SAMPLES == 0 for rows in groups.values())
        assert not any(by_id[group].no_signal for group in groups)
    assert max(rows for groups in trained.values() for rows in groups.values()) > SAMPLES
    for advantages in trainer.advantages.values():
        assert all(len(set(values)) == 1 for values in advantages.values())
    recorded = {r.response: r.reward for g in open_run(tmp_path / "dumps").groups() for r in g.rollouts}
    assert trainer.rewards
    for text, rewards in trainer.rewards.items():
        assert rewards == [pytest.approx(recorded[text])] * len(rewards)


@pytest.mark.parametrize("sampling", [{**FILTER, "mixed_share": 0.0}, {**REPLACE, f"{RG}size": 4 * BATCH}])
def test_skyrls_own_trainer_dies_of_its_sampling(tmp_path, sampling):
    """Why ours hides batches without signal, and makes the uids of copies unique. If this fails, SkyRL has fixed it."""
    trainer = build(tmp_path, trainer_class=Stock, **sampling)
    with pytest.raises(AssertionError):
        train(trainer)
    assert trainer.given == {}


@pytest.mark.parametrize("settings", [{}, STEP_WISE], ids=["plain", "step-wise"])
def test_fully_async(tmp_path, settings):
    _, ledger, trained = run(tmp_path, **FULLY_ASYNC, **settings, trainer__epochs=2, **{f"{RG}size": 4 * BATCH})
    assert len(ledger) == len({line.call for line in ledger}) == 8 * BATCH, "a generate() call for every group"
    assert sorted(group for groups in trained.values() for group in groups) == sorted(g.group_id for g in ledger)
    scheduled = {line.group_id: line.step for line in ledger}
    late = [step - scheduled[group] for step, groups in trained.items() for group in groups]
    assert min(late) >= 0
    assert max(late) > 0, "some groups were trained on after the step they were generated for"


def test_fully_async_full_batches_leave_groups_untrained(tmp_path):
    _, ledger, trained = run(
        tmp_path,
        **FULLY_ASYNC,
        trainer__fully_async__sample_full_batch=True,
        trainer__algorithm__zero_variance_filter=True,
        trainer__epochs=2,
        **{f"{RG}size": 4 * BATCH},
    )
    taken = {group for groups in trained.values() for group in groups}
    assert all(len(groups) == BATCH for groups in trained.values())
    assert not any(line.no_signal for line in ledger if line.group_id in taken)
    assert 0 < len(taken) < len(ledger)


@pytest.mark.parametrize("loop", [{}, FULLY_ASYNC], ids=["sync", "fully-async"])
def test_a_step_is_reported_with_its_seconds_and_the_trainers_numbers(tmp_path, loop):
    trainer = build(tmp_path, **KEEP_ALL, **loop, trainer__eval_interval=2, eval_size=2)
    trainer.reports = Told()
    execute = trainer._execute_training_step
    numbers = {"policy_loss": 0.125, "policy_kl": 0.5, "grad_norm": 2.0}
    trainer._execute_training_step = lambda *args: execute(*args) | numbers
    train(trainer)
    steps = [facts for facts in trainer.reports.sent if "step" in facts]
    assert [facts["line"].split(" | ")[0] for facts in steps] == ["step 1/2", "step 2/2"]
    for facts in steps:
        parts = facts["line"].split(" | ")
        assert facts["trainer"] == "loss 0.125 KL 0.5 gradient norm 2"
        assert facts["trainer"] in parts
        assert [part for part in parts if re.fullmatch(r"\d+\.\d s", part)]
    groups = sum((Counter(facts["groups"]) for facts in steps), Counter())
    assert groups.total() == 2 * BATCH
    assert set(groups) == {"above the threshold", "all wrong"}
    evaluations = [facts["evaluation"] for facts in trainer.reports.sent if "evaluation" in facts]
    assert [line.split(":")[0] for line in evaluations] == ["after step 2"]


@pytest.mark.long
def test_a_rollout_that_fails_in_the_fully_async_loop_is_said_and_the_dump_is_closed(tmp_path):
    """SkyRL ends the process there, without another word."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.skyrl.failing_async", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr[-4000:]
    assert "rg-env: the scorer processes are gone" in done.stderr.splitlines()
    assert done.stdout.splitlines()[-1].startswith("failed ")
    assert not list((tmp_path / "dumps").glob("*.part"))
    assert list(open_run(tmp_path / "dumps").ledger())


@pytest.mark.parametrize("loop", [{}, FULLY_ASYNC], ids=["sync", "fully-async"])
@pytest.mark.parametrize("settings", [{}, STEP_WISE], ids=["plain", "step-wise"])
def test_evaluation(tmp_path, loop, settings):
    """In the fully-async loop it runs while training groups are generated."""
    _, ledger, trained = run(
        tmp_path,
        **loop,
        **settings,
        eval_size=5,
        trainer__eval_interval=1,
        trainer__eval_before_train=True,
        trainer__eval_batch_size=2,
    )
    evaluated = [line for line in ledger if line.phase == "eval"]
    assert Counter(line.step for line in evaluated) == {0: 5, 1: 5, 2: 5}
    assert len([line for line in ledger if line.phase == "train"]) == 2 * BATCH
    assert sum(len(groups) for groups in trained.values()) == 2 * BATCH


def test_a_step_that_did_not_end_has_trained_on_nothing(tmp_path):
    trainer = build(tmp_path, **KEEP_ALL)
    trainer.fail_at = 2
    with pytest.raises(RuntimeError, match="middle of a step"):
        train(trainer)
    assert set(trained_in(tmp_path / "dumps")) == {1}
    assert {line.step for line in open_run(tmp_path / "dumps").ledger()} == {1, 2}


@pytest.mark.parametrize("loop", [{}, FULLY_ASYNC])
def test_a_step_that_did_not_end_has_no_figures(tmp_path, loop):
    trainer = build(tmp_path, **KEEP_ALL, **loop)
    trainer.tracker = StepTracking(trainer.tracker, trainer.generator.writer)
    trainer.fail_at = 2
    with trainer.generator.writer:
        with pytest.raises(RuntimeError, match="middle of a step"):
            asyncio.run(trainer.train())
        assert "reward/avg_raw_reward" in trainer.all_metrics
        trainer.flush_pending_metrics()  # as SkyRL's entrypoint does with what an interrupted step has so far
    assert {record.step for record in open_run(tmp_path / "dumps").steps()} == {1}


CHECKPOINTS = {"trainer__ckpt_interval": 1, "trainer__resume_mode": "latest", f"{RG}size": 3 * BATCH}


def kill_and_resume(folder, failed, **settings):
    """A run that fails in a step, and its next attempt from the checkpoint before.

    Returns:
        the trainer of the next attempt, the ledger's lines of both, and what was trained on.
    """
    killed = build(folder, **settings)
    killed.fail_at = failed
    with pytest.raises(RuntimeError, match="middle of a step"):
        train(killed)
    resumed = build(folder, attempt=2, **settings)
    train(resumed)
    assert validate(folder / "dumps").good
    ledger = list(open_run(folder / "dumps").all_attempts().ledger())
    of_group = {line.group_id: line for line in ledger}
    assert len(of_group) == len(ledger)
    # A group may be on disk when its `generate()` is canceled by the failure.
    assert killed.generated + resumed.generated <= len(ledger)
    assert min(line.step for line in ledger if line.attempt == 2) == failed
    assert {line.attempt for line in open_run(folder / "dumps").ledger() if line.step >= failed} == {2}
    trained = trained_in(folder / "dumps")
    attempts = {step: {of_group[group].attempt for group in groups} for step, groups in trained.items()}
    assert attempts == {step: {1 if step < failed else 2} for step in trained}
    if "replace" not in str(settings):
        uids = Counter(of_group[group].uid for groups in trained.values() for group in groups)
        assert set(uids.values()) == {1}, "no row was trained on twice"
    return resumed, ledger, trained


FULL = {"trainer__fully_async__sample_full_batch": True, "trainer__algorithm__zero_variance_filter": True}


@pytest.mark.parametrize(
    ("failed", "settings"),
    [
        (5, {"trainer__epochs": 3}),
        *((failed, {**FULL, "trainer__epochs": 4, f"{RG}size": 6 * BATCH}) for failed in (3, 5)),
    ],
)
def test_a_fully_async_run_is_resumed(tmp_path, failed, settings):
    """With full batches, groups without a signal are dropped, so epochs end early; they are not generated again."""
    settings = {**KEEP_ALL, **FULLY_ASYNC, **CHECKPOINTS, **settings}
    _, ledger, trained = kill_and_resume(tmp_path, failed, **settings)
    uid_of = {line.group_id: line.uid for line in ledger}
    numbers = [int(uid_of[group].rpartition("#")[2]) for groups in trained.values() for group in groups]
    assert {number // settings[f"{RG}size"] for number in numbers} == set(range(settings["trainer__epochs"]))
    assert "trainer__fully_async__sample_full_batch" in settings or len(numbers) == 9 * BATCH, "every row"


@pytest.mark.parametrize(
    ("settings", "rows", "failed"),
    [({}, "dataset", 3), ({}, "parquet", 4), (FILTER, "dataset", 6), (REPLACE, "dataset", 4)],
    ids=["plain", "files", "filter", "replace"],
)
def test_a_resumed_run_trains_on_the_rows_of_an_uninterrupted_one(tmp_path, settings, rows, failed):
    """Also after the last step of an epoch. With dynamic sampling, SkyRL takes the epoch for an earlier one."""
    more = {**KEEP_ALL, **CHECKPOINTS, **settings, "trainer__epochs": 6}
    if rows == "parquet":
        ReasoningGymDataset(TASK, size=3 * BATCH, seed=42).to_parquet(tmp_path / "rows.parquet")
        more |= {"data__train_data": f"[{tmp_path}/rows.parquet]"}
    whole = build(tmp_path / "whole", **more)
    train(whole)
    resumed, _, _ = kill_and_resume(tmp_path / "killed", failed, **more)
    steps = [
        [(line.step, line.uid) for line in open_run(tmp_path / name / "dumps").ledger()] for name in ("whole", "killed")
    ]
    assert steps[0] == steps[1]
    assert len({uid for _, uid in steps[0]}) == len(steps[0]) == 6 * 3 * BATCH
    assert resumed.global_step == whole.global_step
    last = (tmp_path / "killed" / "checkpoints" / "latest_ckpt_global_step.txt").read_text()
    assert last == str(whole.global_step)


class Untagged(Script):
    """Forgets the format."""

    def __call__(self, prompt, sample):
        return super().__call__(prompt, sample).replace("<answer>", "")


def test_a_collapse_is_measured_against_the_steps_before_a_resumption(tmp_path, monkeypatch):
    first = build(tmp_path, **CHECKPOINTS)
    first.tracker = StepTracking(first.tracker, first.generator.writer)
    first.fail_at = 2
    with pytest.raises(RuntimeError, match="middle of a step"):
        train(first)
    monkeypatch.setattr(scripted_training, "Script", Untagged)
    resumed = build(tmp_path, attempt=2, **CHECKPOINTS)
    resumed.reports = Told()
    # As of an attempt that was killed after the evaluation with which a resumed run begins.
    writer = resumed.generator.writer
    writer.write_blocking([StepRecord(writer.run_id, 2, 1, ["eval/all/avg_score"], [0.5])])
    train(resumed)
    symptoms = [facts["symptoms"] for facts in resumed.reports.sent if "symptoms" in facts]
    assert ("collapse", "at step 2, the format rate fell from 1 to 0") in symptoms[-1]


def test_a_fully_async_run_is_trained_on_from_its_last_step(tmp_path):
    """SkyRL counts on before its final save; with a larger limit, the run goes on with the next step and epoch."""
    settings = {**KEEP_ALL, **FULLY_ASYNC, **CHECKPOINTS, "trainer__epochs": 3}
    first = build(tmp_path, **settings, trainer__max_training_steps=2)
    first.reports = Told()
    train(first)
    latest = tmp_path / "checkpoints" / "latest_ckpt_global_step.txt"
    assert latest.read_text() == "2"
    assert {facts["checkpoint"] for facts in first.reports.sent if "checkpoint" in facts} == {1, 2}
    train(build(tmp_path, attempt=2, **settings, trainer__max_training_steps=7))
    assert latest.read_text() == "7"
    assert sorted(trained_in(tmp_path / "dumps")) == [1, 2, 3, 4, 5, 6, 7]
    assert not (tmp_path / "checkpoints" / "global_step_8").exists()


def test_a_checkpoint_with_nothing_left_to_train_is_said(tmp_path):
    """Such as that of a run with smaller batches, and so with more steps."""
    train(build(tmp_path, **CHECKPOINTS, trainer__max_training_steps=2))
    last = f"{tmp_path}/checkpoints/global_step_2"
    again = CHECKPOINTS | {"trainer__resume_mode": "from_path", "trainer__resume_path": last}
    for steps in (2, 3):
        trainer = build(tmp_path / f"{steps}", **again, trainer__max_training_steps=steps)
        warnings = []
        logger.add(warnings.append, level="WARNING")  # after the trainer has set up its log
        train(trainer)
        assert any("of step 2 and this run ends with step 2" in line for line in warnings) == (steps == 2)


@pytest.mark.parametrize("content", [None, {"_num_yielded": 3}], ids=["none", "of stock SkyRL"])
def test_a_checkpoint_that_does_not_know_its_rows_is_refused(tmp_path, content):
    settings = {**KEEP_ALL, **CHECKPOINTS}
    train(build(tmp_path, **settings, trainer__max_training_steps=2))
    state = tmp_path / "checkpoints" / "global_step_2" / "data.pt"
    state.unlink()
    if content:
        torch.save(content, state)
    with pytest.raises(ConfigError, match="does not say which rows were trained on"):
        train(build(tmp_path, attempt=2, **settings, trainer__max_training_steps=4))


def write_model(trainer):
    """Let the trainer write a file of the policy, as a worker of SkyRL's does, and load it."""

    def save(role, folder, tokenizer):
        Path(folder).mkdir(parents=True, exist_ok=True)
        torch.save({"weight": torch.ones(1000)}, Path(folder).parent / MODEL)

    def load(role, folder, **_):
        torch.load(Path(folder).parent / MODEL)

    trainer.dispatch.save_checkpoint, trainer.dispatch.load_checkpoint = save, load
    return trainer


MODEL = "policy/model_world_size_1_rank_0.pt"


@pytest.mark.parametrize(
    ("name", "size"),
    [(MODEL, 0), (MODEL, 1000), ("data.pt", 500), ("trainer_state.pt", 1000), ("fully_async_state.pt", 500)],
)
def test_a_checkpoint_that_is_cut_off_is_refused_at_the_start_and_the_one_before_is_named(tmp_path, name, size):
    more = {**KEEP_ALL, **CHECKPOINTS, **(FULLY_ASYNC if "async" in name else {})}
    train(write_model(build(tmp_path, **more)))
    broken = tmp_path / "checkpoints" / "global_step_3" / name
    os.truncate(broken, size)
    more["trainer__max_training_steps"], more["trainer__epochs"] = 4, 2
    before = tmp_path / "checkpoints" / "global_step_2"
    way_on = f"trainer.resume_mode=from_path trainer.resume_path={before}"
    with pytest.raises(ConfigError, match=re.escape(f"trainer.resume_mode='latest': {broken} is cut off")) as refused:
        build(tmp_path, attempt=2, **more)
    assert way_on in str(refused.value)
    more |= {"trainer__resume_mode": "from_path", "trainer__resume_path": str(before)}
    train(write_model(build(tmp_path, attempt=2, **more)))
    assert sorted(trained_in(tmp_path / "dumps")) == [1, 2, 3, 4]


def test_a_checkpoint_that_cannot_be_loaded_is_one_line(tmp_path):
    more = {**KEEP_ALL, **CHECKPOINTS}
    train(write_model(build(tmp_path, **more)))
    newest = tmp_path / "checkpoints" / "global_step_3"
    (newest / "trainer_state.pt").unlink()
    (newest.with_name("global_step_2") / "data.pt").unlink()  # so that the one of step 1 is the newest whole one
    more["trainer__max_training_steps"], more["trainer__epochs"] = 4, 2
    trainer = write_model(build(tmp_path, attempt=2, **more))
    trainer.reports = Told()
    with pytest.raises(RGEnvError) as failed:
        train(trainer)
    assert str(failed.value).startswith(f"{newest} cannot be loaded: FileNotFoundError: Trainer state file not found")
    assert str(failed.value).endswith(f"trainer.resume_path={newest.with_name('global_step_1')}")
    assert trainer.reports.sent[-1] == {"doing": "loading the checkpoint"}


def test_what_a_checkpoint_covers_is_on_disk_before_it(tmp_path, monkeypatch):
    append = PartFile.append

    def slow(file, *line):
        time.sleep(0.05)
        return append(file, *line)

    monkeypatch.setattr(PartFile, "append", slow)
    trainer = build(tmp_path, **KEEP_ALL, **CHECKPOINTS)
    seen = {}
    trainer.dispatch.save_checkpoint = lambda *_: seen.update({trainer.global_step: trained_in(tmp_path / "dumps")})
    train(trainer)
    assert {step: max(trained) for step, trained in seen.items()} == {1: 1, 2: 2, 3: 3}


def test_cancelling_leaves_whole_groups_only(tmp_path):
    """The fully-async loop cancels what is still being generated when it has enough."""
    trainer = build(tmp_path, **KEEP_ALL, **FULLY_ASYNC, trainer__max_training_steps=1, **{f"{RG}size": 4 * BATCH})
    with trainer.generator.writer:
        asyncio.run(trainer.train())
    ledger = list(open_run(tmp_path / "dumps").ledger())
    assert len(ledger) >= BATCH
    assert {len(line.rollouts) for line in ledger} == {SAMPLES}
    assert len(trained_in(tmp_path / "dumps")[1]) == BATCH


class Saving:
    def save_checkpoints(self):
        return "checkpoint"


class Saver(RecordingTrainer, Saving):
    def __init__(self, writer):
        self.generator, self.global_step = SimpleNamespace(writer=writer), 7


def test_a_checkpoint_is_saved_although_the_disk_fails_and_one_line_names_the_groups(tmp_path, monkeypatch, warnings):
    write, full = os.write, os.open("/dev/full", os.O_WRONLY)
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        monkeypatch.setattr(
            os,
            "write",
            lambda fd, data: write(full if tmp_path.name in str(Path(f"/proc/self/fd/{fd}").readlink()) else fd, data),
        )
        writer.submit([group(number) for number in range(7)])
        assert Saver(writer).save_checkpoints() == "checkpoint"
        monkeypatch.undo()
    (line,) = [text for text in warnings if "checkpoint" in text]
    assert group(0).group_id in line and "and 2 more" in line


def test_wrong_use_is_one_line():
    trainer = Saver(None)
    trainer.generator = object()
    with pytest.raises(ConfigError, match="needs a generator that records"):
        asyncio.run(trainer.train())
