"""The calls of convolutions, dense layers and pools of int8."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mtool.compiler.bytecode.call import Call, Constant, Operand, Scratch, Value
from mtool.compiler.bytecode.epilogue import With, with_rest
from mtool.compiler.bytecode.method import Method, NoKernel
from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.scalar import Requantise
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.dsp.depthwise import Traversal
from mtool.compiler.kernels.conv2d.dsp.depthwise import pack as pack_depthwise
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.dense.dsp import pack as pack_dense
from mtool.compiler.kernels.dense.node import Dense
from mtool.compiler.kernels.dsp import Columns, Packed, best_scaling, go_in_pairs
from mtool.compiler.kernels.epilogues import Int8Epilogue
from mtool.compiler.kernels.exact_scaling import PLACES, ExactScaling, Together
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.pool2d.node import Pool2d
from mtool.compiler.kernels.scaling import FloatScaling

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
        raise NoKernel("what follows its sums, which is no requantisation to int8")
    if not isinstance(epilogue.how, Requantise):
        raise NoKernel("the rounding of TFLite (--rounding onnx has kernels)")
    return epilogue


def _scaling(node: Node, graph: Graph, epilogue: Int8Epilogue, together: Together) -> tuple[ExactScaling, Array]:
    """Return multipliers of the places that the kernels have, or floats in their stead, and the biases for them."""
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
    stream = Packed.of(epilogue, numbers, weights, weights, columns, groups, apart=apart).stream
    return stream.reshape(groups, -1)


def convolution(node: Node, graph: Graph) -> Method:
    """Return the calls of a convolution of int8.

    Raises:
        NoKernel: it has none.
    """
    conv, epilogue = Conv.of(node, graph), _epilogue(node, graph)
    if conv.is_depthwise:
        return _depthwise(node, graph, conv, epilogue)
    channels, made = conv.channels // conv.group, conv.out_channels // conv.group
    depth = max(LEAST_DEPTH, round_up(conv.depth, 4))
    apart = not go_in_pairs(node, graph, conv.group)
    stream = _packed(node, graph, epilogue, depth, conv.group, apart=apart)
    plain = conv.is_pointwise and depth == channels
    results = PIXELS * (made + 1) if made % 2 else made if conv.pixels % PIXELS else 0
    own = 6 * depth + (results if plain else max(depth, results))
    after = With.of(node, graph, epilogue.rest, DType.INT8, own)

    def calls() -> Iterator[Call]:
        for image in range(conv.batch):
            for group in range(conv.group):
                yield Call("conv2d_int8", (
                    Value(node.inputs[0], image * conv.size[0] * conv.size[1] * conv.channels + group * channels),
                    after.at(image * conv.pixels * conv.out_channels + group * made),
                    Constant(stream[group]), Scratch(),
                    *conv.size, channels, conv.channels, *conv.out_size, made, conv.out_channels,
                    *conv.kernel, *conv.stride, *conv.pad, *conv.dilation,
                    depth, conv.pad_value, int(apart), *_range(epilogue),
                ))  # fmt: skip

    stays = plain and conv.group == 1 and conv.batch == 1 and conv.out_channels <= conv.channels
    return with_rest(node, graph, tuple(calls()), after, over=(0,) if stays and epilogue.rest is None else ())


def _depthwise(node: Node, graph: Graph, conv: Conv, epilogue: Int8Epilogue) -> Method:
    weights = graph.constants[node.inputs[1]].reshape(conv.out_channels, *conv.kernel)
    if min(conv.pad) < 0:
        raise NoKernel("a depthwise convolution that leaves inputs out")
    reach = [(size - 1) * step + 1 for size, step in zip(conv.kernel, conv.dilation, strict=True)]
    taps = np.zeros((conv.out_channels, *reach), np.int8)  # those that a dilation leaves out are 0
    taps[:, :: conv.dilation[0], :: conv.dilation[1]] = weights
    conv = replace(conv, kernel=(reach[0], reach[1]), dilation=(1, 1))
    way = Traversal.of(conv)
    assert way is not None
    scaling, bias = _scaling(node, graph, epilogue, Together())
    rows = pack_depthwise(taps.swapaxes(1, 2) if way.transposed else taps, bias, scaling)
    stream = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))
    pitch, row = _pitch(way, epilogue)
    after = With.of(node, graph, epilogue.rest, DType.INT8, 2 * (pitch * way.rows + way.taps) + row)
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


def _pitch(way: Traversal, epilogue: Int8Epilogue) -> tuple[int, int]:
    """Return the elements from one row of a plane to the next, and the outputs of a row that are kept side by side."""
    pairs = round_up(way.out_size[1], 2)
    slides = way.kernel == (3, 3) and way.stride[1] <= 2 and (epilogue.how.low, epilogue.how.high) == (-128, 127)
    reached = max(way.pitch, (pairs - 1) * way.stride[1] + 4)
    pitch = next((one for one in PITCHES if slides and reached <= one), 0)
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
        raise NoKernel("a pool whose windows lie outside of the image")
    if not x.dtype.is_float and attrs.kernel[1] > 255:
        raise NoKernel("a pool of more than 255 columns")
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
