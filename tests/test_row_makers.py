"""The processes that make the rows of a run: what they import, the order of batches, and how a failure is reported."""

import os
import sys

import pytest

from rg_env.base.errors import ConfigError, RGEnvError
from rg_env.configuration.modules import IMPORTS
from rg_env.rows.dataset import ReasoningGymDataset
from rg_env.rows.row_makers import RowMakers
from rg_env.skyrl.cpu.cpu_settings import nano_path

HEAVY = {"torch", "ray", "skyrl", "vllm", "matplotlib"}


class Odd(ReasoningGymDataset):
    """Rows of which some fail, and which name the heavy modules in their process."""

    def item_of_run(self, number):
        if number == 66:
            os._exit(1)
        if number == 77:
            raise ConfigError("no such row")
        if number == 88:
            raise ValueError("broken generator")
        return super().item_of_run(number)

    def example_of(self, item):
        messages, env_class, extras, uid = super().example_of(item)
        return messages, env_class, {**extras, "process": os.getpid(), "heavy": sorted(HEAVY & {*sys.modules})}, uid


def test_rows_with_a_prompt_limit_are_made_without_torch_in_processes_that_share_their_imports():
    from rg_env.rows.templates import load_tokenizer

    limits = {"tokenizer": load_tokenizer(nano_path()), "max_prompt_length": 200}
    dataset = Odd(["leg_counting", "spell_backward"], seed=7, **limits)
    batches = list(RowMakers(dataset, 2).ahead([[0, 1], [2, 3], [5], [4]]))
    rows = [row for batch in batches for row in batch]
    assert [row["uid"] for row in rows] == [f"{dataset[k][3]}#{k}" for k in (0, 1, 2, 3, 5, 4)]
    assert [row["env_extras"]["heavy"] for row in rows] == [[]] * 6
    assert len({row["env_extras"]["process"] for row in rows} - {os.getpid()}) == 2


def test_what_a_row_raises_and_a_process_that_ends_are_reported_and_lost_batches_do_not_come_back():
    makers = RowMakers(Odd(["gcd"], seed=7), 2)
    with pytest.raises(ConfigError, match=r"^no such row$"):
        list(makers.ahead([[0], [77], [1]]))
    # The text, by which `in_user_code` finds the file.
    with pytest.raises(RuntimeError, match=r'test_row_makers.py", line \d+, in item_of_run(.|\n)*ValueError: broken'):
        list(makers.ahead([[88]]))
    makers.ahead([[2], [3], [4]])
    assert [row["uid"].partition("#")[2] for batch in makers.ahead([[5], [6], [7]]) for row in batch] == ["5", "6", "7"]
    for batches in ([[66]], [[0]], [[0]]):  # it does not come back
        with pytest.raises(RGEnvError, match="a process that makes rows of training ended"):
            list(makers.ahead(batches))


def test_a_module_with_tasks_that_cannot_be_imported_is_named(monkeypatch):
    monkeypatch.setenv(IMPORTS, "no_module_of_this_name")
    with pytest.raises(ConfigError, match="no module 'no_module_of_this_name'"):
        list(RowMakers(Odd(["gcd"], seed=7), 1).ahead([[0]]))
