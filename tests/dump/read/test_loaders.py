"""A dump loads unchanged in the libraries that people use, whatever is absent in its first lines or its first file."""

from __future__ import annotations

import json

import datasets
import duckdb
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

from rg_env.base.errors import ConfigError
from rg_env.cli import app
from rg_env.dump import ColumnTypes, FileKind, ledger_line, open_run, to_line
from rg_env.dump.files import batch_name
from tests.dump.records import RUN_ID, group, rollout, violating

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


# -- several files, with the types of `ColumnTypes`


def _polars(files, types, folder):
    return pl.read_ndjson(files, schema=types.polars).to_dicts()


def _pandas(files, types, folder):
    frames = [
        pd.read_json(file, lines=True, dtype=False, precise_float=True) for file in sorted(folder.glob(files.name))
    ]
    return pd.concat(frames).astype(types.pandas).to_dict("records")


def _duckdb(files, types, folder):
    return duckdb.sql(f"FROM read_json('{files}', columns={types.duckdb})").pl().to_dicts()


def _datasets(files, types, folder):
    return list(_load("json", folder, data_files=str(files), split="train", features=types.datasets))


def _card(files, types, folder):
    """Without this package: the card has the types."""
    done = CliRunner().invoke(app, ["dumps", "export", "card", str(folder)])
    assert done.exit_code == 0, done.output
    return list(_load(str(folder), folder, name=types.kind, split="train"))


def _load(source, folder, **options):
    return datasets.load_dataset(source, cache_dir=str(folder.parent / "cache"), **options)


@pytest.fixture
def unscored_first(tmp_path):
    """Two files of each kind; in the first, every list and number that may be null or empty is."""
    batches = [
        [group(0, [violating(0)], step=None), group(1, [violating(0), violating(1)], step=None)],
        [group(2, [0.35, 0.57, 0.82], started_at=1763700000.123, solved_at=0.95, complexity=0.7)],
    ]
    folder = tmp_path / "dump"
    folder.mkdir()
    for number, groups in enumerate(batches):
        texts, ledger = [], []
        for each in groups:
            texts.append(to_line(each))
            ledger.append(ledger_line(each, FileKind.OTHER))
        (folder / batch_name(FileKind.OTHER, RUN_ID, number)).write_bytes(b"".join(texts))
        (folder / batch_name(FileKind.LEDGER, RUN_ID, number)).write_bytes(b"".join(ledger))
    return folder


@pytest.mark.parametrize("kind", ["other_rollouts", "ledger"])
@pytest.mark.parametrize("read", [_polars, _pandas, _duckdb, _datasets, _card])
def test_values_of_a_dump_whose_first_file_has_no_score(unscored_first, read, kind):
    files = unscored_first / batch_name(FileKind(kind), RUN_ID, 0).replace("0000", "*")
    expected = [json.loads(line) for path in sorted(unscored_first.glob(files.name)) for line in path.open()]
    assert _known(expected)[0]["raw_score"] == [None] and _known(expected)[2]["raw_score"] == [0.35, 0.57, 0.82]
    found = _known(read(files, ColumnTypes(kind), unscored_first))
    if read in (_datasets, _card):  # version 5.2 changes the last bit of some numbers
        found, expected = _rounded(found), _rounded(expected)
    assert found == _known(expected)


def _rounded(rows):
    return json.loads(json.dumps(rows), parse_float=lambda number: float(f"{float(number):.15g}"))


def _known(rows):
    """The rows with None for what a library has in its place, and the raw scores of a row as a list of its own."""
    made = []
    for row in rows:
        plain = {}
        for name, value in row.items():
            is_missing = not isinstance(value, (list, str)) and pd.isna(value)
            plain[name] = None if is_missing else value
        if "rollouts" in plain:
            plain["raw_score"] = [rollout["raw_score"] for rollout in plain.pop("rollouts")]
        made.append(plain)
    return made


def test_column_types_are_those_of_our_own_frames(unscored_first):
    frame = pl.read_ndjson(unscored_first / "*_ledger_*", schema=ColumnTypes("ledger").polars)
    lists = [name for name, dtype in frame.schema.items() if dtype == pl.List]
    assert frame.explode(lists).equals(open_run(unscored_first).ledger_frame())
    assert list(ColumnTypes(FileKind.OTHER).polars) == list(json.loads(to_line(group())))


def test_an_unknown_kind_is_one_line():
    with pytest.raises(ConfigError, match=r"kind='rollout': use one of rollouts, FAILED_rollouts"):
        _ = ColumnTypes("rollout").duckdb
