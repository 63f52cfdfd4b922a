"""Score an item of a task of `examples/`. In a process of its own, because a task cannot be unregistered."""

from __future__ import annotations

from rg_env import ReasoningGymDataset, RGDumpConfig, Scorer
from rg_env.configuration.user_code import import_modules
from rg_env.tasks import Soundness, soundness_of, task_categories

if __name__ == "__main__":
    import_modules(RGDumpConfig(imports=["examples.my_task"]))
    item = ReasoningGymDataset({"double": {"weight": 1, "config": {"highest": 5}}}, size=1).item(0)
    with Scorer(workers=1) as scorer:
        for answer in (item.entry["answer"], "x"):
            print(scorer.score_answer(item.entry, answer).score)
    print(task_categories()["double"], soundness_of("double") is Soundness.UNAUDITED)
