"""Lines of the ledger that are read in parts say what they say as a whole, whatever was done to them."""

from __future__ import annotations

import random
import re

import msgspec
import pytest

from rg_env.dump import NotKept, ledger_line
from rg_env.dump.ledger_parts import REST, SCORES, PartReader, parts_of
from rg_env.dump.schema import BadLineError, LedgerRecord, NewerSchemaError, from_line
from tests.dump.records import group, rollout

LISTS = (*SCORES, "response_tokens", *REST)


def line(**facts):
    rollouts = [rollout(float(number % 2), number) for number in range(4)]
    recorded = msgspec.structs.replace(group(0, rollouts), **facts)
    return ledger_line(recorded, None, NotKept.ROLLOUTS_OFF)


def check(reader, raw):
    """Whether the line was read in parts, in which it says what `from_line` says of it."""
    found = reader.read(raw)
    if found is None:
        return False
    facts, parts = found
    record = from_line(LedgerRecord, raw)
    for name in facts.__struct_fields__:
        assert getattr(facts, name) == getattr(record, name)
    whole = parts_of(record)
    assert [msgspec.structs.astuple(part) for part in (parts.scores, parts.rest)] == [
        msgspec.structs.astuple(part) for part in (whole.scores, whole.rest)
    ]
    assert parts.lengths == whole.lengths
    return True


def test_lines_of_our_writer_are_read_in_parts():
    reader = PartReader()
    for uid in ("a", "b", 'c","repetition":[1],"x":"'):
        assert check(reader, line(uid=uid))


DAMAGES = {
    "a list is shorter": lambda raw: re.sub(rb'"masked":\[false,', b'"masked":[', raw),
    "a list of another part is shorter": lambda raw: re.sub(rb'"score":\[[^,]*,', b'"score":[', raw),
    "one length less": lambda raw: re.sub(rb'"response_tokens":\[[^,]*,', b'"response_tokens":[', raw),
    "an unknown violation": lambda raw: raw.replace(b'"violation":["",', b'"violation":["odd",'),
    "an unknown status": lambda raw: raw.replace(b'"status":["ok",', b'"status":["fine",'),
    "an unknown reason": lambda raw: raw.replace(b'"dump_rollouts_off"', b'"why_not"'),
    "a text for a number": lambda raw: raw.replace(b'"attempt":1', b'"attempt":"1"'),
    "too large a number": lambda raw: re.sub(
        rb'"response_tokens":\[\d+', b'"response_tokens":[9223372036854775808', raw
    ),
    "a later version": lambda raw: raw.replace(b'"schema_version":1', b'"schema_version":2'),
    "two lines in one": lambda raw: raw.rstrip() + raw,
    "torn": lambda raw: raw[: len(raw) // 2],
    "torn at the end": lambda raw: raw.rstrip()[:-1],
    "more behind the end": lambda raw: raw.rstrip() + b"x\n",
    "not UTF-8": lambda raw: raw.replace(b'"uid":"', b'"uid":"\xff'),
    "no scores": lambda raw: raw.replace(b'"repetition"', b'"repetitions"'),
    "a key of another part": lambda raw: raw.replace(b'"uid":', b'"masked":[true],"uid":'),
    "a key twice": lambda raw: raw.replace(b'"stop_reason":', b'"masked":[true,true,true,true],"stop_reason":'),
    "one key more": lambda raw: raw.replace(b'"uid":', b'"more":{"repetition":[1]},"uid":'),
    "one key less": lambda raw: re.sub(rb'"truncated":\[[^]]*\],', b"", raw),
    "other spacing": lambda raw: raw.replace(b",", b", "),
    "nothing": lambda raw: b"\n",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_unusual_is_left_to_the_whole_line(damage):
    reader, whole = PartReader(), line()
    assert check(reader, whole)
    corrupt = DAMAGES[damage](whole)
    assert corrupt != whole
    assert not check(reader, corrupt)
    assert check(reader, whole), "a corrupt part was remembered"


def test_no_change_of_a_few_bytes_makes_another_record():
    draw, whole = random.Random(7), line()
    reader, read = PartReader(), 0
    for _ in range(3000):
        changed = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            start = draw.randrange(len(changed))
            end = start + draw.randrange(3)
            changed[start:end] = draw.choices(b'"[]{},:01.e-\\a\n', k=draw.randrange(3))
        try:
            from_line(LedgerRecord, bytes(changed))
        except (BadLineError, NewerSchemaError):
            assert PartReader().read(bytes(changed)) is None and reader.read(bytes(changed)) is None
        else:
            read += check(PartReader(), bytes(changed))
    assert read > 50


def test_it_gives_up_where_parts_do_not_repeat():
    reader, draw = PartReader(), random.Random(7)
    read = []
    for _ in range(600):
        raw = re.sub(rb"0\.0|1\.0", lambda _: b"0.%d" % draw.randrange(1, 10**9), line())
        read.append(check(reader, raw))
    assert read[0] and not read[-1]
