"""Items on which models agree on an answer that scores low."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rg_env.analysis.signs import Consensus, find_signs
from rg_env.cli import app
from rg_env.dump import open_run, write_manifest
from tests.analysis.samples import write_texts
from tests.dump.records import group, rollout


def ask(folder, answers, right="7", phase="eval", task="time_intervals", models=None):
    """A dump in which each model gives these answers to items q0, q1, …: model → one list of samples per item."""
    for name, items in answers.items():
        made = [
            group(
                k,
                [rollout(float(a == right), n, answer=a) for n, a in enumerate(samples)],
                task=task,
                item=f"q{k}",
                phase=phase,
                run_id=name,
            )
            for k, samples in enumerate(items)
        ]
        write_texts(folder, made, name)
        write_manifest(folder, name, {"model": (models or {}).get(name, name)})
    return open_run(folder)


def agreements(dump):
    consensus = Consensus(dump.runs)
    find_signs(dump, consensus=consensus)
    return list(consensus.findings())


def test_models_that_agree_on_a_low_score_are_listed_with_ids_and_counts(tmp_path):
    dump = ask(
        tmp_path,
        {
            "a": [["01:29:27.346"], ["7"], ["3"], ["1"]],
            "b": [["01:29:27.346 "], ["7"], ["4"], ["2"]],
            "c": [["5"], ["3"], ["4.0"], ["3"]],
        },
    )
    (finding,) = agreements(dump)
    assert (finding.task, finding.share) == ("time_intervals", 0.5)
    assert "2 of 4 items" in finding.what
    assert [(one.item, one.answer, one.agree, one.of, one.score) for one in finding.items] == [
        ("q0", "01:29:27.346", 2, 3, 0.0),
        ("q2", "4", 2, 3, 0.0),
    ]
    assert finding.items[0].groups == ("a:1:eval:0:0", "b:1:eval:0:0")


@pytest.mark.parametrize(
    "answers",
    [
        {"a": [["1"]], "b": [["2"]], "c": [["3"]]},  # nobody agrees
        {"a": [["1"]], "b": [["1"]], "c": [["2"]], "d": [["3"]]},  # half of the models
        {"a": [["7"]], "b": [["7"]], "c": [["1"]]},  # agree on what scores well
        {"a": [["1", "2"]], "b": [["1", "2"]]},  # no model prefers an answer
    ],
)
def test_what_is_no_agreement(tmp_path, answers):
    assert agreements(ask(tmp_path, answers)) == []


def test_two_runs_of_one_model_have_one_vote(tmp_path):
    dump = ask(tmp_path, {"a": [["1"]], "b": [["1"]], "c": [["2"]]}, models={"a": "m", "b": "m"})
    assert agreements(dump) == []


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
    assert [one.item for finding in agreements(dump) for one in finding.items] == ["q0"] * found


def test_the_command_lists_items_and_says_so_in_its_exit_code(tmp_path):
    def audit(*args):
        return CliRunner().invoke(app, ["dumps", "audit", *map(str, args)])

    ask(tmp_path / "several", {"a": [["1"]] * 12, "b": [["1"]] * 12})
    done = audit(tmp_path / "several")
    assert done.exit_code == 1
    assert "on 12 of 12 items, the models agree" in done.stdout
    assert "q0: 2 of 2 answer '1', score 0.00" in done.stdout
    assert "… and 2 more" in done.stdout
    (found,) = json.loads(audit(tmp_path / "several", "--json").stdout)
    assert len(found["items"]) == 12
    assert audit(tmp_path / "several", "--where", "item=none,q1").stdout.count("answer '1'") == 1
    ask(tmp_path / "one", {"a": [["1"] * 4, *[["7"] * 4] * 3]})
    done = audit(tmp_path / "one")
    assert (done.exit_code, "q0: 4 of 4 answer '1'" in done.stdout) == (0, True)
