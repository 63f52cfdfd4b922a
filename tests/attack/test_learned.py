"""Rules that are learned from items with their answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rg_env.attack.attack_run import Hole, attack_tasks
from rg_env.attack.attacks import attacks
from rg_env.attack.learned import learned_rules

Make = Callable[[random.Random], tuple[str, str]]


def with_a_sign(draw: random.Random) -> tuple[str, str]:
    signs = draw.choices(["&", "+", "++"], k=3)
    return f"a {' b '.join(signs)} c", "1" if "++" in signs else "0"


def with_neighbors(draw: random.Random) -> tuple[str, str]:
    cells = draw.choices("0001", k=12)
    return f"[[ {' '.join(cells)} ]]", "False" if "1 1" in " ".join(cells) else "True"


def with_a_ratio(draw: random.Random) -> tuple[str, str]:
    courses, pairs = draw.randint(3, 40), draw.randint(3, 60)
    return f"There are {courses} courses: {'(a, b) ' * pairs}", str(pairs <= 1.5 * courses)


def with_few_questions(draw: random.Random) -> tuple[str, str]:
    disks = draw.randint(1, 30)
    return f"Move {disks} disks.", str(hash((disks, "moves")))


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (with_a_sign, "the number of `++`"),
        (with_neighbors, "the number of `1 1`"),
        (with_a_ratio, " by "),
        (with_few_questions, "the answer to the most similar of 200 questions"),
    ],
)
def test_what_gives_answers_away_is_learned(make: Make, rule: str) -> None:
    draw = random.Random(1)
    known, asked = [make(draw) for _ in range(200)], [make(draw) for _ in range(200)]
    rights = {
        each.name: sum(each.answer(question) == answer for question, answer in asked) / len(asked)
        for each in learned_rules(*map(list, zip(*known, strict=True)))
    }
    assert any(rule in name and right > 0.85 for name, right in rights.items()), rights


def test_what_gives_nothing_away_teaches_nothing() -> None:
    draw = random.Random(1)
    known = [(f"Is {draw.random()} heads?", draw.choice(["yes", "no"])) for _ in range(400)]
    for rule in learned_rules(*map(list, zip(*known[:200], strict=True))):
        assert sum(rule.answer(question) == answer for question, answer in known[200:]) < 130, rule.name
    assert [rule.name for rule in learned_rules(["same"] * 60, ["a", "b"] * 30)] == [
        "the answer to the most similar of 60 questions"
    ]


def test_a_file_of_questions_is_attacked(tmp_path: Path) -> None:
    """Its own scorer with hostile texts, and its questions with rules."""
    rows = [with_neighbors(random.Random(seed)) for seed in range(240)]
    path = tmp_path / "boards.csv"
    path.write_text("\n".join(["question,answer", *(f'"{question}",{answer}' for question, answer in rows)]))
    (attacked,) = attack_tasks(f"boards: {{file: {path}}}", items=5)
    assert {hit.hole for hit in attacked.hits} == {Hole.OFTEN_RIGHT}
    assert any("the number of `1 1`" in hit.attack for hit in attacked.hits)
    path.write_text("\n".join(["question,answer", *(f"What is {n} + {n * n}?,{n * n + n}" for n in range(30))]))
    told: list[tuple[str, int, int]] = []
    spec = f"sums: {{file: {{path: {path}, scorer: number}}}}"
    (attacked,) = attack_tasks(spec, advance=lambda *progress: told.append(progress))
    # It is said how far a task is, and that the audit's junk is tried, too.
    assert told[0][:2] == ("sums", 0) and told[-1][2] == len(told) > len(attacks("", ()))
    assert (attacked.fails, attacked.problem) == (True, "")  # the sum of the numbers
