"""Admits answers to the scorers. Neither answers nor entries are ever evaluated.

The workers run it, on the answer's CPU limit; the caller asks only for sizes and lengths.

Invariants:
- `admit` returns or raises `Refusal` or `BrokenEntry` for every entry that names its task and every text, in linear
  time.
- No text of a response or of an entry reaches eval, exec, parse_expr or sympify in any Reasoning Gym scorer. What a
  scorer evaluates was written here: a list from its values, arithmetic from its tree (`rg_env.scoring.expressions`), or
  `UNREADABLE`. Only the item's own answer goes back as it is, where the scorer compares it before it evaluates.
- Upstream scores the new text as it would score the answer; where it does not, the answer is refused.
- Every correct answer passes in the notation that the question asks for.

There are three kinds of rule, each a table at the end: `REWRITES` for answers that a scorer evaluates, `ENTRIES` for
texts of an entry that a scorer evaluates, and `CHECKS` for what a scorer rewards wrongly or hangs on; those that decide
alone what is right are `JUDGED_HERE`. NUL characters and lone surrogates are refused for every task, because they break
files and pipes.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import pickle
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from rg_env.base.errors import describe, one_line
from rg_env.scoring.base_score import CHEAP
from rg_env.scoring.expressions import CONSTANTS, CONSTRUCTORS, MOST_DIGITS, TOKEN, Expression, Grammar, Refusal, read
from rg_env.tasks.soundness import AUDITED_TASKS
from rg_env.tasks.upstream.oracles import CORRECTIONS

Entry = Mapping[str, Any]

UNREADABLE = "<answer>"
"""A text that Python cannot parse, like every answer in `<answer>…</answer>`: scorers give it their score for those."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_WITHOUT_ANSWER = frozenset({"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"})
"""Tasks whose items hold no answer, because there are many."""
# Characters of an item's own answer, where its task has a rule. The longest that reasoning-gym makes has 6,000; these
# four tasks have longer ones, of this many characters.
_LONGEST_OWN_ANSWER = 20_000
_LONGER_OWN_ANSWERS = {
    "codeio": 1_000_000,  # 300,000
    "binary_matrix": 200_000,  # 20,000
    "number_sorting": 200_000,
    "spiral_matrix": 200_000,
}
_LONGEST_UNREAD_ANSWER = 1_000_000


# Bytes of an entry that is read before its scorer gets it, as a pickle or JSON. The largest that reasoning-gym makes
# has 81,000, but for those of these two.
_LARGEST_ENTRY = 300_000
_LARGER_ENTRIES = {"codeio": 2_000_000, "n_queens": 2_000_000}
_LARGEST_UNREAD = 8_000_000
"""Bytes of an entry that its scorer alone reads. The largest that reasoning-gym makes has 600,000 (circuit_logic)."""


class BrokenEntry(Exception):  # noqa: N818 (not an error of the program)
    """The item cannot be scored, whatever the answer: the reason, as one line to display."""


def check_size(entry: Entry) -> None:
    """Refuse an entry that is larger than those of its task. Comes first: reading an entry takes time by its size.

    Raises:
        BrokenEntry: it is larger.
    """
    check_length(entry["metadata"]["source_dataset"], len(pickle.dumps(dict(entry))))


def check_length(task: str, size: int) -> None:
    """As `check_size`, of an entry that has this task and these bytes."""
    if size <= _LARGEST_ENTRY or task not in AUDITED_TASKS:
        return
    # Whether the guard or a policy reads entries of the task; all others are only handed on.
    is_read = any(task in table for table in (CHECKS, REWRITES, ENTRIES, CHEAP, CORRECTIONS))
    limit = _LARGER_ENTRIES.get(task, _LARGEST_ENTRY) if is_read else _LARGEST_UNREAD
    if size > limit:
        raise BrokenEntry(f"the entry is not a valid {task} item: it has {size:,} bytes, more than {limit:,}")


