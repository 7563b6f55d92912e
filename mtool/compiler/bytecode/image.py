"""The image of a bytecode module: its calls and constants. crt/include/mt_bytecode.h has the bytes."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtool.compiler.bytecode.call import (
    CONSTANT,
    KERNELS,
    MAGIC,
    MORE,
    Address,
    Constant,
    Operand,
    Scratch,
    Value,
    word_of,
)
from mtool.compiler.bytecode.method import Method
from mtool.compiler.plan import Plan


@dataclass(frozen=True, slots=True)
class Image:
    """A model as bytecode.

    Attributes:
        data: the head, the calls, the constants.
        code_bytes: what is before the constants.
        arena_bytes: that it needs.
    """

    data: bytes
    code_bytes: int
    arena_bytes: int


class _Constants:
    """Constants one behind the other; equal ones are there once."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.known: dict[bytes, int] = {}

    def place(self, constant: Constant) -> int:
        data = np.ascontiguousarray(constant.data).tobytes()
        if data not in self.known:
            self.known[data] = len(self.data)
            self.data += data + bytes(-len(data) % 4)
        return self.known[data] + constant.offset


def encode(plan: Plan) -> Image:
    """Return a plan's image."""
    constants = _Constants()
    words: list[int] = []
    for number, step in enumerate(plan.steps):
        method = step.schedule
        assert isinstance(method, Method)
        for place, call in enumerate(method.calls):
            words.append(KERNELS[call.kernel] | (MORE if place else 0) | len(call.operands) << 16)
            words += _words(call.operands, plan, plan.scratch[number], constants)
    head = struct.pack("<4I", MAGIC, plan.arena_bytes, len(words), len(constants.data))
    code = head + struct.pack(f"<{len(words)}I", *words)
    return Image(code + bytes(constants.data), len(code), plan.arena_bytes)


def _words(operands: Sequence[Operand], plan: Plan, scratch: int | None, constants: _Constants) -> list[int]:
    return [
        _address(one, plan, scratch or 0, constants) if isinstance(one, Address) else word_of(one) for one in operands
    ]


def _address(address: Address, plan: Plan, scratch: int, constants: _Constants) -> int:
    if isinstance(address, Constant):
        return CONSTANT | constants.place(address)
    if isinstance(address, Scratch):
        return scratch + address.offset
    assert isinstance(address, Value)
    return plan.offsets[address.name] + address.offset
