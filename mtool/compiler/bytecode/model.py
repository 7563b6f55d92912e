"""Compiles a model file to bytecode, for modules of kernel calls."""

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from mtool.base import plural
from mtool.base.errors import ModelError
from mtool.base.frozen import frozen
from mtool.compiler import frontend, passes
from mtool.compiler.bytecode import call
from mtool.compiler.bytecode.call import Address, Call, Constant, Method, NoKernel, Operand, Scratch, Value
from mtool.compiler.bytecode.program import calls_of, flat_affine
from mtool.compiler.codegen.arena import Interface
from mtool.compiler.codegen.description import interface_of
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.node import View, WithEpilogue, expression_of
from mtool.compiler.ir.scalar import Requantize, RescalePair
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.conv2d.dsp.depthwise import PhasedTraversal
from mtool.compiler.kernels.conv2d.dsp.depthwise import pack as pack_depthwise
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.dense import Dense
from mtool.compiler.kernels.dense.dsp import pack as pack_dense
from mtool.compiler.kernels.dsp import Columns, Loop, best_scaling, go_in_pairs, products_of_columns
from mtool.compiler.kernels.epilogues import Int8Epilogue
from mtool.compiler.kernels.exact_scaling import PLACES, ExactScaling, Together
from mtool.compiler.kernels.expressions import is_identity
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.pool2d import Pool2d
from mtool.compiler.kernels.scaling import FloatScaling
from mtool.compiler.kernels.schedule import identity_loads
from mtool.compiler.kernels.softmax import SoftmaxOfRows
from mtool.compiler.kernels.weighted_sum import as_computed
from mtool.compiler.plan import Plan, Step
from mtool.compiler.plan.order import order_nodes
from mtool.compiler.plan.whole import lay_out_steps

# Lower the operators of a plan to bytecode instructions.

# What follows a kernel's results: an expression, which a separate call computes from the output or from scratch.


@frozen
class With:
    """Where a kernel's results go, and the epilogue.

    Attributes:
        rest: the epilogue's expression, which reads them as `acc`; None: they are the output.
        results: where they lie.
        scratch: bytes of scratch for the kernel, and for the results if they lie there.
    """

    rest: Expr | None
    results: Address
    scratch: int

    @classmethod
    def of(cls, node: Node, graph: Graph, rest: Expr | None, acc: DType, used: int) -> Self:
        """Put them into the output if its elements have the same size, otherwise after `used` bytes of scratch."""
        out = graph.types[node.outputs[0]]
        if rest is None or out.dtype.size == acc.size:
            return cls(rest, Value(node.outputs[0]), used)
        first = round_up(used, 4)
        return cls(rest, Scratch(first), first + out.count * acc.size)

    def at(self, offset: int) -> Address:
        """Return the address of the results at an offset in bytes."""
        return replace(self.results, offset=self.results.offset + offset)


def with_rest(node: Node, graph: Graph, calls: tuple[Call, ...], after: With, over: tuple[int, ...] = ()) -> Method:
    """Return a kernel's calls, and that of the epilogue.

    Raises:
        NoKernel: it has something that no kernel computes.
    """
    if after.rest is None:
        return Method(calls, after.scratch, over)
    pair = pair_of(after.rest, node, graph, after.results)
    if pair is not None:
        return Method((*calls, pair), after.scratch)
    more, scratch = calls_of(after.rest, node, graph, after.results, after.scratch)
    return Method((*calls, *more), scratch)


def pair_of(expr: Expr, node: Node, graph: Graph, acc: Address | None) -> Call | None:
    """Return an expression as a sum of two int8 tensors; None: it is another one."""
    out = graph.types[node.outputs[0]]
    if expr.op != "rescale_pair" or out.dtype is not DType.INT8:
        return None
    places: list[Address] = []
    for arg in expr.args:
        if arg.dtype is not DType.INT8:
            return None
        if arg.op == "acc" and acc is not None:
            places.append(acc)
        elif (
            arg.op == "load"
            and node.inputs[arg.value] not in graph.constants
            and is_identity(arg, out.shape, graph.types[node.inputs[arg.value]].shape)
        ):
            places.append(Value(node.inputs[arg.value]))
        else:
            return None
    how: RescalePair = expr.value
    return Call("add_int8", (
        *places, Value(node.outputs[0]), out.count, how.left, how.right, how.offset, how.shift, int(how.even),
        how.zero_point, how.low, how.high,
    ))  # fmt: skip


# The calls of convolutions and dense layers of float32, and of softmaxes.


