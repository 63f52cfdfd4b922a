"""Arithmetic, algebra, geometry, dates and probability."""

from __future__ import annotations

import ast
import calendar
import math
import operator
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from itertools import permutations, product
from typing import Any

from scripts.oracles import Solver, verified

_LEGS = {
    0: "snake, sea slug, jellyfish, flatworm, leech",
    2: "chicken, bird, human, duck",
    4: "dog, cat, cow, horse, lion, elephant, giraffe, tiger, deer, sheep",
    5: "starfish",
    6: "insect, ant, butterfly, beetle, bee, wasp, grasshopper, cricket, cockroach, praying mantis, firefly",
    8: "spider, scorpion",
    10: "crab, lobster, shrimp",
    14: "woodlouse",
}
_BASES = {"binary": 2, "octal": 8, "hexadecimal": 16}
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


def evaluate(text: str, number: Callable[[str], Any] = Fraction, names: dict[str, Any] | None = None) -> Any:
    """The value of an arithmetic expression, exact unless `number` says otherwise."""
    source = text.strip()

    def value(node: ast.AST) -> Any:
        match node:
            case ast.BinOp(left, op, right):
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op, operand):
                return -value(operand) if isinstance(op, ast.USub) else value(operand)
            case ast.Name(id=name) if names:
                return names[name]
            case ast.Call(ast.Name(id=name), [argument]):
                return getattr(math, {"asin": "asin"}.get(name, name))(value(argument))
            case ast.Constant():
                return number(ast.get_source_segment(source, node) or "")
        raise ValueError(ast.dump(node))

    return value(ast.parse(source, mode="eval").body)


def integers(text: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"-?\d+", text)]


def _expression(question: str) -> str:
    """The longest piece of arithmetic in the question."""
    return max(re.findall(r"[-+*/().\d ]+", question), key=len).strip(" .")


def _arithmetic(question: str, *_: Any) -> str:
    return str(evaluate(_expression(question)))


def _decimal(question: str, *_: Any) -> str:
    value = evaluate(_expression(question))
    with localcontext(Context(prec=12, rounding=ROUND_HALF_UP)):
        return format(Decimal(value.numerator) / Decimal(value.denominator), "f")


def _bitwise(question: str, *_: Any) -> str:
    return hex(evaluate(question.splitlines()[-1], lambda text: int(text, 16)))


def _fraction(question: str, *_: Any) -> str:
    upper, lower = re.findall(r"\d+", question)[:2]
    value = Fraction(int(upper), int(lower))
    return (
        question.split("fraction ")[1]
        .split(" to ")[0]
        .replace(upper, str(value.numerator), 1)
        .replace(lower, str(value.denominator), 1)
    )


def _factors(question: str, *_: Any) -> str:
    number, found = integers(question)[0], []
    for candidate in range(2, number + 1):
        while number % candidate == 0:
            found.append(candidate)
            number //= candidate
    return " × ".join(map(str, found))


def _primes(question: str, *_: Any) -> str:
    low, high = integers(question)
    return str(sum(all(n % d for d in range(2, math.isqrt(n) + 1)) for n in range(max(2, low), high + 1)))


def _base(question: str, *_: Any) -> str:
    found = re.search(r"convert the (\S+) number (\w+) to (\S+)", question)
    assert found
    source, base = (_BASES.get(name) or int(name.removeprefix("base-")) for name in found.group(1, 3))
    number, text = int(found[2], source), ""
    while number:
        number, digit = divmod(number, base)
        text = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + text
    return text or "0"


def _power(question: str, *_: Any) -> str | None:
    """`-2^4` is -16 by convention and 16 as the power of a negative number: unclear for even exponents."""
    found = re.search(r"Compute (\S+)\^(-?\d+)", question)
    assert found
    base, exponent = Fraction(found[1]), int(found[2])
    if base < 0 and exponent % 2 == 0:
        return None
    return f"{float(base**exponent):.2e}"


def _legs(question: str, *_: Any) -> str:
    legs = {animal: count for count, animals in _LEGS.items() for animal in animals.split(", ")}
    listed = re.findall(r"(\d+) ([a-z ]+?)s?(?=,|\?)", question.split("if you have")[1])
    return str(sum(int(count) * legs[animal] for count, animal in listed))


def _complex(question: str, *_: Any) -> str:
    text = question.split(": ")[1].replace("×", "*").replace("÷", "/").replace("i", "j").replace(" ", "")
    left, sign, right = re.fullmatch(r"\((.*?)\)(.)\((.*?)\)", text).groups()
    a, b = complex(left), complex(right)
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else a}[sign]
    return f"{value.real} {'-' if value.imag < 0 else '+'} {abs(value.imag)}i"


