"""Suites: what is in them, their files and their fingerprints."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import reasoning_gym
from reasoning_gym.utils import SYSTEM_PROMPTS

from rg_env.base.choices import ResponseFormat
from rg_env.base.errors import ConfigError
from rg_env.configuration.config import RGDumpConfig
from rg_env.evaluate.suites import SuiteTask, load_suite, suite_facts, suite_questions
from rg_env.rows.eval_set import EvalSet
from rg_env.scoring import Scorer
from rg_env.tasks import Item
from rg_env.tasks.registry import task_categories
from tests.documents import ROOT


@pytest.mark.parametrize("name", ["rg_easy", "rg_hard"])
def test_the_published_suites(name: str) -> None:
    suite = load_suite(name)
    assert (suite.name, suite.format) == (name, ResponseFormat.LENIENT)
    assert suite.system_prompt == SYSTEM_PROMPTS["default"]
    tasks = suite.tasks
    assert len({task.name for task in tasks}) == len(tasks) == 100
    assert {(task.size, task.seed) for task in tasks} == {(50, 45)}
    assert sum(bool(task.options) for task in tasks) == {"rg_easy": 0, "rg_hard": 97}[name]


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "suites").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_recipes_load(path: Path) -> None:
    suite = load_suite(path)
    assert suite.name == path.stem
    assert {(task.size, task.seed) for task in suite.tasks} == {(100, 42)}
    assert suite.system_prompt == SYSTEM_PROMPTS["DeepSeekZero"]


@pytest.mark.parametrize(
    ("task", "options"), [("chain_sum", {}), ("gcd", {"min_numbers": 3, "max_numbers": 4}), ("acre", {})]
)
def test_an_item_is_upstreams_own(task: str, options: dict[str, int]) -> None:
    upstream = reasoning_gym.create_dataset(task, size=5, seed=45, **options)
    made = SuiteTask(task, options, size=5, seed=45)
    items = [made.item(index) for index in range(5)]
    assert [item.entry["question"] for item in items] == [entry["question"] for entry in upstream]
    assert [item.entry["answer"] for item in items] == [entry["answer"] for entry in upstream]
    assert len({item.id for item in items}) == 5
    assert items[3].config == (options or None)


def test_the_id_of_an_item_tells_its_options_apart() -> None:
    def first(**options: int) -> str:
        return SuiteTask("gcd", options, size=5, seed=45).item(0).id

    assert first() == SuiteTask("gcd", {}, size=9, seed=45).item(0).id
    assert len({first(), first(max_numbers=3), first(max_numbers=4)}) == 3


class Characters:
    """A tokenizer of characters."""

    def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> str:
        return "".join(message["content"] for message in messages)


def test_the_fixed_suite_is_the_fixed_evaluation_set_as_it_is_asked() -> None:
    """A prompt limit replaces questions, and so changes the fingerprint."""
    config = RGDumpConfig(tasks=["chain_sum"], num_eval_samples_per_task=5, system_prompt=None, format="lenient")
    facts = []
    for limits in ({}, {"tokenizer": Characters(), "max_prompt_length": 90}):
        questions = suite_questions("fixed", config, **limits)
        items = [questions.make(number).item for number in range(len(questions))]
        assert items == EvalSet(config.tasks, config.eval_seed, 5, system_prompt=None, format="lenient", **limits).items
        assert questions.facts == {"suite": suite_facts("fixed", [("chain_sum", i.entry["question"]) for i in items])}
        facts.append((max(len(item.entry["question"]) for item in items), questions.facts))
    assert facts[0][0] > 90 >= facts[1][0]
    assert facts[0][1] != facts[1][1]
    assert config.format == "lenient"


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    suite = load_suite(write(tmp_path, "size: 3\ntasks:\n  gcd: {max_numbers: 3, seed: 7}\n  chain_sum: {size: 2}\n"))
    items = list(suite.items())
    assert [(item.task, item.seed, item.index) for item in items] == [
        ("gcd", 7, 0), ("gcd", 7, 1), ("gcd", 7, 2), ("chain_sum", 45, 0), ("chain_sum", 45, 1),
    ]  # fmt: skip
    assert suite.format is ResponseFormat.STRICT
    with Scorer(workers=1, timeout=30.0) as scorer:
        for item in items:
            assert scorer.score_answer(item.entry, item.entry["answer"], item.config).score == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks: [gdc]", "unknown task 'gdc'; did you mean gcd"),
        ("tasks: {gcd: {max_number: 3}}", "no option 'max_number'; did you mean max_numbers"),
        ("tasks: {gcd: 3}", "must have options as a mapping"),
        ("tasks: gcd", "must be a list of tasks"),
        ("[gcd]", "must be a list of tasks"),
        ("tasks: [gcd]\nsizes: 3", "there is no setting 'sizes'; did you mean size"),
        ("tasks: [gcd]\nsize: 0", "gcd.size=0: must be a whole number of at least 1"),
        ("tasks: [gcd]\nformat: loose", "must be one of strict, lenient"),
        ("tasks: [gcd]\nsystem_prompt: simpel", "no such prompt"),
        ("tasks: [gcd", "is not YAML"),
        ("tasks: [gcd]\ntasks: [lcm]", "'tasks' is given twice"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_suite(write(tmp_path, text))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_suite_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown suite 'rg_hrad'; did you mean rg_hard"):
        load_suite("rg_hrad")
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read \(No such file"):
        load_suite(tmp_path / "none.yaml")


def test_items_that_upstream_cannot_make_are_left_out(tmp_path: Path, warnings: list[str]) -> None:
    """As in `rg_easy`, where the snippets of items 5 and 6 of codeio read more than their arguments."""
    suite = load_suite(write(tmp_path, "tasks: {codeio: {size: 7}, gcd: {size: 1}}"))
    assert [(item.task, item.index) for item in suite.items()] == [*(("codeio", i) for i in range(5)), ("gcd", 0)]
    assert ["2 of 7 items of codeio are left out: " in line for line in warnings] == [True]
    with pytest.raises(ConfigError, match="task 'codeio' cannot make item 0: "):
        list(load_suite(write(tmp_path, "tasks: {gcd: {size: 1}, codeio: {size: 2, seed: 50}}")).items())


def test_the_fingerprint_depends_on_the_questions_alone() -> None:
    def of(*questions: tuple[str, str]) -> str:
        return str(suite_facts("", questions)["fingerprint"])

    first, second, third = ("gcd", "1?"), ("gcd", "2?"), ("lcm", "1?")
    assert of(first, second) == of(second, first)
    assert len({of(first), of(second), of(third), of(first, first), of(first, second), of()}) == 6


def test_a_small_part_of_a_suite_has_items_of_all_its_categories_and_makes_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: Counter[str] = Counter()
    make = SuiteTask.item

    def counting(task: SuiteTask, index: int) -> Item:
        made[task.name] += 1
        return make(task, index)

    monkeypatch.setattr(SuiteTask, "item", counting)
    progress: list[str] = []
    suite = load_suite("rg_easy")
    questions = suite_questions("rg_easy", RGDumpConfig(), 40, note=progress.append)
    asked = [questions.make(index).item.task for index in range(len(questions))]
    assert len(asked) == len(set(asked)) == 40
    assert {task_categories()[task] for task in asked} == {task_categories()[task.name] for task in suite.tasks}
    assert made.total() == 40, "no other items are made"
    assert progress[-1] == "40 of 40 questions"
    assert questions.facts["suite"]["name"] == "rg_easy, 40 of 5,000 questions"
