"""What other processes, settings, pages and tests know as text is there, and what scripts rely on has not changed.

A name such as `rg_env.train.main` is looked up in the syntax trees, without importing anything: that takes a second,
and covers modules whose packages are not installed. A name that a module makes at run time only is not found so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.snapshots import FOLDER, ROOT, snapshots

FOLDERS = ("rg_env", "tests", "docs", "configs", "scripts", "examples", "benchmarks")
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "rg_env_verifiers.py", ".ci/run")
ENDINGS = {".py", ".md", ".yaml", ".toml", ".sh", ".js", ".ini"}

DOTTED = re.compile(r"(?<![\w./-])rg_env(?:\.[A-Za-z_]\w*)+(?::[A-Za-z_][\w.]*\w)?")
IMPORT = re.compile(r"\bfrom (rg_env[\w.]*) import (?:\(([^)]*)\)|(\w+(?: as \w+)?(?:, \w+(?: as \w+)?)*))")
STARTED = re.compile(r"-m\W{1,5}(rg_env(?:\.\w+)*)\b")
NO_NAMES = {"rg_env.server_arguments", "rg_env.parts_of_groups", "rg_env.rollouts.reward"}
"""Texts that look like names: keys of `click.Context.meta` and of a table's metadata, and a mistake in a test."""
VARIABLE = re.compile(r"\bRG_ENV_[A-Z_]+\b")


@cache
def texts() -> dict[str, str]:
    """Everything that names something of ours: path → text."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in ENDINGS]
    paths += [ROOT / name for name in FILES]
    kept = [path for path in paths if path.is_file() and "vendor" not in path.parts and path != Path(__file__)]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in kept}


def file_of(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


@cache
def members(module: str) -> dict[str, ast.AST | str]:
    """The names of a module: what defines each, or the full name of what is imported under it."""
    file = file_of(module)
    assert file is not None, module
    return dict(defined(ast.parse(file.read_text()).body))


def defined(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST | str]]:
    """The names that statements bind, also those in `if`, `try` and `with`."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                yield name.asname or name.name, f"{node.module}.{name.name}"
        elif isinstance(node, ast.Import):
            for name in node.names:
                yield name.asname or name.name.partition(".")[0], name.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.TypeAlias)):
            for target in ast.walk(node):
                if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                    yield target.id, node
            yield from lazy_names(node)
        for part in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = getattr(node, part, [])
                yield from defined([*inner])


def lazy_names(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The entries of a table for `rg_env.base.lazy.exports`: name → module."""
    value = getattr(node, "value", None)
    if not isinstance(value, ast.Dict):
        return
    for key, module in zip(value.keys, value.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(module, ast.Constant):
            name, home = str(key.value), str(module.value)
            if home.startswith("rg_env"):
                yield name, home if home.endswith(f".{name}") else f"{home}.{name}"


def is_there(name: str) -> bool:
    """Whether a dotted name leads to a module, a name in it, or an attribute of a class in it."""
    parts = name.replace(":", ".").split(".")
    module = parts.pop(0)
    while parts and file_of(f"{module}.{parts[0]}"):
        module = f"{module}.{parts.pop(0)}"
    if not parts:
        return True
    first, *rest = parts
    if first.startswith("__"):
        return True
    target = members(module).get(first)
    if target is None:
        return False
    if isinstance(target, str):  # imported from elsewhere: another package's attributes are not ours to know
        imported = ".".join([target, *rest])
        return not imported.startswith("rg_env") or imported == name or is_there(imported)
    if not rest or not isinstance(target, ast.ClassDef):
        return True
    return rest[0] in dict(defined(target.body)) or bool(target.bases)


def test_every_name_that_is_written_somewhere_is_there():
    checked, missing = 0, set()
    for path, text in texts().items():
        for name in DOTTED.findall(text):
            checked += 1
            if name not in NO_NAMES and not is_there(name):
                missing.add(f"{path}: {name}")
    assert checked > 1000
    assert missing == set()


def test_every_import_of_ours_is_possible():
    """Also in programs that are strings, in pages and in recipes."""
    checked, missing = 0, set()
    for path, text in texts().items():
        for module, in_parentheses, on_a_line in IMPORT.findall(text):
            names = re.sub(r"#.*", "", in_parentheses) or on_a_line
            for name in re.findall(r"(\w+)(?: as \w+)?", names):
                checked += 1
                if not is_there(f"{module}.{name}"):
                    missing.add(f"{path}: from {module} import {name}")
    assert checked > 1000
    assert missing == set()


def test_every_module_that_is_started_can_be_started():
    started = {(name, path) for path, text in texts().items() for name in STARTED.findall(text)}
    assert len({name for name, _ in started}) >= 3
    for name, path in started:
        file = file_of(f"{name}.__main__") or file_of(name)
        assert file is not None, f"{path}: {name}"
        assert file.name == "__main__.py" or '__name__ == "__main__"' in file.read_text(), f"{path}: {name}"


def test_every_environment_variable_that_is_named_is_read():
    code = "".join(text for path, text in texts().items() if path.startswith("rg_env/") and path.endswith(".py"))
    named = {name: path for path, text in texts().items() for name in VARIABLE.findall(text)}
    unread = {name: path for name, path in named.items() if name not in code and not name.startswith("RG_ENV_TEST_")}
    assert len(named) >= 4
    assert unread == {}


def test_a_name_that_is_gone_is_found():
    for name in ("rg_env.train.no_such_name", "rg_env.no_such_module", "rg_env.skyrl.env:NoSuchClass"):
        assert not is_there(name)
    assert not is_there("rg_env.rollouts.rewards.RewardFunction.no_such_method")
    function = "rg_env.rollouts.rewards.RewardFunction.rate"
    for name in ("rg_env.train", "rg_env.Scorer", "rg_env.skyrl.env:RGDumpEnv", function):
        assert is_there(name)


def test_commands_options_and_json_keys_are_those_of_the_snapshots():
    """If the change is on purpose: `python -m tests.snapshots`."""
    for name, text in snapshots().items():
        assert text == (FOLDER / name).read_text(), f"{name}: if this is on purpose, run `python -m tests.snapshots`"
