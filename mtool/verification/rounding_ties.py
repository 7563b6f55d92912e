"""Rounding ties: elements of a quantised reference that the error of its own float sums decides.

The reference computes a quantised operator in float: it dequantises, sums, and rounds to the output's grid. A sum that
falls in the middle between two steps comes out a little above or below it there, by the order in which the floats were
added, and is rounded up or down by that. No implementation can be held to one of the two. An element is a tie if both
the reference's integer and the device's are what the exact value may be rounded to within float32's own error
(mtool.verification.exact): nothing else excuses a difference.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from mtool.compiler.ir.graph import moved
from mtool.manifest import Operand, Operator
from mtool.stages.samples import Array, Sample
from mtool.verification.exact import Bounds, ExactValues, Unknown

_SLACK = 1e-5  # of floats on a grid, times max(1, largest magnitude): what float outputs may differ by
_ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM")


class RoundingTies:
    """The rounding ties of an ONNX network, operator by operator; None has no ties."""

    def __init__(self, network: onnx.ModelProto | None, operators: Sequence[Operator] = ()) -> None:
        proto = network or onnx.ModelProto()
        self._exact = ExactValues(proto)
        self._held = {operand.source.tensor for op in operators for operand in op.writes if operand.source}
        self.has_rounding = any(node.op_type in _ROUNDING for node in proto.graph.node)

    @property
    def tensors(self) -> list[str]:
        """The float tensors that the model rounds: `SampleTies` wants the reference's."""
        return self._exact.rounded

    def of_sample(self, inputs: Sample, known: Sample) -> "SampleTies":
        """Return the ties of one sample.

        Args:
            inputs: the model's inputs by name.
            known: the reference's tensors by name.
        """
        return SampleTies(self._exact, self._held, {**known, **inputs})


class SampleTies:
    """The ties of one sample, computed where they are asked for; the parts of an operator's result share them."""

    def __init__(self, exact: ExactValues, held: set[str], known: Mapping[str, Array]) -> None:
        self._exact, self._known = exact, known
        self._held = {name for name in held if name in known}
        self._found: dict[str, Bounds | None] = {}

    def accept(self, operand: Operand, expected: Array, actual: Array) -> tuple[Array, int]:
        """Return an operator's result with the expected value wherever a tie explains the difference, and how many.

        Args:
            operand: the operator's output, of a tensor of the model; the device read its inputs as `known`.
            expected: the reference's, as it lies in the device's memory.
            actual: the device's.
        """
        if operand.source is None or np.array_equal(expected, actual):
            return actual, 0
        bounds = self._bounds(operand.source.tensor)
        if bounds is None or not bounds.open:
            return actual, 0
        whole = self._known[operand.source.tensor]
        kind = np.float64 if whole.dtype.kind == "f" else whole.dtype
        moves = operand.source.moves
        low, high = (
            moved(end.astype(kind).reshape(whole.shape), moves).reshape(operand.shape).astype(np.float64)
            for end in (bounds.low, bounds.high)
        )
        slack = _SLACK * np.maximum(1.0, np.abs(low).max(initial=0.0)) if whole.dtype.kind == "f" else 0.0
        inside = [
            (low - slack <= array.astype(np.float64)) & (array.astype(np.float64) <= high + slack)
            for array in (expected, actual)
        ]
        tied = (expected != actual) & (low < high) & inside[0] & inside[1]
        return np.where(tied, expected, actual), int(tied.sum())

    def _bounds(self, tensor: str) -> Bounds | None:
        if tensor not in self._found:
            try:
                found = self._exact.bounds(tensor, self._known, self._held)
                self._found[tensor] = found if found.value.size == self._known[tensor].size else None
            except Unknown:
                self._found[tensor] = None
        return self._found[tensor]
