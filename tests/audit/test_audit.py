"""The audit finds what is known to be there, and nothing where nothing is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from typer.testing import CliRunner

from rg_env.audit import ALL, Audit, Finding, Hole, Kind, Payload, TaskAudit, markdown, payloads_for, run_audit
from rg_env.audit.probes import Reference, probe, subjects_of
from rg_env.audit.sides import Ending, Outcome
from rg_env.cli import app
from rg_env.scoring import Measure
from rg_env.tasks import soundness_of
from rg_env.tasks.soundness import Soundness

EVAL = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
PARSE_EXPR = ("countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration")
KNOWN = {
    *((task, Hole.CODE) for task in (*EVAL, *PARSE_EXPR)),
    *((task, Hole.POISON) for task in EVAL),
    *((task, Hole.HANG) for task in (*EVAL, *PARSE_EXPR, "coin_flip", "rush_hour", "propositional_logic")),
    *((task, Hole.EXCEPTION) for task in ("prime_factorization", "boxnet", "game_of_life", "coin_flip", "codeio")),
    ("propositional_logic", Hole.EXCEPTION),
    ("rubiks_cube", Hole.MEMORY),
    *((task, Hole.FREE_REWARD) for task in ("game_of_life_halting", "complex_arithmetic", "puzzle24", "coin_flip")),
    *((task, Hole.FREE_REWARD) for task in ("countdown", "polynomial_multiplication", "simple_integration")),
    *((task, Hole.FREE_REWARD) for task in ("intermediate_integration", "n_queens", "syllogism")),
}
"""The holes of reasoning-gym 0.1.25 that were known before there was an audit."""


def raw_holes(audit: Audit) -> set[tuple[str, Hole]]:
    return {(task.task, finding.hole) for task in audit.tasks for finding in task.raw}


@pytest.fixture(scope="module")
def quick() -> Audit:
    return run_audit("spiral_matrix,complex_arithmetic,prime_factorization,rubiks_cube,gcd", items=8, quick=True)


def test_a_quick_audit_finds_known_holes(quick: Audit) -> None:
    audited = {task.task for task in quick.tasks}
    assert raw_holes(quick) >= {hole for hole in KNOWN if hole[0] in audited}


def test_a_sound_task_has_no_holes(quick: Audit) -> None:
    (gcd,) = (task for task in quick.tasks if task.task == "gcd")
    assert (gcd.raw, gcd.ours, gcd.in_default_mix, gcd.problem) == ((), (), True, "")


def test_ours_contains_what_the_raw_scorer_does_not(quick: Audit) -> None:
    contained = {Hole.HANG, Hole.MEMORY, Hole.CRASH, Hole.EXCEPTION, Hole.POISON}
    assert not [finding for task in quick.tasks for finding in task.ours if finding.hole in contained]
    assert quick.failed == ()


def test_the_result_is_json_and_a_page(quick: Audit) -> None:
    read = json.loads(json.dumps(quick.as_dict()))
    assert {"date", "reasoning_gym", "python", "items", "sandbox", "tasks", "failed"} <= set(read)
    assert {"task", "in_default_mix", "raw", "ours"} <= set(read["tasks"][0])
    page = markdown(quick)
    assert all(f"\n| {task.task} | " in page for task in quick.tasks)
    assert all(measure.name in page for measure in quick.sandbox)


def test_there_are_at_least_200_payloads_with_names_of_their_own() -> None:
    assert len(ALL) >= 200
    assert len({payload.name for payload in ALL}) == len(ALL)
    assert {payload.kind for payload in ALL} == set(Kind)
    assert len(payloads_for("gcd")) >= 200
    assert len(payloads_for("gcd", quick=True)) < 100


def made(*tasks: TaskAudit) -> Audit:
    return Audit("2026-01-01", "0", "3", "x", 1, 1.0, 0.4, (Measure("one", False, "why"),), tasks)


HOLE = (Finding(Hole.CODE, "p", "t"),)


@pytest.mark.parametrize(
    ("task", "code"),
    [
        (TaskAudit("a", True, "sound", 1), 0),
        (TaskAudit("a", True, "sound", 1, raw=HOLE), 0),
        (TaskAudit("a", True, "sound", 1, ours=HOLE), 1),
        (TaskAudit("a", False, "unsound", 1, ours=HOLE), 0),
        (TaskAudit("a", True, "sound", 1, problem="makes no items"), 1),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
def test_the_exit_code_says_whether_the_default_mix_has_a_hole_of_ours(
    monkeypatch: pytest.MonkeyPatch, task: TaskAudit, code: int, form: list[str]
) -> None:
    monkeypatch.setattr("rg_env.audit.command.run_audit", lambda *_, **__: made(task))
    done = CliRunner().invoke(app, ["audit", *form])
    assert done.exit_code == code
    assert "why" in done.stdout  # the sandbox report


@pytest.mark.parametrize("args", [["--items", "0"], ["--nonsense"]])
def test_misuse_is_exit_code_2(args: list[str]) -> None:
    assert CliRunner().invoke(app, ["audit", *args]).exit_code == 2


# -- the rules, on scorers of our own


class FakeSide:
    """Scores by a function, in this process."""

    def __init__(self, contains: bool, deadline: float = 1.0) -> None:
        self.contains, self.deadline = contains, deadline
        self.runs_hex = False
        self.state: dict[str, Any] = {}

    def start(self, task: str) -> None:
        pass

    def renew(self) -> None:
        self.state = {}

    def ask(self, entry: Mapping[str, Any], answer: str) -> Outcome:
        if self.runs_hex and answer.startswith("hex:"):
            answer = bytes.fromhex(answer.removeprefix("hex:")).decode()
        if answer == "poison":
            self.state["poisoned"] = True
        if answer == entry["answer"] or self.state.get("poisoned"):
            return Outcome(Ending.SCORED, 1.0)
        outcomes: dict[str, Outcome] = {
            "hang": Outcome(Ending.HUNG, seconds=1.1),
            "late": Outcome(Ending.HUNG, seconds=2.5),
            "raise": Outcome(Ending.RAISED),
            "die": Outcome(Ending.DIED),
            "grow": Outcome(Ending.SCORED, grown_mb=1000),
            "escape": Outcome(Ending.ESCAPED),
            "junk": Outcome(Ending.SCORED, 0.5),
            "crumbs": Outcome(Ending.SCORED, 0.4),
        }
        return outcomes.get(answer, Outcome(Ending.SCORED, 0.0))


@pytest.fixture(params=[False, True], ids=["raw", "ours"])
def side(request: pytest.FixtureRequest) -> Iterator[FakeSide]:
    yield FakeSide(request.param)


def holes(side: FakeSide, text: str, kind: Kind = Kind.MALFORMED) -> set[Hole]:
    entries = [{"question": "q", "answer": answer, "metadata": {}} for answer in ("Yes", "No", "Yes", "No")]
    subjects = subjects_of(entries, side, "/nowhere/canary")
    return {f.hole for f in probe(side, subjects, Payload("p", kind, text), Reference(side, subjects))}


@pytest.mark.parametrize(
    ("text", "raw", "ours"),
    [
        ("harmless", set(), set()),
        ("hang", {Hole.HANG}, set()),
        ("late", {Hole.HANG}, {Hole.HANG}),
        ("raise", {Hole.EXCEPTION}, set()),
        ("escape", set(), {Hole.EXCEPTION}),
        ("die", {Hole.CRASH}, set()),
        ("grow", {Hole.MEMORY}, set()),
        ("junk", {Hole.FREE_REWARD}, {Hole.FREE_REWARD}),
        ("crumbs", set(), set()),
        ("Yes", set(), set()),  # right half of the time, which is no hole
        ("poison", {Hole.POISON}, {Hole.POISON}),
    ],
)
def test_what_counts_as_a_hole(side: FakeSide, text: str, raw: set[Hole], ours: set[Hole]) -> None:
    assert holes(side, text) == (ours if side.contains else raw)


def test_many_answers_in_one_text_count_earlier(side: FakeSide) -> None:
    assert holes(side, "crumbs", Kind.SUBSTRING) == {Hole.FREE_REWARD}


@pytest.mark.parametrize("text", ["hang", "die"])
def test_code_that_ends_or_stops_a_process_was_run_on_either_side(side: FakeSide, text: str) -> None:
    assert Hole.CODE in holes(side, text, Kind.CODE)


def test_code_that_computes_the_right_answer_was_run(side: FakeSide) -> None:
    payload = Payload("p", Kind.CODE, lambda s: "hex:" + s.oracle.encode().hex(), lambda s: "hex:" + b"wrong".hex())
    entries = [{"question": "q", "answer": answer, "metadata": {}} for answer in ("Yes", "No", "Maybe")]
    subjects = subjects_of(entries, side, "/nowhere/canary")
    assert probe(side, subjects, payload, Reference(side, subjects)) == []
    side.runs_hex = True
    found = probe(side, subjects, payload, Reference(side, subjects))
    assert {finding.hole for finding in found} == {Hole.CODE}


# -- all of it


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_full_audit_finds_every_known_hole_and_none_of_ours() -> None:
    audit = run_audit()
    assert raw_holes(audit) >= KNOWN
    assert audit.failed == ()
    contained = {Hole.HANG, Hole.EXCEPTION, Hole.POISON}
    assert not [
        (task.task, f)
        for task in audit.tasks
        for f in task.ours
        if f.hole in contained and soundness_of(task.task) is not Soundness.UNSOUND
    ]
