"""A table that stays readable on a narrow terminal: no name or number in it is broken in two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

Rows = Sequence[Sequence[str]]

_GAP = 2
_RULED_GAP = 3
_PROSE = 24


def table_picture(columns: Sequence[str], rows: Rows, *, width: int, ruled: bool) -> RenderableType:
    """Draw rows under column names in the widest form that fits.

    From wide to narrow: ruled, without rules, with the text of the last column folded, and at last
    each row as lines of `name  value`.

    Args:
        width: Characters in a line.
        ruled: Whether a rule under the names is wanted where there is room.
    """
    widths = [max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True)]
    if ruled and sum(widths) + _RULED_GAP * len(widths) <= width:
        return _grid(columns, rows, ruled=True)
    least = sum(widths[:-1]) + min(widths[-1], _PROSE)
    if least + _GAP * (len(widths) - 1) <= width:
        return _grid(columns, rows, ruled=False)
    return _stacked(columns, rows)


def _grid(columns: Sequence[str], rows: Rows, *, ruled: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD if ruled else None, pad_edge=False)
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _stacked(columns: Sequence[str], rows: Rows) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        if table.row_count:
            table.add_row()
        for column, cell in zip(columns, row, strict=True):
            table.add_row(Text(column), Text(cell))
    return table
