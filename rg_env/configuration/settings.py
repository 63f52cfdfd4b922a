"""How settings are declared, checked and read: each once, in a field of a dataclass; from YAML files and `key=value`.

Invariant: `1e-4` is a number, as on SkyRL's command line, and a setting given twice is an error, whichever way it is
written. Needs no SkyRL. Not covered: which settings exist (`rg_env.configuration.config`, `rg_env.skyrl.train_config`).
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rg_env.base.errors import ConfigError, as_typed, did_you_mean, need, need_number, refuse, similar_words

if TYPE_CHECKING:
    import yaml


def setting(default: Any, *, free: bool = False, **limits: Any) -> Any:
    """Return a field and its limits, as `check_value` takes them.

    Args:
        free: whether a run may be continued with another value: it changes no group.
    """
    return dataclasses.field(default=default, metadata={**limits, "free": free})


def value_of(cfg: Any, name: str) -> Any:
    """Return the value of a dotted setting; None inside a group that is null."""
    value = cfg
    for part in name.split("."):
        if value is None:
            return None
        value = getattr(value, part)
    return value


def set_value(cfg: Any, name: str, value: Any) -> None:
    """Set a dotted setting."""
    group, _, leaf = name.rpartition(".")
    if group:
        cfg = value_of(cfg, group)
    setattr(cfg, leaf, value)


def fields_of(config: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Every setting of a config by its dotted name."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from fields_of(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field


def check_fields(config: Any, prefix: str) -> None:
    """Check every setting of a config by its type and limits; names begin with `prefix`. Raises ConfigError."""
    for name, field in fields_of(config):
        check_value(f"{prefix}.{name}", value_of(config, name), field.type, field.metadata)


def check_value(name: str, value: Any, kind: Any, limits: Mapping[str, Any]) -> None:
    """Check a value by its declared type and limits.

    Args:
        name: of the setting, for the message.
        kind: the type of a field: bool, int, float, str, Any, Literal, lists and mappings of them, and unions.
        limits: `choices` (of texts), `filled` (no empty text), or the bounds of `need_number`. They hold for the items
            of a list or mapping.

    Raises:
        ConfigError: one line that names the setting, its value and what would be right.
    """
    is_union = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
    kinds = set(typing.get_args(kind)) if is_union else {kind}
    is_number = bool({int, float} & kinds)
    choices = limits.get("choices", ())
    if typing.get_origin(kind) is typing.Literal:
        choices = typing.get_args(kind)
    collection = next((option for option in kinds if (typing.get_origin(option) or option) in (list, dict)), None)
    if value is None:
        need({Any, type(None)} & kinds, name, value, "must have a value")
    elif Any in kinds or (bool in kinds and isinstance(value, bool)):
        return
    elif collection:
        _check_items(name, value, collection, limits)
    elif choices and (isinstance(value, str) or not is_number):
        or_number = ""
        if is_number:
            or_number = ", or a number" if float in kinds else ", or a whole number"
        _check_choice(name, value, choices, or_number)
    elif is_number:
        bounds = {name: limit for name, limit in limits.items() if name not in ("choices", "free")}
        need_number(name, value, whole=float not in kinds, **bounds)
    elif bool in kinds:
        refuse(name, value, "must be true or false")
    else:
        need(isinstance(value, str), name, value, "must be a text; put it in quotes")
        need(value.strip() or not limits.get("filled"), name, value, "must not be empty")


def _check_choice(name: str, value: Any, choices: Iterable[str], or_number: str) -> None:
    choices = list(choices)
    if or_number:
        need(value in choices, name, value, f"must be {' or '.join(choices)}{or_number}")
    ok = isinstance(value, str) and value in choices
    hint = did_you_mean(value, choices, "") if isinstance(value, str) and len(choices) > 3 else ""
    need(ok, name, value, f"must be one of {', '.join(choices)}{hint}".removesuffix("; "))


def _check_items(name: str, value: Any, collection: Any, limits: Mapping[str, Any]) -> None:
    item_kind = (typing.get_args(collection) or (Any,))[-1]
    items: Iterable[tuple[Any, Any]]
    if (typing.get_origin(collection) or collection) is list:
        # `imports=my_tasks.py` would otherwise be advised as [my_tasks.py], and a module is named without .py.
        item = str(value)
        if item.endswith(".py"):
            item = item.removesuffix(".py").replace("/", ".")
        need(isinstance(value, (list, tuple)), name, value, f"must be a list; write [{item}]")
        items = enumerate(value)
    else:
        need(isinstance(value, Mapping), name, value, "must be a mapping, such as {name: value}")
        items = value.items()
    for key, item in items:
        check_value(f"{name}[{key}]", item, item_kind, limits)


# ------------------------------------------------------------------------------------- may a run be continued with it?
class Difference(NamedTuple):
    """A setting whose value is not that of the run to be continued."""

    setting: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.setting} was {as_typed(self.before):.60}, is now {as_typed(self.now):.60}"


def free_settings(config: Any) -> set[str]:
    """Return the dotted names of the settings that change no group."""
    return {name for name, field in fields_of(config) if field.metadata.get("free")}


def without_free(config: Any) -> dict[str, Any]:
    """Return the settings that determine the groups, nested."""
    kept: dict[str, Any] = {}
    free = free_settings(config)
    for name, _ in fields_of(config):
        if name in free:
            continue
        *groups, leaf = name.split(".")
        place = kept
        for group in groups:
            place = place.setdefault(group, {})
        place[leaf] = value_of(config, name)
    return kept


def differences(config: Any, before: Any, now: Mapping[str, Any], prefix: str = "") -> Iterator[Difference]:
    """Compare the settings of two attempts, as JSON has them. One that only one of the two programs has is no
    difference.

    Args:
        config: of the type of both, which says what is a group of settings and what a value.
    """
    if not isinstance(before, Mapping):
        return
    for field in dataclasses.fields(config):
        name, value = field.name, getattr(config, field.name)
        if name not in before or name not in now:
            continue
        if dataclasses.is_dataclass(value) and isinstance(before[name], Mapping):
            yield from differences(value, before[name], now[name], f"{prefix}{name}.")
        elif before[name] != now[name]:
            yield Difference(f"{prefix}{name}", before[name], now[name])


@cache
def _loader() -> type[yaml.SafeLoader]:
    """Return our loader; commands without settings need not import YAML, which takes as long as all of this package."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
            # PyYAML itself keeps the last of two equal keys in silence.
            keys = [key.value for key, _ in node.value]
            if twice := next((key for key in keys if keys.count(key) > 1), None):
                raise yaml.constructor.ConstructorError(None, None, f"{twice!r} is given twice", node.start_mark)
            return super().construct_mapping(node, deep)

    # In YAML 1.1, as PyYAML reads it, `1e-4` without a dot is a text.
    number = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    return Loader


