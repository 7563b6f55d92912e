"""Compare each node of a quantized network with exact arithmetic on the integers that the network computed.

An integer that is rounded from a real number is determined by it, unless the number is so near to a half between two
integers that float32's own error decides: a tie. Here the real number is computed in float64 from the integers that
were seen before the node, so that a tie further up explains nothing further down, and nothing hides behind it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = NDArray[Any]
UNIT = 2.0**-24  # float32's relative error of one operation
ROUNDINGS = 16  # this many of them, of the largest partial sum, are float32's own error of a result
LINEAR = {"Conv", "ConvTranspose", "MatMul", "Gemm", "Add", "Sum", "Mean", "AveragePool", "GlobalAveragePool",
          "ReduceSum", "ReduceMean", "CumSum", "Einsum"}  # fmt: skip
MOVING = {"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Concat", "Split", "Gather", "Tile",
          "GatherElements", "GatherND", "Expand", "DepthToSpace", "SpaceToDepth", "Pad", "Identity"}  # fmt: skip
INTEGER_PRODUCTS = {"MatMulInteger", "ConvInteger"}
ROUNDED = {"QuantizeLinear", "QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul", "DynamicQuantizeLinear"}


@dataclass(frozen=True, slots=True)
class Tie:
    """An integer that float32's error decides: its tensor and place, the exact number, and that error."""

    tensor: str
    place: tuple[int, ...]
    exact: float
    error: float
    seen: int

    def __str__(self) -> str:
        return (
            f"{self.tensor}{list(self.place)} is {self.seen}: exactly {self.exact:.9f}, ± {self.error:.2g} in float32"
        )


@dataclass(slots=True)
class Findings:
    """What was found: ties, what nothing explains, and scales of zeros, where onnxruntime differs from ONNX."""

    ties: list[Tie] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    scales_of_zeros: list[str] = field(default_factory=list)


def rounded_tensors(model: onnx.ModelProto) -> list[str]:
    """Return the integer tensors that are rounded from real numbers."""
    return [name for node in model.graph.node if node.op_type in ROUNDED for name in node.output]


