"""The second item of each task, as JSON: python -m tests.programs.print_items TASK,TASK…"""

from __future__ import annotations

import json
import sys

from rg_env.tasks import ItemStream, Split

if __name__ == "__main__":
    tasks = sys.argv[1].split(",")
    print(json.dumps({task: ItemStream(task, {}, 42, Split.TRAIN).item(1).entry_json for task in tasks}))