def _limits(expr: Expr) -> tuple[float, float] | None:
    """Return the limits to which an epilogue clips results; None: it does something else."""
    low, high = -math.inf, math.inf
    while expr.op in ("maximum", "minimum") and expr.args[1].op == "const":
        bound = float(expr.args[1].value)
        if expr.op == "minimum":
            high = min(high, bound)
        elif bound > high:
            return None
        else:
            low = max(low, bound)
        if math.isnan(bound) or low > high:
            return None
        expr = expr.args[0]
    return (low, high) if expr.op == "acc" else None


def weighted(node: Node, graph: Graph) -> Method:
    """Return the call of a convolution or a dense layer of float32, whose weights may be int8 in the model.

    Raises:
        NoKernel: it has none.
    """
    weights, bias = graph.constants[node.inputs[1]], graph.constants[node.inputs[2]]
    x, out = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    if bias.dtype != np.float32 or x.dtype is not DType.FLOAT32:
        raise NoKernel(f"sums of {bias.dtype}")
    numbers: tuple[Operand, ...]
    if node.op == "dense":
        numbers = (x.shape[0], 1, 1, x.shape[1], 1, 1, 1, out.shape[1], 1, 1, 1, 1, 0, 0, 1, 1)
    else:
        conv = Conv.of(node, graph)
        numbers = (
            conv.batch, *conv.size, conv.channels, conv.group, *conv.out_size, conv.out_channels,
            *conv.kernel, *conv.stride, *conv.pad, *conv.dilation,
        )  # fmt: skip
    epilogue = WithEpilogue.of(node).epilogue
    limits = _limits(epilogue)
    after = With.of(node, graph, None if limits else epilogue, DType.FLOAT32, 0)
    if limits and out.dtype is not DType.FLOAT32:
        raise NoKernel(f"sums that are stored as {out.dtype.label}")
    constants = Constant(weights.astype(np.float32)), Constant(bias)
    low, high = limits or (-math.inf, math.inf)
    call = Call("conv2d_f32", (Value(node.inputs[0]), after.at(0), *constants, *numbers, low, high))
    return with_rest(node, graph, (call,), after)


def softmax(node: Node, graph: Graph) -> Method:
    """Return the calls of a softmax of int8 or float32.

    Raises:
        NoKernel: it has none.
    """
    attrs, x = SoftmaxOfRows.of(node), graph.types[node.inputs[0]]
    if attrs.log or attrs.fixed:
        raise NoKernel("the logarithm of a softmax" if attrs.log else "a softmax in fixed point")
    after = With.of(node, graph, None if attrs.epilogue.op == "acc" else attrs.epilogue, DType.FLOAT32, 0)
    if attrs.has_table and x.dtype is DType.INT8:
        table = graph.constants[node.inputs[1]]
        call = Call("softmax_int8", (Value(node.inputs[0]), after.at(0), Constant(table), *x.shape))
    elif x.dtype is DType.FLOAT32:
        call = Call("softmax_f32", (Value(node.inputs[0]), after.at(0), *x.shape))
    else:
        raise NoKernel(f"a softmax of {x.dtype.label}")
    return with_rest(node, graph, (call,), after)


# The calls of convolutions, dense layers and pools of int8.


PIXELS = 3  # of a tile
GROUP = 8  # outputs of a dense layer that are computed together
LEAST_DEPTH = 8  # of a tile's columns
PITCHES = (32, 64)  # of planes over which pairs of outputs slide


def _epilogue(node: Node, graph: Graph) -> Int8Epilogue:
    weights = graph.constants[node.inputs[1]].dtype
    if weights != np.int8:
        raise NoKernel(f"weights of {weights}, or with a zero point")
    epilogue = Int8Epilogue.of(node, graph)
    if epilogue is None:
        raise NoKernel("an epilogue other than a requantization to int8")
    if not isinstance(epilogue.how, Requantize):
        raise NoKernel("the rounding of TFLite (--rounding onnx has kernels)")
    return epilogue


def _scaling(node: Node, graph: Graph, epilogue: Int8Epilogue, together: Together) -> tuple[ExactScaling, Array]:
    """Return the multipliers in the kernels' layout, or floats instead, and their biases."""
    scaling, bias = best_scaling(node, graph, together)
    if isinstance(scaling, ExactScaling) and scaling.places == PLACES[0]:
        return scaling, bias
    assert isinstance(epilogue.scaling, FloatScaling)
    return ExactScaling.of_floats(epilogue.scaling.scale, epilogue.how.zero_point, PLACES[0]), epilogue.bias


