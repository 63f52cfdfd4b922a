"""Which scorers were audited, told by their sources: a new version of reasoning-gym is trusted as far as it is the old.

Invariant: the digest of a task covers the source of everything that its `score_answer` can name: functions, methods and
classes of reasoning-gym, transitively. It does not cover tables of data, other packages, or what is called through
names made at run time.

`audited.json` beside this module holds the version and digests that `rg-env audit --record` wrote after an audit.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import inspect
import json
import textwrap
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loguru import logger

from rg_env.errors import ConfigError

_RECORD = Path(__file__).with_name("audited.json")
_EVALUATES = frozenset({"eval", "exec", "compile", "parse_expr", "sympify", "parse_latex"})
"""Names whose call on a text runs it, or may."""


def audited_version() -> str:
    """The version of reasoning-gym whose scorers were audited."""
    version: str = _record()["reasoning_gym"]
    return version


@functools.cache
def installed_version() -> str:
    """The version of reasoning-gym that is here; empty where it has none."""
    try:
        return importlib.metadata.version("reasoning-gym")
    except importlib.metadata.PackageNotFoundError:
        return ""


def comes_audited(dataset_class: type[Any]) -> bool:
    """Whether a class is part of the audited version of reasoning-gym, so that nobody need read its sources."""
    return dataset_class.__module__.startswith("reasoning_gym.") and installed_version() == audited_version()


@functools.cache
def changed_tasks() -> tuple[str, ...]:
    """Tasks whose scorer is not the audited one: changed, or new. Sorted; empty with the audited version.

    Reads no sources with the audited version; about a second with another. Warns once, naming them.
    """
    if installed_version() == audited_version():
        return ()
    changed = changed_since(_record()["scorers"], _dataset_classes())
    if changed:
        logger.warning(
            "reasoning-gym {} is not the audited {}: the scorers of these tasks changed, and are not trusted until "
            "`rg-env audit` has seen them: {}",
            installed_version() or "(of unknown version)",
            audited_version(),
            ", ".join(changed),
        )
    return changed


def changed_since(known: Mapping[str, str], classes: Mapping[str, type[Any]]) -> tuple[str, ...]:
    """The tasks whose digest differs from the known one, or that have none. Sorted."""
    return tuple(sorted(task for task, found in classes.items() if known.get(task) != scorer_digest(found)))


def unguarded_calls(task: str, dataset_class: type[Any], guarded: frozenset[str]) -> tuple[str, ...]:
    """What the task's scorer evaluates texts with, where no guard stands before it. Sorted; empty: nothing.

    A scorer that is exactly the audited one passes: two of those evaluate the question, never the answer.

    Args:
        guarded: tasks whose answers are checked before their scorer sees them.
    """
    if task in guarded or comes_audited(dataset_class):
        return ()
    calls = evaluating_calls(dataset_class)
    return () if not calls or _record()["scorers"].get(task) == scorer_digest(dataset_class) else calls


def refuse_unguarded(task: str, dataset_class: type[Any], guarded: frozenset[str]) -> None:
    """Refuse a scorer that evaluates what a model wrote, and that no guard stands before.

    Raises:
        ConfigError: naming the calls.
    """
    if calls := unguarded_calls(task, dataset_class, guarded):
        raise ConfigError(
            f"task {task!r}: its scorer calls {', '.join(calls)}, which may run the answer as code, "
            "and rg_env has no guard for it"
        )


def evaluating_calls(dataset_class: type[Any]) -> tuple[str, ...]:
    """Calls in a scorer's sources that run a text as code, or may. Sorted."""
    found: set[str] = set()
    for source in _sources(dataset_class):
        found |= {name for node in ast.walk(_parsed(source)) if (name := _mentioned(node)) in _EVALUATES}
    return tuple(sorted(found))


def scorer_digest(dataset_class: type[Any]) -> str:
    """A SHA-256 over the sources that a scorer's result depends on; of no sources where they cannot be read."""
    texts = sorted(_sources(dataset_class))
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def record() -> Path:
    """Write the digests of the installed version as the audited ones. For maintainers, after an audit."""
    digests = {task: scorer_digest(found) for task, found in sorted(_dataset_classes().items())}
    written = {"reasoning_gym": installed_version(), "scorers": digests}
    _RECORD.write_text(json.dumps(written, indent=1) + "\n")
    _record.cache_clear()
    changed_tasks.cache_clear()
    return _RECORD


@functools.cache
def _record() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(_RECORD.read_text())
    return read


def _dataset_classes() -> dict[str, type[Any]]:
    from rg_env.tasks.registry import task_names
    from rg_env.tasks.upstream.dataset import reasoning_gym

    registered = reasoning_gym().factory.DATASETS
    return {name: registered[name][0] for name in task_names() if name in registered}


def _sources(dataset_class: type[Any]) -> Iterator[str]:
    """The source of the scorer and of all that it can reach by name, each once."""
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
        codes = [thing.__code__] if isinstance(thing, types.FunctionType) else _codes_of_class(thing)
        scope = vars(inspect.getmodule(thing) or types.ModuleType(""))
        for name in {name for code in codes for name in _names(code)}:
            found = [scope.get(name), inspect.getattr_static(dataset_class, name, None)]
            found += [getattr(value, name, None) for value in scope.values() if _is_ours(value, dataset_class)]
            waiting += [function for value in found if (function := _code_of_theirs(value, dataset_class))]


def _is_ours(value: Any, dataset_class: type[Any]) -> bool:
    return (
        isinstance(value, types.ModuleType) and value.__name__.split(".")[0] == dataset_class.__module__.split(".")[0]
    )


def _code_of_theirs(value: Any, dataset_class: type[Any]) -> Any:
    """The function or class behind a value, if it comes from the package of the dataset; else None."""
    value = getattr(value, "__func__", value)  # static and class methods
    value = value.fget if isinstance(value, property) else inspect.unwrap(value) if callable(value) else value
    package = dataset_class.__module__.split(".")[0]
    if not isinstance(value, (types.FunctionType, type)) or (value.__module__ or "").split(".")[0] != package:
        return None
    # A dataset's class holds its generator too, which makes no scores: its methods come in by their names.
    return None if isinstance(value, type) and issubclass(dataset_class, value) else value


def _codes_of_class(found: type[Any]) -> list[types.CodeType]:
    functions = (getattr(value, "__func__", value) for value in vars(found).values())
    return [function.__code__ for function in functions if isinstance(function, types.FunctionType)]


def _names(code: types.CodeType) -> Iterator[str]:
    """Every global and attribute that a code names, in the functions inside it too."""
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
    """The name that a node mentions, called or not: a call under another name is found where it gets it."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) and node.attr != "compile" else ""  # re.compile
