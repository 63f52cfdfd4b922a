"""Lines of the ledger in four parts, of which those that repeat are checked once: half of the time of reading.

As our writer encodes it, a line has the facts of the group, then the scores, the lengths, and what is mostly equal in
all groups of a step. Each part is checked as an object whose keys are all known, so four good parts of equal lengths
are a good `LedgerRecord`, whatever bytes are between them. Any other line (of other spacing or order, one that lacks a
key or has one more, a torn one) is left to `from_line`; so is every line, where parts do not repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import UnsetType

from rg_env.dump.schema import SCHEMA_VERSION, VIOLATION_WORDS, LedgerFacts, LedgerRecord

_MOST_HELD = 4096
"""Parts of a kind that are remembered."""
_TRIED = 256
"""Lines after which parts must have repeated."""


_TYPES = get_type_hints(LedgerRecord, include_extras=True)


def _list_of(name: str) -> Any:
    """Return the type of a list of a `LedgerRecord`, which must be there."""
    kinds = get_args(_TYPES[name])
    return kinds[0] if UnsetType in kinds else _TYPES[name]


class _Facts(LedgerFacts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


_NAMES = LedgerRecord.__struct_fields__
_LENGTHS = _NAMES.index("response_tokens")
SCORES = _NAMES[_NAMES.index("repetition") : _LENGTHS]
"""The columns of the second part."""
REST = _NAMES[_LENGTHS + 1 :]
"""Those of the fourth; the third has `response_tokens` alone."""


def _part(name: str, fields: Sequence[str]) -> Any:
    """Return a class with these lists; an object equals itself alone, so that it is quickly found in a dict."""
    types = [(field, _list_of(field)) for field in fields]
    return msgspec.defstruct(name, types, frozen=True, forbid_unknown_fields=True, gc=False, eq=False)


_Scores, _Rest = _part("_Scores", SCORES), _part("_Rest", REST)
_AT_SCORES, _AT_LENGTHS, _AT_REST = (f',"{name}":'.encode() for name in (SCORES[0], "response_tokens", REST[0]))
_facts = msgspec.json.Decoder(_Facts).decode
_lengths = msgspec.json.Decoder(_list_of("response_tokens")).decode


class Parts(NamedTuple):
    """The lists of a line of the ledger: an object with those of `SCORES`, the lengths, and one with those of `REST`.
    Equal parts are the same object."""

    scores: Any
    lengths: list[int | None]
    rest: Any


def parts_of(record: Any) -> Parts:
    """Return the lists of a whole `LedgerRecord`."""
    scores, rest = (kind(*map(record.column, kind.__struct_fields__)) for kind in (_Scores, _Rest))
    return Parts(scores, record.column("response_tokens"), rest)


class _Known:
    """Parts of a kind that were checked, by their bytes."""

    def __init__(self, kind: Any, end: bytes) -> None:
        self._decode = msgspec.json.Decoder(kind).decode
        self._end = end
        self.parts: dict[bytes, Any] = {}
        self.checked = 0

    def check(self, text: bytes) -> Any:
        part = self._decode(b"{" + text + self._end)
        if len(set(map(len, msgspec.structs.astuple(part)))) > 1:
            raise ValueError("its lists differ in length")
        if not VIOLATION_WORDS.issuperset(getattr(part, "violation", ())):
            raise ValueError("unknown word in `violation`")
        if len(self.parts) == _MOST_HELD:
            self.parts.clear()
        self.parts[text] = part
        self.checked += 1
        return part


class PartReader:
    """Reads the lines of a ledger, as long as their parts repeat."""

    def __init__(self) -> None:
        self._scores, self._rest = _Known(_Scores, b"}"), _Known(_Rest, b"")
        self._lines = 0

    def read(self, line: bytes) -> tuple[LedgerFacts, Parts] | None:
        """Return what a line says; None if it is to be read by `from_line`."""
        first = line.find(_AT_SCORES)
        second = line.find(_AT_LENGTHS, first)
        third = line.find(_AT_REST, second)
        if third < 0 or (self._lines > _TRIED and self._scores.checked + self._rest.checked > self._lines):
            return None
        self._lines += 1
        of_scores, of_rest = line[first + 1 : second], line[third + 1 :]
        try:
            facts = _facts(line[:first] + b"}")
            scores = self._scores.parts.get(of_scores) or self._scores.check(of_scores)
            rest = self._rest.parts.get(of_rest) or self._rest.check(of_rest)
            lengths = _lengths(line[second + len(_AT_LENGTHS) : third])
        except (ValueError, RecursionError):
            return None
        is_whole = len(scores.repetition) == len(lengths) == len(rest.stop_reason)
        if not is_whole or facts.schema_version > SCHEMA_VERSION:
            return None
        return facts, Parts(scores, lengths, rest)
