"""Units after a number in an answer: which words are one, and which two mean different things.

Invariant: nothing is converted. Two units contradict each other unless one is left out, or they have the same factors
with the same powers, whatever their abbreviation, prefix or plural. Words that are not units, such as `red` in
`9 red apples`, may be left out. Upper and lower case matter in symbols (`mW`, `MW`), unless only one is known (`KG`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_NAMES = """
m meter metre
ft foot feet
in inch
yd yard
mi mile
g gram gm
kg kilo
lb pound £
oz ounce
t tonne
s second sec
min minute
h hour hr
d day
wk week
yr year
mo month
L l liter litre
gal gallon
$ dollar usd buck
€ euro eur
¥ yen
₹ rupee rs
¢ cent
° degree deg
°C celsius centigrade °c °celsius
°F fahrenheit °f °fahrenheit
K kelvin
rad radian
rev revolution
Hz hertz
J joule
cal calorie
W watt
N newton
V volt
A ampere amp
C coulomb
F farad
T tesla
Pa pascal
bar
atm atmosphere
eV electronvolt
mol mole
dB decibel
M molar
Ω ohm
Å angstrom
person people
child children
man men
woman women
"""
"""A unit in a line: its symbol and its names."""
_PREFIXES = {
    "f": "femto",
    "p": "pico",
    "n": "nano",
    "μ": "micro",
    "m": "milli",
    "c": "centi",
    "d": "deci",
    "k": "kilo",
    "M": "mega",
    "G": "giga",
    "T": "tera",
}
_PREFIXED = (
    "m",
    "g",
    "s",
    "L",
    "Hz",
    "J",
    "cal",
    "W",
    "N",
    "V",
    "A",
    "C",
    "F",
    "T",
    "Pa",
    "bar",
    "eV",
    "mol",
    "M",
    "Ω",
)
_PRODUCTS = {
    "mph": "mi/h",
    "kph": "km/h",
    "kmh": "km/h",
    "kmph": "km/h",
    "rpm": "rev/min",
    "kWh": "kW h",
    "sqft": "ft^2",
    "sqm": "m^2",
    "cc": "cm^3",
    "Nm": "N m",
}
"""Symbols that are a product of others."""


def _units_by_name() -> dict[str, str]:
    """Return the symbol of every unit, by each symbol and each name that it has."""
    units = {}
    for line in _NAMES.split("\n"):
        for name in line.split():
            units[name] = line.split()[0]
    symbols = dict(units)
    for prefix, word in _PREFIXES.items():
        for name, symbol in symbols.items():
            # Nobody has megaseconds; `MM` is a millimeter in capitals, and `ML` a milliliter.
            if symbol not in _PREFIXED or (symbol in "sML" and prefix in "MGT") or (symbol in "sM" and prefix in "cdk"):
                continue
            is_short = name in (symbol, "l")
            units.setdefault((prefix if is_short else word) + name, prefix + symbol)
            if prefix == "μ" and is_short and symbol != "s":  # `US` is a country
                units["u" + name] = prefix + symbol
    return units


_UNITS = _units_by_name()
_IN_LOWER_CASE = {name.lower(): symbol for name, symbol in reversed(_UNITS.items()) if len(name) > 1}
_SYMBOLS = frozenset(_UNITS.values())
_OTHER_WORDS = """
and or not no nor never neither but except without if when unless is isn't are aren't was to plus minus over
mod modulo sin cos tan log ln exp pi sqrt inf infinity infty factorial divided multiplied root remainder
than below above under half halves quarter quarters dozen dozens doz tens hundreds thousands millions billions
trillions lakh lakhs crore crores
"""
_PARTS = """
third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth
seventeenth eighteenth nineteenth twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth
hundredth thousandth millionth billionth trillionth
"""
_NOT_UNITS = frozenset((*_OTHER_WORDS.split(), *_PARTS.split(), *(f"{part}s" for part in _PARTS.split())))
"""Words after which a text is something else than a number with a unit: another number, two, or none."""
_POWER_WORDS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_PERCENT = frozenset(("%", "percent", "percentage", "pct"))
_MOST_WORDS = 6
_IN_TEXT = re.compile(r"\\(?:text|textrm|textbf|mathrm|mathbf|mbox|operatorname|rm) ?\{([^{}]*)\}")
_DEGREE = re.compile(
    r"\^ ?(?:\\circ|\{ ?\\circ ?\})|\\degree|°|\bdeg(?:ree)?s?\b(?= ?(?:[CF]\b|celsius|fahrenheit))", re.IGNORECASE
)
_SPACE_AFTER_DEGREE = re.compile("° ?(?=[CF]|celsius|fahrenheit)", re.IGNORECASE)
_POWER = re.compile(r" ?(?:\^|\*\*) ?(?:\{ ?(-?[0-9]) ?\}|\( ?(-?[0-9]) ?\)|(-?[0-9]))")
_FRACTION = re.compile(r"\\frac ?\{([^{}]*)\} ?\{([^{}]*)\}")
_TOKEN = re.compile(
    r" ?(?:(?P<word>[A-Za-zμΩÅ$€£¥₹¢%°][A-Za-zμΩÅ'’]*)\.?(?:\^?(?P<power>-?[0-9]))?"
    r"|(?P<over>/)|(?P<product>\\cdot\b|\*|(?<=[A-Za-z])-(?=[A-Za-z]))|[()]) ?"
)
_SYMBOL = re.compile(r"[A-Za-z](?: ?\^-?[0-9])?")
_VOWEL = re.compile("[aeiou]", re.IGNORECASE)


class Unit(NamedTuple):
    """A unit: its factors with their powers, in order of their names, such as `(("m", 1), ("s", -2))`.

    Attributes:
        is_symbol: it might as well be a symbol of mathematics, as in `5m`: a letter that is not marked as text.
    """

    factors: tuple[tuple[str, int], ...]
    is_symbol: bool = False


PERCENT = Unit((("%", 1),))


def read_unit(text: str) -> Unit | None:
    r"""Return the unit that a text is, which follows a number; None for any other text.

    >>> read_unit(" square meters").factors, read_unit(r"\text{ m}/\text{s}").factors, read_unit(" or so")
    ((('m', 2),), (('m', 1), ('s', -1)), None)
    """
    # A letter that follows the number at once, or after a space, is a symbol of mathematics for all that is known.
    is_attached = not text.startswith((" ", "("))
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text, is_attached = text[1:-1], False
    for command, letter in (("mu", "μ"), ("Omega", "Ω"), ("AA", "Å")):
        text = re.sub(rf"\\{command}(?![A-Za-z]) ?", letter, text)
    powers = _POWER.sub(r"^\1\2\3", _DEGREE.sub("°", text))
    plain = _FRACTION.sub(r"\1/(\2)", _IN_TEXT.sub(r" \1 ", powers)).replace(" ^", "^")
    in_text = bool(_IN_TEXT.search(powers))
    plain = _SPACE_AFTER_DEGREE.sub("°", " ".join(plain.split())).replace("per cent", "percent").replace("(s)", "")
    words = list(_words(plain))
    if not words or plain.count("(") != plain.count(")"):
        return None
    names, _ = zip(*words, strict=True)
    lower = list(map(str.lower, names))
    if not _NOT_UNITS.isdisjoint(lower):
        return None
    if len(_PERCENT.intersection(lower)) > 1 or lower.count("%") > 1:
        return None
    factors: dict[str, int] = {}
    for word, power in words:
        for name, of_product in _factors(word):
            # `apples and apples` are apples; nobody writes a unit twice but for a power: `m/s/s`.
            if power < 0 or name not in factors:
                factors[name] = factors.get(name, 0) + of_product * power
    unit = tuple(sorted(factors.items()))
    # `12% of the cake`, `12% per year`.
    if "%" in factors:
        others = [name for name, power in unit if power > 0 and name in _SYMBOLS]
        return PERCENT if not others and words[0][0].lower() in _PERCENT else None
    if in_text:
        return Unit(unit)
    if factors.keys() <= _SYMBOLS:
        # `5m` and `5 m` may be a product, `5 cm` and `5 m/s` are not.
        return Unit(unit, is_symbol=bool(_SYMBOL.fullmatch(plain)))
    # `6x`, `6 ab` and `6xyz` are products.
    if is_attached or not any(len(word) > 2 and _VOWEL.search(word) for word, _ in words):
        return None
    return Unit(unit)


def _words(text: str) -> Iterator[tuple[str, int]]:
    """Yield the words of a unit, each with its power, which is negative after a `/` or `per`. Nothing if it is none."""
    words: list[tuple[str, int]] = []
    place, side, before = 0, 1, 1
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None or len(words) == _MOST_WORDS:
            return
        place = token.end()
        word = token["word"]
        if not words and (token["over"] or token["product"]):
            return
        if token["over"] or (words and word in ("per", "Per", "a", "an")):
            # `m/s/s`, and `J/mol K` is J/(mol K).
            side = -1
        elif word and word.lower() in _POWER_WORDS:
            power = _POWER_WORDS[word.lower()]
            # `square feet`, and `feet squared`.
            if word.lower().endswith("d"):
                if not words:
                    return
                words[-1] = (words[-1][0], words[-1][1] * power)
            else:
                before = power
        elif word:
            # `cm2` is a square; `apples2` is nothing.
            if token["power"] and "^" not in token[0] and not _is_known(word):
                return
            power = int(token["power"] or before)
            # What is `ms^{-2}` in books of physics: m s^{-2}, not a millisecond.
            if word == "ms" and power < 0:
                words.append(("m", side))
                word = "s"
            words.append((word, side * power))
            before = 1
    yield from words


def _is_known(word: str) -> bool:
    return dict(_factors(word)).keys() <= _SYMBOLS


def _factors(word: str) -> list[tuple[str, int]]:
    for name in (word, word.lower()):
        if name in _PRODUCTS:
            return list(_words(_PRODUCTS[name]))
    if word.lower() in _PERCENT:
        word = "%"
    return [(_symbol(word), 1)]


def _symbol(word: str) -> str:
    """Return the symbol of a unit; of any other word its singular in lower case."""
    if len(word) == 1:
        return _UNITS.get(word, word)
    lower = word.lower()
    for name in (word, lower, *_singulars(lower)):
        if name in _UNITS or name in _IN_LOWER_CASE:
            return _UNITS.get(name) or _IN_LOWER_CASE[name]
    return next(_singulars(lower))


def _singulars(word: str) -> Iterator[str]:
    """Yield the singulars that a word in lower case may have, the likeliest first."""
    if len(word) > 4 and word.endswith("ies"):
        yield word[:-3] + "y"
    if len(word) > 4 and word.endswith(("xes", "ches", "shes", "sses", "zes")):
        yield word[:-2]
    if len(word) > 2 and word.endswith("s") and not word.endswith("ss"):
        yield word[:-1]
    yield word


_MAY_BE = {("F", "°F"), ("C", "°C"), ("°", "°F"), ("°", "°C")}
"""What may mean the same: 98.6 F, 98.6 degrees."""


def units_agree(one: Unit | None, other: Unit | None) -> bool:
    """Return whether two units do not contradict each other."""
    if one is None or other is None or one.factors == other.factors:
        return True
    factors, others = dict(one.factors), dict(other.factors)
    if len(factors) == len(others) == 1:
        (name, power), (other_name, other_power) = *factors.items(), *others.items()
        if power == other_power and (
            {(name, other_name), (other_name, name)} & _MAY_BE or "unit" in (name, other_name)
        ):
            return True
    # Of two texts, the longer one may have more words.
    for name, power in set(factors.items()) ^ set(others.items()):
        if power != 1 or name in _SYMBOLS:
            return False
    return set(factors.items()) <= set(others.items()) or set(others.items()) <= set(factors.items())
