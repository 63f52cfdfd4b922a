"""What `scorer.normalize` wins: right answers in each dress, scored without it and with it, per task.

Run: `python benchmarks/table_normalize.py > docs/normalize.md` (about five minutes).
"""

from __future__ import annotations

import datetime
import importlib.metadata
import re
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from statistics import mean
from typing import Any

from rg_env.dataset import ReasoningGymDataset
from rg_env.scoring import Scorer
from rg_env.tasks import Item
from rg_env.tasks.mix import TaskMix

ITEMS = 10
DRESSES: dict[str, Callable[[str], str | None]] = {
    "full stop": lambda text: f"{text}.",
    "`**bold**`": lambda text: f"**{text}**",
    "code fence": lambda text: f"```\n{text}\n```",
    "`$…$`": lambda text: f"${text}$",
    r"`\boxed{}`": lambda text: rf"\boxed{{{text}}}",
    r"`\frac{}{}`": lambda text: re.sub(r"^(-?\d+)/(\d+)$", r"\\frac{\1}{\2}", text) if "/" in text else None,
    "`1,234`": lambda text: f"{int(text):,}" if re.fullmatch(r"-?\d{4,15}", text) else None,
}
HEAD = """# What the second chance wins

`scorer.normalize=true` scores an answer that earns less than 1 once more in plainer forms: without its wrapping (code
fence, `\\boxed{{}}`, `$…$`, bold, a full stop at the end), then with LaTeX fractions and signs in plain spelling, then
without thousands separators. The best form counts. It can only raise a score, costs up to three more scorings of each
answer that is not fully right, and every response that it helped is marked `normalized` in the record. Off by default:
form is part of what a policy learns, and many tasks say which form they want.

Mean score of right answers in each dress, without it → with it; one number: no difference; empty: the dress does not
fit the answer. {items} items a task. Tasks whose items hold no right answer are left out. "wrong": mean score of other
items' answers in all of these dresses, without → with, which shows what it pays to wrong answers.

Made by `python benchmarks/table_normalize.py` on {date}: reasoning-gym {theirs}.
"""


def main() -> None:
    print(
        HEAD.format(
            items=ITEMS,
            date=datetime.datetime.now(datetime.UTC).date(),
            theirs=importlib.metadata.version("reasoning-gym"),
        )
    )
    print("| task | " + " | ".join(DRESSES) + " | wrong |")
    print("|---|" + "--:|" * (len(DRESSES) + 1))
    totals: dict[str, list[tuple[float, float]]] = {name: [] for name in (*DRESSES, "wrong")}
    with Scorer() as plain, Scorer(normalize=True) as second:

        def both(entry: dict[str, Any], config: dict[str, Any], answer: str) -> tuple[float, float]:
            return plain.score(entry, answer, config).score, second.score(entry, answer, config).score

        for spec in TaskMix.parse(None).tasks:
            items = [item for item in islice(items_of(spec.name), ITEMS) if item.entry["answer"] is not None]
            if not items:
                continue
            cells = []
            for name, dress in DRESSES.items():
                dressed = [(item, text) for item in items if (text := dress(str(item.entry["answer"]))) is not None]
                pairs = [both(item.entry, item.config, text) for item, text in dressed]
                totals[name] += pairs
                cells.append(cell(pairs))
            wrong = [
                both(item.entry, item.config, text)
                for item, other in pairwise(items)
                if item.entry["answer"] != other.entry["answer"]
                for dress in DRESSES.values()
                if (text := dress(str(other.entry["answer"]))) is not None
            ]
            totals["wrong"] += wrong
            print(f"| `{spec.name}` | " + " | ".join(cells) + f" | {cell(wrong)} |", flush=True)
    print("| **all** | " + " | ".join(cell(pairs) for pairs in totals.values()) + " |")


def items_of(task: str) -> Iterator[Item]:
    dataset = ReasoningGymDataset([task], seed=7, size=ITEMS)
    return (Item.from_extra_info(dataset.row(index)["extra_info"]) for index in range(ITEMS))


def cell(pairs: list[tuple[float, float]]) -> str:
    if not pairs:
        return ""
    before, after = (f"{mean(values):.2f}" for values in zip(*pairs, strict=True))
    return before if before == after else f"{before} → **{after}**"


if __name__ == "__main__":
    main()
