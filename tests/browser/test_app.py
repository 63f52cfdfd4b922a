"""The browser as a person uses it: the real application under Textual's pilot, and the real command in a terminal."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import pty
import re
import select
import sys
import time

import pytest
from textual.widgets import Input, Static

from rg_env.browser import browser_app as module
from rg_env.browser.browser_app import Browser
from rg_env.dump import DumpWriter, open_run
from rg_env.dump.group_text import Query
from rg_env.scoring.types import Violation
from tests.analysis.reports import dump_of
from tests.dump.records import RUN_ID, group, rollout, violating


def said(text, base_score=1.0, repetition=0, **changes):
    conversation = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": text}]
    return rollout(base_score, repetition, conversation=conversation, **changes)


@pytest.fixture
def folder(tmp_path):
    groups = [
        group(0, [said("<think>fine</think><answer>4</answer>"), said("<think>bad</think><answer>5</answer>", 0.0, 1)]),
        group(1, [1.0, 1.0], task="gcd", step=2),
        group(2, [0.0, 0.0], step=3),
        group(3, [said("<answer>4</answer>", 0.0, violation=Violation.NO_THINK, answer=""), 1.0], step=4),
        group(4, [0.0, 0.0, 0.0], step=5),
        group(5, [1.0, 0.0], phase="eval", step=5),
    ]
    dump_of(tmp_path, groups)
    return tmp_path


def browsing(size=(120, 40), query=""):
    """Runs a test as a person in front of the application: it gets `app` and `pilot`."""

    def decorate(test):
        def run(folder):
            async def session():
                app = Browser(lambda: open_run(folder), Query.parse(query))
                async with app.run_test(size=size) as pilot:
                    await until(pilot, lambda: not app.busy)
                    await test(app, pilot)

            asyncio.run(session())

        run.__name__ = test.__name__
        return run

    return decorate


async def until(pilot, condition):
    for _ in range(400):
        await pilot.pause()
        if condition():
            await pilot.pause()
            return
        await asyncio.sleep(0.025)
    raise AssertionError("waited for nothing")


async def press(pilot, *keys):
    await pilot.press(*keys)
    await until(pilot, lambda: not pilot.app.busy)


async def enter(pilot, text):
    await pilot.press("slash")
    pilot.app.query_one("#line", Input).insert_text_at_cursor(text)  # as pasted: a key at a time is slow
    await press(pilot, "enter")


def listed(app):
    return [name.rpartition(":")[2] for name in app.rows["group_id"]]


def under_cursor(app):
    return app.rows["group_id"][app.place].rpartition(":")[2]


def text_of(app, selector):
    return str(app.query_one(selector, Static).content)


@browsing()
async def test_the_best_and_the_worst_stand_side_by_side_in_their_colors(app, pilot):
    content = app.query_one("#left Static", Static).content
    styles = {content.plain[span.start : span.end]: str(span.style) for span in content.spans}
    assert styles["fine"] != styles["4"] != styles["<think>"]
    assert content.plain.startswith("base 1 · reward 1 · ") and "bad" in text_of(app, "#right Static")
    assert text_of(app, "#prompt Static") == "user: What is 2 + 2?"
    assert [app.query_one(pane).border_title for pane in ("#left", "#right")] == ["best of 2", "worst of 2"]
    assert "expected 1" in text_of(app, "#facts") and "6 of 6 groups" in text_of(app, "#head")


@browsing()
async def test_keys_move_jump_turn_and_copy(app, pilot):
    for keys, place in (("j down", "2"), ("k", "1"), ("ctrl+end", "4"), ("ctrl+home up", "0"), ("f", "2"), ("f", "4")):
        await pilot.press(*keys.split())
        assert under_cursor(app) == place, keys
    for keys, shown in (("comma", "number 2 of 3"), ("full_stop full_stop", "worst of 3")):
        await pilot.press(*keys.split())
        assert app.query_one("#right").border_title == shown
    await pilot.press("y")
    assert app.clipboard == f"{RUN_ID}:1:train:0:4"
    await pilot.press("f", "v")
    assert under_cursor(app) == "3" and "\n<answer>4" in text_of(app, "#right Static")


@browsing(query="task = 'gcd'")
async def test_filters_and_searches_narrow_and_escape_widens_and_a_mistake_is_said(app, pilot):
    assert listed(app) == ["1"]  # as the command line said
    await press(pilot, "escape")
    await enter(pilot, "task = 'chain_sum' AND step BETWEEN 4 AND 9")
    assert listed(app) == ["3", "5", "4"]
    await enter(pilot, " AND outcome = 'all_failed'")
    assert listed(app) == ["4"]
    for line, groups in (
        (f"group_id = '{RUN_ID}:1:train:0:3'", ["3"]),
        ("task = 'nothing'", []),
        ("/FINE", ["0"]),
        ("/step=2", []),
    ):
        await press(pilot, "escape")
        assert len(listed(app)) == 6
        await enter(pilot, line)
        assert listed(app) == groups
    assert text_of(app, "#right Static") == "" and text_of(app, "#facts") == "no group matches"
    await press(pilot, "escape")
    await enter(pilot, "outcome = 'splendid'")  # said, and changes nothing
    (message,) = [note.message for note in app._notifications]
    assert message.startswith("outcome = 'splendid': outcome is one of all_correct, ")
    assert len(listed(app)) == 6 and app.query_one("#line").has_class("open")
    await pilot.press("escape")
    assert not app.query_one("#line").has_class("open")


def test_a_long_list_has_pages(folder, monkeypatch):
    monkeypatch.setattr(module, "PAGE", 2)

    @browsing()
    async def session(app, pilot):
        assert "list: 1 to 2" in text_of(app, "#head")
        await pilot.press("j", "j")
        assert under_cursor(app) == "2" and "list: 3 to 4" in text_of(app, "#head")
        await pilot.press("f")
        assert under_cursor(app) == "4" and "list: 5 to 6" in text_of(app, "#head")

    session(folder)


@pytest.mark.parametrize("size", [(50, 24), (80, 24)], ids=str)
def test_the_keys_of_the_browser_are_listed_and_the_way_out_is_visible(folder, size):
    @browsing(size=size)
    async def session(app, pilot):
        def screen():
            return [line.text for line in app.screen._compositor.render_strips()]

        assert screen()[-1].startswith(" ? Keys  q Quit  / Filter")
        await pilot.press("question_mark")
        await pilot.pause()
        shown = "\n".join(screen())
        keys = [name.description for name in app.BINDINGS]
        assert [name for name in keys if name not in shown] == []
        await pilot.press("escape")
        await pilot.pause()
        assert keys[-1] not in "\n".join(screen())
        await pilot.press("z", "p", "q")
        assert app.return_code == 0

    session(folder)


@browsing()
async def test_reading_again_finds_what_has_changed_and_keeps_the_place(app, pilot):
    await pilot.press("f")
    folder = app._dump.runs[0].files[0].path.parent
    other = folder / "reasoning_gym_environment_rollouts_other_0000.jsonl"
    with DumpWriter(folder, RUN_ID, 2) as writer:
        assert writer.submit([group(9, [0.0, 0.0], step=5, attempt=2), group(10, step=6, attempt=2)]).result(5)
    other.write_bytes(b"{torn\n")
    await press(pilot, "r")
    assert listed(app) == ["0", "1", "2", "3", "9", "10"]  # step 5 was done again
    assert under_cursor(app) == "2" and "1 damaged line" in text_of(app, "#head")
    for path in folder.iterdir():
        path.write_bytes(b"")
    await press(pilot, "j")
    assert "damaged or has changed" in text_of(app, "#facts")
    other.write_bytes(b'{"item_id": "x", "rollouts": [], "schema_version": 99}\n')
    await pilot.press("r")
    await until(pilot, lambda: app.return_value)
    assert "update rg_env" in str(app.return_value)


# -- in a terminal


def in_terminal(*args, keys, expects):
    """What the command writes to a terminal; `keys` are typed when the screen shows what `expects` says."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        os.execv(sys.executable, [sys.executable, "-m", "rg_env", "dumps", "show", *map(str, args)])
    shown, typed, deadline = b"", False, time.monotonic() + 60
    with contextlib.suppress(OSError):  # the other end is closed: the command is done
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536)
            if not typed and re.search(expects, shown):
                os.write(terminal, keys)
                typed = True
    os.close(terminal)
    assert typed, shown[-3000:]
    return shown, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_the_command_opens_in_a_terminal_and_obeys_no_text(tmp_path):
    evil = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;b3duZWQ=\x07 [red]markup[/nothing]"
    hostile = group(f"{evil}0", [said(evil), violating(1)], task=f"gcd{evil}", item=evil)
    dump_of(tmp_path, [hostile])
    shown, code = in_terminal(tmp_path, keys=b"yq", expects=b"worst of 2")
    assert code == 0
    assert b"owned\x07" not in shown and b"\x1b]52;c;b3duZWQ=" not in shown
    assert "␛]0;owned␇" in shown.decode(errors="replace")
    copied = re.search(rb"\x1b\]52;c;([\w+/=]+)\x07", shown)
    assert copied and base64.b64decode(copied[1]).decode() == hostile.group_id
    assert b"Traceback" not in shown


def test_plain_is_plain_in_a_terminal_too(folder):
    shown, code = in_terminal(folder, "--plain", "--where", "task = 'gcd'", keys=b"", expects=b"== .*:1\r\n")
    assert code == 0
    assert b"\x1b" not in shown
