"""Legitimate ways to write right answers to the tasks whose scorers evaluate: for each task (entry's fields, answers).

Upstream's raw scorer gives at least 0.1 for each of them; `test_guard` checks that, too.
"""

from __future__ import annotations

from typing import Any


def _lists_of(items: list[str]) -> list[str]:
    """A flat list, as Python, JSON and people write it. The items are Python literals."""
    comma = ", ".join(items)
    tight = ",".join(items)
    return [
        f"[{comma}]",
        f"[{tight}]",
        f"({comma})",
        f"({tight})",
        f" [{comma}] ",
        f"[ {comma} ]",
        f"( {comma} )",
        f"[{comma},]",
        f"({comma},)",
        f"[{comma}]\n",
        f"[\n{comma}\n]",
        "[\n  " + ",\n  ".join(items) + "\n]",
        "[\n\t" + ",\n\t".join(items) + ",\n]",
        f"[{' , '.join(items)}]",
        f"[{',  '.join(items)}]",
        f"([{comma}])",
        f"(({comma}))",
        comma,
        tight,
        f"{comma},",
    ]


def _boards_of(rows: list[list[str]]) -> list[str]:
    """A list of lists."""
    lines = [f"[{', '.join(row)}]" for row in rows]
    tight = [f"[{','.join(row)}]" for row in rows]
    round_lines = [f"({', '.join(row)})" for row in rows]
    return [
        f"[{', '.join(lines)}]",
        f"[{','.join(tight)}]",
        f"[{','.join(lines)}]",
        f"[{', '.join(tight)}]",
        f"({', '.join(lines)})",
        f"[{', '.join(round_lines)}]",
        f"({', '.join(round_lines)})",
        f" [{', '.join(lines)}] ",
        f"[{', '.join(lines)}]\n",
        f"[ {', '.join(lines)} ]",
        f"[{', '.join(lines)},]",
        "[" + ",\n ".join(lines) + "]",
        "[\n" + ",\n".join(lines) + "\n]",
        "[\n  " + ",\n  ".join(lines) + ",\n]",
        "[\r\n" + ",\r\n".join(tight) + "\r\n]",
        f"({', '.join(tight)})",
        f"([{', '.join(lines)}])",
        ", ".join(lines),
        ",".join(tight),
        f"[{' , '.join(lines)}]",
    ]


def _quoted(text: str, quote: str = "'") -> list[str]:
    return [f"{quote}{character}{quote}" for character in text]


_QUEENS = ["_ Q _ _", "_ _ _ Q", "Q _ _ _", "_ _ Q _"]
_QUEENS_CELLS = [row.split() for row in _QUEENS]

