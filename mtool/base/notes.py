"""Record warnings during some work, to log them again in another process or at another time."""

import contextlib
import logging
from collections.abc import Iterable, Iterator

Note = tuple[str, int, str]
"""The logger's name, the level and the message."""


@contextlib.contextmanager
def noted() -> Iterator[list[Note]]:
    """Record mtool's warnings while the block runs."""
    notes: list[Note] = []

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            notes.append((record.name, record.levelno, record.getMessage()))

    handler, logger = Notes(logging.WARNING), logging.getLogger("mtool")
    logger.addHandler(handler)
    try:
        yield notes
    finally:
        logger.removeHandler(handler)


def replay(notes: Iterable[Note]) -> None:
    """Log recorded warnings."""
    for name, level, message in notes:
        logging.getLogger(name).log(level, "%s", message)
