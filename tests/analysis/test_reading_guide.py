"""The guide's code runs, block after block, on the sample that is in the repository."""

import re
from pathlib import Path

from rg_env.analysis import ConditionError, parse_conditions, statistics

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "reading.md").read_text()


def test_the_code_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/reading.md", "exec"), names)
    assert names["table"]["task"].to_list() == ["leg_counting", "spell_backward"]
    assert names["rewards"]["step"].to_list() == [1, 2, 3]
    assert names["early"]["groups"].to_list() == [8]
    assert set(names["change"]["phase"]) == {"eval", "train"}
    assert "leg_counting" in capsys.readouterr().out


def test_the_conditions_are_conditions():
    conditions = re.findall(r"--where '?([^'\s`)]+)", GUIDE)
    assert len(conditions) >= 4
    try:
        parse_conditions(conditions)
    except ConditionError as error:
        raise AssertionError(error) from None


def test_the_docstring_names_every_column(monkeypatch):
    monkeypatch.chdir(ROOT)
    from rg_env.dump import open_run

    text = " ".join((statistics.__doc__ or "").split())
    for name in statistics(open_run("dumps/sample"), by="difficulty").columns:
        plain = re.sub(r"_(low|high)$", "", name)
        plain = re.sub(r"^(pass_at|pass_hat)_\d+$", r"\1_K", plain)
        plain = re.sub(r"^(tokens_right|tokens_wrong)_p\d+$", r"\1_pP", plain)
        plain = re.sub(r"^(status|violation)_\w+$", r"\1_…", plain)
        assert plain in text or plain in ("task", "level"), name
