"""Entries survive JSON: equal values, equal types."""

from __future__ import annotations

import json
import math
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rg_env.tasks import decode_entry, encode_entry

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.fractions()
    | st.decimals(allow_nan=False)
)
keys = st.text() | st.integers() | st.tuples(st.integers(), st.text()) | st.sampled_from(["__tuple__", "__dict__"])
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.sets(st.integers() | st.text(), max_size=4)
        | st.frozensets(st.tuples(st.integers()), max_size=3)
    ),
    max_leaves=20,
)


def same(a: Any, b: Any) -> bool:
    """Equal with equal types all the way down; NaN equals NaN; dicts in the same order."""
    if isinstance(a, (np.generic,)):
        a = a.item()
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(k, m) and same(v, w) for (k, v), (m, w) in zip(a.items(), b.items(), strict=True)
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b)


@given(values)
def test_what_goes_in_comes_out(value: Any) -> None:
    text = encode_entry(value)
    assert same(value, decode_entry(text))
    assert text.isascii()
    json.loads(text, parse_constant=pytest.fail)  # strict: no NaN, no Infinity


def test_entries_stay_readable_and_sets_are_written_in_one_order() -> None:
    assert encode_entry({"question": "2 + 2?", "n": [1, 2.0]}) == '{"question":"2 + 2?","n":[1,2.0]}'
    assert encode_entry({"b", "a", "c"}) == '{"__set__":["a","b","c"]}'


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
        ({np.str_("a"): np.str_("b")}, {"a": "b"}),
        (Counter("aab"), {"a": 2, "b": 1}),
        ({"d": Decimal("1.10")}, {"d": Decimal("1.10")}),
    ],
)
def test_numpy_scalars_and_subclasses_become_plain(given: Any, plain: Any) -> None:
    assert same(decode_entry(encode_entry(given)), plain)


@pytest.mark.parametrize("value", [object(), {"x": np.zeros(3)}, b"bytes", 1j])
def test_what_cannot_be_restored_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="an entry cannot hold"):
        encode_entry(value)


@pytest.mark.parametrize(
    "text",
    [
        *('{"__fraction__": "1/0"}', '{"__fraction__": 3}', '{"__fraction__": "1e9"}'),
        *('{"__decimal__": "x"}', '{"__decimal__": null}', '{"__float__": "1e5"}', '{"__float__": []}'),
        *('{"__tuple__": 5}', '{"__set__": [[]]}', '{"__dict__": [1]}', '{"__dict__": [[[], 1]]}', '{"__dict__": 7}'),
        *("[" * 100_000, '{"a":' * 100_000, "9" * 5000, "", "{", "nan"),
    ],
)
def test_corrupt_and_hostile_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode_entry(text)
