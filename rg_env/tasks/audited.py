"""Which version of reasoning-gym was audited, and the digests of its scorers.

Invariant: another version is refused, unless `rg-env audit` is about to audit it. A digest covers the source of
everything that a task's `score_answer` can name: functions, methods and classes of reasoning-gym, transitively. Not
covered: data tables, other packages, and calls through names that are constructed at run time.

`audited.json` in this folder has the version and digests that `rg-env audit --record` wrote after an audit.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import inspect
import json
import os
import textwrap
import types
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from rg_env.errors import ConfigError

UNAUDITED_VARIABLE = "RG_ENV_UNAUDITED"
"""Environment variable: if it is not empty, other versions are accepted. `rg-env audit` sets it."""

_RECORD = Path(__file__).with_name("audited.json")
_EVALUATES = frozenset({"eval", "exec", "compile", "parse_expr", "sympify", "parse_latex"})
"""Names of functions that may run text as code."""
_EVALUATES_NO_ANSWER = frozenset({"bitwise_arithmetic", "number_sorting", "propositional_logic"})
"""Two scorers evaluate the question, which no model wrote; the third has a plain parser named `parse_expr`."""


def audited_version() -> str:
    """The version of reasoning-gym whose scorers were audited."""
    version: str = _record()["reasoning_gym"]
    return version


def audited_tasks() -> tuple[str, ...]:
    """The tasks whose scorers were audited, sorted."""
    return tuple(_record()["scorers"])


@functools.cache
def installed_version() -> str:
    """The installed version of reasoning-gym; `unknown` if it declares none."""
    try:
        return importlib.metadata.version("reasoning-gym")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def check_audited() -> None:
    """Refuse a version of reasoning-gym whose scorers were not audited.

    Raises:
        ConfigError: naming both versions.
    """
    if installed_version() != audited_version() and not os.environ.get(UNAUDITED_VARIABLE):
        raise ConfigError(
            f"reasoning-gym {installed_version()} is installed, but only the scorers of {audited_version()} were "
            f"audited: pip install reasoning-gym=={audited_version()} (maintainers: `rg-env audit --record`)"
        )


def record(classes: Mapping[str, type[Any]], guarded: Collection[str]) -> tuple[str, ...]:
    """Write the digests of the installed scorers as the audited ones. For maintainers, after an audit.

    Args:
        classes: the dataset class of every task.
        guarded: tasks whose answers are checked before their scorer sees them.

    Returns:
        the tasks whose scorer is new or differs from the last record.

    Raises:
        ConfigError: a scorer may run the answer as code, and no guard covers it.
    """
    for task in sorted(classes.keys() - guarded - _EVALUATES_NO_ANSWER):
        if calls := evaluating_calls(classes[task]):
            raise ConfigError(
                f"task {task!r}: its scorer calls {', '.join(calls)}, which may run the answer as code, and rg_env has "
                "no guard for it; add one to rg_env/scoring/guard"
            )
    changed = changed_scorers(classes)
    digests = {task: scorer_digest(found) for task, found in sorted(classes.items())}
    _RECORD.write_text(json.dumps({"reasoning_gym": installed_version(), "scorers": digests}, indent=1) + "\n")
    _record.cache_clear()
    return changed


def changed_scorers(classes: Mapping[str, type[Any]]) -> tuple[str, ...]:
    """The tasks whose digest differs from the recorded one, or that have none. Sorted."""
    known = _record()["scorers"]
    return tuple(sorted(task for task, found in classes.items() if known.get(task) != scorer_digest(found)))


def evaluating_calls(dataset_class: type[Any]) -> tuple[str, ...]:
    """Functions named in a scorer's sources that may run text as code. Sorted."""
    found: set[str] = set()
    for source in _sources(dataset_class):
        found |= {name for node in ast.walk(_parsed(source)) if (name := _mentioned(node)) in _EVALUATES}
    return tuple(sorted(found))


def scorer_digest(dataset_class: type[Any]) -> str:
    """A SHA-256 over the sources that a scorer's result depends on."""
    texts = sorted(_sources(dataset_class))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


@functools.cache
def _record() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(_RECORD.read_text())
    return read


def _sources(dataset_class: type[Any]) -> Iterator[str]:
    """The source of the scorer and of everything that it can reach by name, each once."""
    package = _package(dataset_class.__module__)
    waiting: list[Any] = [dataset_class.score_answer]
    seen: set[Any] = set()
    while waiting:
        thing = waiting.pop()
        if thing in seen:
            continue
        seen.add(thing)
        try:
            source = textwrap.dedent(inspect.getsource(thing))
        except (OSError, TypeError):
            continue
        yield source
        codes = [thing.__code__] if isinstance(thing, types.FunctionType) else _method_codes(thing)
        scope = vars(inspect.getmodule(thing) or types.ModuleType(""))
        for name in {name for code in codes for name in _names(code)}:
            found = [scope.get(name), inspect.getattr_static(dataset_class, name, None)]
            modules = (value for value in scope.values() if isinstance(value, types.ModuleType))
            found += [getattr(module, name, None) for module in modules if _package(module.__name__) == package]
            waiting += [function for value in found if (function := _upstream_code(value, dataset_class))]


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _upstream_code(value: Any, dataset_class: type[Any]) -> Any:
    """The function or class behind a value if it comes from the dataset's package, else None."""
    value = getattr(value, "__func__", value)  # static and class methods
    value = value.fget if isinstance(value, property) else inspect.unwrap(value) if callable(value) else value
    package = _package(dataset_class.__module__)
    if not isinstance(value, (types.FunctionType, type)) or _package(value.__module__) != package:
        return None
    # A dataset class also contains the generator, which does not score; its methods are found by name.
    return None if isinstance(value, type) and issubclass(dataset_class, value) else value


def _method_codes(found: type[Any]) -> list[types.CodeType]:
    functions = (getattr(value, "__func__", value) for value in vars(found).values())
    return [function.__code__ for function in functions if isinstance(function, types.FunctionType)]


def _names(code: types.CodeType) -> Iterator[str]:
    """Every global and attribute that a code object names, nested functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _parsed(source: str) -> ast.AST:
    try:
        return ast.parse(source)
    except SyntaxError:  # a lambda in the middle of an expression
        return ast.Module(body=[], type_ignores=[])


def _mentioned(node: ast.AST) -> str:
    """The name that a node mentions, called or not: an alias is found where it is assigned."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) and node.attr != "compile" else ""  # re.compile
