"""Check that each operator's translation from TFLite to ONNX computes what LiteRT does.

The network is cut at every tensor of the file: each operator gets LiteRT's values as inputs, so that the rounding of
one operator does not reach the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from mtool.base.errors import ModelError
from mtool.compiler.operators.window import CONV
from mtool.stages.compiling import CompiledModel
from mtool.stages.samples import Array, Sample
from mtool.verification import reference
from mtool.verification.reference import operator_of

# The error bounds of LiteRT's hybrid operators against float arithmetic, since they quantize activations to 8 bits.
#
# Each activation is off by at most half a step, or a whole one at the end of a range whose zero point was rounded; an
# output by that times the sum of its weights' magnitudes. Otherwise only the rounding of floats differs.


MOVES = ("Transpose", "Reshape")  # between a tensor of the file and a product's input


class HybridBounds:
    """The bounds of a network's products of float activations and dequantized weights.

    `hybrid` are the names of the operators that dequantize weights.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._makers = {name: node for node in graph.node for name in node.output}
        self._held = {tensor.name: tensor for tensor in graph.initializer}
        dequantized = [node for node in graph.node if node.op_type == "DequantizeLinear"]
        self.hybrid = {operator_of(node) for node in dequantized if node.input[0] in self._held}
        self._products = {}
        for node in graph.node:
            weights = self._makers.get(node.input[1]) if node.op_type in (CONV, "Gemm") else None
            if weights is not None and weights.op_type == "DequantizeLinear" and weights.input[0] in self._held:
                self._products[operator_of(node)] = (node, weights)

    def of(self, operator: str, known: Mapping[str, Array], output: Array) -> Array | None:
        """Return the error bound of each element of an operator's output; None: it is not such a product.

        Args:
            operator: its name.
            known: LiteRT's tensors, by name.
            output: the operator's output, channels last.
        """
        found = self._products.get(operator)
        if found is None:
            return None
        product, weights = found
        source = product.input[0]
        while source not in known and source in self._makers and self._makers[source].op_type in MOVES:
            source = self._makers[source].input[0]
        reach = self._reach(weights)
        if source not in known or output.shape[-1:] != reach.shape:
            return None
        depth = int(np.prod(self._held[weights.input[0]].dims[1:]))
        rows = len(known[source]) if product.op_type == CONV else known[source].size // max(depth, 1)
        x = np.asarray(known[source], np.float64).reshape(rows, -1)
        low, high = x.min(axis=1, initial=0), x.max(axis=1, initial=0)
        off = np.maximum(np.maximum(high, -low) / 254, (high - low) / 255)
        each: Array = (off[:, None, None] * reach).repeat(max(output.size // max(rows * reach.size, 1), 1), axis=1)
        return each.reshape(output.shape) if each.size == output.size else None

    def _reach(self, weights: onnx.NodeProto) -> Array:
        """Return the sum of the weights' magnitudes for each output channel."""
        data = numpy_helper.to_array(self._held[weights.input[0]]).astype(np.float64)
        scale, point = (numpy_helper.to_array(self._held[name]).astype(np.float64) for name in weights.input[1:3])
        sizes = [-1 if dim == 0 and scale.size > 1 else 1 for dim in range(data.ndim)]
        real = (data - point.reshape(sizes)) * scale.reshape(sizes)
        reach: Array = np.abs(real).reshape(len(data), -1).sum(axis=1)
        return reach


STEPS = {8: 4, 16: 64}
"""By the bits of a grid: the steps by which LiteRT's tables and shifts may differ from the rounded result."""
RELATIVE = 1e-4
"""The same for floats, relative to the tensor's largest value."""
HYBRID = 2e-2
"""The same for recurrent operators with integer weights whose activations LiteRT quantizes to 8 bits.

For others there is a bound: `HybridBounds`.
"""
NOTHING = 1e-30
"""Smaller differences are ignored: converters give a grid of 1e-37 to tensors that were always 0.

LiteRT's shifts do not reach such grids, so that its integers there are wrong.
"""


@dataclass(frozen=True, slots=True)
class Mistranslation:
    """An operator whose translation differs from LiteRT; `words` says by how much."""

    operator: str
    words: str


def mistranslations(
    model: CompiledModel, network: reference.Network | None, samples: Sequence[Sample]
) -> tuple[Mistranslation, ...]:
    """Compare the translation of each operator of a TFLite model with LiteRT, on the first sample.

    States have their initial values. A network that can't be cut in parts counts as a mistranslation.

    Raises:
        BuildError: onnxruntime or LiteRT is not installed.
    """
    if network is None or not samples:
        return ()
    graph = network.proto.graph
    bounds, made = HybridBounds(graph), [name for node in graph.node for name in node.output]
    try:
        (known,) = reference.intermediates(model.path, None, samples[:1], made, options=model.options)
        parts = reference.part_results(model.path, network, samples[0], known, options=model.options)
    except ModelError as refused:
        return (Mistranslation("the network", f"can't be compared operator by operator: {refused.what}"),)
    found = []
    for name, (operator, computed) in parts.items():
        bound = bounds.of(operator, {**samples[0], **known}, known[name])
        relative = HYBRID if operator in bounds.hybrid and bound is None else RELATIVE
        step = network.steps.get(name, 1.0)
        words = _difference(known[name], computed, relative, step, bound)
        if words:
            found.append(Mistranslation(operator, f"{name}: {words}"))
    return tuple(found)


def _difference(wanted: Array, found: Array, relative: float, step: float, bound: Array | None = None) -> str:
    """Return by how much an operator's result is off, if that is more than LiteRT's own error; else "".

    `step` is the real value of an integer step; `bound` is an additional error bound of each element.
    """
    if wanted.shape != found.shape or wanted.dtype != found.dtype:
        return f"expected {wanted.dtype}{list(wanted.shape)}, found {found.dtype}{list(found.shape)}"
    if not wanted.size:
        return ""
    if wanted.dtype.kind == "f":
        finite = np.isfinite(wanted) & np.isfinite(found)
        if not np.array_equal(wanted[~finite], found[~finite], equal_nan=True):
            return "other elements are not finite"
        off = np.abs(wanted[finite].astype(np.float64) - found[finite])
        allowed = np.full(off.shape, relative * max(float(np.abs(wanted[finite]).max(initial=0)), 1e-3))
        if bound is not None:
            allowed += bound[finite]
        worst = int(np.argmax(off - allowed)) if off.size else 0
        return f"by {off[worst]:.3g}, allowed: {allowed[worst]:.3g}" if (off > allowed).any() else ""
    steps = STEPS.get(8 * wanted.dtype.itemsize, 0) if wanted.dtype.kind in "iu" else 0
    furthest = int(np.abs(wanted.astype(np.int64) - found.astype(np.int64)).max())
    return f"by {furthest} LSB, allowed: {steps}" if furthest > steps and furthest * step > NOTHING else ""
