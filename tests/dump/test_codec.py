from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass, replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rg_env.dump import (
    BadLineError,
    DumpPolicy,
    DumpWriter,
    FileKind,
    GroupRecord,
    LedgerRecord,
    NewerSchemaError,
    NotKept,
    Outcome,
    RolloutRecord,
    TrainedRecord,
    from_line,
    open_run,
    record_from_line,
    to_line,
)
from rg_env.dump.codec import group_lines
from rg_env.dump.schema import SCHEMA_VERSION, GroupFacts, RolloutFacts
from rg_env.scoring.types import Status, Violation
from tests.dump.records import RUN_ID, group, rollout

any_text = st.text(st.characters())  # every code point, lone surrogates and noncharacters too
text_or_none = st.none() | any_text.filter(bool)
number = st.floats() | st.integers() | st.sampled_from([1e308, 5e-324, -0.0, 10**400, -(10**400)])  # NaN and ∞ too
number_or_none = st.none() | number
whole = st.integers(0, 2**63 - 1)
rollouts = st.builds(
    RolloutRecord,
    conversation=st.lists(st.fixed_dictionaries({"role": any_text, "content": any_text}), max_size=3),
    score=number,
    reward=number,
    base_score=number,
    raw_score=number_or_none,
    tagged_score=number_or_none,
    violation=st.none() | st.sampled_from(Violation),
    status=st.sampled_from(Status),
    detail=any_text,
    answer=text_or_none,
    response_tokens=st.none() | whole,
    stop_reason=text_or_none,
    truncated=st.booleans(),
    penalty_factor=number,
    repetition=st.integers(0, 1000),
    policy_version=text_or_none,
    normalized=st.booleans(),
)
groups = st.builds(
    group,
    uid=any_text,
    rollouts=st.lists(rollouts, max_size=3),
    item=any_text,
    step=st.none() | whole,
    level=text_or_none,
    task=any_text,
    entry=any_text,
    outcome=st.sampled_from(Outcome),
)


def _kept(value, absent):
    """What a line can carry of a number: anything but what is not finite, as a float."""
    try:
        return float(value) if value is not None and math.isfinite(value) else absent
    except OverflowError:
        return absent


def _as_kept(record):
    """The record that is expected back. Everything but numbers is carried as it is."""
    kept = [
        replace(
            r,
            **{name: _kept(getattr(r, name), math.nan) for name in ("score", "reward", "base_score", "penalty_factor")},
            **{name: _kept(getattr(r, name), None) for name in ("raw_score", "tagged_score")},
        )
        for r in record.rollouts
    ]
    return replace(record, rollouts=kept)


def _same(one, other):
    """Equality, with NaN equal to NaN."""
    if is_dataclass(one):
        return type(one) is type(other) and all(
            _same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one)
        )
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(_same, one, other))
    return one == other or (one != one and other != other)


@given(groups)
def test_records_round_trip(record):
    line = to_line(record)
    assert _same(from_line(line), _as_kept(record))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    orjson.loads(line)  # refuses NaN, lone surrogates and their escapes, which the standard library lets pass


@given(groups)
def test_the_ledger_keeps_everything_but_the_texts(record):
    for kind, reason in ((FileKind.ROLLOUTS, None), (None, NotKept.OTHER_OFF)):
        line = to_line(LedgerRecord.of(record, kind, reason))
        if kind is not None:
            at = to_line(LedgerRecord.of(record, kind, None, (3, 17)))
            assert group_lines(record, kind, (3, 17)) == (to_line(record), at)
        back = record_from_line(LedgerRecord, line)
        expected = _as_kept(record)
        assert (back.text, back.text_reason) == (kind, reason)
        assert all(_same(getattr(back, f.name), getattr(expected, f.name)) for f in fields(GroupFacts))
        assert len(back.rollouts) == len(expected.rollouts)
        for one, other in zip(back.rollouts, expected.rollouts, strict=True):
            assert all(_same(getattr(one, f.name), getattr(other, f.name)) for f in fields(RolloutFacts))


