"""Patches the generators of reasoning-gym 0.1.25 that read more than their seed, or that do not end.

Invariant: a patched instance makes the same item from the same seed in every process, and touches no shared state; one
thread at a time may use it. A fix changes the instance that it is given, never upstream's modules or classes. Items
that need no fix stay as they are.

Not fixed: about 3% of the answers of intermediate_integration (never its questions), where sympy picks among
equivalent antiderivatives by hash seed. The row carries the one picked.
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib.resources
import itertools
import random
import threading
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rg_env.tasks.upstream import UnusableItemError

# -- copies of upstream code with other globals


def rebind(function: Any, scope: dict[str, Any]) -> Any:
    """Return a copy of the function that looks up its globals in `scope`."""
    copied = types.FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def with_globals(function: Any, **replaced: Any) -> Any:
    """Return a copy of the function with some of its globals replaced."""
    return rebind(function, {**function.__globals__, **replaced})


def override(dataset: Any, **methods: Any) -> None:
    """Replace methods of this one instance; unlike plain attributes they survive `copy.copy`."""
    # A class of its own, since Python looks up special methods such as __getitem__ in the class only.
    cls = type(dataset)
    dataset.__class__ = type(cls.__name__, (cls,), {"__module__": cls.__module__, **methods})


def print_nothing(*_: object, **__: object) -> None:
    """Replaces `print`."""


# -- generators that read more than their seed


class _SortedSet(set[str]):
    """A set that iterates in sorted order, as do its differences with other sets."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))

    def __sub__(self, other: Any) -> _SortedSet:
        # set.__sub__ gives a plain set, and the generators choose from the letters that are left.
        return _SortedSet(super().__sub__(other))


def _sort_letters(dataset: Any) -> None:
    """isomorphic_strings, ransom_note: they choose from `list(self.letters)`, a set."""
    dataset.letters = _SortedSet(dataset.letters)


def _sort_neighbors(dataset: Any) -> None:
    """word_ladder: its breadth-first search iterates over sets of words, so the ladder found varies."""
    graphs = {}
    for length, graph in dataset.word_graphs.items():
        graphs[length] = {word: tuple(sorted(neighbors)) for word, neighbors in graph.items()}
    dataset.word_graphs = graphs


def _sort_monomials(dataset: Any) -> None:
    """polynomial_multiplication: it chooses from monomials and lists variables in set order."""
    cls = type(dataset)

    def monomials(self: Any, rng: random.Random) -> Any:
        return sorted(cls._get_monomials(self, rng), key=str)

    def item(self: Any, index: int) -> Any:
        entry = cls.__getitem__(self, index)
        # The monomials are in order by now; the list of variables in the metadata still comes from a set.
        entry["metadata"]["variables"].sort()
        return entry

    override(dataset, _get_monomials=monomials, __getitem__=item)


def _sort_knights(dataset: Any) -> None:
    """knight_swap: its search iterates over frozensets of squares, so the solution found varies."""
    dataset.game_logic = copy.copy(dataset.game_logic)
    dataset.game_logic.solve_swap = solve_swap


def solve_swap(
    board: Mapping[str, list[str]], pieces: Mapping[str, str], start_turn: str = "w"
) -> list[tuple[str, str, str]] | None:
    """knight_swap: the first of the shortest solutions, in the order of squares: upstream's search, with bits.

    Returns:
        (`w` or `B`, from, to) of each move; None if there is no solution.
    """
    squares = sorted(board)
    # A set of squares is an integer with a bit for each, so that a state is small and compares fast.
    bit_of = {square: 1 << number for number, square in enumerate(squares)}
    jumps: list[tuple[int, list[int]]] = []
    for square in squares:
        near = [bit_of[other] for other in board[square]]
        jumps.append((bit_of[square], near))
    white = sum(bit_of[square] for square, piece in pieces.items() if piece == "w")
    black = sum(bit_of[square] for square, piece in pieces.items() if piece == "B")

    # Breadth first: the first state with the colors swapped is reached by a shortest way.
    state = (white, black, start_turn == "w")
    seen = {state}
    queue = deque[tuple[tuple[int, int, bool], _Move | None]]([(state, None)])
    while queue:
        (whites, blacks, is_whites_turn), last = queue.popleft()
        if (whites, blacks) == (black, white):
            return _moves_up_to(last, squares)
        mine = whites if is_whites_turn else blacks
        color = "w" if is_whites_turn else "B"
        occupied = whites | blacks
        for here, near in jumps:
            for there in near:
                if not here & mine or there & occupied:
                    continue
                # One bit goes out and another in: the knight has moved.
                moved = mine ^ here ^ there
                state = (moved, blacks, False) if is_whites_turn else (whites, moved, True)
                if state not in seen:
                    seen.add(state)
                    queue.append((state, _Move(last, color, here, there)))
    return None


class _Move(NamedTuple):
    """A move of the search, with the one before it; squares are bits."""

    before: _Move | None
    color: str
    start: int
    end: int


