"""Makes the items of a fixed evaluation set on all cores that this process may use.

`python -m rg_env.eval_maker` is a separate program because it forks. It reads a pickled (tasks, options) from standard
input and writes a JSON object from task to `Outcome` to standard output. It ends with the thread that started it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import orjson
from loguru import logger

from rg_env.dataset import ReasoningGymDataset
from rg_env.errors import ConfigError, describe
from rg_env.processes import die_with_parent, usable_cores
from rg_env.tasks import TaskMix, TaskSpec
from rg_env.tasks.upstream.dataset import reasoning_gym
from rg_env.user_code import import_inherited

Outcome = dict[str, Any]
"""`items`: the items of a task in order, as `Item.extra_info` gives them. Or `error`: why the task cannot be used."""


def outcome_of(task: TaskSpec, options: Mapping[str, Any]) -> Outcome:
    """Make the items of a task.

    Args:
        options: of `ReasoningGymDataset.fixed_eval`.
    """
    try:
        dataset = ReasoningGymDataset.fixed_eval(TaskMix((task,)), **options)
        return {"items": [dataset.item(index).extra_info() for index in range(len(dataset))]}
    except ConfigError as error:
        cause = error.__cause__ or error
        return {"error": str(cause) if isinstance(cause, ConfigError) else describe(cause)}


def main() -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent decides
    answer = os.dup(1)
    os.dup2(2, 1)  # what generators print is not part of the answer
    import_inherited()
    reasoning_gym()
    logger.remove()
    tasks, options = pickle.load(sys.stdin.buffer)
    context = get_context("fork")
    with ProcessPoolExecutor(usable_cores(), mp_context=context, initializer=die_with_parent) as pool:
        outcomes = pool.map(partial(outcome_of, options=options), tasks)
        made = {task.name: outcome for task, outcome in zip(tasks, outcomes, strict=True)}
    with os.fdopen(answer, "wb") as file:
        file.write(orjson.dumps(made))


if __name__ == "__main__":
    main()
