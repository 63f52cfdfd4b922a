"""The examples in docs/reading.md and docs/reading-show.md give what the pages say, on `dumps/sample`."""

import re

from rg_env.analysis import statistics
from rg_env.analysis.stats import STATISTICS
from rg_env.browser import Query
from rg_env.dump.read.where import ConditionError, parse_conditions
from tests.documents import ROOT, run_page

GUIDE = (ROOT / "docs" / "reading.md").read_text()
ABOUT_SHOW = (ROOT / "docs" / "reading-show.md").read_text()
CONDITIONS = re.compile(r"--where '?([^'\s`)]+)")


def test_the_code_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    names = run_page(ROOT / "docs" / "reading.md")
    assert names["table"]["task"].to_list() == ["leg_counting", "spell_backward"]
    assert names["rewards"]["step"].to_list() == [1, 2, 3]
    assert names["early"]["groups"].to_list() == [8]
    assert set(names["change"]["phase"]) == {"eval", "train"}
    assert "leg_counting" in capsys.readouterr().out


def test_the_conditions_are_conditions():
    table = GUIDE[GUIDE.index("| condition |") : GUIDE.index("An unknown column or value is rejected")]
    in_table = [text for row in table.strip().splitlines()[2:] for text in re.findall("`(.*?)`", row.split("|")[1])]
    conditions = CONDITIONS.findall(GUIDE) + in_table
    assert len(conditions) >= 14
    try:
        parse_conditions(conditions)
    except ConditionError as error:
        raise AssertionError(error) from None


def test_the_page_about_show_says_what_show_takes(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    Query(tuple(CONDITIONS.findall(ABOUT_SHOW)))
    filters = ABOUT_SHOW[ABOUT_SHOW.index("## Filters") : ABOUT_SHOW.index("## Plain text")]
    lines = [Query.parse(line) for line in re.findall("^    (.*)$", filters, re.MULTILINE)]
    assert [query.text for query in lines] == ["the remainder is", "x=5"]
    run_page(ROOT / "docs" / "reading-show.md")
    assert capsys.readouterr().out


def test_the_docstring_names_every_column(monkeypatch):
    monkeypatch.chdir(ROOT)
    from rg_env.dump import open_run

    text = " ".join([*(statistics.__doc__ or "").split(), *(one.name for one in STATISTICS)])
    for name in statistics(open_run("dumps/sample").scan(), by="level").columns:
        plain = re.sub(r"_(low|high)$", "", name)
        plain = re.sub(r"^(pass_at|pass_hat)_\d+$", r"\1_K", plain)
        plain = re.sub(r"^(tokens_right|tokens_wrong)_p\d+$", r"\1_pP", plain)
        assert plain in text or plain in ("task", "complexity"), name
