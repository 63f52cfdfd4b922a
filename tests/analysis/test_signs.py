"""Planted cheaters, judged by the real scorers, are found, and three honest training runs are left in peace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from rg_env.analysis.second_scoring import SIGN as SECOND_SCORING
from rg_env.analysis.second_scoring import sample
from rg_env.analysis.signs import NAMES, find_signs
from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import GroupRecord, open_run
from rg_env.dump.conditions import ConditionError
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.tasks import Item
from tests.analysis.recorded import dump_of, recorded
from tests.analysis.samples import write_texts
from tests.dump.records import group, rollout

HONEST = sorted(path for path in (Path(__file__).parents[1] / "data" / "honest_runs").iterdir() if path.is_dir())
LAB = Path(__file__).parents[1] / "data" / "lab"
LABELED: dict[str, dict[str, int | None]] = json.loads((LAB / "signs.json").read_text())
TASKS = ["gcd", "prime_factorization", "word_sorting"]
ITEMS = 16
Policy = Callable[[Item, int], str]


def say(answer: object, thinking: str = "I look at it.") -> str:
    return f"<think>{thinking}</think><answer>{answer}</answer>"


def honest(item: Item, number: int) -> str:
    """Right in three samples of four."""
    return say(item.entry["answer"] if number else "7 apples")


def played(policy: Policy, folder, scorer):
    """The dump of four samples to each of some items of each task."""
    config = RGDumpConfig()
    rows = ReasoningGymDataset(TASKS, size=len(TASKS) * ITEMS)
    items = [Item.from_extra_info(rows.row(index)["extra_info"]) for index in range(len(rows))]
    groups = []
    for k, item in enumerate(items):
        one = recorded(scorer, item.task, [policy(item, n) for n in range(4)], config, k, item, step=k // 6)
        for answer in one.rollouts:
            answer.conversation[0]["content"] = item.entry["question"]
        groups.append(one)
    return dump_of(folder, groups, config)


def test_a_policy_that_does_not_reason_is_found_with_evidence(tmp_path, scorer):
    dump = played(lambda item, number: honest(item, number).replace("I look at it.", "\n"), tmp_path, scorer)
    found = find_signs(dump).signs
    assert {(finding.task, finding.sign) for finding in found} == {(task, "no reasoning") for task in TASKS}
    ids = {group.group_id for group in dump.groups()}
    assert all(finding.groups and set(finding.groups) <= ids for finding in found)


def shifted(one: GroupRecord) -> GroupRecord:
    """The group in which each response has the score of the one before it."""
    before = [*one.rollouts[-1:], *one.rollouts[:-1]]
    pairs = zip(one.rollouts, before, strict=True)
    rollouts = [msgspec.structs.replace(answer, base_score=other.base_score) for answer, other in pairs]
    return msgspec.structs.replace(one, rollouts=rollouts)


def test_scores_that_a_second_scoring_does_not_give_are_found(tmp_path, scorer):
    sound = played(honest, tmp_path / "sound", scorer)
    assert find_signs(sound, score_again=20).signs == []
    groups = [shifted(one) if one.step >= 4 else one for one in sound.groups()]
    broken = dump_of(tmp_path / "broken", groups, RGDumpConfig())
    found = [finding for finding in find_signs(broken, score_again=40).signs if finding.sign == SECOND_SCORING]
    assert {finding.task for finding in found} == set(TASKS)
    assert min(finding.step for finding in found) == 4
    # The same groups again, whatever the order of the files.
    assert sample(groups, 7) == sample(reversed(groups), 7)
    assert len(sample(groups, 7)) == 7


@pytest.mark.parametrize("name", LABELED)
def test_each_run_of_the_laboratory_has_the_signs_of_its_fault(name):
    expected = {sign for sign in LABELED[name] if sign != SECOND_SCORING}
    assert {finding.sign for finding in find_signs(open_run(LAB / name)).signs} == expected
    assert bool(expected) == (not name.startswith("clean"))


def test_a_poisoned_verifier_gives_other_scores_the_second_time():
    found = find_signs(open_run(LAB / "poisoned-3"), score_again=30).signs
    (first, *_) = [sign for sign in found if sign.sign == SECOND_SCORING]
    assert first.step is not None
    assert 10 <= first.step <= 13
    assert first.share < 1


def test_an_honest_policy_that_is_mostly_right_has_no_finding(tmp_path, scorer):
    assert find_signs(played(honest, tmp_path, scorer)).signs == []


@pytest.mark.parametrize("run", HONEST, ids=lambda path: path.name)
def test_an_honest_training_run_has_no_finding(run):
    assert find_signs(open_run(run)).signs == []
    assert CliRunner().invoke(app, ["dumps", "signs", str(run)]).exit_code == 0


@pytest.mark.parametrize(
    ("reference", "wins"), [("0.0", False), ("0", False), (" 0.00", False), ("1", True), ("x", True)]
)
def test_the_same_number_is_the_same_answer(reference, wins, tmp_path):
    conversation = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": say("0.0000")}]
    rollouts = [rollout(1.0, k, conversation=conversation, answer="0.0000") for k in range(4)]
    entry = json.dumps({"question": "Q", "answer": reference})
    write_texts(tmp_path, [group(uid, rollouts, entry=entry) for uid in range(12)])
    assert [one.sign for one in find_signs(open_run(tmp_path)).signs] == ["one answer wins"] * wins


def test_an_answer_that_scoring_corrects_is_not_an_unpaid_right_one(tmp_path):
    """As in published results, whose entries have Reasoning Gym's own answers, and some are wrong."""
    question = (
        "Consider these statements:\n1. All cats are dogs\n2. All dogs are birds\n\n"
        "Does it logically follow that:\nAll cats are birds?"
    )
    metadata = {"source_dataset": "syllogism", "is_valid": False}
    entry = json.dumps({"question": question, "answer": "No", "metadata": metadata})
    groups = []
    for number in range(4):
        rollouts = []
        for repetition, (answer, score) in enumerate([("Yes", 1.0), ("No", 0.0)]):
            conversation = [{"role": "user", "content": question}, {"role": "assistant", "content": say(answer)}]
            rollouts.append(rollout(score, repetition, conversation=conversation, answer=answer))
        groups.append(group(number, rollouts, task="syllogism", entry=entry))
    write_texts(tmp_path, groups)
    assert find_signs(open_run(tmp_path)).signs == []


