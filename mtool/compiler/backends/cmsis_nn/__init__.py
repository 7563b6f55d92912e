"""CMSIS-NN: int8 and int16 operators, computed by the user's own copy of Arm's library.

Its arithmetic is that of TFLite's reference kernels, so that results are theirs with `--rounding tflite`; elsewhere
they may be one step off, which `--tolerance 1` must allow.
"""

import ctypes
import functools
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtool.base import proc
from mtool.base.errors import UsageError
from mtool.compiler.backends.call import CallBuilder
from mtool.compiler.backends.cmsis_nn import conditions
from mtool.compiler.backends.cmsis_nn.conditions import function_of, is_wide, limits, product_scales, scales_of
from mtool.compiler.backends.interface import Backend, BackendError, Context, Operand, Operation, Product, Region
from mtool.compiler.backends.quantized import bias_of, is_depthwise, rows_of
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.interpolation import exponentials, reciprocals
from mtool.compiler.kernels.scaling import fixed_multiplier
from mtool.compiler.operators.recurrent import IntegerLstm, IntegerSvdf
from mtool.compiler.operators.window import CONV, Convolution, Pool, four_pads, pair

# The user's own CMSIS-NN: its folder, the files that a function needs, and the buffer sizes that it requests.

FOLDER = "cmsis_nn"
"""The folder of its files, in the model's own."""
_HEADER = "arm_nnfunctions.h"
_DEFINED = re.compile(r"^[A-Za-z_][\w \t*\n]*?\b(arm_\w+)\s*\([^;{}]*\)\s*\{", re.MULTILINE)
_TABLE = re.compile(r"^const [\w ]+?\b(\w+)\[[^]]*\]\s*=", re.MULTILINE)
_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]+")([^"]+)(")', re.MULTILINE)
_QUIET = "\n".join(
    f'#pragma GCC diagnostic ignored "-W{warning}"'
    for warning in ("conversion", "sign-conversion", "shadow", "sign-compare", "unused-parameter", "cast-qual")
)


@dataclass(frozen=True)
class Library:
    """A folder with the Include and Source of CMSIS-NN."""

    folder: Path

    @functools.cached_property
    def _sources(self) -> dict[str, str]:
        """The text of each source, by the file's name; those of floats are left out."""
        sources = {}
        for path in sorted((self.folder / "Source").rglob("*.c")):
            if not re.search(r"_(f16|f32|flt)\.c$", path.name):
                sources[path.name] = path.read_text("utf-8", "replace")
        return sources

    @functools.cached_property
    def _where(self) -> dict[str, str]:
        """The file in which each function and table is defined."""
        return {
            name: file
            for file, text in self._sources.items()
            for name in (*_DEFINED.findall(text), *_TABLE.findall(text))
        }

    def files(self, functions: Iterable[str]) -> dict[str, bytes]:
        """Return the files that functions need, by path in the model's folder.

        The user's files, with changed paths in `#include` and a line that disables warnings.

        Raises:
            BackendError: it has no such function.
        """
        sources: dict[str, str] = {}
        waiting = [*functions]
        for name in waiting:
            if name not in self._where:
                raise self._missing(name)
        while waiting:
            file = self._where[waiting.pop()]
            if file in sources:
                continue
            sources[file] = text = self._sources[file]
            waiting += [name for name in {*re.findall(r"\b\w+\b", text)} if name in self._where]
        headers = self._headers(sources.values())
        files = {f"{FOLDER}/{name}": f"{_QUIET}\n{text}" for name, text in sources.items()}
        files |= {f"{FOLDER}/{name}": _with_paths(name, text) for name, text in headers.items()}
        return {name: text.encode() for name, text in sorted(files.items())}

    def lacks(self, function: str) -> str:
        """Return why a function can't be used; "": it can."""
        if function not in self._where:
            return f"{self.folder} has no {function}; mtool is tested with CMSIS-NN 7 and newer"
        if function == "arm_lstm_unidirectional_s8" and not self.declares("hidden_state"):
            return f"{self.folder} has an LSTM that does not take its state as an argument; use a newer CMSIS-NN"
        return ""

    def _missing(self, function: str) -> BackendError:
        return BackendError(f"{self.folder} has no {function}", hint="mtool is tested with CMSIS-NN 7 and newer")

    def declares(self, name: str) -> bool:
        """Whether its types have a member, which an older CMSIS-NN may lack."""
        return re.search(rf"\b{name}\b", self._types) is not None

    @functools.cached_property
    def _types(self) -> str:
        return (self.folder / "Include" / "arm_nn_types.h").read_text("utf-8", "replace")

    def _headers(self, texts: Iterable[str]) -> dict[str, str]:
        """Return the headers that texts include, and those that these include, by path below Include."""
        headers: dict[str, str] = {}
        waiting = [_HEADER, *(name for text in texts for _, name, _ in _INCLUDE.findall(text))]
        while waiting:
            name = waiting.pop()
            path = self.folder / "Include" / name
            if name in headers or not path.is_file():
                continue
            headers[name] = path.read_text("utf-8", "replace")
            waiting += [included for _, included, _ in _INCLUDE.findall(headers[name])]
        return headers

    @functools.cached_property
    def _buffers(self) -> ctypes.CDLL:
        """The functions that return buffer sizes, built for this machine to be called at compile time."""
        compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
        if compiler is None:
            message = "CMSIS-NN's buffer sizes are computed with a C compiler on this machine, and none was found"
            raise BackendError(message, hint="install gcc or clang")
        paths = sorted((self.folder / "Source").rglob("*get_buffer_size*.c"))
        sources = [path for path in paths if re.search(r"_s(8|16)\.c$", path.name)]
        with tempfile.TemporaryDirectory(prefix="mtool-") as folder:
            library = Path(folder) / "buffers.so"
            argv = [compiler, "-shared", "-fPIC", "-w", "-O0", f"-I{self.folder / 'Include'}", "-o", str(library)]
            proc.run([*argv, *map(str, sources)], what="CMSIS-NN's buffer sizes", timeout_s=120, error=BackendError)
            return ctypes.CDLL(str(library))

    def result_of(self, function: str, *arguments: Sequence[int] | int) -> int:
        """Return the result of `<function>`; a sequence is a struct of int32_t, passed by address."""
        try:
            call = getattr(self._buffers, function)
        except AttributeError:
            raise self._missing(function) from None
        call.restype = ctypes.c_int32
        passed = [
            ctypes.c_int32(arg) if isinstance(arg, int) else ctypes.byref((ctypes.c_int32 * len(arg))(*arg))
            for arg in arguments
        ]
        return int(call(*passed))


def _with_paths(name: str, text: str) -> str:
    """Return a header's text, with `../` in its includes if it lies in a subfolder."""
    if "/" not in name:
        return text
    return _INCLUDE.sub(lambda match: f"{match[1]}../{match[2]}{match[3]}", text)


def find_library(path: str) -> Library:
    """Return the CMSIS-NN of the option `path`, else of CMSIS_NN_DIR, else of a Zephyr workspace.

    Raises:
        UsageError: it was not found.
    """
    zephyr = os.environ.get("ZEPHYR_BASE")
    places = [path] if path else [os.environ.get("CMSIS_NN_DIR", "")]
    if not any(places) and zephyr:
        places += [str(Path(zephyr).parent / "modules/lib" / name) for name in ("cmsis-nn", "CMSIS-NN")]
    for place in filter(None, places):
        if (Path(place) / "Include" / _HEADER).is_file():
            return Library(Path(place).resolve())
    looked = ", ".join(filter(None, places))
    why = f"looked for Include/{_HEADER} in {looked}" if looked else "neither path= nor CMSIS_NN_DIR is set"
    hint = "download it from Arm and give its folder: --backend cmsis_nn:path=DIR"
    raise UsageError("CMSIS-NN was not found", details=[why], hint=hint)


class CmsisNn(Backend):
    """Convolutions, matrix products, pools, softmax, sums and products of int8 and int16 tensors with CMSIS-NN."""

    name = "cmsis_nn"
    layout = "NHWC"
    whole_regions = False
    patterns = conditions.PATTERNS
    options: Mapping[str, str] = {
        "path": "the folder of CMSIS-NN, with Include and Source; default: CMSIS_NN_DIR, or a Zephyr workspace"
    }

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.library = find_library(self.values.get("path", ""))

    def refusal(self, operation: Operation, context: Context) -> str:
        """Also: the library is too old for it; its arithmetic is not that of the rest of the network."""
        if context.target.is_8_bit:
            return "it needs a 32-bit core"
        return (
            super().refusal(operation, context)
            or self.library.lacks(function_of(operation))
            or conditions.rounding(operation, context)
        )

    def compile(self, region: Region, folder: Path) -> Product:
        """Return the call of the one operation."""
        return Call(self.library, region).finished()


# Calls of CMSIS-NN: their C, constants and working memory.
# Source of LSTM and SVDF: tflite-micro's kernels/cmsis_nn/unidirectional_sequence_lstm.cc and svdf.cc.


Dims = tuple[int, int, int, int]
"""Batch, height, width, channels."""
Field = int | tuple[int, int]


class Call(CallBuilder):
    """A call of the library function that computes a region's only operation."""

    def __init__(self, library: Library, region: Region) -> None:
        super().__init__(region, 16, headers=[f"{FOLDER}/arm_nnfunctions.h"])
        self.library = library
        self.function = function_of(region.operations[0])

    def finished(self) -> Product:
        """Return the product, with the files that the function needs."""
        (operation,) = self.region.operations
        _WRITERS[operation.kind](self, operation)
        self.files = self.library.files([self.function])
        return self.product(alignment=16 if self.scratch_bytes else 4)

    def take(self, count: int) -> str:
        """Return the address of some bytes of working memory in C."""
        offset = self.reserve(-(-count // self.alignment) * self.alignment)
        return f"scratch + {offset}" if offset else "scratch"

    def array(self, name: str, kind: str, count: int) -> str:
        """Name some bytes as an array of a type."""
        self.lines.append(f"{kind} *{name} = ({kind} *)({self.take(count)});")
        return name

    def result(self, operand: Operand, name: str) -> str:
        """Return a result's name in C; one that only the region reads is an array in the scratch."""
        return self.names.get(operand.value) or self.array(name, f"{operand.dtype.label}_t", operand.type.bytes)

    def copied_state(self, old: Operand, new: Operand, name: str) -> str:
        """Copy a state to its new place, where the function updates it; return its name in C."""
        place = self.result(new, name)
        self.lines.append(f"memmove({place}, {self.names[old.value]}, {old.type.bytes});")
        return place

    @property
    def has_helium(self) -> bool:
        """Whether CMSIS-NN uses its Helium loops on the core, with or without floats."""
        return "mve" in self.region.context.target.features

    def per_channel(self, scales: Sequence[float], item: str) -> list[str]:
        """Add the multipliers and shifts of scales, and return the lines of the struct that has them."""
        multipliers, shifts = zip(*map(fixed_multiplier, scales), strict=True)
        self.constant("multipliers", np.asarray(multipliers, np.int32), f"one {item}, 31 bits behind the point")
        self.constant("shifts", np.asarray(shifts, np.int32), f"one {item}, to the left")
        return [
            "const cmsis_nn_per_channel_quant_params by = {",
            "    (int32_t *)(uintptr_t)multipliers, (int32_t *)(uintptr_t)shifts",
            "};",
        ]

    def buffer_bytes(self, *arguments: Sequence[int] | int) -> int:
        """Return the working memory of the function on the core; a sequence is a struct of int32_t.

        It suits builds with and without the DSP extension, which their flags decide.
        """
        name = f"{self.function}_get_buffer_size"
        names = [f"{name}_mve"] if self.has_helium else [name, f"{name}_dsp"]
        return max(self.library.result_of(function, *arguments) for function in names)

    def buffer(self, size: int) -> None:
        """Add the context struct with the working memory."""
        self.scratch_bytes = size
        self.lines.append(f"const cmsis_nn_context context = {{{'scratch' if size else 'NULL'}, {size}}};")


def image(shape: Sequence[int]) -> Dims:
    """Return batch, height, width, channels of an image, or of a sequence."""
    if len(shape) == 3:
        return shape[0], 1, shape[1], shape[2]
    batch, height, width, channels = shape
    return batch, height, width, channels


def dims(**named: Dims) -> list[str]:
    """Return the lines of dimensions."""
    return [
        f"const cmsis_nn_dims {name} = {{.n = {n}, .h = {h}, .w = {w}, .c = {c}}};"
        for name, (n, h, w, c) in named.items()
    ]


def struct(declared: str, fields: Mapping[str, Field]) -> list[str]:
    """Return the lines of a constant struct; a pair is a struct in it."""
    texts = {name: f"{{{listed(value)}}}" if isinstance(value, tuple) else str(value) for name, value in fields.items()}
    return [f"const {declared} = {{", *(f"    .{name} = {text}," for name, text in texts.items()), "};"]


def numbers_in(fields: Mapping[str, Field]) -> list[int]:
    """Return the numbers in a struct, in order."""
    return [number for value in fields.values() for number in (value if isinstance(value, tuple) else (value,))]


def listed(numbers: Sequence[int]) -> str:
    """Return arguments in C."""
    return ", ".join(map(str, numbers))


def convolution(call: Call, operation: Operation) -> None:
    """Conv of int8 or int16: arm_convolve_wrapper_s8 and its like, or arm_depthwise_conv_wrapper_s8."""
    attrs = Convolution.of(operation)
    x, weights, output = operation.operand(0), operation.operand(1), operation.output
    data = weights.elements
    data = data[:, :, None, :] if data.ndim == 3 else data
    channels, inner, height, width = data.shape
    source, result = image(x.shape), image(output.shape)
    top, left, _, _ = four_pads(attrs.pads)
    strides, dilations = pair(attrs.strides, 1), pair(attrs.dilations, 1)
    apart, wide = is_depthwise(operation), is_wide(operation)
    low, high = limits(operation)
    params: dict[str, Field] = {
        "input_offset": -x.zero_point,
        "output_offset": output.zero_point,
        **({"ch_mult": channels // source[3]} if apart else {}),
        "stride": (strides[1], strides[0]),
        "padding": (left, top),
        "dilation": (dilations[1], dilations[0]),
        "activation": (low, high),
    }
    kernel: Dims = (1, height, width, channels) if apart else (channels, height, width, inner)
    packed = data.transpose(2, 3, 0, 1)[..., 0] if apart else data.transpose(0, 2, 3, 1)
    kind = "dw_conv" if apart else "conv"
    nodes = call.region.body.nodes if call.region.body is not None else ()
    # Sums of int16 have 32 bits where their bias has: they are scaled by multipliers of 31 bits then.
    narrow = wide and not apart and any(node.op == "Rescale" for node in nodes)
    layout = "height, width, channel" if apart else "output channel, height, width, input channel"
    call.constant("weights", np.ascontiguousarray(packed), layout)
    offsets = bias_of(operation, channels)
    call.constant("bias", offsets.astype(np.int64) if wide and not narrow else offsets, "one an output channel")
    by = call.per_channel(scales_of(operation, channels), "an output channel")
    call.buffer(call.buffer_bytes(numbers_in(params), source, kernel, result))
    call.lines += [
        *struct(f"cmsis_nn_{kind}_params params", params),
        *by,
        *dims(input_dims=source, filter_dims=kernel, bias_dims=(1, 1, 1, channels), output_dims=result),
    ]
    bias = "bias"
    if wide and not apart and call.library.declares("cmsis_nn_bias_data"):
        call.lines.append(f"const cmsis_nn_bias_data offsets = {{bias, {'true' if narrow else 'false'}}};")
        bias = "&offsets"
    call.lines += [
        f"{call.function}(&context, &params, &by, &input_dims, input0, &filter_dims, weights, &bias_dims, {bias},",
        "    &output_dims, output0);",
    ]


def pool(call: Call, operation: Operation) -> None:
    """Pool of int8 or int16: arm_avgpool_s8, arm_max_pool_s8 and their like."""
    attrs = Pool.of(operation)
    source, result = image(operation.operand(0).shape), image(operation.output.shape)
    top, left, _, _ = four_pads(attrs.pads)
    strides, kernel = pair(attrs.strides, 1), pair(attrs.kernel, 1)
    size = 0
    if attrs.kind == "average":
        size = call.buffer_bytes(result[2], source[3])
    params: dict[str, Field] = {
        "stride": (strides[1], strides[0]),
        "padding": (left, top),
        "activation": limits(operation),
    }
    call.buffer(size)
    call.lines += [
        *struct("cmsis_nn_pool_params params", params),
        *dims(input_dims=source, filter_dims=(1, *kernel, 1), output_dims=result),
        f"{call.function}(&context, &params, &input_dims, input0, &filter_dims, &output_dims, output0);",
    ]


def product(call: Call, operation: Operation) -> None:
    """Gemm and MatMul."""
    (_dense if operation.operand(1).is_constant else _batched)(call, operation)


def _dense(call: Call, operation: Operation) -> None:
    """By constants: arm_fully_connected_s8, arm_fully_connected_per_channel_s8 or arm_fully_connected_s16."""
    x, output = operation.operand(0), operation.output
    packed = rows_of(operation)
    count, columns = packed.shape
    batch, offset = math.prod(x.shape) // columns, -x.zero_point
    wide, bias = is_wide(operation), bias_of(operation, count)
    params: dict[str, Field] = {
        "input_offset": offset,
        "filter_offset": 0,
        "output_offset": output.zero_point,
        "activation": limits(operation),
    }
    call.constant("weights", packed, "output, input")
    call.constant("bias", bias.astype(np.int64) if wide else bias, "one an output")
    where = "{NULL, 0}"
    if call.has_helium and not wide:
        sums = (packed.astype(np.int64).sum(1) * offset + bias).astype(np.int32)
        call.constant("sums", sums, "the bias, and the sum of each row times the input's offset")
        where = f"{{(void *)(uintptr_t)sums, {4 * count}}}"
    scales = product_scales(operation)
    several = not operation.operand(1).is_per_tensor
    by = call.per_channel(scales, "an output") if several else _scaling_struct("by", scales[0])
    call.lines += [
        f"const cmsis_nn_context context = {where};",
        *struct("cmsis_nn_fc_params params", params),
        *by,
        *dims(
            input_dims=(batch, 1, 1, columns),
            filter_dims=(columns, 1, 1, count),
            bias_dims=(1, 1, 1, count),
            output_dims=(batch, 1, 1, count),
        ),
        f"{call.function}(&context, &params, &by, &input_dims, input0, &filter_dims, weights, &bias_dims, bias,",
        "    &output_dims, output0);",
    ]


def _batched(call: Call, operation: Operation) -> None:
    """Of two variables: arm_batch_matmul_s8, which reads the second transposed."""
    x, y, output = operation.operand(0), operation.operand(1), operation.output
    *batch, rows, columns = x.shape
    count, parts = y.shape[-1], math.prod(batch)
    low, high = limits(operation)
    offsets = -x.zero_point, -y.zero_point, output.zero_point
    sums = -(-4 * count // 16) * 16 if call.has_helium else 0
    left: Dims = (1, parts, rows, columns)
    source = "input1" if x.value != y.value else "input0"
    call.buffer(sums)
    call.lines += [
        "const cmsis_nn_bmm_params params = {",
        f"    false, true, {{{', '.join(map(str, offsets))}, {{{low}, {high}}}}}",
        "};",
        *_scaling_struct("by", product_scales(operation)[0]),
        *dims(left_dims=left, right_dims=(1, parts, count, columns), output_dims=(1, parts, rows, count)),
        f"int8_t *turned = (int8_t *)(scratch + {sums});",
        f"for (int32_t part = 0; part < {parts}; ++part) {{",
        f"    for (int32_t row = 0; row < {columns}; ++row) {{",
        f"        for (int32_t column = 0; column < {count}; ++column) {{",
        f"            turned[(part * {count} + column) * {columns} + row] =",
        f"                {source}[(part * {columns} + row) * {count} + column];",
        "        }",
        "    }",
        "}",
        "arm_batch_matmul_s8(&context, &params, &by, &left_dims, input0, &right_dims, turned, &output_dims, output0);",
    ]
    call.scratch_bytes = sums + y.type.count


_SHIFTS = {False: 20, True: 15}
"""By how many bits the operands of a sum are shifted to the left; of int16."""


def softmax(call: Call, operation: Operation) -> None:
    """Softmax over the last dimension: arm_softmax_s8, or arm_softmax_s16 with tables."""
    x = operation.operand(0)
    columns = x.shape[-1]
    rows = math.prod(x.shape) // columns
    if is_wide(operation):
        multiplier, shift = fixed_multiplier(x.scales[0] / (10.0 / 65535.0))
        call.lines += [
            "const cmsis_nn_softmax_lut_s16 tables = {exponentials, reciprocals};",
            f"arm_softmax_s16(input0, {rows}, {columns}, {multiplier}, {shift}, &tables, output0);",
        ]
        call.constant("exponentials", exponentials().astype(np.int16), "of -10 to 0")
        call.constant("reciprocals", reciprocals().astype(np.int16), "1 / (1 + x), of 0 to 1")
        return
    scale = min(x.scales[0] * (1 << 26), 2.0**31 - 1)
    multiplier, shift = fixed_multiplier(scale)
    least = -math.floor(((1 << 5) - 1) * (1 << 26) / (1 << shift))
    call.lines.append(f"arm_softmax_s8(input0, {rows}, {columns}, {multiplier}, {shift}, {least}, output0);")


def add(call: Call, operation: Operation) -> None:
    """Add of two tensors of one shape: arm_elementwise_add_s8, arm_elementwise_add_s16."""
    x, y, output = operation.operand(0), operation.operand(1), operation.output
    wide = is_wide(operation)
    scales = x.scales[0], y.scales[0]
    unit = 2 * max(scales)
    numbers: list[int] = []
    for operand, scale in zip((x, y), scales, strict=True):
        numbers += [-operand.zero_point, *fixed_multiplier(scale / unit)]
    shift = _SHIFTS[wide]
    result = fixed_multiplier(unit / float(np.float32(1 << shift) * np.float32(output.scales[0])))
    behind = [output.zero_point, *result, *limits(operation), output.type.count]
    call.lines += [
        f"{call.function}({_operands(operation)}, {listed(numbers)}, {shift},",
        f"    output0, {listed(behind)});",
    ]


def multiply(call: Call, operation: Operation) -> None:
    """Mul of two tensors of one shape: arm_elementwise_mul_s8, arm_elementwise_mul_s16."""
    x, y, output = operation.operand(0), operation.operand(1), operation.output
    factor = np.float32(x.scales[0]) * np.float32(y.scales[0])
    by = fixed_multiplier(float(factor / np.float32(output.scales[0])))
    offsets = [-x.zero_point, -y.zero_point]
    behind = [output.zero_point, *by, *limits(operation), output.type.count]
    call.lines.append(f"{call.function}({_operands(operation)}, {listed(offsets)}, output0, {listed(behind)});")


def _operands(operation: Operation) -> str:
    return "input0, input1" if operation.operand(0).value != operation.operand(1).value else "input0, input0"


_UNIT = np.float32(2.0**-12)  # a step of a gate's sum


def lstm(call: Call, operation: Operation) -> None:
    """IntegerLstm: arm_lstm_unidirectional_s8."""
    attrs = IntegerLstm.of(operation)
    x, hidden, cell = (operation.operand(number) for number in range(3))
    *rows, new_hidden, new_cell = operation.outputs
    images, width = hidden.shape
    temporary = [call.take(2 * images * width) for _ in range(2)]
    states = [call.copied_state(cell, new_cell, "cell"), call.copied_state(hidden, new_hidden, "hidden")]
    # with one step, only the state is read
    rows_name = call.result(rows[0], "rows") if rows else call.array("rows", "int8_t", images * width)
    gates = []
    for number, gate in enumerate(("input", "forget", "cell", "output")):
        weights, recurrent, bias = (operation.operand(3 + 3 * number + part) for part in range(3))
        offsets = _offsets(weights, x) + bias.elements
        call.constant(f"{gate}_weights", weights.elements, "output, input")
        call.constant(f"{gate}_bias", offsets, "one an output, less the weights times the input's zero point")
        call.constant(f"{gate}_recurrent", recurrent.elements, "output, input")
        layout = "the recurrent weights times the state's zero point, less than 0"
        call.constant(f"{gate}_offsets", _offsets(recurrent, hidden), layout)
        by = [*_gate_multiplier(weights, x), f"{gate}_weights", f"{gate}_bias"]
        by += [*_gate_multiplier(recurrent, hidden), f"{gate}_recurrent", f"{gate}_offsets", "NULL"]
        by.append("ARM_TANH" if gate == "cell" else "ARM_SIGMOID")
        gates.append(f"    .{gate}_gate = {{{', '.join(map(str, by))}}},")
    params = struct("cmsis_nn_lstm_params params", _lstm_fields(operation, attrs))
    call.lines += [
        *params[:-1],
        *gates,
        params[-1],
        f"cmsis_nn_lstm_context buffers = {{{', '.join((*temporary, *states))}}};",
        f"arm_lstm_unidirectional_s8({call.names[x.value]}, {rows_name}, &params, &buffers);",
    ]


def _lstm_fields(operation: Operation, attrs: IntegerLstm) -> dict[str, Field]:
    """Return the parameters of an LSTM, without those of its gates."""
    x, hidden = operation.operand(0), operation.operand(1)
    scale = np.float32(2.0**-15 / attrs.inner_scale * 2.0**-15)
    forget, new, out = (fixed_multiplier(by) for by in (2.0**-15, 2.0 ** (-15 - attrs.point), float(scale)))
    return {
        "time_major": attrs.time_major,
        "batch_size": hidden.shape[0],
        "time_steps": attrs.steps,
        "input_size": x.shape[-1],
        "hidden_size": hidden.shape[1],
        "input_offset": -x.zero_point,
        "forget_to_cell_multiplier": forget[0],
        "forget_to_cell_shift": forget[1],
        "input_to_cell_multiplier": new[0],
        "input_to_cell_shift": new[1],
        "cell_clip": attrs.clip,
        "cell_scale_power": attrs.point - 15,
        "output_multiplier": out[0],
        "output_shift": out[1],
        "output_offset": attrs.inner_zero,
    }


def svdf(call: Call, operation: Operation) -> None:
    """IntegerSvdf: arm_svdf_s8, or arm_svdf_state_s16_s8 with a state of int16."""
    attrs = IntegerSvdf.of(operation)
    x, state, features, time = (operation.operand(number) for number in range(4))
    result, last = operation.outputs
    (images, numbers), (filters, steps) = x.shape, time.shape
    units, wide = filters // attrs.rank, state.dtype.label == "int16"
    single = [np.float32(operand.scales[0]) for operand in (x, features, state, time, result)]
    sums, totals = call.take(4 * images * filters), call.take(4 * images * units)
    new_state, output = call.copied_state(state, last, "kept"), call.result(result, "made")
    bias = operation.inputs[4] if len(operation.inputs) > 4 else None
    call.constant("features", features.elements, "filter, number")
    call.constant("time", time.elements, "filter, call")
    call.constant("bias", np.zeros(units, np.int32) if bias is None else bias.elements, "one a unit")
    contexts = "&of_filters, &of_units"
    if not wide:
        layout = "the weights of each filter times the input's zero point, less than 0"
        call.constant("sums", _offsets(features, x), layout)
        call.lines.append(f"const cmsis_nn_context context = {{(void *)(uintptr_t)sums, {4 * filters}}};")
        contexts = f"&context, {contexts}"
    params: dict[str, Field] = {
        "rank": attrs.rank,
        "input_offset": x.zero_point,
        "output_offset": result.zero_point,
        "input_activation": state.dtype.limits,
        "output_activation": result.dtype.limits,
    }
    call.lines += [
        f"const cmsis_nn_context of_filters = {{{sums}, {4 * images * filters}}};",
        f"const cmsis_nn_context of_units = {{{totals}, {4 * images * units}}};",
        *struct("cmsis_nn_svdf_params params", params),
        *_scaling_struct("before", float(single[0] * single[1] / single[2])),
        *_scaling_struct("behind", float(single[2] * single[3] / single[4])),
        *dims(
            input_dims=(images, numbers, 1, 1),
            state_dims=(images, steps * filters, 1, 1),
            feature_dims=(filters, numbers, 1, 1),
            time_dims=(filters, steps, 1, 1),
            bias_dims=(units, 1, 1, 1),
            output_dims=(images, units, 1, 1),
        ),
        f"{call.function}({contexts}, &params, &before, &behind, &input_dims, {call.names[x.value]}, &state_dims,",
        f"    {new_state}, &feature_dims, features, &time_dims, time, &bias_dims, bias, &output_dims, {output});",
    ]


def _scaling_struct(name: str, scale: float) -> list[str]:
    multiplier, shift = fixed_multiplier(scale)
    return struct(f"cmsis_nn_per_tensor_quant_params {name}", {"multiplier": multiplier, "shift": shift})


def _offsets(weights: Operand, x: Operand) -> Array:
    """Return the sum of each row of weights, times the offset of their inputs."""
    offsets: Array = (-x.zero_point * weights.elements.astype(np.int64).sum(1)).astype(np.int32)
    return offsets


def _gate_multiplier(weights: Operand, x: Operand) -> tuple[int, int]:
    scales = np.float32(weights.scales[0]) * np.float32(x.scales[0])
    return fixed_multiplier(float(np.float32(scales) / _UNIT))


_WRITERS: Mapping[str, Callable[[Call, Operation], None]] = {
    CONV: convolution, "Gemm": product, "MatMul": product, "Pool": pool, "Softmax": softmax, "Add": add,
    "Mul": multiply, "IntegerLstm": lstm, "IntegerSvdf": svdf,
}  # fmt: skip