def _moves_up_to(last: _Move | None, squares: list[str]) -> list[tuple[str, str, str]]:
    """Return the moves up to the last one, in the order of playing, with the names of their squares."""
    moves = []
    while last is not None:
        start = squares[last.start.bit_length() - 1]
        end = squares[last.end.bit_length() - 1]
        moves.append((last.color, start, end))
        last = last.before
    moves.reverse()
    return moves


def _sort_fonts(dataset: Any) -> None:
    """figlet_font: it chooses from fonts in the order of the file system, and from those added to this machine."""
    item = type(dataset).__getitem__
    # Fonts that pyfiglet brings and that upstream can read: the same on every machine.
    packaged = {file.name.split(".")[0] for file in importlib.resources.files("pyfiglet.fonts").iterdir()}
    readable = set(item.__globals__["OK_FONTS"])
    override(dataset, __getitem__=with_globals(item, OK_FONTS=sorted(packaged & readable)))


def _own_numpy(dataset: Any) -> None:
    """pool_matrix: it seeds and draws from NumPy's global state."""
    import numpy

    # A RandomState has what upstream calls of `numpy.random`: `seed` and `randint`.
    own = types.SimpleNamespace(**{**vars(numpy), "random": numpy.random.RandomState(0)})
    override(dataset, __getitem__=with_globals(type(dataset).__getitem__, np=own))


def _own_random(dataset: Any) -> None:
    """list_functions: one of its generators draws from Python's global state."""
    rng = random.Random(0)
    generators = dataset.generators
    module = next(iter(generators.values())).__globals__
    # All functions of the module, not the generators alone: the draw is in one that a generator calls.
    scope: dict[str, Any] = {**module, "random": rng}
    for name, function in module.items():
        if isinstance(function, types.FunctionType) and function.__globals__ is module:
            scope[name] = rebind(function, scope)
    cls = type(dataset)

    def item(self: Any, index: int) -> Any:
        rng.seed(f"global {self.seed}")  # not the stream of the item's generator
        return cls.__getitem__(self, index)

    dataset._generators = {number: scope[function.__name__] for number, function in generators.items()}
    override(dataset, __getitem__=item)


def _compile_alone(dataset: Any) -> None:
    """bf: its compiler keeps functions and variables in module globals and prints dots."""
    from reasoning_gym.code.contrib.bfit.Compiler import Compiler, Optimizer

    # From the inside out: `optimize` prints, the constructor calls it, and `compile` calls the constructor.
    optimize = with_globals(Optimizer.optimize, print=print_nothing)
    init = with_globals(Compiler.Compiler.__init__, optimize=optimize)
    compiler = type("Compiler", (Compiler.Compiler,), {"__init__": init})
    compile_code = with_globals(Compiler.compile, Compiler=compiler)

    def compile_alone(self: Any, code: str) -> Any:
        with _BF_COMPILER:
            return compile_code(code, optimize_code=True)

    override(dataset, compile_bfit_code_to_bf=compile_alone)


_BF_COMPILER = threading.Lock()
"""Held while it compiles: its module globals are one set for all threads."""


def _evaluate_integrals(dataset: Any) -> None:
    """intermediate_integration: in one of nine items it writes sine and cosine as functions unknown to sympy, so the
    answer is an unevaluated integral. The integrand in the metadata is correct."""
    cls = type(dataset)

    def item(self: Any, index: int) -> Any:
        entry = cls.__getitem__(self, index)
        if "Integral(" in entry["answer"]:
            import sympy

            # The integrand is upstream's own text, never a response's: it may be evaluated.
            variable = sympy.Symbol(entry["metadata"]["variable"])
            integrand = sympy.parse_expr(entry["metadata"]["integrand"], local_dict={variable.name: variable})
            entry["answer"] = f"{sympy.integrate(integrand, variable)} + C"
        return entry

    override(dataset, __getitem__=item)


# -- codeio, which runs third-party snippets

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
    """Return whether a snippet reads nothing but its arguments, as far as its syntax shows; False when in doubt."""
    try:
        nodes = list(ast.walk(ast.parse(code, _FILE)))
    except (SyntaxError, ValueError):
        return False
    # A parameter called `random` hides the module.
    has_random = any(isinstance(node, ast.arg) and node.arg == "random" for node in nodes)
    return all(_is_pure_node(node, has_random) for node in nodes)


def _is_pure_node(node: ast.AST, has_random: bool) -> bool:
    """Return whether a node reads nothing outside, as far as it shows by itself."""
    match node:
        case ast.Set() | ast.SetComp():  # in the order of hashes
            return False
        case ast.Import(names=names):
            return all(_is_pure_import(name.name, name.asname) for name in names)
        case ast.ImportFrom(module=str(module), names=names):
            return all(_is_pure_import(f"{module}.{name.name}", None) for name in names)
        case ast.ImportFrom():  # `from . import …`
            return False
        case ast.Name(id="random"):
            return has_random
        case ast.Name(id=name):
            return name not in _IMPURE_NAMES
        case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
            return False
        case ast.Attribute(attr=name):
            return name not in _IMPURE_ATTRIBUTES
        case ast.keyword(arg="where"):  # NumPy leaves the memory of the other places as it finds it
            return False
        case _:
            return True


