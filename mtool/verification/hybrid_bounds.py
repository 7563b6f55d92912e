"""How far LiteRT's hybrid operators may be from float arithmetic, since they bring their activations to 8 bits.

Each activation is off by half a step at most, or by a whole one at the end of a range whose zero point was rounded; an
output by that times the sum of its weights' magnitudes. Nothing else differs but the rounding of floats.
"""

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from mtool.compiler.operators.window import CONV
from mtool.stages.samples import Array
from mtool.verification.split_at_tensors import operator_of

MOVES = ("Transpose", "Reshape")  # between a tensor of the file and what is multiplied


class HybridBounds:
    """The bounds of a network's products of float activations and dequantised weights.

    `operators` are their names, without the number of each node, as mtool.verification.translation has them.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._makers = {name: node for node in graph.node for name in node.output}
        self._held = {tensor.name: tensor for tensor in graph.initializer}
        self._products = {}
        for node in graph.node:
            weights = self._makers.get(node.input[1]) if node.op_type in (CONV, "Gemm") else None
            if weights is not None and weights.op_type == "DequantizeLinear" and weights.input[0] in self._held:
                self._products[operator_of(node)] = (node, weights)

    def of(self, operator: str, known: Mapping[str, Array], output: Array) -> Array | None:
        """Return by how much each element of an operator's output may be off; None: it is no such product.

        Args:
            operator: its name.
            known: the tensors that LiteRT has, by name.
            output: that of the operator, its channels last.
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
        """Return the sum of the magnitudes of each output channel's weights."""
        data = numpy_helper.to_array(self._held[weights.input[0]]).astype(np.float64)
        scale, point = (numpy_helper.to_array(self._held[name]).astype(np.float64) for name in weights.input[1:3])
        sizes = [-1 if dim == 0 and scale.size > 1 else 1 for dim in range(data.ndim)]
        real = (data - point.reshape(sizes)) * scale.reshape(sizes)
        reach: Array = np.abs(real).reshape(len(data), -1).sum(axis=1)
        return reach
