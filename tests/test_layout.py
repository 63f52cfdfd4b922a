"""The layout: no circles of files, packages in layers, leaves that only the command line imports, and the packages that
read dumps import neither torch nor Ray nor SkyRL.

Imports in functions count. Imports under TYPE_CHECKING do not count as heavy.
"""

import ast
import functools
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "rg_env"
FILES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
LIGHT = ("runner", "dump", "analysis", "page", "scoring", "tasks", "evaluate")
HEAVY = {"torch", "ray", "skyrl", "skyrl_gym"}


@functools.cache
def imports(module: str, for_types: bool = True) -> frozenset[str]:
    """The modules that a module imports. `from package import name` is the submodule if there is one by that name."""
    found = set()
    tree = ast.parse(FILES[module].read_text())
    types_only = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    skipped = set() if for_types else {inner for node in types_only for part in node.body for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = node.module or ""
            if node.level:  # in the runner, which is to run under any name
                assert node.level == 1 and package_of(module) == "runner", f"{module}: relative import"
                package = ".".join(["rg_env.runner", *([node.module] if node.module else [])])
            for name in node.names:
                submodule = f"{package}.{name.name}"
                found.add(submodule if submodule in FILES else package)
    return frozenset(found)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, in order; empty if there is none."""
    done: set[str] = set()

    def search(path: list[str]) -> list[str]:
        for found in sorted(graph.get(path[-1], set()) - done):
            if found in path:
                return path[path.index(found) :]
            if circular := search([*path, found]):
                return circular
        done.add(path[-1])
        return []

    return next((found for module in sorted(graph) if module not in done and (found := search([module]))), [])


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c", "d"}, "c": set(), "d": {"b"}}) == ["b", "d"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_module_imports_itself_by_way_of_others():
    assert circle({module: {name for name in imports(module) if name in FILES} for module in FILES}) == []


LEAVES = {"analysis", "attack", "formats", "page", "serve", "terminal", "trainers"}
ALLOWED = {
    ("page", "analysis"),  # shows statistics
    ("terminal", "analysis"),  # what was learned is said in statistics
    *(("skyrl", "terminal"), ("train", "terminal")),  # what a run reports
}
"""Arrows to a leaf, beside those of the command line and of the lazy names in `rg_env`."""


def package_of(module: str) -> str:
    """`dump` for all modules of `rg_env.dump`; a module at the top is a package of its own."""
    return module.split(".")[1] if "." in module else module


def arrows() -> set[tuple[str, str]]:
    pairs = {(package_of(module), package_of(name)) for module in FILES for name in imports(module) if name in FILES}
    return {(one, other) for one, other in pairs if one != other}


LAYERS = (
    *("runner", "base", "configuration", "tasks", "scoring", "rows", "dump", "rollouts"),
    *("analysis", "terminal", "skyrl", "evaluate", "train"),
    *("attack", "formats", "page", "serve", "trainers"),
    *("cli", "__main__"),
)
"""Each package imports only those before it."""


def test_a_package_imports_only_lower_layers():
    """`rg_env` itself is left out: its names are imported on first use."""
    pairs = {pair for pair in arrows() if "rg_env" not in pair}
    upward = [(one, other) for one, other in pairs if LAYERS.index(other) >= LAYERS.index(one)]
    assert sorted(upward) == []


def test_only_the_command_line_imports_a_leaf():
    to_leaves = {pair for pair in arrows() if pair[1] in LEAVES and pair[0] not in ("cli", "rg_env")}
    assert to_leaves == ALLOWED


@pytest.mark.parametrize("package", LIGHT)
def test_what_reads_dumps_imports_nothing_heavy(package):
    modules = [module for module in FILES if f"{module}.".startswith(f"rg_env.{package}.")]
    assert modules
    for module in modules:
        heavy = {name.split(".")[0] for name in imports(module, for_types=False)} & HEAVY
        assert not heavy, module
