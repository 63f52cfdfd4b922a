"""The layout: no import circles, and the packages that read dumps import neither torch nor Ray nor SkyRL.

Imports in functions count. Imports under TYPE_CHECKING count for circles only.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "rg_env"
FILES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
LIGHT = ("dump", "analysis", "browser", "scoring", "tasks", "evaluate")
HEAVY = {"torch", "ray", "skyrl", "skyrl_gym"}


def imports(module: str, for_types: bool = True) -> Iterator[str]:
    """The modules that a module imports. `from package import name` is the submodule if there is one by that name."""
    tree = ast.parse(FILES[module].read_text())
    types_only = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    skipped = set() if for_types else {inner for node in types_only for part in node.body for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{module}: relative import"
            for name in node.names:
                submodule = f"{node.module}.{name.name}"
                yield submodule if submodule in FILES else node.module


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


@pytest.mark.parametrize("package", LIGHT)
def test_what_reads_dumps_imports_nothing_heavy(package):
    modules = [module for module in FILES if f"{module}.".startswith(f"rg_env.{package}.")]
    assert modules
    for module in modules:
        heavy = {name.split(".")[0] for name in imports(module, for_types=False)} & HEAVY
        assert not heavy, module
