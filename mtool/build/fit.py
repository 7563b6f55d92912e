"""Explain a linker's "region overflowed": what takes the space, and by how much it misses."""

import re

from mtool.boards import Board
from mtool.errors import FitError
from mtool.manifest import Manifest

_OVERFLOW = re.compile(r"region [`'](\w+)' overflowed by (\d+) bytes")


def explain(output: str, manifest: Manifest) -> FitError | None:
    """Return the error that a linker's output stands for, or None if no memory overflowed.

    Args:
        output: what GNU ld wrote.
        manifest: the project's.
    """
    assert manifest.project is not None
    board = manifest.project.board
    missed = {name: int(count) for name, count in _OVERFLOW.findall(output) if name in board.memories}
    if not missed:
        return None
    return FitError(
        f"{manifest.model_file} does not fit {board.name}",
        details=[_line(board, name, missed.get(name, 0), manifest) for name in board.memories],
        hint="a smaller or quantised model would; so may a board with more memory: mtool boards",
    )


def _line(board: Board, name: str, missed_bytes: int, manifest: Manifest) -> str:
    """Return the line of one memory: what it needs of what it has, and the model's share of it."""
    memory = board.memories[name]
    parts = []
    if board.region_for("weights") == name:
        parts.append(f"weights {_bytes(manifest.constant_bytes)}")
    if board.region_for("arena") == name:
        parts.append(f"arena {_bytes(manifest.arena_bytes)}")
    if missed_bytes:
        state = f"needs {_bytes(memory.size + missed_bytes)} of {_bytes(memory.size)}, {_bytes(missed_bytes)} too many"
    else:
        state = f"fits in {_bytes(memory.size)}"
    return f"{name:8} {state}" + (f"   ({', '.join(parts)})" if parts else "")


def _bytes(count: int) -> str:
    """Return a number of bytes as KB of 1,024; rounded up, so that what does not fit never looks as if it did."""
    return f"{count:,} B" if count < 10 * 1024 else f"{-(-count // 1024):,} KB"
