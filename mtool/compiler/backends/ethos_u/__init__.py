"""Ethos-U: int8 and uint8 regions on Arm's NPU, compiled by Vela and run by the Ethos-U core driver.

The NPU rounds as TFLite's reference kernels do, so that results are theirs with `--rounding tflite`; elsewhere they may
be one step off, which `--tolerance 1` must allow.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import tflite

from mtool.base.errors import UsageError
from mtool.compiler.backends import quantized
from mtool.compiler.backends.call import CallBuilder
from mtool.compiler.backends.ethos_u import vela
from mtool.compiler.backends.ethos_u.vela import COMPILED, Compiled, precompiled
from mtool.compiler.backends.interface import (
    Backend,
    BackendError,
    Context,
    Operand,
    Operation,
    OperationsRefused,
    Pattern,
    Product,
    Region,
)
from mtool.compiler.backends.quantized import bias_of, is_depthwise, rows_of
from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Array, Quant
from mtool.compiler.operators.lowering import AlongAxis
from mtool.compiler.operators.movement import Pad
from mtool.compiler.operators.reduce import Axes
from mtool.compiler.operators.window import CONV, Convolution, Pool, Window

# Writes regions as TFLite models for Vela, with the user's tensor names.

_VERSION = 3  # of the schema
_CONSTANT_ALIGNMENT = 16  # of constants
_TYPES = {
    DType.INT8: tflite.TensorType.INT8,
    DType.UINT8: tflite.TensorType.UINT8,
    DType.INT16: tflite.TensorType.INT16,
    DType.INT32: tflite.TensorType.INT32,
    DType.INT64: tflite.TensorType.INT64,
}


class Model:
    """A TFLite model with one subgraph under construction: each tensor and operator is written at once, as a table."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1024)
        self.tensors: list[int] = []
        self.operators: list[int] = []
        self.buffers = [self.table("Buffer")]
        self.codes: dict[tuple[str, int], int] = {}

    def table(self, kind: str, **fields: float) -> int:
        """Append a table of the schema with its fields in this order."""
        getattr(tflite, f"{kind}Start")(self.builder)
        for name, value in fields.items():
            getattr(tflite, f"{kind}Add{name}")(self.builder, value)
        return int(getattr(tflite, f"{kind}End")(self.builder))

    def offsets(self, offsets: Sequence[int]) -> int:
        """Append a vector of tables."""
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def numbers(self, numbers: Sequence[int]) -> int:
        """Append a vector of numbers."""
        return int(self.builder.CreateNumpyVector(np.asarray(numbers, np.int32)))

    def tensor(
        self, name: str, shape: Sequence[int], dtype: DType, quant: Quant | None = None, data: Array | None = None
    ) -> int:
        """Append a tensor, with its elements if it is a constant, and return its number."""
        b, buffer = self.builder, 0
        if data is not None:
            raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            b.StartVector(1, raw.size, _CONSTANT_ALIGNMENT)
            b.head -= raw.size
            b.Bytes[b.head : b.head + raw.size] = raw.tobytes()
            buffer = len(self.buffers)
            self.buffers.append(self.table("Buffer", Data=b.EndVector()))
        title, sizes = b.CreateString(name), self.numbers(shape)
        grid: dict[str, int] = {}
        if quant is not None:
            scale = b.CreateNumpyVector(np.asarray(quant.scale, np.float32))
            points = b.CreateNumpyVector(np.asarray(quant.zero_point, np.int64))
            fields = {"Scale": scale, "ZeroPoint": points, "QuantizedDimension": quant.axis or 0}
            grid = {"Quantization": self.table("QuantizationParameters", **fields)}
        self.tensors.append(self.table("Tensor", Shape=sizes, Type=_TYPES[dtype], Buffer=buffer, Name=title, **grid))
        return len(self.tensors) - 1

    def operator(
        self,
        code: str,
        version: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        table: str = "",
        options: Mapping[str, int | float] | None = None,
    ) -> None:
        """Append an operator.

        Args:
            code: its name in the schema's BuiltinOperator.
            version: the lowest that supports its element types.
            inputs, outputs: the numbers of its tensors.
            table: the name of its options' table; "": it has none.
            options: their fields, as the schema's functions spell them; missing ones are 0.
        """
        more: dict[str, int] = {}
        if table:
            kind = getattr(tflite.BuiltinOptions, table)
            more = {"BuiltinOptionsType": kind, "BuiltinOptions": self.table(table, **(options or {}))}
        index = self.codes.setdefault((code, version), len(self.codes))
        ins, outs = self.numbers(inputs), self.numbers(outputs)
        self.operators.append(self.table("Operator", OpcodeIndex=index, Inputs=ins, Outputs=outs, **more))

    def finish(self, name: str, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """Return the file; inputs and outputs are numbers of tensors."""
        codes = []
        for code, version in self.codes:
            number = getattr(tflite.BuiltinOperator, code)
            fields = {"DeprecatedBuiltinCode": min(number, 127), "BuiltinCode": number, "Version": version}
            codes.append(self.table("OperatorCode", **fields))
        title, ins, outs = self.builder.CreateString(name), self.numbers(inputs), self.numbers(outputs)
        tensors, operators = self.offsets(self.tensors), self.offsets(self.operators)
        graph = self.table("SubGraph", Tensors=tensors, Inputs=ins, Outputs=outs, Operators=operators, Name=title)
        lists = [self.offsets(items) for items in (codes, [graph], self.buffers)]
        fields = dict(zip(("OperatorCodes", "Subgraphs", "Buffers"), lists, strict=True))
        self.builder.Finish(self.table("Model", Version=_VERSION, **fields), b"TFL3")
        return bytes(self.builder.Output())


def padding_of(attrs: Window, image: Sequence[int], result: Sequence[int]) -> str | None:
    """Return the kind of padding of a window over height and width: "VALID" or "SAME"; None: neither.

    Args:
        attrs: the window.
        image, result: the shapes of its input and output, with the channels last.
    """
    pads, shape = [*attrs.pads], [*result[1:3]]
    reach = [(kernel - 1) * dilation + 1 for kernel, dilation in zip(attrs.kernel, attrs.dilations, strict=True)]
    sides = [*zip(image[1:3], reach, attrs.strides, strict=True)]
    if not any(pads) and shape == [(size - wide) // stride + 1 for size, wide, stride in sides]:
        return "VALID"
    same = [-(-size // stride) for size, _, stride in sides]
    totals = [
        max((count - 1) * stride + wide - size, 0) for count, (size, wide, stride) in zip(same, sides, strict=True)
    ]
    is_same = pads == [*(total // 2 for total in totals), *(total - total // 2 for total in totals)]
    return "SAME" if is_same and shape == same else None


_ACTIVATIONS = {
    (None, None): "NONE",
    (0.0, None): "RELU",
    (0.0, 6.0): "RELU6",
    (-1.0, 1.0): "RELU_N1_TO_1",
}


def tflite_of(region: Region) -> bytes:
    """Return a region as a TFLite model, whose inputs and outputs are the region's in order."""
    return _Writer(region).model()


def activation_of(operation: Operation) -> str | None:
    """Return TFLite's name of an operation's fused activation; None: TFLite has none with these limits."""
    activation = operation.activation
    if activation is None:
        return "NONE"
    low, high = activation.low, activation.high
    if (low, high) not in _ACTIVATIONS:
        output = operation.output
        first, last = ((limit - output.zero_point) * output.scales[0] for limit in output.dtype.limits)
        low = None if low is not None and low <= first else low
        high = None if high is not None and high >= last else high
    return _ACTIVATIONS.get((low, high))


class _Writer(Model):
    def __init__(self, region: Region) -> None:
        super().__init__()
        self.region = region
        self.variables: dict[str, int] = {}  # the numbers of the variable tensors, by value

    def model(self) -> bytes:
        region = self.region
        for operand in region.inputs:
            self.variable(operand)
        for operation in region.operations:
            for operand in operation.variables:
                self.variable(operand)
            WRITERS[operation.kind](self, operation)
        inputs, outputs = ([self.variables[x.value] for x in side] for side in (region.inputs, region.outputs))
        return self.finish(region.name, inputs, outputs)

    def variable(self, operand: Operand) -> int:
        if operand.value not in self.variables:
            self.variables[operand.value] = self.tensor(operand.tensor, operand.shape, operand.dtype, operand.quant)
        return self.variables[operand.value]

    def constant(self, operand: Operand, data: Array, axis: int) -> int:
        """Add a constant whose elements were moved; `axis`: the axis of its scales now."""
        quant = operand.quant
        if quant is not None:
            quant = Quant(quant.scale, quant.zero_point, axis if len(quant.scale) > 1 else None)
        return self.tensor(operand.tensor, data.shape, operand.dtype, quant, data)

    def constant_numbers(self, name: str, numbers: Array) -> int:
        return self.tensor(name, numbers.shape, DType.INT32, None, numbers.astype(np.int32))

    def call(
        self,
        code: str,
        version: int,
        operation: Operation,
        inputs: Sequence[int],
        table: str = "",
        options: Mapping[str, int | float] | None = None,
    ) -> None:
        self.operator(code, version, inputs, [self.variable(operand) for operand in operation.outputs], table, options)

    def bias(self, operation: Operation, weights: Operand, count: int) -> int:
        bias = operation.inputs[2] if len(operation.inputs) > 2 else None
        x_scale = np.float32(operation.operand(0).scales[0])
        scales = tuple(float(x_scale * np.float32(scale)) for scale in weights.scales)
        quant = Quant(scales, (0,) * len(scales), 0 if len(scales) > 1 else None)
        name = f"{operation.output.tensor}/bias" if bias is None else bias.tensor
        return self.tensor(name, (count,), DType.INT32, quant, bias_of(operation, count))


def _fused(operation: Operation) -> dict[str, int]:
    return {"FusedActivationFunction": getattr(tflite.ActivationFunctionType, activation_of(operation) or "NONE")}


def _strides(attrs: Window, padding: str) -> dict[str, int]:
    return {"StrideH": attrs.strides[0], "StrideW": attrs.strides[1], "Padding": getattr(tflite.Padding, padding)}


def _convolution(writer: _Writer, operation: Operation) -> None:
    attrs = Convolution.of(operation)
    x, weights = operation.operand(0), operation.operand(1)
    source, padding = writer.variable(x), padding_of(attrs, x.shape, operation.output.shape)
    if padding is None:  # any other becomes a separate operator before it
        padding, source = "VALID", _padded(writer, operation, attrs)
    depthwise = is_depthwise(operation)
    packed = weights.elements.transpose(*((1, 2, 3, 0) if depthwise else (0, 2, 3, 1)))
    filters = writer.constant(weights, np.ascontiguousarray(packed), 3 if depthwise else 0)
    bias = writer.bias(operation, weights, weights.shape[0])
    options = {
        **_strides(attrs, padding),
        "DilationHFactor": attrs.dilations[0],
        "DilationWFactor": attrs.dilations[1],
        **_fused(operation),
        **({"DepthMultiplier": weights.shape[0] // attrs.group} if depthwise else {}),
    }
    code, table = ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise else ("CONV_2D", "Conv2DOptions")
    writer.call(code, 3, operation, (source, filters, bias), table, options)


def padded_name(operand: Operand) -> str:
    """Return the name of a tensor that is padded before a convolution."""
    return f"{operand.tensor}/padded"


def _padded(writer: _Writer, operation: Operation, attrs: Window) -> int:
    """Add an operator that pads a window's input with zeros, and return its result."""
    x, (top, left, bottom, right) = operation.operand(0), attrs.pads
    batch, height, width, channels = x.shape
    shape = (batch, height + top + bottom, width + left + right, channels)
    pads = writer.constant_numbers(f"{x.tensor}/pads", np.asarray([[0, 0], [top, bottom], [left, right], [0, 0]]))
    result = writer.tensor(padded_name(x), shape, x.dtype, x.quant)
    writer.operator("PAD", 2, (writer.variable(x), pads), (result,), "PadOptions")
    return result


def _dense(writer: _Writer, operation: Operation) -> None:
    x, weights, rows = operation.operand(0), operation.operand(1), rows_of(operation)
    filters = writer.constant(weights, rows, 0)
    bias = writer.bias(operation, weights, len(rows))
    options = {**_fused(operation), "KeepNumDims": int(len(operation.output.shape) != 2)}
    writer.call("FULLY_CONNECTED", 4, operation, (writer.variable(x), filters, bias), "FullyConnectedOptions", options)


def _pool(writer: _Writer, operation: Operation) -> None:
    attrs = Pool.of(operation)
    x = operation.operand(0)
    padding = padding_of(attrs, x.shape, operation.output.shape)
    assert padding is not None
    options = {
        **_strides(attrs, padding),
        "FilterHeight": attrs.kernel[0],
        "FilterWidth": attrs.kernel[1],
        **_fused(operation),
    }
    code = "AVERAGE_POOL_2D" if attrs.kind == "average" else "MAX_POOL_2D"
    writer.call(code, 2, operation, (writer.variable(x),), "Pool2DOptions", options)


def _pair(code: str, table: str) -> Callable[[_Writer, Operation], None]:
    def write(writer: _Writer, operation: Operation) -> None:
        inputs = tuple(
            writer.constant(operand, operand.data, 0) if operand.data is not None else writer.variable(operand)
            for operand in (operation.operand(0), operation.operand(1))
        )
        writer.call(code, 2, operation, inputs, table, _fused(operation))

    return write


def _softmax(writer: _Writer, operation: Operation) -> None:
    inputs = (writer.variable(operation.operand(0)),)
    writer.call("SOFTMAX", 2, operation, inputs, "SoftmaxOptions", {"Beta": 1.0})


def _reshape(writer: _Writer, operation: Operation) -> None:
    output = operation.output
    shape = writer.constant_numbers(f"{output.tensor}/shape", np.asarray(output.shape))
    writer.call("RESHAPE", 1, operation, (writer.variable(operation.operand(0)), shape))


def _concatenation(writer: _Writer, operation: Operation) -> None:
    attrs = AlongAxis.of(operation)
    options = {"Axis": attrs.axis % len(operation.output.shape), **_fused(operation)}
    inputs = tuple(writer.variable(operand) for operand in operation.variables)
    writer.call("CONCATENATION", 2, operation, inputs, "ConcatenationOptions", options)


def _pad(writer: _Writer, operation: Operation) -> None:
    attrs, x = Pad.of(operation), operation.operand(0)
    behind = [
        out - size - before for out, size, before in zip(operation.output.shape, x.shape, attrs.before, strict=True)
    ]
    pads = writer.constant_numbers(f"{operation.output.tensor}/pads", np.asarray([attrs.before, behind]).T)
    writer.call("PAD", 2, operation, (writer.variable(x), pads), "PadOptions")


def _mean(writer: _Writer, operation: Operation) -> None:
    attrs = Axes.of(operation)
    axes = writer.constant_numbers(f"{operation.output.tensor}/axes", np.asarray(attrs.axes))
    inputs = (writer.variable(operation.operand(0)), axes)
    writer.call("MEAN", 2, operation, inputs, "ReducerOptions", {"KeepDims": int(attrs.keepdims)})


WRITERS: Mapping[str, Callable[[_Writer, Operation], None]] = {
    CONV: _convolution,
    "Gemm": _dense,
    "MatMul": _dense,
    "Pool": _pool,
    "Add": _pair("ADD", "AddOptions"),
    "Mul": _pair("MUL", "MulOptions"),
    "Softmax": _softmax,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Concat": _concatenation,
    "Pad": _pad,
    "ReduceMean": _mean,
}
"""How an operation of each kind is written."""


# What a region may contain: quantized operations that TFLite can express. Vela decides in the end.


_BYTES = ("int8", "uint8")


def _has_constants(operation: Operation) -> str:
    x, weights = operation.operand(0), operation.operand(1)
    refused = quantized.weights_refused(operation, x.dtype)
    bias = operation.inputs[2] if len(operation.inputs) > 2 else None
    if refused or bias is None:
        return refused
    products = np.asarray(x.scales) * np.asarray(weights.scales)
    fits = bias.quant is not None and np.allclose(bias.scales, products, rtol=1e-5, atol=0)
    return "" if fits else "its bias has another scale than its products"


def _has_activation(operation: Operation) -> str:
    return "" if activation_of(operation) else f"TFLite has no activation that clips at {operation.activation}"


def _named_padding(operation: Operation) -> str:
    is_named = padding_of(Pool.of(operation), operation.operand(0).shape, operation.output.shape) is not None
    return "" if is_named else "its padding is neither TFLite's SAME nor VALID"


def _one_grid(operation: Operation) -> str:
    is_same = all(operand.quant == operation.output.quant for operand in operation.variables)
    return "" if is_same else "its input and output are quantized differently"


def _constant_pair(operation: Operation) -> str:
    constant = any(x is not None and x.is_constant and not x.is_per_tensor for x in operation.inputs)
    return "a constant is not quantized" if constant else ""


def _zero_pad(operation: Operation) -> str:
    attrs = Pad.of(operation)
    if len(operation.inputs) > 1 or attrs.value != operation.output.zero_point:
        return "it pads with values other than zero"
    return "it cuts" if min(attrs.before, default=0) < 0 else ""


def _spatial_mean(operation: Operation) -> str:
    is_spatial = tuple(Axes.of(operation).axes) == (1, 2)
    return "" if is_spatial else "it reduces dimensions other than height and width"


_MATRIX = (quantized.is_matrix, quantized.one_scale, _has_constants, _has_activation)
_IMAGES: dict[str, Any] = {"layout": "NHWC", "ranks": (4,)}
_KINDS: Mapping[str, tuple[tuple[Callable[[Operation], str], ...], dict[str, Any]]] = {
    CONV: ((_has_constants, _has_activation), {**_IMAGES, "groups": ("one", "channelwise")}),
    "Gemm": (_MATRIX, {"attributes": quantized.PLAIN_GEMM}),
    "MatMul": (_MATRIX, {}),
    "Pool": (
        (quantized.counts_no_padding, _named_padding, _has_activation),
        {**_IMAGES, "same_grid": True, "attributes": quantized.PLAIN_POOL},
    ),
    "Softmax": ((quantized.over_the_last, quantized.to_unit_grid), {}),
    "Add": ((_constant_pair, _has_activation), {}),
    "Mul": ((_constant_pair, _has_activation), {}),
    "Pad": ((_zero_pad,), {"same_grid": True, "attributes": {"mode": "constant"}}),
    "ReduceMean": ((_spatial_mean,), {"ranks": (4,)}),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat"), ((_one_grid,), {})),
}
PATTERNS = (
    *(Pattern(kind, _BYTES, quantized=True, where=where, **more) for kind, (where, more) in _KINDS.items()),
    Pattern(COMPILED),
)
"""Claimed operations: int8 and uint8, with one scale per tensor except for a convolution's weights."""


class EthosU(Backend):
    """Regions of quantized operations on an Ethos-U55, U65 or U85."""

    name = "ethos_u"
    layout = "NHWC"
    patterns = PATTERNS
    options: Mapping[str, str] = {
        "config": f"the NPU: {', '.join(vela.CONFIGURATIONS)}",
        "system": "a system configuration of Vela, or of the file `ini`: clocks and memories' speeds",
        "memory": "a memory mode of Vela, or of the file `ini`: Shared_Sram, Sram_Only, Dedicated_Sram",
        "ini": "a configuration file of Vela's",
        "optimise": "Performance or Size; default: Performance",
        "driver": "a folder with ethosu_driver.h and C sources that the project has not by itself",
    }

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.one_of("config", ("", *vela.CONFIGURATIONS))
        self.one_of("optimise", ("Performance", "Size"), "Performance")
        for key, is_there in (("ini", Path.is_file), ("driver", Path.is_dir)):
            if key in self.values and not is_there(Path(self.values[key])):
                raise UsageError(f"the backend {self.name} has {key}={self.values[key]}, which does not exist")

    def refusal(self, operation: Operation, context: Context) -> str:
        """Also: its arithmetic is not that of the rest of the network; files compiled by Vela are used unchanged."""
        why = super().refusal(operation, context)
        if not why and operation.kind != COMPILED and "config" not in self.values:
            return "config= must name the NPU, for instance config=ethos-u55-128"
        if why or operation.kind == COMPILED or context.rounding == "tflite" or context.tolerance:
            return why
        return "it rounds as TFLite does: give --rounding tflite, or --tolerance 1"

    def claims(self, region: Region) -> str:
        """Refuse a region that adds operations to one that Vela has compiled already."""
        is_alone = len(region.operations) == 1 or all(operation.kind != COMPILED for operation in region.operations)
        return "" if is_alone else "Vela has compiled a part of it"

    def compile(self, region: Region, folder: Path) -> Product:
        """Return the region as compiled by Vela, now or before."""
        if region.operations[0].kind == COMPILED:
            return product_of(region, precompiled(region.operations[0]), self._driver())
        path = folder / f"{region.name}.tflite"
        path.write_bytes(tflite_of(region))
        names = [f"{op.kind} {', '.join(op.origins) or op.name}" for op in region.operations]
        try:
            result = vela.compiled(path, self._vela_options(), names)
        except OperationsRefused as failed:
            reasons = {op.name: why for op in region.operations if (why := _reason(op, failed.reasons))}
            raise OperationsRefused(failed.what, reasons, details=failed.details, hint=failed.hint) from failed
        return product_of(region, result, self._driver())

    def _vela_options(self) -> list[str]:
        names = {"config": "accelerator-config", "system": "system-config", "memory": "memory-mode"}
        names |= {"ini": "config", "optimise": "optimise"}
        values = {names[key]: value for key, value in self.values.items() if key in names}
        if "ini" in self.values:
            values["config"] = str(Path(self.values["ini"]).resolve())
        return [f"--{name}={value}" for name, value in values.items()]

    def _driver(self) -> dict[str, bytes]:
        """Return the driver's files that are compiled with the calls."""
        if "driver" not in self.values:
            return {}
        paths = sorted(Path(self.values["driver"]).iterdir())
        return {f"{FOLDER}/{path.name}": path.read_bytes() for path in paths if path.suffix in (".c", ".h")}


def _reason(operation: Operation, reasons: Mapping[str, str]) -> str:
    """Return why Vela refuses an operation, or the padding before it; "": it does not."""
    tensors = [*(x.tensor for x in operation.outputs), *(padded_name(x) for x in operation.variables)]
    return next((reasons[name] for name in tensors if name in reasons), "")


# The C that has the NPU compute a region, by the Ethos-U core driver.


FOLDER = "ethos_u"
"""The folder of its files, in the model's own."""
_ALIGNMENT = 16  # of all base addresses and of the command stream
_SETUP = 500.0  # instructions of the driver, about

_HEADER = """\
/* Calls of the Ethos-U core driver, whose header ethosu_driver.h and whose sources are the project's. */
#ifndef MT_ETHOS_U_H
#define MT_ETHOS_U_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Have the NPU compute a region, and wait for it.
 *
 * commands: what Vela made, of `bytes` bytes; it is aligned to 16 bytes, as all base addresses are.
 * addresses, sizes: of the `count` memories that the command stream knows by their numbers.
 * Returns 0, what ethosu_invoke_v3 returned, or 1 if there was no driver.
 */
int32_t mt_ethos_u_run(const uint8_t *commands, size_t bytes, uint64_t *addresses, const size_t *sizes, int count);

#endif
"""

_SOURCE = """\
#include "mt_ethos_u.h"

#ifdef __has_include
#if !__has_include("ethosu_driver.h")
#define HAS_NO_DRIVER
#endif
#endif

#ifdef HAS_NO_DRIVER
#error "no Ethos-U driver: add its sources and ethosu_driver.h to your build, or --backend ethos_u:driver=DIR does"
#else

#include "ethosu_driver.h" /* the project's own; --backend ethos_u:driver=DIR copies it from a folder */

int32_t mt_ethos_u_run(const uint8_t *commands, size_t bytes, uint64_t *addresses, const size_t *sizes, int count)
{
    struct ethosu_driver *const driver = ethosu_reserve_driver();
    int status;
    if (driver == NULL)
        return 1;
    status = ethosu_invoke_v3(driver, commands, (int)bytes, addresses, sizes, count, NULL);
    ethosu_release_driver(driver);
    return status;
}

#endif
"""


def product_of(region: Region, result: Compiled, driver: Mapping[str, bytes]) -> Product:
    """Return the product for a region that Vela compiled; `driver`: the driver's files, if they are copied.

    The memories lie in the arena one after the other; the region's tensors are copied there and back.

    Raises:
        BackendError: Vela's tensors do not match the region's.
    """
    tensors, places_of = (*region.inputs, *region.outputs), (*result.inputs, *result.outputs)
    sizes, found = [tensor.type.bytes for tensor in tensors], [place.bytes for place in places_of]
    if len(result.inputs) != len(region.inputs) or sizes != found:
        message = f"the inputs and outputs in Vela's output do not match {region.name}"
        raise BackendError(message, details=[f"expected bytes: {sizes}", f"found: {found}"])
    call = CallBuilder(region, _ALIGNMENT)
    starts = {
        base: call.reserve(-(-size // _ALIGNMENT) * _ALIGNMENT) if size else 0
        for base, size in enumerate(result.bases)
        if base != result.constant_base and base not in result.same
    }
    constants = "(uintptr_t)constants" if result.constants.size else "(uintptr_t)commands"  # nothing is read there
    places = [
        constants if base == result.constant_base else f"(uintptr_t)(scratch + {starts[result.same.get(base, base)]})"
        for base in range(len(result.bases))
    ]  # fmt: skip
    call.lines += [
        f"uint64_t addresses[{len(places)}] = {{{', '.join(places)}}};",
        f"static const size_t sizes[{len(places)}] = {{{', '.join(map(str, result.bases))}}};",
        *(
            f"memcpy(scratch + {starts[place.base] + place.offset}, input{number}, {place.bytes});"
            for number, place in enumerate(result.inputs)
        ),
        f"const int32_t status = mt_ethos_u_run(commands, {result.commands.size}, addresses, sizes, {len(places)});",
        "if (status != 0)",
        "    return status;",
        *(
            f"memcpy(output{number}, scratch + {starts[place.base] + place.offset}, {place.bytes});"
            for number, place in enumerate(result.outputs)
        ),
        "return 0;",
    ]
    call.headers.append(f"{FOLDER}/mt_ethos_u.h")
    call.files |= {f"{FOLDER}/mt_ethos_u.h": _HEADER.encode(), f"{FOLDER}/mt_ethos_u.c": _SOURCE.encode(), **driver}
    aligned = f"aligned to {_ALIGNMENT} bytes"
    layout = f"{aligned}: the driver's actions and the NPU's command stream, as Vela made them"
    call.constant("commands", result.commands, layout)
    if result.constants.size:
        call.constant("constants", result.constants, f"{aligned}: weights, scales and tables, as Vela encoded them")
    # Without the NPU's cycles, these would be a small part of the time but look like all of it.
    cost = _SETUP + sum(place.bytes for place in places_of) / 4 if result.cycles else 0.0
    return call.product(cost=cost, cycles=result.cycles, can_fail=True)
