"""A value is added to the record by one edit, of `schema.py`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rg_env

ROUND_TRIP = """
import json, sys
from pathlib import Path
from rg_env.dump import DumpWriter, from_line, open_run, record_from_line, to_line
from rg_env.dump.repair.validate import validate
from tests.dump.records import RUN_ID, group, rollout

name, in_group, value, without = sys.argv[1], sys.argv[2] == "GroupFacts", *map(json.loads, sys.argv[3:5])
rollouts = [rollout(1.0, 0), rollout(0.0, 1, **({} if in_group else {name: value}))]
written = group(0, rollouts, **({name: value} if in_group else {}))
folder = Path(sys.argv[5])
with DumpWriter(folder, RUN_ID, 1) as writer:
    assert writer.submit([written]).result(10)
assert validate(folder).good
dump = open_run(folder)
(text,), (ledger,) = dump.groups(), dump.ledger()
assert text == written
found = [getattr(r, name) for r in ledger.rollouts] if not in_group else [getattr(ledger, name)] * 2
assert found == ([value] * 2 if in_group else [without, value]), found
for texts in (False, True):
    assert dump.scan(texts=texts).select(name).collect()[name].to_list() == found
assert dump.problems == []

line = json.loads(to_line(written))
for part in [line] if in_group else line["rollouts"]:
    part[name] = {"of": "another type"}
for file in folder.glob("*_rollouts_*"):
    file.write_text(json.dumps(line) + "\\n")
assert not validate(folder).good
for part in [line] if in_group else line["rollouts"]:
    del part[name]
back = from_line(json.dumps(line).encode())
assert getattr(back if in_group else back.rollouts[1], name) == without
"""


@pytest.mark.parametrize(
    ("facts", "field", "value", "without"),
    [
        ("GroupFacts", "drawn_by: str | None = None", "chance", None),
        ("RolloutFacts", "second_status: Status = Status.OK", "timeout", "ok"),
    ],
)
def test_a_new_value_is_one_field(tmp_path, facts, field, value, without):
    package = tmp_path / "rg_env"
    shutil.copytree(Path(rg_env.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    schema = package / "dump" / "schema.py"
    before = {"GroupFacts": "\n    item_id: str\n", "RolloutFacts": "\n    repetition: int\n"}[facts]
    old = schema.read_text()
    assert old.count(before) == 1
    schema.write_text(old.replace(before, f"\n    {field}{before}"))
    arguments = [field.split(":")[0], facts, json.dumps(value), json.dumps(without), tmp_path / "dump"]
    path = f"{tmp_path}:{Path(__file__).parents[2]}"
    found = subprocess.run(
        [sys.executable, "-c", ROUND_TRIP, *map(str, arguments)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == 0, found.stderr
