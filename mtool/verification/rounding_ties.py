"""Rounding ties: elements of a quantized reference that are decided by the error of its own float sums.

The reference computes a quantized operator in float: it dequantizes, sums, and rounds to the output's grid. A sum
halfway between two steps comes out slightly above or below, depending on the order in which the floats are added, and
is rounded accordingly. Both results are right. An element is a tie if both the reference's integer and the device's are
roundings of the exact value within float32's own error: no other difference is accepted.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mtool.compiler.frontend.inference import attributes
from mtool.compiler.ir.graph import moved
from mtool.compiler.ir.types import DType
from mtool.manifest import Operand, Operator
from mtool.stages.samples import Array, Sample
from mtool.verification.oracles import qonnx

# The exact values of a quantized model's tensors, and the integers that float32 arithmetic may round them to.
#
# The reference computes a quantized operator in float32: it dequantizes, sums, divides by the scale and rounds. Here
# onnx's own reference computes the same nodes from the same integers in float64, which is nearly exact, and in float32.
# The distance between the two is float32's own error in this operator on these data; onnxruntime's error, with another
# order of additions, is counted too if it is of that size. An integer whose exact value is within that error of a half
# is a tie: the order of additions decides which of its two neighbours results, and both are right.
#
# A tie's neighbours continue as an interval through the rest of the same operator: a sum, a concat, a second
# quantization.


_UNIT = 2.0**-24  # roundoff of float32
_ROUNDINGS = 4  # in a float32 requantization: product and quotient of scales, conversion of the sum, their product
_PLAUSIBLE = 8.0  # times the float32 error of onnx's reference: a larger error of onnxruntime's is not rounding
_WITH_BIAS = {"Conv": 1, "ConvTranspose": 1, "Gemm": -1}  # the bias's axis in the result
_SCALED = ("DequantizeLinear", "Quant", "IntQuant", "BipolarQuant")  # by their second input
_SAME_SCALE = ("Flatten", "Identity", "MaxPool", "Pad", "Relu", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
_CORNERS = ("align_corners", "tf_crop_and_resize")  # coordinate modes with the places of both ends
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)


@dataclass(frozen=True, slots=True)
class Bounds:
    """A tensor's values in the reference, and the smallest and largest value of each element because of ties.

    If no element is a tie, the three are the same array. Floats are float64; `single` is the value computed in float32,
    and for integers the same array.
    """

    value: Array
    low: Array
    high: Array
    single: Array

    @classmethod
    def of(cls, value: Array) -> "Bounds":
        """Return the bounds of a known value, which has no ties."""
        wide = value.astype(np.float64) if value.dtype.kind == "f" else value
        return cls(wide, wide, wide, value)

    @property
    def open(self) -> bool:
        """Whether any element may differ from the reference's."""
        return self.low is not self.value


class Unknown(Exception):
    """The exact value of a tensor can't be computed."""


