"""The report in a real Chromium, opened from disk. Skipped where there is none: `make chromium` installs it."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from rg_env.analysis.report import write_report
from rg_env.scoring.types import Violation
from tests.analysis.reports import dump_of, random_groups, said
from tests.dump.records import group, rollout, violating

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: `make chromium` installs it")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\u202edrow\x00 & <b>"


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra `dev`")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def show(chromium):
    """Opens a report from disk; at the end nothing may have been asked of a network nor complained about."""
    complaints, asked, opened = [], [], []

    def open_page(path, **options):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        opened.append(path.as_uri())
        return page

    yield open_page
    assert complaints == []
    assert asked == opened


@pytest.fixture(scope="module")
def groups():
    return random_groups()


@pytest.fixture(scope="module")
def report(groups, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return write_report(dump_of(folder, groups), folder / "report.html")


@pytest.fixture(scope="module")
def shared_page(show, report):
    return show(report)


@pytest.fixture
def page(shared_page):
    """The report as after opening it, whatever the test before has done."""
    shared_page.keyboard.press("Escape")
    shared_page.click("#clear")
    assert found(shared_page) == 120
    return shared_page


def texts(locator):
    return [text.strip() for text in locator.all_text_contents()]


def found(page):
    return int(page.text_content("#count").split(" of ")[0].replace(",", ""))


def test_every_part_is_drawn(page):
    assert page.locator("#headline > div").count() >= 7
    for part, least in (("#curves", 4), ("#heat", 1), ("#lengths", 2), ("#trouble", 1)):
        assert page.locator(f"{part} figure").count() == least
        for plot in page.locator(f"{part} .plot > svg, {part} .plot > figure svg").all():
            box = plot.bounding_box()
            assert box["width"] > 100
            assert box["height"] > 20
    cells = page.locator("#heat svg[aria-label*='heat map'] g[aria-label=cell] rect")
    assert cells.count() == len(section(page)["heat"]["task"])
    assert page.locator("#curves figure").first.locator("g[aria-label=line] path").count() == 1  # none of evaluations
    assert page.locator("#worst article").count() == 3
    assert page.locator("#notes li").count() == 3


def section(page, phase="train"):
    """What the page has to show of a phase."""
    sections = json.loads(page.text_content("#summary"))["sections"]
    return next(section for section in sections if section["phase"] == phase)


def test_the_choice_of_phase_fills_the_page_again(page):
    page.select_option("#section", label="eval")
    rates = section(page, "eval")["steps"]["solve_rate"]
    before, after = (f"{100 * rate:.1f}\u00a0%" for rate in (rates[0], rates[-1]))
    assert page.text_content("#headline .evaluation dd") == f"{before} → {after}"
    assert not page.locator("#headline dt", has_text="without signal").count()
    assert "eval phase" in page.text_content("#tasks caption")
    page.select_option("#section", label="train")
    assert page.text_content("#headline .evaluation dd") == f"{before} → {after}"
    assert page.locator("#headline dt", has_text="without signal").count() == 1
    assert "train phase" in page.text_content("#tasks caption")


def test_the_table_sorts_both_ways(page):
    by_name = page.locator("#tasks thead button", has_text="task")
    by_name.click()
    assert texts(page.locator("#tasks tbody th")) == ["chain_sum", "gcd", "spell_backward"]
    assert page.get_attribute("#tasks thead th", "aria-sort") == "ascending"
    by_name.click()
    assert texts(page.locator("#tasks tbody th")) == ["spell_backward", "gcd", "chain_sum"]
    page.locator("#tasks thead button", has_text="groups").click()
    counts = [int(row.split("\n")[0]) for row in texts(page.locator("#tasks tbody td:nth-child(2)"))]
    assert counts == sorted(counts, reverse=True)
    assert page.get_attribute("#tasks thead th", "aria-sort") == "none"


@pytest.mark.parametrize(
    ("fields", "passes"),
    [
        ({"f-task": "gcd"}, lambda g: g.task == "gcd"),
        ({"f-outcome": "all_failed", "f-phase": "eval"}, lambda g: (g.outcome, g.phase) == ("all_failed", "eval")),
        ({"f-trouble": "empty_answer"}, lambda g: Violation.EMPTY_ANSWER in {r.violation for r in g.rollouts}),
        ({"f-trouble": "scorer: timeout"}, lambda g: "timeout" in {r.status for r in g.rollouts}),
        ({"f-trouble": "none"}, lambda g: all(not r.violation and r.status == "ok" for r in g.rollouts)),
        ({"f-search": "WORD3 of"}, lambda g: any("word3 of" in r.conversation[-1]["content"] for r in g.rollouts)),
        ({"f-search": "item-17"}, lambda g: g.item == "item-17"),
        ({"f-task": "gcd", "f-from": "9", "f-to": "20"}, lambda g: g.task == "gcd" and 9 <= g.step <= 20),
        ({"f-search": "no such text"}, lambda g: False),
    ],
)
def test_filters_and_search_find_what_the_record_has(page, groups, fields, passes):
    for field, value in fields.items():
        select = page.locator(f"select#{field}")
        if select.count():
            select.select_option(value)
        else:
            page.fill(f"#{field}", value)
    assert found(page) == sum(map(passes, groups))


def test_a_task_of_the_table_leads_to_its_groups(page, groups):
    page.click("#tasks tbody th button >> text=gcd")
    assert found(page) == sum(g.task == "gcd" for g in groups)
    assert page.evaluate("document.activeElement.id") == "list"


def test_an_example_of_a_worst_task_opens_its_group(page):
    page.select_option("#f-task", "gcd")
    page.locator("#worst article", has_not_text="gcd").first.locator("button").first.click()
    title = page.text_content("#group-title")
    assert "gcd" not in title
    assert "step" in title
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert page.text_content("#group-title") == title


def test_the_keyboard_alone_opens_moves_and_closes(page):
    page.focus("#f-search")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "list":
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    chosen = page.locator("[role=option][aria-selected=true]")
    assert chosen.get_attribute("aria-posinset") == "2"
    assert page.get_attribute("#list", "aria-activedescendant") == chosen.get_attribute("id")
    page.keyboard.press("Enter")
    second = page.text_content("#group-body")
    page.keyboard.press("ArrowRight")
    assert page.text_content("#group-body") != second
    page.keyboard.press("ArrowLeft")
    assert page.text_content("#group-body") == second
    page.keyboard.press("Escape")
    assert not page.evaluate("document.querySelector('dialog').open")
    assert page.evaluate("document.activeElement.id") == "list"
    page.keyboard.press("End")
    assert chosen.get_attribute("aria-posinset") == "120"
    assert chosen.is_visible()
    page.keyboard.press("Home")
    assert chosen.get_attribute("aria-posinset") == "1"


def test_a_group_shows_its_rollouts_best_to_worst_with_parts_colored(show, tmp_path):
    good = rollout(
        1.0, 2, reward=0.75, conversation=said("Sum of 1 and 2?", "<think>one <b>two</b></think>So <answer>3</answer>")
    )
    bad = violating(1, Violation.UNCLOSED_THINK)
    made = group(0, [bad, rollout(0.5, 0), good])
    page = show(write_report(dump_of(tmp_path, [made]), tmp_path / "r.html"))
    page.fill("#f-search", "two")
    page.click(".row")
    assert texts(page.locator("dialog article > header > strong")) == ["Rollout 2", "Rollout 0", "Rollout 1"]
    assert texts(page.locator("dialog article").first.locator(".think:not(.tag)")) == ["one <b>two</b>"]
    assert texts(page.locator("dialog article").first.locator(".answer:not(.tag)")) == ["3"]
    assert "0.750" in texts(page.locator("dialog article").first.locator(".numbers dd"))
    last = page.locator("dialog article").last
    assert "unclosed think" in last.text_content()
    assert "no </think> follows" in last.text_content()
    assert page.evaluate("[...CSS.highlights.get('search')].map(range => range.toString())") == ["two"]


def test_environments_have_sections_and_what_their_groups_count_as_solved(show, tmp_path):
    made = [group(0, [0.8, 0.6, 0.7], environment="gsm8k", solved_at=0.7), group(1, [0.8, 1.0])]
    page = show(write_report(dump_of(tmp_path, made), tmp_path / "r.html"))
    assert sorted(texts(page.locator("#section option"))) == ["train gsm8k", "train rg_dump"]
    page.select_option("#section", label="train gsm8k")
    assert "train gsm8k phase" in page.text_content("#tasks caption")
    assert texts(page.locator("#headline dd"))[0] == "66.7\u00a0%"
    assert page.locator("#worst article button").count() == 1
    page.select_option("#f-environment", "gsm8k")
    assert texts(page.locator(".row .right-of")) == ["2/3"]
    page.click(".row")
    assert texts(page.locator("dialog article .badge")) == ["right", "right", "wrong"]
    assert "train gsm8k" in texts(page.locator("dialog .facts dd"))


def test_hostile_text_is_shown_and_never_obeyed(show, tmp_path):
    long = "</script>" * 120_000
    rollouts = [
        rollout(0.0, k, conversation=said(HOSTILE, text), answer=text, detail=HOSTILE, stop_reason=HOSTILE)
        for k, text in enumerate((HOSTILE, long))
    ]
    made = group(0, rollouts, task=HOSTILE, item=HOSTILE, entry=f'{{"answer": "{"<i>" * 9}"}}', level=HOSTILE)
    page = show(write_report(dump_of(tmp_path, [made]), tmp_path / "r.html"))
    page.click(".row")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, b").count() == 0
    shown = page.locator("dialog pre.response").first.text_content()
    assert shown == HOSTILE.replace("\u202e", "U+202E").replace("\0", "U+0000")
    assert "characters omitted" in page.locator("dialog pre.response").last.text_content()
    assert not re.search("[\u202e\0]", page.evaluate("document.body.textContent"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_thousands_of_groups_keep_few_rows_in_the_document(show, tmp_path):
    made = [group(k, [rollout(k % 2, 0)], step=k) for k in range(3_000)]
    page = show(write_report(dump_of(tmp_path, made), tmp_path / "r.html"))
    assert found(page) == 3_000
    page.focus("#list")
    page.keyboard.press("End")
    assert page.locator(".row").count() < 60
    last = page.locator("[aria-posinset='3000']")
    assert last.is_visible()
    assert "train 2999" in last.text_content()
    page.fill("#f-from", "2990")
    assert found(page) == 10
    assert page.locator(".row").count() == 10


def test_a_phone_needs_no_sideways_scrolling(show, report):
    page = show(report, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for box in (plot.bounding_box() for plot in page.locator("figure").all()):
        assert 0 <= box["x"] < box["x"] + box["width"] <= 390
    page.locator(".row").first.tap()
    assert page.evaluate("document.querySelector('dialog').getBoundingClientRect().width") == 390
    assert page.evaluate("(b => b.scrollWidth <= b.clientWidth)(document.querySelector('#group-body'))")


def test_print_has_the_figures_and_not_the_controls(show, report):
    page = show(report, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.locator("#headline").is_visible()
    assert page.locator("#curves svg").first.is_visible()
    assert not page.locator("#groups").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")
