"""A dump file loads unchanged in the libraries that people use, whatever is absent in its first lines."""

from __future__ import annotations

import datasets
import duckdb
import pandas as pd
import polars as pl
import pytest

from rg_env.dump import FileKind, ledger_line, to_line
from tests.dump.records import group, rollout, violating

BARE = {"violation": "", "answer": "", "stop_reason": "", "policy_version": "", "detail": ""}
MANY = 150  # more lines than polars looks at to find the types


def _texts_absent_then_present():
    for uid in range(MANY):
        yield group(uid, [rollout(1.0, k, **BARE) for k in range(2)], level="")
    yield group(MANY, [violating(0), rollout(0.5, 1, detail="slow")])


def _all_absent():
    bare = BARE | {"raw_score": None, "tagged_score": None}
    for uid in range(5):
        yield group(uid, [rollout(0.0, k, **bare) for k in range(2)], level="", step=None)


def _difficult_texts():
    for uid, text in enumerate(["\uffff", "\0", "\u2028\r\n", "𝔘" * 1000, "2024-01-01", '{"a": 1}']):
        conversation = [{"role": "user", "content": text}]
        yield group(
            uid,
            [rollout(1.0, conversation=conversation, answer=text)],
            task=text,
            item_id="chain_sum",
            item=text,
            entry=text,
        )


def _nothing_scored_but_in_the_last_line_of_a_full_batch():
    yield from (group(uid, [violating(k) for k in range(2)], step=None) for uid in range(99))
    yield group(99, [0.25, 0.5])


DUMPS = {
    "texts absent at first": _texts_absent_then_present,
    "all absent": _all_absent,
    "difficult texts": _difficult_texts,
    "numbers absent at first": _nothing_scored_but_in_the_last_line_of_a_full_batch,
}


@pytest.fixture(params=DUMPS)
def dump(request, tmp_path):
    groups = list(DUMPS[request.param]())
    text, ledger = tmp_path / "text.jsonl", tmp_path / "ledger.jsonl"
    text.write_bytes(b"".join(map(to_line, groups)))
    ledger.write_bytes(b"".join(ledger_line(g, FileKind.ROLLOUTS) for g in groups))
    return groups, text, ledger


def _scores(groups):
    return [[r.score for r in g.rollouts] for g in groups]


def test_datasets(dump, tmp_path):
    groups, *files = dump
    for file in files:
        loaded = datasets.load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
        assert loaded["item_id"][:] == ["chain_sum"] * len(groups)
        assert loaded["uid"][:] == [g.uid for g in groups]
        assert loaded.features["task"].dtype == "string"
    text = datasets.load_dataset("json", data_files=str(files[0]), split="train", cache_dir=str(tmp_path / "cache"))
    assert [[r["score"] for r in rollouts] for rollouts in text["rollouts"]] == _scores(groups)


def test_pandas(dump):
    groups, text, ledger = dump
    frame = pd.read_json(text, lines=True)
    assert list(frame["item_id"]) == ["chain_sum"] * len(groups)
    assert [[r["score"] for r in rollouts] for rollouts in frame["rollouts"]] == _scores(groups)
    assert list(pd.read_json(ledger, lines=True)["score"]) == _scores(groups)


def test_polars(dump):
    groups, text, ledger = dump
    for load in (pl.read_ndjson, lambda path: pl.scan_ndjson(path).collect()):
        frame = load(text)
        assert frame["item_id"].to_list() == ["chain_sum"] * len(groups)
        assert frame["uid"].to_list() == [g.uid for g in groups]
        assert [[r["score"] for r in rollouts] for rollouts in frame["rollouts"].to_list()] == _scores(groups)
        assert load(ledger)["score"].to_list() == _scores(groups)


def test_duckdb(dump):
    groups, text, ledger = dump
    for file in (text, ledger):
        rows = duckdb.sql(f"select item_id, uid from read_json_auto('{file}')").fetchall()
        assert [(row[0], str(row[1])) for row in rows] == [("chain_sum", g.uid) for g in groups]
    rows = duckdb.sql(f"select unnest(rollouts).score from read_json_auto('{text}')").fetchall()
    assert [row[0] for row in rows] == [score for scores in _scores(groups) for score in scores]