class RoundingTies:
    """The rounding ties of an ONNX network, operator by operator; without a network there are none.

    It computes tensors of the network's own graph exactly, from known tensors.

    Attributes:
        tensors: the float tensors that the network rounds to integers; `of_sample` uses the reference's values, which
            show how exact its floats are.
        held: the tensors that operators write, where a computation begins.
        has_rounding: the network rounds to integers.
    """

    def __init__(self, network: onnx.ModelProto | None, operators: Sequence[Operator] = ()) -> None:
        model = network or onnx.ModelProto()
        self._opsets = list(model.opset_import)
        self._nodes = list(model.graph.node)
        self._makers = {name: index for index, node in enumerate(self._nodes) for name in node.output if name}
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        quantizers = [node for node in self._nodes if node.op_type == "QuantizeLinear" or qonnx.is_own(node)]
        self.tensors = list(dict.fromkeys(node.input[0] for node in quantizers))
        self.held = {operand.source.tensor for op in operators for operand in op.writes if operand.source}
        self.has_rounding = any(node.op_type in _ROUNDING or qonnx.is_own(node) for node in self._nodes)

    def of_sample(self, inputs: Sample, tensors: Sample) -> "SampleTies":
        """Return the ties of one sample.

        Args:
            inputs: the model's inputs by name.
            tensors: the reference's tensors by name.
        """
        return SampleTies(self, {**tensors, **inputs})

    def bounds(self, tensor: str, tensors: Mapping[str, Array], held: AbstractSet[str]) -> Bounds:
        """Compute a tensor from those in `held`, the model's inputs and its constants.

        Args:
            tensor: its name.
            tensors: the reference's tensors by name, and the model's inputs.
            held: names of the tensors to begin at, with values in `tensors`.

        Raises:
            Unknown: onnx's reference lacks an operator, or an input is unknown.
        """
        values: dict[str, Bounds] = {}
        if tensor not in self._makers:
            raise Unknown(tensor)
        for index in self._region(tensor, held):
            node = self._nodes[index]
            inputs = [self._value(name, values, tensors) for name in node.input]
            for name, result in zip(node.output, self._evaluated(node, inputs, tensors), strict=False):
                values[name] = result
            moved = self._bias_rounding(node, inputs, values, tensors)
            if moved is not None:
                result = values[node.output[0]]
                low, high = result.low + np.minimum(moved, 0), result.high + np.maximum(moved, 0)
                values[node.output[0]] = Bounds(result.value, low, high, result.single)
        return values[tensor]

    def _bias_rounding(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[Bounds | None],
        values: Mapping[str, Bounds],
        tensors: Mapping[str, Array],
    ) -> Array | None:
        """Return the change of each result if a float bias is rounded to int32 steps, as in integer kernels.

        onnxruntime does so too when it optimises. None: the node has no such bias.
        """
        if node.op_type not in _WITH_BIAS or len(node.input) < 3 or node.input[2] not in self._constants:
            return None
        makers = [self._dequantization_of(name) for name in node.input[:2]]
        bias = inputs[2]
        if bias is None or bias.value.dtype.kind != "f" or None in makers:
            return None
        scales = [self._value(maker.input[1], values, tensors) for maker in makers if maker]
        step = math.prod((bounds.value.astype(np.float64).reshape(-1) for bounds in scales if bounds), start=np.ones(1))
        wide = bias.value.reshape(-1)
        if step.size not in (1, wide.size):
            return None
        moved = np.rint(wide / step) * step - wide
        rank = values[node.output[0]].value.ndim
        return moved.reshape([-1 if axis == _WITH_BIAS[node.op_type] % rank else 1 for axis in range(rank)])

    def _dequantization_of(self, name: str) -> onnx.NodeProto | None:
        """Return the node that dequantizes a value, before operators that keep its scale."""
        while name in self._makers:
            maker = self._nodes[self._makers[name]]
            if maker.op_type in _SCALED:
                return maker
            name = maker.input[0] if maker.op_type in _SAME_SCALE else ""
        return None

    def _region(self, tensor: str, held: AbstractSet[str]) -> list[int]:
        """Return the nodes between the held tensors and a tensor, in graph order."""
        region: set[int] = set()
        names = [tensor]
        while names:
            name = names.pop()
            index = self._makers.get(name)
            if index is not None and index not in region and (name == tensor or name not in held):
                region.add(index)
                names.extend(self._nodes[index].input)
        return sorted(region)

    def _value(self, name: str, values: Mapping[str, Bounds], tensors: Mapping[str, Array]) -> Bounds | None:
        if not name:
            return None
        if name in values:
            return values[name]
        if name in tensors:
            return Bounds.of(tensors[name])
        if name in self._constants:
            return Bounds.of(numpy_helper.to_array(self._constants[name]))
        raise Unknown(name)

    def _evaluated(
        self, node: onnx.NodeProto, inputs: Sequence[Bounds | None], tensors: Mapping[str, Array]
    ) -> Sequence[Bounds]:
        if node.op_type == "QuantizeLinear":
            return [_quantized(node, inputs, tensors)]
        if qonnx.is_own(node):
            return [self._on_grid(node, inputs, tensors)]
        if node.op_type == "DequantizeLinear":
            return _bounds_of(inputs, _dequantization(node, inputs))
        if node.op_type == "Cast" and attributes(node).get("to") in _FLOATS:
            return _bounds_of(inputs, lambda arrays, wide: [np.asarray(arrays[0]).astype(wide)])
        return _bounds_of(inputs, lambda arrays, _: self._run(node, arrays))

    def _on_grid(self, node: onnx.NodeProto, inputs: Sequence[Bounds | None], tensors: Mapping[str, Array]) -> Bounds:
        """Return the result of one of QONNX's nodes, whose floats are on a grid."""
        x, *others = (bounds for bounds in inputs if bounds)
        if node.input[0] not in self._makers:  # its float32 is exact
            return Bounds.of(qonnx.computed(node, [bounds.single for bounds in (x, *others)]))
        parameters = [bounds.value for bounds in others]
        error = _float_error(x, tensors.get(node.input[0])) + _ROUNDINGS * _UNIT * (
            np.maximum(np.abs(x.low), np.abs(x.high)) + (np.abs(parameters[0] * parameters[1]) if others[1:] else 0)
        )
        value, low, high = (
            qonnx.computed(node, [end, *parameters]) for end in (x.value, x.low - error, x.high + error)
        )
        mine = tensors.get(node.output[0])
        if mine is not None and mine.shape == value.shape:
            value = mine.astype(np.float64)
        single = value.astype(np.float32)
        return Bounds(value, low, high, single) if (low < high).any() else Bounds(value, value, value, single)

    def _run(self, node: onnx.NodeProto, inputs: Sequence[Array | None]) -> list[Array]:
        """Run one node with onnx's reference."""
        from onnx.reference import ReferenceEvaluator

        if node.op_type == "Resize":
            node, inputs = _of_whole_sizes(node, inputs)
        feeds = {name: array for name, array in zip(node.input, inputs, strict=True) if array is not None}
        puts = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in feeds]
        results = [name for name in node.output if name]
        outs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in results]
        model = helper.make_model(helper.make_graph([node], "node", puts, outs), opset_imports=self._opsets)
        try:
            computed = dict(zip(results, ReferenceEvaluator(model).run(results, feeds), strict=True))
        except Exception as refused:  # whatever NumPy raises in an operator that onnx's reference lacks or restricts
            raise Unknown(f"{node.op_type}: {refused}") from None
        return [np.asarray(computed.get(name, 0.0)) for name in node.output]


