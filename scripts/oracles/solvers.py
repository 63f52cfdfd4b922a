"""The table of all solvers."""

from __future__ import annotations

from scripts.oracles import Solver, grids, logic, numeric, text

SOLVERS: dict[str, Solver] = {**numeric.SOLVERS, **grids.SOLVERS, **text.SOLVERS, **logic.SOLVERS}
