"""Texts for the guard, drawn by hypothesis: Python of every kind with names that mean nothing, and spoiled answers."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.scoring.guard.right_answers import answer_of, item_of

_NAMES = ["zorp", "quux", "_zorp", "__zorp__", "x", "X", "C", "E", "z", "valid", "self", "entry", "ｚorp"]
_FUNCTIONS = ["zorp", "x.zorp", "x.__zorp__", "sin", "exp", "log", "Rational", "S", "zorp()", "(lambda: zorp)"]
_OPERATORS = ["+", "-", "*", "/", "**", "//", "%", "@", "<<", "|", " and ", " if zorp else ", " in ", " < ", ":=", ", "]
_FORMS = [
    *("({})", "[{}]", "{{{}}}", "{{'a': {}}}", "-{}", "~{}", "not {}", "*{}", "({},)", "[{}, {}]", "({}, {})"),
    *("{}.zorp", "{}[{}]", "[{} for zorp in {}]", "({} for zorp in {})", "lambda zorp: {}", "f'{{{}}}'", "'{}'"),
    *("b'{}'", "'%s' % {}", "'\\x{}'", '"{}"', "'''{}'''", "zorp={}", "{}; {}", "{}\n{}", "{} \\\n {}", "{} # {}"),
    *(
        "import {}",
        "{}!",
        "{}{}",
        "{} {}",
        "!!zorp [{}]",
        "$({})",
        "{{{{ {} }}}}",
        "...",
        "{}j",
        "0x{}",
        "{}_0",
        "1e{}",
    ),
]
_NUMBERS = st.integers(0, 12) | st.integers(0, 10**7)
_LEAVES = _NUMBERS.map(str) | st.sampled_from(_NAMES) | st.decimals(0, 100, places=2).map(str)


def _wrap(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operation = st.tuples(inner, st.sampled_from(_OPERATORS), inner).map("".join)
    call = st.tuples(st.sampled_from(_FUNCTIONS), inner).map("{0[0]}({0[1]})".format)
    form = st.tuples(st.sampled_from(_FORMS), inner, inner).map(lambda parts: parts[0].format(*parts[1:]))
    return operation | call | form


_PARTS = st.sampled_from([*"0129.,()[]'\"+-*/_ \n\\:;{}=#!eExXCQA", "**", "exp(", "zorp(", ".zorp", "\u00a0", "1_0"])


def spoiled(right: str) -> st.SearchStrategy[str]:
    """A right answer with a part of it replaced, or inside of something."""

    def spoil(places: tuple[int, int], part: str) -> str:
        start, end = sorted(place % (len(right) + 1) for place in places)
        return right[:start] + part + right[end:]

    places = st.tuples(st.integers(0, 1000), st.integers(0, 1000))
    return st.builds(spoil, places, _PARTS) | st.sampled_from(_FORMS).map(lambda form: form.format(right, right))


PYTHON = st.recursive(_LEAVES, _wrap, max_leaves=6)
TEXTS = PYTHON | st.lists(_PARTS, max_size=12).map("".join)


def texts_for(task: str) -> st.SearchStrategy[str]:
    """Texts as an answer to `item_of(task)`."""
    right = answer_of(item_of(task))
    return TEXTS | spoiled(right)
