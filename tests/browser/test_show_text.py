"""What `rg-env dumps show` makes of texts: hostile ones shown, queries that mean one thing."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rg_env.analysis.reparse import reparse, without_think
from rg_env.browser import Query, print_groups
from rg_env.browser.pane import LONGEST, styled_response
from rg_env.choices import SortBy
from rg_env.cli import app
from rg_env.dump import DumpPolicy, DumpWriter, open_run, write_manifest
from rg_env.dump.frames import parse_condition
from rg_env.errors import RGEnvError
from rg_env.output import visible
from rg_env.scoring import parse_response
from rg_env.scoring.types import Violation
from tests.dump.records import RUN_ID, group, rollout, violating

SAMPLE = Path(__file__).parents[2] / "dumps" / "sample"
TAGS = ["<think>", "</think>", "<answer>", "</answer>"]
RESPONSES = st.lists(st.sampled_from([*TAGS, *TAGS, "4", " ", "\n", "x"]), max_size=12).map("".join)
HOSTILE = "\x1b[31mred\x1b]52;c;aGk=\x07 \x9b2J \u202eleft\u200b \x00 \r\b [/red][b]"


def test_every_character_that_drives_a_terminal_or_hides_is_shown():
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character != "\n":
            shown = visible(character)
            assert shown and not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}, hex(number)


@given(st.text())
def test_what_comes_out_can_be_printed_and_ordinary_text_stays(text):
    shown = visible(text, one_line=True)
    shown.encode()
    assert "\n" not in shown and "\x1b" not in shown
    if text.isprintable():
        assert shown == text


@given(RESPONSES, st.booleans())
def test_parts_are_those_that_the_scorer_read(text, prefilled):
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


def test_working_that_the_prompt_began_is_dropped_up_to_its_end():
    assert without_think("2 + 2 = 4</think>\n<answer>4</answer>", None) == "<answer>4</answer>"


@given(RESPONSES)
def test_a_colored_response_has_the_whole_text(text):
    violation = parse_response(text).violation
    shown = styled_response(rollout(conversation=[{"role": "assistant", "content": text}], violation=violation)).plain
    assert shown == text


def test_a_run_away_response_is_cut_with_a_word_about_it():
    text = "<think>" * 40_000
    shown = styled_response(
        rollout(conversation=[{"role": "assistant", "content": text}], violation=Violation.UNCLOSED_THINK)
    )
    assert shown.plain.endswith(f"{len(text) - LONGEST:,} characters more")


# -- queries

ROWS = [
    group(0, [1.0, 0.0], task="gcd", step=1),
    group(1, [1.0, 1.0], task="chain_sum", step=5),
    group(2, [0.0, 0.0], task="spell_backward", step=9),
    group(3, [0.5, violating(1)], task="gcd", step=None, phase="eval"),
]


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dump")
    with DumpWriter(folder, RUN_ID, 1, policy=DumpPolicy(dump_other_rollouts=True, dump_eval_rollouts=True)) as writer:
        assert writer.submit(ROWS).result(5)
    return open_run(folder)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "0123"),
        ("task = 'gcd'", "03"),
        ("task = 'gcd' OR task LIKE 'chain%'", "013"),
        ("outcome IN ('all_failed', 'all_correct')", "12"),
        ("violation <> ''", "3"),
        ("violation = 'no_think'", ""),
        ("step BETWEEN 2 AND 9", "12"),
        ("step IS NULL", "3"),
        ("base_score = 0 AND violation = ''", "02"),
        ("base_score = 0.5 AND violation <> ''", ""),
        ("step / 5 = 1", "1"),
        ("task = 'gcd' /</THINK><answer>0", "03"),
        ("/nowhere", ""),
        ("/</think", "0123"),
        ("/step = 5", ""),
        ("task = 'a /b'", ""),
        ("//answer", "0123"),
    ],
)
def test_a_query_finds(dump, line, expected):
    query = Query.parse(line)
    assert Query.parse(str(query)) == query
    lines = []
    count = print_groups(dump, query, write=lines.append)
    found = "".join(sorted(line.rpartition(":")[2] for line in lines if line.startswith("== ")))
    assert (found, count) == (expected, len(expected))


CONDITIONS = st.sampled_from(["task = 'gcd'", "step NOT BETWEEN 10 AND 20", "uid = 'a /b'", "score / 2 >= .5"])


@given(st.none() | CONDITIONS, st.text() | st.text(st.sampled_from("ab/= \\\n'")))
def test_a_query_is_written_as_it_is_read(condition, text):
    text = text.lstrip()
    query = Query((condition,) if condition else (), text)
    assert Query.parse(str(query)) == query


@pytest.mark.parametrize(
    "conditions",
    [
        [],
        ["task LIKE 'spell_%'"],
        ["task <> 'spell_backward'", "phase = 'train'"],
        ["step BETWEEN 2 AND 40", "outcome IN ('mixed', 'all_failed')"],
        ["violation <> ''"],
        ["violation IN ('no_think', 'unclosed_think') OR violation = ''", "base_score = 0"],
        ["score > 0", "response_tokens <= 20"],
        ["truncated"],
        ["stop_reason LIKE 's%'", "status = 'ok'", "repetition >= 3"],
        ["no_signal", "attempt = 1", "text = 'rollouts'"],
        ["uid LIKE '_1%'", "reward <> 1"],
    ],
    ids=" ".join,
)
def test_what_is_shown_is_what_statistics_count(conditions):
    record = open_run(SAMPLE)
    with_text = {group.group_id for group in record.groups()}
    tests = [parse_condition(condition).test for condition in conditions]
    counted = record.ledger_frame().filter(*tests)
    printed = show(SAMPLE, "--plain", *(part for text in conditions for part in ("--where", text))).stdout
    shown = [line[3:] for line in printed.splitlines() if line.startswith("== ")]
    assert len(set(shown)) == len(shown)
    assert set(shown) == with_text & set(counted["group_id"])


def test_a_limit_and_all_rollouts(dump):
    lines = []
    assert print_groups(dump, Query(("task = 'gcd'",)), limit=1, every_rollout=True, write=lines.append) == 1
    assert sum(line.startswith(("-- best", "-- worst")) for line in lines) == 2


def test_a_hostile_text_is_printed_and_not_obeyed(tmp_path):
    text = f"{HOSTILE}\n== not a heading"
    bad = rollout(
        1.0, conversation=[{"role": f"user{HOSTILE}", "content": text}, {"role": "assistant", "content": text}]
    )
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        assert writer.submit([group(HOSTILE, [bad], task=HOSTILE, entry='{"answer": "\\u001b[2J"}')]).result(5)
    lines = []
    print_groups(open_run(tmp_path), Query(), write=lines.append)
    printed = "\n".join(lines)
    printed.encode()
    assert all(character.isprintable() for character in printed.replace("\n", ""))
    assert "␛]52;c;aGk=␇" in printed and "<U+202E>" in printed and "[/red][b]" in printed
    assert sum(line.startswith("== ") for line in lines) == 1


# -- the command, where there is no terminal


def show(*args):
    return CliRunner().invoke(app, ["dumps", "show", *map(str, args)])


def test_the_command_prints_where_there_is_no_terminal():
    done = show(SAMPLE, "--where", "task LIKE 'leg_%'", "--where", "outcome = 'all_failed' AND phase = 'train'")
    assert done.exit_code == 0
    assert done.stdout.count("\n== ") + 1 == 5


def test_no_matching_group_is_exit_code_1():
    done = show(SAMPLE, "--search", "no such words")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no group matches /no such words" in done.stderr


@pytest.mark.parametrize(
    "args", [(SAMPLE, "--where", "step = 'x'"), ("no/such/folder",), (SAMPLE, "--where", "outcome = 'good'")]
)
def test_misuse_is_one_line(args):
    error = show(*args).exception
    assert isinstance(error, RGEnvError) and "\n" not in str(error)


def test_groups_are_shown_in_the_order_that_is_asked_for(tmp_path):
    members = {"a": [0.0, 0.4], "b": [1.0, 1.0], "c": [0.0, 1.0]}
    for name, scores in members.items():
        tokens = {"a": 9, "b": 5, "c": 7}[name]
        rollouts = [rollout(score, k, response_tokens=tokens) for k, score in enumerate(scores)]
        members[name] = group(name, rollouts, baseline=0.6 if name == "a" else 0.0)
    with DumpWriter(tmp_path, RUN_ID, 1, policy=DumpPolicy(dump_other_rollouts=True)) as writer:
        writer.submit(list(members.values()))
    dump = open_run(tmp_path)
    for sort, order in {SortBy.SCORE: "bca", SortBy.LENGTH: "acb", SortBy.SPREAD: "cab"}.items():
        lines = []
        print_groups(dump, Query(), sort=sort, rollout=1, write=lines.append)
        assert "".join(line.rpartition(":")[2] for line in lines if line.startswith("== ")) == order
        assert sum(line.startswith("-- ") and "of 2" in line for line in lines) == 3
        assert sum("partial credit only, none solved · baseline 0.6" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("threshold", "baseline", "says"),
    [
        (
            None,
            0.6,
            ["above the threshold, none solved · baseline 0.6", "base 0.75 (above the baseline 0.6) · raw 0.9, "],
        ),
        (0.8, 0.0, ["partial credit only, none solved\n", "base 0.75 (of the raw score alone) · raw 0.9, "]),
    ],
)
def test_what_counts_of_partial_credit_is_said(tmp_path, threshold, baseline, says):
    one = group(0, [rollout(0.75, 0, raw_score=0.9), rollout(0.0, 1)], baseline=baseline, entry="{}")
    with DumpWriter(tmp_path, RUN_ID, 1) as writer:
        writer.submit([one])
    if threshold:
        settings = {"environment": {"skyrl_gym": {"rg_dump": {"rollout_save_score_threshold": threshold}}}}
        write_manifest(tmp_path, RUN_ID, {"attempt": 1, "settings": settings})
    shown = show(tmp_path).stdout
    assert all(text in shown for text in says)
    assert "base 0 · raw 0, tagged 0" in shown
