"""The context of a lowering: a graph under construction that keeps track of its quantized values.

A lowering turns one canonical ONNX node into internal nodes: `loop` (an expression per element),
`view`, `transpose`, `concat`, and the kernels (`conv2d`, `dense`, `pool2d`, `softmax`).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Attributes, DType, Expr, Graph, Node
from mtool.compiler.ir.expr import axis as at
from mtool.compiler.ir.expr import broadcast_index, call, const, first_of, identity, load
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.node import Transpose, View
from mtool.compiler.ir.ranges import Range
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.template import TemplateKernel

EIGHT_BITS = (DType.INT8, DType.UINT8)
SIXTEEN_BITS = (DType.INT16, DType.UINT16)
NHWC_OF_NCHW = (0, 2, 3, 1)
NCHW_OF_NHWC = (0, 3, 1, 2)


@frozen
class Dequantized:
    """A float value that is `(value - zero_point) * scale` of an integer value; axis None: per tensor.

    block: the number of elements along `axis` that share a scale and a zero point, which have the value's rank then;
        0: one scale and one zero point, or those of a vector along `axis`. Only constants have blocks.
    """

    value: str
    scale: Array
    zero_point: Array
    axis: int | None
    block: int = 0

    @property
    def per_tensor(self) -> bool:
        """Whether the whole tensor has one scale and one zero point."""
        return self.axis is None


class Lowering(Rewriter):
    """A graph under construction; `dequantized` maps float values to the integers behind them.

    `limits`: the range of a value's integers, where it is smaller than that of their type.
    `float_weights`: int8 weights with float activations become float32.
    """

    def __init__(self, graph: Graph, *, float_weights: bool = False) -> None:
        super().__init__(graph)
        self.float_weights = float_weights
        self.dequantized: dict[str, Dequantized] = {}
        self.limits: dict[str, Range] = {}

    def loop(self, node: Node, expr: Expr, inputs: Iterable[str], output: str = "") -> str:
        """Append a loop that computes `expr` for every element of the node's (or another) output."""
        output = output or node.outputs[0]
        operands, expr = _without_empty_reductions(list(inputs), expr)
        self.node("loop", operands, [output], Loop(expr=expr, label=node.op.lower()), like=node)
        return output

    def view(self, node: Node, value: str, shape: Iterable[int], output: str = "", first: int = 0) -> str:
        """Append a view: the same bytes with another shape, or those from element `first` on."""
        output = output or self.value(f"{value}.view", self.types[value].dtype, shape)
        self.node("view", [value], [output], View(first=first), like=node)
        return output

    def transpose(self, node: Node, value: str, perm: tuple[int, ...], output: str = "") -> str:
        """Append a transposition."""
        kind = self.types[value]
        output = output or self.value(f"{value}.t", kind.dtype, [kind.shape[dim] for dim in perm])
        self.node("transpose", [value], [output], Transpose(perm=perm), like=node)
        return output

    def dequantize(self, node: Node, quantized: Dequantized, output: str) -> None:
        """Append the loop that computes a float value from its integers, and record the integers."""
        kind = self.types[quantized.value]
        inputs = [quantized.value]
        element = load(0, kind.dtype, identity(len(kind.shape)))
        zero_point, scale = (
            self.parameter(data, quantized.axis, dtype, inputs, node, quantized.block)
            for data, dtype in ((quantized.zero_point, DType.INT32), (quantized.scale, DType.FLOAT32))
        )
        wide = call("cast", element, dtype=DType.INT32)
        centred = call("sub", wide, zero_point, value="index") if quantized.zero_point.any() else wide
        self.loop(node, call("mul", call("cast", centred, dtype=DType.FLOAT32), scale), inputs, output)
        self.dequantized[output] = quantized

    def parameter(
        self, data: Array, axis: int | None, dtype: DType, inputs: list[str], node: Node, block: int = 0
    ) -> Expr:
        """Return a per-tensor constant, or a load of a per-axis or blocked one, which is appended to `inputs`."""
        if axis is None or data.size == 1:
            return const(data.reshape(-1)[0].item(), dtype)
        inputs.append(self.constant(f"{node.name}/parameter", data.astype(dtype.numpy)))
        index = identity(data.ndim) if block else (at(axis),)
        if block:
            index = (*index[:axis], index[axis] // block, *index[axis + 1 :])
        return load(len(inputs) - 1, dtype, index)

    def integers(self, value: str, *, wide: bool = False) -> Dequantized | None:
        """Return the per-tensor int8 or uint8 integers (`wide`: int16 and uint16 too) behind a float value, if any."""
        stored = self.dequantized.get(value)
        kinds = (*EIGHT_BITS, *SIXTEEN_BITS) if wide else EIGHT_BITS
        if stored is None or not stored.per_tensor or self.types[stored.value].dtype not in kinds:
            return None
        return stored

    def operands(self, values: Iterable[str], shape: tuple[int, ...]) -> list[Expr]:
        """Return loads of values 0, 1, … broadcast to `shape`; scalar constants become numbers."""
        loads = []
        for number, value in enumerate(values):
            kind = self.types[value]
            data = self.constants.get(value)
            if data is not None and data.size == 1:
                loads.append(const(data.reshape(-1)[0].item(), kind.dtype))
            else:
                loads.append(load(number, kind.dtype, broadcast_index(kind.shape, shape)))
        return loads


def _without_empty_reductions(inputs: list[str], expr: Expr) -> tuple[list[str], Expr]:
    """Replace a reduction over no elements by its initial number, and drop the operands that only it read."""

    def start(part: Expr) -> Expr:
        if part.op != "reduce" or all(size for _, size in part.value.axes):
            return part
        return const(first_of(part.value.kind, part.dtype), part.dtype)

    reduced = expr.rewrite(start)
    if reduced == expr:
        return inputs, expr
    used = sorted(reduced.operands())
    return [inputs[number] for number in used], reduced.with_operands({old: new for new, old in enumerate(used)})


def accumulator(dtype: DType) -> DType:
    """Return the type of sums of products of a type."""
    return DType.FLOAT32 if dtype.is_half else dtype if dtype.is_float else DType.INT32


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the stride of each dimension, in elements."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


Lower = Callable[[Lowering, Node], None]


class AlongAxis(Attributes):
    """An operator along one dimension: `axis`, from 0 on."""

    axis: int


class Epsilon(Attributes):
    """A normalization: `epsilon` is added to the variance."""

    epsilon: float = 1e-5


def _unchanged(attrs: Attributes, zero_point: int) -> Attributes:
    return attrs


def moves_integers(lower: Lower, of_integers: Callable[[Attributes, int], Attributes] = _unchanged) -> Lower:
    """Apply an operator that only moves or selects elements to the integers behind a dequantized input.

    `f(dequantize(q))` becomes `dequantize(f(q))`, with the same results. `of_integers` returns the attributes for the
    integers, from those for the floats and the zero point.
    """

    def wrapped(ctx: Lowering, node: Node) -> None:
        operands = [ctx.integers(value, wide=True) for value in node.inputs]
        first = operands[0]
        same = first is not None and all(
            other is not None
            and other.scale == first.scale
            and other.zero_point == first.zero_point
            and ctx.types[other.value].dtype == ctx.types[first.value].dtype
            for other in operands
        )
        if first is None or not same:
            lower(ctx, node)
            return
        output = node.outputs[0]
        kind = ctx.types[output]
        moved = ctx.value(f"{output}.q", ctx.types[first.value].dtype, kind.shape)
        inputs = tuple(other.value for other in operands if other is not None)
        attrs = of_integers(node.attrs, int(np.reshape(first.zero_point, -1)[0]))
        lower(ctx, Node(node.op, node.name, inputs, (moved,), attrs, node.origins))
        if len(inputs) == 1 and inputs[0] in ctx.limits:
            ctx.limits[moved] = ctx.limits[inputs[0]]
        ctx.dequantize(node, Dequantized(moved, first.scale, first.zero_point, None), output)

    return wrapped


def template_node(
    ctx: Lowering,
    node: Node,
    template: str,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    values: Mapping[str, Any],
    *,
    scratch: int = 0,
    scratch_type: str = "",
    math: bool = False,
    macs: int = 0,
    instructions: tuple[tuple[str, float], ...] = (),
    headers: tuple[str, ...] = (),
    overwrites: Mapping[str, str] | None = None,
    wide: Sequence[str] = (),
) -> None:
    """Append a kernel.

    Args:
        ctx: the graph under construction.
        node: the ONNX operator.
        template: the name of the C template, without its suffix; or the full path of a file elsewhere.
        inputs: the values by C name.
        outputs: the values by C name.
        values: the template's variables in addition to `types`, the types of inputs and outputs by C name.
        scratch: bytes of working memory, `scratch` in the template.
        scratch_type: the C type of its elements.
        math: whether the C calls the math library.
        macs: the number of multiply-accumulates.
        instructions: see `TemplateKernel`.
        headers: runtime headers that it needs in addition to mt_math.h and, for floats, mt_float.h.
        overwrites: outputs that may share memory with an input, because no element of the input is read after the
            same element of the output is written: C name of the output to that of the input.
        wide: C names of inputs and outputs that are converted to float32 if they are 16-bit floats.
    """
    inputs = {name: widened(ctx, node, value) if name in wide else value for name, value in inputs.items()}
    results = {name: wide_output(ctx, value) if name in wide else value for name, value in outputs.items()}
    ins, outs = [*inputs], [*outputs]
    over = tuple((ins.index(old), outs.index(new)) for new, old in (overwrites or {}).items())
    label = node.op.rpartition(".")[2].lower()  # without the domain
    attrs = TemplateKernel(
        template=template, values=values, names=(*inputs, *outputs), label=label, scratch=scratch,
        scratch_type=scratch_type, math=math, macs=macs, headers=headers, overwrites=over,
        instructions=instructions,
    )  # fmt: skip
    ctx.node("template", list(inputs.values()), list(results.values()), attrs, like=node)
    narrowed(ctx, node, [(results[name], value) for name, value in outputs.items()])


def by_template(
    template: str, inputs: str, outputs: str, values: Callable[[Lowering, Node], Mapping[str, Any]],
    scratch: Callable[[Lowering, Node], tuple[int, str]] = lambda ctx, node: (0, ""), cost: float = 0, **options: Any,
) -> Lower:  # fmt: skip
    """Return the lowering of an operator that is one kernel.

    Args:
        template: the name of the C template.
        inputs: the inputs' C names, in order; inputs that are not given are omitted.
        outputs: the outputs' C names.
        values: returns the template's variables.
        scratch: returns the bytes of working memory and the C type of its elements.
        cost: about how many instructions an element of the first input takes; 0: unknown.
        options: of `template_node`.
    """

    def lower(ctx: Lowering, node: Node) -> None:
        ins, outs = (
            {name: value for name, value in zip(names.split(), tensors, strict=False) if value}
            for names, tensors in ((inputs, node.inputs), (outputs, node.outputs))
        )
        size, kind = scratch(ctx, node)
        template_node(
            ctx, node, template, ins, outs, values(ctx, node), scratch=size, scratch_type=kind,
            instructions=(("", cost * ctx.types[node.inputs[0]].count),), **options,
        )  # fmt: skip

    return lower


def widened(ctx: Lowering, node: Node, value: str, dtype: DType | None = None) -> str:
    """Return a value as float32 if it is a 16-bit float (or as `dtype`, if that is given)."""
    kind = ctx.types[value]
    dtype = dtype or (DType.FLOAT32 if kind.dtype.is_half else kind.dtype)
    if dtype == kind.dtype:
        return value
    wide = ctx.value(f"{value}.wide", dtype, kind.shape)
    element = load(0, kind.dtype, identity(len(kind.shape)))
    return ctx.loop(node, call("cast", element, dtype=dtype), [value], wide)


def wide_output(ctx: Lowering, value: str) -> str:
    """Return the value in which to compute an output: itself, or a float32 value if it is a 16-bit float."""
    kind = ctx.types[value]
    return ctx.value(f"{value}.wide", DType.FLOAT32, kind.shape) if kind.dtype.is_half else value


def narrowed(ctx: Lowering, node: Node, pairs: Sequence[tuple[str, str]]) -> None:
    """Append the conversions from the values of `wide_output` to the outputs."""
    for wide, value in pairs:
        if wide != value:
            kind = ctx.types[value]
            element = load(0, ctx.types[wide].dtype, identity(len(kind.shape)))
            ctx.loop(node, call("cast", element, dtype=kind.dtype), [wide], value)
