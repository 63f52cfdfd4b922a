"""Results of Reasoning Gym's evaluations as a dump. The files are written here, in upstream's forms."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rg_env.analysis.rescore import rescore
from rg_env.analysis.signs import Coverage, find_signs
from rg_env.cli import app
from rg_env.dump import Dump, open_run
from rg_env.dump.repair.validate import validate
from rg_env.errors import DumpError
from rg_env.scoring import Status, Violation
from rg_env.suites.importing import ImportedRun, import_evaluations
from rg_env.suites.items import SuiteTask
from rg_env.suites.published import read_results

PROMPT = "Answer between <answer> and </answer>."


def completion(answer: object, score: float) -> dict[str, Any]:
    return {"model_answer": str(answer), "full_model_response": f"So: <answer>{answer}</answer>", "score": score}


def results(task: str, seed: int, size: int, **options: Any) -> dict[str, Any]:
    """A file in today's form: every item answered correctly, and once with a word."""
    return {
        "name": task,
        "category": "arithmetic",
        "config": {"size": size, "seed": seed, **options},
        "system_prompt": PROMPT,
        "results": [
            {
                "question": item.entry["question"],
                "expected_answer": str(item.entry["answer"]),
                "completions": [completion(item.entry["answer"], 1.0), completion("none", 0.0)],
            }
            for item in SuiteTask(task, options, size, seed)
        ],
    }


