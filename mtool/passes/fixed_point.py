"""Requantisation without an FPU: float scales become 32-bit multipliers and one shift an operator."""

import math
from dataclasses import replace

import numpy as np

from mtool.ir import DType, Expr, Graph, Node
from mtool.ir.expr import const
from mtool.ir.graph import Rewriter
from mtool.ir.node import WithEpilogue
from mtool.ir.scalar import FixedRequantise, Requantise
from mtool.ir.types import Array
from mtool.kernels.target import Target
from mtool.ops import SPECIFICATIONS


def use_fixed_point(graph: Graph, target: Target) -> Graph:
    """Rewrite `requantise` as `requantise_fixed` on targets without float32 hardware."""
    if target.has_float:
        return graph
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        attrs = node.attrs
        if not isinstance(attrs, WithEpilogue):  # a loop has no accumulator
            rewriter.keep(node)
            continue
        inputs = list(node.inputs)
        bound = attrs.acc_bound

        def fixed(part: Expr, inputs: list[str] = inputs, bound: int = bound, node: Node = node) -> Expr:
            if part.op != "requantise" or not bound:
                return part
            how: Requantise = part.value
            total, factor = part.args
            scales: Array = (
                np.asarray([factor.value], np.float64)
                if factor.op == "const"
                else rewriter.constants[inputs[factor.value]].astype(np.float64)
            )
            if total.dtype is not DType.INT32:
                return part
            shift = best_shift(float(scales.max()), bound, 8 * part.dtype.size)
            if shift is None:
                return part
            multipliers = np.rint(scales * 2.0 ** (32 + shift)).astype(np.int32)
            if factor.op == "const":
                multiplier = const(int(multipliers[0]), DType.INT32)
            else:
                inputs.append(rewriter.constant(f"{node.name}/multiplier", multipliers))
                multiplier = Expr("load", DType.INT32, factor.args, len(inputs) - 1)
            even = _ties_happen(multipliers, shift, bound)
            value = FixedRequantise(how.zero_point, how.low, how.high, shift, even)
            return Expr("requantise_fixed", part.dtype, (total, multiplier), value)

        expr = attrs.epilogue.rewrite(fixed)
        used = expr.operands() | set(range(len(SPECIFICATIONS[node.op].own(node))))
        kept = [number for number in range(len(inputs)) if number in used]
        expr = expr.with_operands({old: new for new, old in enumerate(kept)})
        new_inputs = tuple(inputs[number] for number in kept)
        rewriter.keep(replace(node, inputs=new_inputs, attrs=replace(attrs, expr=expr)))
    return rewriter.finish()


def best_shift(largest: float, bound: int, bits: int = 8) -> int | None:
    """Return the largest shift that keeps the multiplier below 2^31, and scaled sums and results of `bits` below 2^30.

    None: the scale is too large for this form.
    """
    shift = min(30 - math.floor(math.log2(largest)) - 32, 29 - max(math.ceil(math.log2(max(largest * bound, 1))), bits))
    return shift if shift >= 1 and round(largest * 2.0 ** (32 + shift)) < 2**31 else None


def _ties_happen(multipliers: Array, shift: int, bound: int) -> bool:
    """Whether acc * multiplier can be an odd number of halves: that takes enough factors of two."""
    zeros = max((int(m) & -int(m)).bit_length() - 1 for m in multipliers.tolist())
    return bound >= 2.0 ** (31 + shift - zeros)
