"""What the user of a wrong word on a command line may have meant. Imported only where there is a mistake.

Invariant: what is advised works as it stands: an option that the command has, a word that was typed. Not covered:
settings (`rg_env.configuration.setting_names`) and values (`rg_env.base.hints`).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rg_env.base.errors import similar_words
from rg_env.base.wording import number_meant

_LISTS = ("--tasks", "--by", "--columns")
"""Options whose value is a list with commas."""
_KINDS_OF_NUMBERS = {"must be a whole number": True, "must be a number": False}


def after_usage(error: Any, message: str, words: Sequence[str]) -> str:
    """Return a message of Typer's with what was meant, or with the help to read.

    Args:
        message: of `error`, in our words.
        words: the command line, with the program.
    """
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx else "rg-env"
    message = message.partition(" (Possible options")[0]
    if ctx is not None:
        message += _meant(error, message, ctx, words)
    # A message that ends with a question ("did you mean …?") says how to go on; the help would distract.
    return message if message.endswith("?") else f"{message}; see `{path} --help`"


def _meant(error: Any, message: str, ctx: Any, words: Sequence[str]) -> str:
    if message.startswith("Missing"):
        return _missing(error.param, ctx, words)
    if message.startswith("No such option"):
        return _no_option(error.option_name, ctx)
    if "unexpected extra argument" in message:
        return _extra(message, ctx, words)
    for words_of_kind, whole in _KINDS_OF_NUMBERS.items():
        if words_of_kind in message:
            meant = number_meant(_value_of(error.param.opts, words), whole=whole)
            return f"; write {error.param.opts[0]} {meant}" if meant else ""
    return ""


def _missing(param: Any, ctx: Any, words: Sequence[str]) -> str:
    """Say with which word a missing option was meant, or show an example that has it."""
    last, option = words[-1], param.opts[0]
    is_file = bool(Path(last).suffix) and not os.path.isdir(last)
    if option == "--out" and is_file and not words[-2].startswith("-"):
        return f": is it {last!r}? write --out {shlex.quote(last)}"
    examples = list(_examples(ctx.command))
    fitting = [example for example in examples if option.startswith("--") and option in example] or examples
    return f", as in `{fitting[0]}`" if fitting else ""


def _examples(command: Any) -> Iterator[str]:
    _, *lines = (command.epilog or "").replace("\\\n", " ").splitlines() or [""]
    for line in lines:
        yield " ".join(line.split())


def _no_option(option: str, ctx: Any) -> str:
    """Name the option that was meant, the command that has it, or all options of this one."""
    own = [name for param in ctx.command.params for name in param.opts if name.startswith("--")]
    near = [name for name in own if len(option) == 2 and name[2] == option[1]] or similar_words(option, own)
    if near:
        return f"; did you mean {near[0]}?"
    return of_others(option, ctx) or f", only {', '.join(own)}"


def of_others(option: str, ctx: Any) -> str:
    """Name the commands that have this option; empty if none has."""
    root = ctx.find_root()
    others = [path for path, command in root.command.every("rg-env") if _has(command, option)]
    # Those of `rg-env dumps` mean something else by the same names.
    near = [f"`{path}`" for path in others if path.count(" ") == ctx.command_path.count(" ")]
    return f": it is an option of {' and '.join(near[:3])}" if near else ""


def _has(command: Any, option: str) -> bool:
    return any(option in param.opts for param in command.params)


def _extra(message: str, ctx: Any, words: Sequence[str]) -> str:
    """Say where a word belongs that no option stands before."""
    found = re.search(r"\((\S+?)[ )]", f"{message} ")
    word = found[1] if found and found[1] in words else words[-1]
    if listed := list_meant(words, word):
        return f": {listed}"
    if word.endswith((".yaml", ".yml")) and _has(ctx.command, "--tasks"):
        return f": the tasks of a recipe are given by --tasks {word}"
    if ctx.command.name == "score":
        meant = f": a response is given by --response {shlex.quote(word)}"
        task = ctx.params.get("task")
        return f"{meant}, or an item by its id, such as {task}-train-42-{word}" if word.isdigit() else meant
    return ""


def list_meant(words: Sequence[str], word: str) -> str:
    """Say that a word belongs to the list of an option before it, with a comma in place of the space; else empty."""
    if word not in words:
        return ""
    place = words.index(word)
    before = [at for at in range(place) if words[at] in _LISTS]
    if not before:
        return ""
    option, *items = words[before[-1] : place + 1]
    if any("=" in item or item.startswith("-") for item in items):
        return ""
    return f"a list has commas and no spaces: {option} {','.join(item.strip(',') for item in items)}"


def _value_of(options: Sequence[str], words: Sequence[str]) -> str:
    """Return the text that stands behind an option."""
    for at, word in enumerate(words):
        name, sign, value = word.partition("=")
        if name in options:
            return value if sign else "".join(words[at + 1 : at + 2])
    return ""
