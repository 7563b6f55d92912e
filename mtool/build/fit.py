"""Explain a linker's "region overflowed": what takes the space, and by how much it misses."""

import re
from collections.abc import Mapping

from mtool.boards import Board
from mtool.build.size import Size
from mtool.errors import FitError
from mtool.manifest import Manifest

_OVERFLOW = re.compile(r"region [`'](\w+)' overflowed by (\d+) bytes")
_ROLES = {"FLASH": "code", "RAM": "data"}  # the role of the memories in Zephyr's linker scripts
_TOO_LARGE = re.compile(r"size of array .(\w+). is too large")  # more than the compiler's own address space: AVR
_OUTSIDE = re.compile(r"address (0x[0-9a-f]+) of .* section .* is not within region")


def explain(output: str, manifest: Manifest) -> FitError | None:
    """Return the error that a linker's output stands for, or None if no memory overflowed.

    Args:
        output: what GNU ld wrote, or the compiler of an arena that it can't address.
        manifest: the project's.
    """
    assert manifest.project is not None
    board = manifest.project.board
    missed = {}
    for region, count in _OVERFLOW.findall(output):
        name = region if region in board.memories else board.region_for(_ROLES.get(region, ""))
        if name is not None:
            missed[name] = int(count)
    for address in (int(text, 16) for text in _OUTSIDE.findall(output)):
        name = max(
            (name for name in board.memories if board.memories[name].base <= address),
            key=lambda name: board.memories[name].base,
            default="",
        )
        if name:
            missed[name] = max(missed.get(name, 1), address - board.memories[name].base - board.memories[name].size)
    if manifest.symbols.get("arena") in _TOO_LARGE.findall(output):  # nothing was linked: what the model alone needs
        for role, count in (("weights", manifest.constant_bytes), ("arena", manifest.arena_bytes)):
            name = board.region_for(role)
            if name is not None and count > board.memories[name].size:
                missed[name] = count - board.memories[name].size
    return _error(missed, manifest) if missed else None


def check(size: Size, manifest: Manifest) -> None:
    """Hold a firmware's sizes to the board's memories: for linkers that know no more than the family's largest chip.

    Raises:
        FitError: a memory is too small.
    """
    assert manifest.project is not None
    board = manifest.project.board
    needed = {
        board.region_for("weights"): size.flash_code_bytes + size.flash_const_bytes,
        board.region_for("arena"): size.arena_bytes + size.ram_static_bytes + size.stack_bytes,
    }
    missed = {
        name: bytes_needed - board.memories[name].size
        for name, bytes_needed in needed.items()
        if name is not None and bytes_needed > board.memories[name].size
    }
    if missed:
        raise _error(missed, manifest)


def advice(manifest: Manifest, board: Board, needed: Mapping[str, int]) -> str:
    """Return what to try with a model that does not fit a board.

    Args:
        manifest: the model's.
        board: the board.
        needed: bytes that are needed of each memory that is too small, by its name.
    """
    if not _is_float(manifest):
        return "a smaller model would; so may a board with more memory: mtool boards"
    estimates = {name: round(count - _saved(manifest, board, name)) for name, count in needed.items()}
    sizes = " and ".join(f"{_bytes(count)} of {name}" for name, count in estimates.items())
    if all(count <= board.memories[name].size for name, count in estimates.items()):
        return f"an int8 version would need about {sizes}: mtool quantize {manifest.model_file} --data DIR"
    return f"even an int8 version would need about {sizes}; a board with more memory may do: mtool boards"


# What of a float model's bytes its int8 version has: a quarter, and for each channel an int32 bias and a scale.
_INT8_CONSTANTS = 0.3
_INT8_ARENA = 0.25


def _is_float(manifest: Manifest) -> bool:
    """Tell whether nearly all parameters are of four bytes."""
    return manifest.constant_bytes >= 3.5 * manifest.parameters > 0


def _saved(manifest: Manifest, board: Board, name: str) -> float:
    """Return the bytes of a memory that an int8 version does not need, about."""
    weights = manifest.constant_bytes * (1 - _INT8_CONSTANTS) if board.region_for("weights") == name else 0
    return weights + (manifest.arena_bytes * (1 - _INT8_ARENA) if board.region_for("arena") == name else 0)


def _error(missed: Mapping[str, int], manifest: Manifest) -> FitError:
    assert manifest.project is not None
    board = manifest.project.board
    needed = {name: board.memories[name].size + count for name, count in missed.items()}
    return FitError(
        f"{manifest.model_file} does not fit {board.name}",
        details=[_line(board, name, missed.get(name, 0), manifest) for name in board.memories],
        hint=advice(manifest, board, needed),
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
