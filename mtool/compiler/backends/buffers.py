"""Buffers of a region in memories of the board by name: what is wrong with them, where they lie, who sees what."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mtool.base.reserved import KEYWORDS
from mtool.compiler.backends.interface import Buffer, Product, Region
from mtool.compiler.kernels.external import Lent

_TENSOR = re.compile(r"(input|output)(\d+)")
_USES = ("reads", "writes", "both")
_FLASH = frozenset({"code", "weights"})


def problem_of_buffers(product: Product, region: Region, most_alignment: int) -> str:
    """Return what is wrong with the buffers, texts and caches of a product; "": nothing."""
    fields: Any = product  # of any types
    for name in ("prepare", "finish"):
        if not isinstance(getattr(fields, name), str):
            return f"{name} is no text"
    for name in ("buffers", "device", "caches"):
        value = getattr(fields, name)
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            return f"{name} is {type(value).__name__}; expected a mapping from text"
    problems = (_of_buffer(name, one, product, region, most_alignment) for name, one in product.buffers.items())
    return next(filter(None, problems), "") or _of_caches(product, region)


def lack_of_memory(product: Product, region: Region) -> str:
    """Return what the buffers want that the board has not; "": nothing."""
    memories = region.context.memories
    if not memories:
        return ""
    problems = (_of_memory(name, one, region) for name, one in product.buffers.items())
    return next(filter(None, problems), "") or _of_room(product, region)


def _of_buffer(name: str, buffer: Any, product: Product, region: Region, most_alignment: int) -> str:
    if not isinstance(buffer, Buffer):
        return f"the buffer {name} is {type(buffer).__name__}; expected a Buffer"
    fields: Any = buffer
    for key in ("bytes", "alignment"):
        value = getattr(fields, key)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not 0 <= value < 2**40:
            return f"{key} of the buffer {name} is {value!r}"
    if not 1 <= buffer.alignment <= most_alignment or buffer.alignment & (buffer.alignment - 1):
        return f"alignment of the buffer {name} is {buffer.alignment}; expected a power of two up to {most_alignment}"
    if not isinstance(fields.memory, str) or not re.fullmatch(r"[A-Za-z_]\w*", buffer.memory, re.ASCII):
        return f"the buffer {name} has the memory {fields.memory!r:.80}; expected a board's name of one"
    needed = _bytes_there(name, product, region)
    if needed is None and (_TENSOR.fullmatch(name) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)):
        return f"the buffer {name} is no tensor of the region, and no name in C"
    if needed is None and (name in KEYWORDS or name in product.constants or not buffer.bytes):
        return f"the buffer {name} has {'no bytes' if not buffer.bytes else 'a name that is taken'}"
    if needed is not None and buffer.bytes and buffer.bytes < needed:
        return f"the buffer {name} has {buffer.bytes} bytes; {needed} are to lie there"
    return ""


def _of_memory(name: str, buffer: Buffer, region: Region) -> str:
    memories, board = region.context.memories, region.context.board
    found = memories.get(buffer.memory)
    if found is not None and not (found.holds and {*found.holds} <= _FLASH):
        return ""
    there = ", ".join(_told(one, memory.bytes, memory.holds) for one, memory in memories.items())
    what = "is no memory" if found is None else f"is for {' and '.join(found.holds)}"
    return f"{name} is to lie in {buffer.memory}, which {what} of {board}; it has {there}"


def _of_room(product: Product, region: Region) -> str:
    memories = region.context.memories
    ends = {one.memory: one.offset + one.bytes for one in placed(product, region)}  # of each the last
    return next(
        (
            f"the buffers in {memory} take {end:,} B; {region.context.board} has {memories[memory].bytes:,} there"
            for memory, end in ends.items()
            if end > memories[memory].bytes
        ),
        "",
    )


def _of_caches(product: Product, region: Region) -> str:
    for when, function in product.caches.items():
        if when not in ("clean", "invalidate"):
            return f"caches has {when!r}; expected clean and invalidate"
        if not isinstance(function, str) or not re.fullmatch(r"[A-Za-z_]\w*", function, re.ASCII):
            return f"caches: {when} is {function!r}; expected the name of a C function"
    if product.caches and ({*product.caches} != {"clean", "invalidate"} or not product.headers):
        return "caches has to name both clean and invalidate, and a header has to declare them"
    for name, use in product.device.items():
        if use not in _USES:
            return f"the device {use!r} {name}; expected {', '.join(_USES)}"
        known = name in product.buffers or name in product.constants or _bytes_there(name, product, region) is not None
        if not known:
            return f"the device {use} {name}, which is no tensor, buffer or constant of the region"
        if name in product.constants and use != "reads":
            return f"the device {use} the constant {name}, which lies in flash"
    return ""


def _told(name: str, size: int, holds: Sequence[str]) -> str:
    return f"{name} ({size // 1024:,} KB{''.join(f', {one}' for one in holds)})"


def _bytes_there(name: str, product: Product, region: Region) -> int | None:
    """Return the bytes of what a name stands for besides working memory; None: nothing."""
    if name == "scratch":
        return product.scratch_bytes or None
    found = _TENSOR.fullmatch(name)
    if found is None:
        return None
    side = region.inputs if found[1] == "input" else region.outputs
    number = int(found[2])
    return side[number].type.bytes if str(number) == found[2] and number < len(side) else None


def placed(product: Product, region: Region) -> tuple[Lent, ...]:
    """Return where the buffers lie, one behind the other in each memory."""
    ends: dict[str, int] = {}
    found = []
    for name, one in product.buffers.items():
        alignment = max(int(one.alignment), 8)  # of any element
        size = _multiple(
            int(one.bytes) or _bytes_there(name, product, region) or 0, alignment
        )  # whole lines of a cache
        offset = _multiple(ends.get(one.memory, 0), alignment)
        ends[one.memory] = offset + size
        found.append(Lent(name, one.memory, offset, size, alignment))
    return tuple(found)


def _multiple(number: int, of: int) -> int:
    return -(-number // of) * of


def cache_care(product: Product) -> dict[str, Any]:
    """Return what the cache is cleaned of before the body and forgets behind it, and the functions for that."""
    if not product.caches:
        return {}
    uses = {name: "reads" if name.startswith("input") else "writes" for name in product.buffers if _TENSOR.match(name)}
    uses |= product.device
    cached = [name for name in uses if name not in product.buffers or product.buffers[name].cached]
    return {
        "cleaned": tuple(cached),
        "invalidated": tuple(name for name in cached if uses[name] != "reads"),
        "clean": product.caches["clean"],
        "invalidate": product.caches["invalidate"],
    }
