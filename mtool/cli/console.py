"""Text on a stream, drawn by rich. Only `Output` imports this, when it draws something: rich doubles start-up time."""

import io
import os
import re
from collections.abc import Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from mtool.base.frozen import frozen
from mtool.cli.ending import ReaderGone

WIDE = 100_000  # columns of text that does not go to a terminal: nothing is folded there


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the caller handle it; rich would end the process here."""
        raise ReaderGone


def console(stream: TextIO | None) -> Console:
    """Return a console that prints text as it is, without markup or highlighting; NO_COLOR is heeded."""
    if stream is None:  # closed: its output is dropped
        stream = io.StringIO()
    columns = os.environ.get("COLUMNS", "")  # set only if the shell exports it
    wide = int(columns) if re.fullmatch(r"[1-9]\d{0,4}", columns) else WIDE
    return _Console(file=stream, markup=False, highlight=False, emoji=False, width=None if stream.isatty() else wide)


# A plain table that fits the terminal: text is cut or folded in narrower columns; numbers and names stay whole.
#
# Only `Output` imports this, when it draws a table: rich doubles start-up time.


_GAP = 2  # characters between two columns
_NARROWEST_TEXT = 10
_NARROWEST = 4
_BAR = "█"


@frozen
class TextTable:
    """A table of headings and rows, drawn as wide as it is or as the console allows.

    Each cell is one line. The columns with the indices `right` hold numbers, aligned to the right; those and the first
    stay whole as long as the others can be narrowed. A column of bars shrinks first. `folds`: long text continues on
    another line; otherwise it is cut in a terminal, and its end marked.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int]
    folds: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it."""
        folds = self.folds or not console.is_terminal  # output to a program is not cut
        natural = [
            max([cell_len(heading), *(cell_len(row[index]) for row in self.rows)])
            for index, heading in enumerate(self.headings)
        ]
        bars = {index for index in range(len(natural)) if self._is_bars(index)}
        widths = _widths(natural, self.right, bars, options.max_width)
        drawn = Table(box=None, pad_edge=False, header_style="bold", show_header=any(self.headings))
        shown = [index for index, width in enumerate(widths) if width or not natural[index]]
        for index in shown:
            drawn.add_column(
                self.headings[index],
                justify="right" if index in self.right else "left",
                width=widths[index] or None,
                no_wrap=not folds or widths[index] == natural[index],
                overflow="fold" if folds or index in self.right else "ellipsis",
            )
        for row in self.rows:
            drawn.add_row(*(_scaled(row[i], natural[i], widths[i]) if i in bars else row[i] for i in shown))
        yield drawn

    def _is_bars(self, index: int) -> bool:
        cells = {*"".join(row[index] for row in self.rows)}
        return cells == {_BAR}


def _widths(natural: Sequence[int], right: frozenset[int], bars: set[int], room: int) -> list[int]:
    """Return the width of each column; 0: it is left out."""
    widths = list(natural)

    def over() -> int:
        used = [width for width in widths if width]
        return sum(used) + _GAP * (len(used) - 1) - room

    for index in bars:
        if over() > 0:
            widths[index] = max(widths[index] - over(), 0)
            if widths[index] < _NARROWEST:
                widths[index] = 0
    text = [index for index in range(1, len(widths)) if index not in right and index not in bars]
    every = list(range(len(widths)))
    for columns, least in ((text, _NARROWEST_TEXT), (text, _NARROWEST), (every, _NARROWEST)):
        while over() > 0 and (wide := [index for index in columns if widths[index] > least]):
            widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _scaled(bar: str, natural: int, width: int) -> str:
    return bar if width == natural else _BAR * round(len(bar) * width / natural)
