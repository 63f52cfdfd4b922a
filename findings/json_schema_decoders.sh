#!/usr/bin/env bash
# outlines-core 0.2.14 and llguidance 1.9.1: one JSON schema, two sets of answers that a model can write.
#
# The usual guess: constrained decoding lets pass what the schema allows, and nothing else; engines differ in speed.
# What happens: outlines-core takes no notice of `minimum`, `maximum`, `multipleOf` and `uniqueItems`: 42 and -3 pass as a
#   digit from 1 to 9. A number with an exponent needs its sign (`1e+5`; `1e5` cannot be written), lists take no line breaks,
#   objects no other keys, and a pattern is one of the whole string. In llguidance, a range forbids all exponents, so that
#   5e-1 is not between 0 and 1, and a pattern may stand anywhere: `x12` passes for `[0-9]+`. Both keep the order of the
#   schema's keys, and neither can write the escape `\u00e9`.
# Met by: answers as JSON with vLLM's `structured_outputs`, which has both as backends, and Outlines: ratings from 1 to 5,
#   grids with a row per line, confidences from 0 to 1. Another backend can be another score.
# The cure here: none, rg_env takes answers as text; validate after decoding, and write `^…$` and enumerations, not ranges.
source "$(dirname "$0")/environment.sh"
environment outlines-core==0.2.14 llguidance==1.9.1
cd "$work"
"$python" - <<'PY'
import json
import re
import sys
from importlib.metadata import version

from llguidance import LLMatcher, LLTokenizer
from outlines_core.json_schema import build_regex_from_schema

print("outlines-core", version("outlines-core"), "llguidance", version("llguidance"))
tokenizer = LLTokenizer("byte")
INTEGERS = {"type": "array", "items": {"type": "integer"}}
PAIR = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x", "y"]}
DIGIT = {"type": "integer", "minimum": 1, "maximum": 9}
SHARE = {"type": "number", "minimum": 0, "maximum": 1}
EXPECTED = [  # schema, text, valid, outlines-core, llguidance
    (DIGIT, "5", True, True, True), (DIGIT, "42", False, True, False), (DIGIT, "-3", False, True, False),
    (SHARE, "0.5", True, True, True), (SHARE, "5e-1", True, True, False), (SHARE, "7", False, True, False),
    ({"type": "number"}, "1e5", True, False, True), ({"type": "number"}, "1e+5", True, True, True),
    ({"type": "integer", "multipleOf": 5}, "3", False, True, False),
    (INTEGERS, "[1, 2]", True, True, True), (INTEGERS, "[\n  1,\n  2\n]", True, False, True),
    ({**INTEGERS, "uniqueItems": True}, "[1, 1]", False, True, False),
    (PAIR, '{"x": 1, "y": 2}', True, True, True), (PAIR, '{"y": 2, "x": 1}', True, False, False),
    (PAIR, '{"x": 1, "y": 2, "z": 3}', True, False, True),
    ({"type": "string", "pattern": "[0-9]+"}, '"12"', True, True, True),
    ({"type": "string", "pattern": "[0-9]+"}, '"x12"', True, False, True),
    ({"type": "string"}, '"\\u00e9"', True, False, False),
]


def by_outlines(schema, text):
    return re.fullmatch(build_regex_from_schema(json.dumps(schema)), text) is not None


def by_llguidance(schema, text):
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    tokens = tokenizer.tokenize_str(text)
    return matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens) and matcher.is_accepting()


changed = False
for schema, text, valid, *expected in EXPECTED:
    seen = [by_outlines(schema, text), by_llguidance(schema, text)]
    changed |= seen != expected
    print(f"{json.dumps(schema)}: {text!r} is {'valid' if valid else 'invalid'}, passes {seen[0]} and {seen[1]}")
sys.exit(changed)
PY
