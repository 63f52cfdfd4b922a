"""Items are pure functions of their index; splits are disjoint; no outside state changes."""

from __future__ import annotations

import decimal
import json
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import reasoning_gym

from rg_env.base.errors import ConfigError
from rg_env.rows.eval_set import EvalSet
from rg_env.scoring import Scorer
from rg_env.scoring.scorer import reference_answer
from rg_env.tasks import Item, ItemStream, Split, decode_entry, encode_entry, hash64, items, split_of, task_names
from rg_env.tasks.upstream.generators import FIXES, solve_swap
from rg_env.tasks.upstream.patched_dataset import UpstreamDataset
from tests.running import program, run_command
from tests.tasks.test_entry_json import same

HASH_SEED_TASKS = (
    "codeio",
    "isomorphic_strings",
    "polynomial_multiplication",
    "ransom_note",
    "word_ladder",
)
"""What upstream makes differently in every process; so does it knight_swap, which takes 0.2 s an item."""
TASKS = (*HASH_SEED_TASKS, "acre", "gsm_symbolic", "list_functions", "pool_matrix", "decimal_arithmetic", "bf", "rearc")


def stream(task: str, seed: int = 42, split: Split = Split.TRAIN, **kwargs: Any) -> ItemStream:
    return ItemStream(task, kwargs.pop("options", {}), seed, split, **kwargs)


@pytest.mark.long
def test_entries_of_all_tasks_are_the_same_in_every_process_and_survive_json() -> None:
    # intermediate_integration: sympy picks among equivalent antiderivatives by hash seed (see `generators`).
    tasks = [task for task in task_names() if task != "intermediate_integration"]
    items_here = {task: stream(task).item(1) for task in tasks}
    for item in [*items_here.values(), stream("intermediate_integration").item(1)]:
        assert same(item.entry, decode_entry(item.entry_json)), item.task
    environment = {"PYTHONHASHSEED": "3", "PYTHONWARNINGS": "ignore"}
    run = run_command(*program("print_items", ",".join(tasks)), env=environment)
    made = json.loads(run.stdout)  # and so nothing else was printed
    assert made == {task: item.entry_json for task, item in items_here.items()}


def test_the_order_of_access_and_pickling_do_not_matter() -> None:
    for task in TASKS:
        forward, backward = stream(task), stream(task)
        items_of = [forward.item(i) for i in range(3)]
        assert [backward.item(i) for i in reversed(range(3))] == items_of[::-1]
        assert pickle.loads(pickle.dumps(forward)).item(2) == items_of[2]


def test_nothing_outside_is_read_or_changed() -> None:
    before = {task: stream(task).item(1).entry_json for task in TASKS}
    random.seed(1)
    np.random.seed(1)
    decimal.getcontext().prec = 7
    try:
        python, numpy = random.getstate(), np.random.get_state()
        for task in TASKS:
            assert stream(task).item(1).entry_json == before[task]
        assert random.getstate() == python
        assert np.array_equal(np.random.get_state()[1], numpy[1])
        assert np.random.get_state()[2] == numpy[2]
        assert decimal.getcontext().prec == 7
    finally:
        decimal.getcontext().prec = 28


@pytest.mark.parametrize(("task", "count"), [("list_functions", 400), ("codeio", 80)])
def test_rare_readers_of_the_global_random_state_are_fixed(task: str, count: int) -> None:
    """One of list_functions' 17 generators reads it, and about 1 in 20 of codeio's snippets."""
    made = []
    for global_seed in (1, 2):
        random.seed(global_seed)
        state = random.getstate()
        items_of = stream(task)
        made.append([items_of.item(i).entry_json for i in range(count)])
        assert random.getstate() == state
    assert made[0] == made[1]


def test_figlet_fonts_do_not_depend_on_the_order_of_files_or_on_added_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    from reasoning_gym.cognition import figlet_fonts

    before = [stream("figlet_font").item(index).entry_json for index in range(4)]
    monkeypatch.setattr(figlet_fonts, "OK_FONTS", ["added", *reversed(figlet_fonts.OK_FONTS), "another"])
    assert [stream("figlet_font").item(index).entry_json for index in range(4)] == before


def test_threads_get_the_same_items() -> None:
    jobs = [(task, index) for index in range(3) for task in TASKS]
    streams = {task: stream(task) for task in TASKS}
    alone = [streams[task].item(index) for task, index in jobs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda job: streams[job[0]].item(job[1]), jobs)) == alone


def test_upstream_is_left_as_it_is() -> None:
    from reasoning_gym.factory import DATASETS
    from reasoning_gym.induction.list_functions import generators

    def state() -> dict[str, dict[str, Any]]:
        classes = {task: {**vars(DATASETS[task][0])} for task in FIXES}
        for found in classes.values():
            found.pop("__slotnames__", None)  # a cache of copy.copy
        return classes | {"generators": {**vars(generators)}}

    before = state()
    for task in FIXES:
        stream(task).item(0)
    changed = {name for name, found in state().items() if found != before[name]}
    assert changed <= {"codeio"}  # its __init__ sets an attribute of the class