def _of_whole_sizes(
    node: onnx.NodeProto, inputs: Sequence[Array | None]
) -> tuple[onnx.NodeProto, Sequence[Array | None]]:
    """Return a Resize between corners with its sizes instead of its scales.

    From scales, onnx's reference computes the last element's position with a size that is not a whole number;
    onnxruntime rounds the size down.
    """
    attrs, x, scales = attributes(node), inputs[0], inputs[2] if len(inputs) > 2 else None
    if attrs.get("coordinate_transformation_mode") not in _CORNERS or x is None or scales is None or not scales.size:
        return node, inputs
    shape = np.array(x.shape, np.float32)[list(attrs.get("axes") or range(x.ndim))]
    sized = onnx.NodeProto()
    sized.CopyFrom(node)
    sized.input[:] = [node.input[0], node.input[1], "", "sizes"]
    return sized, [x, inputs[1], None, np.floor(shape * scales).astype(np.int64)]


Compute = Callable[[list[Array | None], type], list[Array]]


def _bounds_of(inputs: Sequence[Bounds | None], compute: Compute) -> list[Bounds]:
    """Compute a node's outputs for each array of its inputs' bounds; `compute` also gets the type of the floats."""
    values = compute([bounds.value if bounds else None for bounds in inputs], np.float64)
    singles = compute([bounds.single if bounds else None for bounds in inputs], np.float32)
    if not any(bounds.open for bounds in inputs if bounds):
        return [Bounds(value, value, value, single) for value, single in zip(values, singles, strict=True)]
    lows = compute([bounds.low if bounds else None for bounds in inputs], np.float64)
    highs = compute([bounds.high if bounds else None for bounds in inputs], np.float64)
    return [
        Bounds(value, np.minimum(np.minimum(low, high), value), np.maximum(np.maximum(low, high), value), single)
        for value, low, high, single in zip(values, lows, highs, singles, strict=True)
    ]


def _quantized(node: onnx.NodeProto, inputs: Sequence[Bounds | None], tensors: Mapping[str, Array]) -> Bounds:
    x, scale, zero, dtype = _grid(node, inputs)
    error = _float_error(x, tensors.get(node.input[0])) / scale
    with np.errstate(invalid="ignore"):
        error = error + _ROUNDINGS * _UNIT * np.maximum(np.abs(x.low), np.abs(x.high)) / scale
        ends = np.rint(x.value / scale), np.ceil(x.low / scale - 0.5 - error), np.floor(x.high / scale + 0.5 + error)
    value, low, high = (np.clip(end + zero, *dtype.limits).astype(dtype.numpy) for end in ends)
    mine = tensors.get(node.output[0])
    if mine is not None and mine.shape == value.shape:
        value = mine
    return Bounds(value, low, high, value) if (low < high).any() else Bounds(value, value, value, value)


