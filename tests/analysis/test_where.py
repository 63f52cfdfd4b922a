from __future__ import annotations

from fnmatch import fnmatchcase

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env.dump.read.frames import SCHEMA
from rg_env.dump.read.where import ConditionError, parse_conditions

ROWS = pl.DataFrame(
    {
        "task": ["gcd", "lcm", "chain_sum", "gcd"],
        "step": [1, 2, None, 20],
        "phase": ["train", "eval", "train", "train"],
        "violation": [None, "no_think", None, None],
        "base_score": [1.0, 0.0, 0.5, None],
        "truncated": [True, False, False, False],
        "level": [None, '{"a":1,"b":2}', None, None],
    }
)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("task=gcd", [0, 3]),
        ("task == gcd", [0, 3]),
        ("task=gcd, lcm", [0, 1, 3]),
        ("task!=gcd,lcm", [2]),
        ("step>=2", [1, 3]),
        ("step>2", [3]),
        ("step<2", [0]),
        ("step<=2", [0, 1]),
        ("step=none", [2]),
        ("step!=1", [1, 2, 3]),
        ("phase=eval", [1]),
        ("violation=none", [0, 2, 3]),
        ("violation=no_think,none", [0, 1, 2, 3]),
        ("base_score>0.4", [0, 2]),
        ("base_score=0.5..1", [0, 2]),
        ("base_score!=..0.5", [0, 3]),
        ("step=2..20", [1, 3]),
        ("step=1..1,20..", [0, 3]),
        ("step=..2,none", [0, 1, 2]),
        ("step=10..19", []),
        ("truncated=yes", [0]),
        ("task=?cd,chain*", [0, 2, 3]),
        ("task!=*c*", []),
        ("task=cd", []),
        ("task=[g]cd", []),
        ("level=*", []),
        ('level={"a":1,"b":2}', [1]),
    ],
)
def test_a_condition_chooses_its_rows(condition, rows):
    (parsed,) = parse_conditions([condition])
    assert ROWS.with_row_index().filter(parsed.test)["index"].to_list() == rows


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("gcd", "not a condition"),
        ("color=red", "unknown column 'color'; use one of item_id, "),
        ("step>=soon", "step is a whole number"),
        ("step=soon", "step is a whole number"),
        ("base_score>high", "base_score is a number"),
        ("phase=evla", "phase is one of train, eval"),
        ("violation=no_thunk", "violation is one of no_think, "),
        ("truncated=maybe", "truncated is true or false"),
        ("task>gcd", "task is not a number"),
        ("violation=no_*", "violation is one of no_think, "),
        ("task=", "write a value"),
        ("task!= , ", "write a value"),
        ("step=..", "write a range such as 10..20, 10.. or ..20"),
        ("step=1,..", "write a range such as"),
        ("step=9..3", "write 3..9"),
        ("step=a..3", "step is a whole number"),
        ("step=1..2.5", "step is a whole number"),
        ("step>99999999999999999999", "step is a whole number"),
        ("base_score=0..nan", "base_score is a number"),
        ("base_score>nan", "base_score is a number"),
        ("best>0.5", "unknown column 'best'"),
    ],
)
def test_a_mistake_is_one_line_with_what_would_be_right(condition, says):
    with pytest.raises(ConditionError, match=says) as caught:
        parse_conditions([condition])
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{condition}: ")


NAMES = st.text(st.sampled_from("ab.|\\(^$é\n-+[]{}~&# "), max_size=4)


@given(st.text(st.sampled_from("ab.|\\(^$é\n-+]{}~&# **??"), min_size=1, max_size=5), st.lists(NAMES, max_size=8))
def test_patterns_fit_what_they_fit_in_a_shell(pattern, names):
    pattern = f"*{pattern.strip()}"
    (parsed,) = parse_conditions([f"task={pattern}"])
    rows = pl.DataFrame({"task": names}, schema={"task": pl.String()})
    assert rows.filter(parsed.test)["task"].to_list() == [name for name in names if fnmatchcase(name, pattern)]


@given(
    st.sampled_from([*SCHEMA, "color", ""]),
    st.sampled_from(["=", "==", "!=", ">", "<=", ""]),
    st.text(st.sampled_from("0123456789.-+einfatru,*?_ \n\ud800")) | st.text(),
)
def test_whatever_is_typed_is_a_condition_or_a_mistake(name, operator, value):
    rows = pl.DataFrame({column: [None] for column in SCHEMA}, schema=SCHEMA)
    try:
        (parsed,) = parse_conditions([f"{name}{operator}{value}"])
    except ConditionError as error:
        assert "\n" not in str(error)
    else:
        assert rows.select(parsed.test).to_series().null_count() == 0


def test_a_command_may_have_columns_of_its_own():
    (parsed,) = parse_conditions(["best=0.2..0.8"], SCHEMA | {"best": pl.Float64()})
    assert not parsed.splits_groups
    assert pl.DataFrame({"best": [0.1, 0.2, None]}).filter(parsed.test).height == 1


def test_only_conditions_on_rollouts_split_groups():
    splits = {c.column: c.splits_groups for c in parse_conditions(["task=a", "step=1", "violation=none", "score>0"])}
    assert splits == {"task": False, "step": False, "violation": True, "score": True}
