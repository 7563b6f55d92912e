"""Output of a command: results to stdout (text or JSON), progress and errors to stderr."""

import contextlib
import functools
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mtool.base.errors import MtoolError, UsageError, of_os_error
from mtool.base.escaping import LONGEST_LINE, one_line, visible
from mtool.cli.ending import ReaderGone

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from mtool.cli.console import TextTable

SCHEMA_VERSION = 1

_PROGRESS = ("mtool.commands", "mtool.stages", "mtool.verification", "mtool.quantization", "mtool.tuning.farm.worker")
_WIDEST_CELL = 160  # characters, in a terminal


class Output:
    """The consoles of a command, and how much it writes there.

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
        self._stdout = sys.stdout
        self._stderr = sys.stderr

    @functools.cached_property
    def stdout(self) -> "Console":
        """The console for results."""
        from mtool.cli.console import console

        return console(self._stdout)

    @functools.cached_property
    def stderr(self) -> "Console":
        """The console for progress and errors."""
        from mtool.cli.console import console

        return console(self._stderr)

    def line(self, text: str) -> None:
        """Write a line of plain text as a result, without loading rich."""
        with written():
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    def text(self, *renderables: "RenderableType") -> None:
        """Write a result for people, each text a line; nothing with --json."""
        if not self.as_json:
            with written():
                for renderable in renderables or ("",):
                    shown = visible(renderable) if isinstance(renderable, str) else renderable
                    self.stdout.print(shown, soft_wrap=isinstance(renderable, str))

    def result(self, values: Mapping[str, Any]) -> None:
        """Write a result for programs, with --json."""
        if self.as_json and not self.written:
            self.written = True
            document = {"schema_version": SCHEMA_VERSION, "command": self.command, **values}
            with written():
                sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
                sys.stdout.flush()

    def part(self) -> "Part":
        """Return an output that keeps the result of a part of the command, for the `result` of the whole."""
        return Part(self.command, as_json=self.as_json, verbosity=self.verbosity)

    def note(self, *lines: str) -> None:
        """Write lines of progress."""
        if self.verbosity >= 0:
            for line in lines:
                self._say(one_line(line))

    @contextmanager
    def progress(self, *, is_bytes: bool = False) -> Iterator[Callable[[int, int], None]]:
        """Yield a function that shows the numbers of things that are done and of all, as a bar on a terminal."""
        if self.verbosity < 0 or not self.stderr.is_terminal:
            yield lambda done, total: None
            return
        from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
        from rich.progress import TransferSpeedColumn as Speed

        columns = (DownloadColumn(), Speed()) if is_bytes else (MofNCompleteColumn(),)
        with Progress(BarColumn(), *columns, TimeRemainingColumn(), console=self.stderr, transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    def error(self, error: MtoolError) -> None:
        """Write an error: what, details, hint and exit code."""
        title_lines = len(error.what.splitlines()) or 1
        for index, line in enumerate(error.lines()):
            start = "error: " if index == 0 else ""
            self._say(f"{start}{line}", style="bold red" if index < title_lines else None)
        self._say(f"exit {error.exit_code}")
        fields = {"what": error.what, "details": list(error.details), "hint": error.hint}
        with contextlib.suppress(UsageError):  # of standard output
            self.result({"error": {**fields, "exit_code": error.exit_code}})

    def trace(self) -> None:
        """Write the traceback of the current exception, with -vv."""
        if self.verbosity >= 2:
            for line in traceback.format_exc().rstrip().splitlines():
                self._say(visible(line))

    def _say(self, line: str, style: str | None = None) -> None:
        """Write a line to stderr; if that fails, the command goes on."""
        with contextlib.suppress(OSError, ReaderGone):
            self.stderr.print(line, style=style, soft_wrap=True)

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Send mtool's log to stderr, filtered by verbosity."""
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


class Part(Output):
    """The output of a part of a command; its result for programs is kept."""

    values: Mapping[str, Any] = MappingProxyType({})

    def result(self, values: Mapping[str, Any]) -> None:
        """Keep a result for programs."""
        self.values = values


class _LogHandler(logging.Handler):
    def __init__(self, output: Output) -> None:
        super().__init__()
        self.output = output

    def emit(self, record: logging.LogRecord) -> None:
        is_progress, is_warning = record.name.startswith(_PROGRESS), record.levelno >= logging.WARNING
        if not is_warning and self.output.verbosity < (0 if is_progress else 1):
            return
        first, *more = record.getMessage().splitlines() or [""]
        lines = [f"warning: {first}" if is_warning else first, *(f"  {line}" for line in more)]
        style = "yellow" if is_warning else None if is_progress else "dim"
        most = LONGEST_LINE if record.levelno > logging.DEBUG else sys.maxsize  # commands are shown in full
        for line in lines:
            self.output._say(one_line(line.expandtabs(4), most), style=style)


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), folds: bool = False
) -> "TextTable":
    """Return a plain table; the columns with the indices `right` are aligned to the right, a cell's text is one line.

    In a terminal it fits the width: text is cut, or folded with `folds`. Elsewhere it has its natural width.
    """
    from mtool.cli.console import TextTable

    most = _WIDEST_CELL if sys.stdout is not None and sys.stdout.isatty() else LONGEST_LINE
    heads, *cells = (tuple(one_line(cell, most) for cell in row) for row in (headings, *rows))
    return TextTable(heads, tuple(cells), frozenset(right), folds)


@contextmanager
def written() -> Iterator[None]:
    """Turn errors of writing results into ours.

    Raises:
        ReaderGone: the reader has closed standard output.
        UsageError: anything else, for instance a full disk.
    """
    try:
        yield
    except (BrokenPipeError, ReaderGone):
        _abandon()
        raise ReaderGone from None
    except OSError as failed:
        _abandon()
        raise of_os_error(failed, "standard output can't be written") from None


def _abandon() -> None:
    """Discard what is buffered for standard output; writing it would fail again at the interpreter's exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