def old_form(file: dict[str, Any]) -> dict[str, Any]:
    """The same with one completion, whose keys are in the result, and with the results first."""
    flat = [{"question": r["question"], **r["completions"][0]} for r in file["results"]]
    return {"results": flat, **{key: value for key, value in file.items() if key != "results"}}


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with one file in each form."""
    run = tmp_path_factory.mktemp("published") / "some_model_20250315"
    write(run / "summary.json", {"model": "some/model", "total_datasets": 3})
    write(run / "arithmetic" / "gcd.json", results("gcd", 45, 3, max_numbers=3))
    write(run / "arithmetic" / "chain_sum.json", old_form(results("chain_sum", 45, 2)))
    changed = results("lcm", 45, 2)
    changed["results"][1]["question"] += " And what is the meaning of life?"
    changed["results"][0]["completions"] += [
        {"model_answer": None, "full_model_response": "<answer>1</answer> or <answer>2</answer>", "score": 0.5},
        {"model_answer": "7", "full_model_response": None, "score": 0.0},
        {"model_answer": None, "full_model_response": None, "score": "?"},
    ]
    write(run / "arithmetic" / "lcm.json", changed)
    return run


@pytest.fixture(scope="module")
def imported(published: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ImportedRun, Dump]:
    out = tmp_path_factory.mktemp("imported") / "dump"
    (run,) = import_evaluations(published, out, workers=2)
    return run, open_run(out)


def test_every_response_is_scored_beside_its_published_score(imported: tuple[ImportedRun, Dump]) -> None:
    run, dump = imported
    assert (run.name, run.model) == ("some_model_20250315", "some/model")
    assert {name: (task.items, task.unscorable, task.responses) for name, task in run.tasks.items()} == {
        "gcd": (3, 0, 6), "chain_sum": (2, 0, 2), "lcm": (2, 1, 4),
    }  # fmt: skip
    assert run.tasks["gcd"].published == run.tasks["gcd"].ours == 3.0
    assert run.mean("ours") == pytest.approx((3 / 6 + 2 / 2 + run.tasks["lcm"].ours / 4) / 3)
    groups = list(dump.groups())
    for group in groups:
        if group.task != "lcm":
            assert group.rollouts[0].base_score == group.rollouts[0].published_score == 1.0
        if group.task == "gcd":
            assert json.loads(group.task_config) == {"max_numbers": 3}
            assert group.rollouts[1].base_score == group.rollouts[1].published_score == 0.0
    system, question, response = groups[0].rollouts[0].conversation
    assert system == {"role": "system", "content": PROMPT}
    assert response["content"].startswith("So: <answer>")
    assert json.loads(groups[0].entry)["question"] == question["content"]


def test_what_cannot_be_scored_is_kept_and_counted_nowhere(imported: tuple[ImportedRun, Dump]) -> None:
    scorable, unscorable = (group for group in imported[1].groups() if group.task == "lcm")
    many, bare, missing = scorable.rollouts[2:]
    assert (many.violation, many.published_score) == (Violation.MULTIPLE_ANSWERS, 0.5)
    assert bare.response == "<answer>7</answer>"
    assert (missing.status, missing.published_score) == (Status.NO_RESPONSE, None)
    assert {rollout.status for rollout in unscorable.rollouts} == {Status.UNSCORABLE}
    assert [rollout.published_score for rollout in unscorable.rollouts] == [1.0, 0.0]
    assert "meaning of life" in json.loads(unscorable.entry)["question"]
    frame = next(imported[1].frames(["status"]))
    assert frame.filter(frame["status"] == "unscorable").height == 2


def test_it_is_a_normal_dump(imported: tuple[ImportedRun, Dump], tmp_path: Path) -> None:
    folder = str(imported[0].folder)
    assert not validate(imported[0].folder).kept
    assert rescore(imported[1], workers=2).changed == 0
    assert imported[1].runs[0].manifest["suite"]["questions"] == 7
    find_signs(imported[1], coverage := Coverage())
    assert (coverage.responses, coverage.answers) == (12, 11)
    group = next(group for group in imported[1].groups() if group.task == "lcm").group_id
    for arguments in (
        ["stats", folder, "--by", "task"],
        ["show", folder, "--plain"]
        if "--plain" in CliRunner().invoke(app, ["dumps", "show", "--help"]).output
        else None,
        ["replay", folder, group],
        ["audit", folder],
        ["report", folder, "--out", str(tmp_path / "report.html")],
        ["export", "sft", folder, "--include-eval", "--out", str(tmp_path / "sft.jsonl")],
        ["recover", folder, "--out", str(tmp_path / "copy")],
    ):
        if arguments is not None:
            result = CliRunner().invoke(app, ["dumps", *arguments])
            assert result.exit_code == 0, (arguments, result.output, result.exception)


def test_all_datasets_of_a_run_in_one_file(published: Path, tmp_path: Path) -> None:
    files = [results("gcd", 45, 2), results("chain_sum", 45, 1)]
    categories = [{"name": "a", "datasets": files[:1]}, {"name": "b", "datasets": files[1:]}]
    path = write(tmp_path / "in" / "results.json", {"metadata": {"model": "m"}, "categories": categories})
    found = [(r.dataset.task, r.index, r.dataset.seed, len(r.responses)) for r in read_results(path)]
    assert found == [("gcd", 0, 45, 2), ("gcd", 1, 45, 2), ("chain_sum", 0, 45, 2)]
    (run,) = import_evaluations(path, tmp_path / "out", workers=1)
    assert {name: task.ours for name, task in run.tasks.items()} == {"gcd": 2.0, "chain_sum": 1.0}


def test_several_runs_get_a_folder_each(published: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / "runs" / name / "summary.json", {"model": name})
        write(tmp_path / "runs" / name / "arithmetic" / "gcd.json", results("gcd", 45, 1))
    runs = import_evaluations(tmp_path / "runs", tmp_path / "out", workers=1)
    assert [(run.name, run.model, run.folder) for run in runs] == [
        (name, name, tmp_path / "out" / name) for name in ("a", "b")
    ]
    fingerprints = {open_run(run.folder).runs[0].manifest["suite"]["fingerprint"] for run in runs}
    assert len(fingerprints) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"name": "gcd", "results": [', "is not JSON"),
        ('{"total_datasets": 3}', "has no results of an evaluation"),
        ("[]", "has no results of an evaluation"),
        ('{"name": "gcd", "config": {"seed": 1}, "results": [{"question": 3}, 4]}', "has no results of an evaluation"),
        ('{"name": ["gcd"], "config": 4, "results": [{"question": "?"}]}', "has no results of an evaluation"),
    ],
)
def test_what_is_no_evaluation_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(DumpError, match=message):
        import_evaluations(path, tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()


def test_a_config_of_another_version_makes_its_items_unscorable(tmp_path: Path) -> None:
    file = results("gcd", 45, 1)
    file["config"]["no_such_option"] = 3
    write(tmp_path / "gcd.json", file)
    (run,) = import_evaluations(tmp_path / "gcd.json", tmp_path / "out", workers=1)
    assert run.tasks["gcd"].unscorable == 1
    (group,) = open_run(tmp_path / "out").groups()
    assert "no option 'no_such_option'" in group.rollouts[0].detail


def test_the_command(published: Path, tmp_path: Path) -> None:
    arguments = ["dumps", "import", "reasoning-gym-eval", str(published), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*arguments, "--workers", "2"])
    assert result.exit_code == 1  # one item is unscorable
    assert "1 items are unscorable" in result.output
    assert "some/model" in result.output
    again = CliRunner().invoke(app, arguments)
    assert isinstance(again.exception, DumpError)
    assert "is not empty" in str(again.exception)


def test_a_big_file_is_read_in_little_memory(tmp_path: Path) -> None:
    one = json.dumps({"question": "?", "completions": [completion("x" * 10_000, 0.0)]})
    path = tmp_path / "big.json"
    with path.open("w") as file:
        file.write('{"name": "gcd", "config": {"seed": 1}, "results": [' + one)
        for _ in range(2500):
            file.write("," + one)
        file.write("]}")
    assert path.stat().st_size > 50_000_000
    code = (
        "import resource, sys, pathlib; from rg_env.suites.published import read_results\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak(); count = sum(1 for _ in read_results(pathlib.Path(sys.argv[1])))\n"
        "print(count, peak() - before)"
    )
    count, kilobytes = subprocess.check_output([sys.executable, "-c", code, str(path)], text=True).split()
    assert int(count) == 2501
    assert int(kilobytes) < 10_000
