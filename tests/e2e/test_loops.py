"""CPU training in the loops that other tests do not cover; one run is killed halfway.

The groups that the dump lists as trained on are compared, text by text, with the batches that SkyRL saves
(`trainer.dump_data_batch`).
"""

import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict

import pytest
from transformers import AutoTokenizer

from rg_env.dump import FileKind, open_run
from rg_env.dump.validate import validate
from rg_env.skyrl.cpu import nano_path
from tests.e2e.conftest import RG, kill_with_everything_it_started
from tests.running import ROOT, rg_env

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(1000)]

BATCH, SAMPLES = 8, 8
LEGS = "{min_animals: 1, max_animals: 2, max_instances: 3}"
KEEP_ALL = [f"{RG}.dump_other_rollouts=true", f"{RG}.dump_eval_rollouts=true", "trainer.dump_data_batch=true"]
EVALUATE = [
    "trainer.eval_interval=2",
    f"{RG}.num_eval_samples_per_task=4",
    "generator.eval_n_samples_per_prompt=1",
]


def trained_in(folder):
    """(attempt, step) → group id → rows of the training batch."""
    steps = defaultdict(dict)
    for record in open_run(folder).all_attempts().trained():
        assert record.group_id not in steps[record.attempt, record.step], "noted twice"
        steps[record.attempt, record.step][record.group_id] = record.rollouts
    return steps


def texts_trained_on(exports, step):
    """What SkyRL says the step's optimizer was given."""
    with (exports / "dumped_data" / f"global_step_{step}_training_input.pkl").open("rb") as file:
        batch = pickle.load(file)
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    width = batch["response_mask"].shape[1]
    return Counter(
        tokenizer.decode(row[-width:][mask.bool()], skip_special_tokens=True)
        for row, mask in zip(batch["sequences"], batch["response_mask"], strict=True)
    )


def texts_noted(dump, groups):
    """The texts of some groups, each as often as the record says its group was taken."""
    texts = Counter()
    for group in dump.all_attempts().groups():
        rows = groups.get(group.group_id, 0)
        assert rows % SAMPLES == 0
        for rollout in group.rollouts if rows else ():
            texts[rollout.conversation[-1]["content"]] += rows // SAMPLES
    return texts


