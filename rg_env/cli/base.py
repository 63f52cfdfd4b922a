"""How the commands of `rg-env` look: help that fits 80 columns, examples at its end, hints for unknown commands.

A command's help is its docstring. The first paragraph says what it is for and is shown in lists of commands. What
follows the line `Examples:` is shown as written, at the end.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from rich.markup import escape
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

_METAVARS = {bool: "", int: "N", float: "X", str: "TEXT", Path: "PATH"}
"""How the help shows the value of an option, unless the option has its own word for it."""


class _LaidOut:
    """What commands and groups have in common."""

    help: str | None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        purpose, _, examples = inspect.cleandoc(self.help or "").partition("\n\nExamples:\n")
        self.help = escape("\n\n".join(" ".join(paragraph.split()) for paragraph in purpose.split("\n\n")))
        self.epilog = f"[bold]Examples[/]\n{escape(examples)}" if examples else None

    def get_params(self, ctx: Any) -> list[Any]:
        return [_shorten(param) for param in super().get_params(ctx)]  # type: ignore[misc]


class Command(_LaidOut, TyperCommand):
    pass


class CommandGroup(_LaidOut, TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command. An unknown one is refused with similar commands of all groups."""
        word = args[0]
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            root = ctx.find_root()
            paths = list(_paths(root.command, root.info_name))
            names = {path.rpartition(" ")[2] for path in paths}
            near = [word] if word in names else get_close_matches(word, names)
            similar = [path for name in near for path in paths if path.endswith(f" {name}")]
            hint = f"did you mean `{'` or `'.join(similar)}`?" if similar else f"use one of {', '.join(self.commands)}"
            ctx.fail(f"no command {word!r}; {hint}")
        return super().resolve_command(ctx, args)


def _paths(group: TyperGroup, path: str) -> Iterator[str]:
    """The full names of all commands in a group."""
    for name, command in group.commands.items():
        yield f"{path} {name}"
        if isinstance(command, TyperGroup):
            yield from _paths(command, f"{path} {name}")


def _shorten(param: Any) -> Any:
    """Replace long type names in the help, which leave little room for words."""
    kind = param.type_descriptor
    if isinstance(param, TyperArgument):
        param.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
    elif isinstance(param, TyperOption) and param.metavar is None and (param.is_flag or not kind.is_choice):
        param.metavar = "" if param.is_flag else _METAVARS.get((get_args(kind.annotation) or (kind.annotation,))[0])
    return param
