"""The calls of convolutions and dense layers of float32, and of softmaxes."""

import math

import numpy as np

from mtool.compiler.bytecode.call import Call, Constant, Operand, Value
from mtool.compiler.bytecode.epilogue import With, with_rest
from mtool.compiler.bytecode.method import Method, NoKernel
from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.softmax import SoftmaxOfRows

TABLE = 256  # exponentials of int8


def _limits(expr: Expr) -> tuple[float, float] | None:
    """Return between which numbers an epilogue keeps results; None: it does something else."""
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
