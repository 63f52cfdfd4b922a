r"""What is a number in an answer: the one place that says so, for every scorer of files.

A number may be written as people and models write it: `1,234.50`, `-3/4`, `3 1/2`, `3½`, `\frac{1}{2}`, `2e-3`,
`2 \times 10^{-3}`, `10⁶`, `0.\overline{3}`, `1.5 million`, in digits and signs of any script, in brackets or quotes,
with a name or a currency sign before it and a unit or a percent sign after it.

Invariant: a number is read exactly, nothing is evaluated, and a text of several numbers, lines or statements is not
a number. A longer text is refused unread.
"""

from __future__ import annotations

import math
import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

from rg_env.scoring.formatting import short_answer
from rg_env.scoring.units import PERCENT, Unit, read_unit, units_agree

ROUNDING = 1e-6
"""How far two numbers may differ, relative to the larger one, if one of them is a decimal."""
_LONGEST = 1000
_DIGITS_OF_ROUNDED = 5
"""A decimal of at least this many digits may be a rounded number: 0.33333 for 1/3."""
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,100}|[0-9]{1,3}(?: [0-9]{3}){1,100}(?![0-9])|[0-9]{1,400})"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]{{0,400}})?|\.[0-9]{{1,400}})"
_EXPONENT = r"(?:\{ ?([+-]?[0-9]{1,3}) ?\}|\(([+-]?[0-9]{1,3})\)|([+-]?[0-9]{1,3}))"
_NAME = re.compile(
    r"(?:m? ?(?:∠|\\angle) ?)?"
    r"(\\text ?\{[^{}]*\}|[A-Za-z](?: ?\+ ?[A-Za-z])+|\\?[^\W\d_]+(?:_[A-Za-z0-9]|_\{\w+\})?(?:\([A-Za-z0-9]\))?)"
    r" ?(?:=|≈|\\approx) ?"
)
_WORD = re.compile(r"\\text.*|.*\+.*|[^\W\d_]{3,}")
_EQUALS = re.compile(r"(?:=|≈|~|\\approx|approx\.) ?")
_ABOUT = re.compile(r" ?\(?(?:approx\.?|approximately)\)?$")
_SIGN = re.compile(r"([+-]|minus |negative |) ?((?:US)?\$|[£€¥₹]|(?:USD|EUR|GBP|Rs\.?) )? ?([+-]?) ?", re.IGNORECASE)
# In this order: the first that matches is the longest.
_WHOLE = "([0-9]{1,400})"
_MIXED = re.compile(
    rf"{_WHOLE} ?(?:\\frac ?(?:\{{ ?{_WHOLE} ?\}}|([0-9])) ?(?:\{{ ?{_WHOLE} ?\}}|([0-9])(?![0-9]))| {_WHOLE}/{_WHOLE})"
)
_SIGNED = rf"\{{ ?([+-]?{_DECIMAL}) ?\}}"
_LATEX_FRACTION = re.compile(rf"\\frac ?(?:{_SIGNED}|([0-9])) ?(?:{_SIGNED}|([0-9])(?![0-9]))")
_FRACTION = re.compile(rf"({_DECIMAL}) ?/ ?({_DECIMAL})")
_REPEATING = re.compile(r"([0-9]{0,100})\.([0-9]{0,100})\\(?:overline|bar) ?\{([0-9]{1,100})\}")
_POWER = re.compile(rf"(?:({_DECIMAL}) ?(?:\\times|\\cdot|\*|x) ?)?10 ?(?:\^|\*\*) ?{_EXPONENT}")
_SCIENTIFIC = re.compile(rf"({_DECIMAL})(?:[eE]([+-]?[0-9]{{1,3}}))?(?![0-9]|[.,/^][0-9])")
_LARGE = re.compile(
    r" ?(?:\\text ?\{ ?)?((?:hundred )?(?:thousand|million|billion|trillion)|hundred)(?: ?\}|\b)", re.IGNORECASE
)
_WITH_POWER = re.compile(r"(?:\\times|\\cdot|\*|x) ?10|[0-9][eE]")
_LARGE_VALUES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_LARGE_SHORT = {"k": 10**3, "m": 10**6, "b": 10**9}
_LARGE_MONEY = re.compile(r"(k|mn?|bn?)\b", re.IGNORECASE)
_CURRENCIES = {"US$": "$", "USD": "$", "EUR": "€", "GBP": "£", "Rs": "₹", "Rs.": "₹"}
_IN_ASCII = {
    **dict.fromkeys("\u2212\u2010\u2011\u2013\ufe63\uff0d", "-"),
    **dict.fromkeys("\u00b7\u22c5", r"\cdot "),
    "\u00d7": r"\times ",
    "\u2044": "/",
    "\u2236": ":",
    "\u066b": ".",
    "\u066c": ",",
}
_IN_ASCII |= {"\u00ba": "°", "\u02da": "°", "\u2103": "°C", "\u2109": "°F", "\u00b5": "\u03bc"}
_SUPERSCRIPTS = {**dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)), "⁻": "-", "⁺": "+"}
_RAISED = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_LOWERED = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_LATEX_SPACE = re.compile(r"(?<!\\)\\[,;: ]|~|\\q?quad\b")
_LATEX_COMMA = re.compile(r"\{,\}|,\\!")
_SIZE = re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|!)(?![A-Za-z.])")
_OVER = re.compile(r"\{([^{}]{1,100})\\over\b([^{}]{1,100})\}")
_BRACKETS = (("(", ")"), ("[", "]"), (r"\{", r"\}"), ("{", "}"))


