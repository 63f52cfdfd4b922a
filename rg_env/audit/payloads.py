"""The payloads of the audit: attack texts. This module contains only data and runs none of them.

A payload is a text, or a function of the item that it answers. Its `kind` is the goal, which decides what counts as
success (`rg_env.audit.probes`). Names are unique.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """The goal of a payload."""

    CODE = "code"
    """Being executed; the effect is harmless but visible."""
    POISON = "poison"
    """Changing the scores of later answers."""
    HANG = "hang"
    MEMORY = "memory"
    MALFORMED = "malformed"
    """Causing an exception."""
    CONSTANT = "constant"
    """A reward for a fixed text, whatever the question."""
    SUBSTRING = "substring"
    """A reward for many answers in one text."""
    ECHO = "echo"
    """A reward for repeating the question, or for letting the scorer compute it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An item as the attacker sees it.

    Attributes:
        entry: the item; its metadata represent the information in the question.
        oracle: the correct answer, for attacks that hide it in code.
        others: the distinct correct answers of all items.
        canary: a path that no honest answer creates.
    """

    entry: Mapping[str, Any]
    oracle: str
    others: Sequence[str]
    canary: str


Text = str | Callable[[Subject], str | None]


@dataclass(frozen=True, slots=True)
class Payload:
    """One attack. `text` may be a function, which returns None if it does not apply to the item.

    Attributes:
        control: for attacks that hide the correct answer in code: the same with a wrong one. The code was executed if
            the correct one scores higher.
        tasks: the tasks that it applies to; empty: all.
    """

    name: str
    kind: Kind
    text: Text
    control: Text | None = None
    tasks: frozenset[str] = frozenset()

    def answer(self, subject: Subject) -> str | None:
        return self.text if isinstance(self.text, str) else self.text(subject)


def payloads_for(task: str, quick: bool = False) -> list[Payload]:
    """The payloads for a task; `quick`: only those specific to it, and the first eight of each kind."""
    found = [payload for payload in ALL if not payload.tasks or task in payload.tasks]
    if not quick:
        return found
    first = {payload.name for kind in Kind for payload in [one for one in found if one.kind is kind][:8]}
    return [payload for payload in found if payload.tasks or payload.name in first]


def _named(kind: Kind, texts: Mapping[str, Text], prefix: str = "") -> list[Payload]:
    return [Payload(prefix + name, kind, text) for name, text in texts.items()]


def _hidden(call: str) -> tuple[Text, Text]:
    """Code that computes the correct answer without containing it, and the same for a wrong answer of equal length."""

    def text(subject: Subject) -> str | None:
        return call.format(subject.oracle.encode().hex())

    def control(subject: Subject) -> str | None:
        return call.format(bytes([*subject.oracle.encode()[:-1], ord("~")]).hex())

    return text, control


def _code() -> list[Payload]:
    hidden = {
        "text": "__import__('binascii').unhexlify('{}').decode()",
        "words": "__import__('binascii').unhexlify('{}').decode().split()",
        "letters": "[*__import__('binascii').unhexlify('{}').decode()]",
        "rows": "[r.split() for r in __import__('binascii').unhexlify('{}').decode().splitlines()]",
        "value": "eval(__import__('binascii').unhexlify('{}'))",
        "lambda": "(lambda: eval(bytes.fromhex('{}')))()",
    }
    shown = [Payload(f"hidden {name}", Kind.CODE, *_hidden(call)) for name, call in hidden.items()]
    plain: dict[str, Text] = {
        "exit": "__import__('os')._exit(3)",
        "exit in a list": "[__import__('os')._exit(3)]",
        "sleep": "__import__('time').sleep(10**6)",
        "exit by exec": "exec('import os; os._exit(3)')",
        "exit by eval": "eval('__import__(\"os\")._exit(3)')",
        "exit by compile": "exec(compile('import os; os._exit(3)', 'x', 'exec'))",
        "exit by getattr": "getattr(__import__('os'), '_ex' + 'it')(3)",
        "exit by builtins": "__builtins__['__import__']('os')._exit(3)",
        "exit by loader": "(1).__class__.__base__.__subclasses__()[104]().load_module('os')._exit(3)",
        "exit by any loader": "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'BuiltinImporter']"
        "[0].load_module('posix')._exit(3)",
        "exit by globals": "globals()['__builtins__']['__import__']('os')._exit(3)",
        "exit by lambda": "(lambda: __import__('os')._exit(3))()",
        "exit by walrus": "[o := __import__('os'), o._exit(3)]",
        "exit by comprehension": "[o._exit(3) for o in [__import__('os')]]",
        "exit by f-string": "f\"{__import__('os')._exit(3)}\"",
        "exit by default": "(lambda o=__import__('os'): o._exit(3))()",
        "exit by map": "list(map(__import__('os')._exit, [3]))",
        "exit by sorted": "sorted([3, 4], key=__import__('os')._exit)",
        "exit by unicode name": "__impor𝑡__('os')._exit(3)",
        "exit by signal": "__import__('os').kill(__import__('os').getpid(), 9)",
        "exit by segfault": "__import__('ctypes').string_at(0)",
        "exit in braces": "{__import__('os')._exit(3)}",
        "exit in a mapping": "{'answer': __import__('os')._exit(3)}",
        "exit after an answer": "1 if __import__('os')._exit(3) else 2",
        "exit in a power": "2**__import__('os')._exit(3)",
        "exit in a subscript": "[1][__import__('os')._exit(3)]",
        "exit in a keyword": "max([1], key=__import__('os')._exit)",
        "exit by sympy": "sympify('__import__(\"os\")._exit(3)')",
        "exit by S": "S('__import__(\"os\")._exit(3)')",
        "exit by lambdify": "lambdify([], '__import__(\"os\")._exit(3)')()",
        "exit by Function": "Function('f').__class__.__mro__[-1].__subclasses__() and __import__('os')._exit(3)",
        "exit of the scorer's module": "self.__class__.__module__ and __import__('os')._exit(3)",
        "yaml object": "!!python/object/apply:os._exit [3]",
        "pickle": "cos\n_exit\n(I3\ntR.",
        "template": "{{ ''.__class__.__mro__[1].__subclasses__() }}{% import os %}{{ os._exit(3) }}",
        "format attack": "{0.__class__.__init__.__globals__[os]._exit}",
        "shell": "; kill -9 $$; $(kill -9 $$); `kill -9 $$`",
        "json constructor": '{"__reduce__": ["os._exit", [3]], "py/object/apply": "os._exit"}',
        "canary file": lambda s: f"open({s.canary!r}, 'w')",
        "canary file in a list": lambda s: f"[open({s.canary!r}, 'w')]",
        "canary file by os": lambda s: f"__import__('os').open({s.canary!r}, 65)",
        "canary file by shell": lambda s: f"__import__('os').system('touch {s.canary}')",
        "canary file by mkdir": lambda s: f"[__import__('os').mkdir({s.canary!r})]",
    }
    return [*shown, *_named(Kind.CODE, plain)]


def _poison() -> list[Payload]:
    texts: dict[str, Text] = {
        "score_answer": "[setattr(type(self),'score_answer',lambda s,a,e:1.0)]",
        "score_answer of the instance": "[setattr(self,'score_answer',lambda a,e:1.0)]",
        "the entry": "[entry.update(answer='poison'), entry['metadata'].clear()]",
        "the oracle": "[oracle_answer.__class__, entry.__setitem__('answer', answer)]",
        "the config": "[self.config.__dict__.clear()]",
        "builtins.float": "setattr(__import__('builtins'), 'float', lambda *a: 1.0)",
        "builtins.str": "[setattr(__import__('builtins'), 'str', lambda *a: 'x')]",
        "builtins.len": "[setattr(__import__('builtins'), 'len', lambda *a: 1)]",
        "builtins.sorted": "setattr(__import__('builtins'), 'sorted', len)",
        "json.loads": "[setattr(__import__('json'), 'loads', lambda *a: 1)]",
        "re.findall": "setattr(__import__('re'), 'findall', max)",
        "sympy.parse_expr": "setattr(__import__('sympy'), 'parse_expr', max)",
        "sympy.simplify": "setattr(__import__('sympy'), 'simplify', bool)",
        "numpy.isclose": "setattr(__import__('numpy'), 'isclose', max)",
        "the random state": "[__import__('random').seed(0), __import__('numpy').random.seed(0)]",
        "the digits limit": "[__import__('sys').set_int_max_str_digits(640)]",
        "the recursion limit": "[__import__('sys').setrecursionlimit(60)]",
        "a sympy name": "Symbol.__init__.__globals__.clear()",
        "decimal context": "[__import__('decimal').getcontext().__setattr__('prec', 1)]",
        "environment": "[__import__('os').environ.clear()]",
    }
    return _named(Kind.POISON, texts, "poison ")


def _hangs() -> list[Payload]:
    texts: dict[str, Text] = {
        "power tower": "9**9**9**9",
        "power tower in a list": "[9**9**9**9]",
        "power tower of carets": "9^9^9^9",
        "factorial": "factorial(10**9)",
        "factorial sign": "99999999!!!",
        "binomial": "binomial(10**9, 5*10**8)",
        "huge exponent": "1e999999999",
        "huge negative exponent": "1e-999999999",
        "huge fraction": "1e999999999/3",
        "huge move": "A+99999999",
        "huge moves": " ".join(f"{letter}+99999999" for letter in "ABCDEFGH"),
        "deep brackets": "(" * 3000 + "1" + ")" * 3000,
        "deep lists": "[" * 3000 + "]" * 3000,
        "deep mappings": '{"a":' * 2000 + "1" + "}" * 2000,
        "deep negation": "¬" * 3000 + "P",
        "deep not": "~" * 3000 + "1",
        "deep logic": "(" * 60 + "P" + " ∧ Q)" * 60,
        "deep minus": "-" * 4000 + "1",
        "long sum": "+".join(["1"] * 4000),
        "long product": "*".join(["(x+1)"] * 1000),
        "expansion": "expand((a+b+c+d+x)**60)",
        "simplification": "simplify(sum(sin(x)**k*cos(x)**(99-k) for k in range(99)))",
        "integration": "integrate(exp(x**x)*sin(x)**x, x)",
        "nested radicals": "sqrt(" * 400 + "x" + ")" * 400,
        "prime search": "prime(10**9)",
        "factoring": "factorint(2**523-1)",
        "infinite loop": "[0 for _ in iter(int, 1)]",
        "range": "sum(range(10**12))",
        "many digits": "9" * 8000,
        "many digits in two parts": "9" * 4000 + "/" + "7" * 4000,
        "many decimals": "0." + "3" * 8000,
        "many words": "a " * 4000,
        "many commas": "," * 8000,
        "many numbers": " ".join(map(str, range(1500))),
        "many lines": "\n" * 8000,
        "regex spaces": " " * 8000 + "x",
        "regex nested": "a" * 4000 + "!",
        "regex brackets": "[(" * 4000,
        "regex tags": "<answer>" * 1000,
        "many moves": "F " * 4000,
        "long roman": "M" * 8000,
        "long path": "[" + ",".join(["[0,0]"] * 1300) + "]",
        "unicode digits": "٩" * 4000,
        "distant date": "9999999999-12-31",
        "distant time": "999999999:59:59",
        "power in brackets": "(9**(9**(9**9)))",
        "power of x": "x**x**x**x**99999999",
        "shift": "1<<10**12",
        "modular": "(2**(10**9))%7",
        "float power": "99.9**99999999.5",
    }
    return _named(Kind.HANG, texts)


def _memory() -> list[Payload]:
    texts: dict[str, Text] = {
        "repeated text": "'a'*10**10",
        "repeated list": "[0]*10**10",
        "bytes": "bytearray(10**10)",
        "range list": "list(range(10**9))",
        "set of ranges": "[*range(10**9)]",
        "repeated move": "F999999999",
        "repeated moves": "R99999999 U99999999 F99999999",
        "repeat count": "A*999999999",
        "huge shift": "[1<<10**10]",
        "huge power": "7**10**9",
        "huge index": '{"999999999999": {"999999999999": 1}}',
        "huge grid": "[[0]*99999]*99999",
        "huge format": "'%9999999999d' % 1",
        "huge padding": "f'{1:>9999999999}'",
        "huge join": "','.join(['a'*10**6]*10**5)",
        "huge number text": "1" + "0" * 8000,
        "huge exponent text": "10e99999999",
        "huge matrix": "zeros(99999, 99999)",
    }
    return _named(Kind.MEMORY, texts)


def _malformed() -> list[Payload]:
    texts = [
        *("word", "two words", "a, b, c", "1 x 2", "1 × 2 × x", "×", "2^x", "1/0", "0/0", "--1", "1..2", "1e", "0x"),
        *("٣", "{}", "[]", "[[]]", "[[[]]]", "{", "[", '"', "'", "\\", "\\u0000", "null", "true", "[null]", "[{}]"),
        *('{"": ""}', '{"a": 1}', '{"a": [1]}', '{"a": {"b": null}}', '[["a"]]', '{"0": -1}', '{"0": "a"}'),
        *('{"0": []}', "[1]", "1", '{"agent[0.5, 0.5]": "move(box_red, square[0.5, 1.5])"}'),
        *('{"Agent[0.5, 0.5]": "move"}', '{"x": "y"}', '["a"]', "1e400", "-1e400", "1e308*10", "NaN", "Infinity"),
        *("[NaN]", "1j", "1+2j", "i", "--", "+", "()", ")(", "<>", "P ∧", "∧", "(P ∧", "P Q", "P → ", "(P))", "∀x"),
        *("A B C D", "A+0", "Z+1", "[+1", "A-", "U3'", "Q99", "U''", "10:99 PM", "99/99/9999", "2024-02-30"),
        *("February 30", "-1 days", "\ud7ff", "\u202e1", "１２", "½", "∞", "\t", "a\tb", "\x1b[0m", "%s%s%s%n", "{0}"),
        *("${x}", "../../../etc/passwd", "<script>", "\ufeff1", "a\u0300", "ß", "İ"),
    ]
    return [Payload(f"malformed {text!r}", Kind.MALFORMED, text) for text in dict.fromkeys(texts)]


def _constants() -> list[Payload]:
    texts = [
        *("None", "nan", "inf", "-inf", "0", "1", "-1", "2", "10", "100", "0.5", "1/2", "0.1", "-0", "1e9", "1e300"),
        "9" * 40,
        "0" * 40,
        *("True", "False", "true", "false", "Yes", "No", "yes", "no", "A", "B", "C", "D", "E", "a", "b", "x", "[]"),
        *("{}", "()", "''", "?", ".", ",", "-", "_", "*", "#", " ", "\n", "answer", "the", "I", "Alice", "unknown"),
        *("impossible", "infeasible", "no solution", "-1 -1", "0 0", "[0]", "[[0]]", "0 1", "1 2 3", "a b c"),
        "0" * 400,
        "a" * 400,
        *("abcdefghijklmnopqrstuvwxyz", "0123456789", "up", "down", "red", "white", "even", "odd", "nan+nani", "nani"),
        *("nan + nani", "nan/1", "inf-inf", "4*3*2*1", "(4)*(3)*(2)*(1)", "24", "0.0", "0+0i", "<answer></answer>"),
        *("</answer>", "<answer>", "I don't know", "This text is not an answer.", "42", "7", "JSON", "Monday"),
        *("Saturday", "January", "knight", "knave", "AM", "12:00", "2024-01-01", "$", "£", "C", "x + C", "x", "C"),
        json.dumps([[0] * 10] * 10),
        json.dumps([[0] * 20] * 20),
        "\n".join([" ".join("0" * 10)] * 10),
        "\n".join([" ".join("_" * 8)] * 8),
    ]
    return [Payload(f"constant {text[:40]!r} {len(text)}", Kind.CONSTANT, text) for text in dict.fromkeys(texts)]


def _substrings() -> list[Payload]:
    def all_answers(separator: str) -> Text:
        return lambda s: separator.join(s.others)[:8000] if len(s.others) > 1 else None

    texts: dict[str, Text] = {
        "Yes No": "Yes No",
        "No Yes": "No Yes",
        "yes or no": "yes or no",
        "True False": "True False",
        "true/false": "true/false",
        "knight knave": "knight knave",
        "A B C D E": "A B C D E",
        "colors": "red green blue white yellow orange black purple",
        "small numbers": " ".join(map(str, range(200))),
        "numbers with commas": ", ".join(map(str, range(1000))),
        "letters": " ".join("abcdefghijklmnopqrstuvwxyz"),
        "digits": "0123456789" * 10,
        "weekdays": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
        "all answers": all_answers(" "),
        "all answers in lines": all_answers("\n"),
        "all answers with commas": all_answers(", "),
        "all answers with or": all_answers(" or "),
    }
    return _named(Kind.SUBSTRING, texts, "substring ")


def _echoes() -> list[Payload]:
    def question(s: Subject) -> str:
        return str(s.entry["question"])

    def metadata(key: str, form: str) -> Text:
        return lambda s: form.format(s.entry["metadata"][key]) if key in s.entry["metadata"] else None

    def lengths(s: Subject) -> str | None:
        numbers, target = s.entry["metadata"].get("numbers"), s.entry["metadata"].get("target")
        if not isinstance(numbers, list) or not isinstance(target, int) or not 0 <= target <= 4000:
            return None
        return f"len('{'x' * target}')+(z-z)*({'+'.join(map(str, numbers))})"

    def integral(form: str) -> Text:
        def text(s: Subject) -> str | None:
            found = s.entry["metadata"]
            return form.format(found["integrand"], found["variable"]) if "integrand" in found else None

        return text

    def grids(s: Subject) -> str | None:
        rows = [line for line in question(s).splitlines() if line and not any(map(str.isalpha, line))]
        return "\n".join(rows)[:8000] or None

    texts: dict[str, Text] = {
        "the question": lambda s: question(s)[:8000],
        "the last line of the question": lambda s: question(s).strip().splitlines()[-1],
        "the first line of the question": lambda s: question(s).strip().splitlines()[0],
        "the question reversed": lambda s: question(s)[::-1][:8000],
        "the words of the question": lambda s: " ".join(sorted(set(question(s).split())))[:8000],
        "the last paragraph of the question": lambda s: question(s).strip().split("\n\n")[-1][:8000],
        "the text after the last colon": lambda s: question(s).rpartition(":")[2].strip()[:8000] or None,
        "the grids of the question": grids,
        "integrate": integral("integrate({}, {})"),
        "Integral": integral("Integral({}, {})"),
        "the integrand": integral("{0}"),
        "expand": metadata("polynomial_expr", "expand({})"),
        "simplify": metadata("polynomial_expr", "simplify({})"),
        "Poly": metadata("polynomial_expr", "Poly({}).as_expr()"),
        "the polynomial": metadata("polynomial_expr", "{}"),
        "the target": metadata("target", "{}"),
    }
    for_tasks: list[tuple[str, Text, set[str]]] = [
        ("the length of a text", lengths, {"countdown"}),
        ("the scorer's own solutions", "[row.split() for row in valid_solutions[0].splitlines()]", {"n_queens"}),
        ("the scorer's own oracle", "[entry['answer']]", {"spiral_matrix", "string_insertion", "binary_matrix"}),
        ("the scorer's oracle, split", "oracle_answer.split()", {"spiral_matrix"}),
        ("the scorer's oracle, listed", "[*oracle_answer]", {"string_insertion"}),
        ("the scorer's oracle, in rows", "[row.split() for row in oracle_answer.splitlines()]", {"binary_matrix"}),
    ]
    return [
        *_named(Kind.ECHO, texts),
        *(Payload(name, Kind.ECHO, text, tasks=frozenset(tasks)) for name, text, tasks in for_tasks),
    ]


ALL: tuple[Payload, ...] = (
    *_code(),
    *_poison(),
    *_hangs(),
    *_memory(),
    *_malformed(),
    *_constants(),
    *_substrings(),
    *_echoes(),
)
"""Every payload."""
