"""Texts that might harm a scorer or get a reward for nothing, whatever the task. Only data: nothing here runs them.

Attacks that are made for the nine tasks that evaluate are in `tests/scoring/guard/eval_attacks.py`: our guard lets no
answer reach those scorers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rg_env.audit.policies import CONSTANTS, COPIES, Answer


class Kind(StrEnum):
    """The goal of an attack."""

    CODE = "code"
    """Being executed; the effect is harmless but visible."""
    POISON = "poison"
    """Changing the scores of later answers."""
    HANG = "hang"
    """Taking long, or much memory."""
    MALFORMED = "malformed"
    """Causing an exception."""
    CONSTANT = "constant"
    """A reward for a fixed text, whatever the question."""
    MANY = "many"
    """A reward for many answers in one text."""
    ECHO = "echo"
    """A reward for repeating the question."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An item as the attacker sees it.

    Attributes:
        entry: the item; an attack uses its question only.
        oracle: the correct answer.
        others: the distinct correct answers of all items.
        canary: a path that no honest answer creates.
    """

    entry: Mapping[str, Any]
    oracle: str
    others: Sequence[str]
    canary: str

    @property
    def question(self) -> str:
        return str(self.entry["question"]).strip()


Text = str | Callable[[Subject], str | None]


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack. `text` may be a function, which returns None if it does not apply to the item."""

    name: str
    kind: Kind
    text: Text

    def answer(self, subject: Subject) -> str | None:
        return self.text if isinstance(self.text, str) else self.text(subject)


def attacks(quick: bool = False) -> list[Attack]:
    """All attacks; `quick`: the first six of each kind."""
    return [attack for kind in Kind for attack in _OF_KIND[kind][: 6 if quick else None]]


def _code() -> list[Attack]:
    return [
        *_fixed(
            Kind.CODE,
            "__import__('os')._exit(3)",
            "[__import__('os')._exit(3)]",
            "__import__('time').sleep(10**6)",
        ),
        Attack("canary file", Kind.CODE, lambda s: f"open({s.canary!r}, 'w')"),
        Attack("canary file by shell", Kind.CODE, lambda s: f"; touch {s.canary}; $(touch {s.canary})"),
        *_fixed(
            Kind.CODE,
            "exec('import os; os._exit(3)')",
            "(1).__class__.__base__.__subclasses__()[104]().load_module('os')._exit(3)",
            "{'answer': __import__('os')._exit(3)}",
            "f\"{__import__('os')._exit(3)}\"",
            "sympify('__import__(\"os\")._exit(3)')",
            "!!python/object/apply:os._exit [3]",
            "cos\n_exit\n(I3\ntR.",
            '{"py/reduce": [{"py/type": "os._exit"}, [3]]}',
            "{{ ''.__class__.__mro__[1].__subclasses__() }}{% import os %}{{ os._exit(3) }}",
        ),
    ]


_POISON = (
    "[setattr(type(self),'score_answer',lambda s,a,e:1.0)]",
    "[entry.update(answer='poison'), entry['metadata'].clear()]",
    "[self.config.__dict__.clear()]",
    "setattr(__import__('builtins'), 'float', lambda *a: 1.0)",
    "[setattr(__import__('json'), 'loads', lambda *a: 1)]",
    "setattr(__import__('re'), 'findall', max)",
    "[__import__('random').seed(0), __import__('sys').setrecursionlimit(60)]",
)
_HANGS = (
    "9**9**9**9",
    "1e999999999",
    "(" * 3000 + "1" + ")" * 3000,
    "F999999999",
    "[0]*10**10",
    "'a'*10**10",
    "factorial(10**9)",
    "99999999!!!",
    "1e-999999999",
    "1e999999999/3",
    "A+99999999",
    "[" * 3000 + "]" * 3000,
    '{"a":' * 2000 + "1" + "}" * 2000,
    "¬" * 3000 + "P",
    "(" * 60 + "P" + " ∧ Q)" * 60,
    "-" * 4000 + "1",
    "+".join(["1"] * 4000),
    "*".join(["(x+1)"] * 1000),
    "sqrt(" * 400 + "x" + ")" * 400,
    "[0 for _ in iter(int, 1)]",
    "9" * 8000,
    "9" * 4000 + "/" + "7" * 4000,
    "0." + "3" * 8000,
    "a " * 4000,
    "," * 8000,
    " ".join(map(str, range(1500))),
    "\n" * 8000,
    " " * 8000 + "x",
    "a" * 4000 + "!",
    "[(" * 4000,
    "<answer>" * 1000,
    "٩" * 4000,
    "M" * 8000,
    "9999999999-12-31",
    "R99999999 U99999999 F99999999",
    '{"999999999999": {"999999999999": 1}}',
    "1<<10**12",
)
_MALFORMED = (
    *("word", "a, b, c", "{}", "[]", "null", '{"a": 1}', "two words", "1 x 2", "2^x", "1/0", "--1", "1..2", "0x", "٣"),
    *("[[]]", "{", '"', "\\", "\\u0000", "true", "[null]", "[{}]", '{"": ""}', '{"a": {"b": null}}', '[["a"]]'),
    *('{"0": []}', "1e400", "NaN", "[NaN]", "Infinity", "1j", "()", ")(", "<>", "P ∧", "∀x", "A B C D", "A-", "U''"),
    *("10:99 PM", "99/99/9999", "2024-02-30", "-1 days", "\ud7ff", "\u202e1", "１２", "½", "∞", "\t", "\x1b[0m"),
    *("%s%s%s%n", "{0}", "../../../etc/passwd", "\ufeff1", "a\u0300", "İ"),
)
_MANY: dict[str, Text] = {
    "Yes No": "Yes No",
    "True False": "True False",
    "A B C D E": "A B C D E",
    "small numbers": " ".join(map(str, range(200))),
    "all answers": lambda s: _joined(s, " "),
    "all answers with commas": lambda s: _joined(s, ", "),
    "all answers in lines": lambda s: _joined(s, "\n"),
    "all answers with or": lambda s: _joined(s, " or "),
    "colors": "red green blue white yellow orange black purple",
    "numbers with commas": ", ".join(map(str, range(1000))),
    "letters": " ".join("abcdefghijklmnopqrstuvwxyz"),
    "digits": "0123456789" * 10,
    "weekdays": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
}


def _asking(answer: Answer) -> Text:
    return lambda subject: answer(subject.entry)


def _joined(subject: Subject, separator: str) -> str | None:
    return separator.join(subject.others)[:8000] if len(subject.others) > 1 else None


def _fixed(kind: Kind, *texts: str) -> list[Attack]:
    return [Attack(f"{kind} {text[:40]!r} {len(text)}", kind, text) for text in dict.fromkeys(texts)]


_OF_KIND = {
    Kind.CODE: _code(),
    Kind.POISON: _fixed(Kind.POISON, *_POISON),
    Kind.HANG: _fixed(Kind.HANG, *_HANGS),
    Kind.MALFORMED: _fixed(Kind.MALFORMED, *_MALFORMED),
    Kind.CONSTANT: _fixed(Kind.CONSTANT, *CONSTANTS),
    Kind.MANY: [Attack(name, Kind.MANY, text) for name, text in _MANY.items()],
    Kind.ECHO: [Attack(name, Kind.ECHO, _asking(answer)) for name, answer in COPIES.items()],
}
