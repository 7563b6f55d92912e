"""Warnings that are noted while something is done, to be told again: in another process, or at another time."""

import contextlib
import logging
from collections.abc import Iterable, Iterator

Note = tuple[str, int, str]
"""Who warns (a logger's name), how urgent it is, and the message."""


@contextlib.contextmanager
def noted() -> Iterator[list[Note]]:
    """Note what mtool warns of meanwhile."""
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


def tell(notes: Iterable[Note]) -> None:
    """Log what was noted."""
    for name, level, message in notes:
        logging.getLogger(name).log(level, "%s", message)
