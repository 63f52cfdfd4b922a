"""Dumps for reports, and a parser of reports that reads them as a browser does."""

from __future__ import annotations

import base64
import gzip
import html
import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import Dump, DumpWriter, GroupRecord, StepRecord, open_run
from rg_env.scoring.types import Status, Violation
from tests.dump.records import RUN_ID, group, rollout, violating

EVERYTHING = RGDumpConfig()


def dump_of(
    folder: Path,
    groups: Sequence[GroupRecord],
    policy: RGDumpConfig = EVERYTHING,
    run_id: str = RUN_ID,
    numbers: Sequence[StepRecord] = (),
) -> Dump:
    with DumpWriter(folder, run_id, 1, policy) as writer:
        assert writer.submit([*groups, *numbers]).result(10)
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


class Report:
    """A report as a browser splits it, which ends a script at the first `</script>` whatever is in it.

    Attributes:
        title: of the page.
        policy: the content security policy.
        summary: what charts and tables are made from.
        groups: what the browser of groups shows.
        scripts: the code, in its order.
        addresses: what is linked or loaded.
    """

    def __init__(self, page: str) -> None:
        elements = re.findall(r"<script\b([^>]*)>(.*?)</script>", page, re.DOTALL)
        markup = re.sub(r"<script\b.*?</script>", "", page, flags=re.DOTALL)
        (title,) = re.findall("<title>(.*?)</title>", markup, re.DOTALL)
        (self.policy,) = re.findall('http-equiv="Content-Security-Policy" content="(.*?)"', markup)
        (summary,) = [text for kind, text in elements if "application/json" in kind]
        blocks = [text for kind, text in elements if "text/plain" in kind]
        self.title = html.unescape(title)
        self.summary = json.loads(summary)
        self.groups = [group for block in blocks for group in json.loads(gzip.decompress(base64.b64decode(block)))]
        self.scripts = [text for kind, text in elements if not kind]
        self.addresses = re.findall(r'\b(?:src|href)="(.*?)"', markup)


def rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