def test_most_items_are_upstreams_own() -> None:
    """A warm template re-seeded gives what a fresh dataset with that seed gives."""
    for task in ("chain_sum", "sudoku", "arc_1d", "number_sequence", "sokoban", "gsm_symbolic", "pool_matrix", "bf"):
        seed = 2**32 - 2
        fresh = reasoning_gym.create_dataset(task, seed=seed, size=1)[0]
        assert encode_entry(UpstreamDataset(task, {}).make(seed)) == encode_entry(fresh)


def test_codeio_difficulties_do_not_mix() -> None:
    """Upstream keeps the snippets of the latest instance in its class."""
    easy = stream("codeio", options={"difficulty": 6})
    before = easy.item(1)
    stream("codeio", options={"difficulty": 9}).item(0)
    assert easy.item(1) == before


def test_acre_draws_all_its_kinds_of_question() -> None:
    answers = {UpstreamDataset("acre", {}).make(hash64(i) >> 32)["answer"] for i in range(60)}
    assert answers == {"on", "off", "undetermined"}


@pytest.mark.parametrize("task", ["tower_of_hanoi", "coin_flip"])
def test_train_and_eval_share_no_question_for_any_seeds(task: str) -> None:
    def questions(split: Split, count: int) -> set[str]:
        streams = [stream(task, seed, split) for seed in (42, 123, 7)]
        return {one.item(i).entry["question"] for one in streams for i in range(count)}

    train, evaluation = questions(Split.TRAIN, 150), questions(Split.EVAL, 40)
    assert len(train) > 20
    assert len(evaluation) > 5
    assert not train & evaluation
    share = sum(split_of("task", f"question {i}") is Split.EVAL for i in range(8000)) / 8000
    assert 0.11 < share < 0.14  # an eighth


def test_neighboring_seeds_share_no_items() -> None:
    """Upstream, item 1 of seed 42 is item 0 of seed 43."""
    streams = [stream("sudoku", seed) for seed in range(42, 47)]
    questions = [one.item(i).entry["question"] for one in streams for i in range(5)]
    assert len(set(questions)) == 25


def test_a_fixed_set_has_distinct_questions_while_there_are_any(warnings: list[str]) -> None:
    fixed = EvalSet(["tower_of_hanoi"], samples_per_task=8).items
    assert len({item.entry["question"] for item in fixed}) == 8
    assert warnings == []


def test_a_fixed_set_repeats_when_the_task_has_no_more(monkeypatch: pytest.MonkeyPatch, warnings: list[str]) -> None:
    monkeypatch.setattr(items, "UpstreamDataset", FewQuestions)
    fixed = EvalSet(["gcd"], samples_per_task=12).items
    possible = {f"question {i}" for i in range(30) if split_of("gcd", f"question {i}") is Split.EVAL}
    assert {item.entry["question"] for item in fixed} == possible
    assert len({item.id for item in fixed}) == 12
    (warning,) = warnings
    assert f"only {len(possible)} different questions" in warning


class FewQuestions:
    """Stands for a task with so many questions, named `question 0` on; odd seeds fail if asked."""

    def __init__(self, task: str, options: dict[str, Any]) -> None:
        self.count, self.fails = options.get("questions", 30), options.get("fails", "no")

    def make(self, seed: int, item: str) -> dict[str, Any]:
        if self.fails == "always" or (self.fails == "often" and seed % 2):
            raise ValueError("no\npuzzle found")
        return {"question": f"question {seed % self.count}", "answer": "1", "metadata": {}}


def test_a_task_that_cannot_be_used_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    never = stream("chain_sum", prompt_length=lambda task, question: 700, max_prompt_length=512)
    with pytest.raises(ConfigError, match=r"do not fit max_prompt_length=512: the shortest of 32 has 700 tokens"):
        never.item(0)
    monkeypatch.setattr(items, "UpstreamDataset", FewQuestions)
    with pytest.raises(ConfigError, match="it cannot make an item: ValueError: no puzzle found"):
        stream("few", options={"fails": "always"}).item(0)
    wrong = Split.EVAL if split_of("few", "question 0") is Split.TRAIN else Split.TRAIN
    with pytest.raises(ConfigError, match=f"too few questions: none of 256 draws is usable for the {wrong} split"):
        stream("few", split=wrong, options={"questions": 1}).item(0)


def test_single_failures_are_redrawn_with_one_warning(monkeypatch: pytest.MonkeyPatch, warnings: list[str]) -> None:
    monkeypatch.setattr(items, "UpstreamDataset", FewQuestions)
    often = stream("few", options={"fails": "often", "questions": 1000})
    assert len({often.item(i).entry["question"] for i in range(30)}) > 20
    assert warnings == ["task few: a draw failed (ValueError: no puzzle found); such draws are made again"]


