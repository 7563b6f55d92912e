"""Large constants as a file of bytes, which the assembler takes into the firmware: text takes minutes to compile.

`<model>_weights.c` names the file and has its hash, so that it is compiled again when the file has changed.
"""

import hashlib
import io
import math
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass, field

import numpy as np

from mtool.base.escaping import c_string
from mtool.compiler.ir.types import Array

LARGE_BYTES = 4 << 20  # of all constants, from which on the larger ones lie in the file
PIECE_BYTES = 4096  # of a constant that lies there
_ALIGNMENT = 16

# GCC and Clang, for every ELF target. Each constant is a section, which the linker drops if nothing reads it.
_MACRO = """\
#if !defined(__GNUC__) || !defined(__ELF__)
#error "{file} is taken in by GNU assembler: use GCC or Clang for ELF, or compile the model with --weights text"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the numbers in {file} are little-endian: compile the model with --weights text"
#endif

/*
 * {file}, sha256 {digest}.
 * GCC finds it by -I, Clang by -Wa,-I; both where they run. Compile this file with -fno-lto, and again when it changes.
 */
#define WEIGHTS(name, first, count) \\
    __asm__(".pushsection .rodata." #name ",\\"a\\",%progbits\\n" \\
            ".balign {alignment}\\n" \\
            ".global " #name "\\n" \\
            ".type " #name ", %object\\n" \\
            ".size " #name ", " #count "\\n" \\
            #name ":\\n" \\
            ".incbin \\"{file}\\", " #first ", " #count "\\n" \\
            ".popsection\\n")
"""


@dataclass(frozen=True, slots=True)
class Binary:
    """The file of a model's large constants.

    Attributes:
        name: the file's.
        data: what it holds; empty: the model has no such file.
        offsets: the first byte of each constant that lies there, by its symbol.
        sections: those of constants that lie in memories by name; none: each has one of its own.
    """

    name: str
    data: bytes
    offsets: Mapping[str, int]
    sections: Mapping[str, str] = field(default_factory=dict)

    def macro(self) -> str:
        """Return the C macro that takes a constant from the file."""
        digest = hashlib.sha256(self.data).hexdigest()
        text = _MACRO
        if self.sections:
            text = text.replace("WEIGHTS(name", "WEIGHTS(section, name").replace('.rodata." #name', '" section')
        return text.format(file=self.name, digest=digest, alignment=_ALIGNMENT)

    def definition(self, symbol: str, data: Array) -> str:
        """Return the C that defines a constant by its place in the file."""
        section = f"{c_string(self.sections.get(symbol, f'.rodata.{symbol}'))}, " if self.sections else ""
        return f"WEIGHTS({section}{symbol}, {self.offsets[symbol]}, {data.nbytes});"


NO_BINARY = Binary("", b"", {})


def binary_of(
    model: str,
    constants: MutableMapping[str, Array],
    in_ram: Collection[str] = (),
    sections: Mapping[str, str] | None = None,
    *,
    as_text: bool,
) -> Binary:
    """Return the file of a model's large constants.

    Args:
        model: the model's name.
        constants: all of them, by symbol; those in the file become views of it, so that they are in memory once.
        in_ram: those that lie in RAM, and not in the file.
        sections: those of constants that lie in memories by name.
        as_text: there shall be no such file.
    """
    large = [symbol for symbol, data in constants.items() if data.nbytes >= PIECE_BYTES and symbol not in in_ram]
    if as_text or sum(data.nbytes for data in constants.values()) < LARGE_BYTES:
        large = []
    offsets: dict[str, int] = {}
    kinds = {symbol: (constants[symbol].dtype, constants[symbol].shape) for symbol in large}
    file = io.BytesIO()
    for symbol in large:
        data = np.ascontiguousarray(constants[symbol])
        constants[symbol] = np.empty(0)  # until the file is whole
        offsets[symbol] = file.tell()
        file.write(data.reshape(-1).view(np.uint8).data)
        file.write(bytes(-data.nbytes % _ALIGNMENT))
        del data
    content = file.getvalue()
    for symbol, (dtype, shape) in kinds.items():
        constants[symbol] = np.frombuffer(content, dtype, math.prod(shape), offsets[symbol]).reshape(shape)
    return Binary(
        f"{model}_weights.bin",
        content,
        offsets,
        {symbol: name for symbol, name in (sections or {}).items() if symbol in offsets},
    )
