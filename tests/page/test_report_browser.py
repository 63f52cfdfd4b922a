"""The report in a real Chromium, opened from disk. Skipped where there is none: `make chromium` installs it."""

from __future__ import annotations

import json
import re
import shutil
from urllib.parse import parse_qsl, urlencode

import pytest

from rg_env.dump import Attempt, write_manifest
from rg_env.page import write_report
from rg_env.scoring.types import Status, Violation
from tests.analysis.reports import dump_of, random_groups, said, step_records
from tests.dump.records import RUN_ID, group, manifest, rollout, violating

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: `make chromium` installs it")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\u202edrow\x00 & <b>"
OTHER_RUN = "20261122-060000-cd34"
PHONE = {"viewport": {"width": 400, "height": 844}, "has_touch": True, "is_mobile": True}


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

    def open_page(path, link="", **options):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri() + link)
        page.wait_for_selector("html[data-ready]", state="attached")
        opened.append(path.as_uri())
        return page

    yield open_page
    assert complaints == []
    assert [address.split("#")[0] for address in asked] == opened


@pytest.fixture(scope="module")
def groups():
    return random_groups()


@pytest.fixture(scope="module")
def report(groups, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    numbers = {s: {"policy/final_loss": 0.1, "policy/grad_norm": 1 / s} for s in range(1, 31)}
    return write_report(dump_of(folder, groups, numbers=step_records(numbers)), folder / "report.html")


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


def is_wider_than_its_place(page, element="document.documentElement"):
    return page.evaluate(f"(e => e.scrollWidth > e.clientWidth)({element})")


def is_open(page):
    return page.evaluate("document.querySelector('dialog').open")


def test_every_part_is_drawn(page):
    assert page.locator("#headline > div").count() >= 7
    for part, least in (("#curves", 4), ("#trainer", 2), ("#heat", 1), ("#lengths", 2), ("#trouble", 0)):
        assert page.locator(f"{part} figure").count() == least
        for plot in page.locator(f"{part} .plot > svg, {part} .plot > figure svg").all():
            box = plot.bounding_box()
            assert box["width"] > 100
            assert box["height"] > 20
    cells = page.locator("#heat svg[aria-label*='heat map'] g[aria-label=cell] rect")
    assert cells.count() == len(section(page)["heat"]["task"])
    assert page.locator("#curves figure").first.locator("g[aria-label=line] path").count() == 1  # none of evaluations
    assert texts(page.locator("#trainer strong")) == ["loss", "gradient norm"]
    assert page.locator("#notes li").count() == 3
    tiles = [tile.bounding_box() for tile in page.locator("#headline > div").all()]
    right = {round(tile["x"] + tile["width"]) for tile in tiles if tile["y"] == tiles[-1]["y"]}
    assert max(right) == max(round(tile["x"] + tile["width"]) for tile in tiles)  # the last row ends where others do


def test_what_is_rare_is_listed_and_what_is_frequent_has_a_line(show, tmp_path):
    made = []
    for step in range(1, 7):
        violations = [Violation.NO_THINK, Violation.NO_THINK] + [Violation.NO_ANSWER] * (step == 3)
        failed = [violating(k, violation) for k, violation in enumerate(violations)]
        made.append(group(step, [*failed, rollout(1.0, 7)], step=step))
    page = show(write_report(dump_of(tmp_path, made), tmp_path / "r.html"))
    assert page.locator("#trouble g[aria-label=line] path").count() == 1
    assert page.text_content("#trouble figcaption strong") == "Share of rollouts with no think"
    assert page.text_content("#trouble .hint") == "Too rare for a line: no answer 1."
    # The evaluation of a model has no steps.
    made = [group(0, [violating(0), rollout(1.0, 1)], phase="eval", step=None)]
    page = show(write_report(dump_of(tmp_path / "eval", made), tmp_path / "eval.html"))
    assert page.text_content("#trouble") == "Responses: no answer 1."


def test_excerpts_of_a_task_begin_where_its_questions_differ(show, tmp_path):
    ask = "Your task is to count how many legs there are in total. Now, how many legs have {} and a cat?"
    texts_of = [ask.format(animals) for animals in ("two dogs", "three bees")]
    made = [group(k, [rollout(0.0, 0, conversation=said(text, "8"))]) for k, text in enumerate(texts_of)]
    page = show(write_report(dump_of(tmp_path, made), tmp_path / "r.html"))
    assert texts(page.locator(".row .excerpt")) == ["… two dogs and a cat?", "… three bees and a cat?"]


def section(page, phase="train"):
    """What the page has to show of a phase."""
    sections = json.loads(page.text_content("#summary"))["sections"]
    return next(section for section in sections if section["phase"] == phase)


def test_the_choice_of_phase_fills_the_page_again(page):
    page.select_option("#section", label="eval")
    rates = section(page, "eval")["steps"]["solve_rate"]
    before, after = (f"{rate:.0%}" for rate in (rates[0], rates[-1]))
    assert page.text_content("#headline .evaluation dd") == f"{before} → {after}"
    assert not page.locator("#headline dt", has_text="without signal").count()
    assert "eval phase" in page.text_content("#tasks caption")
    page.select_option("#section", label="train")
    assert page.text_content("#headline .evaluation dd") == f"{before} → {after}"
    assert page.locator("#headline dt", has_text="without signal").count() == 1
    assert "train phase" in page.text_content("#tasks caption")


def test_the_table_fits_sorts_both_ways_and_leads_to_the_groups_of_a_task(page, groups):
    heads = texts(page.locator("#tasks thead th"))
    assert {"reward", "cut off", "all failed", "no signal"} - {*heads} == {"cut off"}  # nothing was
    assert not is_wider_than_its_place(page, "document.querySelector('.scroll')")
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
    page.click("#tasks tbody th button >> text=gcd")
    assert found(page) == sum(g.task == "gcd" for g in groups)
    assert page.evaluate("document.activeElement.id") == "list"


def is_wrong_in_the_right_format(group):
    wrong = [r for r in group.rollouts if r.base_score == 0 and not r.violation and r.status == "ok"]
    return bool(wrong) and group.step >= 12


FILTERS = [
    ({"f-task": "gcd"}, lambda g: g.task == "gcd"),
    ({"f-outcome": "all_failed", "f-phase": "eval"}, lambda g: (g.outcome, g.phase) == ("all_failed", "eval")),
    ({"f-violation": "empty_answer"}, lambda g: Violation.EMPTY_ANSWER in {r.violation for r in g.rollouts}),
    ({"f-violation": "scorer: timeout"}, lambda g: "timeout" in {r.status for r in g.rollouts}),
    ({"f-violation": "none"}, lambda g: any(not r.violation and r.status == "ok" for r in g.rollouts)),
    ({"f-result": "unsolved", "f-violation": "none", "f-from": "12"}, is_wrong_in_the_right_format),
    ({"f-least": "30", "f-most": "40"}, lambda g: any(30 <= r.response_tokens <= 40 for r in g.rollouts)),
    ({"f-search": "WORD3 of"}, lambda g: any("word3 of" in r.conversation[-1]["content"] for r in g.rollouts)),
    ({"f-search": "item-17"}, lambda g: g.item == "item-17"),
    ({"f-task": "gcd", "f-from": "9", "f-to": "20"}, lambda g: g.task == "gcd" and 9 <= g.step <= 20),
    ({"f-search": "no such text"}, lambda g: False),
]


def test_filters_and_search_find_what_the_record_has(page, groups):
    for fields, passes in FILTERS:
        page.click("#clear")
        for field, value in fields.items():
            select = page.locator(f"select#{field}")
            if select.count():
                select.select_option(value)
            else:
                page.fill(f"#{field}", value)
        assert found(page) == sum(map(passes, groups)), fields


def test_the_worst_tasks_lead_to_rollouts_that_went_wrong(page):
    tasks = section(page)["tasks"]
    at_end = dict(zip(tasks["task"], tasks["solve_rate_last"], strict=True))
    names = [text.split()[0] for text in texts(page.locator("#worst h3"))]
    assert names == sorted(at_end, key=at_end.get)
    assert page.locator("#worst article").first.locator("li button").count() == 3
    page.select_option("#f-task", names[1])  # hides the group
    page.locator("#worst button").first.click()
    assert page.text_content("#group-title").startswith(f"{names[0]}, step ")
    articles = page.locator("dialog article")
    marked = page.locator("dialog article.marked")
    assert texts(marked.locator("header .badge"))[:2] == ["unsolved", "the example"]
    assert marked.get_attribute("aria-label") == articles.last.get_attribute("aria-label")
    body, box = page.locator("#group-body").bounding_box(), marked.bounding_box()
    assert body["y"] <= box["y"] < body["y"] + body["height"]
    title = page.text_content("#group-title")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert page.text_content("#group-title") == title
    assert not marked.count()


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
    assert not is_open(page)
    assert page.evaluate("document.activeElement.id") == "list"
    page.keyboard.press("End")
    assert chosen.get_attribute("aria-posinset") == "120"
    assert chosen.is_visible()
    page.keyboard.press("Home")
    assert chosen.get_attribute("aria-posinset") == "1"


def test_the_address_has_the_whole_view_and_leads_to_it(show, report, groups):
    target = groups[17]
    linked = show(
        report,
        link=f"#{urlencode({'group': target.group_id, 'task': target.task, 'section': f'eval rg_dump {RUN_ID}'})}",
    )
    assert is_open(linked)
    assert target.group_id in texts(linked.locator("dialog .facts dd"))
    assert found(linked) == sum(g.task == target.task for g in groups)
    assert "eval phase" in linked.text_content("#tasks caption")
    linked.keyboard.press("ArrowRight")
    address = linked.url
    assert target.group_id not in view_of(address)["group"]
    linked.keyboard.press("Escape")
    linked.wait_for_function("!location.href.includes('group=')")
    assert view_of(linked.url)["task"] == target.task
    again = show(report, link=f"#{address.split('#')[1]}")
    assert view_of(address)["group"] in texts(again.locator("dialog .facts dd"))
    again.keyboard.press("Escape")
    again.evaluate("location.hash = 'group=no:such:group%'")
    again.wait_for_function("document.querySelector('#count').textContent.includes('no:such:group%')")
    assert not is_open(again)


def test_runs_that_differ_in_seeds_alone_are_one_curve_with_a_band(show, tmp_path):
    for seed, rate in ((1, 0.2), (2, 0.4), (3, 0.9)):
        run_id = f"20261122-06000{seed}-cd34"
        write_manifest(tmp_path, run_id, Attempt.read({"model": "m", "settings": {"trainer": {"seed": seed}}}))
        made = [group(f"{s}", [rate, rate], step=s, run_id=run_id) for s in range(1, 5)]
        dump = dump_of(tmp_path, made, run_id=run_id)
    page = show(write_report(dump, tmp_path / "r.html"))
    reward = page.locator("#curves figure").first
    assert "from the lowest to the highest" in reward.text_content()
    assert reward.locator("g[aria-label=line] path").count() == 1
    assert reward.locator("g[aria-label=area] path").count() == 1
    point = reward.locator("g[aria-label=dot] circle").first
    point.hover()
    assert "mean of 3 seeds" in reward.text_content() and "0.500 [0.200, 0.900]" in reward.text_content()
    # Without one of them, it is the mean of the others.
    page.locator("#about label").nth(2).click()
    assert reward.locator("g[aria-label=line] path").count() == 1
    reward.locator("g[aria-label=dot] circle").first.hover()
    assert "mean of 2 seeds" in reward.text_content()


def view_of(address):
    return dict(parse_qsl(address.partition("#")[2]))


def test_runs_are_overlaid_in_their_colors_and_can_be_hidden(show, tmp_path):
    for run_id, rate in ((RUN_ID, 0.2), (OTHER_RUN, 0.8)):
        made = [group(f"{s} {k}", [rate, 1.0], step=s, run_id=run_id) for s in range(1, 9) for k in (0, 1)]
        made += [group(k, [rate, 1.0], step=s, call=s, run_id=run_id, phase="eval") for s in (0, 8) for k in (0, 1)]
        write_manifest(tmp_path, run_id, Attempt(attempt=1, model=f"model-{rate}"))
        numbers = step_records({s: {"policy/policy_entropy": rate * s} for s in range(1, 9)}, run_id)
        dump = dump_of(tmp_path, made, run_id=run_id, numbers=numbers)
    path = write_report(dump, tmp_path / "r.html")
    page = show(path)
    assert page.text_content("h1") == "2 runs"
    assert len(texts(page.locator("#about label"))) == 2
    compared = page.locator("#compared tr")
    assert texts(compared.first.locator("th")) == ["model-0.2", "model-0.8"]
    rows = {row.locator("th").text_content(): texts(row.locator("td")) for row in compared.all()[1:]}
    assert {"last evaluation", "first evaluation", "training", "settings that differ"} < {*rows}
    assert rows["model"] == ["model-0.2", "model-0.8"]
    assert rows["step"] == ["0", "0"]  # of the first evaluation, which stands last
    assert rows["mean score"][1].partition("]")[2].startswith("first − this: −0.300 [")
    assert page.locator("#side .hint").is_visible()
    assert page.text_content("#headline-of") == "all figures of run model-0.2, train"
    assert texts(page.locator("#compared-tasks h3")) == [
        "solved, last evaluation",
        "solved, last ¼ of the steps, training",
    ]
    heads = texts(page.locator("#compared-tasks table").first.locator("thead th"))
    assert heads == ["task", "model-0.2", "model-0.8", "first − second"]
    solved, entropy = page.locator("#curves figure").nth(1), page.locator("#trainer figure")

    def colors(figure, mark):
        marks = figure.locator(f"g[aria-label={mark}]").all()
        return {mark.get_attribute("stroke") or mark.get_attribute("fill") for mark in marks} - {"var(--panel)"}

    assert [len(colors(solved, mark)) for mark in ("line", "area", "rule")] == [2, 2, 2]
    assert colors(solved, "line") == colors(entropy, "line")
    assert texts(solved.locator(".legend span")) == ["model-0.2", "model-0.8"]
    page.locator("#about input").first.uncheck()
    assert len(colors(solved, "line")) == len(colors(entropy, "line")) == 1
    linked = show(path, "#" + page.url.partition("#")[2])
    assert len(colors(linked.locator("#curves figure").nth(1), "line")) == 1
    assert [box.is_checked() for box in linked.locator("#about input").all()] == [False, True]
    assert texts(page.locator("#f-run option")) == ["all", "model-0.2", "model-0.8"]
    assert not is_wider_than_its_place(page)
    assert not is_wider_than_its_place(show(path, **PHONE))

    trained = show(write_report(dump.where(["phase = 'train'"]), tmp_path / "trained.html"))
    assert not trained.locator("#side .hint").is_visible(), "no difference stands there to explain"
    part = show(write_report(dump.where([f"run_id = '{OTHER_RUN}' AND phase = 'train'"]), tmp_path / "part.html"))
    assert part.text_content("h1").startswith("Run model-0.8")
    assert not part.locator("#about input").count()
    assert not part.locator("#section-label").is_visible()
    assert not part.locator("#f-run").is_visible()
    assert part.locator("#headline dt", has_text="mean score and reward").count() == 1
    assert not part.locator("#headline dt", has_text=re.compile("^mean (score|reward)$")).count()


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
    made = [
        group(0, [0.8, 0.6, 0.7], environment="gsm8k", solved_at=0.7),
        group(2, [0.8, 0.9], environment="gsm8k", solved_at=0.7),
        group(1, [0.8, 1.0]),
    ]
    page = show(write_report(dump_of(tmp_path, made), tmp_path / "r.html"))
    assert sorted(texts(page.locator("#section option"))) == ["train gsm8k", "train rg_dump"]
    page.select_option("#section", label="train gsm8k")
    assert "train gsm8k phase" in page.text_content("#tasks caption")
    assert texts(page.locator("#headline dd"))[0] == "80%"
    page.locator("#worst li button").click()  # the only one
    assert texts(page.locator("dialog article.marked header strong")) == ["Rollout 1"]
    page.keyboard.press("Escape")
    page.select_option("#f-environment", "gsm8k")
    assert texts(page.locator(".row .right-of")) == ["2/3", "2/2"]
    page.click(".row")
    assert texts(page.locator("dialog article .badge")) == ["solved", "solved", "partial"]
    assert "train gsm8k" in texts(page.locator("dialog .facts dd"))
    page.keyboard.press("Escape")
    page.click("#clear")
    page.select_option("#f-result", "solved")
    assert page.text_content("#condition code") == '--where "base_score >= coalesce(solved_at, 0.99)"'


def test_filters_find_what_their_condition_finds(show, tmp_path):
    failed = rollout(0.0, 0, violation=Violation.NO_THINK, status=Status.REWARD_ERROR)
    unscored = rollout(float("nan"), 1, status=Status.UNSCORED)
    made = [group(0, [failed, unscored]), group(1, [unscored, rollout(0.6, 2)]), group(2, [0.0, 0.6])]
    write_manifest(tmp_path, RUN_ID, Attempt.read(manifest(solved_at=0.5)))
    dump_of(tmp_path, made)
    dump = dump_of(tmp_path, [group(0, [0.6, 1.0], run_id=OTHER_RUN)], run_id=OTHER_RUN)
    page = show(write_report(dump, tmp_path / "r.html"))
    wanted = {"#f-violation": ("scorer: reward_error", "no_think"), "#f-result": ("solved", "partial", "unsolved")}
    for field, values in wanted.items():
        for value in values:
            page.select_option(field, value)
            condition = page.text_content("#condition code").removeprefix('--where "').removesuffix('"')
            assert found(page) == dump.where([condition]).scan().collect()["group_id"].n_unique(), condition
            page.click("#clear")


def test_hostile_text_in_every_field_is_shown_and_never_obeyed(show, tmp_path):
    long = "</script>" * 120_000
    rollouts = [
        rollout(
            0.0,
            k,
            conversation=[{"role": HOSTILE, "content": text}, {"role": "assistant", "content": text}],
            answer=text,
            detail=HOSTILE,
            stop_reason=HOSTILE,
            policy_version=HOSTILE,
            status=Status.ERROR if k else Status.OK,
        )
        for k, text in enumerate((HOSTILE, long))
    ]
    ids = {"group_id": HOSTILE, "item": HOSTILE, "item_id": HOSTILE}
    facts = {"task": HOSTILE, "environment": HOSTILE, "level": HOSTILE, "task_config": HOSTILE}
    entry = json.dumps({"answer": "<i>" * 9})
    made = [group(HOSTILE, rollouts, entry=entry, **ids, **facts), group(1, run_id=HOSTILE)]
    made += [group(f"e {k}", phase="eval", **facts) for k in (0, 1)]
    others = [group(f"o {k}", phase="eval", run_id=OTHER_RUN, **facts) for k in (0, 1)]
    values = dict.fromkeys(("model", "started"), HOSTILE)
    write_manifest(tmp_path, RUN_ID, Attempt.read(values | {"settings": {"trainer": {"seed": HOSTILE, HOSTILE: 1}}}))
    write_manifest(
        tmp_path, OTHER_RUN, Attempt.read(values | {"settings": {"trainer": {"seed": 1}}, "task_mix": {HOSTILE: {}}})
    )
    dump_of(tmp_path, others, run_id=OTHER_RUN)
    path = write_report(dump_of(tmp_path, made), tmp_path / "r.html")
    page = show(path)
    for choice in page.locator("#section option").all():
        page.select_option("#section", choice.get_attribute("value"))
        assert not is_wider_than_its_place(page)
    assert HOSTILE.partition("\u202e")[0] in page.text_content("#compared")
    assert page.locator("#compared-tasks table").count() == 1
    page.select_option("#f-violation", "scorer: error")
    page.click(".row")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, b").count() == 0
    shown = page.locator("dialog pre.response").first.text_content()
    assert shown == HOSTILE.replace("\u202e", "U+202E").replace("\0", "U+0000")
    assert "characters omitted" in page.locator("dialog pre.response").last.text_content()
    assert not re.search("[\u202e\0]", page.evaluate("document.title + document.body.textContent"))
    phone = show(path, link="#" + page.url.split("#", 1)[1], **PHONE)
    assert is_open(phone)
    assert phone.evaluate("window.hacked") is None
    assert not is_wider_than_its_place(phone)
    assert not is_wider_than_its_place(phone, "document.querySelector('#group-body')")


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
    page = show(report, **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    for box in (plot.bounding_box() for plot in page.locator("figure").all()):
        assert 0 <= box["x"] < box["x"] + box["width"] <= 400
    page.locator(".row").first.tap()
    assert page.evaluate("document.querySelector('dialog').getBoundingClientRect().width") == 400
    assert not is_wider_than_its_place(page, "document.querySelector('#group-body')")


def test_print_has_the_figures_and_not_the_controls(show, report):
    page = show(report, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.locator("#headline").is_visible()
    assert page.locator("#curves svg").first.is_visible()
    assert not page.locator("#groups").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")
