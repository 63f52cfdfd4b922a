"""What is a number in an answer, and which numbers are the same."""

from __future__ import annotations

from fractions import Fraction

import pytest

from rg_env.scoring.numbers import read_number, read_quantity, same_quantity


@pytest.mark.parametrize(
    ("number", "spellings"),
    [
        ("72", ["72", "+72", "72.", "72.0", "072", "7.2e1", "7.2E+1", "**72**", "`72`", "72,", "７２", "٧٢"]),
        ("72", ["$72", "$72$", "€72", "72%", "72km", "72°", "x=72", "≈72", "$ 72", "US$72", r"\$72", r"72\%"]),
        (
            "72",
            ["72 dollars", "72 (apples)", "72 miles per hour", "$72 per hour", "72 square meters", "72 cm²", "72°C"],
        ),
        ("72", ["x = 72", r"\theta = 72", "f(3) = 72", "x_1 = 72", "The answer is 72.", "about 72", r"\approx 72"]),
        ("72", [r"$\$72$", r"\(\$72\)", r"\boxed{\$72}", r"$\boxed{72}$ cm", r"\(72\) cm", "**72** apples"]),
        ("72", [r"\(72\)", r"\[72\]", r"\boxed{72}", r"$\boxed{72}$.", r"\text{72}", r"72\text{ cm}"]),
        ("72", [r"72^\circ", r"72\,\mathrm{km/h}", r"72 \mathrm{~m} / \mathrm{s}^2", r"72^{\circ}C"]),
        ("-3", ["-3", "- 3", "\u22123", "\u20133", "-$3", "$-3", "-3.0", "-6/2", r"-\frac{6}{2}", r"\frac{-6}{2}"]),
        (
            "1234",
            ["1,234", "1 234", "1\u202f234", "1\u00a0234", "1{,}234", r"1,\!234", r"1\,234", "$1,234.00", "1234 km"],
        ),
        ("1/2", ["0.5", ".5", "1/2", "½", "1 / 2", r"\frac{1}{2}", r"\dfrac12", "2/4", "5e-1", "1.5/3"]),
        ("7/2", ["3.5", "3 1/2", "3½", r"3\frac{1}{2}", r"3 \tfrac{1}{2}", "7/2"]),
        (
            "1500000",
            ["1.5e6", "1.5×10⁶", r"1.5 \times 10^{6}", r"1.5 \cdot 10^6", "1.5*10**6", "1.5 million", "1.5x10^6"],
        ),
        ("18", ["(18)", "[18]", '"18"', "“18”", "= 18", "*18*", "#### 18", "**Answer:** 18", "Total: $18", "m+n = 18"]),
        ("2", ["2 hrs", "2hrs.", "(2 hours)", "2 sq. ft.", "2 m/s/s", "2 J/(mol K)", "2 °F", "2 F", "2 ℉", "2 kgs"]),
        ("-3", ["(-3)", "minus 3", "negative 3", "-(3)"]),
        ("70000", ["$70k", "$70K", r"$70 \text{ thousand}"]),
        ("500000", ["5 hundred thousand", r"5\text{ hundred thousand} dollars", "5 Hundred Thousand people"]),
        ("4/33", [r"0.\overline{12}", r".\overline{12}", r"0.12\bar{12}"]),
        ("1/1000", ["1e-3", "10^{-3}", "10⁻³", r"1\times10^{-3}", "10^-3", "0.001"]),
    ],
)
def test_a_number_may_be_written_in_many_ways(number: str, spellings: list[str]) -> None:
    for text in spellings:
        assert read_number(text) == Fraction(number), text


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", ".", "1,23", "1e", "1/0", "nan", "inf", "1" * 401, "1e9999", "x", "1_000", "0x10", "1.2.3", "5!"),
        *(
            "4\n5",
            "4 5",
            "4, 5",
            "4 or 5",
            "4 and 5",
            "4-5",
            "3=5",
            "x=4, y=5",
            "a=b=5",
            r"\boxed{4} \boxed{5}",
            "$4$ or $5$",
            "**4** and 5",
        ),
        *("The answer is not 5", "not 5", "5 not", "5 or so", "5 apples and 3 pears", "5 if true", "5?", "<5", "~"),
        *(
            "5x",
            "5 x",
            "6ab",
            "6 ab",
            "6xyz",
            "2pi",
            "2 pi",
            "2^10",
            "10^3^2",
            "2^{2^2}",
            "3 dozen",
            "--5",
            "-$-5",
            "$5^2",
        ),
        *("(3,4)", "(1,234)", "-(-3)", "5 - m", "5 * m", "5 /m", "5 squared", "5 (a", "(5", '"5', "x y = 5", "25%%"),
        *("the answer isn't 5", "The answer is not (5)", "5 to 7", "5 hrs and 3 min", "minus -3"),
        *("2 thirds", "2 two-thirds", "3 Quarters", "5 tenths", "3 ten-thousandths", "1 twentieth", "5 factorial"),
        *("5 degrees below zero", "5 above zero", "5 divided by two", "2 hundreds", "3 millions", "3 lakh"),
        *("5 " + "word " * 7, "5 " * 600, "9" * 2000),
    ],
)
def test_what_is_no_number(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize(
    ("right", "same", "others"),
    [
        ("1000", ["1e3", "1000.0005"], ["1000.1", "1001", "-1000"]),
        # Whole numbers and fractions are not rounded.
        ("123456789", ["123456789.0", "123,456,789"], ["123456788"]),
        ("1/3", ["0.333333", "0.33333", "2/6"], ["0.3333", "0.33334", "333333/1000000"]),
        ("1/6", ["0.166667"], ["0.16666", "0.17"]),
        ("1.6e-19", ["1.6 \\times 10^{-19}"], ["0", "0.0", "1e-30", "0.0000003", "1.7e-19"]),
        ("0", ["0.0", "-0", "0%"], ["0.0000001", "1e-30"]),
        # A unit may be left out, and must be the right one.
        (
            "5 km",
            ["5", "$5$ km", r"\boxed{5}\text{ km}", "5 kilometers", "5km", r"5\text{ km}"],
            ["5 m", "$5$ m", "5 km/h", "5 %", "$5", "5 km^2"],
        ),
        ("$18", ["18", "18 dollars", "18 USD", "$18.00"], ["18 cents", "€18", "18%"]),
        ("2 hours", ["2 hrs", "2 h", "2 Hours", "2 HRS", "2 hr."], ["2 minutes", "2 days", "120 minutes"]),
        ("98.6 °F", ["98.6 F", "98.6 degrees Fahrenheit", "98.6 degrees", "98.6 º F"], ["98.6 °C", "98.6 K"]),
        (
            "9.8 m/s^2",
            ["9.8 m s^-2", "9.8 meters per second squared", "9.8 ms^{-2}", "9.8 m/s/s"],
            ["9.8 m/s", "9.8 s"],
        ),
        ("4 MW", ["4 megawatts", "4.0 Megawatt"], ["4 mW", "4 kW", "4 MJ"]),
        ("3 nm", ["3 nanometers"], ["3 Nm", "3 mm", "3 μm"]),
        ("5 kg", ["5 KG", "5 Kg", "5 kilograms"], ["5 Mg", "5 kg m", "5 kg^2"]),
        ("12 square feet", ["12 ft²", "12 sqft", "12 sq. ft.", "12 square units"], ["12 cubic feet", "12 feet"]),
        ("9 (apples)", ["9", "9 apples", "9 red apples", "9 apple"], ["9 pears"]),
        ("60 mph", ["60 miles per hour", "60 mi/h"], ["60 miles"]),
        ("12 m^2", ["12 square meters", "12 m²"], ["12 m^3"]),
        # A percentage is a share of a right answer of at most 1.
        ("0.5", ["50%", r"50\%", "50 percent"], ["0.5%", "50"]),
        ("25", ["25%", "25 percent"], ["2500%", "0.25"]),
        ("50%", ["50", "0.5", "1/2"], ["5000%", "0.5%", "50 km"]),
        ("x = 5", ["5", "x=5"], ["y = 5"]),
    ],
)
def test_which_numbers_are_the_same(right: str, same: list[str], others: list[str]) -> None:
    expected = read_quantity(right)
    assert expected is not None
    for text in [right, *same, *others]:
        given = read_quantity(text)
        assert given is not None
        assert same_quantity(given, expected, 1e-6) == (text not in others), text


def test_a_tolerance_of_ones_own_holds_for_whole_numbers_too() -> None:
    right, near, far = (read_quantity(text) for text in ("200", "201", "203"))
    assert right and near and far
    assert same_quantity(near, right, 0.01) and not same_quantity(far, right, 0.01)
