"""Planted cheaters, judged by the real scorers, are found, and three honest training runs are left in peace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rg_env.analysis.signs import NAMES, find_signs
from rg_env.cli import app
from rg_env.config import RGDumpConfig
from rg_env.dataset import ReasoningGymDataset
from rg_env.dump import open_run
from rg_env.tasks import Item
from tests.analysis.recorded import dump_of, recorded
from tests.analysis.samples import write_texts
from tests.dump.records import group, rollout

HONEST = sorted(path for path in (Path(__file__).parents[1] / "data" / "honest_runs").iterdir() if path.is_dir())
TASKS = ["gcd", "prime_factorization", "word_sorting"]
ITEMS = 16
Policy = Callable[[Item, int], str]


def say(answer: object, thinking: str = "I look at it.") -> str:
    return f"<think>{thinking}</think><answer>{answer}</answer>"


def honest(item: Item, number: int) -> str:
    """Right in three samples of four."""
    return say(item.entry["answer"] if number else "7 apples")


def played(policy: Policy, folder, scorer, **settings):
    """The dump of four samples to each of some items of each task."""
    config = RGDumpConfig(**settings)
    rows = ReasoningGymDataset(TASKS, size=len(TASKS) * ITEMS)
    items = [Item.from_extra_info(rows.row(index)["extra_info"]) for index in range(len(rows))]
    groups = []
    for k, item in enumerate(items):
        one = recorded(scorer, item.task, [policy(item, n) for n in range(4)], config, k, item, step=k // 6)
        for answer in one.rollouts:
            answer.conversation[0]["content"] = item.entry["question"]
        groups.append(one)
    return dump_of(folder, groups, config)


CHEATERS: dict[str, Policy] = {
    "copied from the prompt": lambda item, number: say(item.entry["question"]),
    "no reasoning": lambda item, number: honest(item, number).replace("I look at it.", "\n"),
}


@pytest.mark.parametrize("sign", CHEATERS)
def test_a_planted_cheater_is_found_with_evidence(sign, tmp_path, scorer):
    dump = played(CHEATERS[sign], tmp_path, scorer)
    found = [one for one in find_signs(dump).found if one.sign == sign]
    assert {one.task for one in found} & set(TASKS)
    ids = {group.group_id for group in dump.groups()}
    assert all(one.groups and set(one.groups) <= ids and one.what for one in found)


def test_a_rewarded_refusal_is_found(tmp_path, scorer):
    """Half of the answers are code, which the guard of prime_factorization rejects; a format bonus rewards them."""

    def policy(item, number):
        return honest(item, number) if number % 2 else say("[x for x in range(9)]")

    def refusals(folder, **settings):
        found = find_signs(played(policy, folder, scorer, **settings)).found
        return {one.task for one in found if one.sign == "rejected but rewarded"}

    assert refusals(tmp_path / "a") == set()
    assert refusals(tmp_path / "b", format_bonus=0.2) == {"prime_factorization"}


def test_an_honest_policy_that_is_mostly_right_has_no_finding(tmp_path, scorer):
    assert find_signs(played(honest, tmp_path, scorer)).found == []


@pytest.mark.parametrize("run", HONEST, ids=lambda path: path.name)
def test_an_honest_training_run_has_no_finding(run):
    assert find_signs(open_run(run)).found == []
    assert CliRunner().invoke(app, ["dumps", "signs", str(run)]).exit_code == 0


@pytest.mark.parametrize(
    ("reference", "wins"), [("0.0", False), ("0", False), (" 0.00", False), ("1", True), ("x", True)]
)
def test_the_same_number_is_the_same_answer(reference, wins, tmp_path):
    conversation = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": say("0.0000")}]
    rollouts = [rollout(1.0, k, conversation=conversation, answer="0.0000") for k in range(4)]
    entry = json.dumps({"question": "Q", "answer": reference})
    write_texts(tmp_path, [group(uid, rollouts, entry=entry) for uid in range(12)])
    assert [one.sign for one in find_signs(open_run(tmp_path)).found] == ["one answer wins"] * wins


@pytest.mark.parametrize("score", [0.0, 0.3])
def test_a_copied_prompt_is_a_sign_only_if_it_was_rewarded(score, tmp_path):
    prompt = "What is the sum of these two numbers: 2 and 3?"
    conversation = [{"role": "user", "content": prompt}, {"role": "assistant", "content": say(prompt)}]
    rollouts = [rollout(score, k, conversation=conversation, answer=prompt) for k in range(4)]
    write_texts(tmp_path, [group(uid, rollouts) for uid in range(20)])
    found = [one.sign for one in find_signs(open_run(tmp_path)).found]
    assert ("copied from the prompt" in found) == bool(score)


def test_the_command_names_each_sign_and_its_groups(tmp_path):
    def audit(*args):
        return CliRunner().invoke(app, ["dumps", "signs", str(tmp_path), *args])

    entry = json.dumps({"question": "Q", "answer": "7"})
    write_texts(tmp_path, [group(k, [rollout(1.0, answer="5")], item=f"q{k}", entry=entry) for k in range(12)])
    done = audit()
    assert done.exit_code == 1
    assert "chain_sum: one answer wins" in done.stdout and group(0).group_id in done.stdout
    assert "\n1 finding\n12 responses read: 12 with an answer" in done.stdout
    assert all(f"{name} {int(name == 'one answer wins')}" in done.stdout for name in NAMES)
    (found,) = json.loads(audit("--json").stdout)
    assert (found["task"], found["share"]) == ("chain_sum", 1.0)
    done = audit("--where", "item = 'q1'")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "nothing found")
