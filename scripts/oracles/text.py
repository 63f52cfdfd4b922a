"""Words, strings, rewriting rules and programs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from scripts.oracles import Solver, verified


def last_line(question: str) -> str:
    return question.strip().splitlines()[-1].split(": ")[-1].strip()


def _tokens(question: str, *_: Any) -> str:
    program = question.split("program:\n")[1].split("\n\nReturn")[0].split()
    rules: dict[tuple[str, str], list[str]] = {
        ("A#", "#A"): [],
        ("A#", "#B"): ["#B", "A#"],
        ("B#", "#A"): ["#A", "B#"],
        ("B#", "#B"): [],
    }
    place = 0
    while place < len(program) - 1:
        pair = program[place], program[place + 1]
        if pair in rules:
            program[place : place + 2] = rules[pair]
            place = -1
        place += 1
    return " ".join(program)


def _brain(question: str, *_: Any) -> str:
    code = re.search(r"^[-+<>\[\].,]{5,}$", question, re.MULTILINE).group()
    stack, jump = [], {}
    for place, sign in enumerate(code):
        if sign == "[":
            stack.append(place)
        elif sign == "]":
            jump[place] = stack.pop()
            jump[jump[place]] = place
    cells, cell, place, out = [0] * 1000, 0, 0, ""
    while place < len(code):
        match code[place]:
            case ">":
                cell += 1
            case "<":
                cell -= 1
            case "+":
                cells[cell] = (cells[cell] + 1) % 256
            case "-":
                cells[cell] = (cells[cell] - 1) % 256
            case ".":
                out += chr(cells[cell])
            case "[" if not cells[cell]:
                place = jump[place]
            case "]" if cells[cell]:
                place = jump[place]
        place += 1
    return out


def _alternation(question: str, *_: Any) -> str:
    bits = last_line(question)
    swaps = []
    for start in "01":
        wrong = Counter(bit for place, bit in enumerate(bits) if (bit == start) != (place % 2 == 0))
        if wrong["0"] == wrong["1"]:
            swaps.append(wrong["0"])
    return str(min(swaps, default=-1))


def _caesar(question: str, metadata: dict[str, Any], *_: Any) -> str:
    text = question.split("text: ")[1].split(". Provide")[0]
    return "".join(chr((ord(c) - 65 - metadata["rotation"]) % 26 + 65) if c.isupper() else c for c in text)


def _emoji(question: str, *_: Any) -> str:
    hidden = question.split("emoji: ")[1].split("\n")[0]
    codes = [ord(character) for character in hidden[1:]]
    return bytes(c - 0xFE00 if c < 0xFE10 else c - 0xE0100 + 16 for c in codes if c >= 0xFE00).decode().lstrip("\x0f")


def _anagrams(question: str, *_: Any) -> str:
    groups: dict[str, list[str]] = {}
    for word in json.loads(last_line(question)):
        groups.setdefault("".join(sorted(word)), []).append(word)
    return json.dumps(list(groups.values()))


def _isomorphic(question: str, *_: Any) -> str:
    first, second = last_line(question).split()
    pairs = set(zip(first, second, strict=False))
    return str(len(first) == len(second) and len(pairs) == len(set(first)) == len(set(second)))


def _letters(question: str, *_: Any) -> str | None:
    """None if the count depends on whether capitals count."""
    letter, text = re.search(r'letter "(.)" appear in the text: "(.*)"', question, re.DOTALL).groups()
    return str(text.count(letter)) if text.count(letter) == text.lower().count(letter.lower()) else None


def _mahjong(question: str, *_: Any) -> str:
    cards = re.search(r"initial cards (\w+)", question).group(1)
    result = ""
    for new, old in re.findall(r"Add an? (\w) card and remove an? (\w) card", question):
        near = [{chr(ord(new) + step) for step in steps} for steps in ((-2, -1), (-1, 1), (1, 2))]
        result = "Peng" if cards.count(new) >= 2 else "Chi" if any(pair <= set(cards) for pair in near) else "Pass"
        cards = (cards + new).replace(old, "", 1)
    return result


def _needle(question: str, *_: Any) -> str:
    asked = re.search(r"Who (.*)\? Reply", question).group(1)
    facts = question.split("\nWho")[0].rstrip(". ").split(". ")
    (name,) = {fact.split()[0] for fact in facts if fact.split(" ", 1)[1] == asked}
    return name


def _palindrome(question: str, _: Any, answer: str) -> list[str]:
    letters = last_line(question).split(", ")
    half = "".join(sorted(letter * (count // 2) for letter, count in Counter(letters).items()))
    middle = "".join(letter for letter, count in Counter(letters).items() if count % 2)
    return [half + middle + half[::-1], half[::-1] + middle + half]


def _partitions(question: str, *_: Any) -> str:
    def split(text: str) -> Iterator[list[str]]:
        if not text:
            yield []
        for end in range(1, len(text) + 1):
            if text[:end] == text[:end][::-1]:
                yield from ([text[:end], *rest] for rest in split(text[end:]))

    return json.dumps(list(split(last_line(question))))


def _ransom(question: str, *_: Any) -> str:
    note, magazine = (re.search(rf"{name}: (\w+)", question).group(1) for name in ("Ransom note", "Magazine"))
    return str(Counter(note) <= Counter(magazine))


def _insertion(question: str, *_: Any) -> str:
    text = last_line(question)
    return re.sub("ABCD|BCDE|CDEA|DEAB|EABC", lambda found: found[0] + found[0][0], text)


def until_repeated(state: Any, step: Callable[[Any], Any], most: int = 10**6) -> Any:
    """The state after which none follows or the next one has been seen."""
    seen = {state}
    for _ in range(most):
        following = step(state)
        if following is None or following in seen:
            break
        state = following
        seen.add(state)
    return state


_RULES: dict[str, Callable[[str], str]] = {
    "prefix is 'ab', replace it with 'ca'": lambda s: "ca" + s[2:] if s.startswith("ab") else s,
    "suffix is 'ac', replace it with 'cb'": lambda s: s[:-2] + "cb" if s.endswith("ac") else s,
    "prefix is 'bc', delete": lambda s: s[2:] + "aa" if s.startswith("bc") else s,
    "suffix is 'bb', delete": lambda s: s[:-2] if s.endswith("bb") else s,
    "prefix is 'cb', replace": lambda s: "aa" + s[2:-1] if s.startswith("cb") else s,
    "prefix is 'ca', replace": lambda s: "bb" + s[2:] + "c" if s.startswith("ca") else s,
    "suffix is 'cc', replace": lambda s: "a" + s[:-2] + "b" if s.endswith("cc") else s,
    "prefix is 'aa', remove": lambda s: s[1:] if s.startswith("aa") else s,
    "contains 'abc'": lambda s: s.replace("abc", "cab", 1),
    "contains 'bca'": lambda s: s.replace("bca", "", 1),
    "ends with 'ba'": lambda s: s[:-2] + "ab" if s.endswith("ba") else s,
    "starts with 'cc'": lambda s: s[2:] if s.startswith("cc") else s,
    "contains 'acb'": lambda s: s.replace("acb", "bca", 1),
    "ends with 'ca'": lambda s: s[:-1] if s.endswith("ca") else s,
    "starts with 'bb'": lambda s: s[0] + s[2:] if s.startswith("bb") else s,
    "ends with 'aa'": lambda s: s[:-2] + "cc" if s.endswith("aa") else s,
    "contains 'ca' (not": lambda s: s[:1] + s[1:].replace("ca", "", 1),
    "even number of 'b's": lambda s: s + "ab" if s.count("b") and s.count("b") % 2 == 0 else s,
    "greater than 15": lambda s: s[: len(s) // 2] + s[len(s) // 2 + 1 :] if len(s) > 15 else s,
    "starts with 'ac'": lambda s: "zz" + s[2:] if s.startswith("ac") else s,
}


def _manipulated(question: str, *_: Any) -> str:
    lines = re.findall(r"^\d+\. (If .*)", question, re.MULTILINE)
    rules = [next(rule for name, rule in _RULES.items() if name in line) for line in lines]

    def step(text: str) -> str | None:
        return next((rule(text) for rule in rules if rule(text) != text), None)

    return until_repeated(last_line(question), step)


_SPLITTING = ("A>XXY", "BB>X", "CC>Y", "BC>A", "XY>Z")
_SYNTHESIS = ("ABC>D", "AB>F", "BC>E", "CC>F", "DF>GH", "EE>I")
"""What each rule takes and gives; blocks [A] to (C) are A to I."""


def _machines(kinds: str, rules: tuple[str, ...]) -> Solver:
    def step(state: tuple[int, ...]) -> tuple[int, ...] | None:
        for rule in rules:
            taken, given = rule.split(">")
            if all(have >= taken.count(kind) for have, kind in zip(state, kinds, strict=True)):
                change = (given.count(kind) - taken.count(kind) for kind in kinds)
                return tuple(map(sum, zip(state, change, strict=True)))
        return None

    def solve(question: str, *_: Any) -> str:
        counts = re.findall(r"\d+", question.split("Now, you have ")[1].split(". Provide")[0])
        start = (*map(int, counts), *[0] * (len(kinds) - len(counts)))
        return " ".join(map(str, until_repeated(start, step, 1000)))

    return solve


def _words(question: str, *_: Any) -> str:
    words = last_line(question).split(", ")
    return ", ".join(sorted(words, reverse="descending order" in question.strip().splitlines()[-1]))


def _ladder(question: str, _: Any, answer: str) -> str:
    """Whether every step changes one letter; the word list is upstream's."""
    start, end = re.search(r"'(\w+)' to '(\w+)'", question).groups()
    words = answer.split(",")
    steps = all(sum(a != b for a, b in zip(x, y, strict=True)) == 1 for x, y in pairwise(words))
    return verified(steps and (words[0], words[-1]) == (start, end), answer)


SOLVERS: dict[str, Solver] = {
    "ab": _tokens,
    "bf": _brain,
    "binary_alternation": _alternation,
    "caesar_cipher": _caesar,
    "emoji_mystery": _emoji,
    "group_anagrams": _anagrams,
    "isomorphic_strings": _isomorphic,
    "letter_counting": _letters,
    "mahjong_puzzle": _mahjong,
    "needle_haystack": _needle,
    "palindrome_generation": _palindrome,
    "palindrome_partitioning": _partitions,
    "ransom_note": _ransom,
    "spell_backward": lambda question, *_: last_line(question)[::-1],
    "string_insertion": _insertion,
    "string_manipulation": _manipulated,
    "string_splitting": _machines("ABCXYZ", _SPLITTING),
    "string_synthesis": _machines("ABCDEFGHI", _SYNTHESIS),
    "word_ladder": _ladder,
    "word_sequence_reversal": lambda question, *_: ", ".join(reversed(last_line(question).split(", "))),
    "word_sorting": _words,
}
