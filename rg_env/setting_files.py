"""Settings as users write them: YAML files with nested or dotted keys, and the values of `key=value`.

Invariant: `1e-4` is a number, as on SkyRL's command line, and a setting given twice is an error, whichever way it is
written. Needs no SkyRL.
Not covered: which settings exist, and what their values may be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from rg_env.errors import ConfigError, one_line


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"{twice!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_file(path: Path, is_setting: Callable[[str], bool]) -> dict[str, Any]:
    """The settings in a file by their dotted names.

    Args:
        is_setting: whether a dotted name is a setting, whose value may be a mapping; otherwise a mapping is a group.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or has no settings.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        near = get_close_matches(path.stem, [other.stem for other in path.parent.glob("*.yaml")], cutoff=0.7)
        hint = f"did you mean {path.with_name(f'{near[0]}.yaml')}?" if near else "check the path"
        raise ConfigError(f"{path}: cannot be read (no such file); {hint}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    except Exception as error:  # PyYAML's constructors raise nearly anything
        raise ConfigError(f"{path}: is not valid YAML ({one_line(error)})") from None
    if not isinstance(content, Mapping) or not content:
        raise ConfigError(f"{path}: contains no settings; write lines such as `trainer.max_training_steps: 10`")
    settings: dict[str, Any] = {}
    for name, value in _flatten(content, "", is_setting):
        if any(f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}.") for other in settings):
            raise ConfigError(f"{path}: {name} is given twice; leave one out")
        settings[name] = value
    return settings


def read_value(key: str, text: str) -> Any:
    """The value of `key=text`. Raises ConfigError if it is not YAML."""
    try:
        return yaml.load(text, _Loader)
    except Exception as error:  # PyYAML's constructors raise nearly anything
        raise ConfigError(f"{key}: cannot read {text!r} ({one_line(error)}); quote it") from None


def _flatten(node: Mapping[Any, Any], prefix: str, is_setting: Callable[[str], bool]) -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and not is_setting(dotted):
            yield from _flatten(value, f"{dotted}.", is_setting)
        else:
            yield dotted, value