def _dice(question: str, *_: Any) -> str:
    sides = [int(text) for text in re.findall(r"1d(\d+)", question.split(".")[0])]
    target = int(question.split("rolling ")[1].split()[0])
    ways = [1]
    for side in sides:
        ways = [sum(ways[max(0, total - side) : total]) for total in range(len(ways) + side)]
    return str(Fraction(sum(ways[target:]), math.prod(sides)))


def _coins(question: str, *_: Any) -> str:
    found = re.search(r"(exactly|at least|at most) (\d+) (?:heads|tails) in (\d+)", question)
    assert found
    heads, flips = int(found[2]), int(found[3])
    low, high = {"exactly": (heads, heads), "at least": (heads, flips), "at most": (0, heads)}[found[1]]
    return str(Fraction(sum(math.comb(flips, count) for count in range(low, high + 1)), 2**flips))


def _number_format(question: str, *_: Any) -> str:
    pick = max if "the largest number" in question else min
    return pick(question.split("candidates: ")[1].split(), key=lambda text: Decimal(text.replace(",", ""))).replace(
        ",", ""
    )


def _filtering(question: str, *_: Any) -> str:
    order, limit = re.search(r"(\w+ all numbers \w+) than (\S+)", question).groups()
    keeps, larger = order.startswith("Keep"), order.endswith("larger")
    numbers = ast.literal_eval(question[question.index("[") : question.index("]") + 1])
    return str([n for n in numbers if ((Decimal(n) > Decimal(limit)) == larger) == keeps])


def _sorting(question: str, *_: Any) -> str:
    numbers = question.splitlines()[0].split("order: ")[1].split(", ")
    return str(sorted(numbers, key=Decimal, reverse="descending" in question.splitlines()[0]))


def _linear(question: str, metadata: dict[str, Any], *_: Any) -> str | None:
    left, right = question.split(": ")[1].split("=")
    variable = re.search(r"(?:for|of) (\w)\b", question).group(1)

    def difference(x: int) -> Fraction:
        return Fraction(evaluate(left, names={variable: Fraction(x)}) - evaluate(right, names={variable: Fraction(x)}))

    at_zero, slope = difference(0), difference(1) - difference(0)
    return str(-at_zero / slope) if slope else None


def _roots(_: str, metadata: dict[str, Any], *__: Any) -> str:
    import sympy

    roots = sympy.Poly(sympy.sympify(metadata["polynomial_expr"]), sympy.Symbol(metadata["variable"])).real_roots()
    return ", ".join(str(round(float(root), 4)) for root in sorted(set(roots)))


def _same_at_points(left: str, right: str, variables: str) -> bool:
    for seed in range(3):
        names = {name: Fraction(7 * seed + 3 * place + 2, 5) for place, name in enumerate(sorted(set(variables)))}
        if evaluate(left, names=names) != evaluate(right, names=names):
            return False
    return True


def _product_of_polynomials(question: str, metadata: dict[str, Any], answer: str) -> str:
    asked = question.splitlines()[0].split(": ")[-1]
    return verified(_same_at_points(asked, answer, "".join(re.findall("[A-Za-z]", asked))), answer)


def _integral(question: str, metadata: dict[str, Any], answer: str) -> str:
    """The derivative of the stored answer is the integrand, at some points where both are real."""
    variable, agreed = metadata["variable"], 0
    integrand = question.split("∫ ")[1].split(" dx")[0].split(" dX")[0]

    def at(text: str, x: float) -> float:
        return float(evaluate(text, float, {variable: x, "C": 0.0, "E": math.e, "pi": math.pi}))

    for x in (0.05, 0.11, 0.23, -0.07, -0.17, 0.37, 0.73, 1.3, 2.7, 5.1, -0.4, -1.7, -6.3, 14.9, -23.7):
        try:
            h = 1e-5 * max(1, abs(x))
            slope, height = (at(answer, x + h) - at(answer, x - h)) / (2 * h), at(integrand, x)
        except (ValueError, ZeroDivisionError, OverflowError, TypeError):
            continue
        if abs(slope - height) > 1e-4 * max(1, abs(height), abs(at(answer, x)) * 1e-2):
            return verified(False, answer)
        agreed += 1
    return verified(agreed >= 2, answer)