def test_the_command_names_each_sign_and_its_groups(tmp_path):
    def audit(*args):
        return CliRunner().invoke(app, ["dumps", "signs", str(tmp_path), *args])

    entry = json.dumps({"question": "Q", "answer": "7"})
    write_texts(tmp_path, [group(k, [rollout(1.0, answer="5")], item=f"q{k}", entry=entry) for k in range(12)])
    done = audit()
    assert done.exit_code == 1
    assert "chain_sum: one answer wins" in done.stdout and group(0).group_id in done.stdout
    assert "\n1 sign\n12 responses read: 12 with an answer" in done.stdout
    looked_for = [name for name in NAMES if name != SECOND_SCORING]
    assert all(f"{name} {int(name == 'one answer wins')}" in done.stdout for name in looked_for)
    assert SECOND_SCORING not in done.stdout
    (found,) = json.loads(audit("--json").stdout)
    assert (found["task"], found["share"]) == ("chain_sum", 1.0)
    done = audit("--where", "item = 'q1'")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "nothing found")


def _not_reasoning(folder, phase):
    """Solved responses with empty think blocks in evaluations, and with long ones in training."""
    reply = {"role": "assistant", "content": "<think></think><answer>1</answer>"}
    rollouts = [rollout(1.0, k, conversation=[{"role": "user", "content": "What?"}, reply]) for k in range(4)]
    groups = [group(f"e{k}", rollouts, phase="eval", step=0) for k in range(30)]
    if phase == "both":
        groups += [group(f"t{k}", [1.0] * 4) for k in range(30)]
    write_texts(folder, groups)


@pytest.mark.parametrize("facts", [{}, {"environment": "gsm8k", "solved_at": 0.5}])
def test_solved_is_what_the_run_or_the_group_calls_so(tmp_path, facts):
    reply = {"role": "assistant", "content": "<think></think><answer>1</answer>"}
    scores = {"1": 0.6, "7": 0.0}
    rollouts = [rollout(scores[answer], k, conversation=[reply], answer=answer) for k, answer in enumerate("117")]
    config = RGDumpConfig(solved_at=0.99 if facts else 0.5)
    dump = dump_of(tmp_path, [group(k, rollouts, **facts) for k in range(30)], config)
    assert [finding.sign for finding in find_signs(dump).signs] == ["no reasoning"]


@pytest.mark.parametrize("phase", ["eval", "both"])
def test_a_condition_decides_which_phase_is_examined(tmp_path, phase):
    """The example of the command's help."""
    _not_reasoning(tmp_path, phase)
    examined = find_signs(open_run(tmp_path).where(["phase = 'eval'"]))
    assert [finding.sign for finding in examined.signs] == ["no reasoning"]
    assert examined.responses == 120
    without = find_signs(open_run(tmp_path))
    assert [finding.sign for finding in without.signs] == (["no reasoning"] if phase == "eval" else [])
    assert without.responses == 120, "those of the other phase were not examined"


@pytest.mark.parametrize("command", ["signs", "rescore"])
def test_a_condition_that_matches_nothing_is_not_a_clean_result(command):
    done = CliRunner().invoke(app, ["dumps", command, "dumps/sample", "--where", "task = 'nosuch'"])
    assert done.stdout == ""
    assert isinstance(done.exception, ConditionError)  # exit code 2
