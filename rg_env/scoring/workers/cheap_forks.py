"""What makes single-use workers cheap: less to copy at a fork, and fewer pages touched after it.

Most of the time of a single-use worker goes into page tables and page faults: 30,000 pages are mapped, and an answer
writes to 2,000 of them, because Python counts references in the objects. No score depends on this module.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_HUGE = 2 << 20
_MADV_COLLAPSE = 25


def share_names() -> None:
    """Have sympy's `parse_expr` build its namespace once, not for each expression, in this process.

    The namespace refers to 1,000 objects, so building it writes to as many places. Sharing it is safe for answers that
    the guard let pass, because they cannot assign names.
    """
    from sympy.parsing import sympy_parser

    local_names, transformations, names, evaluate = sympy_parser.parse_expr.__defaults__
    if names is None:
        eval_expr = sympy_parser.eval_expr
        sympy_parser.eval_expr = lambda code, local_dict, global_dict: global_dict
        try:
            names = sympy_parser.parse_expr("0")
        finally:
            sympy_parser.eval_expr = eval_expr
        sympy_parser.parse_expr.__defaults__ = (local_names, transformations, names, evaluate)


def use_huge_pages() -> None:
    """Put the heap of this process into huge pages, of which a fork copies 512 times fewer.

    Takes a quarter of a second. Linux 6.1 or newer can; elsewhere nothing happens.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        for start in _huge_blocks(Path("/proc/self/maps").read_text()):
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(_HUGE), _MADV_COLLAPSE)


def _huge_blocks(maps: str) -> Iterator[int]:
    """The addresses of the huge pages that fit into private, writable memory that belongs to no file."""
    for line in maps.splitlines():
        area, rights, _, _, _, *name = line.split(maxsplit=5)
        if rights == "rw-p" and name in ([], ["[heap]"]):
            low, high = (int(address, 16) for address in area.split("-"))
            yield from range(-(-low // _HUGE) * _HUGE, high - _HUGE + 1, _HUGE)
