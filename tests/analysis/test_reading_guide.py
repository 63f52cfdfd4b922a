"""The examples in docs/reading.md give what the page says, on `dumps/sample`."""

import re

from rg_env.dump.conditions import parse_condition
from tests.documents import ROOT, run_page

GUIDE = (ROOT / "docs" / "reading.md").read_text()
CONDITIONS = re.compile(r"--(?:against-)?where ('[^']*'|\"[^\"]*\")")


def test_the_code_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    names = run_page(ROOT / "docs" / "reading.md")
    assert names["table"]["task"].to_list() == ["leg_counting", "spell_backward"]
    assert names["rewards"]["step"].to_list() == [1, 2, 3]
    assert set(names["change"]["phase"]) == {"eval", "train"}
    assert "leg_counting" in capsys.readouterr().out


def test_the_conditions_are_conditions():
    table = GUIDE[GUIDE.index("| condition |") : GUIDE.index("A comparison with null matches nothing")]
    in_table = [text for row in table.strip().splitlines()[2:] for text in re.findall("`(.*?)`", row.split("|")[1])]
    conditions = [quoted[1:-1] for quoted in CONDITIONS.findall(GUIDE)] + in_table
    assert len(conditions) >= 12
    assert [parse_condition(condition) for condition in conditions]
