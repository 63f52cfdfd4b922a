"""Tables of docs/leaderboard.md, recounted from the ledgers of imported runs with the standard library alone.

    python scripts/leaderboard.py dumps/easy/*

All means are over tasks of means over responses. `format`, `guard`, `failure`, `changed` and `partial` are what moves
the published score to ours: responses that break the format, that the guard rejects, whose scorer failed or which
today's scorer and corrected answers score otherwise, and partial credit that does not count.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

CAUSES = ("format", "guard", "failure", "changed", "partial")


def recount(folder: Path) -> dict[str, Counter[str]]:
    """Sums over the responses of each task."""
    tasks: dict[str, Counter[str]] = defaultdict(Counter)
    for file in sorted(folder.glob("*_groups_*.jsonl")):
        for line in file.read_text().splitlines():
            group = json.loads(line)
            sums = tasks[group["task"]]
            columns = (group[key] for key in ("status", "violation", "raw_score", "base_score", "published_score"))
            for status, violation, raw, base, published in zip(*columns, strict=True):
                published, raw = published or 0.0, raw or 0.0
                sums["every"] += 1
                sums["published_every"] += published
                if status in ("no_response", "unscorable"):
                    sums[status] += 1
                    continue
                cause = "format" if violation else {"ok": "changed", "rejected": "guard"}.get(status, "failure")
                sums["count"] += 1
                sums["published"] += published
                sums["upstream"] += raw
                sums["ours"] += base
                sums[cause] += raw - published
                sums["partial"] += base - raw
                sums[f"{cause} responses"] += abs(raw - published) > 1e-9
                sums["partial responses"] += abs(base - raw) > 1e-9
    return tasks


def mean(tasks: dict[str, Counter[str]], key: str, count: str = "count") -> float:
    means = [sums[key] / sums[count] for sums in tasks.values() if sums[count]]
    return sum(means) / len(means)


def signed(number: float, digits: int) -> str:
    return f"{number:+.{digits}f}".replace("-", "−")


def main(folders: list[Path]) -> None:
    runs = {folder.name: recount(folder) for folder in folders}
    runs = dict(sorted(runs.items(), key=lambda run: -mean(run[1], "published_every", "every")))
    print("| run | responses | unscorable | published, all | published | upstream | ours |", " | ".join(CAUSES), "|")
    print("|---|" + "---|" * (6 + len(CAUSES)))
    for name, tasks in runs.items():
        total = Counter[str]()
        for sums in tasks.values():
            total.update(sums)
        means = [mean(tasks, key) for key in ("published", "upstream", "ours", *CAUSES)]
        cells = [name, f"{total['every']:,}", f"{total['unscorable']:,}"]
        cells += [f"{m:.3f}" for m in (mean(tasks, "published_every", "every"), *means[:3])]
        print(f"| {' | '.join([*cells, *(signed(m, 4) for m in means[3:])])} |")
    for cause in CAUSES:
        effect, responses = defaultdict(float), Counter[str]()
        for tasks in runs.values():
            for task, sums in tasks.items():
                if sums["count"]:
                    effect[task] += sums[cause] / sums["count"] / len(runs)
                    responses[task] += int(sums[f"{cause} responses"])
        largest = sorted((task for task in effect if abs(effect[task]) >= 0.005), key=lambda t: -abs(effect[t]))
        print(f"\n{cause}:", ", ".join(f"`{t}` {signed(effect[t], 3)} ({responses[t]})" for t in largest) or "-")
    changed = defaultdict(list)
    for tasks in runs.values():
        for task, sums in tasks.items():
            if sums["unscorable"]:
                changed[task].append(sums["unscorable"] / sums["every"])
    print(
        "\nunscorable:",
        ", ".join(f"{t} {min(s):.0%} to {max(s):.0%} in {len(s)} runs" for t, s in sorted(changed.items())),
    )


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