def _range(epilogue: Int8Epilogue) -> tuple[int, int, int]:
    return epilogue.how.zero_point, epilogue.how.low, epilogue.how.high


def _packed(node: Node, graph: Graph, epilogue: Int8Epilogue, depth: int, groups: int, *, apart: bool) -> Array:
    """Return the stream of tiles of each group, [groups, ...]."""
    weights = graph.constants[node.inputs[1]]
    columns = Columns(np.arange(weights[0].size), depth)
    numbers = _scaling(node, graph, epilogue, Together(2, groups))
    products = products_of_columns(epilogue, numbers, columns, Loop.whole(depth), "", groups, apart=apart)
    return products.weights.reshape(groups, -1)


def convolution(node: Node, graph: Graph) -> Method:
    """Return the calls of a convolution of int8.

    Raises:
        NoKernel: it has none.
    """
    conv, epilogue = Conv.of(node, graph), _epilogue(node, graph)
    if conv.is_depthwise:
        return _depthwise(node, graph, conv, epilogue)
    channels, outputs = conv.channels // conv.group, conv.out_channels // conv.group
    depth = max(LEAST_DEPTH, round_up(conv.depth, 4))
    apart = not go_in_pairs(node, graph, conv.group)
    stream = _packed(node, graph, epilogue, depth, conv.group, apart=apart)
    plain = conv.is_pointwise and depth == channels
    results = PIXELS * (outputs + 1) if outputs % 2 else outputs if conv.pixels % PIXELS else 0
    used = 6 * depth + (results if plain else max(depth, results))
    after = With.of(node, graph, epilogue.rest, DType.INT8, used)

    def calls() -> Iterator[Call]:
        for image in range(conv.batch):
            for group in range(conv.group):
                yield Call("conv2d_int8", (
                    Value(node.inputs[0], image * conv.size[0] * conv.size[1] * conv.channels + group * channels),
                    after.at(image * conv.pixels * conv.out_channels + group * outputs),
                    Constant(stream[group]), Scratch(),
                    *conv.size, channels, conv.channels, *conv.out_size, outputs, conv.out_channels,
                    *conv.kernel, *conv.stride, *conv.pad, *conv.dilation,
                    depth, conv.pad_value, int(apart), *_range(epilogue),
                ))  # fmt: skip

    stays = plain and conv.group == 1 and conv.batch == 1 and conv.out_channels <= conv.channels
    return with_rest(node, graph, tuple(calls()), after, over=(0,) if stays and epilogue.rest is None else ())


def _depthwise(node: Node, graph: Graph, conv: Conv, epilogue: Int8Epilogue) -> Method:
    weights = graph.constants[node.inputs[1]].reshape(conv.out_channels, *conv.kernel)
    if min(conv.pad) < 0:
        raise NoKernel("a depthwise convolution that skips some inputs")
    reach = [(size - 1) * step + 1 for size, step in zip(conv.kernel, conv.dilation, strict=True)]
    taps = np.zeros((conv.out_channels, *reach), np.int8)  # those that a dilation leaves out are 0
    taps[:, :: conv.dilation[0], :: conv.dilation[1]] = weights
    conv = replace(conv, kernel=(reach[0], reach[1]), dilation=(1, 1))
    way = PhasedTraversal.all(conv)[0]
    scaling, bias = _scaling(node, graph, epilogue, Together())
    rows = pack_depthwise(taps.swapaxes(1, 2) if way.transposed else taps, bias, scaling)
    stream = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))
    pitch, row = _pitch(way, epilogue)
    after = With.of(node, graph, epilogue.rest, DType.INT8, 2 * (pitch * way.plane[0] + way.taps) + row)
    calls = [
        Call("depthwise_int8", (
            Value(node.inputs[0], image * conv.size[0] * conv.size[1] * conv.channels),
            after.at(image * conv.pixels * conv.out_channels),
            Constant(stream), Scratch(),
            *way.copied, *way.in_step, conv.channels, conv.out_channels // conv.channels,
            *way.out_size, *way.out_step, way.kernel[0], way.steps, *way.stride, *way.pad, pitch, conv.pad_value,
            *_range(epilogue),
        ))
        for image in range(conv.batch)
    ]  # fmt: skip
    smaller = graph.types[node.inputs[0]].bytes >= graph.types[node.outputs[0]].bytes
    stays = conv.channels == conv.out_channels and smaller and conv.batch == 1 and epilogue.rest is None
    return with_rest(node, graph, tuple(calls), after, over=(0,) if stays else ())