def load_yaml(text: str) -> Any:
    """Return what a text in YAML says, as settings are read. Raises nearly anything, as PyYAML's constructors do."""
    import yaml

    return yaml.load(text, _loader())


def read_file(path: Path, is_setting: Callable[[str], bool]) -> dict[str, Any]:
    """Return the settings in a file by their dotted names.

    Args:
        is_setting: whether a dotted name is a setting, whose value may be a mapping; otherwise a mapping is a group.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or has no settings.
    """
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: cannot be read (no such file); {_instead_of(path)}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except Exception as error:
        from rg_env.base.hints import of_yaml

        raise ConfigError(f"{path}: is not valid YAML ({of_yaml(error)})") from None
    if not isinstance(content, Mapping) or not content:
        raise ConfigError(f"{path}: contains no settings; write lines such as `trainer.max_training_steps: 10`")
    settings: dict[str, Any] = {}
    for name, value in _flatten(content, "", is_setting):
        # A group that is given as a whole and in parts is a setting given twice, too.
        if any(is_within(name, other) or is_within(other, name) for other in settings):
            raise ConfigError(f"{path}: {name} is given twice; leave one out")
        settings[name] = value
    return settings


def lines_of(path: Path, is_setting: Callable[[str], bool]) -> dict[str, int]:
    """Return the line, from 1, of each setting in a file that `read_file` has read."""
    import yaml

    lines: dict[str, int] = {}

    def walk(node: Any, prefix: str) -> None:
        for key, value in node.value:
            dotted = f"{prefix}{key.value}"
            if isinstance(value, yaml.MappingNode) and not is_setting(dotted):
                walk(value, f"{dotted}.")
            else:
                lines[dotted] = key.start_mark.line + 1

    walk(yaml.compose(path.read_text(encoding="utf-8"), _loader()), "")
    return lines


def replaced_tasks(later: Mapping[str, Any], file: str, earlier: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """Return a line if a file replaces the tasks of an earlier one, whose questions are then not asked; else "".

    Args:
        later: the settings in the file; `earlier`: those in the files before it.
        sources: setting → the file that gave it.
        file: its name; empty if the settings are typed, which is meant unless questions of the user's own go.
    """
    for name in later:
        if name.endswith(".tasks") and name in earlier and earlier[name] != later[name]:
            if file:
                return f"{file} replaces tasks of {sources[name]}"
            if "'file':" in str(earlier[name]):
                return f"tasks=… replaces tasks of {sources[name]}, with its files of questions"
    return ""


def is_within(name: str, group: str) -> bool:
    """Return whether a setting is the group itself or in it."""
    return f"{name}.".startswith(f"{group}.")


RECIPES = Path(__file__).parents[2] / "configs"
"""Where the recipes are, if rg_env runs from a checkout; an installed package has none."""


def _instead_of(path: Path) -> str:
    """Say what the user of a path without a file may have meant."""
    near = similar_words(path.stem, [other.stem for other in path.parent.glob("*.yaml")])
    if near:
        return f"did you mean {path.with_name(f'{near[0]}.yaml')}?"
    if recipe := nearest_recipe(path.stem):
        return f"did you mean {recipe}?"
    where = RECIPES if RECIPES.is_dir() else "configs/ of rg_env's repository, which is not installed with it"
    return f"check the path; recipes are in {where}"


def nearest_recipe(name: str) -> Path | None:
    """Return the recipe of this checkout with the most similar name, relative to this folder if it is below it."""
    recipes: dict[str, Path] = {}
    for folder in (RECIPES / "cpu", RECIPES):
        recipes |= {recipe.stem: recipe for recipe in folder.glob("*.yaml")}
    near = similar_words(name, recipes)
    if not near:
        return None
    recipe = recipes[near[0]]
    if recipe.is_relative_to(Path.cwd()):
        return recipe.relative_to(Path.cwd())
    return recipe


def read_value(key: str, text: str) -> Any:
    """Return the value of `key=text`. Raises ConfigError if it is not YAML."""
    try:
        return load_yaml(text)
    except Exception as error:
        from rg_env.base.hints import of_yaml

        raise ConfigError(f"{key}: cannot read {text!r} ({of_yaml(error)}); put it all in quotes: '{key}=…'") from None


def _flatten(node: Mapping[Any, Any], prefix: str, is_setting: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and not is_setting(dotted):
            yield from _flatten(value, f"{dotted}.", is_setting)
        else:
            yield dotted, value
