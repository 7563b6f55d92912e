"""Elements of a quantised reference that the noise of its own float sums decides.

The reference computes a quantised operator in float: it dequantises, sums, and rounds to the output's grid. An exact
integer sum that falls in the middle between two steps comes out a little above or below it there, by the order in which
the floats were added, and is rounded up or down by that. No implementation can be held to one of the two.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from mtool.frontend.reading import reread
from mtool.ir.source import moved
from mtool.manifest import Operand, Operator
from mtool.workflow.samples import Array

_NOISE = 1e-5  # of float sums, in steps, times the magnitude in steps


class Ties:
    """The QuantizeLinear nodes of a model with a scale for the whole tensor; None: of no model."""

    def __init__(self, model: Path | None) -> None:
        graph = reread(model).graph if model else onnx.GraphProto()
        constants = {tensor.name: tensor for tensor in graph.initializer}
        constants |= {node.output[0]: node.attribute[0].t for node in graph.node if node.op_type == "Constant"}
        self._nodes: dict[str, tuple[str, str, float]] = {}
        for node in graph.node:
            if node.op_type == "QuantizeLinear" and node.input[1] in constants:
                scale = numpy_helper.to_array(constants[node.input[1]])
                if scale.size == 1:
                    found = (node.input[0], node.output[0], float(scale.reshape(-1)[0]))
                    self._nodes[node.name] = self._nodes[node.output[0]] = found

    def tensors(self, operator: Operator) -> list[str]:
        """Return the float tensors that an operator's quantisations round."""
        return [self._nodes[name][0] for name in operator.origins if name in self._nodes]

    def steps(self, operator: Operator, operand: Operand, known: Mapping[str, Array]) -> Array | None:
        """Return by how many steps each element of an operator's result may differ because of ties; None: none may.

        Args:
            operator: whose quantisations count, also those that were fused into it.
            operand: its result, with its source.
            known: the reference's tensors by name.
        """
        if operand.source is None:
            return None
        nodes = [self._nodes[name] for name in operator.origins if name in self._nodes]
        own = next((scale for _, output, scale in nodes if output == operand.source.tensor), None)
        if own is None:
            return None
        placing = tuple(move for move in operand.source.moves if move[0] != "signed")
        steps = np.zeros(operand.shape)
        for tensor, _, scale in nodes:
            whole = known[operand.source.tensor].shape
            if tensor not in known or _real(known[tensor].shape) != _real(whole):
                continue
            places = known[tensor].astype(np.float64) / scale
            off = np.abs(places - np.floor(places) - 0.5)
            tied = off <= _NOISE * np.maximum(1.0, np.abs(places))
            steps += moved(tied.reshape(whole), placing).reshape(operand.shape) * math.ceil(scale / own - 1e-6)
        return steps


def _real(shape: tuple[int, ...]) -> list[int]:
    """Return the sizes that are not 1: a reshape may stand between two quantisations."""
    return [size for size in shape if size != 1]


def settle(expected: Array, actual: Array, steps: Array | None) -> tuple[Array, int]:
    """Return the results with the expected value wherever a tie explains the difference, and how many those are."""
    if steps is None:
        return actual, 0
    distance = np.abs(actual.astype(np.float64) - expected)
    tied = (distance > 0) & (distance <= steps)
    return np.where(tied, expected, actual), int(tied.sum())