def admit(entry: Entry, answer: str) -> tuple[dict[str, Any], str, str]:
    """Return what the scorer gets for an answer: entry, bare answer, and the answer as `<answer>…</answer>`.

    Args:
        entry: the item as made by reasoning-gym, or corrupt, or made by somebody hostile;
            `metadata.source_dataset` names the task.

    Raises:
        Refusal: the answer is rejected; the message is a sentence to display.
        BrokenEntry: the entry is not an item of its task.
    """
    if "\0" in answer:
        raise Refusal("the answer contains a NUL character")
    if not answer.isascii() and _SURROGATE.search(answer):
        raise Refusal("the answer contains a lone surrogate, which is not a character")
    task = entry["metadata"]["source_dataset"]
    own = entry.get("answer")
    if task in AUDITED_TASKS and not isinstance(own, str) and (own is not None or task not in _WITHOUT_ANSWER):
        raise BrokenEntry(f"the entry is not a valid {task} item: it has no answer")
    # A bound for the item's own answer, which the rules below read.
    longest_own = _LONGEST_UNREAD_ANSWER
    if task in CHECKS or task in REWRITES or task in ENTRIES:
        longest_own = _LONGER_OWN_ANSWERS.get(task, _LONGEST_OWN_ANSWER)
    if isinstance(own, str) and len(own) > longest_own:
        raise BrokenEntry(f"the entry's own answer has more than {longest_own} characters")
    try:
        # A new dict, whatever mapping the entry is: the worker unpickles it.
        entry = dict(ENTRIES[task](entry) if task in ENTRIES else entry)
    except Exception as error:  # an entry can hold anything
        raise _broken(task, error) from None
    try:
        bare, tagged = _texts_for_scorer(task, entry, answer)
        return entry, bare, tagged  # a plain tuple, so that the worker needs nothing of this module to unpickle it
    except Refusal:
        raise
    except Exception as error:
        # Whose fault it is, the item's own answer shows: if it cannot be read either, the entry is broken.
        try:
            _texts_for_scorer(task, entry, own or "")
        except Refusal:
            pass
        except Exception:
            raise _broken(task, error) from None
        raise Refusal(CHECKS[task].reason if task in CHECKS else "the answer cannot be read") from None


def _texts_for_scorer(task: str, entry: Entry, answer: str) -> tuple[str, str]:
    """Return the bare and the tagged form. Raises Refusal, or anything if answer or entry cannot be read."""
    if task in REWRITES:
        return REWRITES[task](entry, answer), UNREADABLE
    if task in CHECKS:
        check = CHECKS[task]
        if not check.allows(entry, answer):
            raise Refusal(check.reason)
        answer = check.text(entry, answer)
    return answer, f"<answer>{answer}</answer>"


def _broken(task: str, error: Exception) -> BrokenEntry:
    reason = str(error) if isinstance(error, Refusal) else describe(error)
    return BrokenEntry(f"the entry is not a valid {task} item: {reason:.200}")


def longest(entry: Entry, limit: int) -> int:
    """Maximum answer length in characters: `limit`, or twice the length of the stored answer if that is more."""
    try:
        own = entry.get("answer")
        return max(limit, 2 * len(own)) if isinstance(own, str) else limit
    except Exception:  # an entry can be anything
        return limit


# -- answers that a scorer evaluates: a list, in place of the notation that the question asks for

_LITERAL = re.compile(
    r"""(?:[][(),\s]|-?[ \t]*[0-9]{1,100}(?![0-9A-Za-z_])|'[][()"\w \t,-]*'|"[][()'\w \t,-]*")*+""", re.ASCII
)
"""Whole numbers, texts in quotes, and brackets around them, of which Python's parser takes 200 within each other."""


def _rewrite_list(
    right_answers: Callable[[Entry], Iterable[str]], plain: str, described: str, strips: bool = False
) -> Callable[[Entry, str], str]:
    """Make the rule for a scorer that compares an answer with the item's, and else evaluates it for partial credit.

    Args:
        right_answers: the texts that the scorer accepts as they are.
        plain: a pattern of the notation that the question asks for.
        strips: whether the scorer strips both.
    """
    pattern = re.compile(plain, re.ASCII)

    def rewrite(entry: Entry, answer: str) -> str:
        # Compared as the scorer compares: what it accepts unread reaches it unchanged.
        for right in right_answers(entry):
            if answer == right or (strips and answer.strip() == right.strip()):
                return right
        text = answer.strip(" \t\r\n")
        # Written anew from its values. Three quotes begin one text in Python, but two texts in the pattern.
        if _LITERAL.fullmatch(text) and "'''" not in text and '"""' not in text:
            try:
                return repr(ast.literal_eval(text))
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                pass
        # In the notation that the question asks for, which the scorer cannot evaluate either: it gets a score for that.
        if pattern.fullmatch(answer.strip()):
            return UNREADABLE
        raise Refusal(f"the answer is neither {described} nor a list of whole numbers or texts in quotes")

    return rewrite


