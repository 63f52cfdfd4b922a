"""Dumps for reports, and a parser of reports that reads them as a browser does."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rg_env.dump import Dump, DumpPolicy, DumpWriter, GroupRecord, StepRecord, open_run
from rg_env.scoring.types import Status, Violation
from tests.dump.records import RUN_ID, group, rollout, violating

EVERYTHING = DumpPolicy(dump_other_rollouts=True, dump_eval_rollouts=True)


def dump_of(
    folder: Path,
    groups: Sequence[GroupRecord],
    policy: DumpPolicy = EVERYTHING,
    run_id: str = RUN_ID,
    numbers: Sequence[StepRecord] = (),
) -> Dump:
    with DumpWriter(folder, run_id, 1, policy=policy) as writer:
        assert writer.submit([*groups, *numbers]).result(5)
    return open_run(folder)


def step_records(numbers: Mapping[int, Mapping[str, float | None]], run_id: str = RUN_ID) -> list[StepRecord]:
    """The trainer's numbers, by step and name."""
    return [StepRecord(run_id, 1, step, list(of_step), list(of_step.values())) for step, of_step in numbers.items()]


def said(question: str, response: str) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": "Think first."},
        {"role": "user", "content": question},
        {"role": "assistant", "content": response},
    ]


def random_groups(count: int = 120, steps: int = 30) -> list[GroupRecord]:
    """Groups of three tasks over `steps` steps, with what a record may hold: violations, failures, penalties."""
    draw = random.Random(0)

    def one(k: int, number: int):
        base = draw.choice([0.0, 0.3, 0.99, 1.0])
        words = f"word{draw.randrange(10)} of group {number}"
        talk = said(f"Question {number}?", f"<think>{words}</think><answer>{base}</answer>")
        if draw.random() < 0.2:
            return violating(k, draw.choice(list(Violation)))
        if draw.random() < 0.1:
            return rollout(0.0, k, status=Status.TIMEOUT, raw_score=None, tagged_score=None, detail="too slow")
        factor = draw.choice([1.0, 0.5])
        return rollout(
            base,
            k,
            conversation=talk,
            score=base * factor,
            reward=base - 0.1,
            penalty_factor=factor,
            response_tokens=draw.randrange(5, 90),
        )

    return [
        group(
            number,
            [one(k, number) for k in range(4)],
            task=draw.choice(["chain_sum", "gcd", "spell_backward"]),
            step=1 + number * steps // count,
            phase="eval" if number % 10 == 0 else "train",
        )
        for number in range(count)
    ]


class Report(HTMLParser):
    """A report as an HTML parser sees it.

    Attributes:
        summary: what charts and tables are made from.
        groups: what the browser of groups shows.
        scripts: the code, in its order.
        title: of the page.
        policy: the content security policy.
        addresses: what is linked or loaded.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.groups: list[dict[str, Any]] = []
        self.scripts: list[str] = []
        self.addresses: list[str] = []
        self._element: dict[str, str | None] | None = None
        self._text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [found[name] or "" for name in ("src", "href") if name in found]
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"] or ""
        if tag in ("script", "title"):
            self._element, self._text = found, ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self.title = self._text
        if tag != "script" or self._element is None:
            return
        kind = self._element.get("type")
        if kind == "application/json":
            self.summary = json.loads(self._text)
        elif kind == "text/plain":
            self.groups += json.loads(gzip.decompress(base64.b64decode(self._text)))
        else:
            self.scripts.append(self._text)
        self._element = None


def rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
