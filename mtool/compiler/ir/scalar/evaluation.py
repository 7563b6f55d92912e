"""An expression whole: its meaning for a tensor, and its C."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.scalar.arithmetic import ARITHMETIC
from mtool.compiler.ir.scalar.conversions import CONVERSIONS
from mtool.compiler.ir.scalar.fixed16 import FIXED16
from mtool.compiler.ir.scalar.function import A, Function
from mtool.compiler.ir.scalar.rescaling import RESCALING
from mtool.compiler.ir.scalar.text import Text, literal

FUNCTIONS: dict[str, Function] = {**ARITHMETIC, **CONVERSIONS, **RESCALING, **FIXED16}
"""All scalar functions, by the name that an expression has for them."""


def evaluate(
    expr: Expr, operands: Sequence[np.ndarray[Any, Any]], shape: tuple[int, ...], total: A = None
) -> np.ndarray[Any, Any]:
    """Return what an expression means for every element of a tensor of `shape`.

    Args:
        expr: the expression of one element.
        operands: the node's inputs, by number.
        shape: the loop's size along axes 0, 1, …
        total: what stands for `acc`, an array of `shape`.
    """
    sizes = dict(enumerate(shape))
    for node in expr.parts():
        if node.op == "reduce":
            sizes.update(node.value.axes)
    order = sorted(sizes)
    rank = len(order)

    def grid(number: int) -> A:
        view = [1] * rank
        view[order.index(number)] = sizes[number]
        return np.arange(sizes[number]).reshape(view)

    def visit(node: Expr, args: Sequence[A]) -> A:
        if node.op == "const":
            return np.asarray(node.value, node.dtype.numpy)
        if node.op == "axis":
            return grid(node.value)
        if node.op == "acc":
            return np.asarray(total).reshape([sizes[n] if n < len(shape) else 1 for n in order])
        if node.op == "load":
            data = operands[node.value]
            if not args:
                return data
            if not data.size:  # nothing lies inside
                return np.zeros(np.broadcast_shapes(*map(np.shape, args)), data.dtype)
            # An index of a load that a `where` will drop may lie outside.
            inside = [np.clip(arg, 0, size - 1) for arg, size in zip(args, data.shape, strict=True)]
            return data[tuple(np.broadcast_arrays(*inside))]
        if node.op == "reduce":
            axes = tuple(order.index(number) for number, _ in node.value.axes)
            full = [sizes[n] if i in axes else 1 for i, n in enumerate(order)]
            body = np.broadcast_to(args[0], np.broadcast_shapes(np.shape(args[0]), tuple(full)))
            return getattr(np, node.value.kind).reduce(body, axis=axes, keepdims=True).astype(node.dtype.numpy)
        return FUNCTIONS[node.op].meaning(node, *args)

    with np.errstate(all="ignore"):  # infinities and NaN are numbers like others, as they are in C
        result = np.asarray(expr.fold(visit))
    result = result.reshape((1,) * (rank - result.ndim) + result.shape)
    full_shape = tuple(shape) + (1,) * (rank - len(shape))
    return np.broadcast_to(result, full_shape).astype(expr.dtype.numpy).reshape(shape)


def render(expr: Expr, leaf: Callable[[Expr], Text]) -> Text:
    """Return an expression as C; `leaf` gives the text of axes, loads, reductions and acc."""

    def text(node: Expr, args: Sequence[Text]) -> Text:
        if node.op == "const":
            return literal(node.value, node.dtype)
        return leaf(node) if node.op in _LEAVES else FUNCTIONS[node.op].text(node, *args)

    return expr.fold(text, leaves=_LEAVES)


_LEAVES = ("axis", "load", "acc", "reduce")