def _own_answer(entry: Entry) -> list[str]:
    return [entry["answer"]]


# -- answers that a scorer evaluates: arithmetic

_CIRCULAR = ("sin", "cos", "tan", "cot", "sec", "csc")
_INVERSE = [f"a{function}" for function in _CIRCULAR]
_HYPERBOLIC = [f"{function}h" for function in (*_CIRCULAR, *_INVERSE)]
_OTHERS = ("exp", "log", "ln", "sqrt", "cbrt", "abs", "Abs", *CONSTRUCTORS)
_FUNCTIONS = frozenset([*_CIRCULAR, *_INVERSE, *_HYPERBOLIC, *_OTHERS])
_LETTERS = frozenset(string.ascii_letters) - frozenset("EINOQS")  # those are not variables in sympy
_NUMBERED = frozenset(letter + digit for letter in ("C", "c", "K", "k") for digit in string.digits)
_NUMBERED_BELOW = frozenset(f"{name[0]}_{name[1]}" for name in _NUMBERED)
_FREE_NAMES = _LETTERS | _NUMBERED | _NUMBERED_BELOW | {"const", "Const", "constant", "Constant"}
"""Names of the constant of integration, and variables, which are correct with the factor 0."""
_POWER = re.compile(r"\*\*\s*\(?-?(\d+)")
_NAME = re.compile(r"[A-Za-z]\w*")
_VARIABLE = re.compile(r"[A-Za-z]\w{0,19}", re.ASCII)
_QUOTED = re.compile(r"""(['"])(.*)\1""")
_LARGEST_POWER = 10_000
"""Of what an entry holds, too: more than any power of upstream's. A polynomial takes memory by its degree."""


def _read_answer(entry: Entry, answer: str, **allowed: Any) -> Expression:
    """Read an answer, with limits of at least twice the size of the stored answer."""
    own = str(entry["answer"])
    # Cut, since an entry may hold a number of any length; six digits are more than the bound below.
    powers = [int(digits[:6]) for digits in _POWER.findall(own)]
    largest_power = max(powers, default=0)
    tokens = len(TOKEN.findall(own))
    most_tokens = max(Grammar.max_tokens, 2 * tokens)
    most_exponent = min(_LARGEST_POWER, max(Grammar.max_exponent, 2 * largest_power))
    most_digits = min(MOST_DIGITS, max(Grammar.max_digits, 2 * len(own)))
    grammar = Grammar(max_tokens=most_tokens, max_exponent=most_exponent, max_digits=most_digits, **allowed)
    return read(answer, grammar)


def _rewrite_countdown(entry: Entry, answer: str) -> str:
    """The scorer allows for 0.001%."""
    target = entry["metadata"]["target"]
    expression = _read_answer(entry, answer, operators=frozenset("+-*/"))
    _check_numbers(expression, entry)
    if expression.value is None or 0 < abs(expression.value - target) < max(1, abs(target) / 1000):
        raise Refusal(f"the expression is not exactly {target}")
    return expression.text


def _rewrite_puzzle24(entry: Entry, answer: str) -> str:
    """The scorer takes any four numbers and cuts off the fraction of the result."""
    match = re.search(r"operators ([-+*/, ]+)\.", entry["question"])
    operators = frozenset(re.findall("[-+*/]", match[1] if match else "+-*/"))
    expression = _read_answer(entry, answer, operators=operators)
    _check_numbers(expression, entry)
    if expression.value is None or (expression.value != 24 and int(expression.value) == 24):
        raise Refusal("the expression is not exactly 24")
    return expression.text


def _check_numbers(expression: Expression, entry: Entry) -> None:
    """For an expression that has no names and no decimals, so that all its digits are those of whole numbers."""
    numbers = entry["metadata"]["numbers"]
    if Counter(map(int, re.findall(r"\d+", expression.text))) != Counter(numbers):
        listed = one_line(", ".join(map(str, numbers)), 100)  # an entry can hold anything
        raise Refusal(f"the expression must use exactly the given numbers: {listed}")