def test_a_failure_of_the_machine_is_not_taken_for_one_of_the_item(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(UpstreamDataset, "make", fail)
    with pytest.raises(OSError, match="too many open files"):
        stream("gcd").item(0)


def test_in_laws_with_names_of_ones_own(warnings: list[str]) -> None:
    # Three of them are women among upstream's names.
    men, women = (
        ["Tom", "Bob", "Jim", "River", "Sky", "Rain", "Dan", "Pat"],
        ["Ann", "Sue", "Eve", "Kim", "Amy", "Liz", "Pam", "Fay"],
    )
    options = {"male_names": men, "female_names": women}
    families = stream("family_relationships", options=options)
    entries = [families.item(index).entry for index in range(120)]
    assert not warnings
    answers = {"daughter-in-law": women, "son-in-law": men, "niece": women, "nephew": men}
    found = [entry for entry in entries if entry["answer"] in answers]
    assert len(found) > 10
    assert all(entry["metadata"]["person1"] in answers[entry["answer"]] for entry in found)
    assert all(reference_answer(entry) == entry["answer"] for entry in entries)
    with Scorer(workers=1, timeout=30.0) as scorer:
        for entry in found:
            assert scorer.score_answer(entry, entry["answer"], options).score == 1.0
            # As upstream made it, which does not say who is a man.
            metadata = {**entry["metadata"], "male_names": None}
            assert scorer.score_answer({**entry, "metadata": metadata}, entry["answer"], options).score == 1.0


def test_long_prompts_are_redrawn_without_holes() -> None:
    def length(task: str, question: str) -> int:
        return len(question)

    unlimited = stream("chain_sum")
    free = [unlimited.item(i).entry["question"] for i in range(40)]
    limit = sorted(map(len, free))[20]
    assert len(max(free, key=len)) > limit
    limited = stream("chain_sum", prompt_length=length, max_prompt_length=limit)
    kept = [limited.item(i).entry["question"] for i in range(40)]
    assert all(len(question) <= limit for question in kept)
    assert [q for q in free if len(q) <= limit] == [k for q, k in zip(free, kept, strict=True) if len(q) <= limit]


def test_an_index_without_a_fitting_draw_repeats_the_first_item(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    fussy = stream("tower_of_hanoi", split=Split.EVAL)
    assert not fussy.fault
    monkeypatch.setattr(items, "MAX_REDRAWS", 6)
    rows = [fussy.item(i) for i in range(40)]
    assert all(split_of(row.task, row.entry["question"]) is Split.EVAL for row in rows)
    assert len({row.id for row in rows}) == 40
    assert any(row.id == f"{fussy.first.id}#{index}" for index, row in enumerate(rows))
    (warning,) = warnings
    assert "such rows repeat its first item" in warning


def test_options_reach_the_items() -> None:
    item = stream("chain_sum", options={"min_terms": 3, "max_terms": 3}).item(0)
    assert item.entry["metadata"]["difficulty"]["num_terms"] == (3, 3)
    assert item.config == {"min_terms": 3, "max_terms": 3}
    assert stream("chain_sum").item(0).config is None


def test_an_item_comes_back_from_its_row_and_shares_nothing_that_can_be_changed() -> None:
    item = stream("rearc").item(5)
    info = item.extra_info()
    assert all(isinstance(value, (str, int, float, type(None))) for value in info.values())
    first, second = Item.from_extra_info(info), Item.from_extra_info(json.loads(json.dumps(info)))
    assert first == second == item
    assert item.id == "rearc-train-42-5"
    first.entry["metadata"]["output"] = None
    assert Item.from_extra_info(info) == second != first


@pytest.mark.parametrize("info", [None, {}, {"index": 3}, "text", {"entry": "{", "task_config": "{}"}])
def test_a_row_of_another_origin_is_refused(info: object) -> None:
    with pytest.raises(ConfigError, match="got a row without its item"):
        Item.from_extra_info(info)


@pytest.mark.parametrize(("seed", "moves"), [(11, None), (12, 8)])
def test_knights_are_swapped_in_as_few_moves_as_upstream_needs(seed: int, moves: int | None) -> None:
    from reasoning_gym.games.knight_swap import KnightSwapLogic

    board = KnightSwapLogic.generate_board(6, random.Random(seed))
    first, *_, last = sorted(board)
    pieces: dict[str, Any] = dict.fromkeys(board) | {first: "w", last: "B"}
    ours, theirs = solve_swap(board, pieces), KnightSwapLogic.solve_swap(board, pieces)
    if moves is None:
        assert ours is None
        assert theirs is None
        return
    assert ours is not None
    assert len(ours) == len(theirs) == moves
    for color, here, there in ours:
        assert there in board[here]
        assert (pieces[here], pieces[there]) == (color, None)
        pieces |= {here: None, there: color}
    assert (pieces[first], pieces[last]) == ("B", "w")
