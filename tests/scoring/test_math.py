"""The scorer `math`: what it pays, and what it does not; most cases are from reports about math-verify."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("math_verify")


def outcome(right: str, answer: str) -> Any:
    from rg_env.scoring.math_scorer import math

    return math(answer, {"answer": right})


@pytest.mark.parametrize(
    ("right", "paid"),
    [
        ("x+1\n", ["x+1", "1+x", r"\[x+1\]", r"\(x+1\)", "$x+1$.", "**x+1**", "`x+1`", r"\boxed{x+1}"]),
        (" $5(l-1)^2$", ["5(l-1)^2", r"5\left(l-1\right)^{2}"]),
        ("(1,2)\n", ["(1,2)", "(1, 2)"]),
        ("3e8", [r"3 \times 10^8", "300000000", "3×10⁸"]),
        ("1e-05", ["0.00001", r"10^{-5}"]),
        ("0.5", ["50%", r"50\%", r"\frac{1}{2}", "1/2", r"\dfrac12", r"\sqrt{1/4}"]),
        ("12", ["12 apples", "12 dollars", "12 m/s", "£12", r"12\text{ cm}", "2^2+8", "12.0", "x=12", "5+7=12"]),
        (r"\frac{1}{6}", ["0.166667", "1/6"]),
        (r"\sqrt{2}", ["√2", "sqrt(2)", r"\sqrt2", r"\sqrt(2)", r"\frac{2}{\sqrt{2}}", "1.414214", "2^{1/2}"]),
        (r"\sqrt[3]{2}", [r"\sqrt[3]2", "2^{1/3}"]),
        (r"\frac{\pi}{2}", ["pi/2", "π/2", r"\pi/2"]),
        ("x^2+1", ["x**2+1", "x²+1", "1+x^{2}"]),
        (r"(-\infty,3]", ["(-∞, 3]", r"\left(-\infty, 3\right]"]),
        (r"\{1,2\}", ["1, 2", "2 and 1", "{1, 2}"]),
        ("2+2=4", ["2+2=4", "4=2+2"]),
        (r"$\log_6(216)=3$", [r"\log_6 216=3"]),
        ("2^{2019}-1", [r"2 \cdot 2^{2018} - 1"]),
        ("y=2x", ["2x", "y = 2x", r"\begin{align*}y&=2x\end{align*}"]),
        ("No solution", ["no solution", r"\text{No solution}"]),
        ("Yes", ["yes", "YES.", r"\text{Yes}"]),
        ("No", ["no", "**NO**"]),
        ("odd", ["Odd"]),
        ("x<3", ["3>x"]),
        (r"145\pi/72 \mathrm{~m}/\mathrm{s}", [r"\frac{145\pi}{72}", r"\frac{145\pi}{72} \text{ m/s}"]),
        (r"12\sqrt{3} square units", [r"12\sqrt{3}", r"12\sqrt 3 \text{ square units}", r"6\sqrt{12} square units"]),
        (r"36\pi", [r"36\pi cm^2", r"36\pi \text{ cm}^2", "36π"]),
        ("np.arcsin(10/13)", ["np.arcsin(10/13)"]),  # not read, but the same text
        # The form of the right answer decides.
        ("(3,7)", ["(3, 7)", "x = 3, y = 7", "y = 7, x = 3", "3 < x < 7", r"\langle 3,7\rangle"]),
        (r"\{1,2\}", ["2, 1", "x = 1 or x = 2", "x_1 = 1, x_2 = 2", r"\{1, 2\}"]),
        ("(1,2), (3,4)", ["(3,4), (1,2)", "{(1,2), (3,4)}"]),
        ("x_1 = 1, x_2 = 2", ["1, 2", "2 and 1"]),
        ("[3,7)", ["3 <= x < 7", "7 > x >= 3", r"x \in [3,7)"]),
        ("1 < x < 5", ["5 > x > 1", "(1, 5)"]),
        (r"\emptyset", [r"\varnothing", "{}", r"\{\}", "the empty set"]),
        ("1010_2", [r"1010_{\text{two}}", "(1010)_2", "1010 (base 2)", "1010₂"]),
        ("1010", ["1010_2"]),
        ("2:3", ["4:6", "2 to 3", r"\frac{2}{3}"]),
        ("1:2:3", ["2:4:6"]),
        ("10:30", ["10 : 30"]),
        ("6:00 PM", ["6:00 pm", "6:00 p.m.", r"6:00\text{ PM}"]),
        (r"x \equiv 2 \pmod{13}", [r"x \equiv 2 \pmod 13", r"x\equiv2 \ (\bmod 13)", "x ≡ 2 (mod 13)"]),
        ("i", [r"\sqrt{-1}", "sqrt(-1)", "sqrt{-1}"]),
        ("3+4i", [r"3+4\sqrt{-1}", "z = 3+4i"]),
        ("2 hours", ["2 h", "2h", "2 hrs"]),
        ("5 m", ["5 meters", r"5\text{ m}"]),
        ("1.6e-19", [r"1.6 \times 10^{-19} C"]),
        (r"\begin{pmatrix}1 & 2\\3 & 4\end{pmatrix}", ["\\begin{bmatrix}1&2\\\\\n3&4\\end{bmatrix}"]),
        (
            r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
            ["(1,2)", r"\begin{bmatrix}1\\2\end{bmatrix}", r"\begin{pmatrix}1\\[4pt]2\\ \end{pmatrix}"],
        ),
    ],
)
def test_right_answers_are_paid(right: str, paid: list[str]) -> None:
    for answer in [right, *paid]:
        assert outcome(right, answer) == 1.0, answer


@pytest.mark.parametrize(
    ("right", "unrewarded"),
    [
        (" $5(l-1)^2$", ["5", "5(l-1)"]),
        ("1e-05", ["e-5", "0", "0.0"]),
        # Numbers are compared relative to their size.
        (r"1.602\times 10^{-19}", ["0.0", "10^{-30}", r"9.11\times 10^{-31}", "0.0000003"]),
        (r"10^{-20}x", ["0", "x"]),
        ("0.1", ["0.1000004"]),
        ("2^{64}", ["18446744073709551615"]),
        ("2^{2019}-1", ["2^{2019}", "2^{2019}+1"]),
        (r"\frac{3^{100}-1}{2}", [r"\frac{3^{100}}{2}"]),
        # What is always true, or never, is worth something only if the right answer is written so.
        ("2+2=4", ["x=x", "1=1", "0=0", "4=4", r"\emptyset", "4"]),
        (r"(x+y)^2=x^2+2xy+y^2", ["x=x", "0=0"]),
        ("x^2+1=0", [r"\emptyset", "x=x", "1=2"]),
        ("5", ["5=5", "3=5", "x=x", "4=4=5"]),
        # The last variable is not a unit.
        ("2-2m", ["0", "2"]),
        ("2-4t", ["-2"]),
        ("6m", ["6"]),
        ("9.8", ["9.8t"]),
        ("n+5", ["n+5d"]),
        (r"5\text{ km}", [r"5\text{ m}", "5 m/s"]),
        # One answer, in one line.
        (
            "5",
            [
                "4\n5",
                "5\n4",
                "4, 5",
                "5 or 6",
                "4 5",
                "The answer is not 5",
                "not 5",
                r"\boxed{4} \boxed{5}",
                r"\neq 5",
            ],
        ),
        ("x=-2", ["The answer is not x=-2", "x isn't -2"]),
        ("9", ["4 5", "1 2 3 4 5"]),
        ("4", [r"4\sqrt(2)", r"\emptyset", "()", "{}"]),
        ("5", [r"500\%", "500%"]),
        ("No solution", ["noitulos on", "x=x", r"\emptyset"]),
        ("all multiples of 14, excluding 0", ["all multiples of 14, excludin 0"]),
        (r"36\pi \text{ cm}^2", [r"36\pi \text{ cm}^3", r"36\pi m"]),
        ("x-1", ["1-x", "x=1"]),
        ("(3,7)", ["3,7", "{3,7}", r"\{3,7\}", "[3,7]", "(7,3)", "3 and 7", "x = 7, y = 3", "(3,7,1)"]),
        (r"\{1,2\}", ["(1,2)", "[1,2]", "x = 1, y = 2", "{1,2,3}", "1"]),
        ("(1,2), (3,4)", ["(1,4), (3,2)", "(2,1), (3,4)", "1,2,3,4"]),
        ("x = 1, y = 2", ["x = 2, y = 1", "x = 1, z = 2", "(2, 1)"]),
        ("[3,7)", ["3 < x < 7", "(3,7)", "[3,7]"]),
        (r"(-\infty,3]", [r"(\infty,3]", "x < 3"]),
        (r"\infty", ["617", r"-\infty", "1/0"]),
        (r"(-\infty,\infty)", ["x=x", "0=0", "1<2"]),
        ("x<-2 or x>5", ["y<-2 or y>5", "x<-2"]),
        ("1010_2", ["1010", "1010_3", "10", "1010_{10}"]),
        ("11_2+1", ["12", "4"]),
        ("2:3", ["3:2", "2:3:1", "2"]),
        ("1:2:3", ["1:6", "1/6", "1:3:2"]),
        ("10:30", ["1:3", "20:60", "1/3"]),
        ("6:00 PM", ["6:00 AM", "6:05 pm"]),
        (r"x \equiv 2 \pmod{13}", [r"x \equiv 2 \pmod 3", r"x \equiv 3 \pmod 13"]),
        ("a+b", ["A+B", "a+B"]),
        ("Mg", ["mG", "mg"]),
        ("No", ["Yes", "on", "not", "x=x"]),
        (
            r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
            [r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}", r"\begin{pmatrix} 3 \end{pmatrix}"],
        ),
        ("V/I", ["V/i"]),
        ("i", ["I", "-i", "1"]),
        ("18", ["1 8", "1   8"]),
        ("2 hours", ["2 m", "2 min"]),
        (r"\frac{1}{2}", ["2", ""]),
        ("1, 2, \\ldots, n", ["1, 3, 5, \\ldots, 2n-1"]),
    ],
)
def test_what_is_not_the_answer_is_not_paid(right: str, unrewarded: list[str]) -> None:
    for answer in unrewarded:
        assert outcome(right, answer) != 1.0, answer


def test_what_cannot_be_read_says_so() -> None:
    assert outcome("5", "4\n5") == {"score": 0.0, "unread": 1.0}
    assert outcome("5", "x+1") == 0.0
