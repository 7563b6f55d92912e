"""The memory that a firmware needs on a board, and the error where a memory is too small."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtool.base.errors import FitError
from mtool.boards import Board
from mtool.device.build.size import Size
from mtool.manifest import Manifest, bytes_in_memories, constants_in_memories


@dataclass(frozen=True, slots=True)
class Part:
    """A share of a memory: what it is, its bytes, and whether these are estimated."""

    what: str
    bytes: int
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """The need of a firmware for one memory: the memory's name, the bytes, and the shares that lie in it."""

    memory: str
    limit_bytes: int
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """All bytes that are needed."""
        return sum(part.bytes for part in self.parts)

    @property
    def missing_bytes(self) -> int:
        """The bytes that are missing."""
        return max(self.bytes - self.limit_bytes, 0)

    @property
    def estimated(self) -> bool:
        """Whether a share is estimated."""
        return any(part.estimated for part in self.parts)


def needs_of(size: Size, manifest: Manifest) -> tuple[Need, ...]:
    """Return what a built firmware needs of each memory of its board.

    A linker that reserves nothing for the stack leaves it what is free; then as much counts as the template's option
    `stack_bytes` asks for.
    """
    assert manifest.project is not None
    board = manifest.project.board
    beside, constants = bytes_in_memories(manifest.models), constants_in_memories(manifest.models)
    known = {
        "weights": size.flash_const_bytes - sum(constants.values()),
        "arena": size.arena_bytes - sum(beside.values()),
        "stack": size.stack_bytes,
    }
    unreserved = 0 if size.stack_bytes or size.has_threads else int(manifest.project.options.get("stack_bytes", 0))
    total_in_ram = sum(one.constant_bytes_in_ram for one in manifest.models)
    needs = []
    for name, memory in board.memories.items():
        roles = [role for role in known if board.region_for(role) == name and known[role]]
        lent = sum(one.lent.get(name, 0) for one in manifest.models)
        pools = beside.get(name, 0)
        own = constants.get(name, 0)
        in_ram = total_in_ram if board.region_for("data") == name else 0
        rest = size.memories.get(name, 0) - sum(known[role] for role in roles) - lent - pools - own - in_ram
        parts = [Part(role, known[role]) for role in roles] + [Part("backends' buffers", lent)] * bool(lent)
        parts += [Part("pools", pools)] * bool(pools) + [Part("constants", own)] * bool(own)
        parts += [Part("weights in RAM", in_ram)] * bool(in_ram)
        parts += [Part("code" if board.region_for("code") == name else "data", rest)] if rest > 0 else []
        parts += [Part("stack", unreserved)] if unreserved and board.region_for("stack") == name else []
        if parts or memory.holds:
            needs.append(Need(name, memory.size, tuple(parts)))
    return tuple(needs)


def check(size: Size, manifest: Manifest) -> None:
    """Check a firmware's sizes against the board's memories: some linkers know only the family's largest chip.

    Raises:
        FitError: a memory is too small.
    """
    assert manifest.project is not None
    needs = needs_of(size, manifest)
    if any(need.missing_bytes for need in needs):
        raise error(needs, manifest, manifest.project.board)


def error(needs: Sequence[Need], manifest: Manifest, board: Board) -> FitError:
    """Return the error of a board whose memories do not have what is needed."""
    do = "do" if len(manifest.models) > 1 else "does"
    return FitError(
        f"{', '.join(one.model_file for one in manifest.models)} {do} not fit {board.name}",
        details=[line(need, manifest) for need in needs],
        hint=advice(manifest, board, {need.memory: need.bytes for need in needs if need.missing_bytes}),
    )


def line(need: Need, manifest: Manifest) -> str:
    """Return the line of one memory: what is needed of what is there, and its shares; "about" what is estimated."""
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


# What of a float model's bytes its int8 version has: a quarter, and for each channel an int32 bias and a scale.
_INT8_CONSTANTS = 0.31
_INT8_ARENA = 0.25


def advice(manifest: Manifest, board: Board, needed: Mapping[str, int]) -> str:
    """Return what to try with a model that does not fit a board.

    Args:
        manifest: the model's.
        board: the board.
        needed: bytes that are needed of each memory that is too small, by its name.
    """
    if not is_float(manifest):
        return "a smaller model would; so may a board with more memory: mtool boards"
    estimates = {name: round(count - _saved(manifest, board, name)) for name, count in needed.items()}
    sizes = " and ".join(f"{size_text(count)} of {name}" for name, count in estimates.items())
    if all(count <= board.memories[name].size for name, count in estimates.items()):
        return f"an int8 version would need about {sizes}: mtool quantize {manifest.model_file} --data DIR"
    return f"even an int8 version would need about {sizes}; a board with more memory may do: mtool boards"


def is_float(manifest: Manifest) -> bool:
    """Tell whether most of the model's products are of floats, and nearly all its parameters have four bytes."""
    of_floats = sum(one.macs for one in manifest.operators if {each.dtype for each in one.reads} == {"float32"})
    return (
        2 * of_floats > sum(one.macs for one in manifest.operators)
        and manifest.constant_bytes >= 3.5 * manifest.parameters > 0
    )


def _saved(manifest: Manifest, board: Board, name: str) -> float:
    """Return the bytes of a memory that an int8 version does not need, about."""
    weights = manifest.constant_bytes * (1 - _INT8_CONSTANTS) if board.region_for("weights") == name else 0
    return weights + (manifest.bytes_of_arena * (1 - _INT8_ARENA) if board.region_for("arena") == name else 0)


def size_text(count: int) -> str:
    """Return a number of bytes as KB of 1,024; rounded up, so that what does not fit never looks as if it did."""
    return f"{count:,} B" if count < 10 * 1024 else f"{-(-count // 1024):,} KB"