def _dequantization(node: onnx.NodeProto, inputs: Sequence[Bounds | None]) -> Compute:
    _, scale, zero, _ = _grid(node, inputs)

    def compute(arrays: list[Array | None], wide: type) -> list[Array]:
        return [(np.asarray(arrays[0]).astype(wide) - zero.astype(wide)) * scale.astype(wide)]

    return compute


def _float_error(x: Bounds, reference: Array | None) -> float:
    """Return the largest error of float32 over a tensor's elements."""
    furthest = _furthest(x.value, x.single)
    if reference is None or reference.shape != x.value.shape:
        return furthest
    unit = _UNIT * float(np.abs(x.value[np.isfinite(x.value)]).max(initial=0.0))
    return max(furthest, min(_furthest(x.value, reference), _PLAUSIBLE * (furthest + unit)))


def _furthest(exact: Array, single: Array) -> float:
    with np.errstate(invalid="ignore"):
        distance = np.abs(single.astype(np.float64) - exact)
    return float(distance[np.isfinite(distance)].max(initial=0.0))


def _grid(node: onnx.NodeProto, inputs: Sequence[Bounds | None]) -> tuple[Bounds, Array, Array, DType]:
    """Return a (de)quantizing node's input, its scale and zero point in broadcast shape, and the integers' type."""
    x, scale = inputs[0], inputs[1]
    zero = inputs[2].value if len(inputs) > 2 and inputs[2] is not None else None
    if x is None or scale is None or attributes(node).get("block_size"):
        raise Unknown(node.op_type)
    named = attributes(node).get("output_dtype") if node.op_type == "QuantizeLinear" else None
    kind = zero.dtype if zero is not None else helper.tensor_dtype_to_np_dtype(named or TensorProto.UINT8)
    dtype = DType.of(kind)
    if not dtype.is_integer:
        raise Unknown(f"{node.op_type} of {kind}")
    shape = [1] * x.value.ndim
    if scale.value.size > 1:
        axis = attributes(node).get("axis")
        shape[1 if axis is None else axis] = scale.value.size
    wide = np.zeros(1) if zero is None else zero.astype(np.float64)
    beside = wide.reshape(shape) if wide.size == scale.value.size else wide.reshape(-1)[:1]
    return x, scale.value.astype(np.float64).reshape(shape), beside, dtype


_SLACK = 1e-5  # of floats on a grid, times max(1, largest magnitude): the tolerance of float outputs
_ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM")


class SampleTies:
    """The ties of one sample, computed on demand; the parts of an operator's result share them."""

    def __init__(self, ties: RoundingTies, tensors: Mapping[str, Array]) -> None:
        self._ties, self._tensors = ties, tensors
        self._cache: dict[str, Bounds | None] = {}

    def accept(self, operand: Operand, expected: Array, actual: Array) -> tuple[Array, int]:
        """Return an operator's result with the expected value for each element that is a tie, and the number of ties.

        Args:
            operand: the operator's output, a tensor of the model; the device's inputs were those in `tensors`.
            expected: the reference's values, in the device's memory layout.
            actual: the device's values.
        """
        if operand.source is None or np.array_equal(expected, actual):
            return actual, 0
        bounds = self._bounds(operand.source.tensor)
        if bounds is None or not bounds.open:
            return actual, 0
        tensor = self._tensors[operand.source.tensor]
        kind = np.float64 if tensor.dtype.kind == "f" else tensor.dtype
        moves = operand.source.moves
        low, high = (
            moved(end.astype(kind).reshape(tensor.shape), moves).reshape(operand.shape).astype(np.float64)
            for end in (bounds.low, bounds.high)
        )
        slack = _SLACK * np.maximum(1.0, np.abs(low).max(initial=0.0)) if tensor.dtype.kind == "f" else 0.0
        inside = [
            (low - slack <= array.astype(np.float64)) & (array.astype(np.float64) <= high + slack)
            for array in (expected, actual)
        ]
        tied = (expected != actual) & (low < high) & inside[0] & inside[1]
        return np.where(tied, expected, actual), int(tied.sum())

    def _bounds(self, tensor: str) -> Bounds | None:
        if tensor not in self._cache:
            try:
                bounds = self._ties.bounds(tensor, self._tensors, self._ties.held & self._tensors.keys())
                self._cache[tensor] = bounds if bounds.value.size == self._tensors[tensor].size else None
            except Unknown:
                self._cache[tensor] = None
        return self._cache[tensor]