def _polygon(question: str, *_: Any) -> str:
    sides = int(re.search(r"(\d+) sides|(\d+)-gon", question).group(0).split()[0].split("-")[0])
    return f"{180 * (sides - 2) - sum(map(float, re.findall('([0-9.]+)°', question))):g}"


def _triangle(question: str, *_: Any) -> str:
    a, b, c = (complex(float(x), float(y)) for x, y in re.findall(r"[ABC]=\((\S+), (\S+?)\)", question))
    if "incircle" in question:
        sides = abs(a - b), abs(b - c), abs(c - a)
        area = abs(((b - a).conjugate() * (c - a)).imag) / 2
        return f"{2 * area / sum(sides):.3f}"
    if re.search(r"\bangle (at B|ABC)", question):
        turn = (a - b).conjugate() * (c - b)
        return f"{math.degrees(abs(math.atan2(turn.imag, turn.real))):.3f}°"
    u, v = c - b, c - a  # the orthocenter p: (p - a)·u = 0, (p - b)·v = 0
    first, second = a.real * u.real + a.imag * u.imag, b.real * v.real + b.imag * v.imag
    determinant = u.real * v.imag - u.imag * v.real
    x, y = (first * v.imag - second * u.imag) / determinant, (u.real * second - v.real * first) / determinant
    return f"({x:.3f}, {y:.3f})"


def _given_numbers(target: Callable[[str], int]) -> Solver:
    def solve(question: str, metadata: dict[str, Any], answer: str) -> str:
        given = integers(
            re.split("these numbers: |the numbers |Make 24 using ", question)[1].split(".")[0].split("create")[0]
        )
        right = evaluate(answer) == target(question) and sorted(integers(answer.replace("-", " "))) == sorted(given)
        return verified(right, answer)

    return solve


def _target(question: str) -> int:
    return int(re.search(r"(?:equals|make|Calculate) (\d+)", question).group(1))


_MONTHS = {name: number for number, name in enumerate(calendar.month_name) if name}
_DATE = re.compile(rf"({'|'.join(_MONTHS)}) (\d{{1,2}})\b")
_DAYS = list(calendar.day_name)


def _calendar(question: str, *_: Any) -> str:
    year = int(re.search(r"\b(\d{4})\b", question).group(1)) if re.search(r"\b\d{4}\b", question) else 2022
    if "leap year" in question:
        return "Yes" if year % 4 == 0 and (year % 100 or year % 400 == 0) else "No"
    dates = [datetime(year, _MONTHS[month], int(day)) for month, day in _DATE.findall(question)]
    day = timedelta(days=1)
    if ordinal := re.search(r"the (first|second|third|fourth|last) (\w+day)", question):
        month = next(number for name, number in _MONTHS.items() if name in question)
        days = [
            d
            for d in range(1, calendar.monthrange(year, month)[1] + 1)
            if calendar.weekday(year, month, d) == _DAYS.index(ordinal[2])
        ]
        place = {"first": 0, "second": 1, "third": 2, "fourth": 3, "last": -1}[ordinal[1]]
        return str(days[place])
    if first := re.search(r"(?:first day of the year was an? |January 1 fell on an? |where )(\w+day)", question):
        target = dates[-1]
        return _DAYS[(_DAYS.index(first[1]) + (target - datetime(year, 1, 1)).days) % 7]
    if len(dates) == 2:
        span = [dates[0] + day * n for n in range((dates[1] - dates[0]).days + 1)]
        if "business days" in question or "weekdays (excl" in question:
            return str(sum(d.weekday() < 5 for d in span))
        wanted = re.search(r"(?:How many |occurrences of |many times does )(\w+day)", question)
        assert wanted
        return str(sum(d.weekday() == _DAYS.index(wanted[1]) for d in span))
    if slashed := re.search(r"(\d\d)/(\d\d)/(\d{4})", question):
        return _DAYS[calendar.weekday(int(slashed[3]), int(slashed[1]), int(slashed[2]))]
    if offset := re.search(r"(\d+)(?:-| )day", question):
        sign = -1 if re.search("ago|before|backward", question) else 1
        return _DAYS[(dates[0] + sign * int(offset[1]) * day).weekday()]
    return _DAYS[dates[0].weekday()]