class Value(NamedTuple):
    """A number as it is written.

    Attributes:
        is_exact: it is a whole number or a fraction, so that nothing was rounded.
        step: the value of its last digit, if it is a decimal of enough digits to be what another number is rounded to.
    """

    number: Fraction
    is_exact: bool = True
    step: Fraction = Fraction(0)

    def times(self, factor: Fraction | int) -> Value:
        return Value(self.number * factor, self.is_exact, abs(self.step * factor))


class Quantity(NamedTuple):
    """A number in an answer, with what stands around it.

    Attributes:
        unit: after the number, or its currency.
        name: what the answer says that the number is, such as `x` of `x = 5`.
    """

    value: Value
    unit: Unit | None = None
    name: str = ""


def read_number(text: str) -> Fraction | None:
    """Return the number that a text is, exactly, whatever its unit; None for any other text.

    >>> read_number("1,234.50"), read_number(" -3/4 "), read_number("$7 million"), read_number("7 or 8")
    (Fraction(2469, 2), Fraction(-3, 4), Fraction(7000000, 1), None)
    """
    quantity = read_quantity(text)
    return quantity.value.number if quantity else None


def read_quantity(text: str) -> Quantity | None:
    """Return the quantity that a text is, formatting removed; None for any other text.

    >>> read_quantity(r"**$x = 1.5 \\times 10^{3}$**").value.number
    Fraction(1500, 1)
    """
    if len(text) > _LONGEST:
        return None
    text = ascii_signs(short_answer(text))
    # Two lines are two answers.
    if "\n" in text:
        return None
    text = _without_brackets(_ABOUT.sub("", " ".join(text.split())).rstrip(",;"))
    name = ""
    if named := _NAME.match(text):
        name, text = named[1], text[named.end() :]
    if _WORD.fullmatch(name):
        name = ""
    if equals := _EQUALS.match(text):
        text = text[equals.end() :]
    signs = _SIGN.match(_without_brackets(text))
    assert signs is not None  # it matches nothing, too
    if signs[1] and signs[3]:
        return None
    found = _read_value(_without_brackets(signs.string[signs.end() :]))
    if found is None:
        return None
    value, rest = found
    currency = (signs[2] or "").strip()
    if large := _LARGE.match(rest) or (currency and _LARGE_MONEY.match(rest)):
        value, rest = value.times(_large_value(large)), rest[large.end() :]
    if currency and rest.startswith("^"):
        return None
    if currency:  # as it is said: 5 dollars per hour, 5 dollars
        rest = f" {_CURRENCIES.get(currency, currency)} {rest.strip()}"
    unit = None
    if rest.strip():
        unit = read_unit(rest)
        if unit is None:
            return None
        # Nobody multiplies `2e-3 m` by a variable.
        if _WITH_POWER.search(text):
            unit = unit._replace(is_symbol=False)
    if signs[1].strip().lower() in ("-", "minus", "negative") or signs[3] == "-":
        value = value.times(-1)
    return Quantity(value, unit, name)


def _without_brackets(text: str) -> str:
    """Return a text without brackets around all of it, if it has no comma, which makes a point of it."""
    for opening, closing in _BRACKETS:
        inner = text[len(opening) : -len(closing)]
        is_around = text.startswith(opening) and text.endswith(closing)
        if is_around and "," not in inner and opening not in inner and closing not in inner:
            return inner.strip()
    return text


def _large_value(match: re.Match[str]) -> int:
    words = match[1].lower().split()
    return math.prod(_LARGE_VALUES.get(word) or _LARGE_SHORT[word[0]] for word in words)


