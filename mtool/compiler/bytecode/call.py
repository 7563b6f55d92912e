"""Kernel calls, of which bytecode consists. crt/include/mt_bytecode_kernels.h lists the kernels' operands."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mtool.base.frozen import frozen
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.schedule import Kernel, Schedule
from mtool.compiler.kernels.target import Target

KERNELS: Final = {
    name: number
    for number, name in enumerate(
        (
            "conv2d_int8", "depthwise_int8", "dense_int8", "pool_int8", "softmax_int8", "add_int8", "copy", "map",
            "conv2d_f32", "pool_f32", "softmax_f32",
        ),
        start=1,
    )
}  # fmt: skip
"""Their numbers; a test compares the list with the C header's."""
MAGIC: Final = 0x3142544D
HEAD: Final = 4
"""Words of an image before its calls."""
MORE: Final = 0x8000
"""The bit of a call that belongs to the operator of the one before it."""
CONSTANT: Final = 1 << 31
"""The bit of an address that lies in the constants."""


@frozen
class Value:
    """An address: an offset in bytes from the start of a value in the arena."""

    name: str
    offset: int = 0


@frozen
class Scratch:
    """An address in the operator's scratch."""

    offset: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """An address: an offset in bytes from the start of a constant."""

    data: Array
    offset: int = 0


Address = Value | Scratch | Constant
Operand = int | float | Address
"""A float stands for the bits of its float32."""


@frozen
class Call:
    """A call of a kernel."""

    kernel: str
    operands: tuple[Operand, ...]


def kernels_of(image: bytes) -> tuple[str, ...]:
    """Return the names of the kernels that an image calls, by number; "?": a kernel of another version."""
    names = {number: name for name, number in KERNELS.items()}
    words = struct.unpack_from(f"<{len(image) // 4}I", image)
    at, end, numbers = HEAD, min(HEAD + words[2], len(words)) if len(words) > HEAD else 0, set[int]()
    while at < end:
        numbers.add(words[at] & (MORE - 1))
        at += 1 + (words[at] >> 16)
    return tuple(names.get(number, "?") for number in sorted(numbers))


def word_of(number: int | float) -> int:
    """Return a number as a word: the bits of a float, the complement of a negative number."""
    if isinstance(number, float):
        return int(struct.unpack("<I", struct.pack("<f", number))[0])
    assert -(1 << 31) <= number < 1 << 32, f"{number} does not fit a word"
    return number & 0xFFFFFFFF


def padded(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the sizes padded to this number of dimensions, with ones in front."""
    return (*[1] * (count - len(sizes)), *sizes)


# Methods: how a node becomes calls. To the planner they are schedules.


SHARED = Target("cortex-m4", frozenset({"fpu", "dsp"}))
"""What models are brought to kernels for: int8 in pairs, requantized by floats that multipliers stand for. All cores
that run bytecode compute the same."""


class NoKernel(Exception):
    """No kernel in the library computes a node; the text is the reason."""


@dataclass(frozen=True)
class Method(Schedule):
    """The calls of a node.

    Attributes:
        calls: in their order.
        scratch: bytes of working memory.
        over: the numbers of the inputs whose storage the output may take.
    """

    name = "calls"

    calls: tuple[Call, ...]
    scratch: int = 0
    over: tuple[int, ...] = ()

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Return True: it was made for its node."""
        return True

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Return the bytes that the kernels check for."""
        return self.scratch

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Return the inputs that the kernels may overwrite."""
        return self.over

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Return a constant: there is no choice."""
        return 0.0

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Never emit: it has no C.

        Raises:
            AssertionError: always.
        """
        raise AssertionError(f"{node.name} is called, not written")