def _rewrite_integral(entry: Entry, answer: str) -> str:
    """The scorer also accepts a quoted expression: sympy parses it, with ^ for powers."""
    names = _FREE_NAMES | CONSTANTS.keys() | {entry["metadata"]["variable"]}
    if quoted := _QUOTED.fullmatch(answer.strip()):
        answer = quoted[2].replace("^", "**")
    return _read_answer(entry, answer, names=names, functions=_FUNCTIONS, decimals=True).text


def _rewrite_polynomial(entry: Entry, answer: str) -> str:
    names = frozenset(_NAME.findall(entry["metadata"]["polynomial_expr"]))
    return _read_answer(entry, answer, names=names, decimals=True).text


def _valid_boards(entry: Entry) -> Iterable[str]:
    boards: Iterable[str] = entry["metadata"]["valid_answers"]
    return boards


_NUMBERS = r"-?\d{1,9}(?:[\s,]+-?\d{1,9})*"
REWRITES: dict[str, Callable[[Entry, str], str]] = {
    # eval()
    "binary_matrix": _rewrite_list(_own_answer, _NUMBERS, "rows of numbers"),
    "n_queens": _rewrite_list(_valid_boards, r"[Q_\s]+", "a board of Q and _"),
    "spiral_matrix": _rewrite_list(_own_answer, _NUMBERS, "whole numbers with spaces between", strips=True),
    "string_insertion": _rewrite_list(_own_answer, r"[A-E\s]+", "a string of the letters A to E"),
    # sympy's parse_expr(), which is eval() behind a tokenizer
    "countdown": _rewrite_countdown,
    "intermediate_integration": _rewrite_integral,
    "polynomial_multiplication": _rewrite_polynomial,
    "puzzle24": _rewrite_puzzle24,
    "simple_integration": _rewrite_integral,
}
"""Task → (entry, answer) → the text for the scorer. Raises Refusal."""


# -- texts of an entry that a scorer evaluates

_HEXADECIMAL = re.compile(r"-?0x[0-9a-f]{1,10000}")
_DECIMAL = re.compile(r"[-+]?[0-9.]++(?:[eE][-+]?[0-9]++)?")
_LIST_OF_DECIMALS = re.compile(rf"""\[\s*(?:(['"]?){_DECIMAL.pattern}\1\s*(?:,\s*|(?=\])))*\]""")


def _answer_as_problem(entry: Entry) -> Entry:
    """The scorer evaluates the problem for each answer: to the item's own."""
    if not _HEXADECIMAL.fullmatch(entry["answer"]):
        raise Refusal("its answer is not a hexadecimal number")
    return _with_metadata(entry, problem=entry["answer"])


def _rewrite_sorted_numbers(entry: Entry) -> Entry:
    """The scorer evaluates the item's own answer, because its quotes are not JSON's."""
    if not _LIST_OF_DECIMALS.fullmatch(entry["answer"]):
        raise Refusal("its answer is not a list of numbers")
    return {**entry, "answer": json.dumps(_DECIMAL.findall(entry["answer"]))}


def _rewrite_integrand(entry: Entry) -> Entry:
    variable = entry["metadata"]["variable"]
    if not _VARIABLE.fullmatch(variable):
        raise Refusal("its variable is not a name")
    grammar = Grammar(frozenset({*CONSTANTS, variable}), _FUNCTIONS, decimals=True, max_exponent=_LARGEST_POWER)
    return _with_metadata(entry, integrand=read(entry["metadata"]["integrand"], grammar).text)


def _rewrite_product(entry: Entry) -> Entry:
    """The scorer parses the item's own answer as it parses an answer."""
    return {**entry, "answer": _rewrite_polynomial(entry, entry["answer"])}


def _with_metadata(entry: Entry, **texts: str) -> Entry:
    return {**entry, "metadata": {**entry["metadata"], **texts}}


ENTRIES: dict[str, Callable[[Entry], Entry]] = {
    "bitwise_arithmetic": _answer_as_problem,
    "intermediate_integration": _rewrite_integrand,
    "number_sorting": _rewrite_sorted_numbers,
    "polynomial_multiplication": _rewrite_product,
    "simple_integration": _rewrite_integrand,
}
"""Task → entry → the same with texts that are safe to evaluate. Raises for an entry that reasoning-gym did not make."""


# -- answers that a scorer rewards although they are wrong, or hangs on

