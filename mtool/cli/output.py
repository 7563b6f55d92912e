"""What a command says: results to stdout (text or JSON), progress and errors to stderr."""

import json
import logging
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.table import Table

from mtool.errors import MtoolError

SCHEMA_VERSION = 1

_PROGRESS = "mtool.workflow"
_WIDE = 240  # columns of text that does not go to a terminal


class Output:
    """Where a command writes to, and how much.

    Args:
        command: the command's name, for the JSON.
        as_json: results as one JSON object; nothing else goes to stdout.
        verbosity: -1 errors only, 0 a line for each stage, 1 all stages in detail, 2 each program that is run,
            and tracebacks.
    """

    def __init__(self, command: str, *, as_json: bool = False, verbosity: int = 0) -> None:
        self.command = command
        self.as_json = as_json
        self.verbosity = verbosity
        self.written = False
        self.stdout = _console(sys.stdout)
        self.stderr = _console(sys.stderr)

    def text(self, *renderables: RenderableType) -> None:
        """Write a result for people; nothing with --json."""
        if not self.as_json:
            for renderable in renderables or ("",):
                self.stdout.print(renderable, soft_wrap=isinstance(renderable, str))

    def result(self, values: Mapping[str, Any]) -> None:
        """Write a result for programs, with --json."""
        if self.as_json and not self.written:
            self.written = True
            document = {"schema_version": SCHEMA_VERSION, "command": self.command, **values}
            sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")

    def note(self, line: str) -> None:
        """Write a line of progress."""
        if self.verbosity >= 0:
            self.stderr.print(line, soft_wrap=True)

    def error(self, error: MtoolError) -> None:
        """Write an error: what, details, hint and exit code."""
        for index, line in enumerate(error.what.splitlines() or [""]):
            self.stderr.print(f"error: {line}" if index == 0 else f"  {line}", style="bold red", soft_wrap=True)
        for line in error.details:
            self.stderr.print(f"  {line}", soft_wrap=True)
        if error.hint:
            self.stderr.print(error.hint, soft_wrap=True)
        self.stderr.print(f"exit {error.exit_code}", soft_wrap=True)
        described = {"what": error.what, "details": list(error.details), "hint": error.hint}
        self.result({"error": {**described, "exit_code": error.exit_code}})

    def trace(self) -> None:
        """Write the traceback of the exception in hand, with -vv."""
        if self.verbosity >= 2:
            self.stderr.print(traceback.format_exc().rstrip(), soft_wrap=True)

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Send mtool's log to stderr, as much of it as the verbosity asks for."""
        logger = logging.getLogger("mtool")
        handler = _LogHandler(self)
        level, propagate = logger.level, logger.propagate
        logger.setLevel(logging.DEBUG if self.verbosity >= 2 else logging.INFO)
        logger.propagate = False
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


class _LogHandler(logging.Handler):
    def __init__(self, output: Output) -> None:
        super().__init__()
        self.output = output

    def emit(self, record: logging.LogRecord) -> None:
        progress = record.name.startswith(_PROGRESS)
        if record.levelno >= logging.WARNING:
            self.output.stderr.print(f"warning: {record.getMessage()}", style="yellow", soft_wrap=True)
        elif self.output.verbosity >= (0 if progress else 1):
            self.output.stderr.print(record.getMessage(), style=None if progress else "dim", soft_wrap=True)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> Table:
    """Return a plain table; the columns of the indices `right` are aligned to the right."""
    drawn = Table(box=None, pad_edge=False, header_style="bold", show_header=any(headings))
    for index, heading in enumerate(headings):
        drawn.add_column(heading, justify="right" if index in right else "left", no_wrap=True, overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    return drawn


def _console(stream: TextIO) -> Console:
    """Return a console that prints text as it is, without markup or highlighting; NO_COLOR is heeded."""
    return Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if stream.isatty() else _WIDE,
    )
