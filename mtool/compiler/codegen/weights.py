"""The model's constants as C arrays."""

import textwrap
from collections.abc import Collection, Mapping

import numpy as np

from mtool.base.escaping import comment
from mtool.compiler.codegen import linkage
from mtool.compiler.codegen.binary import NO_BINARY, Binary
from mtool.compiler.codegen.constant_pools import alignment_of, placing
from mtool.compiler.ir import DType
from mtool.compiler.ir.scalar import literal
from mtool.compiler.ir.types import Array
from mtool.compiler.plan.pool import Pool

WIDTH = 116
_REASONS = {
    "uint32": ". In hexadecimal, as a word is several numbers.",
    "int8": ". Bytes, as most are weights, and all are read one after the other.",
    "int16": ". Halfwords, as most are weights, and all are read one after the other.",
}
AVR_NEAR = 60_000  # bytes of constants that fit the first 64 KB of flash, beside what else is there


def declaration(symbol: str, data: Array, in_ram: Collection[str] = ()) -> str:
    """Return the C declaration of a constant, without `extern` and semicolon; one that lies in RAM is a variable."""
    where = "" if symbol in in_ram else "const MT_FLASH "
    return f"{where}{DType.of(data.dtype).c} {symbol}[{max(data.size, 1)}]"


def weights_source(
    banner: str,
    model: str,
    constants: Mapping[str, Array],
    binary: Binary = NO_BINARY,
    layouts: Mapping[str, str] | None = None,
    in_ram: Collection[str] = (),
    in_pools: Mapping[str, Pool] | None = None,
) -> str:
    """Return `<model>_weights.c`; what lies in the file of large constants is taken from there.

    `layouts` say what stands where in a constant, by its symbol; `in_ram` are those that lie in RAM, `in_pools` has the
    memories of those that lie in several.
    """
    texts = [data for symbol, data in constants.items() if symbol not in binary.offsets]
    floats = [data for data in texts if data.dtype.kind == "f" and data.dtype.itemsize > 2]
    infinite = not all(np.isfinite(data).all() for data in floats)  # NAN and INFINITY are macros
    parts = [banner, "#include <math.h>\n" * infinite + f'#include "{model}_weights.h"\n']
    where = in_pools or {}
    if where:
        parts[-1] = f'#include "mt_device.h"\n{parts[-1]}'
    if binary.offsets:
        parts.append(binary.macro())
    for symbol, data in constants.items():
        layout = (layouts or {}).get(symbol, "")
        if symbol in binary.offsets:
            definition = binary.definition(symbol, data)
        else:
            own = f"{placing(symbol, where[symbol])} " if symbol in where else ""
            declared = f"{own}{_alignment(layout)}{declaration(symbol, data, in_ram)}"
            definition = f"{declared} = {{\n{number_rows(data, is_packed=_is_packed(layout))}\n}};"
        parts.append(f"{comment(*_described(data, layout, is_in_ram=symbol in in_ram))}\n{definition}\n")
    return "\n".join(parts)


def weights_header(
    banner: str, model: str, constants: Mapping[str, Array], in_ram: Collection[str] = (), *, flash_is_apart: bool
) -> str:
    """Return `<model>_weights.h`; with what an AVR needs to read flash, if that is the target."""
    guard = f"{model.upper()}_WEIGHTS_H"
    lines = [f"extern {declaration(symbol, data, in_ram)};" for symbol, data in constants.items()]
    body = "\n".join([*linkage.BEGIN, *lines, "", *linkage.END, ""]) if lines else ""
    far = "#define MT_FLASH_FAR /* an AVR reaches no more than 64 KB otherwise */\n" * (
        total_bytes(constants) > AVR_NEAR
    )
    includes = "#include <stdint.h>" + (f'\n\n{far}#include "mt_flash.h"' if flash_is_apart else "")
    return f"{banner}\n#ifndef {guard}\n#define {guard}\n\n{includes}\n\n{body}#endif\n"


def _alignment(layout: str) -> str:
    """Return the attribute of a table whose layout begins with its alignment: "aligned to 16 bytes"."""
    bytes_ = alignment_of(layout)
    return f"__attribute__((aligned({bytes_}))) " if bytes_ else ""


def _is_packed(layout: str) -> bool:
    """Whether a table is packed for a function of the runtime: each of its rows is what that reads in one go."""
    return layout.startswith("packed")


def _described(data: Array, layout: str, *, is_in_ram: bool = False) -> list[str]:
    """Return the lines of the comment above a table: its type and shape, what stands where."""
    shape = "x".join(map(str, data.shape))
    text = f"{data.dtype.name} {shape}{': ' if layout else ''}{layout}"
    text += ". In RAM, where it is read sooner than from flash" if is_in_ram else ""
    text += _REASONS.get(data.dtype.name, "") if _is_packed(layout) else ""
    return textwrap.wrap(text, WIDTH - 4, break_long_words=False)


def number_rows(data: Array, *, is_packed: bool = False) -> str:
    """Return the elements of an array as rows of C literals."""
    dtype = DType.of(data.dtype)
    flat = data.reshape(-1)
    if dtype.is_half:
        dtype = DType.UINT16 if dtype.size == 2 else DType.UINT8
        flat = flat.view(dtype.numpy)
    words = is_packed and dtype is DType.UINT32
    texts = [f"0x{word:08X}u" for word in flat.tolist()] if words else _texts(flat, dtype)
    texts = texts or ["0"]  # C has no empty arrays
    width = max(map(len, texts)) + 2
    columns = max(1, (WIDTH - 4) // width)
    if columns > 8:
        columns -= columns % 8
    # a row of packed words begins a line, so that its parts can be told
    row = data.shape[-1] if is_packed and data.ndim > 1 else len(texts)
    starts = [start for first in range(0, len(texts), row) for start in range(first, first + row, columns)]
    ends = [min(start + columns, (start // row + 1) * row) for start in starts]
    rows = [texts[start:end] for start, end in zip(starts, ends, strict=True)]
    return "\n".join("    " + " ".join(f"{text},".rjust(width - 1) for text in row) for row in rows)


def _texts(flat: Array, dtype: DType) -> list[str]:
    """Return each element as C: what `literal` gives, by the million where it is a plain number."""
    if dtype.is_integer and dtype.size < 4:
        return [str(number) for number in flat.tolist()]
    if dtype in (DType.FLOAT32, DType.FLOAT64) and np.isfinite(flat).all():
        suffix = "f" if dtype is DType.FLOAT32 else ""
        return [f"{number!s}{suffix}" for number in flat]
    return [literal(number, dtype).c for number in flat.tolist()]


def total_bytes(constants: Mapping[str, Array]) -> int:
    """Return the bytes of all constants."""
    return int(np.sum([data.nbytes for data in constants.values()], dtype=np.int64)) if constants else 0
