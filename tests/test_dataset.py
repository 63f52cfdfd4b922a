"""ReasoningGymDataset: rows, splits, lengths, and the parquet export as SkyRL itself reads it."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rg_env.base.errors import ConfigError
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.rows.prompts import THINK_ANSWER
from rg_env.tasks import Item

TASKS = ["chain_sum", "gcd", "rearc", "graph_color"]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A word a token, and a chat template."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=model, unk_token="[UNK]")
    fast.chat_template = (
        "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} \n{% endfor %}"
        "{% if add_generation_prompt %}assistant :{% endif %}{% if opened %} <think>{% endif %}"
    )
    return fast


def words(messages: list[dict[str, str]]) -> int:
    return sum(len(m["content"].split()) + 2 for m in messages) + 2


def test_a_row_is_skyrls_row() -> None:
    dataset = ReasoningGymDataset(TASKS, size=50, seed=7)
    row = dataset.row(17)
    assert list(row) == ["data_source", "prompt", "env_class", "reward_spec", "extra_info"]
    item = Item.from_extra_info(row["extra_info"])
    assert row["data_source"] == item.task == item.entry["metadata"]["source_dataset"]
    assert row["prompt"] == [
        {"role": "system", "content": THINK_ANSWER},
        {"role": "user", "content": item.entry["question"]},
    ]
    assert row["env_class"] == "rg_dump"
    assert row["reward_spec"]["method"] == "rule"
    assert set(row["extra_info"]) == {
        "item", "task", "split", "index", "seed", "entry", "task_config", "level", "complexity",
    }  # fmt: skip
    assert (item.split, item.index, item.seed, item.level) == ("train", 17, 7, "")
    without_answer = ReasoningGymDataset(["graph_color"], size=1).row(0)
    assert without_answer["reward_spec"]["ground_truth"] == ""
    assert Item.from_extra_info(without_answer["extra_info"]).entry["answer"] is None


def test_indexing_gives_what_skyrls_loader_takes() -> None:
    dataset = ReasoningGymDataset(TASKS, size=30)
    messages, env_class, extras, uid = dataset[3]
    row = dataset.row(3)
    assert (messages, env_class) == (row.pop("prompt"), row.pop("env_class"))
    assert extras == row
    assert uid == row["extra_info"]["item"]
    assert dataset.collate_fn([dataset[3]]) == [
        {"prompt": messages, "env_class": "rg_dump", "env_extras": extras, "uid": uid}
    ]
    uids = [dataset[i][3] for i in range(30)]
    assert len(set(uids)) == 30
    assert all(re.fullmatch(r"[A-Za-z0-9_.~-]+", uid) for uid in uids)


def test_slices_and_negative_indices_are_those_of_a_list_and_any_length_costs_nothing() -> None:
    dataset = ReasoningGymDataset(["chain_sum"], size=7)
    rows = [dataset[index] for index in range(7)]
    assert (len(rows), dataset[-1], dataset[-7]) == (7, rows[-1], rows[0])
    assert (dataset[2:5], dataset[::-3], dataset[5:100], dataset[9:]) == (rows[2:5], rows[::-3], rows[5:], [])
    assert dataset.row(-2)["extra_info"]["item"] == rows[5][3]
    for index in (-8, 7, 10**9):
        with pytest.raises(IndexError, match="of a dataset of 7 rows"):
            dataset[index]
    endless = ReasoningGymDataset(["chain_sum"], size=10**15)
    assert (len(endless), endless.row(-1)["extra_info"]["index"]) == (10**15, 10**15 - 1)


def test_the_representation_is_one_line() -> None:
    dataset = ReasoningGymDataset(["chain_sum", "lcm"], size=10**9, seed=7)
    assert repr(dataset) == "ReasoningGymDataset(['chain_sum', 'lcm'], size=1000000000, seed=7, split='train')"
    many = ReasoningGymDataset("gcd,lcm,ab,dice,chain_sum", size=5, split="eval", complexity="random")
    assert repr(many) == "ReasoningGymDataset(<5 tasks>, size=5, seed=42, split='eval', complexity='random')"


def test_rows_depend_on_seed_split_and_index_alone() -> None:
    one, other = ReasoningGymDataset(TASKS, size=40), ReasoningGymDataset(TASKS, size=20)
    assert [one.row(i) for i in reversed(range(20))] == [other.row(i) for i in range(20)][::-1]
    assert pickle.loads(pickle.dumps(one)).row(11) == one.row(11)
    assert ReasoningGymDataset(TASKS, size=20, seed=43).row(3) != one.row(3)
    assert ReasoningGymDataset(TASKS, size=20, split="eval").row(3) != one.row(3)


def test_prompts_over_the_limit_are_replaced(tokenizer: Any) -> None:
    free = ReasoningGymDataset(["chain_sum"], size=60)
    lengths = sorted(words(free[i][0]) for i in range(60))
    limit = lengths[30]
    assert lengths[-1] > limit
    limited = ReasoningGymDataset(["chain_sum"], size=60, tokenizer=tokenizer, max_prompt_length=limit)
    prompts = [limited[i][0] for i in range(60)]
    assert all(words(messages) <= limit for messages in prompts)
    assert any(words(messages) == limit for messages in prompts)
    assert pickle.loads(pickle.dumps(limited)).row(8) == limited.row(8)


def test_the_chat_templates_options_count(tokenizer: Any) -> None:
    def shortest_refused(**options: Any) -> int:
        with pytest.raises(ConfigError) as caught:
            ReasoningGymDataset(["gcd"], tokenizer=tokenizer, max_prompt_length=5, **options)
        return int(re.search(r"has (\d+) tokens", str(caught.value))[1])  # type: ignore[index]

    assert shortest_refused(chat_template_kwargs={"opened": True}) == shortest_refused() + 1


def test_tasks_that_never_fit_are_left_out(tokenizer: Any, warnings: list[str]) -> None:
    told: list[tuple[int, int]] = []
    limits = {"tokenizer": tokenizer, "max_prompt_length": 70}
    dataset = ReasoningGymDataset(["gcd", "rearc"], size=20, progress=lambda *count: told.append(count), **limits)
    assert [task.name for task in dataset.mix.tasks] == ["gcd"]
    assert told == [(0, 2), (1, 2)]
    assert {dataset.item(i).task for i in range(20)} == {"gcd"}
    (warning,) = warnings
    assert re.match(
        r"1 of 2 tasks left out of the mix: rearc \(its prompts do not fit max_prompt_length=70: the shortest of 32",
        warning,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size=0: must be a whole number of at least 1"),
        ({"size": 2.0}, "size=2.0: must be a whole number"),
        ({"seed": -1}, "seed=-1: must be a whole number of at least 0 and below 9223372036854775808"),
        ({"seed": 2**63}, "must be a whole number of at least 0 and below"),
        ({"split": "test"}, "split='test': must be train or eval"),
        ({"max_prompt_length": 100}, "max_prompt_length=100 needs a tokenizer"),
        ({"max_prompt_length": 0}, "max_prompt_length=0: must be"),
        ({"tasks": ["gdc"]}, "unknown task 'gdc'; did you mean gcd"),
        ({"system_prompt": "thinkanswer"}, "no such prompt"),
        ({"worked_examples": [{}]}, r"worked_examples\[0\]: needs"),
    ],
)
def test_impossible_arguments_are_one_clear_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        ReasoningGymDataset(**({"tasks": ["gcd"]} | arguments))
    assert "\n" not in str(caught.value)


def test_the_export_is_what_stock_skyrl_reads(tmp_path: Path, tokenizer: Any) -> None:
    prompt_dataset = pytest.importorskip("skyrl.train.dataset").PromptDataset
    dataset = ReasoningGymDataset(TASKS, size=100)
    path = tmp_path / "rows.parquet"
    dataset.to_parquet(path, rows=40)
    read = prompt_dataset(str(path), tokenizer, max_prompt_length=10**6, num_workers=1)
    assert len(read) == 40
    for i in (0, 13, 39):
        messages, env_class, extras, _ = read[i]
        assert (messages, env_class, extras) == dataset[i][:3]
        assert Item.from_extra_info(extras["extra_info"]) == dataset.item(i)
    assert read.collate_fn([read[0]])[0].keys() == dataset.collate_fn([dataset[0]])[0].keys()


def test_an_export_streams_and_one_that_fails_spoils_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rg_env.rows.parquet.ROW_GROUP", 8)
    path = tmp_path / "rows.parquet"
    dataset = ReasoningGymDataset(["gcd"], size=20)
    dataset.to_parquet(path)
    file = pq.ParquetFile(path)
    assert (file.num_row_groups, file.metadata.num_rows) == (3, 20)
    before, real = path.read_bytes(), dataset.row

    def fail(index: int) -> dict[str, Any]:
        if index == 12:
            raise KeyboardInterrupt
        return real(index)

    monkeypatch.setattr(dataset, "row", fail)
    with pytest.raises(KeyboardInterrupt):
        dataset.to_parquet(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["rows.parquet"]


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("rows.parqet", 1, r"the name must end in \.parquet"),
        ("file/rows.parquet", 1, "cannot be written"),
        ("folder.parquet", 1, "is a folder: give the name of a file"),
        ("rows.parquet", 0, "rows=0: must be a whole number of at least 1 and at most 20"),
        ("rows.parquet", 21, "rows=21: must be a whole number of at least 1 and at most 20"),
    ],
)
def test_places_where_no_export_can_go(tmp_path: Path, name: str, rows: int, message: str) -> None:
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=message):
        ReasoningGymDataset(["gcd"], size=20).to_parquet(tmp_path / name, rows=rows)