EXAMPLES = {
    GroupRecord: group(),
    LedgerRecord: LedgerRecord.of(replace(group(), rollouts=[], no_signal=True), None, NotKept.NO_ROLLOUTS),
    TrainedRecord: TrainedRecord(RUN_ID, 1, 3, group().group_id, 8),
}


@pytest.mark.parametrize("kind", FileKind)
def test_a_record_of_every_kind_is_sound_and_comes_back(kind):
    record = EXAMPLES[kind.record]
    record.check()
    assert record_from_line(kind.record, to_line(record), strict=True) == record


@settings(max_examples=25)
@given(st.lists(groups, max_size=6))
def test_what_is_submitted_comes_out_of_the_files(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("dump")
    records = [replace(record, group_id=str(k)) for k, record in enumerate(records)]
    everything = DumpPolicy(dump_other_rollouts=True, dump_eval_rollouts=True)
    with DumpWriter(folder, RUN_ID, 1, policy=everything, groups_per_file=2) as writer:
        assert writer.submit(records).result(20)
    if not records:
        assert not list(folder.iterdir())
        return
    dump = open_run(folder)
    assert [record.group_id for record in dump.ledger(all_attempts=True)] == [record.group_id for record in records]
    texts = sorted(dump.groups(all_attempts=True), key=lambda record: int(record.group_id))
    kept = [record for record in records if any(r.status is not Status.NO_RESPONSE for r in record.rollouts)]
    assert _same(texts, [_as_kept(record) for record in kept])
    assert not dump.problems


def test_the_empty_text_is_no_text_where_a_text_may_be_absent():
    names = ("answer", "stop_reason", "policy_version")
    record = group(rollouts=[rollout(**dict.fromkeys(names, ""))], level="")
    back = from_line(to_line(record))
    assert back.level is None
    assert [getattr(back.rollouts[0], name) for name in names] == [None] * 3


def _types(value):
    if isinstance(value, dict):
        return {key: _types(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_types(value[0])] if value else []
    return type(value)


def test_keys_their_order_and_types_do_not_depend_on_the_record():
    full = group(rollouts=[rollout(1.0)])
    bare = group(
        rollouts=[rollout(0, violation=None, answer=None, stop_reason=None, policy_version=None, penalty_factor=1)],
        level=None,
    )
    for one, other in [(full, bare), (LedgerRecord.of(full, FileKind.FAILED, None), LedgerRecord.of(bare, None, None))]:
        first, second = (json.loads(to_line(record)) for record in (one, other))
        assert list(first) == list(second)
        assert _types(first) == _types(second)


def test_a_line_is_atropos_shaped():
    record = group("7", [1.0, 0.0])
    line = json.loads(to_line(record))
    assert (line["item_id"], line["item"]) == ("chain_sum", "item-7")
    assert [set(r) >= {"conversation", "score"} for r in line["rollouts"]] == [True, True]
    assert line["rollouts"][0]["conversation"] == list(record.rollouts[0].conversation)


def test_a_plain_atropos_line_is_read_with_what_follows_from_its_scores():
    conversation = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a\uffffd800"}]
    line = json.dumps(
        {"item_id": "chain_sum", "rollouts": [{"conversation": conversation, "score": s} for s in (1, 0.25)]}
    )
    read = from_line(line.encode(), run_id="uuid", group_id="file:1")
    assert (read.task, read.item_id, read.item) == ("chain_sum", "chain_sum", "")
    assert (read.run_id, read.group_id, read.schema_version) == ("uuid", "file:1", 0)
    assert (read.outcome, read.no_signal) == (Outcome.MIXED, False)
    assert [r.base_score for r in read.rollouts] == [1.0, 0.25]
    assert [r.repetition for r in read.rollouts] == [0, 1]
    assert read.rollouts[0].response_tokens is None
    assert list(read.rollouts[0].conversation) == conversation  # no unescaping of what we did not escape


def test_what_pythons_json_writes_is_read_too():
    line = b'{"item_id": "x", "rollouts": [{"conversation": [{"role": "user", "content": "\\ud83d"}], "score": NaN}]}'
    read = from_line(line)
    assert math.isnan(read.rollouts[0].score)
    assert read.rollouts[0].conversation[0]["content"] == "\ud83d"


def test_a_newer_schema_is_refused_by_version_number():
    wire = json.loads(to_line(group())) | {"schema_version": SCHEMA_VERSION + 1}
    with pytest.raises(NewerSchemaError, match=rf"schema version {SCHEMA_VERSION + 1}.*reads up to {SCHEMA_VERSION}"):
        from_line(json.dumps(wire).encode())


def test_a_key_that_a_line_lacks_has_the_default_of_its_field():
    wire = json.loads(to_line(group(rollouts=[1.0, 0.0])))
    del wire["level"], wire["rollouts"][1]["normalized"]
    read = from_line(json.dumps(wire).encode())
    assert read.level is None
    assert [rollout.normalized for rollout in read.rollouts] == [False, False]
    ledger = json.loads(to_line(LedgerRecord.of(group(rollouts=[1.0, 0.0]), None, None)))
    del ledger["normalized"], ledger["attempt"]
    back = record_from_line(LedgerRecord, json.dumps(ledger).encode())
    assert [rollout.normalized for rollout in back.rollouts] == [False, False]
    for name in ("base_score", "outcome", "schema_version"):
        without = {key: value for key, value in ledger.items() if key != name}
        with pytest.raises(BadLineError, match=f"(no|required field) .{name}"):
            record_from_line(LedgerRecord, json.dumps(without).encode())


def test_lists_of_different_lengths_are_no_ledger_line():
    ledger = json.loads(to_line(LedgerRecord.of(group(rollouts=[1.0, 0.0]), None, None))) | {"status": ["ok"]}
    with pytest.raises(BadLineError, match="differ in length"):
        record_from_line(LedgerRecord, json.dumps(ledger).encode())


LINE = to_line(group())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (LINE[:-20], "torn"),
        (LINE[:40] + LINE, "torn"),
        (LINE.strip() + LINE, "more than one record"),
        (b"\0" * 100, "NUL"),
        (LINE[:100] + b"\0" * 50, "NUL"),
        (b"[1, 2]", "not a JSON object"),
        (b"17", "not a JSON object"),
        (b'{"item_id": "x"}', "rollouts"),
        (b'{"item_id": "x", "rollouts": 3}', "not iterable"),
        (b'{"item_id": "x", "rollouts": [3]}', "not a record"),
        (b'{"item_id": "x", "rollouts": [{"score": 1}]}', "conversation"),
        (b'{"item_id": "x", "rollouts": [{"conversation": [], "score": "high"}]}', "not a record"),
        (
            b'{"item_id": "x", "rollouts": [{"conversation": [{"role": 1, "content": ""}], "score": 1}]}',
            "Expected `str`",
        ),
        (LINE.replace(b'"mixed"', b'"splendid"'), "splendid"),
        (b"[" * 100_000, "recursion"),
        (b"\xff\xfe\xfa", "decode"),
    ],
)
def test_a_damaged_line_says_what_is_wrong(line, reason):
    with pytest.raises(BadLineError, match=reason):
        from_line(line)


@given(st.integers(0, len(LINE) - 2))
def test_a_line_torn_anywhere_is_no_record(end):
    with pytest.raises(BadLineError):
        from_line(LINE[:end])


@given(st.binary(max_size=200))
def test_noise_is_a_bad_line_and_nothing_worse(noise):
    with pytest.raises(BadLineError):
        from_line(noise)
    with pytest.raises(BadLineError):
        record_from_line(LedgerRecord, noise)