_NUMBER = re.compile(r"[-+]?(?:\d{1,40}(?:\.\d{0,60})?|\.\d{1,60})(?:[eE][-+]?\d{1,2})?", re.ASCII)
_FRACTION = re.compile(r"([-+]?\d{1,60})\s*/\s*(\d{1,60})", re.ASCII)
_COMPLEX = re.compile(r"[-+0-9.eEiIjJ() ]*")
_FACTOR = re.compile(r"\+?\d{1,60}", re.ASCII)
_LATEX = frozenset({"boxed", "text", "textbf", "mathrm", "mathbf"})
_MOST_TURNS = 1000
_MOST_SIGNS = 200


def _is_same_json(entry: Entry, answer: str) -> bool:
    """Return whether an answer is the item's JSON value, or text around it if that is an object."""
    own = entry["answer"].strip()
    if answer.strip() == own:
        return True
    right = _canonical_json(own)
    if right is None:
        return False
    # The whole answer, or the object in it, as the scorer looks for it.
    texts = (answer, answer[answer.find("{") : answer.rfind("}") + 1])
    return any(_canonical_json(text) == right for text in texts)


def _own_json(entry: Entry, answer: str) -> str:
    """Return the item's own text for its value in another spelling: upstream reads objects, and compares all other
    values as texts."""
    right = _canonical_json(entry["answer"])
    is_object = right is None or right.startswith("{")
    return answer if is_object or _canonical_json(answer) != right else entry["answer"]


def _canonical_json(text: str) -> str | None:
    """Return a text that is equal for equal JSON values, `1.0` and `1` included; None if the text is no JSON."""

    def number(digits: str) -> float:
        value = float(digits)
        return int(value) if value.is_integer() and abs(value) < 1e15 else value

    try:
        return json.dumps(json.loads(text, parse_float=number), sort_keys=True)
    except (ValueError, RecursionError):
        return None


def _is_right_probability(entry: Entry, answer: str) -> bool:
    right, value = _fraction(entry["answer"]), _fraction(answer)
    error = abs(value - right)
    # Of small probabilities, four decimals may be farther away than 1 %.
    is_rounded = value > 0 and (value * 10_000).denominator == 1 and error <= Fraction(1, 20_000)
    return 0 <= value <= 1 and (is_rounded or error <= right / 100)


def _fraction(text: str) -> Fraction:
    """Return the value of a decimal or a fraction of bounded length. Raises ValueError or ZeroDivisionError."""
    text = text.strip().replace(",", "")
    if fraction := _FRACTION.fullmatch(text):
        return Fraction(int(fraction[1]), int(fraction[2]))
    if _NUMBER.fullmatch(text):
        return Fraction(text)
    raise ValueError("not a number")


def _is_board(entry: Entry, answer: str) -> bool:
    right, board = json.loads(entry["answer"]), json.loads(answer)
    if not isinstance(board, list) or not all(map(_is_row, board)):
        return False
    return [len(row) for row in board] == [len(row) for row in right]


def _is_row(row: object) -> bool:
    """Return whether it is a list of 0 and 1."""
    return isinstance(row, list) and all(cell in (0, 1) for cell in row)


def _is_right_truth(entry: Entry, answer: str) -> bool:
    words = [word for word in re.findall(r"[^\W_]+", answer.casefold()) if word not in _LATEX]
    return words == [entry["answer"].casefold()]


def _has_one_number(entry: Entry, answer: str) -> bool:
    return len({float(number) for number in re.findall(r"\b-?\d+(?:\.\d+)?\b", answer)}) <= 1


def _has_one_role_for_each(entry: Entry, answer: str) -> bool:
    own = _words(entry["answer"])
    names, roles = own[::2], own[1::2]
    pairs = list(itertools.pairwise(_words(answer)))
    if set(zip(names, roles, strict=True)) <= set(pairs):
        return True
    terms = {entry["metadata"]["knight_knave_terms"][kind].lower() for kind in ("knight", "knave")}
    return sorted(name for name, role in pairs if role in terms) == sorted(names)


def _words(text: str) -> list[str]:
    """Alternating names and roles, as the scorer parses them: `Zoe is a knight, and Max is a knave.`"""
    return [word for word in re.sub(r"[.,()]", " ", text.lower()).split() if word not in ("is", "a", "an", "and")]


