"""How the commands of `rg-env` are declared, and how they look: help that fits 80 columns, hints for unknown commands.

A command's help is its docstring. The first paragraph says what it is for and is shown in lists of commands. What
follows the line `Examples:` is shown as written, at the end. Options that commands share are the fields of a dataclass:
a parameter of that type stands for them all.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer
from rich.markup import escape
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from rg_env.base.errors import ConfigError, similar_words

_METAVARS = {bool: "", int: "N", float: "X", str: "TEXT", Path: "PATH"}
"""How the help shows the value of an option, unless the option has its own word for it."""
_OTHER_WORDS = {"compare": "stats", "diff": "stats", "view": "show", "browse": "show", "list": "runs", "ls": "runs"}
"""What other programs call a command."""
PASS_ON = {"ignore_unknown_options": True}
"""For commands that take settings: unknown options reach the check of settings, which knows their names elsewhere."""
REQUESTS_PANEL = "Model and requests"
"""The part of the help with the options of commands that send requests."""


class CommandApp(typer.Typer):
    """A group of commands."""

    def __init__(self, help: str, **options: Any) -> None:
        super().__init__(cls=CommandGroup, help=help, no_args_is_help=True, pretty_exceptions_enable=False, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Add a function as a command."""
        register = super().command(name, **{"cls": Command, **options})
        return lambda function: register(_with_fields(function))

    def later(self, name: str, module: str, help: str) -> None:
        """Add a command, or a group, of another module, which is imported when somebody uses it.

        Args:
            module: of `rg_env.cli`, whose `commands` has it. `help`: the first paragraph of its help.
        """
        made_by: Any = partial(_Later, module=f"rg_env.cli.{module}")  # Typer calls it as a class
        super().command(name, cls=made_by, help=help)(lambda: None)


