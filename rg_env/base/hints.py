"""What the user of a wrong word may have meant. Imported only where there is a mistake: the imports take time.

Invariant: a hint begins with `; `, or is an empty text where nothing is similar.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rg_env.base.errors import did_you_mean, one_line, similar_words

if TYPE_CHECKING:
    import polars as pl

_COLUMNS_SHOWN = 12
_LONGEST_NAME = 40
_OTHER_KINDS = {
    ".xlsx": "save the sheet as .csv",
    ".xls": "save the sheet as .csv",
    ".ods": "save the sheet as .csv",
    ".arrow": "name the folder that `datasets` saved, not a file in it",
    ".txt": 'write a line {"question": …, "answer": …} for each question, and name it .jsonl',
    ".yaml": "write it as .json",
    ".yml": "write it as .json",
    ".zip": "unpack it",
    ".zst": "unpack it",
    ".bz2": "unpack it, or compress it as .gz",
    ".xz": "unpack it, or compress it as .gz",
}
"""How a file of questions is made of a file of another kind."""
_INDENTATION = {
    "'\\t' that cannot start any token": "indent with spaces, not tabs",
    "expected <block end>": "lines of one group begin in the same column",
    "mapping values are not allowed here": "a line has one key, those of a group stand indented below it; is a space "
    "missing after the colon, here or in the line before?",
    "is given twice": "leave one out",
}
"""What to fix, by a part of PyYAML's message that does not say so."""


def file_beside(path: Path, endings: Collection[str]) -> str:
    """Name the file that has a similar name as the missing one and lies beside it."""
    beside = {other.stem: other for other in path.parent.glob("*") if other.suffix.lower() in endings}
    near = similar_words(path.stem, beside)
    if not near:
        return ""
    return f"; did you mean {beside[near[0]]}?"


def module_meant(name: str) -> str:
    """Say how the module is named whose file was named, or which one beside it has a similar name."""
    if name.endswith(".py"):
        return f"; a module is named without .py: {name.removesuffix('.py').replace('/', '.')}"
    if "/" in name:
        return f"; a module is named with dots: {name.replace('/', '.')}"
    package, dot, last = name.rpartition(".")
    beside = [file.stem for file in Path(package.replace(".", "/")).glob("*.py")]
    # Only the last parts are compared: a long name of the package would make all of them similar.
    near = similar_words(last, beside)
    if not near:
        return ""
    return f"; did you mean {package}{dot}{near[0]}?"


def member_meant(module: ModuleType, name: str) -> str:
    """Say what to write for a name that a module does not have."""
    whole = f"{module.__name__}.{name}"
    if name == "py":
        return "; write module.function, without .py"
    if hasattr(module, "__path__") and importlib.util.find_spec(whole) is not None:
        return f", only a module of that name: write {whole}.NAME"
    public = [other for other in vars(module) if not other.startswith("_")]
    return did_you_mean(name, public, "").rstrip("; ")


def of_yaml(error: Exception) -> str:
    """Return PyYAML's message on one line, without the file's name, which it does not know, and with what to fix."""
    why = one_line(error).replace(' in "<unicode string>", line', ", line")
    hints = [hint for part, hint in _INDENTATION.items() if part in why]
    return "; ".join([why, *hints])


def loose_words(
    words: Iterable[str], settings: Mapping[str, object], nearest_recipe: Callable[[str], Path | None]
) -> Iterator[str]:
    """Yield the mistakes of words that are neither files nor settings; a setting and its value are one: `lr 5`."""
    setting = None
    for word in [*words, None]:
        if word == "=":
            continue
        name = (word or "").rstrip(":=")
        if setting is not None:
            value = word.lstrip("=") if word else "…"
            yield f"'{setting} {value}': {_EXPECTED}: {setting}={value}"
            setting = None
        elif name in settings or (word or "").endswith(":"):
            setting = name
        elif word is not None:
            yield f"{word!r}: {_EXPECTED}{word_meant(word, nearest_recipe)}"