VARIANTS: dict[str, list[tuple[dict[str, Any], list[str]]]] = {
    "string_insertion": [
        (
            {"answer": "ABCDAE"},
            [
                "ABCDAE",
                *_lists_of(_quoted("ABCDAE")),
                *_lists_of(_quoted("ABCDAE", '"'))[:6],
                "'ABCDAE'",
                '"ABCDAE"',
                "['ABCD', 'A', 'E']",
                "['ABCDAE']",
                "('ABCD', 'AE')",
            ],
        )
    ],
    "spiral_matrix": [
        (
            {"answer": "1 2 3 6 9 8 7 4 5"},
            [
                "1 2 3 6 9 8 7 4 5",
                " 1 2 3 6 9 8 7 4 5",
                "1 2 3 6 9 8 7 4 5\n",
                *_lists_of(list("123698745")),
                *_lists_of(_quoted("123698745"))[:6],
                "'123698745'",
                '["1", "2", "3", "6", "9", "8", "7", "4", "5"]',
            ],
        )
    ],
    "binary_matrix": [
        (
            {"answer": "0 1 2\n1 0 1\n2 1 0"},
            [
                "0 1 2\n1 0 1\n2 1 0",
                *_boards_of([list("012"), list("101"), list("210")]),
                *_boards_of([_quoted("012"), _quoted("101"), _quoted("210")])[:8],
                "['012', '101', '210']",
                '("012", "101", "210")',
            ],
        )
    ],
    "n_queens": [
        (
            {"answer": "\n".join(_QUEENS), "metadata": {"valid_answers": ["\n".join(_QUEENS)]}},
            [
                "\n".join(_QUEENS),
                *_boards_of([_quoted("".join(row)) for row in _QUEENS_CELLS]),
                *_boards_of([_quoted("".join(row), '"') for row in _QUEENS_CELLS])[:8],
                "['_Q__', '___Q', 'Q___', '__Q_']",
                '("_Q__", "___Q", "Q___", "__Q_")',
            ],
        )
    ],
    "countdown": [
        (
            {"metadata": {"numbers": [25, 4, 6, 2], "target": 112}},
            [
                "25*4+6*2",
                "25*4 + 6*2",
                "25 * 4 + 6 * 2",
                "25 *4+ 6* 2",
                "(25*4)+(6*2)",
                "( 25 * 4 ) + ( 6 * 2 )",
                "((25*4)+(6*2))",
                "(25)*(4)+(6)*(2)",
                "(((25)))*4+6*2",
                "4*25+2*6",
                "6*2+25*4",
                "2*6 + 4*25",
                " 25*4+6*2 ",
                "25*4+6*2\n",
                "\t25*4+\t6*2",
                "+25*4+6*2",
                "25*+4+6*2",
                "25*4--6*2",
                "25*4 - -6*2",
                "25*4-(-6*2)",
                "-(-25*4-6*2)",
                "-(-25)*4+6*2",
                "6*2-(-25)*4",
                "(25*4 +\n 6*2)",
                "(\n25*4+6*2\n)",
                "(25*4\r\n+6*2)",
                "25*4+(2*6)",
            ],
        ),
        (
            {"metadata": {"numbers": [100, 8, 4, 3], "target": 150}},
            ["100*3/8*4", "100*3/(8/4)", "3*100/8*4", "(100/8)*(3*4)"],
        ),
    ],
    "puzzle24": [
        (
            {"question": "You can use the operators +, -, *, /.\n", "metadata": {"numbers": [8, 3, 2, 1]}},
            [
                "8*3*(2-1)",
                "8 * 3 * (2 - 1)",
                "8*3/(2-1)",
                "8*3 / (2-1)",
                "(8*3)*(2-1)",
                "(8*3)/(2-1)",
                "((8*3)/(2-1))",
                "(2-1)*8*3",
                "(2-1)*(8*3)",
                "3*8*(2-1)",
                "3*(2-1)*8",
                "8*(2-1)*3",
                "8*(3*(2-1))",
                "3 * 8 / (2 - 1)",
                "8/(2-1)*3",
                " 8*3*(2-1) ",
                "8*3*(2-1)\n",
                "\t8*3*(2-1)",
                "(8)*(3)*((2)-(1))",
                "-8*3*(1-2)",
                "8*-3*(1-2)",
                "8*3*-(1-2)",
                "8*3*(-1+2)",
                "8*3*(-(1-2))",
                "+8*3*(2-1)",
                "(8 * 3) * (2 - 1)",
                "(8\n*3)*(2-1)",
                "( 8 * 3 ) / ( 2 - 1 )",
                "(3/(2-1))*8",
                "3/((2-1)/8)",
                "8/((2-1)/3)",
                "(-8)*(-3)*(2-1)",
            ],
        )
    ],
    "simple_integration": [
        (
            {"metadata": {"integrand": "3*x**2/2 - 4*x", "variable": "x"}},
            [
                "x**3/2 - 2*x**2 + C",
                "x**3/2-2*x**2+C",
                "x ** 3 / 2 - 2 * x ** 2 + C",
                "(x**3)/2 - 2*(x**2) + C",
                "(1/2)*x**3 - 2*x**2 + C",
                "1/2*x**3 - 2*x**2 + C",
                "0.5*x**3 - 2*x**2 + C",
                ".5*x**3 - 2*x**2 + C",
                "0.5*x**3 - 2.0*x**2 + C",
                "5e-1*x**3 - 2*x**2 + C",
                "-2*x**2 + x**3/2 + C",
                "-2*x**2+x**3*(1/2)+C",
                "C + x**3/2 - 2*x**2",
                "C - 2*x**2 + x**3/2",
                "x**3/2 - 2*x**2",
                "x**2*(x/2 - 2) + C",
                "x**2*(x - 4)/2 + C",
                "(x**3 - 4*x**2)/2 + C",
                "(x**3 - 4*x**2)/2 + 5",
                "x**3/2 - 2*x**2 + c",
                "x**3/2 - 2*x**2 + K",
                "x**3/2 - 2*x**2 + k",
                "x**3/2 - 2*x**2 + C1",
                "x*x*x/2 - 2*x*x + C",
                "x**(3)/2 - 2*x**(2) + C",
                "+x**3/2 - 2*x**2 + C",
                "-(2*x**2 - x**3/2) + C",
                "(x**3/2 - 2*x**2 + C)",
                "(x**3/2\n - 2*x**2\n + C)",
                " x**3/2 - 2*x**2 + C\n",
                "x**3*2**-1 - 2*x**2 + C",
                "x**3*(1/2) - 2*x**2 + C",
            ],
        ),
        ({"metadata": {"integrand": "3*X**2", "variable": "X"}}, ["X**3 + C", "C + X*X*X"]),
        ({"metadata": {"integrand": "-1/x**2", "variable": "x"}}, ["1/x + C", "x**-1 + C", "x**(-1)"]),
    ],
    "intermediate_integration": [
        (
            {"metadata": {"integrand": "x*exp(x)", "variable": "x"}},
            [
                "(x - 1)*exp(x) + C",
                "x*exp(x) - exp(x) + C",
                "x*E**x - E**x + C",
                "E**x*(x-1) + C",
                "E**(x)*(x-1)+C",
                "exp(x)*(x - 1)",
                "-exp(x)*(1 - x) + C",
                "exp (x)*(x - 1) + C",
            ],
        ),
        (
            {"metadata": {"integrand": "sin(x)*cos(x)", "variable": "x"}},
            ["sin(x)**2/2 + C", "-cos(x)**2/2 + C", "-cos(2*x)/4 + C", "(1/2)*sin(x)**2", "0.5*sin(x)**2 + C"],
        ),
        (
            {"metadata": {"integrand": "log(x)", "variable": "x"}},
            ["x*log(x) - x + C", "x*ln(x) - x + C", "x*(log(x) - 1) + C", "x*log(x, E) - x + C", "-x + x*log(x) + C"],
        ),
        (
            {"metadata": {"integrand": "3*sqrt(3*x + 2)", "variable": "x"}},
            [
                "2*(3*x + 2)**(3/2)/3 + C",
                "(2/3)*(3*x + 2)**(3/2) + C",
                "2/3*(3*x+2)*sqrt(3*x+2) + C",
                "2*sqrt(3*x + 2)**3/3 + C",
            ],
        ),
        (
            {"metadata": {"integrand": "atan(2*x)", "variable": "x"}},
            ["x*atan(2*x) - log(4*x**2 + 1)/4 + C", "x*atan(2*x) - ln(1 + (2*x)**2)/4 + C"],
        ),
        (
            {"metadata": {"integrand": "asin(x)", "variable": "x"}},
            ["x*asin(x) + sqrt(1 - x**2) + C", "x*asin(x) + (1 - x**2)**(1/2) + C"],
        ),
        (
            {"metadata": {"integrand": "exp(x)*sin(x)", "variable": "x"}},
            ["exp(x)*(sin(x) - cos(x))/2 + C", "exp(x)*sin(x)/2 - exp(x)*cos(x)/2 + C"],
        ),
        (
            {"metadata": {"integrand": "2*(3*x + 1)**2", "variable": "x"}},
            ["6*x**3 + 6*x**2 + 2*x + C", "2*(3*x + 1)**3/9 + C", "(2/9)*(3*x+1)**3 + C"],
        ),
    ],
    "polynomial_multiplication": [
        (
            {
                "answer": "2*x**3 - 5*x**2 + x + 2",
                "metadata": {"polynomial_expr": "(x - 1)*(2*x**2 - 3*x - 2)"},
            },
            [
                "2*x**3 - 5*x**2 + x + 2",
                "2*x**3-5*x**2+x+2",
                "2 * x ** 3 - 5 * x ** 2 + x + 2",
                "2*x**3 - 5*x**2 + 1*x + 2",
                "2*x**3 - 5*x**2 + x**1 + 2",
                "2*x**3 - 5*x**2 + x + 2*x**0",
                "2 + x - 5*x**2 + 2*x**3",
                "x + 2 - 5*x**2 + 2*x**3",
                "-5*x**2 + 2*x**3 + 2 + x",
                "+2*x**3 - 5*x**2 + x + 2",
                "(2*x**3) - (5*x**2) + (x) + (2)",
                "(2*x**3 - 5*x**2 + x + 2)",
                "((2*x**3 - 5*x**2) + (x + 2))",
                "2*(x**3) - 5*(x**2) + x + 2",
                "2*x**(3) - 5*x**(2) + x + 2",
                "x**3*2 - x**2*5 + x + 2",
                "2*x*x*x - 5*x*x + x + 2",
                "2*x**2*x - 5*x**2 + x + 2",
                "2*x**3 + -5*x**2 + x + 2",
                "2*x**3 + (-5)*x**2 + x + 2",
                "2*x**3 - 5*x**2 - -x + 2",
                "2*x**3 - 6*x**2 + x**2 + x + 2",
                "2*x**3 - 5*x**2 + 3*x - 2*x + 2",
                "2*x**3 - 5*x**2 + x + 4 - 2",
                " 2*x**3 - 5*x**2 + x + 2 ",
                "2*x**3 - 5*x**2 + x + 2\n",
                "\t2*x**3 - 5*x**2 + x + 2",
                "(2*x**3\n - 5*x**2\n + x + 2)",
                "4*x**3/2 - 5*x**2 + x + 2",
                "-(-2*x**3) - 5*x**2 + x + 2",
                "2*x**3 - 5*x**2 + x + 2 + 0*x",
                "0 + 2*x**3 - 5*x**2 + x + 2",
            ],
        ),
        (
            {"answer": "6*x*y", "metadata": {"polynomial_expr": "6*x*y"}},
            ["6*x*y", "6*y*x", "y*6*x", "2*x*3*y"],
        ),
    ],
}
