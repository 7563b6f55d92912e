"""Explain what a linker or a compiler says of a firmware that is too large."""

import re

from mtool.base.errors import FitError
from mtool.boards import Board
from mtool.device.build.fit import Need, Part, advice, line, size_text
from mtool.manifest import Manifest

_OVERFLOW = re.compile(r"region [`'](\w+)' overflowed by (\d+) bytes")
_ROLES = {"FLASH": "code", "RAM": "data"}  # the role of the memories in Zephyr's linker scripts
_TOO_LARGE = re.compile(r"size of array .(\w+). is too large")  # more than an AVR's compiler can count
_OUTSIDE = re.compile(r"address (0x[0-9a-f]+) of .* section .* is not within region")

ARRAY_BYTES_AVR = 32767
"""The largest array that avr-gcc takes: a difference of two pointers has 16 bits."""


def explain(output: str, manifest: Manifest) -> FitError | None:
    """Return the error that a linker's output stands for, or None if no memory overflowed.

    Args:
        output: what GNU ld wrote, or the compiler of an array that it can't address.
        manifest: the project's.
    """
    assert manifest.project is not None
    board = manifest.project.board
    missed = _missed(output, board)
    too_large = set(_TOO_LARGE.findall(output))
    if manifest.symbols.get("arena") in too_large:  # nothing was linked: what the model alone needs
        for role, count in (("weights", manifest.constant_bytes), ("arena", manifest.bytes_of_arena)):
            name = board.region_for(role)
            if name is not None and count > board.memories[name].size:
                missed[name] = count - board.memories[name].size
    refused = [f"{name} is one array of more than {ARRAY_BYTES_AVR:,} B, which the compiler does not take"
               for name in manifest.constants if name in too_large]  # fmt: skip
    if not missed and not refused:
        return None
    needed = {name: board.memories[name].size + count for name, count in missed.items()}
    return FitError(
        f"{manifest.model_file} does not fit {board.name}",
        details=[*(_line(board, name, missed.get(name, 0), manifest) for name in board.memories), *refused],
        hint=advice(manifest, board, needed),
    )


def _missed(output: str, board: Board) -> dict[str, int]:
    """Return by how many bytes each memory is too small."""
    missed = {}
    by_upper = {name.upper(): name for name in board.memories}  # Zephyr's regions of a devicetree
    for region, count in _OVERFLOW.findall(output):
        role = board.region_for(_ROLES.get(region, ""))
        name = region if region in board.memories else by_upper.get(region) if role is None else role
        if name is not None:
            missed[name] = int(count)
    for address in (int(text, 16) for text in _OUTSIDE.findall(output)):
        name = max(
            (name for name in board.memories if board.memories[name].base <= address),
            key=lambda name: board.memories[name].base,
            default=None,
        )
        if name is not None:
            missed[name] = max(missed.get(name, 1), address - board.memories[name].base - board.memories[name].size)
    return missed


def _line(board: Board, name: str, missed_bytes: int, manifest: Manifest) -> str:
    """Return the line of one memory: what it needs of what it has, and the model's share of it."""
    limit = board.memories[name].size
    own = [("weights", manifest.constant_bytes), ("arena", manifest.bytes_of_arena)]
    parts = [Part(role, count) for role, count in own if board.region_for(role) == name]
    rest = limit + missed_bytes - sum(part.bytes for part in parts)
    if missed_bytes:
        other = "the rest" if parts else "all"
        return line(Need(name, limit, (*parts, Part(other, max(rest, 0)))), manifest)
    known = ", ".join(f"{part.what} {size_text(part.bytes)}" for part in parts if part.bytes)
    return f"{name:8} fits in {size_text(limit)}" + (f"     {known}" if known else "")