def _is_pure_import(path: str, alias: str | None) -> bool:
    package, *rest = path.split(".")
    if package == "random":  # the module may be imported: uses of it show by name
        return alias is None and rest in ([], ["Random"])
    return package in _PURE_MODULES and "random" not in rest


def _only_pure_snippets(dataset: Any) -> None:
    """codeio: it runs third-party snippets, some of which read sets, clocks, files or global random states; its class
    keeps the snippets of the latest instance, of any difficulty; and it prints."""
    warnings.filterwarnings("ignore", category=SyntaxWarning, module=_FILE)  # of snippets only
    # Upstream's methods read the snippets from the class by its name: they get a namespace with this instance's.
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
        # Upstream swallows every exception of a snippet, and then has two empty dicts.
        if pair == ({}, {}):
            raise UnusableItemError("the snippet failed")
        if " at 0x" in repr(pair):
            raise UnusableItemError("the snippet gives the address of an object")
        return pair

    override(dataset, _generate_io_pair=io_pair, __getitem__=with_globals(cls.__getitem__, **{cls.__name__: own}))


# -- generators that do not end


class _Colors:
    """The generator of an arc_1d example, which draws nine colors, each as often as it takes to find a new one."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._drawn: set[int] = set()
        self.random = rng.random

    def randint(self, low: int, high: int) -> int:
        if len(self._drawn) == 9:  # there is no other color
            raise UnusableItemError("it has more blocks than there are colors")
        number = self._rng.randint(low, high)
        if (low, high) == (1, 9):
            self._drawn.add(number)
        return number


def _end_without_colors(dataset: Any) -> None:
    """arc_1d: for ten blocks it looks for ten different colors among nine, without end."""
    name = "recolor_blocks_from_palette"
    recolor, arguments = dataset.ARC_1D_TASKS[name]

    def recolor_or_stop(rng: random.Random, size: int, **options: Any) -> Any:
        return recolor(_Colors(rng), size, **options)

    # A new dict: upstream's is the module's.
    dataset.ARC_1D_TASKS = {**dataset.ARC_1D_TASKS, name: (recolor_or_stop, arguments)}


def _stop_at_large_terms(dataset: Any) -> None:
    """number_sequence: it makes a sequence to the end, by repeated squaring up to millions of digits, before it rejects
    those with a term above 1000."""
    from reasoning_gym.cognition import number_sequences as upstream

    class Rule(upstream.PatternRule):
        def apply(self, sequence: list[int], position: int) -> int:
            term: int = super().apply(sequence, position)
            if abs(term) > 1000:
                raise OverflowError  # upstream then tries the next rule, as it does for a rejected sequence
            return term

    generate = with_globals(upstream.PatternGenerator.generate_rule, PatternRule=Rule)
    generator = type("PatternGenerator", (upstream.PatternGenerator,), {"generate_rule": generate})
    override(dataset, __getitem__=with_globals(type(dataset).__getitem__, PatternGenerator=generator))


def _bound_search(dataset: Any) -> None:
    """sokoban: its search for a solution has no bound: 4 seconds in one of 64 draws, and more in rarer ones."""
    # `can_move` is called once a move that the search tries: counting the calls bounds it without reading a clock,
    # so that the same draws are given up on every machine.
    generate = dataset._generate
    solve = generate.__globals__["solve_astar"]
    search = solve.__globals__["astar"]
    move = search.__globals__["can_move"]

    def generate_bounded(**options: Any) -> Any:
        numbers = itertools.count(1)

        def count_move(*arguments: Any) -> Any:
            if next(numbers) > SOKOBAN_MOVES:
                raise UnusableItemError("the search for its solution takes too long")
            return move(*arguments)

        bounded_search = with_globals(search, can_move=count_move)
        bounded_solve = with_globals(solve, astar=bounded_search)
        return with_globals(generate, solve_astar=bounded_solve)(**options)

    dataset._generate = generate_bounded


SOKOBAN_MOVES = 500_000
"""Moves that a search may try: about 8 CPU seconds."""

FIXES: dict[str, Callable[[Any], None]] = {
    "arc_1d": _end_without_colors,
    "bf": _compile_alone,
    "codeio": _only_pure_snippets,
    "figlet_font": _sort_fonts,
    "intermediate_integration": _evaluate_integrals,
    "isomorphic_strings": _sort_letters,
    "knight_swap": _sort_knights,
    "list_functions": _own_random,
    "polynomial_multiplication": _sort_monomials,
    "number_sequence": _stop_at_large_terms,
    "pool_matrix": _own_numpy,
    "ransom_note": _sort_letters,
    "sokoban": _bound_search,
    "word_ladder": _sort_neighbors,
}
