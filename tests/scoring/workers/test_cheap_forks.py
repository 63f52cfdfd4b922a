"""Cheaper forks change no score."""

from __future__ import annotations

import pytest
from sympy import Integer, Symbol
from sympy.parsing import sympy_parser

from rg_env.scoring.workers import cheap_forks


def test_shared_names_are_those_that_sympy_builds_for_each_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    parse_expr = sympy_parser.parse_expr
    seen: list[dict[str, object]] = []
    evaluate = sympy_parser.eval_expr
    monkeypatch.setattr(parse_expr, "__defaults__", parse_expr.__defaults__)

    def record(code: str, local_dict: dict[str, object], global_dict: dict[str, object]) -> object:
        seen.append(dict(global_dict))
        return evaluate(code, local_dict, global_dict)

    texts = ["x + 1", "C*x**2", "2/3", "<answer>x</answer>", "E + pi + N"]

    def parse(text: str) -> object:
        try:
            return parse_expr(text)
        except Exception as error:
            return type(error)

    monkeypatch.setattr(sympy_parser, "eval_expr", record)
    fresh = [parse(text) for text in texts]
    cheap_forks.share_names()
    assert sympy_parser.eval_expr is record
    before = len(seen)
    assert [parse(text) for text in texts] == fresh
    assert all(names.keys() - {"__builtins__"} == seen[0].keys() - {"__builtins__"} for names in seen)
    assert all(seen[before][name] is value for name, value in seen[0].items() if name != "__builtins__")
    default = parse_expr.__defaults__
    cheap_forks.share_names()
    assert parse_expr.__defaults__ is default
    assert parse_expr("y + 2") == Symbol("y") + Integer(2)


def test_huge_pages_are_for_the_heap_alone() -> None:
    maps = """\
00200000-00600000 rw-p 00000000 00:00 0
00700000-00a00000 rw-p 00000000 00:00 0                                  [heap]
01000000-01400000 rw-p 00000000 fe:00 1234                               /usr/lib/some lib.so
02000000-02400000 r--p 00000000 00:00 0
03000000-03400000 rw-s 00000000 00:00 0
04000000-04100000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0                          [stack]
"""
    assert list(cheap_forks._huge_blocks(maps)) == [0x200000, 0x400000, 0x800000]
    cheap_forks.use_huge_pages()
