"""A value of the wrong type, anywhere in a record, is refused or gives a record that can be read back."""

from __future__ import annotations

import copy
import json
import math
import random
from pathlib import Path

import msgspec
import polars as pl
import pytest

from rg_env.dump import GroupRecord, from_line, open_run, to_line
from rg_env.formats import DOCUMENTS, FORMATS
from rg_env.formats.records import Place
from tests.formats.test_programs import ATIF, FILES, GYM

ODD = [
    None,
    True,
    -1,
    2**70,
    10**400,
    math.nan,
    1e308,
    "",
    "x",
    "length",
    [],
    [None],
    {},
    {"a": 1},
    [[]],
    [{}],
    [1, "x"],
]


def ours(name):
    group = next(open_run(Path(__file__).parents[2] / "dumps" / "sample").groups())
    return json.loads(msgspec.json.encode(DOCUMENTS[name](group, group.rollouts[0], "nano")))


def in_lines(name):
    return [json.loads(line) for line in (FILES / name).read_text().splitlines()]


RECORDS = {
    "atif": [ATIF, ours("atif")],
    "verifiers": [*in_lines("verifiers/traces.jsonl"), ours("traces")],
    "trl": pl.read_parquet(FILES / "trl").rows(named=True),
    "skyrl": in_lines("skyrl/global_step_4_evals/spell_backward.jsonl"),
    "verl": in_lines("verl/3.jsonl"),
    "nemo-gym": [GYM],
    "atropos": [{"item_id": "a", "rollouts": [{"conversation": [{"role": "user", "content": "?"}], "score": 1}]}],
}


def places(value):
    """Every container with each key or index in it."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


@pytest.mark.parametrize("name", FORMATS)
def test_odd_values_are_refused_or_recorded(name):
    random_numbers = random.Random(42)
    format = FORMATS[name]
    for _ in range(1000):
        record = copy.deepcopy(random_numbers.choice(RECORDS[name]))
        container, key = random_numbers.choice(list(places(record)))
        container[key] = copy.deepcopy(random_numbers.choice(ODD))
        try:
            rows = list(format.rows(record, Place(Path("a.jsonl"))))
        except (ValueError, KeyError) as error:
            assert "\n" not in str(error)
            continue
        for row in rows:
            line = to_line(row.group)
            assert to_line(from_line(GroupRecord, line[:-1])) == line