def _with_fields(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function with the fields of its dataclass parameters as parameters of its own.

    A field is declared as `Annotated[…, typer.Option(…)]`, or with `rg_env.evaluate.endpoint.request_option`.
    """
    parameters: list[Parameter] = []
    shared: dict[str, Any] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            shared[parameter.name] = parameter.annotation
            parameters += _options_of(shared[parameter.name])
        else:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    def command(**values: Any) -> None:
        # Typer passes single options; the function gets them as the dataclass that it asks for.
        for name, kind in shared.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        function(**values)

    # What Typer makes a command of: its name, its help and its options.
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _options_of(kind: type[Any]) -> Iterator[Parameter]:
    """Yield the fields of a dataclass as parameters of a command."""
    for name, parameter in inspect.signature(kind, eval_str=True).parameters.items():
        if get_origin(parameter.annotation) is Annotated:
            yield parameter
        else:
            yield parameter.replace(annotation=Annotated[parameter.annotation, declared_option(kind, name)])


def declared_option(kind: type[Any], name: str) -> Any:
    """Return the option of a field that `request_option` declares."""
    declared = {field.name: field for field in fields(kind)}[name]
    return typer.Option(rich_help_panel=REQUESTS_PANEL, **declared.metadata)


class _LaidOut:
    """What commands and groups have in common."""

    help: str | None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        purpose, _, examples = inspect.cleandoc(self.help or "").partition("\n\nExamples:\n")
        # One line a paragraph, which Rich wraps to the terminal. Brackets would be its markup.
        paragraphs = [" ".join(paragraph.split()) for paragraph in purpose.split("\n\n")]
        self.help = escape("\n\n".join(paragraphs))
        self.epilog = None
        if examples:
            self.epilog = f"[bold]Examples[/]\n{escape(examples)}"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)  # type: ignore[misc, no-any-return]
        except typer.TyperException as error:
            # Typer's parser does not know of which command an option is that lacks its value.
            error.ctx = getattr(error, "ctx", None) or ctx  # type: ignore[attr-defined]
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        return [_shorten(param) for param in super().get_params(ctx)]  # type: ignore[misc]


class Command(_LaidOut, TyperCommand):
    pass


class _Later(Command):
    """Stands for a command in lists of commands."""

    def __init__(self, *args: Any, module: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self._module = module

    def load(self) -> Any:
        assert self.name
        return commands_of(typer.main.get_group(import_module(self._module).commands))[self.name]


def commands_of(group: Any) -> dict[str, Any]:
    """Return the commands of a group, and import those that are still to come; none of a command."""
    commands = getattr(group, "commands", {})
    for name, command in commands.items():
        if isinstance(command, _Later):
            commands[name] = command.load()
    return commands


class CommandGroup(_LaidOut, TyperGroup):
    def every(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield all commands and groups in this one, each with its full name, of which `path` is this one's."""
        for name, command in commands_of(self).items():
            yield f"{path} {name}", command
            if isinstance(command, CommandGroup):
                yield from command.every(f"{path} {name}")

    def invoke(self, ctx: Any) -> Any:
        """Run the command. A closed pipe, as in `rg-env … | head`, is not an error, though Typer takes it for one; a
        command that ends otherwise keeps its exit code.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise typer.Exit(0) from None
        finally:
            _flush_output()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command. An unknown one is refused with similar commands of all groups."""
        word = args[0]
        found = self.commands.get(word)
        if isinstance(found, _Later):
            self.commands[word] = found.load()
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            root = ctx.find_root()
            paths = [path for path, _ in root.command.every(root.info_name)]
            names = {path.rpartition(" ")[2] for path in paths}
            near = [word]  # of another group
            if word in _OTHER_WORDS:
                near = [_OTHER_WORDS[word]]
            elif word not in names:
                near = similar_words(word, names)
            similar = []
            for name in near:
                similar += [path for path in paths if path.endswith(f" {name}")]
            if similar:
                hint = f"did you mean `{'` or `'.join(similar)}`?"
            else:
                hint = f"use one of {', '.join(self.commands)}"
            ctx.fail(f"no command {word!r}; {hint}")
        return super().resolve_command(ctx, args)


def _flush_output() -> None:
    if sys.stdout is None:  # it was closed before the start
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the end


def _shorten(param: Any) -> Any:
    """Replace long type names in the help, which leave little room for words. An option that may be repeated has a
    metavar of its own, and says so in its help."""
    kind = param.type_descriptor
    if isinstance(param, TyperArgument):
        param.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
    elif isinstance(param, TyperOption) and param.metavar is None:
        if param.is_flag:  # it has no value
            param.metavar = ""
        elif not kind.is_choice:  # Typer lists choices itself
            param.metavar = _METAVARS.get(kind.annotation)
    return param


class SettingsCommand(Command):
    """A command that takes settings, so that the parser lets unknown options pass to them.

    Attributes:
        passes_on: it has options of another program, behind `--`.
    """

    passes_on = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)  # the parser empties it
        rest = super().parse_args(ctx, args)
        # Unknown options end up among the settings, because the command ignores them (`PASS_ON`).
        for word in ctx.params.get("settings") or []:
            if word.startswith("-"):
                raise ConfigError(self._no_option(ctx, word))
            if "=" not in word and not word.endswith((".yaml", ".yml")):
                from rg_env.cli.meant import list_meant

                if listed := list_meant(words, word):
                    raise ConfigError(f"{word!r}: {listed}")
        return rest

    def _no_option(self, ctx: Any, word: str) -> str:
        """Suggest what to write instead of an unknown option: another option, or a setting."""
        from rg_env.cli.meant import of_others
        from rg_env.configuration.setting_names import FOREIGN, USUAL, foreign_message, setting_names

        bare, sign, value = word.lstrip("-").partition("=")
        setting = bare.replace("-", "_")
        option = word.partition("=")[0]
        if setting.rpartition(".")[2] in FOREIGN:
            return f"no option {option}: {foreign_message(setting)}"
        if sign and "." in bare:
            return f"no option {word}: settings have no dashes, write {bare}={value}"
        if setting in ("config", "recipe"):
            return f"no option {option}: the file stands alone, such as {ctx.command_path} mine.yaml"
        if setting in USUAL:
            return f"no option {option}; did you mean {USUAL[setting]}={value or '…'}?"
        options = [name for param in self.params for name in param.opts if name.startswith("--")]
        if setting == "resume" and f"--{setting}" not in options:
            return f"no option {word}; did you mean trainer.resume_mode=latest?"
        if setting not in _leaves() and (others := of_others(option, ctx)):
            return f"`{ctx.command_path}` has no option {option}{others}"
        leaves = similar_words(setting, _leaves())[:1]
        names = [name for name in setting_names() if name.rpartition(".")[2] in leaves]
        if self.passes_on and any(".inference_engine." in name for name in names):
            return f"no option {option}; one of the server that --model starts stands behind `--`: -- {word}"
        near = similar_words(f"--{bare}", options)[:1]
        if not near:
            near = [f"{name}={value or '…'}" for name in names]
        hint = f"`{ctx.command_path} --help` lists its options, and settings are key=value, such as scorer.timeout=10"
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        return f"no option {option}; {hint}"


def _leaves() -> list[str]:
    """Return the last parts of the names of all settings."""
    from rg_env.configuration.setting_names import setting_names

    return sorted({name.rpartition(".")[2] for name in setting_names()})