def _pitch(way: PhasedTraversal, epilogue: Int8Epilogue) -> tuple[int, int]:
    """Return the elements from one row of a plane to the next, and the outputs of a row that are adjacent."""
    pairs = round_up(way.out_size[1], 2)
    slides = way.kernel == (3, 3) and way.stride[1] <= 2 and (epilogue.how.low, epilogue.how.high) == (-128, 127)
    reached = max(way.pitch, (pairs - 1) * way.stride[1] + 4)
    pitch = next((pitch for pitch in PITCHES if slides and reached <= pitch), 0)
    return (pitch, pairs) if pitch else (way.pitch, pairs if slides and way.pitch in PITCHES else 0)


def dense(node: Node, graph: Graph) -> Method:
    """Return the calls of a dense layer of int8.

    Raises:
        NoKernel: it has none.
    """
    epilogue, weights = _epilogue(node, graph), graph.constants[node.inputs[1]]
    (rows, depth), outputs = graph.types[node.inputs[0]].shape, len(weights)
    if not go_in_pairs(node, graph):
        return _dense_apart(node, graph, epilogue)
    filled = round_up(depth, 4)
    scaling, bias = _scaling(node, graph, epilogue, Together(GROUP))
    stream = pack_dense(weights, bias, scaling, filled, GROUP)
    after = With.of(node, graph, epilogue.rest, DType.INT8, GROUP + (filled if filled > depth else 0))
    call = Call("dense_int8", (
        Value(node.inputs[0]), after.at(0), Constant(stream), Scratch(), rows, depth, outputs, *_range(epilogue),
    ))  # fmt: skip
    return with_rest(node, graph, (call,), after)


def _dense_apart(node: Node, graph: Graph, epilogue: Int8Epilogue) -> Method:
    """Return a dense layer whose weights do not go in pairs: a convolution whose pixels are the rows."""
    rows, length = graph.types[node.inputs[0]].shape
    outputs = len(graph.constants[node.inputs[1]])
    depth = max(LEAST_DEPTH, round_up(length, 4))
    stream = _packed(node, graph, epilogue, depth, 1, apart=True)
    results = PIXELS * (outputs + 1) if outputs % 2 else outputs if rows % PIXELS else 0
    after = With.of(node, graph, epilogue.rest, DType.INT8, 6 * depth + max(depth, results))
    call = Call("conv2d_int8", (
        Value(node.inputs[0]), after.at(0), Constant(stream), Scratch(),
        1, rows, length, length, 1, rows, outputs, outputs, 1, 1, 1, 1, 0, 0, 1, 1,
        depth, Dense.of(node).pad_value, 1, *_range(epilogue),
    ))  # fmt: skip
    return with_rest(node, graph, (call,), after)


