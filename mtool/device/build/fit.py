"""The memory that firmware needs on a board, and the error if a memory is too small."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtool.base.errors import FitError
from mtool.boards import Board
from mtool.device.build.size import Size
from mtool.manifest import Manifest, bytes_in_memories, constants_in_memories


@dataclass(frozen=True, slots=True)
class Part:
    """A share of a memory: its content, its bytes, and whether these are estimated."""

    what: str
    bytes: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """What firmware needs of one memory: the memory's name, the limit, and the shares."""

    memory: str
    limit_bytes: int
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """The total bytes needed."""
        return sum(part.bytes for part in self.parts)

    @property
    def missing_bytes(self) -> int:
        """The bytes by which the memory is too small."""
        return max(self.bytes - self.limit_bytes, 0)

    @property
    def estimated(self) -> bool:
        """Whether a share is estimated."""
        return any(part.estimated for part in self.parts)


def needs_of(size: Size, manifest: Manifest) -> tuple[Need, ...]:
    """Return the bytes that built firmware needs in each memory of its board.

    If the linker reserves no stack, the stack can use the free rest; then the template's option `stack_bytes` is
    counted.
    """
    board = manifest.in_project.board
    beside, constants = bytes_in_memories(manifest.models), constants_in_memories(manifest.models)
    by_role = {
        "weights": size.flash_const_bytes - sum(constants.values()),
        "arena": size.arena_bytes - sum(beside.values()),
        "stack": size.stack_bytes,
    }
    unreserved = 0 if size.stack_bytes or size.has_threads else int(manifest.in_project.options.get("stack_bytes", 0))
    total_in_ram = sum(model.constant_bytes_in_ram for model in manifest.models)
    needs = []
    for name, memory in board.memories.items():
        roles = [role for role in by_role if board.region_for(role) == name and by_role[role]]
        buffers = sum(model.device_buffers.get(name, 0) for model in manifest.models)
        pools = beside.get(name, 0)
        pooled = constants.get(name, 0)
        in_ram = total_in_ram if board.region_for("data") == name else 0
        rest = size.memories.get(name, 0) - sum(by_role[role] for role in roles) - buffers - pools - pooled - in_ram
        rows = [*((role, by_role[role]) for role in roles), ("backends' buffers", buffers), ("pools", pools)]
        rows += [("constants", pooled), ("weights in RAM", in_ram)]
        is_code = name in (board.region_for("code"), board.region_for("hot_code"))
        rows += [("code" if is_code else "data", max(rest, 0))]
        rows += [("stack", unreserved if board.region_for("stack") == name else 0)]
        parts = [Part(label, count) for label, count in rows if count]
        if parts or memory.is_always_used:
            needs.append(Need(name, memory.size, tuple(parts)))
    return tuple(needs)


def check(size: Size, manifest: Manifest) -> None:
    """Check firmware's sizes against the board's memories: some linkers only know the family's largest chip.

    Raises:
        FitError: a memory is too small.
    """
    needs = needs_of(size, manifest)
    if any(need.missing_bytes for need in needs):
        raise error(needs, manifest, manifest.in_project.board)


def error(needs: Sequence[Need], manifest: Manifest, board: Board) -> FitError:
    """Return the error for a board whose memories are too small."""
    do = "do" if len(manifest.models) > 1 else "does"
    what = f"{', '.join(model.model_file for model in manifest.models)} {do} not fit {board.name}"
    hint = advice(manifest, board, {need.memory: need.bytes for need in needs if need.missing_bytes})
    return FitError(what, details=[line(need, manifest) for need in needs], hint=hint)


def line(need: Need, manifest: Manifest) -> str:
    """Return the line for one memory: needed and available bytes, and its shares; estimated ones with "about"."""
    kind = " (float32)" if is_float(manifest) else ""
    state = f"{need.memory:8} needs {size_text(need.bytes)} of {size_text(need.limit_bytes)}, " + (
        f"{size_text(need.missing_bytes)} too many" if need.missing_bytes else "fits"
    )
    parts = [
        f"{part.what} {'about ' * part.estimated}{size_text(part.bytes)}{kind if part.what == 'weights' else ''}"
        for part in need.parts
        if part.bytes
    ]
    return state + ("     " + ", ".join(parts) if parts else "")


# The int8 version of a float model has a quarter of its bytes, and for each channel an int32 bias and a scale.
_INT8_CONSTANTS = 0.31
_INT8_ARENA = 0.25


