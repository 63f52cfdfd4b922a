"""What `rg-env dumps show` makes of texts: hostile ones shown, queries that mean one thing."""

from __future__ import annotations

import contextlib
import math
import os
import pty
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rg_env.analysis.reparse import reparse, without_think
from rg_env.base.wording import visible
from rg_env.cli import app
from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import open_run
from rg_env.dump.conditions import ConditionError, parse_condition
from rg_env.dump.group_text import Query, ranked
from rg_env.rollouts.rollout_log import RolloutLog
from rg_env.scoring import parse_response
from rg_env.scoring.types import Status, Violation
from tests.analysis.reports import dump_of
from tests.dump.records import group, rollout, violating

SAMPLE = Path(__file__).parents[2] / "dumps" / "sample"
TAGS = ["<think>", "</think>", "<answer>", "</answer>"]
RESPONSES = st.lists(st.sampled_from([*TAGS, *TAGS, "4", " ", "\n", "x"]), max_size=12).map("".join)
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
HOSTILE = "\x1b[31mred\x1b]52;c;aGk=\x07 \x9b2J \u202eleft\u200b \x00 \r\b [/red][b]"


def test_every_character_that_drives_a_terminal_or_hides_is_shown_and_others_stay():
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        if character != "\n" and unicodedata.category(character) in HIDDEN:
            shown = visible(character)
            shown.encode()
            assert shown and not {unicodedata.category(c) for c in shown} & HIDDEN, hex(number)
        elif character.isprintable():
            assert visible(character) == character
    assert visible("a\nb", one_line=True) == "a␊b"


@given(RESPONSES, st.booleans())
def test_parts_of_a_response_are_those_that_the_scorer_read(text, prefilled):
    parsed = parse_response(text, prefilled, max_answer_chars=3)
    parts = reparse(text, parsed.violation)
    if parsed.think is not None:
        assert text[slice(*parts.think_span)].strip() == parsed.think or prefilled
    if parsed.answer is not None:
        assert text[slice(*parts.answer_span)].strip() == parsed.answer


@given(RESPONSES)
def test_dropping_the_working_keeps_the_answer(text):
    parsed = parse_response(text)
    rest = without_think(text, parsed.violation)
    if parsed.violation is None:
        assert "<think>" not in rest and "</think>" not in rest
        assert parse_response(f"<think></think>{rest}").answer == parsed.answer
    elif parsed.violation in (Violation.UNCLOSED_THINK, Violation.MULTIPLE_THINK):
        assert rest is None
    assert without_think("2 + 2 = 4</think>\n<answer>4</answer>", None) == "<answer>4</answer>"  # the prompt began it


# -- queries

