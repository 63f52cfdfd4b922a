#!/usr/bin/env bash
# autoevals 0.4.1: `ExactMatch` compares the order of the keys, against its own first example, and 1.0 is not 1.
#
# The usual guess: objects are equal by their contents; the example in its module says "Different order but same content".
# What happens: both are printed as JSON, in the order they have, and the texts are compared. That example has a score of 0,
#   and so has `[1.0]` for `[1]`. Two texts are compared as they are, even if both hold JSON: `[1,2]` is wrong for `[1, 2]`,
#   and right once the expected answer is a list. `JSONDiff` ignores the order of keys, and takes a key that is missing for
#   one that is null: what one of the two calls equal the other does not, in both directions.
# Met by: structured answers and tool arguments, which models write in their own order; Braintrust and Langfuse evaluations.
# The cure here: none, rg_env scores its answers itself; there, compare the parsed values, or dump both with sorted keys.
source "$(dirname "$0")/environment.sh"
environment autoevals==0.4.1
cd "$work"
"$python" - <<'PY'
import sys
from importlib.metadata import version

from autoevals import ExactMatch, JSONDiff

print("autoevals", version("autoevals"))
EXPECTED = [
    ({"name": "John", "age": 30}, '{"age": 30, "name": "John"}', 0, 1.0),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, 0, 1.0),
    ({"a": 1, "b": 2}, {"a": 1, "b": 2}, 1, 1.0),
    ({"a": 1}, {"a": 1, "b": None}, 0, 1.0),
    ([1.0, 2.0], [1, 2], 0, 1.0),
    ("[1,2]", "[1, 2]", 0, 1.0),
    ("[1,2]", [1, 2], 1, 1.0),
    ("42", 42, 1, 0.5),
]
changed = False
for output, expected, *scores in EXPECTED:
    seen = [ExactMatch().eval(output, expected).score, JSONDiff().eval(output, expected).score]
    changed |= seen != scores
    print(f"output {output!r:30} expected {expected!r:32} ExactMatch {seen[0]}, JSONDiff {seen[1]}")
sys.exit(changed)
PY
