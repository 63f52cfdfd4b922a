"""`rg-env dumps open` in a real Chromium: runs that are whole, being written, corrupt and ended; and who is let in."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import uvicorn

from rg_env.dump import Attempt, DumpWriter, open_run, write_manifest
from rg_env.dump.manifest import end_manifest
from rg_env.dump.schema import TrainedRecord
from rg_env.page import write_report
from rg_env.page.server import LivePage, listen
from rg_env.scoring.types import Status, Violation
from tests.analysis.reports import dump_of, random_groups, said, step_records
from tests.dump.records import RUN_ID, group, rollout, violating
from tests.page.test_report_browser import (
    CHROMIUM,
    HOSTILE,
    OTHER_RUN,
    PHONE,
    chromium,
    found,
    is_open,
    is_wider_than_its_place,
    texts,
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: `make chromium` installs it")
__all__ = ["chromium"]


@pytest.fixture(scope="module")
def serve():
    """Serves dumps; returns the link."""
    running = []

    def start(*paths, folder="runs"):
        live, listener = LivePage(paths, folder), listen(0)
        server = uvicorn.Server(uvicorn.Config(live.app(), log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        running.append((server, thread, live))
        return f"http://127.0.0.1:{listener.getsockname()[1]}/{live.token}/"

    yield start
    for server, thread, live in running:
        server.should_exit = True
        thread.join(10)
        live.close()


@pytest.fixture(scope="module")
def show(chromium):
    """Opens a live page; at the end nothing may have been asked of another server nor complained about."""
    complaints, hosts, opened = [], set(), set()

    def open_page(link, ready=True, **options):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        opened.add(urlsplit(link).netloc)
        page.goto(link)
        if ready:
            page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield open_page
    assert complaints == []
    assert hosts == opened


@pytest.fixture(autouse=True)
def close_pages(chromium):
    """Those of earlier tests would go on asking."""
    yield
    for context in chromium.contexts:
        context.close()


@pytest.fixture(scope="module")
def groups():
    return random_groups()


@pytest.fixture(scope="module")
def link(groups, serve, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    dump_of(folder, groups, numbers=step_records({s: {"policy/final_loss": 1 / s} for s in range(1, 31)}))
    return serve(folder)


def until(page, expression):
    """Wait until an expression holds: Playwright's own way to wait for one is refused by the page's security policy."""
    end = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < end, (expression, page.text_content("#count"), page.text_content("#reading"))
        page.wait_for_timeout(50)


def wait_for_count(page, number):
    until(page, f"document.querySelector('#count').textContent.startsWith('{number} of ')")


def condition(page):
    return page.text_content("#condition code")


def view_of(page):
    return dict(parse_qsl(urlsplit(page.url).fragment))


def test_a_whole_run_has_the_figures_of_its_report_and_all_groups(show, link):
    page = show(link)
    assert found(page) == 120
    assert page.text_content("h1") == page.title() != "rg-env"
    for part, least in (("#curves", 4), ("#trainer", 1), ("#heat", 1), ("#lengths", 2)):
        assert page.locator(f"{part} figure").count() == least
    assert not page.locator("#reading").is_visible()
    page.focus("#list")
    page.keyboard.press("End")
    page.wait_for_selector("[aria-posinset='120']")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] article")
    assert page.locator("dialog article pre.response").count() == 4


# -- the five tasks of a new user


def test_task_1_a_wrong_answer_in_the_right_format_late_in_the_run(show, link, groups):
    page = show(link)
    page.select_option("#f-result", "unsolved")
    page.select_option("#f-violation", "none")
    page.fill("#f-from", "20")
    expected = [
        g
        for g in groups
        if g.step >= 20 and any(r.base_score == 0 and not r.violation and r.status == "ok" for r in g.rollouts)
    ]
    wait_for_count(page, len(expected))
    assert condition(page) == "--where \"base_score <= 0 AND violation = '' AND status = 'ok' AND step >= 20\""
    page.click(".row")
    page.wait_for_selector("dialog[open] article.unsolved.marked")
    assert view_of(page)["group"] in {g.group_id for g in expected}


def test_task_2_the_task_that_got_worse_leads_to_its_groups(show, serve, tmp_path):
    made = [
        group(f"{s} {k}", [float(s < 5 or k == 0)] * 2, step=s, task=("gcd", "lcm")[k])
        for s in range(1, 9)
        for k in (0, 1)
    ]
    dump_of(tmp_path, made)
    page = show(serve(tmp_path))
    page.locator("#tasks thead button", has_text="gain").click()
    page.locator("#tasks thead button", has_text="gain").click()
    assert texts(page.locator("#tasks tbody th"))[0] == "lcm"
    page.click("#tasks tbody th button")
    wait_for_count(page, 8)
    assert condition(page) == "--where \"task = 'lcm'\""
    page.keyboard.press("f")
    assert page.locator("[role=option][aria-selected=true] .when").text_content() == "train 5"


def test_task_3_a_response_that_hit_the_limit(show, serve, tmp_path):
    made = [group(k, [rollout(1.0, 0, truncated=k == 3), rollout(0.0, 1)], step=k) for k in range(6)]
    dump_of(tmp_path, made)
    page = show(serve(tmp_path))
    page.select_option("#f-cut", "hit")
    wait_for_count(page, 1)
    assert condition(page) == '--where "truncated"'
    page.click(".row")
    page.wait_for_selector("dialog[open]")
    assert "train 3" in page.locator(".row .when").text_content()


@pytest.fixture
def two_runs(tmp_path):
    for run_id, rate in ((RUN_ID, 0.2), (OTHER_RUN, 0.8)):
        made = [group(f"{s} {k}", [rate, 1.0], step=s, item=f"item {k}", run_id=run_id) for s in (1, 2) for k in (0, 1)]
        (tmp_path / run_id).mkdir()
        write_manifest(tmp_path / run_id, run_id, Attempt(attempt=1, model=f"model-{rate}"))
        dump_of(tmp_path / run_id, made, run_id=run_id)
    return tmp_path


def test_task_4_what_two_runs_answered_to_one_question(show, serve, two_runs):
    page = show(serve(two_runs / RUN_ID, two_runs / OTHER_RUN))
    assert page.text_content("h1") == "2 runs"
    lines = page.locator("#curves figure").nth(1).locator("g[aria-label=line]").all()
    assert len({line.get_attribute("stroke") for line in lines}) == 2
    page.fill("#f-where", "item = 'item 1' AND step = 2")
    wait_for_count(page, 2)
    shown = []
    for row in range(2):
        page.locator(".row").nth(row).click()
        page.wait_for_selector("dialog[open] .facts")
        shown.append(page.locator("dialog .facts").first.text_content())
        page.keyboard.press("Escape")
    assert RUN_ID in shown[0] and OTHER_RUN in shown[1]


def test_task_5_the_link_leads_somebody_else_to_the_same_group(show, link):
    page = show(link)
    page.select_option("#f-task", "gcd")
    page.fill("#f-from", "10")
    until(page, "location.hash.includes('from=10')")
    page.wait_for_selector(".row")
    page.click(".row")
    page.wait_for_selector("dialog[open]")
    other = show(page.url)
    assert is_open(other)
    assert other.text_content("#group-title") == page.text_content("#group-title")
    assert condition(other) == condition(page) == "--where \"task = 'gcd' AND step >= 10\""
    assert found(other) == found(page) < 120


# -- clicks, conditions, keys


def test_a_click_on_a_chart_lists_the_groups_of_the_mark(show, link, groups):
    page = show(link)
    bar = page.locator("#lengths figure").first.locator("g[aria-label=rect] rect").nth(2)
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    until(page, "location.hash.includes('least=')")
    least, most = (int(view_of(page)[name]) for name in ("least", "most"))
    expected = sum(
        g.phase == "train" and any(least <= (r.response_tokens or -1) <= most for r in g.rollouts) for g in groups
    )
    wait_for_count(page, expected)
    page.click("#clear")
    wait_for_count(page, 120)
    cell = page.locator("#heat g[aria-label=cell] rect").nth(5)
    cell.scroll_into_view_if_needed()
    box = cell.bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + 5)
    page.mouse.click(box["x"] + 4, box["y"] + 6)
    until(page, "location.hash.includes('from=')")
    assert {"task", "from", "to", "phase"} <= view_of(page).keys()


def test_a_condition_on_any_column_and_a_mistake_in_one_is_said(show, link, groups):
    page = show(link + "#" + urlencode({"where": "penalty_factor < 1 AND task = 'gcd'"}))
    assert found(page) == sum(g.task == "gcd" and any(r.penalty_factor < 1 for r in g.rollouts) for g in groups)
    page.fill("#f-where", "outcome = 'splendid'")
    until(page, "document.querySelector('#count').textContent.includes('outcome is one of all_correct')")
    page.fill("#f-where", "")
    assert page.get_attribute("#f-search", "placeholder") == "in messages"
    page.fill("#f-search", "word3 of group")
    wait_for_count(page, sum(any("word3 of" in r.conversation[-1]["content"] for r in g.rollouts) for g in groups))
    assert condition(page) == '--search "word3 of group"'


def test_the_keys_do_what_the_page_of_keys_says(show, link, groups):
    page = show(link)
    page.keyboard.press("?")
    assert page.locator("#key-list dt").count() == 15
    page.keyboard.press("Escape")
    chosen = page.locator("[role=option][aria-selected=true]")
    for keys, place in (("jj", 3), ("k", 2)):
        page.keyboard.type(keys)
        assert chosen.get_attribute("aria-posinset") == str(place)
    failed = [number for number, g in enumerate(groups, 1) if g.outcome == "all_failed"]
    page.keyboard.press("f")
    until(page, f"document.querySelector('[aria-selected=true]').ariaPosInSet === '{next(n for n in failed if n > 2)}'")
    page.keyboard.press("z")
    page.wait_for_selector("dialog#group[open]")
    page.keyboard.press("p")
    assert not page.locator("#prompt").is_visible()
    first = page.text_content("#group-body")
    page.keyboard.press("j")
    until(page, f"document.querySelector('#group-body').textContent !== {json.dumps(first)}")
    page.keyboard.press("/")
    assert not is_open(page)
    assert page.evaluate("document.activeElement.id") == "f-where"


def test_words_that_the_best_response_does_not_have_are_marked(show, serve, tmp_path):
    best = rollout(1.0, 0, conversation=said("What?", "one two three four"))
    other = rollout(0.0, 1, conversation=said("What?", "one three five four"))
    dump_of(tmp_path, [group(0, [other, best])])
    page = show(serve(tmp_path))
    page.click(".row")
    page.wait_for_selector("dialog[open] article")
    marked = page.evaluate("[...CSS.highlights.get('differs')].map(range => range.toString())")
    assert marked == ["five"]
    left, right = (article.bounding_box() for article in page.locator("dialog article").all())
    assert left["x"] + left["width"] <= right["x"] and left["y"] == right["y"]


# -- runs that go on


def test_the_advantage_stands_with_the_reward_where_it_was_recorded(show, serve, tmp_path):
    """In the live page as in the report."""
    trained, other = group(1, [0.0, 1.0], step=1), group(2, [0.0, 1.0], step=1)
    # Twice, as with dynamic sampling that repeats groups: the later step counts.
    steps = [
        TrainedRecord(RUN_ID, 1, 1, trained.group_id, 2, [0, 1], [-0.25, 0.25]),
        TrainedRecord(RUN_ID, 1, 2, trained.group_id, 2, [0, 1], [-0.5, 0.5]),
    ]
    dump = dump_of(tmp_path, [trained, other], numbers=steps)
    pages = [show(serve(tmp_path)), show(write_report(dump, tmp_path / "r.html").as_uri())]
    for page in pages:
        for of, shown in ((trained, ["0.500", "-0.500"]), (other, [])):
            page.evaluate(f"location.hash = 'group={of.group_id}'")
            until(page, f"document.querySelector('dialog .facts')?.textContent.includes('{of.group_id}')")
            advantages = texts(page.locator("dialog dl.numbers > div:has(dt:text-is('advantage')) dd"))
            assert [text.replace("−", "-") for text in advantages] == shown
            page.keyboard.press("Escape")
            until(page, "!location.hash.includes('group=')")  # the page has written the address


def test_a_row_opens_its_group_while_the_list_waits_for_another_view(show, link):
    page = show(link)
    held = []
    page.route("**/rows?*", lambda route: held.append(route))
    page.fill("#f-from", "0")
    while not held:
        page.wait_for_timeout(20)
    page.locator("#row-0").click()
    page.wait_for_selector("dialog[open]")
    page.unroute("**/rows?*")  # which lets them go on


def test_a_run_that_is_being_written_grows_and_nothing_moves_while_one_reads(show, serve, tmp_path):
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=1))
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.submit([group(k, [rollout(k % 2, 0)], step=1 + k // 8) for k in range(80)]).result(10)
        page = show(serve(tmp_path))
        wait_for_count(page, 80)
        assert "the run goes on" in page.text_content("#reading")
        page.evaluate("document.querySelector('#list').scrollTop = 400")
        page.evaluate("document.querySelector('#worst').scrollIntoView()")
        page.wait_for_selector("#row-12")
        row, top = page.locator("#row-12").bounding_box(), page.evaluate("scrollY")
        began = time.monotonic()
        assert writer.submit([group(k, [rollout(1.0, 0)], step=20) for k in range(80, 140)]).result(10)
        wait_for_count(page, 140)
        print(f"seen after {time.monotonic() - began:.1f} s")
        until(page, "document.querySelector('#headline').textContent.includes('140')")
        assert page.locator("#row-12").bounding_box() == row
        assert page.evaluate("scrollY") == top
        # A click that has begun before new groups come opens the row.
        page.locator("#row-12").hover()
        page.mouse.down()
        assert writer.submit([group(k, [rollout(1.0, 0)], step=20) for k in range(140, 145)]).result(10)
        wait_for_count(page, 145)
        page.mouse.up()
        page.wait_for_selector("dialog[open]")
        page.keyboard.press("Escape")
        # What is open stays; the figures wait.
        page.locator(".row").first.click()
        page.wait_for_selector("dialog[open]")
        before = page.text_content("#group-body")
        assert writer.submit([group(k, [rollout(1.0, 0)], step=21) for k in range(145, 150)]).result(10)
        until(page, "document.querySelector('#reading').textContent.includes('when you are done')")
        assert page.text_content("#group-body") == before
        page.keyboard.press("Escape")
        until(page, "document.querySelector('#headline').textContent.includes('150')")
        wait_for_count(page, 150)
    end_manifest(tmp_path, RUN_ID, 1, 0, {1: 150})
    until(page, "document.querySelector('#reading').hidden")
    until(page, "document.querySelector('#notes').textContent.includes('which has every group')")
    wait_for_count(page, 150)


def test_rows_are_those_of_their_places_after_one_of_two_runs_has_ended(show, serve, tmp_path):
    for run_id in (RUN_ID, OTHER_RUN):
        write_manifest(tmp_path, run_id, Attempt(attempt=1))
    with DumpWriter(tmp_path, RUN_ID, 1) as first, DumpWriter(tmp_path, OTHER_RUN, 1) as second:
        assert first.submit([group(step=1)]).result(10) and second.submit([group(step=2, run_id=OTHER_RUN)]).result(10)
        page = show(serve(tmp_path))
        assert first.submit([group(1, step=3)]).result(10)
        wait_for_count(page, 3)
        until(page, "document.querySelectorAll('.row').length === 3")
        assert texts(page.locator(".row .when")) == ["train 1", "train 2", "train 3"]
        first.close()
        end_manifest(tmp_path, RUN_ID, 1, 0, {1: 2})
        until(page, "document.querySelectorAll('.row .when')[1]?.textContent === 'train 3'")
        assert texts(page.locator(".row .when")) == ["train 1", "train 3", "train 2"]


def test_a_run_that_has_recorded_nothing_yet_begins_to_show(show, serve, tmp_path):
    write_manifest(tmp_path, RUN_ID, Attempt(attempt=1))
    page = show(serve(tmp_path), ready=False)
    page.wait_for_selector("#reading.problem")
    assert "has recorded nothing" in page.text_content("#reading")
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.submit([group(0)]).result(10)
        page.wait_for_selector("html[data-ready]", state="attached")
        wait_for_count(page, 1)
    assert not page.locator("#reading.problem").count()


def test_damage_is_said_and_the_rest_is_shown(show, serve, tmp_path):
    dump_of(tmp_path, [group(k) for k in range(3)])
    (ledger,) = tmp_path.glob("*_ledger_*")
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(lines[0] + b"{torn\n" + lines[2])
    (texts_file,) = tmp_path.glob("*environment_rollouts_*")
    text_lines = texts_file.read_bytes().splitlines(keepends=True)
    texts_file.write_bytes(text_lines[0].replace(b"{", b"[", 1) + b"".join(text_lines[1:]))
    page = show(serve(tmp_path))
    assert f"{ledger.name}, line 2: torn" in page.text_content("#notes")
    assert found(page) == 3, "the line that is torn was made from its text"
    row = page.locator(".row", has_text="Text not")
    assert row.count() == 1
    row.click()
    page.wait_for_selector("dialog[open]")
    assert "Text not" in page.text_content("#group-body")


# -- who is let in, and what texts may do


def fetched(link, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(link, headers=headers), timeout=20) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_without_the_token_or_under_another_name_there_is_nothing(link):
    root = link.rsplit("/", 2)[0]
    for address in (root, f"{root}/", f"{root}/state", f"{root}/{'x' * 22}/state", f"{root}//state"):
        assert fetched(address) == (404, b""), address
    for host in ("rebound.example", "rebound.example:80", "localhost.rebound.example", "127.0.0.1.rebound.example", ""):
        assert fetched(f"{link}state", Host=host) == (404, b""), host
    assert fetched(f"{link}state", Host="localhost:9000")[0] == 200, "a forwarded port"
    assert fetched(f"{link}nothing")[0] == 404
    assert fetched(f"{link}rows?first=x&count=9999999999")[0] == 200
    assert b"rg_env" not in fetched(f"{link}../../pyproject.toml")[1]


def test_markup_in_every_field_is_shown_and_leaves_no_box(show, serve, tmp_path):
    messages = [{"role": HOSTILE, "content": HOSTILE}, {"role": "assistant", "content": HOSTILE}]
    facts = {"task": HOSTILE, "environment": HOSTILE, "level": HOSTILE, "task_config": HOSTILE, "item": HOSTILE}
    fields = {"answer": HOSTILE, "detail": HOSTILE, "stop_reason": HOSTILE, "policy_version": HOSTILE}
    one = rollout(0.0, 0, conversation=messages, status=Status.ERROR, **fields)
    write_manifest(tmp_path, RUN_ID, Attempt.read({"attempt": 1, "model": HOSTILE, "started": HOSTILE}))
    dump_of(tmp_path, [group(HOSTILE, [one, violating(1, Violation.NO_THINK)], group_id=HOSTILE, **facts)])
    page = show(serve(tmp_path))
    page.locator("#tasks tbody button").click()
    wait_for_count(page, 1)
    page.locator(".row").click()
    page.wait_for_selector("dialog[open] article")
    again = show(page.url)
    for shown in (page, again):
        assert is_open(shown)
        assert shown.evaluate("window.hacked") is None
        assert shown.locator("img, b").count() == 0
        responses = shown.locator("pre.response")
        shown_texts = responses.last.text_content() + responses.first.text_content()
        assert HOSTILE.partition("\u202e")[0] in shown_texts
        assert not is_wider_than_its_place(shown)
        assert not is_wider_than_its_place(shown, "document.querySelector('#group-body')")


def test_a_phone_in_the_dark_needs_no_sideways_scrolling_and_has_contrast(show, link):
    page = show(link, color_scheme="dark", **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    page.locator("#tasks tbody td.bar").first.tap()
    assert "95% interval" in page.text_content("#said")
    page.locator(".row").first.tap()
    page.wait_for_selector("dialog[open] article")
    assert not is_wider_than_its_place(page, "document.querySelector('#group-body')")
    first, second = (article.bounding_box() for article in page.locator("dialog article").all()[:2])
    assert second["y"] >= first["y"] + first["height"]


# -- the list of runs


def test_runs_are_chosen_from_a_list_and_no_other_path_is_opened(show, serve, two_runs, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    dump_of(elsewhere, [group(0)])
    link = serve(folder=two_runs)
    page = show(link)
    assert texts(page.locator("#runs a")) == [OTHER_RUN, RUN_ID]
    for box in page.locator("#runs input").all():
        box.check()
    page.click("#together")
    page.wait_for_selector("#compared tr")
    assert page.text_content("h1") == "2 runs"
    assert b'"list"' in fetched(f"{link}state?{urlencode({'run': str(elsewhere)})}")[1]
    assert len(open_run(elsewhere).runs) == 1
    assert not show(serve(folder=elsewhere / "nothing")).locator("#runs a").count()
