"""Tables in narrow terminals: a column less rather than numbers that are cut. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_ENDLESS = 10_000
_HEAD = 10
"""Characters from which on a head is broken into lines where there is little room."""


def fitting(
    console: Console, table_without: Callable[[frozenset[str]], Table], dispensable: Sequence[str]
) -> Table:
    """A table that is no wider than the console, as far as leaving out columns can make it so.

    Args:
        console: Where it is to be shown.
        table_without: Makes the table without the columns of these names.
        dispensable: Names of columns, the least important first.
    """
    table = table_without(frozenset())
    for count in range(len(dispensable) + 1):
        if _fits(table, console):
            return table
        table = _with_low_heads(table_without(frozenset(dispensable[:count])))
    return table


def _fits(table: Table, console: Console) -> bool:
    """Whether no line of it need be broken: rich would break numbers, too."""
    options = console.options.update(width=_ENDLESS)
    return Measurement.get(console, options, table).maximum <= console.width


def _with_low_heads(table: Table) -> Table:
    for column in table.columns:
        column.header = textwrap.fill(str(column.header), _HEAD, break_long_words=False)
    return table