def _are_right_solutions(entry: Entry, answer: str) -> bool:
    """The question lets the fourth decimal be rounded down."""
    right, solutions = _numbers(entry["answer"]), _numbers(answer)
    if len(right) != len(solutions):
        return False
    return all(abs(a - b) < 1.001e-4 for a, b in zip(right, solutions, strict=True))


def _numbers(text: str) -> list[float]:
    """Return the numbers between commas, as the scorer reads them: it skips what is none."""
    numbers = []
    for number in text.split(","):
        try:
            numbers.append(float(number))
        except ValueError:
            continue
    return sorted(numbers)


def _are_other_factors(entry: Entry, answer: str) -> bool:
    factors = [factor.strip() for factor in answer.split("×")]
    # Before the product, which takes time by the square of the length.
    if len(entry["answer"]) > 10_000:
        raise ValueError("its answer is too long")
    number = math.prod(int(factor) for factor in entry["answer"].split("×"))
    is_prime = "×" not in entry["answer"]
    return all(_FACTOR.fullmatch(factor) and (int(factor) != number or is_prime) for factor in factors)


def _has_few_turns(entry: Entry, answer: str) -> bool:
    repeats = re.findall(r"\d+", answer)  # of any alphabet, as the scorer reads them
    # Before `int`, which refuses long numbers with an exception.
    if max(map(len, repeats), default=0) > 4:
        return False
    return len(answer.split()) + sum(map(int, repeats)) <= _MOST_TURNS


def _is_complex_number(entry: Entry, answer: str) -> bool:
    return bool(_COMPLEX.fullmatch(answer.strip()))


def _has_not_more_words(entry: Entry, answer: str) -> bool:
    return len(answer.split()) <= len(entry["answer"].split())


def _has_finite_numbers(entry: Entry, answer: str) -> bool:
    text = answer.lower()
    return "nan" not in text and "inf" not in text


def _has_few_signs(entry: Entry, answer: str) -> bool:
    return sum(answer.count(sign) for sign in "()∧∨¬→↔") <= _MOST_SIGNS


def _has_short_moves(entry: Entry, answer: str) -> bool:
    return not re.search(r"[A-Z][+-]\d{3}", answer)


def _has_not_more_commas(entry: Entry, answer: str) -> bool:
    return answer.rstrip(", \t\r\n").count(",") < len(entry["metadata"]["sorted_words"])


def _ends_with_word(entry: Entry, answer: str) -> bool:
    right, text = entry["answer"].casefold(), answer.strip().casefold()
    return not (text.startswith(right) and any(character.isalnum() for character in text[len(right) :]))


def _is_right_interval(entry: Entry, answer: str) -> bool:
    # Without any number, it would be equal to 00:00.
    return bool(re.search("[0-9]", answer)) and _interval(answer) == _interval(entry["answer"])


def _interval(text: str) -> list[Fraction]:
    """Return the numbers of an interval, without zeros at its end: 1:30 is 01:30:00.000."""
    numbers = []
    for point, digits in re.findall(r"(\.?)(-?[0-9]{1,18})", text):
        # After a point stand the digits of a fraction: .45 is .450, not .045.
        is_fraction = point and digits.isdigit()
        numbers.append(Fraction(f"0.{digits}") if is_fraction else Fraction(digits))
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def _as_it_is(entry: Entry, answer: str) -> str:
    return answer


class Check(NamedTuple):
    """A rule: whether an answer may be scored, the reason for a rejection, as a sentence to display, and the text that
    the scorer gets."""

    allows: Callable[[Entry, str], bool]
    reason: str
    text: Callable[[Entry, str], str] = _as_it_is


def _exactly_one_of(*choices: str) -> Check:
    """For a scorer that gives len(answer) / len(text) for any text with the answer: `Yes No` scores about half."""

    def allows(entry: Entry, answer: str) -> bool:
        return answer.strip().strip(".*`'\"") in choices

    return Check(allows, f"the answer must be exactly one of {' or '.join(choices)}")