GROUPS = [
    group(0, [1.0, 0.0], task="gcd", step=1),
    group(1, [1.0, 1.0], task="chain_sum", step=5),
    group(2, [0.0, 0.0], task="spell_backward", step=9),
    group(3, [0.5, violating(1)], task="gcd", step=None, phase="eval"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dump")
    dump_of(folder, GROUPS)
    return folder


@pytest.mark.parametrize(
    ("condition", "text", "expected"),
    [
        ("", "", "0123"),
        ("task = 'gcd' OR task LIKE 'chain%'", "", "013"),
        ("violation = 'no_think'", "", ""),
        ("step IS NULL", "", "3"),
        ("base_score = 0 AND violation = ''", "", "02"),
        ("base_score = 0.5 AND violation <> ''", "", ""),
        ("step / 5 = 1", "", "1"),
        ("task = 'gcd'", "</THINK><answer>0", "03"),
        ("", "nowhere", ""),
        ("", "</think", "0123"),
        ("", "step = 5", ""),
        ("task = 'a /b'", "", ""),
    ],
)
def test_a_query_finds(folder, condition, text, expected):
    query = Query(condition, text)
    assert "".join(sorted(group.uid for group in query.groups(open_run(folder)))) == expected


# -- in a terminal


def in_terminal(*args, pager):
    """What the command writes to a terminal, and its exit code."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", "PAGER": pager}
        os.execv(sys.executable, [sys.executable, "-m", "rg_env", "dumps", "show", *map(str, args)])
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed: the command is done
        while part := os.read(terminal, 65536):
            shown += part
    os.close(terminal)
    return shown.decode(errors="replace"), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_in_a_terminal_the_same_text_comes_through_the_pager(tmp_path):
    evil = "\x1b]0;owned\x07\x1b[2J [red]markup[/nothing]"
    dump_of(tmp_path, [group(k, task=f"gcd{evil}", item=evil) for k in range(3)])
    printed = show(tmp_path).stdout
    through, code = in_terminal(tmp_path, pager="sed s/^/>/")
    assert code == 0
    assert through.replace("\r\n", "\n") == "".join(f">{line}\n" for line in printed.splitlines())
    for pager, options in (("", ()), ("sed s/^/>/", ("--plain",)), ("no-such-pager", ())):
        assert in_terminal(tmp_path, *options, pager=pager)[0].replace("\r\n", "\n") == printed
    assert "\x1b" not in through
    assert in_terminal(tmp_path, pager="head -n 1")[1] == 0, "a pager that is left takes no more"


# -- the command, where there is no terminal


def show(*args):
    return CliRunner().invoke(app, ["dumps", "show", *map(str, args)])


def shown(*args):
    return [line[3:] for line in show(*args).stdout.splitlines() if line.startswith("== ")]


@pytest.mark.parametrize(
    "conditions",
    [
        [],
        ["task <> 'spell_backward'", "phase = 'train'"],
        ["violation IN ('no_think', 'unclosed_think') OR violation = ''", "base_score = 0"],
        ["score > 0", "response_tokens <= 20"],
        ["no_signal", "attempt = 1", "text = 'rollouts'"],
    ],
    ids=" ".join,
)
def test_what_is_shown_is_what_statistics_count(conditions):
    record = open_run(SAMPLE)
    counted = record.ledger_frame().filter(*(parse_condition(condition).test for condition in conditions))
    ids = shown(SAMPLE, *(part for text in conditions for part in ("--where", text)))
    assert sorted(ids) == sorted({group.group_id for group in record.groups()} & set(counted["group_id"]))


def test_a_limit_one_rollout_and_all_rollouts(folder):
    gcd = ["--where", "task = 'gcd'"]
    limited = show(folder, *gcd, "--limit", 1, "--every-rollout").stdout
    assert [line for line in limited.splitlines() if line.startswith("-- ")][1:] == [
        "-- best of 2: base 1 · reward 1 · 36 tokens",
        "-- worst of 2: base 0 · reward 0 · 36 tokens",
    ]
    second = show(folder, *gcd, "--rollout", 1).stdout
    assert second.count("-- worst of 2") == 2 and "-- best" not in second
    none = show(folder, *gcd, "--rollout", 99)
    assert none.stdout == "" and "--rollout=99: no group has it; " in str(none.exception)


def test_a_hostile_text_is_printed_and_not_obeyed(tmp_path):
    text = f"{HOSTILE}\n== not a heading"
    said = [{"role": f"user{HOSTILE}", "content": text}, {"role": "assistant", "content": text}]
    bad = group(HOSTILE, [rollout(1.0, conversation=said)], task=HOSTILE, entry='{"answer": "\\u001b[2J"}')
    dump_of(tmp_path, [bad])
    printed = show(tmp_path).stdout
    assert all(character.isprintable() for character in printed.replace("\n", ""))
    assert "␛]52;c;aGk=␇" in printed and "<U+202E>" in printed and "[/red][b]" in printed
    assert sum(line.startswith("== ") for line in printed.splitlines()) == 1


def test_no_matching_group_is_exit_code_1():
    done = show(SAMPLE, "--search", "no such words")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no group matches /no such words" in done.stderr


def test_a_condition_that_matches_nothing_is_a_mistake_as_everywhere():
    error = show(SAMPLE, "--where", "task = 'no such task'").exception
    assert isinstance(error, ConditionError) and error.exit_code == 2
    assert "the tasks are leg_counting, spell_backward" in str(error)


def test_a_run_that_saved_no_rollouts_says_which_switch_decided(tmp_path):
    other = [group(0, [0.5, 0.0]), group(1, [0.5, 0.25]), group(2, [0.0, 0.0])]
    dump_of(tmp_path, other, RGDumpConfig(dump_failed_rollouts=False, dump_other_rollouts=False))
    done = show(tmp_path)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        "rg-env: no rollouts saved: 2 neither above the threshold nor all wrong (dump_other_rollouts=false), "
        "1 all wrong (dump_failed_rollouts=false)"
    )


def test_groups_are_shown_in_the_order_that_is_asked_for(tmp_path):
    scores = {"a": [0.0, 0.4], "b": [1.0, 1.0], "c": [0.0, 1.0]}
    tokens = {"a": 9, "b": 5, "c": 7}
    members = [
        group(name, [rollout(score, k, response_tokens=tokens[name]) for k, score in enumerate(scores[name])])
        for name in "abc"
    ]
    dump_of(tmp_path, members)
    for sort, order in {"score": "bca", "length": "acb", "spread": "cab"}.items():
        assert "".join(name[-1] for name in shown(tmp_path, "--sort", sort)) == order


def test_an_unknown_score_stands_behind_negative_ones():
    scores = [math.nan, -2.0, 0.5, -1.0]
    shown = [rollout.base_score for _, rollout in ranked(group(rollouts=scores))]
    assert shown[:3] == [0.5, -1.0, -2.0] and math.isnan(shown[3])


def test_what_counts_of_partial_credit_is_said(tmp_path):
    rollouts = [rollout(0.75, 0, raw_score=0.9), rollout(0.0, 1)]
    dump_of(tmp_path, [group(0, rollouts, baseline=0.6, entry="{}")])
    printed = show(tmp_path).stdout
    assert "mixed · best 0.75, none solved · baseline 0.6\n" in printed
    assert "-- best of 2: base 0.75 · raw 0.9 · reward 0.75 · " in printed
    assert "-- worst of 2: base 0 · reward 0 · 36 tokens\n" in printed


def test_the_log_of_rollouts_says_how_a_score_came_about(tmp_path):
    changes = {"raw_score": 0.9, "tagged_score": 0.8, "normalized": True, "detail": "scored as 4", "answer": "4\x1b[2J"}
    penalized = rollout(0.75, 0, penalty_factor=0.5, score=0.375, reward=0.375, **changes)
    failed = rollout(0.0, 1, status=Status.TIMEOUT, raw_score=None, tagged_score=None, detail="took over 10 s")
    config = RGDumpConfig(dump_other_rollouts=False, rollout_save_score_threshold=0.8, solved_at=0.8)
    log = RolloutLog(tmp_path, config)
    groups = [group(0, [penalized, failed], baseline=0.6, entry='{"answer": "4"}'), group(1, [0.9, 0.0])]
    log.log_groups(groups)
    log.log_canary("gcd-train-42-0: its own answer '4' scores 0 (ok)", passed=False)
    text = log.path.read_text()
    for made, kept in zip(groups, ("not kept: dump_other_rollouts_off", "in the rollouts files"), strict=True):
        assert re.search(rf"^== {re.escape(made.group_id)}\n.*\ntext {kept}$", text, re.M)
    assert " · stop reason stop" in text
    assert "== canary: gcd-train-42-0: its own answer '4' scores 0 (ok): the verifier is wrong\n" in text
    assert " · mixed · best 0.75, none solved · baseline 0.6 · expected 4\n" in text
    assert text.count("none solved") == 1
    assert "base 0.75 · raw 0.9, tagged 0.8 · penalty × 0.5 = 0.375 · reward 0.375 · " in text
    assert r" · answer '4\x1b[2J' · scored as 4" in text and " · timeout · took over 10 s\n" in text