@pytest.fixture
def temp():
    """A short TMPDIR for runs that get no chance to clear up."""
    folder = tempfile.mkdtemp(prefix="k", dir="/tmp")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_a_run_killed_in_the_middle_of_a_step_goes_on_from_its_checkpoint(tmp_path, short_run, temp):
    """SIGKILL in step 3, the last of the first of two epochs, with a checkpoint of step 2; dynamic sampling `replace`,
    and random levels of one of two tasks."""
    args = [
        *short_run,
        *KEEP_ALL,
        *EVALUATE,
        f"{RG}.size={3 * BATCH}",
        f"{RG}.tasks={{spell_backward: 1, leg_counting: {{weight: 1, config: {LEGS}}}}}",
        f"{RG}.complexity=random",
        f"{RG}.groups_per_file=20",
        "trainer.max_training_steps=4",
        "trainer.epochs=2",
        "trainer.ckpt_interval=2",
        "trainer.resume_mode=latest",
        "trainer.algorithm.dynamic_sampling.type=replace",
        "trainer.algorithm.dynamic_sampling.min_replace_ratio=0.05",
    ]
    dumps, output = tmp_path / "dumps", tmp_path / "output.txt"
    command = [sys.executable, "-c", "from rg_env.cli import main; main()", "train", *map(str, args)]
    with output.open("w") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env={**os.environ, "TMPDIR": temp})
    try:
        deadline = time.monotonic() + 400
        while not _ledger_has_step(dumps, 3) and time.monotonic() < deadline:
            assert process.poll() is None, output.read_text()[-4000:]
            time.sleep(0.02)
    finally:
        kill_with_everything_it_started(process)
    assert process.wait(10) == -signal.SIGKILL
    assert (tmp_path / "checkpoints" / "latest_ckpt_global_step.txt").read_text() == "2"
    before = {line.group_id for line in open_run(dumps).ledger()}

    rg_env("train", *args, timeout=500)

    validation = validate(dumps)
    assert validation.good, [str(finding) for finding in validation.kept]
    assert validation.records[FileKind.LEDGER] == len(list(open_run(dumps).all_attempts().ledger()))

    dump = open_run(dumps)
    [run] = dump.runs
    assert [attempt.attempt for attempt in run.manifest.attempts] == [1, 2]
    assert not list(dumps.glob("*.part"))
    for kind in FileKind:
        numbers = [file.batch for file in run.files_of(kind)]
        assert numbers == list(range(len(numbers)))
    assert len(run.files_of(FileKind.LEDGER)) > 2

    everything = list(dump.all_attempts().ledger())
    assert not dump.findings().counts["corrupt_line"]
    assert len({line.group_id for line in everything}) == len(everything)
    assert before <= {line.group_id for line in everything}, "what was there when it was killed is there now"
    assert {line.attempt for line in everything if line.step == 3} == {1, 2}

    groups = list(dump.ledger())
    assert Counter(line.step for line in groups if line.phase == "eval") == {2: 8, 4: 8}
    steps = defaultdict(list)
    for line in groups:
        if line.phase == "train":
            steps[line.step].append(line)
    assert {step: len(lines) for step, lines in steps.items()} == dict.fromkeys(range(1, 5), BATCH)
    for step, lines in steps.items():
        assert {line.attempt for line in lines} == {1 if step <= 2 else 2}
    assert len({line.uid for lines in steps.values() for line in lines}) == 4 * BATCH, "every row is new"
    drawn = {
        attempt: [
            (line.item, line.level, line.complexity)
            for line in everything
            if line.attempt == attempt and line.phase == "train" and line.step == 3
        ]
        for attempt in (1, 2)
    }
    assert drawn[1] == drawn[2], "the interrupted step has the same items at the same levels"
    for line in groups:
        assert (line.complexity is not None) == bool(line.level) == (line.task == "spell_backward")

    trained = trained_in(dumps)
    assert set(trained) >= {(1 if step <= 2 else 2, step) for step in range(1, 5)}
    repeated = 0
    for step in range(1, 5):
        noted = trained[1 if step <= 2 else 2, step]
        assert noted.keys() <= {line.group_id for line in steps[step]}
        assert sum(noted.values()) == BATCH * SAMPLES
        assert texts_noted(dump, noted) == texts_trained_on(tmp_path / "exports", step)
        repeated += sum(rows > SAMPLES for rows in noted.values())
    assert repeated, "dynamic sampling took some group twice"


def _ledger_has_step(folder, step):
    for path in folder.glob("*_ledger_*.jsonl*"):
        with contextlib.suppress(FileNotFoundError):  # it has just got its final name
            if b'"step":%d,' % step in path.read_bytes():
                return True
    return False


def test_the_fully_async_loop(tmp_path, short_run):
    """Training, generation and evaluation overlap; two epochs."""
    rg_env(
        "train",
        *short_run,
        *KEEP_ALL,
        *EVALUATE,
        f"{RG}.size={2 * BATCH}",
        "trainer.max_training_steps=4",
        "trainer.epochs=2",
        "trainer.fully_async.enabled=true",
        "trainer.fully_async.max_staleness_steps=1",
        f"trainer.fully_async.num_parallel_generation_workers={BATCH + 4}",
        "trainer.algorithm.policy_loss_type=rollout_is",
    )
    assert validate(tmp_path / "dumps").good
    dump = open_run(tmp_path / "dumps")
    ledger = list(dump.ledger())
    train = [line for line in ledger if line.phase == "train"]
    assert len({line.group_id for line in ledger}) == len(ledger)
    assert Counter(line.step for line in ledger if line.phase == "eval") == {2: 8, 4: 8}
    assert Counter(Counter(line.item for line in train).values()) == {1: 4 * BATCH}, "every epoch has new prompts"

    trained = trained_in(tmp_path / "dumps")
    assert set(trained) == {(1, step) for step in range(1, 5)}
    assert sorted(group for groups in trained.values() for group in groups) == sorted(line.group_id for line in train)
    for (_, step), noted in trained.items():
        assert texts_noted(dump, noted) == texts_trained_on(tmp_path / "exports", step)
