"""The model's constants as C arrays."""

import hashlib
import io
import math
import textwrap
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import field

import numpy as np

from mtool.base.escaping import c_string, comment
from mtool.base.frozen import frozen
from mtool.compiler.codegen import c_text
from mtool.compiler.codegen.c_text import Part, include
from mtool.compiler.codegen.functions import Functions
from mtool.compiler.codegen.pools import alignment_of, placing
from mtool.compiler.frontend.parameters import parameter_count
from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.scalar import literal
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.f32 import are_halves
from mtool.compiler.kernels.schedule import schedule_text
from mtool.compiler.kernels.weighted_sum import WeightedSum
from mtool.compiler.plan import Plan, Step
from mtool.compiler.plan.pool import Pool
from mtool.manifest import WeightOverhead

# Large constants as a binary file that the assembler includes: as text, they take minutes to compile.
#
# `<model>_weights.c` names the file and its hash, so that it is compiled again when the file changes.


LARGE_BYTES = 4 << 20  # of all constants, from which on the larger ones lie in the file
PIECE_BYTES = 4096  # of a constant that lies there
_ALIGNMENT = 16
# GCC and Clang, for every ELF target. Each constant is a section, which the linker drops if nothing reads it.
_MACRO = """\
#if !defined(__GNUC__) || !defined(__ELF__)
#error "{file} is included by the GNU assembler: use GCC or Clang for ELF, or compile the model with --weights text"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the numbers in {file} are little-endian: compile the model with --weights text"
#endif

/*
 * {file}, sha256 {digest}.
 * GCC finds it with -I, Clang with -Wa,-I, both in the working folder. Compile this with -fno-lto; again if it changes.
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


@frozen
class Binary:
    """The file of a model's large constants.

    Attributes:
        name: the file's name.
        data: its contents; empty: the model has no such file.
        offsets: the first byte of each constant in it, by symbol.
        sections: the sections of constants in named memories; none: each constant has its own.
    """

    name: str
    data: bytes
    offsets: Mapping[str, int]
    sections: Mapping[str, str] = field(default_factory=dict)

    def macro(self) -> str:
        """Return the C macro that includes a constant from the file."""
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
        constants: all of them, by symbol; those in the file become views of it, so that memory holds them once.
        in_ram: those in RAM, which are not in the file.
        sections: the sections of constants in named memories.
        as_text: write no such file.
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


WIDTH = 116
_REASONS = {
    "uint32": ". In hexadecimal, because a word holds several numbers.",
    "int8": ". Stored as bytes: most are weights, and all are read in order.",
    "int16": ". Stored as halfwords: most are weights, and all are read in order.",
}
AVR_NEAR = 60_000  # bytes of constants that fit the first 64 KB of flash, in addition to its other contents


def declaration(symbol: str, data: Array, in_ram: Collection[str] = ()) -> str:
    """Return the C declaration of a constant, without `extern` and semicolon; a constant in RAM is a variable."""
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
) -> list[str]:
    """Return `<model>_weights.c`, which includes large constants from their file.

    `layouts` describe constants, by symbol; `in_ram` are the constants in RAM, `in_pools` has the memories of those
    in pools.
    """
    texts = [data for symbol, data in constants.items() if symbol not in binary.offsets]
    floats = [data for data in texts if data.dtype.kind == "f" and data.dtype.itemsize > 2]
    infinite = not all(np.isfinite(data).all() for data in floats)  # NAN and INFINITY are macros
    where = in_pools or {}
    parts = [Part(banner, "banner"), *(include("mtool.h") if where else []), *["#include <math.h>"] * infinite]
    parts += [*include(f"{model}_weights.h"), ""]
    if binary.offsets:
        parts.append(binary.macro())
    for symbol, data in constants.items():
        layout = (layouts or {}).get(symbol, "")
        name, definition = "", binary.definition(symbol, data) if symbol in binary.offsets else ""
        if not definition:
            name = symbol
            place = f"{placing(symbol, where[symbol])} " if symbol in where else ""
            declared = f"{place}{_alignment(layout)}{declaration(symbol, data, in_ram)}"
            definition = f"{declared} = {{\n{number_rows(data, is_packed=_is_packed(layout))}\n}};"
        note = f"{comment(*_described(data, layout, is_in_ram=symbol in in_ram))}\n"
        parts.append(Part(f"{note}{definition}\n", "table", name, len(note)))
    return parts


def weights_header(
    banner: str, model: str, constants: Mapping[str, Array], in_ram: Collection[str] = (), *, flash_is_apart: bool
) -> list[str]:
    """Return `<model>_weights.h`; for an AVR, with the macro that it needs to read flash."""
    lines = [c_text.declaration(f"extern {declaration(symbol, data, in_ram)}") for symbol, data in constants.items()]
    far = Part("#define MT_FLASH_FAR /* without it, an AVR reaches only 64 KB */", "far")
    before = ["#include <stdint.h>", ""]
    if flash_is_apart:
        before += [*[far] * (total_bytes(constants) > AVR_NEAR), *include("mt_flash.h"), ""]
    return c_text.header(banner, f"{model}_weights", before, [*lines, ""] if lines else [])


def _alignment(layout: str) -> str:
    """Return the attribute for a table whose layout begins with its alignment: "aligned to 16 bytes"."""
    bytes_ = alignment_of(layout)
    return f"__attribute__((aligned({bytes_}))) " if bytes_ else ""


def _is_packed(layout: str) -> bool:
    """Whether a table is packed for a runtime function: each of its rows is read at once."""
    return layout.startswith("packed")


def _described(data: Array, layout: str, *, is_in_ram: bool = False) -> list[str]:
    """Return the lines of the comment above a table: its type, shape and layout."""
    shape = "x".join(map(str, data.shape))
    text = f"{data.dtype.name} {shape}{': ' if layout else ''}{layout}"
    text += ". In RAM, which is read faster than flash" if is_in_ram else ""
    text += _REASONS.get(data.dtype.name, "") if _is_packed(layout) else ""
    return textwrap.wrap(text, WIDTH - 4, break_long_words=False)


def number_rows(data: Array, *, is_packed: bool = False) -> str:
    """Return the elements of an array as rows of C literals."""
    dtype = DType.of(data.dtype)
    flat = data.reshape(-1)
    if dtype.is_half:
        dtype = DType.UINT16 if dtype.size == 2 else DType.UINT8
        flat = flat.view(dtype.numpy)
    text, width = _columns(flat, dtype, is_words=is_packed and dtype is DType.UINT32)
    count = len(text) // width
    columns = max(1, (WIDTH - 4) // width)
    if columns > 8:
        columns -= columns % 8
    # each row of packed words begins a line, so that its parts are easy to see
    row = data.shape[-1] if is_packed and data.ndim > 1 else count
    starts = [start for first in range(0, count, row) for start in range(first, first + row, columns)]
    ends = [min(start + columns, (start // row + 1) * row) for start in starts]
    return "\n".join(f"    {text[start * width : end * width - 1]}" for start, end in zip(starts, ends, strict=True))


_WORD = np.frombuffer(b"0x00000000u, ", np.uint8)
_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def _columns(flat: Array, dtype: DType, *, is_words: bool) -> tuple[str, int]:
    """Return all elements as C, as `literal` writes them, each with ", " behind it, and their common width."""
    if is_words and flat.size:
        words = np.tile(_WORD, (flat.size, 1))
        words[:, 2:10] = _DIGITS[flat[:, None] >> np.arange(28, -1, -4, dtype=np.uint32) & 15]
        return words.tobytes().decode(), len(_WORD)
    if dtype.is_integer and dtype.size == 1 and flat.size:  # each number of the range is written once
        least, most = int(flat.min()), int(flat.max())
        longest = max(len(str(least)), len(str(most)))
        table = "".join(f"{number:>{longest}}, " for number in range(least, most + 1)).encode()
        rows = np.frombuffer(table, np.uint8).reshape(-1, longest + 2)
        return rows[flat.astype(np.intp) - least].tobytes().decode(), longest + 2
    if dtype.is_integer and dtype.size < 4:
        texts = [str(number) for number in flat.tolist()]
    elif dtype in (DType.FLOAT32, DType.FLOAT64) and np.isfinite(flat).all():
        suffix = "f" if dtype is DType.FLOAT32 else ""
        texts = [f"{number!s}{suffix}" for number in flat]
    else:
        texts = [literal(number, dtype).c for number in flat.tolist()]
    texts = texts or ["0"]  # C has no empty arrays
    longest = max(map(len, texts))
    return f"%{longest}s, " * len(texts) % tuple(texts), longest + 2


def total_bytes(constants: Mapping[str, Array]) -> int:
    """Return the bytes of all constants."""
    return int(np.sum([data.nbytes for data in constants.values()], dtype=np.int64)) if constants else 0


# Constants that take more flash than they take in the model's file, and why.


MOST = 1.1  # times the bytes in the file, beyond which it is reported
_EXPANDING = ("DequantizeLinear", "Transpose", "Reshape")  # nodes between an operator and its constants
_FURTHEST = 8  # of them, and the operator, in a row: quantizers write three


@frozen
class FileConstants:
    """The constants of one operator of the model: the name and type of the largest, and the bytes of all."""

    tensor: str
    dtype: DType
    bytes: int


@frozen
class ModelConstants:
    """The constants of a model as it was read: its parameters, and those of each operator by name."""

    parameters: int = 0
    operators: Mapping[str, FileConstants] = field(default_factory=dict)


def constants_of(graph: Graph) -> ModelConstants:
    """Return the constants of a model as it was read."""
    return ModelConstants(parameter_count(graph), _by_operator(graph))


def _by_operator(graph: Graph) -> dict[str, FileConstants]:
    makers = graph.producers()
    by_origin: dict[str, dict[str, Array]] = {}
    for node in graph.nodes:
        for origin in node.origins if node.op not in _EXPANDING else ():
            by_origin.setdefault(origin, {}).update(_constants_behind(node, graph, makers))
    result = {}
    for origin, constants in by_origin.items():
        if constants:
            largest = max(constants, key=lambda name: constants[name].nbytes)
            kinds = {name: _in_file(data, graph) for name, data in constants.items()}
            bytes_in_file = sum(data.size * kinds[name].size for name, data in constants.items())
            result[origin] = FileConstants(largest, kinds[largest], bytes_in_file)
    return result


def _in_file(data: Array, graph: Graph) -> DType:
    """Return the type of a constant in the file: a Cast of float16 to float32 is folded as the model is read."""
    kind = DType.of(data.dtype)
    return DType.FLOAT16 if kind is DType.FLOAT32 and graph.halves and are_halves(data) else kind


def _constants_behind(node: Node, graph: Graph, makers: Mapping[str, Node]) -> dict[str, Array]:
    """Return the constants that a node reads, by name, directly or through nodes that only expand or move them."""
    constants: dict[str, Array] = {}
    values = node.inputs
    for _ in range(_FURTHEST):
        constants.update((value, graph.constants[value]) for value in values if value in graph.constants)
        between = [makers[value] for value in values if value not in graph.constants and value in makers]
        values = tuple(dict.fromkeys(v for maker in between if maker.op in _EXPANDING for v in maker.inputs))
    return constants


def weight_overheads(
    plan: Plan, functions: Functions, filed: Mapping[str, FileConstants]
) -> tuple[WeightOverhead, ...]:
    """Return the weighted operators whose constants grew by more than a tenth, the largest growth in bytes first.

    Constants packed for a computer's vectors are left out: its memory is not scarce.
    """
    grown, seen = [], set[str]()
    for step, call in zip(plan.steps, functions.calls, strict=True):
        tables = {name: functions.read[symbol] for name, symbol in call.constants.items()}
        origins = [filed[name] for name in step.node.origins if name in filed]
        symbol = call.constants.get("weights", "") if isinstance(step.node.attrs, WeightedSum) else ""
        if not symbol and any(origin.dtype is DType.FLOAT16 for origin in origins):
            symbol = next((call.constants[name] for name, data in tables.items() if data.dtype == np.float32), "")
        if not origins or not symbol or symbol in seen or step.schedule.name.startswith("simd_"):
            continue
        seen.add(symbol)  # of operators by rows, and equal ones, once
        bytes_in_file, bytes_in_flash = (sum(o.bytes for o in origins), sum(data.nbytes for data in tables.values()))
        if bytes_in_flash > MOST * bytes_in_file:
            largest = max(origins, key=lambda origin: origin.bytes)
            reason = _reason(step, plan.graph, functions.read[symbol], largest.dtype)
            grown.append(
                WeightOverhead(
                    tensor=largest.tensor,
                    operator=step.node.title,
                    file_bytes=bytes_in_file,
                    flash_bytes=bytes_in_flash,
                    reason=reason,
                    for_speed=step.schedule.grown_bytes(step.node, plan.graph) > 0,
                )
            )
    return tuple(sorted(grown, key=lambda overhead: overhead.file_bytes - overhead.flash_bytes))


def _reason(step: Step, graph: Graph, stored: Array, in_file: DType) -> str:
    """Return why an operator's weights take more than in the file."""
    name = schedule_text(step.schedule)
    if in_file is DType.FLOAT16 and stored.dtype == np.float32:
        return f"float16 weights are float32 in {name}"
    kind = graph.types[step.node.inputs[1]].dtype
    if kind.is_float and in_file.is_integer:
        return f"{in_file.label} weights are float32, since the activations are"
    if stored.dtype.itemsize == kind.size > in_file.size:
        return f"{in_file.label} weights less their zero point are {kind.label} in {name}"
    if step.schedule.grown_bytes(step.node, graph) > 0:
        return f"transformed for {name}, which takes fewer instructions; --optimize size leaves them as they are"
    return f"packed for {name}: padded, with biases and scales"