JUDGED_HERE: dict[str, Check] = {
    # The distance is divided by the length of the longer JSON, so that `{"":{"":{"":…}}}` scores 0.9.
    "codeio": Check(_is_same_json, "the value is wrong, and upstream would reward long answers", _own_json),
    # A common prefix scores, so that 0 scores 0.9; a number with a large exponent takes for ever.
    "coin_flip": Check(
        _is_right_probability,
        "the answer must be a probability within 1% of the right one, as a decimal or a fraction",
    ),
    # bool(text) is compared with bool(text): always true.
    "game_of_life_halting": Check(_is_right_truth, "the answer must be True or False, and the right one of them"),
    # Closeness scores, which for solutions that are all near 0 is high for any small number.
    "polynomial_equations": Check(_are_right_solutions, "the solutions are wrong, and upstream would reward closeness"),
    # Closeness scores, on a scale on which almost any interval gets 0.8.
    "time_intervals": Check(_is_right_interval, "the interval is wrong, and upstream would reward closeness"),
}
"""Tasks whose answers the guard judges itself, because upstream rewards wrong ones: its scorer gets right ones
only, so it must be able to read them."""

# To guard a task against answers that its upstream scorer rewards wrongly, or that hang or crash it:
# 1. Reproduce the problem with the upstream scorer in tests/tasks/test_soundness.py: as a row of `FREE`, or as a test.
# 2. Add a row here: a function of entry and answer that says whether the answer may be scored, and the reason that is
#    shown if it may not, below a comment on what upstream does. If the scorer evaluates the answer, add a function to
#    `REWRITES` instead, which returns a text made from what it read. Neither may evaluate the answer, and both take
#    time linear in its length.
# 3. Describe the problem and what passes in `GUARDED` of rg_env/tasks/soundness.py, and in
#    evidence/upstream-findings.md.
# 4. Add other notations of correct answers to `NOTATIONS` in tests/scoring/guard/right_answers.py (or the task to
#    `_AS_IT_IS`); for a scorer that evaluates, also 30 answers or more to `rewarded` in answers.json beside it. The
#    guard must accept every correct answer that the upstream scorer rewards.
# 5. Run `rg-env attack --tasks NAME`.
CHECKS: dict[str, Check] = JUDGED_HERE | {
    "acre": _exactly_one_of("on", "off", "undetermined"),
    # min(1, exp(-distance)) is 1 for nan.
    "complex_arithmetic": Check(_is_complex_number, "the answer must be a finite complex number, such as 3 - 2i"),
    "course_schedule": _exactly_one_of("True", "False"),
    # Each cell scores, and mappings raise; the share of an empty board is the baseline.
    "game_of_life": Check(_is_board, "the answer must be a list of lists of 0 and 1, as long as those of the question"),
    # The first number counts. The same number may occur again.
    "gsm_symbolic": Check(_has_one_number, "the answer has different numbers; one is asked for"),
    "isomorphic_strings": _exactly_one_of("True", "False"),
    # Both roles for an inhabitant score; the same role for all is the baseline.
    "knights_knaves": Check(_has_one_role_for_each, "the answer must have one role for each inhabitant"),
    # The first words are compared, whatever follows.
    "letter_jumble": Check(_has_not_more_words, "the answer has more words than the question"),
    "mahjong_puzzle": _exactly_one_of("Peng", "Chi", "Pass"),
    # A list of NaN counts as sorted, and as close to any numbers.
    "number_sorting": Check(_has_finite_numbers, "the answer must be a list of finite numbers"),
    # Any factors with the correct product score half, including the number itself.
    "prime_factorization": Check(
        _are_other_factors, "the answer must be integers separated by ×, not the number itself"
    ),
    # The parser recurses once per sign and scans the rest of the text each time.
    "propositional_logic": Check(_has_few_signs, f"the formula has more than {_MOST_SIGNS} signs"),
    "ransom_note": _exactly_one_of("True", "False"),
    # A turn with a number is expanded to that many turns.
    "rubiks_cube": Check(_has_few_turns, f"the answer has more than {_MOST_TURNS} turns"),
    # A move tries every cell, however far it goes.
    "rush_hour": Check(_has_short_moves, "a vehicle moves farther than the board is wide"),
    # A correct beginning scores: the whole question, reversed, 0.97.
    "spell_backward": Check(_ends_with_word, "the answer contains more than the word"),
    "syllogism": _exactly_one_of("Yes", "No"),
    # The first words of the list score, whatever follows.
    "word_sorting": Check(_has_not_more_commas, "the answer has more words than the question"),
}
"""Task → what may be scored, for answers that upstream rewards although they are wrong, or on which it hangs."""
