"""Entries as JSON and back, including the types that plain JSON loses.

Invariant: `decode_entry(encode_entry(x))` equals `x`, with equal types at every depth, for anything made of dicts (with
any keys), lists, tuples, sets, strings, integers, floats (NaN and infinities too), fractions, decimals, booleans and
None, with numbers of at most 4,300 digits. Of any other text `decode_entry` makes an entry or ValueError, in time
linear in its length: an entry may come from anywhere. NumPy scalars become the equal Python number or string;
subclasses (`Counter`, named tuples) become the plain type. The text is ASCII and strict JSON, so every file format and
reader preserves it.

Types that JSON lacks are written as an object whose only key is a tag, such as `{"__tuple__": [1, 2]}`.

An entry that went through plain JSON, at NeMo Gym for one, has lost these types. `as_made` gives back those that decide
a score.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

_KINDS: dict[str, type[Any]] = {
    "__tuple__": tuple,
    "__set__": set,
    "__frozenset__": frozenset,
    "__dict__": dict,
    "__float__": float,
    "__fraction__": Fraction,
    "__decimal__": Decimal,
}
_TAGS = {kind: tag for tag, kind in _KINDS.items()}
_WRITTEN = {
    "__float__": re.compile(r"nan|-?inf"),
    "__fraction__": re.compile(r"-?[0-9]{1,4300}(/[1-9][0-9]{0,4299})?"),
    "__decimal__": re.compile(r"-?(Infinity|s?NaN[0-9]{0,99}|[0-9]{1,4300}(\.[0-9]{1,4300})?(E[-+][0-9]{1,9})?)"),
}
"""How `str` writes numbers. `Fraction` alone would work for minutes on a large exponent."""

_HOLDERS = (dict, list, tuple)
_GRIDS = {"arc_agi": ("input", "output"), "rearc": ("input", "output")}
"""Task → metadata that its scorer compares with tuples of tuples. In reasoning-gym 0.1.25, all other scorers take lists
for tuples, and texts for the numbers that are keys."""

_PLAIN: tuple[type[Any], ...] = (str, int, float, list, dict, tuple, set, frozenset)


def encode_entry(value: Any) -> str:
    """One line of ASCII JSON.

    Raises:
        TypeError: for an object of any other type.
    """
    return json.dumps(_pack(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def decode_entry(text: str | bytes) -> Any:
    """Return the value that `encode_entry` was given.

    Raises:
        ValueError: for any other text.
    """
    try:
        return json.loads(text, object_hook=_unpack)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not an entry: {error}") from None


def as_made(entry: Mapping[str, Any], written: bytes = b"__") -> Mapping[str, Any]:
    """Return an entry as it was made, whatever JSON has made of it: with the types that tags in it stand for, and with
    the tuples that its task's scorer compares.

    Args:
        written: a pickle of the entry, where there is one: a glance at it tells of most entries that they have no tag.

    Raises:
        ValueError: a tag has no content of its type.
    """
    if b"__" in written and _has_tag(entry):
        entry = _read_tags(entry)
    metadata = entry["metadata"]
    grids = {}
    for name in _GRIDS.get(metadata["source_dataset"], ()):
        rows = metadata.get(name)
        if isinstance(rows, list):
            grids[name] = tuple(map(tuple, rows))
    if not grids:
        return entry
    return {**entry, "metadata": {**metadata, **grids}}


def _has_tag(value: Any) -> bool:
    """Return whether a dict in an entry has a tag for its only key. Called for each answer."""
    if isinstance(value, Mapping):
        if len(value) == 1 and not _KINDS.keys().isdisjoint(value):
            return True
        value = value.values()
    # The types first: most values are numbers in long lists.
    return any(type(inner) in _HOLDERS and _has_tag(inner) for inner in value)


def _read_tags(value: Any) -> Any:
    if isinstance(value, Mapping):
        inner = {key: _read_tags(element) for key, element in value.items()}
        try:
            return _unpack(inner)
        except TypeError as error:
            raise ValueError(f"not an entry: {error}") from None
    if type(value) in (list, tuple):
        return type(value)(map(_read_tags, value))
    return value


def _pack(value: Any) -> Any:
    kind = type(value)
    # By exact type: subclasses are made plain at the end.
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float and math.isfinite(value):
        return value
    if kind is list:
        return [_pack(element) for element in value]
    if kind is dict:
        # A dict that looks like one of our tags is written as pairs, so that it is not read as what the tag means.
        has_plain_keys = all(type(key) is str for key in value)
        looks_tagged = len(value) == 1 and next(iter(value)) in _KINDS
        if has_plain_keys and not looks_tagged:
            return {key: _pack(element) for key, element in value.items()}
        return {_TAGS[dict]: [[_pack(key), _pack(element)] for key, element in value.items()]}
    if kind is tuple:
        return {_TAGS[tuple]: [_pack(element) for element in value]}
    if kind is set or kind is frozenset:
        # Sorted: the text must not depend on the hash seed.
        return {_TAGS[kind]: sorted(map(_pack, value), key=json.dumps)}
    if kind in _TAGS:  # float, Fraction, Decimal
        return {_TAGS[kind]: str(value)}
    # By name, so that NumPy is not imported for this.
    if kind.__module__ == "numpy" and hasattr(value, "item") and value.ndim == 0:
        return _pack(value.item())
    # Subclasses, such as Counter, become the plain type.
    for plain in _PLAIN:
        if isinstance(value, plain):
            return _pack(plain(value))
    raise TypeError(f"an entry cannot hold a {kind.__module__}.{kind.__qualname__}: {value!r}")


def _unpack(mapping: dict[str, Any]) -> Any:
    if len(mapping) != 1 or not mapping.keys() <= _KINDS.keys():
        return mapping
    ((tag, content),) = mapping.items()
    # The pattern first: it bounds the time that the constructor takes.
    if tag in _WRITTEN and not _WRITTEN[tag].fullmatch(content):
        raise ValueError(f"not an entry: a {tag} of {content[:40]!r}")
    return _KINDS[tag](content)
