"""Every record comes back from its line; a line that does not fit is corrupt, whatever is wrong with it."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rg_env.configuration.config import RGDumpConfig
from rg_env.dump import (
    BadLineError,
    DumpWriter,
    FileKind,
    GroupRecord,
    LedgerRecord,
    NewerSchemaError,
    NotKept,
    Outcome,
    RolloutRecord,
    StepRecord,
    TrainedRecord,
    from_line,
    ledger_line,
    open_run,
    to_line,
)
from rg_env.dump.schema import GROUP_FACTS, ROLLOUT_FACTS, SCHEMA_VERSION, RolloutFacts
from rg_env.scoring.types import Status, Violation
from tests.dump.records import RUN_ID, group, rollout

any_text = st.text(st.characters(exclude_categories=["Cs"]))
number = st.floats() | st.sampled_from([1e308, 5e-324, -0.0])
whole = st.integers(-(2**63), 2**63 - 1)
rollouts = st.builds(
    RolloutRecord,
    conversation=st.lists(
        st.builds(lambda role, text: {"role": role, "content": text}, any_text, any_text), max_size=3
    ),
    score=number,
    reward=number,
    base_score=number,
    raw_score=st.none() | number,
    tagged_score=st.none() | number,
    violation=st.just("") | st.sampled_from(Violation),
    status=st.sampled_from(Status),
    detail=any_text,
    answer=any_text,
    response_tokens=st.none() | whole,
    stop_reason=any_text,
    truncated=st.booleans(),
    penalty_factor=number,
    repetition=st.integers(0, 1000),
    normalized=st.booleans(),
)
groups = st.builds(
    group,
    uid=any_text,
    rollouts=st.lists(rollouts, max_size=3),
    item=any_text,
    step=st.none() | whole,
    level=any_text,
    task=any_text,
    entry=any_text,
    outcome=st.sampled_from(Outcome),
)


def _plain(record):
    """What a line can hold of a record: no number that is not finite."""
    return json.loads(to_line(record))


@given(groups)
def test_a_group_comes_back_from_its_line(record):
    line = to_line(record)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    back = from_line(GroupRecord, line)
    assert _plain(back) == _plain(record)
    for before, after in zip(record.rollouts, back.rollouts, strict=True):
        assert after.score == before.score or (math.isnan(after.score) and not math.isfinite(before.score))
        assert after.violation == before.violation and after.status is before.status


@given(groups, st.sampled_from([(FileKind.EVAL, ""), (None, NotKept.OTHER_OFF)]))
def test_the_ledger_has_the_facts_of_its_group(record, where):
    text, reason = where
    back = from_line(FileKind.LEDGER.record, ledger_line(record, text, reason))
    assert isinstance(back, LedgerRecord)
    assert (back.text, back.text_reason) == (text or "", reason)
    assert all(getattr(back, name) == getattr(record, name) for name in GROUP_FACTS)
    expected = [{name: plain[name] for name in ROLLOUT_FACTS} for plain in _plain(record)["rollouts"]]
    assert [json.loads(msgspec.json.encode(facts)) for facts in back.rollouts] == expected


@pytest.mark.parametrize(
    "record",
    [
        group(),
        TrainedRecord(RUN_ID, 1, 3, group().group_id, 8),
        StepRecord(RUN_ID, 1, 0, ["eval/all", "lr"], [0.5, None]),
    ],
)
def test_records_of_other_kinds_come_back(record):
    assert from_line(type(record), to_line(record)) == record


@settings(max_examples=25)
@given(st.lists(groups, max_size=6))
def test_what_is_submitted_comes_out_of_the_files(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("dump")
    records = [msgspec.structs.replace(record, group_id=str(k)) for k, record in enumerate(records)]
    with DumpWriter(folder, RUN_ID, 1, RGDumpConfig(groups_per_file=2)) as writer:
        assert writer.submit(records).result(20)
    if not records:
        assert not list(folder.iterdir())
        return
    dump = open_run(folder)
    assert [record.group_id for record in dump.all_attempts().ledger()] == [record.group_id for record in records]
    texts = sorted(dump.all_attempts().groups(), key=lambda record: int(record.group_id))
    kept = [record for record in records if any(r.status is not Status.NO_RESPONSE for r in record.rollouts)]
    assert list(map(_plain, texts)) == list(map(_plain, kept))
    assert not dump.findings().counts["corrupt_line"]


def test_the_keys_of_atropos_are_there():
    line = _plain(group(task="gcd"))
    assert line["item_id"] == "gcd"
    assert [sorted(message) for message in line["rollouts"][0]["conversation"]] == [["content", "role"]] * 2
    assert line["rollouts"][0]["score"] == 1.0


def test_a_line_of_a_later_version_says_update():
    line = json.dumps(_plain(group()) | {"schema_version": SCHEMA_VERSION + 1, "outcome": "unheard of"}).encode()
    with pytest.raises(NewerSchemaError, match="update rg_env"):
        from_line(GroupRecord, line)


def test_unknown_keys_are_ignored_and_missing_ones_have_their_default():
    line = _plain(group(level='{"terms": 2}')) | {"mood": "good"}
    del line["level"]
    assert from_line(GroupRecord, json.dumps(line).encode()).level == ""


def test_a_ledger_of_before_a_field_was_added_is_read():
    line = json.loads(ledger_line(group(rollouts=[1.0, 0.0]), None)) | {"mood": ["good", "bad"]}
    assert line.pop("normalized") == [False, False] and line.pop("custom_reward") == [None, None]
    back = from_line(FileKind.LEDGER.record, json.dumps(line).encode())
    assert [(r.base_score, r.normalized, r.custom_reward) for r in back.rollouts] == [
        (1.0, False, None),
        (0.0, False, None),
    ]
    for wrong in ({"normalized": None}, {"normalized": []}):
        with pytest.raises(BadLineError):
            from_line(FileKind.LEDGER.record, json.dumps(line | wrong).encode())


LINE = to_line(group())
TEXT = LINE.decode()
DAMAGED = {
    "nothing": b"",
    "torn": LINE[: len(LINE) // 2],
    "two joined": LINE[:-1] + LINE,
    "a torn one and a whole one": LINE[:50] + LINE,
    "no object": b"[1]",
    "zeros": bytes(50),
    "a lone surrogate": TEXT.replace('"uid":"0"', r'"uid":"\ud800"').encode(),
    "not UTF-8": LINE.replace(b'"uid":"0"', b'"uid":"\xff"'),
    "deeply nested": LINE.replace(b'"uid":"0"', b'"uid":' + b"[" * 100_000 + b"]" * 100_000),
    "null for a text": TEXT.replace('"uid":"0"', '"uid":null').encode(),
    "a word for a number": TEXT.replace('"attempt":1', '"attempt":"1"').encode(),
    "beyond 64 bits": TEXT.replace('"attempt":1', f'"attempt":{2**63}').encode(),
    "an unknown word": TEXT.replace('"outcome":"mixed"', '"outcome":"mixd"').encode(),
    "an unknown violation": TEXT.replace('"violation":""', '"violation":"rude"', 1).encode(),
    "true for a number": TEXT.replace('"reward":1.0', '"reward":true').encode(),
    "a missing key": TEXT.replace('"outcome"', '"income"').encode(),
    "a rollout that is none": TEXT.replace('"rollouts":[', '"rollouts":[null,').encode(),
    "a message without a role": TEXT.replace('"role"', '"rule"', 1).encode(),
    "Atropos": b'{"item_id": "gcd", "rollouts": [{"conversation": [], "score": 1.0}]}',
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damage_of_any_kind_is_a_bad_line(what):
    assert DAMAGED[what] != LINE
    with pytest.raises(BadLineError):
        from_line(GroupRecord, DAMAGED[what])


def test_lists_of_different_lengths_are_a_bad_line():
    line = json.loads(ledger_line(group(rollouts=[1.0, 0.0]), None)) | {"status": ["ok"]}
    with pytest.raises(BadLineError, match="differ in length"):
        from_line(FileKind.LEDGER.record, json.dumps(line).encode())


@given(st.integers(0, len(LINE) - 2))
def test_a_line_cut_off_anywhere_is_a_bad_line(end):
    with pytest.raises(BadLineError):
        from_line(GroupRecord, LINE[:end])


@given(st.binary())
def test_noise_is_a_bad_line(noise):
    for kind in FileKind:
        with pytest.raises(BadLineError):
            from_line(kind.record, noise)


def test_what_is_no_number_is_null_in_a_line_and_nan_in_a_record():
    line = to_line(group(rollouts=[rollout(reward=math.nan, raw_score=math.inf)]))
    assert b'"reward":null' in line and b'"raw_score":null' in line
    (back,) = from_line(GroupRecord, line).rollouts
    assert math.isnan(back.reward) and back.raw_score is None


def test_the_ledger_has_a_list_for_each_field_of_a_rollout():
    lists = {field.name: field for field in msgspec.structs.fields(LedgerRecord)}
    for field in msgspec.structs.fields(RolloutFacts):
        assert lists[field.name].required == field.required, field.name
    assert LedgerRecord.__struct_fields__[-len(ROLLOUT_FACTS) :] == ROLLOUT_FACTS
