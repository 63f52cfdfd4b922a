"""`evidence/leaderboard.py`, on files written here in upstream's forms."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rg_env.dump import Dump, open_run
from rg_env.dump.validate import validate
from rg_env.evaluate.suites import SuiteTask
from rg_env.scoring import Status, Violation
from tests.documents import ROOT
from tests.running import run_command

PROMPT = "Answer between <answer> and </answer>."


def completion(answer: object, score: float) -> dict[str, Any]:
    return {"model_answer": str(answer), "full_model_response": f"So: <answer>{answer}</answer>", "score": score}


def results(task: str, seed: int, size: int, **options: Any) -> dict[str, Any]:
    """A file in today's form: every item answered correctly, and once with a word."""
    return {
        "name": task,
        "config": {"size": size, "seed": seed, **options},
        "system_prompt": PROMPT,
        "results": [
            {
                "question": item.entry["question"],
                "expected_answer": str(item.entry["answer"]),
                "completions": [completion(item.entry["answer"], 1.0), completion("none", 0.0)],
            }
            for item in map(SuiteTask(task, options, size, seed).item, range(size))
        ],
    }


def old_form(file: dict[str, Any]) -> dict[str, Any]:
    """The same with one completion, whose keys are in the result."""
    flat = [{"question": r["question"], **r["completions"][0]} for r in file["results"]]
    return file | {"results": flat}


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def leaderboard(*args: object) -> subprocess.CompletedProcess[str]:
    return run_command(sys.executable, ROOT / "evidence" / "leaderboard.py", *args, check=False)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dump, str]:
    """The dump of a run with one file in each form, and what was printed."""
    run = tmp_path_factory.mktemp("published") / "some_model-1.5_20250315"
    write(run / "summary.json", {"model": "some/model"})
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
    out = run.parent / "dump"
    done = leaderboard("import", run, "--out", out)
    assert done.returncode == 0, done.stderr
    assert leaderboard("import", run, "--out", out).stderr.endswith("choose another folder for --out\n")
    return open_run(out), done.stdout


def test_every_response_is_scored_beside_its_published_score(imported: tuple[Dump, str]) -> None:
    dump, _ = imported
    (run,) = dump.runs
    assert run.manifest is not None and run.manifest.model == "some/model"
    assert run.manifest.suite["name"] == "published/some_model-1.5_20250315"
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
    assert validate(run.files[0].path.parent).good


def test_what_cannot_be_scored_is_kept_and_counted_nowhere(imported: tuple[Dump, str]) -> None:
    scorable, unscored = (group for group in imported[0].groups() if group.task == "lcm")
    many, bare, missing = scorable.rollouts[2:]
    assert (many.violation, many.published_score) == (Violation.MULTIPLE_ANSWERS, 0.5)
    assert bare.response == "<answer>7</answer>"
    assert (missing.status, missing.published_score) == (Status.NO_RESPONSE, None)
    assert {rollout.status for rollout in unscored.rollouts} == {Status.UNSCORED}
    assert [rollout.published_score for rollout in unscored.rollouts] == [1.0, 0.0]


def test_the_table_is_a_recount(imported: tuple[Dump, str]) -> None:
    dump, printed = imported
    of_task: dict[str, list[tuple[float, float]]] = {}
    for group, rollout in dump.rollouts():
        if rollout.status.is_counted:
            of_task.setdefault(group.task, []).append((rollout.published_score or 0.0, rollout.base_score))
    means = [[sum(pair[k] for pair in pairs) / len(pairs) for pairs in of_task.values()] for k in (0, 1)]
    published, ours = (f"{sum(values) / len(values):.3f}" for values in means)
    (row,) = (line.split(" | ") for line in printed.splitlines() if line.startswith("| dump |"))
    assert (row[1], row[2], row[4], row[6]) == ("15", "2", published, ours)
    steps = [float(cell.strip(" |")) for cell in row[7:]]
    assert sum(steps) == pytest.approx(float(ours) - float(published), abs=1e-3)
    assert "\nformat: `lcm`" in printed


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    for path in (tmp_path, tmp_path / "bad.json", tmp_path / "nowhere"):
        done = leaderboard("import", path, "--out", tmp_path / "out")
        assert done.returncode == 1 and done.stderr.startswith("leaderboard: ") and done.stderr.count("\n") == 1