def with_outputs(
    model: onnx.ModelProto, names: list[str], types_from: onnx.ModelProto | None = None
) -> onnx.ModelProto:
    """Return a model with more of its tensors as outputs; their types are those of `types_from`, or its own."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    present = {value.name for value in made.graph.output}
    types = {value.name: value for value in (types_from or made).graph.value_info}
    for name in names:
        if name not in present:
            made.graph.output.append(types[name])
    return made


def check(model: onnx.ModelProto, feeds: Mapping[str, Array], seen: Mapping[str, Array]) -> Findings:
    """Check every integer and output that was seen of a network against exact arithmetic on what was seen before it.

    Args:
        model: the network.
        feeds: its inputs.
        seen: tensors that an implementation made, by name: all that are rounded, and the outputs.
    """
    return _Checker(model, feeds, seen).run()


class _Checker:
    def __init__(self, model: onnx.ModelProto, feeds: Mapping[str, Array], seen: Mapping[str, Array]) -> None:
        self.model, self.seen, self.found = model, seen, Findings()
        self.values: dict[str, Array] = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.values.update(feeds)
        self.values = {name: _wide(data) for name, data in self.values.items()}
        self.sizes = {name: abs(data) for name, data in self.values.items() if data.dtype == np.float64}
        self.outputs = {value.name for value in model.graph.output}

    def run(self) -> Findings:
        for node in self.model.graph.node:
            with np.errstate(all="ignore"):
                self.compute(node)
            for name in node.output:
                if name in self.seen and node.op_type not in ROUNDED:
                    self.compare(name)
                    self.values[name] = _wide(self.seen[name])
        return self.found

    def compute(self, node: onnx.NodeProto) -> None:
        """Compute a node's outputs in float64, with the largest partial sums in them."""
        given = list(node.input)
        attrs = {attr.name: helper.get_attribute_value(attr) for attr in node.attribute}
        if node.op_type == "DequantizeLinear":
            self.put(node.output[0], self.real(*given, axis=attrs.get("axis", 1)))
        elif node.op_type == "QuantizeLinear":
            self.round(node.output[0], self.values[given[0]], self.sizes[given[0]], *given[1:3])
        elif node.op_type in ("QLinearConv", "QLinearMatMul"):
            x, w = self.real(*given[:3]), self.real(*given[3:6], axis=0 if node.op_type == "QLinearConv" else 1)
            op = node.op_type.removeprefix("QLinear")
            inputs = [x, w]
            if len(given) > 8:
                inputs.append(self.values[given[8]] * self.values[given[1]] * self.values[given[4]])
            kept = list(node.attribute)
            exact = self.evaluate(op, inputs, kept)[0]
            sums = self.evaluate(op, [abs(data) for data in inputs], kept)[0]
            self.round(node.output[0], exact, sums, given[6], given[7])
        elif node.op_type in ("QLinearAdd", "QLinearMul"):
            a, b = self.real(*given[:3]), self.real(*given[3:6])
            add = node.op_type == "QLinearAdd"
            self.round(node.output[0], a + b if add else a * b, abs(a) + abs(b) if add else abs(a * b), *given[6:8])
        elif node.op_type == "DynamicQuantizeLinear":
            self.dynamic(node)
        else:
            self.ordinary(node)

    def ordinary(self, node: onnx.NodeProto) -> None:
        inputs = [self.values[name] if name else None for name in node.input]
        results = self.evaluate(node.op_type, inputs, list(node.attribute), len(node.output))
        floats = [self.sizes.get(name) for name in node.input]
        if node.op_type in LINEAR | MOVING | {"Mul", "Sub"}:
            op = "Add" if node.op_type == "Sub" else node.op_type
            sizes = [inputs[n] if size is None else size for n, size in enumerate(floats)]
            kept = [attr for attr in node.attribute if attr.name not in ("alpha", "beta")]
            grown = self.evaluate(op, sizes, kept, len(node.output))
        else:
            top = max((float(size.max(initial=0)) for size in floats if size is not None), default=1.0)
            same = [size for size in floats if size is not None and size.shape == np.shape(results[0])]
            grown = [np.maximum(abs(r), same[0] if len(same) == 1 else min(top, 1e6)) for r in map(_wide, results)]
        for name, result, size in zip(node.output, results, grown, strict=True):
            if name:
                self.put(name, _wide(result), abs(_wide(size)))

    def put(self, name: str, data: Array, size: Array | None = None) -> None:
        self.values[name] = data
        if data.dtype == np.float64:
            self.sizes[name] = abs(data) if size is None else np.maximum(size, abs(data))

    def evaluate(self, op: str, inputs: list[Any], attrs: list[onnx.AttributeProto], outputs: int = 1) -> list[Array]:
        """Run one node: by onnxruntime in integers and float64, else by onnx's reference evaluator."""
        if op == "Cast" and any(attr.name == "to" and attr.i == onnx.TensorProto.FLOAT for attr in attrs):
            return [np.asarray(inputs[0], np.float64)]
        names = [f"i{n}" if data is not None else "" for n, data in enumerate(inputs)]
        node = helper.make_node(op, names, [f"o{n}" for n in range(outputs)])
        node.attribute.extend(attrs)
        fed = {name: np.asarray(data) for name, data in zip(names, inputs, strict=True) if name}
        puts = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(data.dtype), data.shape)
            for name, data in fed.items()
        ]
        gets = [onnx.ValueInfoProto(name=name) for name in node.output]
        graph = helper.make_graph([node], "one", puts, gets)
        model = helper.make_model(graph, opset_imports=list(self.model.opset_import), ir_version=9)
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        try:
            if op in INTEGER_PRODUCTS and not all(data.size for data in fed.values()):
                raise ValueError("onnxruntime does not write an integer product over zero elements")
            session = onnxruntime.InferenceSession(model.SerializeToString(), options)
            return [np.asarray(data) for data in session.run(None, fed)]
        except Exception:  # nor has it float64 of every operator
            return [np.asarray(data) for data in ReferenceEvaluator(model).run(None, fed)]

    def real(self, name: str, scale: str, zero: str = "", axis: int = 1) -> Array:
        """Return the numbers that integers on a grid stand for."""
        data = self.values[name].astype(np.float64)
        factor = self.values[scale]
        point = self.values[zero].astype(np.float64) if zero else np.zeros(factor.shape)
        if factor.ndim == 1 and factor.size > 1:
            shape = [-1 if n == axis % data.ndim else 1 for n in range(data.ndim)]
            factor, point = factor.reshape(shape), point.reshape(shape)
        return (data - point) * factor

    def round(self, name: str, exact: Array, size: Array, scale: str, zero: str) -> None:
        """Check integers against the numbers that they are rounded from."""
        mine = self.seen[name]
        factor, point = float(self.values[scale]), float(self.values[zero])
        self.judge(name, mine, exact / factor, np.asarray(size) / factor, point)
        self.values[name] = mine

    def judge(self, name: str, mine: Array, places: Array, sizes: Array, point: float) -> None:
        limits = np.iinfo(mine.dtype)
        wanted = np.clip(np.rint(places) + point, limits.min, limits.max)
        error = ROUNDINGS * UNIT * np.maximum(np.maximum(sizes, abs(places)), 1.0)
        low = np.clip(np.rint(places - error) + point, limits.min, limits.max)
        high = np.clip(np.rint(places + error) + point, limits.min, limits.max)
        for at in np.argwhere(mine != wanted):
            place = tuple(int(n) for n in at)
            if low[place] <= mine[place] <= high[place]:
                exact = float(places[place])
                self.found.ties.append(Tie(name, place, exact, float(error[place]), int(mine[place]) - int(point)))
            else:
                words = f"{name}{list(place)}: {mine[place]} for {places[place] + point:.6f} ± {error[place]:.2g}"
                self.found.wrong.append(words)

    def dynamic(self, node: onnx.NodeProto) -> None:
        """Check DynamicQuantizeLinear: its scale to float32's error, its integers by the scale that was seen."""
        data = self.values[node.input[0]]
        low, high = min(0.0, data.min(initial=0)), max(0.0, data.max(initial=0))
        mine, scale, zero = (self.seen[name] for name in node.output)
        # Where all numbers are 0, ONNX's formula gives a scale of 0, and onnxruntime gives 1. The codes are the same.
        width = (high - low) / 255
        if not width and float(scale) in (0.0, 1.0):
            self.found.scales_of_zeros.append(node.output[1])
        elif abs(float(scale) - width) > 1e-6 * max(width, 1e-30):
            self.found.wrong.append(f"{node.output[1]}: {float(scale)} for {width}")
        factor = float(scale) or 1.0
        self.judge(node.output[2], zero.reshape(1), np.array([-low / factor]), np.array([abs(low / factor) * 2]), 0.0)
        self.judge(node.output[0], mine, data / factor, abs(data / factor) * 2, float(zero))
        for name, value in zip(node.output, (mine, _wide(scale), zero), strict=True):
            self.values[name] = value
        self.sizes[node.output[1]] = abs(_wide(scale))

    def compare(self, name: str) -> None:
        """Check an output that is not rounded to integers."""
        mine, exact = self.seen[name], self.values[name]
        if mine.shape != exact.shape:
            self.found.wrong.append(f"{name}: {list(mine.shape)} for {list(exact.shape)}")
            return
        if mine.dtype.kind != "f":
            off = np.argwhere(mine != exact)
            if len(off):
                self.found.wrong.append(f"{name}: {len(off)} integers differ")
            return
        size = self.sizes.get(name, abs(exact))
        top = float(abs(exact[np.isfinite(exact)]).max(initial=0))
        error = np.maximum(64 * UNIT * size, 1e-5 * np.maximum(abs(exact), 0.1 * top))
        same = np.where(
            np.isfinite(exact), abs(mine - exact) <= error, (mine == exact) | (np.isnan(mine) & np.isnan(exact))
        )
        if not same.all():
            at = tuple(int(n) for n in np.argwhere(~same)[0])
            self.found.wrong.append(f"{name}{list(at)}: {mine[at]} for {exact[at]} ± {error[at]:.2g}")


def _wide(data: Any) -> Array:
    """Return float32 as float64, all else as it is."""
    data = np.asarray(data)
    return data.astype(np.float64) if data.dtype.kind == "f" else data
