"""The datasets of reasoning-gym, made functions of their seed.

Some generators of reasoning-gym 0.1.25 read more than their seed: the order of sets (which changes with
PYTHONHASHSEED), NumPy's or Python's global random state, the thread's decimal context, what all instances share; and
some print. Invariant: an item made here depends on (task, options, seed) alone, and making it changes no state outside,
in any thread. Upstream's modules and classes are left as they are; only our own instances differ. `CURES` lists what
differs, and why.

One case is not cured: about 3 % of the answers of intermediate_integration (never its questions), where sympy picks
among equivalent antiderivatives by hash seed. The row carries the one picked.
"""

from __future__ import annotations

import ast
import copy
import decimal
import functools
import importlib
import random
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

_T = TypeVar("_T")

_COMPUTED_AT_CREATION = {"acre": 5, "gsm_symbolic": 1, "list_functions": 1}
"""Tasks whose `__init__` draws the items, so that a warm instance cannot be re-seeded, and the size to give them: acre
draws one category of question only at size 1, all three from 5 on."""


@functools.cache
def reasoning_gym() -> types.ModuleType:
    """The package, imported on first use; a package that it imports draws from Python's global random state."""
    state = random.getstate()
    try:
        return importlib.import_module("reasoning_gym")
    finally:
        random.setstate(state)


class UpstreamDataset:
    """One task under one set of options; makes any number of items, each from its own seed.

    Thread-safe. The underlying dataset is built on first use (up to 0.3 s) and then copied per item.
    """

    def __init__(self, task: str, options: Mapping[str, Any]) -> None:
        self.task = task
        self.options = dict(options)
        self._lock = threading.Lock()
        self._warm: Any = None

    def make(self, seed: int) -> dict[str, Any]:
        """The entry of `seed`.

        Args:
            seed: in [0, 2³²).

        Raises:
            Exception: whatever upstream raises where it cannot make this item.
        """
        # A fresh context: decimal_arithmetic leaves its precision in the thread's.
        with decimal.localcontext(decimal.Context()):
            warm = self._template()
            config = copy.copy(warm.config)
            config.seed = seed
            if self.task in _COMPUTED_AT_CREATION:
                dataset = type(warm)(config)
                if hasattr(warm, "_generators"):
                    dataset._generators = warm.generators
                entry = dataset[seed % config.size]
            else:
                dataset = copy.copy(warm)
                dataset.config, dataset.seed = config, seed
                entry = dataset[0]
        if not isinstance(entry.get("question"), str) or not isinstance(entry.get("metadata"), dict):
            raise ValueError("its entry has no question or no metadata")
        entry["metadata"].setdefault("source_dataset", self.task)
        return dict(entry)

    def _template(self) -> Any:
        with self._lock:
            if self._warm is None:
                size = _COMPUTED_AT_CREATION.get(self.task, 1)
                warm = reasoning_gym().create_dataset(self.task, **self.options, seed=0, size=size)
                CURES.get(self.task, lambda _: None)(warm)
                self._warm = warm
            return self._warm


# -- the cures --------------------------------------------------------------------------------------------------------


class _SortedSet(set[str]):
    """A set that is walked in sorted order, and stays one when something is taken away."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))

    def __sub__(self, other: Any) -> _SortedSet:
        return _SortedSet(super().__sub__(other))


class _SortedFrozenSet(frozenset[str]):
    """A frozenset that is walked in sorted order."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))


class _ThreadLocalNumPy(threading.local):
    """Stands for the module `numpy`, with a global random state that is this thread's own."""

    def __init__(self) -> None:
        import numpy

        self._numpy = numpy
        self.random = numpy.random.RandomState(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numpy, name)


class _ThreadLocalRandom(threading.local):
    """Stands for the module `random`, with a global state that is this thread's own."""

    def __init__(self) -> None:
        self._rng = random.Random(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rng, name)


def _rebind(function: Any, scope: dict[str, Any]) -> Any:
    """The same code, looking its global names up in `scope`."""
    copied = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def _with_globals(function: Any, **replaced: Any) -> Any:
    """The same function, for which some global names mean something else."""
    return _rebind(function, {**function.__globals__, **replaced})


def _override(dataset: Any, **methods: Any) -> None:
    """Give this one instance other methods; unlike plain attributes they follow `copy.copy`."""
    cls = type(dataset)
    dataset.__class__ = type(cls.__name__, (cls,), {"__module__": cls.__module__, **methods})


def _say_nothing(*_: object, **__: object) -> None:
    """Stands for `print`."""


def _sort_letters(dataset: Any) -> None:
    """isomorphic_strings, ransom_note: they choose from `list(self.letters)`, a set."""
    dataset.letters = _SortedSet(dataset.letters)


def _sort_neighbours(dataset: Any) -> None:
    """word_ladder: its breadth-first search walks sets of words, so that the ladder found changes."""
    dataset.word_graphs = {
        length: {word: tuple(sorted(neighbours)) for word, neighbours in graph.items()}
        for length, graph in dataset.word_graphs.items()
    }


def _sort_monomials(dataset: Any) -> None:
    """polynomial_multiplication: it chooses from monomials, and lists variables, in the order of a set."""
    cls = type(dataset)

    def monomials(self: Any, rng: random.Random) -> Any:
        return sorted(cls._get_monomials(self, rng), key=str)

    def item(self: Any, index: int) -> Any:
        entry = cls.__getitem__(self, index)
        entry["metadata"]["variables"].sort()
        return entry

    _override(dataset, _get_monomials=monomials, __getitem__=item)