def _read_value(text: str) -> tuple[Value, str] | None:
    """Return the number at the beginning of a text, and the rest of the text."""
    # Matched before it is converted: Fraction takes minutes for an exponent of nine digits, int refuses 5,000 digits.
    if match := _MIXED.match(text):
        whole, above, below = (int(part) for part in match.groups() if part is not None)
        if below == 0:
            return None
        return Value(whole + Fraction(above, below)), text[match.end() :]
    for pattern in (_LATEX_FRACTION, _FRACTION):
        if match := pattern.match(text):
            above_text, below_text = (part for part in match.groups() if part is not None)
            divisor = _decimal(below_text).number
            if divisor == 0:
                return None
            return Value(_decimal(above_text).number / divisor), text[match.end() :]
    if match := _REPEATING.match(text):
        whole_text, before, repeated = match.groups()
        period = Fraction(int(repeated), 10 ** len(before) * (10 ** len(repeated) - 1))
        return Value(Fraction(f"{whole_text or 0}.{before}0") + period), text[match.end() :]
    if match := _POWER.match(text):
        exponent = next(part for part in match.groups()[1:] if part is not None)
        return _decimal(match[1] or "1").times(Fraction(10) ** int(exponent)), text[match.end() :]
    if match := _SCIENTIFIC.match(text):
        return _decimal(match[1]).times(Fraction(10) ** int(match[2] or 0)), text[match.end() :]
    return None


def _decimal(text: str) -> Value:
    digits = text.replace(",", "").replace(" ", "")
    number = Fraction(digits)
    _, point, decimals = digits.partition(".")
    if not point:
        return Value(number)
    step = Fraction(0)
    if len(digits.replace(".", "").lstrip("+-0")) >= _DIGITS_OF_ROUNDED:
        step = Fraction(1, 10 ** len(decimals))
    return Value(number, is_exact=False, step=step)


def ascii_signs(text: str) -> str:
    r"""Return a text with digits and signs of other kinds in ASCII, powers as `^{2}`, and spaces of LaTeX as spaces.

    >>> ascii_signs("−3½ · 10⁻⁶")
    '-3 1/2 \\cdot  10^{-6}'
    """
    text = _LATEX_SPACE.sub(" ", _LATEX_COMMA.sub(",", text))
    text = _OVER.sub(r"\\frac{\1}{\2}", _SIZE.sub("", text))
    text = text.replace(r"\$", "$").replace(r"\%", "%")
    for fraction in (r"\dfrac", r"\tfrac", r"\cfrac"):
        text = text.replace(fraction, r"\frac")
    if text.isascii():
        return text
    text = _LOWERED.sub(_as_index, _RAISED.sub(_as_power, text))
    return "".join(map(_in_ascii, text))


def _as_power(match: re.Match[str]) -> str:
    return "^{" + "".join(_SUPERSCRIPTS[sign] for sign in match[0]) + "}"


def _as_index(match: re.Match[str]) -> str:
    return "_{" + "".join(_SUBSCRIPTS[sign] for sign in match[0]) + "}"


def _in_ascii(character: str) -> str:
    if character.isascii():
        return character
    if character in _IN_ASCII:
        return _IN_ASCII[character]
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    # ½ is a fraction of its own: with a space, so that 3½ is not 31/2. Of full width: ＋, ％, letters.
    if unicodedata.category(character) == "No" and "\u2044" in unicodedata.normalize("NFKC", character):
        return " " + unicodedata.normalize("NFKC", character).replace("\u2044", "/")
    if "\uff01" <= character <= "\uff5e":
        return unicodedata.normalize("NFKC", character)
    return character


def same_quantity(given: Quantity, right: Quantity, tolerance: float) -> bool:
    """Return whether an answer is the right one: the number is close, and neither name nor unit contradicts.

    A percentage is a share of a right answer of at most 1, otherwise the number of percent: 50% is 0.5, and 50.
    """
    if given.name and right.name and given.name != right.name:
        return False
    given_percent, right_percent = given.unit == PERCENT, right.unit == PERCENT
    if given_percent == right_percent:
        return units_agree(given.unit, right.unit) and is_close(given.value, right.value, tolerance)
    # A unit beside a percent sign is another one.
    if given.unit is not None and right.unit is not None:
        return False
    percent = Fraction(1, 100)
    if given_percent:
        value = given.value
        if abs(right.value.number) <= 1:
            value = value.times(percent)
        return is_close(value, right.value, tolerance)
    return any(is_close(given.value, value, tolerance) for value in (right.value, right.value.times(percent)))


def is_close(given: Value, right: Value, tolerance: float) -> bool:
    """Return whether two numbers differ by at most `tolerance`, relative to the larger one, or one is the other
    rounded.

    Two whole numbers or fractions must be equal, unless the tolerance is larger than what rounding needs.
    """
    # As it is written: the float 1e-6 is a little less than that.
    share = Fraction(repr(float(tolerance)))
    if given.is_exact and right.is_exact and share <= Fraction(repr(ROUNDING)):
        return given.number == right.number
    most = share * max(abs(given.number), abs(right.number))
    if share:
        most = max(most, given.step / 2, right.step / 2)
    return abs(given.number - right.number) <= most
