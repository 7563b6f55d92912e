"""The pools of a model on a board: those that are asked for, or those that the board lends where one is too small."""

from collections.abc import Sequence
from dataclasses import replace

from mtool.base import spelling
from mtool.base.errors import UsageError
from mtool.base.escaping import short_name
from mtool.base.identifiers import tensor_names
from mtool.base.option_values import PoolUse
from mtool.boards import Board, Memory
from mtool.compiler.plan.pool import LEAST_ALIGNMENT, Pool
from mtool.compiler.plan.pools.arena import WORD
from mtool.compiler.plan.pools.for_time import CODE_BYTES, RESERVED_BYTES

MOST = 16
"""Pools of a model."""


def asked_pools(board: Board, asked: Sequence[Pool]) -> tuple[Pool, ...]:
    """Return the pools that a user asks for, with the board's figures where none are given.

    Raises:
        UsageError: a pool is no memory of the board, or is larger than it, or can't be written to; or two have a name.
    """
    found: list[Pool] = []
    if len(asked) > MOST:
        raise UsageError(f"there are {len(asked)} pools", hint=f"at most {MOST}")
    for pool in asked:
        if tensor_names([pool.name]) != [pool.name]:
            raise UsageError(
                f"the pool {short_name(pool.name)} has no name in C",
                hint="small letters, digits and _, and no word of C's or of a compiler's: dtcm or sram_1, say",
            )
        if any(one.name == pool.name for one in found):
            raise UsageError(f"the pool {pool.name} is given twice", hint="once, with all of its bytes")
        if tensor_names([*(one.name for one in found), pool.name])[-1] != pool.name:
            raise UsageError(
                f"the pool {pool.name} has the name of another but for capitals, which its macros have",
                hint="another name",
            )
        memory = board.memories.get(pool.name)
        if memory is None:
            found.append(_elsewhere(board, pool, is_first=all(one.use == "constants" for one in found)))
            continue
        _check(board, pool, memory)
        found.append(_of_board(board, pool, memory))
    return tuple(found)


def tensor_pools(board: Board, asked: Sequence[Pool]) -> tuple[Pool, ...]:
    """Return the pools that a user asks for, of those for tensors and copies of constants; none: the arena is in one.

    Raises:
        UsageError: as `asked_pools`, or none is for tensors.
    """
    found = [pool for pool in asked_pools(board, asked) if pool.use != "constants"]
    arena = board.region_for("arena")
    if found and all(pool.use == "weights" for pool in found):
        if arena is None or any(pool.name == arena for pool in found):
            raise UsageError("no pool is for tensors", hint="--pool NAME=BYTES,for=all")
        found.append(_of_board(board, Pool(arena, use="tensors"), board.memories[arena]))
    return tuple(found)


def constant_pools(board: Board, asked: Sequence[Pool]) -> tuple[Pool, ...]:
    """Return the pools that a user asks for, of those that constants themselves lie in.

    Raises:
        UsageError: as `asked_pools`, or one has a section that is cleared at the start.
    """
    found = tuple(pool for pool in asked_pools(board, asked) if pool.use == "constants")
    for pool in found:
        if pool.section.startswith((".bss", ".noinit", ".sbss")):
            raise UsageError(
                f"the pool {pool.name}: constants have values, and the section {pool.section} holds none",
                hint=f"for instance section=.rodata.{pool.name}",
            )
    return found


def _of_board(board: Board, pool: Pool, memory: Memory) -> Pool:
    use: PoolUse = "constants" if pool.use == "weights" and not memory.is_written else pool.use
    return replace(
        pool,
        use=use,
        bytes=pool.bytes or (_free_of_code(memory) if use == "constants" else _free(memory)),
        waits=_waits(board, memory) if pool.waits is None else pool.waits,
        alignment=max(pool.alignment, LEAST_ALIGNMENT),
        is_arena=not pool.section and use != "constants" and board.region_for("arena") == pool.name,
    )


def _waits(board: Board, memory: Memory) -> float:
    """Return the cycles that an access to a word waits, as far as the board's entry has them."""
    if memory.pool is not None:
        return memory.pool.waits
    return memory.reads.waits(board.clock_hz) * WORD / memory.reads.width if memory.reads and board.clock_hz else 0.0


def lent_pools(board: Board) -> tuple[Pool, ...]:
    """Return the memories that a board lends to a model whose arena is larger than one of them; none: it has one."""
    arena = board.region_for("arena")
    found = tuple(
        Pool(name, _free(memory), memory.pool.use, memory.pool.waits, is_arena=name == arena)
        for name, memory in board.memories.items()
        if memory.pool is not None and memory.pool.use != "constants"
    )
    return found if len(found) > 1 and any(pool.is_arena for pool in found) else ()


def _free(memory: Memory) -> int:
    """Return the bytes of a memory without what is left to data and stacks that lie there too."""
    if not {"data", "stack"} & {*memory.holds}:
        return memory.size
    return memory.size - min(RESERVED_BYTES, memory.size // 4)


def _free_of_code(memory: Memory) -> int:
    """Return the bytes of a memory for constants, without what is left to code that lies there, or to data."""
    left = min(CODE_BYTES, memory.size // 4) if "code" in memory.holds else 0
    return _free(memory) - left


def _elsewhere(board: Board, pool: Pool, *, is_first: bool) -> Pool:
    """Return a pool that is none of the board's memories: its section says where it lies, or an operating system."""
    if board.memories and not pool.section:
        near = spelling.did_you_mean(pool.name, board.memories, otherwise="")
        raise UsageError(
            f"{board.name} has no memory {pool.name}",
            details=[f"{name}: {memory.size:,} B" for name, memory in board.memories.items()],
            hint=near or f"a linker script of yours may have it: --pool {pool.name}=BYTES,section=NAME",
        )
    if not pool.bytes:
        raise UsageError(f"the pool {pool.name} has no size", hint=f"how many bytes it has: --pool {pool.name}=64KiB")
    return replace(
        pool,
        alignment=max(pool.alignment, LEAST_ALIGNMENT),
        is_arena=is_first and not pool.section and pool.use != "constants",
    )


def _check(board: Board, pool: Pool, memory: Memory) -> None:
    if pool.use not in ("weights", "constants") and not memory.is_written:
        raise UsageError(
            f"the pool {pool.name} has to be written to, and {board.name} has {' and '.join(memory.holds)} there",
            details=[f"{name}: {one.size:,} B" for name, one in board.memories.items() if one.is_written],
            hint=f"constants may lie there: --pool {pool.name},for=weights",
        )
    if pool.bytes > memory.size:
        raise UsageError(
            f"the pool {pool.name} is larger than the memory: {pool.bytes:,} B",
            details=[f"{pool.name} of {board.name} has {memory.size:,} B"],
        )
