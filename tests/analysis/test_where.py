from __future__ import annotations

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rg_env.dump import open_run
from rg_env.dump.conditions import ConditionError, parse_condition
from rg_env.dump.frames import SCHEMA
from tests.analysis.samples import groups, write_ledger, write_texts
from tests.dump.records import group

ROWS = pl.DataFrame(
    {
        "task": ["gcd", "lcm", "chain_sum", "gcd"],
        "step": [1, 2, None, 20],
        "phase": ["train", "eval", "train", "train"],
        "violation": ["", "no_think", "", ""],
        "truncated": [True, False, False, False],
        "base_score": [1.0, 0.5, 0.6, 0.9],
        "solved_at": [None, None, 0.5, None],
    }
)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("task = 'gcd'", [0, 3]),
        ("task NOT IN ('gcd', 'lcm')", [2]),
        ("task LIKE '_cd' OR task LIKE 'chain%'", [0, 2, 3]),
        ("step >= 2", [1, 3]),
        ("step IS NULL", [2]),
        ("step <> 1", [1, 3]),
        ("NOT step = 1", [1, 3]),
        ("phase = 'train' AND step BETWEEN 10 AND 20", [3]),
        ("violation = ''", [0, 2, 3]),
        ("truncated", [0]),
        ("violation IN ('') AND NOT truncated", [2, 3]),
        ("task = 'COUNT(*)'", []),
        ("task = 'a && b'", []),
        ("step::text = '2' OR task = 'a::int'", [1]),
        ("base_score >= coalesce(solved_at, 0.99)", [0, 2]),
    ],
)
def test_a_condition_chooses_its_rows(condition, rows):
    assert ROWS.with_row_index().filter(parse_condition(condition).test)["index"].to_list() == rows


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("gcd is", "not a condition in SQL"),
        ("paint = 'red'", "unknown column paint; some columns are task, step, .*; docs/dumps.md lists all"),
        ("stp > 3", r"unknown column stp; did you mean step\?"),
        ("step > 3 && phase = 'eval'", "write AND in place of &&"),
        ("step > 3 || phase = 'eval'", r"write OR in place of \|\|"),
        ("phase = train", "unknown column train: put text in single quotes: 'train'"),
        ("step >= 'soon'", "step is a whole number"),
        ("step", "must be of type `Boolean`.*step is a whole number"),
        ("task > 1", "task is a text"),
        ("phase = 'trian'", "phase is one of train, eval"),
        ("'trian' = phase", "phase is one of train, eval"),
        ("step = 'text = '", "step is a whole number"),
        ("step::text = 3", "cannot compare string with numeric"),
        ("step = 1 AND violation NOT IN ('no_think', 'no_thunk')", "violation is one of '', no_think, "),
        ("task::int = 1", "numbers and texts are not converted"),
        ("base_score :: bigint = 1", "numbers and texts are not converted"),
        ("task::text[] = 'gcd'", "numbers and texts are not converted"),
        ("NOT task", "not supported; task is a text"),
        ("truncated = 'maybe'", "truncated is true or false"),
        ("1 = 1", "names no column"),
        ("step > AVG(step)", "a condition is about one rollout"),
        ("step IN (SELECT step FROM t)", "a condition is about one rollout"),
        ("step > 1; step > 2", "not a condition"),
        ("step > 1k", "'k' at the end would be a name; AND or an operator is missing before it"),
        ("phase = 'eval' truncated", "'truncated' at the end would be a name"),
    ],
)
def test_a_mistake_is_one_line_with_what_would_be_right(condition, says):
    with pytest.raises(ConditionError, match=says) as caught:
        parse_condition(condition)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{condition}: ")


def test_an_empty_condition_is_a_mistake():
    with pytest.raises(ConditionError, match=r"^the condition is empty; write for example task = 'chain_sum'$"):
        parse_condition("")


WORDS = st.sampled_from(
    [*SCHEMA, "AND", "OR", "NOT", "=", "<", "'x'", "1", "(", ")", "IN", "LIKE", "IS NULL", "sum", ";"]
)


@given(st.lists(WORDS | st.text(max_size=4), max_size=6).map(" ".join))
def test_whatever_is_typed_is_a_condition_or_a_mistake(text):
    values = {pl.String(): "no word", pl.Boolean(): False}
    rows = pl.DataFrame({name: [None, values.get(dtype, 7)] for name, dtype in SCHEMA.items()}, schema=SCHEMA)
    try:
        condition = parse_condition(text)
    except ConditionError as error:
        assert "\n" not in str(error)
    else:
        assert rows.select(condition.test).to_series().null_count() == 0


def test_only_conditions_on_rollouts_split_groups():
    assert not parse_condition("task = 'a' AND step = 1").splits_groups
    assert parse_condition("task = 'a' AND score > 0").splits_groups


# -- in the readers and commands

TESTS = {
    "task = 'gcd'": lambda g, r: g.task == "gcd",
    "phase = 'train'": lambda g, r: g.phase == "train",
    "step BETWEEN 2 AND 5": lambda g, r: g.step is not None and 2 <= g.step <= 5,
    "base_score > 0.4": lambda g, r: r.base_score > 0.4,
    "violation = ''": lambda g, r: not r.violation,
}


@settings(max_examples=25)
@given(members=groups(), chosen=st.lists(st.sampled_from(sorted(TESTS)), min_size=1, max_size=2), ledger=st.booleans())
def test_records_and_frames_have_the_rollouts_that_match(tmp_path_factory, members, chosen, ledger):
    folder = tmp_path_factory.mktemp("dump")
    write_texts(folder, members)
    if ledger:
        write_ledger(folder, members)
    expected = {
        (g.group_id, r.repetition, r.base_score)
        for g in members
        for r in g.rollouts
        if all(TESTS[condition](g, r) for condition in chosen)
    }
    assume(expected)
    dump = open_run(folder).where(chosen)
    assert {(g.group_id, r.repetition, r.base_score) for g, r in dump.rollouts()} == expected
    frame = dump.ledger_frame()
    assert set(frame.select("group_id", "repetition", "base_score").rows()) == expected
    texts = dump.scan(texts=True).select("group_id", "repetition", "base_score").collect()
    assert set(texts.rows()) == expected
    if ledger:
        assert {g.group_id for g in dump.ledger()} == {group_id for group_id, *_ in expected}


def test_nothing_that_matches_is_an_error(tmp_path):
    write_texts(tmp_path, [group(0)])
    with pytest.raises(ConditionError, match="no rollout matches task = 'lcm'; the tasks are chain_sum"):
        open_run(tmp_path).where(["task = 'lcm'"]).ledger_frame()
