"""Selects the third-party snippets of codeio that may run in this process.

Invariant: as far as its syntax shows, a snippet that runs reads nothing but its arguments and the item's generator: no
sets (their order), clocks, files, processes or global random states. About three in four of the 3002 pass.
"""

from __future__ import annotations

import ast
import functools
import types
import warnings
from typing import Any

from rg_env.tasks.upstream import UnusableItemError
from rg_env.tasks.upstream.patch import override, print_nothing, with_globals

_PURE_MODULES = (  # noqa: SIM905 (one a line would be 24 lines)
    "abc bisect calendar cmath collections copy dataclasses datetime decimal enum fractions functools heapq itertools "
    "json math numbers numpy operator random re statistics string textwrap typing"
).split()
_IMPURE_NAMES = (  # noqa: SIM905
    "set frozenset hash id open input eval exec compile exit quit globals vars locals breakpoint __import__"
).split()
_FILE = "<codeio>"
"""The file name of snippets."""
_IMPURE_ATTRIBUTES = frozenset({"now", "today", "utcnow", "__hash__"})


@functools.lru_cache(maxsize=4096)
def _is_pure(code: str) -> bool:
    """Whether a snippet reads nothing but its arguments, as far as its syntax shows; False when in doubt."""
    try:
        nodes = list(ast.walk(ast.parse(code, _FILE)))
    except (SyntaxError, ValueError):
        return False
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        match node:
            case ast.Set() | ast.SetComp():
                return False
            case ast.Import(names=names) if any(not _is_pure_import(name.name, name.asname) for name in names):
                return False
            case ast.ImportFrom(module=str(module), names=names) if any(
                not _is_pure_import(f"{module}.{name.name}", None) for name in names
            ):
                return False
            case ast.ImportFrom(module=None):
                return False
            case ast.Name(id=name) if name in _IMPURE_NAMES or (name == "random" and name not in parameters):
                return False
            case ast.Attribute(attr=name) if name in _IMPURE_ATTRIBUTES:
                return False
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
                return False
            case ast.keyword(arg="where"):  # NumPy leaves the memory of the other places as it finds it
                return False
            case _:
                pass
    return True


def _is_pure_import(path: str, alias: str | None) -> bool:
    package, *rest = path.split(".")
    if package == "random":  # the module may be imported: uses of it show by name
        return alias is None and rest in ([], ["Random"])
    return package in _PURE_MODULES and "random" not in rest


def only_pure_snippets(dataset: Any) -> None:
    """codeio: it runs third-party snippets, some of which read sets, clocks, files or global random states; its class
    keeps the snippets of the latest instance, of any difficulty; and it prints."""
    warnings.filterwarnings("ignore", category=SyntaxWarning, module=_FILE)  # of snippets only
    cls = type(dataset)
    own = types.SimpleNamespace(_jsonl_data=cls._jsonl_data)

    def run(code: str, scope: dict[str, Any], _: dict[str, Any]) -> None:
        scope["print"] = print_nothing
        exec(compile(code, _FILE, "exec"), scope, scope)

    make_pair = with_globals(cls._generate_io_pair, print=print_nothing, exec=run)

    def io_pair(self: Any, main_code: str, input_generator_code: str, *args: Any) -> Any:
        if not _is_pure(f"{main_code}\n\n{input_generator_code}"):
            raise UnusableItemError("the snippet reads more than its arguments")
        pair = make_pair(self, main_code, input_generator_code, *args)
        if pair == ({}, {}):
            raise UnusableItemError("the snippet failed")
        if " at 0x" in repr(pair):
            raise UnusableItemError("the snippet gives the address of an object")
        return pair

    override(dataset, _generate_io_pair=io_pair, __getitem__=with_globals(cls.__getitem__, **{cls.__name__: own}))