def _sort_knights(dataset: Any) -> None:
    """knight_swap: its search walks frozensets of squares, so that the solution found changes."""
    logic = copy.copy(dataset.game_logic)
    logic.solve_swap = _with_globals(logic.solve_swap, frozenset=_SortedFrozenSet)
    dataset.game_logic = logic


def _own_numpy_state(dataset: Any) -> None:
    """pool_matrix: it seeds and draws from NumPy's global state."""
    cls = type(dataset)
    _override(dataset, __getitem__=_with_globals(cls.__getitem__, np=_ThreadLocalNumPy()))


def _own_random_state(dataset: Any) -> None:
    """list_functions: one of its generators draws from Python's global state."""
    rng = _ThreadLocalRandom()
    generators = dataset.generators
    scope: dict[str, Any] = {}
    for function in generators.values():
        if not scope:
            scope.update(function.__globals__)
            for name, helper in function.__globals__.items():
                if isinstance(helper, types.FunctionType) and helper.__globals__ is function.__globals__:
                    scope[name] = _rebind(helper, scope)
            scope["random"] = rng
    cls = type(dataset)

    def item(self: Any, index: int) -> Any:
        rng.seed(f"global {self.seed}")  # not the stream of the item's own generator
        return cls.__getitem__(self, index)

    dataset._generators = {number: scope[function.__name__] for number, function in generators.items()}
    _override(dataset, __getitem__=item)


def _compile_alone(dataset: Any) -> None:
    """bf: its compiler keeps functions and variables in module globals, and prints dots."""
    from reasoning_gym.code.contrib.bfit.Compiler import Compiler, Optimizer

    optimize = _with_globals(Optimizer.optimize, print=_say_nothing)
    init = _with_globals(Compiler.Compiler.__init__, optimize=optimize)
    compiler = type("Compiler", (Compiler.Compiler,), {"__init__": init})
    compile_code = _with_globals(Compiler.compile, Compiler=compiler)

    def compile_alone(self: Any, code: str) -> Any:
        with _BF_COMPILER:
            return compile_code(code, optimize_code=True)

    _override(dataset, compile_bfit_code_to_bf=compile_alone)


_BF_COMPILER = threading.Lock()


class UnusableSnippetError(Exception):
    """A codeio snippet was drawn that cannot give a reproducible item; another seed gives another snippet."""


_PURE_MODULES = (  # noqa: SIM905 (one a line would be 24 lines)
    "abc bisect calendar cmath collections copy dataclasses datetime decimal enum fractions functools heapq itertools "
    "json math numbers numpy operator random re statistics string textwrap typing"
).split()
_IMPURE_NAMES = (  # noqa: SIM905
    "set frozenset hash id open input eval exec compile exit quit globals vars locals breakpoint __import__"
).split()
_IMPURE_ATTRIBUTES = frozenset({"now", "today", "utcnow", "__hash__"})


@functools.lru_cache(maxsize=4096)
def _is_pure(code: str) -> bool:
    """Whether a snippet reads nothing but its arguments, as far as its syntax tells; False when in doubt."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
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
            case _:
                pass
    return True


def _is_pure_import(path: str, alias: str | None) -> bool:
    package, *rest = path.split(".")
    if package == "random":  # the module itself may be imported: what is then used of it shows by its name
        return alias is None and rest in ([], ["Random"])
    return package in _PURE_MODULES and "random" not in rest


def _only_pure_snippets(dataset: Any) -> None:
    """codeio: it runs third-party snippets, some of which read sets, clocks, files or global random states; it keeps
    the snippets of the latest instance in its class, whatever their difficulty; and it prints."""
    cls = type(dataset)
    own = types.SimpleNamespace(_jsonl_data=cls._jsonl_data)

    def run(code: str, scope: dict[str, Any], _: dict[str, Any]) -> None:
        scope["print"] = _say_nothing
        exec(code, scope, scope)

    make_pair = _with_globals(cls._generate_io_pair, print=_say_nothing, exec=run)

    def io_pair(self: Any, main_code: str, input_generator_code: str, *args: Any) -> Any:
        if not _is_pure(f"{main_code}\n\n{input_generator_code}"):
            raise UnusableSnippetError("the snippet reads more than its arguments")
        pair = make_pair(self, main_code, input_generator_code, *args)
        if pair == ({}, {}):
            raise UnusableSnippetError("the snippet failed")
        if " at 0x" in repr(pair):
            raise UnusableSnippetError("the snippet gives the address of an object")
        return pair

    _override(dataset, _generate_io_pair=io_pair, __getitem__=_with_globals(cls.__getitem__, **{cls.__name__: own}))


CURES: dict[str, Callable[[Any], None]] = {
    "bf": _compile_alone,
    "codeio": _only_pure_snippets,
    "isomorphic_strings": _sort_letters,
    "knight_swap": _sort_knights,
    "list_functions": _own_random_state,
    "polynomial_multiplication": _sort_monomials,
    "pool_matrix": _own_numpy_state,
    "ransom_note": _sort_letters,
    "word_ladder": _sort_neighbours,
}