def word_meant(word: str, nearest_recipe: Callable[[str], Path | None]) -> str:
    """Say what a word among settings was to be that is neither a file of settings nor one of them."""
    suffix = Path(word).suffix
    if suffix == ".json":
        return "; a file of settings is called .yaml, and may be written as JSON"
    if suffix in (".csv", ".tsv", ".jsonl", ".parquet"):
        in_mix = f"tasks: {{mine: {{file: {{path: {word}, scorer: exact}}}}}}"
        return f"; a file of questions stands in one: {in_mix} below environment.skyrl_gym.rg_dump"
    # An option or a setting with an extra sign is not a recipe.
    if "=" not in word and (recipe := nearest_recipe(word)):
        return f"; did you mean {recipe}?"
    if os.path.isdir(word) or "/" in word:
        model = "trainer.policy.model.path=FOLDER, or --model FOLDER"
        return f"; a recipe is a file, such as configs/quickstart.yaml; the folder of a model is {model}"
    return ", such as trainer.max_training_steps=10"


_EXPECTED = "expected a .yaml file or key=value without spaces"


def missing_column(setting: str, column: str, columns: Mapping[object, object]) -> str:
    """Say what to change where a file of questions has no such column."""
    names = [str(name) for name in columns]
    # Spreadsheets write these where the comma is the decimal point.
    if len(names) == 1 and (signs := {";", "\t"} & set(names[0])):
        return f"has one column, {names[0]!r}: save the file with commas in place of {signs.pop()!r}, or tabs as .tsv"
    spaced = [name for name in names if name.strip() == column]
    if spaced:
        return f"has no column {column!r}, but {spaced[0]!r}: remove the space from the column's name"
    # A text that was to be filled in?
    words = [name for name in names if name in column.split()]
    if words:
        meant = column.replace(words[0], f"{{{words[0]}}}")
        return f"has no column {column!r}; in a text, write columns in braces: {meant!r}"
    # A question in the place of a name: the first row was taken for the header.
    if any("?" in name or len(name) > _LONGEST_NAME for name in names):
        return f"has no column {column!r}: the first line must name the columns, such as question,answer"
    inner = []
    for name, value in columns.items():
        if isinstance(value, Mapping):
            inner += [f"{name}.{key}" for key in value]
    shown = ", ".join(map(repr, [*names, *inner][:_COLUMNS_SHOWN]))
    return f"has no column {column!r}, only {shown}: set `{setting}` to the one that is meant"


def other_kind(path: Path) -> str:
    """Say how to make a file of questions of a file of another kind."""
    way = _OTHER_KINDS.get(path.suffix.lower(), "")
    return way and f"; {way}"


def _one_of_its_keys(name: str, value: Mapping[str, object]) -> str:
    return f": name one of its keys with a dot: {', '.join(f'{name}.{key}' for key in value)}"


def no_question(name: str, value: object) -> str:
    """Say how to ask a column that is not text."""
    if isinstance(value, Mapping):
        return _one_of_its_keys(name, value)
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return ": a conversation must be a list of {role, content}"
    if isinstance(value, list):
        return f": put it into a text, such as question: '{{{name}}}', which lists its items as options"
    if isinstance(value, bytes):
        return ": save the column as texts"
    return f": put it into a text, such as question: 'What is {{{name}}}?'"


def no_answer(name: str, value: object) -> str:
    """Say how a column that is neither text nor a number becomes an answer."""
    if isinstance(value, Mapping):
        return _one_of_its_keys(name, value)
    if isinstance(value, bool):
        return ": write the word that the question asks for, such as 'yes' and 'no', into a column of texts"
    if isinstance(value, list):
        return ": a list of right answers has texts or numbers, and no lists"
    return ": save the column as texts, written as the question asks for it"


def what_there_is(frames: Iterable[pl.DataFrame]) -> str:
    """Say between which numbers the columns of a condition lie, or, if all are texts, which tasks there are."""
    tasks: set[str] = set()
    numbers: dict[str, list[float]] = {}
    for frame in frames:
        tasks.update(frame["task"].unique())
        for column in frame:
            if column.dtype.is_numeric() and column.count():
                numbers.setdefault(column.name, []).extend([column.min(), column.max()])  # type: ignore[list-item]
    if numbers:
        ranges = []
        for name, ends in numbers.items():
            ranges.append(f"{name} is {min(ends):g} to {max(ends):g}")
        return f"; {' and '.join(ranges)}"
    if not tasks:
        return ""
    return f"; the tasks are {', '.join(sorted(tasks))}"
