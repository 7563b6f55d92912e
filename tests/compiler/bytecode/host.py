"""The bytecode interpreter on the host, with the undefined-behaviour sanitizer."""

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sanitized

from mtool.base import resources
from mtool.compiler.bytecode.model import Image
from mtool.compiler.plan import Plan

Array = np.ndarray[Any, Any]
CRT = Path(resources.path("crt"))
SOURCES = sorted(path for path in (CRT / "bytecode").glob("*.c") if not path.name.startswith("mt_module"))
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-ffp-contract=off"]


class _Opened(ctypes.Structure):
    """struct mt_bytecode."""

    _fields_ = [
        ("calls", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        *((name, ctypes.c_uint32) for name in ("call_words", "constant_bytes", "arena_bytes")),
        ("library", ctypes.c_void_p),
        ("kernels", ctypes.c_uint32),
    ]


@functools.cache
def _code() -> ctypes.CDLL:
    folder = tempfile.mkdtemp()
    made = Path(folder) / "bytecode.so"
    options = [
        *FLAGS,
        sanitized.LEVEL,
        *sanitized.UNDEFINED,
        "-shared",
        "-fPIC",
        f"-I{CRT / 'include'}",
        *sanitized.LINKER,
    ]
    subprocess.run(["gcc", *options, *SOURCES, "-o", made, "-lm"], check=True)
    return ctypes.CDLL(str(made))


class Machine:
    """A module that the machine has taken, or refused."""

    def __init__(self, data: bytes) -> None:
        code = _code()
        self.opened = _Opened()
        self.data = ctypes.create_string_buffer(data, len(data) + 16)
        library = ctypes.c_void_p.in_dll(code, "mt_bytecode_library")
        kernels = ctypes.c_uint32.in_dll(code, "mt_bytecode_library_count")
        self.refused: int = code.mt_bytecode_open(
            ctypes.byref(self.opened), self.data, ctypes.c_uint32(len(data)), ctypes.byref(library), kernels
        )

    def run(self, arena: Array) -> None:
        """Compute all calls."""
        _code().mt_bytecode_run(ctypes.byref(self.opened), ctypes.c_void_p(arena.ctypes.data))

    def run_one(self, arena: Array, number: int) -> bool:
        """Compute an operator; whether there is one of that number."""
        pointer = ctypes.c_void_p(arena.ctypes.data)
        return bool(_code().mt_bytecode_run_one(ctypes.byref(self.opened), pointer, ctypes.c_uint32(number)))

    def operators(self) -> int:
        """How many there are."""
        return int(_code().mt_bytecode_operators(ctypes.byref(self.opened)))


def arena_of(size: int) -> Array:
    """Return an arena, aligned to 16, with the bytes that nothing has written yet."""
    room = np.full(size + 16, 0x5A, np.uint8)
    start = -room.ctypes.data % 16
    return room[start : start + size]


def run(plan: Plan, image: Image, inputs: Sequence[Array]) -> list[Array]:
    """Return the outputs of a model as bytecode."""
    machine, graph = Machine(image.data), plan.graph
    assert machine.refused == 0, f"call {machine.refused} is refused"
    assert machine.operators() == len(plan.steps)
    arena = arena_of(image.arena_bytes)
    for value, data in zip(graph.inputs, inputs, strict=True):
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        arena[plan.offsets[value] : plan.offsets[value] + raw.size] = raw
    machine.run(arena)
    found = []
    for value in graph.outputs:
        kind = graph.types[value]
        raw = arena[plan.offsets[value] : plan.offsets[value] + kind.bytes]
        found.append(raw.copy().view(kind.dtype.numpy).reshape(kind.shape))
    return found
