from __future__ import annotations

import polars as pl
import pytest

from rg_env.analysis import ConditionError, parse_conditions

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
        ("truncated=yes", [0]),
        ('difficulty={"a":1,"b":2}', [1]),
    ],
)
def test_a_condition_chooses_its_rows(condition, rows):
    (parsed,) = parse_conditions([condition])
    assert ROWS.with_row_index().filter(parsed.test)["index"].to_list() == rows


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("gcd", "write a condition such as"),
        ("colour=red", "there is no column 'colour'; there are item_id, "),
        ("step>=soon", "step is a whole number"),
        ("step=soon", "step is a whole number"),
        ("base_score>high", "base_score is a number"),
        ("phase=evla", "phase is one of train, eval"),
        ("violation=no_thunk", "violation is one of none, no_think"),
        ("truncated=maybe", "truncated is true or false"),
        ("task>gcd", "task has no order"),
    ],
)
def test_a_mistake_is_one_line_with_what_would_be_right(condition, says):
    with pytest.raises(ConditionError, match=says) as caught:
        parse_conditions([condition])
    assert "\n" not in str(caught.value)
    assert condition in str(caught.value)


def test_only_conditions_on_rollouts_split_groups():
    splits = {c.column: c.splits_groups for c in parse_conditions(["task=a", "step=1", "violation=none", "score>0"])}
    assert splits == {"task": False, "step": False, "violation": True, "score": True}
