"""Text on a stream, drawn by rich. Only `Output` imports this, when it draws something: rich doubles a start's time."""

import io
import os
import re
from typing import TextIO

from rich.console import Console

from mtool.cli.ending import ReaderGone

WIDE = 100_000  # columns of text that does not go to a terminal: nothing is folded there


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave what follows to who prints; rich would end the process here."""
        raise ReaderGone


def console(stream: TextIO | None) -> Console:
    """Return a console that prints text as it is, without markup or highlighting; NO_COLOR is heeded."""
    if stream is None:  # closed; what is said to it is lost
        stream = io.StringIO()
    columns = os.environ.get("COLUMNS", "")  # which a shell does not hand on unless told
    wide = int(columns) if re.fullmatch(r"[1-9]\d{0,4}", columns) else WIDE
    return _Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if stream.isatty() else wide,
    )
