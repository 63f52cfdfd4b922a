"""Options of a multiple-choice question, as people and public sets write them: which letter each has.

Invariant: no text is evaluated; what looks like a list and is not JSON is refused. Not covered: options that stand in
one line, such as `A) one B) two`, which the scorer reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any, NamedTuple

_LETTERED = re.compile(r"\(?([A-Z])\s?[).:\]]")
_LISTED = re.compile(r"^\s*\(?([A-Z])\s?[).:\]]", re.MULTILINE)
_PRINTED = re.compile(r"[\[{]\s*['\"].*[\]}]", re.DOTALL)
_KEPT_LABELS = re.compile(r"[A-Z]")


class Options(NamedTuple):
    """Options of a question.

    Attributes:
        texts: by letter.
        letters: of the labels that the file has in their place, such as 1 to 4.
    """

    texts: Mapping[str, str]
    letters: Mapping[str, str]

    @property
    def shown(self) -> str:
        """The list as a question has it, a line for each."""
        return "\n".join(map(") ".join, self.texts.items()))


NO_OPTIONS = Options({}, {})


def as_list(name: str, value: Any) -> Any:
    """Return the list or mapping that a text is in JSON, as in a cell of CSV; anything else as it is.

    Raises:
        ValueError: it is one as Python prints it.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        read = json.loads(value)
    except (ValueError, RecursionError):
        if _PRINTED.fullmatch(value.strip()):
            raise ValueError(
                f"{name} is a list as Python prints it ({value:.30}): write it in JSON, such as "
                '["one", "two"], or save the file as .jsonl or .parquet'
            ) from None
        return value
    if isinstance(read, (list, Mapping)):
        return read
    return value


def is_list_of_options(value: Any) -> bool:
    """Return whether a column has what `read_options` takes: texts or numbers, perhaps with labels."""
    if isinstance(value, Mapping):
        return set(map(type, value.values())) <= {str, list}
    return isinstance(value, list) and len(value) > 1 and set(map(type, value)) <= {str, int, float}


def read_options(name: str, value: Sequence[Any] | Mapping[str, Any]) -> Options:
    """Return the options that a column lists: texts, texts that begin with their letters (`A) …`), `{"A": …}`, or ARC's
    `{"text": […], "label": […]}`.

    Raises:
        ValueError: an option is not a text, or there are too many.
    """
    labels: Sequence[str] = ascii_uppercase
    if isinstance(value, Mapping):
        # Parquet has every key in every row.
        there = {label: text for label, text in value.items() if text is not None}
        labels, value = list(there), list(there.values())
        if sorted(labels) == ["label", "text"] and set(map(type, value)) == {list}:
            labels, value = value[labels.index("label")], value[labels.index("text")]
    texts = []
    for option in value:
        if not isinstance(option, (str, int, float)) or isinstance(option, bool):
            right = 'write them as a list of texts, or as {"A": …, "B": …}'
            raise ValueError(f"{name} has an option that is not a text but {type(option).__name__}: {right}")
        texts.append(str(option).replace("\r\n", "\n").strip())
    if len(texts) > len(ascii_uppercase):
        raise ValueError(f"{name} has {len(texts)} options, and there are {len(ascii_uppercase)} letters")
    # Options that begin with their letters are known without them.
    begun = "".join(match[1] for match in map(_LETTERED.match, texts) if match)
    if begun == ascii_uppercase[: len(texts)]:
        texts = [_LETTERED.sub("", text, count=1).strip() for text in texts]
    labels = list(map(str, labels))
    if all(map(_KEPT_LABELS.fullmatch, labels)):
        return Options(dict(zip(labels, texts, strict=False)), {})
    # Labels that no answer is read by, such as 1 to 4, become letters.
    return Options(dict(zip(ascii_uppercase, texts, strict=False)), dict(zip(labels, ascii_uppercase, strict=False)))


def read_lines(text: str) -> dict[str, str]:
    """Return what a text lists by letter in lines that begin with A, B, C, …; empty if it has no such lines."""
    return read_marked(text, _LISTED.finditer(text))


def read_marked(text: str, marks: Iterable[re.Match[str]]) -> dict[str, str]:
    """Return what a text lists behind marks, by their letters, which are the first group: A, B, C, …; the last list of
    at least two."""
    found: list[re.Match[str]] = []
    run: list[re.Match[str]] = []
    for mark in marks:
        letter = mark[1].upper()
        if letter == "A":
            run = [mark]
        # Any other letter is part of an option.
        elif run and letter == ascii_uppercase[len(run) % len(ascii_uppercase)]:
            run.append(mark)
            found = run
    ends = [mark.start() for mark in found[1:]] + [len(text)]
    return {mark[1].upper(): text[mark.end() : end].strip() for mark, end in zip(found, ends, strict=False)}
