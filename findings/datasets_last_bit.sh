#!/usr/bin/env bash
# datasets 5.2.0 changes the last bit of numbers in a JSON Lines file whose first lists hold only nulls.
#
# The usual guess: a number in JSON that is read as float64 is the number that was written, and `features=` decides the
# type and nothing else.
# What happens: if the first five of 1,100 lists have no number, 158 of the numbers below them are not those that were
# written (.35 is read as .35000000000000003), with and without `features=`. Without these five lines all are exact.
# Met by: ledgers of rollouts, whose scores are null until something is scored; comparisons with `==`, hashes of rows.
# The cure here: polars, DuckDB and pandas, with the types of `rg_env.dump.ColumnTypes`, are exact on the same files.
source "$(dirname "$0")/environment.sh"
environment datasets==5.2.0
cat >"$work/run.py" <<'PY'
import json
import sys
from importlib.metadata import version
from pathlib import Path

import datasets
from datasets import Features, Sequence, Value, load_dataset

datasets.disable_progress_bars()
folder = Path(sys.argv[1])
numbers = [k / 100 for k in range(100)] + [k / 1000 for k in range(1000)]
typed = Features({"score": Sequence(Value("float64"))})


def changed(name, nulls, features):
    """How many of the numbers are not those that were written."""
    lists = [[None, None]] * nulls + [[number, None] for number in numbers]
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps({"score": scores}) + "\n" for scores in lists))
    rows = load_dataset("json", data_files=str(file), split="train", features=features, cache_dir=str(folder / name))
    read = [row["score"][0] for row in rows][nulls:]
    return sum(one != other for one, other in zip(read, numbers, strict=True))


seen = {
    "numbers from the first line on": changed("plain", 0, None),
    "five lists of nulls first": changed("nulls", 5, None),
    "the same, with features=": changed("typed", 5, typed),
}
print("datasets", version("datasets"))
for what, count in seen.items():
    print(f"{what}: {count} of {len(numbers):,} numbers changed")
sys.exit(not (seen["numbers from the first line on"] == 0 < min(list(seen.values())[1:])))
PY
"$python" "$work/run.py" "$work" 2>"$work/log" || { tail -5 "$work/log"; exit 1; }