def pool(node: Node, graph: Graph) -> Method:
    """Return the calls of a pool of int8 or float32.

    Raises:
        NoKernel: it has none.
    """
    attrs, x, y = Pool2d.of(node), graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    if x.dtype not in (DType.INT8, DType.FLOAT32) or attrs.dilations != (1, 1):
        raise NoKernel(f"a pool of {x.dtype.label} with dilations {attrs.dilations}")
    reached = all(
        attrs.pads[i] < attrs.kernel[i] and (y.shape[1 + i] - 1) * attrs.strides[i] - attrs.pads[i] < x.shape[1 + i]
        for i in (0, 1)
    )
    whole = not any(attrs.pads[:2]) and all(
        (y.shape[1 + i] - 1) * attrs.strides[i] + attrs.kernel[i] <= x.shape[1 + i] for i in (0, 1)
    )
    mean = attrs.kind == "average"
    if not reached or (mean and x.dtype.is_float and not whole and attrs.count_pads):
        raise NoKernel("a pool with windows outside the image")
    if not x.dtype.is_float and attrs.kernel[1] > 255:
        raise NoKernel("a pool wider than 255 columns")
    acc = x.dtype if x.dtype.is_float or not mean else DType.INT32
    after = With.of(node, graph, None if attrs.epilogue.op == "acc" else attrs.epilogue, acc, 0)
    numbers: tuple[Operand, ...] = (
        *x.shape[1:], *y.shape[1:3], *attrs.kernel, *attrs.strides, *attrs.pads[:2], int(mean),
    )  # fmt: skip
    kernel = "pool_f32" if x.dtype.is_float else "pool_int8"
    calls = [
        Call(kernel, (
            Value(node.inputs[0], image * x.bytes // x.shape[0]),
            after.at(image * y.count // y.shape[0] * acc.size), *numbers,
        ))
        for image in range(x.shape[0])
    ]  # fmt: skip
    return with_rest(node, graph, tuple(calls), after)


# The calls of loops and concatenations: moves, sums of two tensors, expressions.


DIMENSIONS = 4  # of a copy


def loop(node: Node, graph: Graph) -> Method:
    """Return the call of a loop.

    Raises:
        NoKernel: it has something that no kernel computes.
    """
    expr = expression_of(node)
    assert expr is not None
    if expr.op == "load":
        copied = _copy(node, graph)
        if copied is not None:
            return Method((copied,))
    over = identity_loads(node, graph, expr)
    pair = pair_of(expr, node, graph, None)
    if pair is not None:
        return Method((pair,), over=over)
    calls, scratch = calls_of(expr, node, graph)
    return Method(calls, scratch, over)


def _copy(node: Node, graph: Graph) -> Call | None:
    """Return a loop that moves elements as a copy; None: it does not follow the tensors' dimensions."""
    load, out = expression_of(node), graph.types[node.outputs[0]]
    assert load is not None
    value = node.inputs[load.value]
    kind = graph.types[value]
    index = flat_affine(load, kind.shape)
    if index is None or index.steps.keys() - set(range(len(out.shape))):
        return None
    size, first = kind.dtype.size, index.first * kind.dtype.size
    loops: list[tuple[int, int, int]] = []
    for axis, count in enumerate(out.shape):
        start, end = size * index.steps.get(axis, 0), size * int(np.prod(out.shape[axis + 1 :], dtype=np.int64))
        if count == 1:
            continue
        if loops and loops[-1][1:] == (start * count, end * count):  # they lie row by row in both tensors
            loops[-1] = loops[-1][0] * count, start, end
        else:
            loops.append((count, start, end))
    if len(loops) > DIMENSIONS:
        return None
    data = graph.constants.get(value)
    at: Address = Value(value, first) if data is None else Constant(data, first)
    return copy_call(at, Value(node.outputs[0]), size, loops)


def copy_call(source: Address, to: Address, size: int, dims: Sequence[tuple[int, int, int]]) -> Call:
    """Return the copy of elements of `size` bytes; `dims`: each dimension's size, and both tensors' steps in bytes."""
    filling = [(1, 0, 0)] * (DIMENSIONS - len(dims))
    counts, starts, ends = zip(*filling, *dims, strict=True)
    return Call("copy", (source, to, size, *counts, *starts, *ends))


def concat(node: Node, graph: Graph) -> Method:
    """Return the copies of a concatenation.

    Raises:
        NoKernel: its output lies over an input.
    """
    attrs, out = Concat.of(node), graph.types[node.outputs[0]]
    if attrs.appends:
        raise NoKernel("a stream buffer")
    size, row = out.dtype.size, int(np.prod(out.shape[attrs.axis + 1 :], dtype=np.int64))
    rows, step = int(np.prod(out.shape[: attrs.axis], dtype=np.int64)), out.shape[attrs.axis] * row * size
    calls, first = [], 0
    for value in node.inputs:
        length = graph.types[value].shape[attrs.axis] * row
        data = graph.constants.get(value)
        at: Address = Value(value) if data is None else Constant(data)
        if length and rows:
            to = Value(node.outputs[0], first)
            calls.append(copy_call(at, to, size, [(rows, length * size, step), (length, size, size)]))
        first += length * size
    return Method(tuple(calls))


# The image of a bytecode module: its calls and constants. crt/include/mt_bytecode.h has the bytes.


@frozen
class Image:
    """A model as bytecode.

    Attributes:
        data: the head, the calls, the constants.
        code_bytes: the bytes before the constants.
        arena_bytes: the size of the arena that it needs.
    """

    data: bytes
    code_bytes: int
    arena_bytes: int


class _Constants:
    """Constants one after the other; equal ones are stored once."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.offsets: dict[bytes, int] = {}

    def place(self, constant: call.Constant) -> int:
        data = np.ascontiguousarray(constant.data).tobytes()
        if data not in self.offsets:
            self.offsets[data] = len(self.data)
            self.data += data + bytes(-len(data) % 4)
        return self.offsets[data] + constant.offset


def encode(plan: Plan) -> Image:
    """Return a plan's image."""
    constants = _Constants()
    words: list[int] = []
    for number, step in enumerate(plan.steps):
        method = step.schedule
        assert isinstance(method, call.Method)
        for place, entry in enumerate(method.calls):
            words.append(call.KERNELS[entry.kernel] | (call.MORE if place else 0) | len(entry.operands) << 16)
            words += [_word(operand, plan, plan.scratch[number] or 0, constants) for operand in entry.operands]
    head = struct.pack("<4I", call.MAGIC, plan.arena_bytes, len(words), len(constants.data))
    code = head + struct.pack(f"<{len(words)}I", *words)
    return Image(code + bytes(constants.data), len(code), plan.arena_bytes)


def _word(operand: call.Operand, plan: Plan, scratch: int, constants: _Constants) -> int:
    match operand:
        case call.Constant():
            return call.CONSTANT | constants.place(operand)
        case call.Scratch():
            return scratch + operand.offset
        case call.Value():
            return plan.offsets[operand.name] + operand.offset
    return call.word_of(operand)


# The plan of a bytecode model: each node's calls, their order, the arena.


def _weighted(of_int8: Callable[[Node, Graph], call.Method]) -> Callable[[Node, Graph], call.Method]:
    def choose(node: Node, graph: Graph) -> call.Method:
        return (of_int8 if graph.types[node.inputs[0]].dtype is DType.INT8 else weighted)(node, graph)

    return choose


METHODS: Mapping[str, Callable[[Node, Graph], call.Method]] = {
    "concat": concat,
    "conv2d": _weighted(convolution),
    "dense": _weighted(dense),
    "loop": loop,
    "pool2d": pool,
    "softmax": softmax,
}
"""By the kind of node."""
PAGE = (
    "docs/bytecode.md lists what the library has; a native module has all operators (mtool module without --bytecode)"
)


def plan_bytecode(graph: Graph) -> Plan:
    """Return the plan of a graph that the passes have lowered to kernels for `SHARED`.

    Raises:
        ModelError: the library has no kernel for some operators; all of them are listed.
    """
    reasons = {
        "it keeps states between its calls": graph.states,
        "it has run-time sizes": graph.sizes,
        "it takes an input by rows": graph.stream,
    }
    for reason in (reason for reason, present in reasons.items() if present):
        raise ModelError(f"{graph.name} can't be compiled to bytecode: {reason}", hint=PAGE)
    steps: dict[str, Step] = {}
    missing = []
    for node in graph.nodes:
        if isinstance(node.attrs, View):
            continue
        try:
            if node.op not in METHODS:
                raise call.NoKernel(f"{node.op} has no kernel")
            if any(not graph.types[value].count for value in (*node.inputs, *node.outputs) if value):
                raise call.NoKernel("a tensor without elements")
            method = METHODS[node.op](node, graph)
        except call.NoKernel as reason:
            missing.append(f"{node.name} ({', '.join(node.origins) or node.op}): {reason}")
            continue
        steps[node.name] = Step(node, registry.KERNELS[node.op], method, method.scratch)
    if missing:
        message = f"{plural.count(len(missing), 'operator')} of {graph.name} can't be compiled to bytecode"
        message += f": the library has no kernel for {'it' if len(missing) == 1 else 'them'}"
        raise ModelError(message, details=missing, hint=PAGE)
    graph = replace(graph, nodes=order_nodes(graph, steps, "arena"))
    ordered = tuple(steps[node.name] for node in graph.nodes if node.name in steps)
    return lay_out_steps(graph, ordered, call.SHARED, "arena")


@frozen
class Bytecode:
    """A model as bytecode.

    Attributes:
        plan: its calls, their order, where everything lies.
        image: the bytes.
        interface: its inputs and outputs.
    """

    plan: Plan
    image: Image
    interface: Interface

    @property
    def name(self) -> str:
        """The model's."""
        return self.plan.graph.name

    def operators(self) -> tuple[tuple[str, str, int], ...]:
        """Return each operator's name, its readable label, and its multiply-accumulates."""
        graph = self.plan.graph
        return tuple(
            (step.node.name, step.op.label(step.node, graph), step.op.macs(as_computed(step.node), graph))
            for step in self.plan.steps
        )


def compile_bytecode(path: Path, options: ModelOptions) -> Bytecode:
    """Compile an ONNX or TFLite model to bytecode.

    Raises:
        UsageError: the file is missing, or an option names nothing in the model.
        ModelError: the model is malformed, or operators can't be compiled to bytecode; all are listed.
    """
    plan = plan_bytecode(passes.run(frontend.load(path, options), call.SHARED))
    return Bytecode(plan, encode(plan), interface_of(plan))
