"""Rows of our own in the form of public files of questions, with ten spellings of a right answer and twelve kinds of
junk."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

from rg_env.scoring.formatting import unwrapped
from rg_env.scoring.numbers import read_number

FOLDER = Path(__file__).resolve().parents[1] / "data" / "questions"


class Question(NamedTuple):
    """A question with its right answer, as the scorer of its file gets them."""

    scorer: str
    gold: str
    metadata: Mapping[str, Any]
    text: str = ""

    @property
    def bare(self) -> str:
        """The right answer as people write it: without whitespace and dollar signs around it."""
        return unwrapped(self.gold)


def _rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".csv":
        with path.open(newline="") as lines:
            return list(csv.DictReader(lines))
    if path.suffix == ".json":
        return list(json.loads(path.read_text())["examples"])
    return [json.loads(line) for line in path.read_text().splitlines()]


SCORERS = {
    "gsm8k.jsonl": ("number", "answer"),
    "minerva_math.jsonl": ("math", "answer"),
    "answerbench.csv": ("math", "Short Answer"),
    "college_math.jsonl": ("math", "answer"),
    "olympiadbench.jsonl": ("math", "final_answer"),
    "gaokao2023en.jsonl": ("math", "answer"),
    "amc23.jsonl": ("exact", "answer"),
    "svamp.jsonl": ("exact", "Answer"),
    "mawps.jsonl": ("number", "target"),
    "aqua.jsonl": ("choice", "correct"),
    "sat_math.jsonl": ("choice", "Answer"),
    "mmlu_stem.jsonl": ("choice", "answer"),
    "date_understanding.json": ("choice", "target"),
    "asdiv.jsonl": ("math", "answer"),
}
"""The scorer that fits a file, and the column of its right answers."""


def questions(path: Path) -> Iterator[Question]:
    """Yield the questions of a file in one of these forms."""
    scorer, column = SCORERS[path.name]
    for row in _rows(path):
        answer = row[column]
        if isinstance(answer, list):
            answer = answer[0]
        metadata: dict[str, Any] = {"tolerance": 1e-6, "answer_is_number": not isinstance(answer, str)}
        if "choices" in row or "options" in row:
            metadata["options"] = row.get("choices") or row.get("options")
        gold = str(answer).rpartition("#### ")[2]
        if scorer == "choice" and isinstance(answer, int):  # its place; the items of a file have the letter
            gold = ascii_uppercase[answer]
        yield Question(scorer, gold, metadata, str(row.get("input", "")))


def spellings(question: Question) -> list[str]:
    """Return ten usual ways to write the right answer."""
    bare = question.bare
    if "$" in bare:  # which another sign around it would split
        return [question.gold]
    lines = [bare, f"\n {bare} \n", f"${bare}$", f"\\[{bare}\\]", rf"\({bare}\)", rf"\boxed{{{bare}}}"]
    return [*lines, f"**{bare}**", f"`{bare}`", f"{bare}.", rf"$$\boxed{{{bare}}}$$"]


def junk(question: Question, others: list[Question]) -> list[str]:
    """Return twelve kinds of junk, without what means the same as the right answer."""
    bare = question.bare
    texts = ["x=x", "1=1", "0", "0.0", "1", r"\emptyset", "()"]
    others = [other for other in others if not _same(other.gold, question)][:3]
    texts += [other.bare for other in others]
    letters = [place for place, character in enumerate(bare) if character.isalpha()]
    if letters and read_number(bare) is None:
        texts.append(bare[: letters[-1]] + bare[letters[-1] + 1 :])
    texts += [f"The answer is not {bare}"]
    if others:
        texts.append(f"{others[0].bare}\n{bare}")
    return [text for text in texts if text.strip() and not _same(text, question)]


def _same(text: str, question: Question) -> bool:
    number = read_number(text)
    if number is not None and number == read_number(question.gold):
        return True
    return unwrapped(text) == question.bare
