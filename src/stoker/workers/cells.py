"""The variables that functions share, for a process in which these functions are made again.

Functions that were made in one call share its variables: where one adds, another sees the sum.
Each such variable is a cell. cloudpickle makes new cells for each function; here a cell is one
object of the pickle like any other, so that it is one in the other process too.

A function is made over cells that are still empty. They are filled when it can be referred to, so
a cell may lead back to a function that is made over it.
"""

from __future__ import annotations

import types
from typing import Any


class _Empty:
    """Stands for a cell before it is filled. For each cell of a pickle there is one."""

    def __init__(self, cell: types.CellType) -> None:
        self.cell = cell

    def __reduce__(self) -> tuple[Any, ...]:
        return _empty, ()


class Cells:
    """Those of one pickle."""

    def __init__(self) -> None:
        self._empty: dict[int, _Empty] = {}

    def reduced(self, cell: types.CellType) -> tuple[Any, ...]:
        """How to make a cell again, with what is in it, if anything is."""
        itself = _itself, (self._before(cell),)
        try:
            return (*itself, (cell.cell_contents,), None, None, _fill)
        except ValueError:
            return itself

    def closed(self, function: types.FunctionType, reduced: Any) -> Any:
        """What cloudpickle has for a function, over the cells of this pickle."""
        cells = function.__closure__
        if not isinstance(reduced, tuple) or not cells:
            return reduced
        make, given, *rest = reduced
        return make, (*given[:-1], tuple(self._before(cell) for cell in cells)), *rest

    def _before(self, cell: types.CellType) -> _Empty:
        return self._empty.setdefault(id(cell), _Empty(cell))


def _empty() -> types.CellType:
    return types.CellType()


def _itself(cell: types.CellType) -> types.CellType:
    return cell


def _fill(cell: types.CellType, content: tuple[Any]) -> None:
    (cell.cell_contents,) = content
