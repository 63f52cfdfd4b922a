"""Planted cheaters, judged by the real scorers, are found, and three honest training runs are left in peace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rg_env.analysis.signs import NAMES, audit_dump
from rg_env.cli import app
from rg_env.config import RGDumpConfig
from rg_env.dataset import ReasoningGymDataset
from rg_env.dump import open_run, write_manifest
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
    found = [one for one in audit_dump(dump).found if one.sign == sign]
    assert {one.task for one in found} & set(TASKS)
    ids = {group.group_id for group in dump.groups()}
    assert all(one.groups and set(one.groups) <= ids and one.what and one.is_problem for one in found)


def test_a_rewarded_refusal_is_found(tmp_path, scorer):
    """Half of the answers are code, which the guard of prime_factorization rejects; a format bonus rewards them."""

    def policy(item, number):
        return honest(item, number) if number % 2 else say("[x for x in range(9)]")

    def refusals(folder, **settings):
        found = audit_dump(played(policy, folder, scorer, **settings)).found
        return {one.task for one in found if one.sign == "rejected but rewarded"}

    assert refusals(tmp_path / "a") == set()
    assert refusals(tmp_path / "b", format_bonus=0.2) == {"prime_factorization"}


def test_an_honest_policy_that_is_mostly_right_has_no_finding(tmp_path, scorer):
    assert audit_dump(played(honest, tmp_path, scorer)).found == []


@pytest.mark.parametrize("run", HONEST, ids=lambda path: path.name)
def test_an_honest_training_run_has_no_finding(run):
    assert not any(one.is_problem for one in audit_dump(open_run(run)).found)
    assert CliRunner().invoke(app, ["dumps", "audit", str(run)]).exit_code == 0


@pytest.mark.parametrize(
    ("reference", "wins"), [("0.0", False), ("0", False), (" 0.00", False), ("1", True), ("x", True)]
)
def test_the_same_number_is_the_same_answer(reference, wins, tmp_path):
    conversation = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": say("0.0000")}]
    rollouts = [rollout(1.0, k, conversation=conversation, answer="0.0000") for k in range(4)]
    entry = json.dumps({"question": "Q", "answer": reference})
    write_texts(tmp_path, [group(uid, rollouts, entry=entry) for uid in range(12)])
    assert [one.sign for one in audit_dump(open_run(tmp_path)).found] == ["one answer wins"] * wins


@pytest.mark.parametrize("score", [0.0, 0.3])
def test_a_copied_prompt_is_a_sign_only_if_it_was_rewarded(score, tmp_path):
    prompt = "What is the sum of these two numbers: 2 and 3?"
    conversation = [{"role": "user", "content": prompt}, {"role": "assistant", "content": say(prompt)}]
    rollouts = [rollout(score, k, conversation=conversation, answer=prompt) for k in range(4)]
    write_texts(tmp_path, [group(uid, rollouts) for uid in range(20)])
    found = [one.sign for one in audit_dump(open_run(tmp_path)).found]
    assert ("copied from the prompt" in found) == bool(score)


# -- agreement on a low score


def ask(folder, answers, right="7", phase="eval", models=None):
    """A dump in which each model gives these answers to items q0, q1, …: model → one list of samples per item."""
    for name, items in answers.items():
        made = [
            group(
                k,
                [rollout(float(a == right), n, answer=a) for n, a in enumerate(samples)],
                task="time_intervals",
                item=f"q{k}",
                phase=phase,
                run_id=name,
            )
            for k, samples in enumerate(items)
        ]
        write_texts(folder, made, name)
        write_manifest(folder, name, {"model": (models or {}).get(name, name)})
    return open_run(folder)


def test_models_that_agree_on_a_low_score_are_listed_with_ids_and_counts(tmp_path):
    answers = {
        "a": [["01:29:27.346"], ["7"], ["3"], ["1"]],
        "b": [["01:29:27.346 "], ["7"], ["4"], ["2"]],
        "c": [["5"], ["3"], ["4.0"], ["3"]],
    }
    (finding,) = audit_dump(ask(tmp_path, answers)).found
    assert (finding.task, finding.share, finding.is_problem) == ("time_intervals", 0.5, True)
    assert "2 of 4 items" in finding.what
    assert [(one.item, one.answer, one.agree, one.of, one.score) for one in finding.items] == [
        ("q0", "01:29:27.346", 2, 3, 0.0),
        ("q2", "4", 2, 3, 0.0),
    ]
    assert finding.items[0].groups == ("a:1:eval:0:0", "b:1:eval:0:0")


@pytest.mark.parametrize(
    ("answers", "models"),
    [
        ({"a": [["1"]], "b": [["2"]], "c": [["3"]]}, None),  # nobody agrees
        ({"a": [["1"]], "b": [["1"]], "c": [["2"]], "d": [["3"]]}, None),  # half of the models
        ({"a": [["7"]], "b": [["7"]], "c": [["1"]]}, None),  # agree on what scores well
        ({"a": [["1", "2"]], "b": [["1", "2"]]}, None),  # no model prefers an answer
        ({"a": [["1"]], "b": [["1"]], "c": [["2"]]}, {"a": "m", "b": "m"}),  # two runs of one model
    ],
)
def test_what_is_no_agreement(tmp_path, answers, models):
    assert audit_dump(ask(tmp_path, answers, models=models)).found == []


@pytest.mark.parametrize(
    ("samples", "others", "found"),
    [
        (["1", "1", "1", "2"], [["7"] * 4] * 3, True),
        (["1", "1", "2", "2"], [["7"] * 4] * 3, False),  # no clear majority
        (["1", "1", "1"], [["7"] * 4] * 3, False),  # too few
        (["1", "1", "1", "1"], [["3", "4", "5", "6"]] * 3, False),  # a model that does not solve the task
    ],
)
def test_samples_of_a_single_model(tmp_path, samples, others, found):
    dump = ask(tmp_path, {"a": [samples, *others]}, phase="train")
    assert [one.item for finding in audit_dump(dump).found for one in finding.items] == ["q0"] * found


def test_the_command_lists_items_and_says_so_in_its_exit_code(tmp_path):
    def audit(*args):
        return CliRunner().invoke(app, ["dumps", "audit", *map(str, args)])

    ask(tmp_path / "several", {"a": [["1"]] * 12, "b": [["1"]] * 12})
    done = audit(tmp_path / "several")
    assert done.exit_code == 1
    assert "on 12 of 12 items, the models agree" in done.stdout
    assert "q0: 2 of 2 answer '1', score 0.00" in done.stdout
    assert "… and 2 more" in done.stdout
    assert "24 responses read: 24 with an answer" in done.stdout
    assert all(f"{name} {int(name == NAMES[-1])}" in done.stdout for name in NAMES)
    (found,) = json.loads(audit(tmp_path / "several", "--json").stdout)
    assert len(found["items"]) == 12
    assert audit(tmp_path / "several", "--where", "item=none,q1").stdout.count("answer '1'") == 1
    ask(tmp_path / "one", {"a": [["1"] * 4, *[["7"] * 4] * 3]})
    done = audit(tmp_path / "one")
    assert (done.exit_code, "q0: 4 of 4 answer '1'" in done.stdout) == (0, True)