def advice(manifest: Manifest, board: Board, needed: Mapping[str, int]) -> str:
    """Return a hint for a model that does not fit a board.

    Args:
        manifest: the model's.
        board: the board.
        needed: bytes needed of each memory that is too small, by its name.
    """
    if not is_float(manifest):
        return "try a smaller model, or a board with more memory: mtool boards"
    estimates = {name: round(count - _saved(manifest, board, name)) for name, count in needed.items()}
    sizes = " and ".join(f"{size_text(count)} of {name}" for name, count in estimates.items())
    if all(count <= board.memories[name].size for name, count in estimates.items()):
        return f"an int8 version would need about {sizes}: mtool quantize {manifest.model_file} --data DIR"
    return f"even an int8 version would need about {sizes}; try a board with more memory: mtool boards"


def is_float(manifest: Manifest) -> bool:
    """Return whether most of the model's products are of floats, and nearly all its parameters have four bytes."""
    of_floats = sum(one.macs for one in manifest.operators if {operand.dtype for operand in one.reads} == {"float32"})
    return (
        2 * of_floats > sum(operator.macs for operator in manifest.operators)
        and manifest.constant_bytes >= 3.5 * manifest.parameters > 0
    )


def _saved(manifest: Manifest, board: Board, name: str) -> float:
    """Return approximately how many bytes of a memory an int8 version saves."""
    weights = manifest.constant_bytes * (1 - _INT8_CONSTANTS) if board.region_for("weights") == name else 0
    return weights + (manifest.bytes_of_arena * (1 - _INT8_ARENA) if board.region_for("arena") == name else 0)


def size_text(count: int) -> str:
    """Return a size in KB of 1,024 bytes, rounded up so that something too large never looks as if it fits."""
    return f"{count:,} B" if count < 10 * 1024 else f"{-(-count // 1024):,} KB"


# Explain a linker's or compiler's output for firmware that is too large.


_OVERFLOW = re.compile(r"region [`'](\w+)' overflowed by (\d+) bytes")
_ROLES = {"FLASH": "code", "RAM": "data"}  # the role of the memories in Zephyr's linker scripts
_TOO_LARGE = re.compile(r"size of array .(\w+). is too large")  # larger than an AVR compiler can index
_OUTSIDE = re.compile(r"address (0x[0-9a-f]+) of .* section .* is not within region")
ARRAY_BYTES_AVR = 32767
"""The largest array that avr-gcc takes: a difference of two pointers has 16 bits."""


def explain(output: str, manifest: Manifest) -> FitError | None:
    """Return the error for a linker's output, or None if no memory overflowed.

    Args:
        output: of GNU ld, or of a compiler for an array that it can't address.
        manifest: the project's.
    """
    board = manifest.in_project.board
    missed = _missed(output, board)
    too_large = set(_TOO_LARGE.findall(output))
    if manifest.symbols.get("arena") in too_large:  # nothing was linked: what the model alone needs
        for role, count in (("weights", manifest.constant_bytes), ("arena", manifest.bytes_of_arena)):
            name = board.region_for(role)
            if name is not None and count > board.memories[name].size:
                missed[name] = count - board.memories[name].size
    refused = [f"{name} is one array of more than {ARRAY_BYTES_AVR:,} B, which the compiler can't address"
               for name in manifest.constants if name in too_large]  # fmt: skip
    if not missed and not refused:
        return None
    needed = {name: board.memories[name].size + count for name, count in missed.items()}
    what = f"{manifest.model_file} does not fit {board.name}"
    details = [*(_line(board, name, missed.get(name, 0), manifest) for name in board.memories), *refused]
    return FitError(what, details=details, hint=advice(manifest, board, needed))


def _missed(output: str, board: Board) -> dict[str, int]:
    """Return the number of bytes by which each memory is too small."""
    missed = {}
    by_upper = {name.upper(): name for name in board.memories}  # regions from a devicetree in Zephyr
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
    """Return the line for one memory: needed and available bytes, and the model's share."""
    limit = board.memories[name].size
    shares = [("weights", manifest.constant_bytes), ("arena", manifest.bytes_of_arena)]
    parts = [Part(role, count) for role, count in shares if board.region_for(role) == name]
    rest = limit + missed_bytes - sum(part.bytes for part in parts)
    if missed_bytes:
        other = "the rest" if parts else "all"
        return line(Need(name, limit, (*parts, Part(other, max(rest, 0)))), manifest)
    used = ", ".join(f"{part.what} {size_text(part.bytes)}" for part in parts if part.bytes)
    return f"{name:8} fits in {size_text(limit)}" + (f"     {used}" if used else "")