def _interval(question: str, *_: Any) -> str | None:
    """Reads each date and time with the one pattern that fits, and counts in whole milliseconds."""
    start, end = re.search(
        r"(?:between|from|at) (.*?) (?:and|to)\b(?: ended at| completed at| arrived at)? (.*?)[?.] ", question
    ).groups()
    asked = re.search(r" in (D days.*|HH:.*)\.$", question).group(1)
    moments = [_moment(start), _moment(end)]
    milliseconds = moments[1] - moments[0]
    if "D days" not in asked:
        milliseconds %= 86_400_000
    if milliseconds < 0 or (asked.endswith("HH:MM") and milliseconds % 60_000 >= 30_000):
        return None
    if "/" in start and all(int(part) <= 12 for text in (start, end) for part in text.split("/")[:2]):
        swapped = [_moment("/".join((text[3:5], text[:2], text[6:]))) for text in (start, end)]
        if swapped[1] >= swapped[0] and swapped[1] - swapped[0] != milliseconds:
            return None
    days, rest = divmod(milliseconds, 86_400_000)
    clock = f"{rest // 3_600_000:02d}:{rest // 60_000 % 60:02d}:{rest // 1000 % 60:02d}.{rest % 1000:03d}"
    clock = clock[: {"HH:MM": 5, "HH:MM:SS": 8, "HH:MM:SS.mmm": 12}.get(asked.split(", ")[-1], 0)]
    return ", ".join(filter(None, (f"{days} days" if "D days" in asked else "", clock)))


def _moment(text: str) -> int:
    """Milliseconds since year 1, UTC."""
    date = 0
    if found := re.search(r"(\d{4})-(\d\d)-(\d\d)", text):
        date = datetime(int(found[1]), int(found[2]), int(found[3])).toordinal()
    elif found := re.search(r"(\d\d)/(\d\d)/(\d{4})", text):
        date = datetime(int(found[3]), int(found[1]), int(found[2])).toordinal()
    elif month := re.search(r"\b([A-Z][a-z]{2})[a-z]* (\d\d),? (\d{4})|(\d\d) ([A-Z][a-z]{2})[a-z]* (\d{4})", text):
        name, day, year = month.group(1, 2, 3) if month[1] else month.group(5, 4, 6)
        date = datetime(int(year), list(calendar.month_abbr).index(name), int(day)).toordinal()
    hours, minutes, seconds, fraction = (
        re.search(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{3}))?)?", text) or re.search("()()()()", "")
    ).groups()
    zone = re.search(r" ([+-])(\d\d)(\d\d)$", text)
    offset = (int(zone[2]) * 60 + int(zone[3])) * (1 if zone[1] == "+" else -1) if zone else 0
    whole = (date * 24 + int(hours or 0)) * 60 + int(minutes or 0) - offset
    return (whole * 60 + int(seconds or 0)) * 1000 + int(fraction or 0)


def _puzzle24(question: str, metadata: dict[str, Any], answer: str) -> list[str]:
    """The stored answer if it is right, and others found by trying everything."""
    found = [_given_numbers(lambda _: 24)(question, metadata, answer)]
    numbers = integers(question.split("using ")[1].split(".")[0])
    for a, b, c, d in permutations(numbers):
        for x, y, z in product("+-*/", repeat=3):
            for text in (f"(({a}{x}{b}){y}{c}){z}{d}", f"({a}{x}{b}){y}({c}{z}{d})", f"{a}{x}({b}{y}({c}{z}{d}))"):
                try:
                    if evaluate(text) == 24:
                        return [*found, text]
                except ZeroDivisionError:
                    continue
    return found


SOLVERS: dict[str, Solver] = {
    "advanced_geometry": _triangle,
    "base_conversion": _base,
    "basic_arithmetic": _arithmetic,
    "bitwise_arithmetic": _bitwise,
    "calendar_arithmetic": _calendar,
    "chain_sum": _arithmetic,
    "coin_flip": _coins,
    "complex_arithmetic": _complex,
    "count_bits": lambda question, *_: str(bin(integers(question)[-1]).count("1")),
    "count_primes": _primes,
    "countdown": _given_numbers(_target),
    "decimal_arithmetic": _decimal,
    "decimal_chain_sum": _decimal,
    "dice": _dice,
    "fraction_simplification": _fraction,
    "gcd": lambda question, *_: str(math.gcd(*integers(question))),
    "intermediate_integration": _integral,
    "lcm": lambda question, *_: str(math.lcm(*integers(question))),
    "leg_counting": _legs,
    "number_filtering": _filtering,
    "number_format": _number_format,
    "number_sorting": _sorting,
    "polynomial_equations": _roots,
    "polynomial_multiplication": _product_of_polynomials,
    "power_function": _power,
    "prime_factorization": _factors,
    "products": _arithmetic,
    "puzzle24": _puzzle24,
    "simple_equations": _linear,
    "simple_geometry": _polygon,
    "simple_integration": _integral,
    "time_intervals": _interval,
}
