"""The reference of a QONNX model: its own operators in NumPy, and onnxruntime for the nodes between them.

Source: the package qonnx 1.0 (qonnx.custom_op.general), which computes a model in the same way.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mtool.base.tensors import Array, Sample
from mtool.verification.oracles import ort
from mtool.verification.oracles.sequences import Run, over_samples

NAME = "onnxruntime and QONNX's operators"


def _magnitudes(rounded: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: np.sign(x) * rounded(np.abs(x))


_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "ROUND": np.round,
    "HALF_EVEN": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": _magnitudes(np.ceil),
    "DOWN": np.trunc,
    "HALF_UP": _magnitudes(lambda x: np.floor(x + np.float32(0.5))),
    "HALF_DOWN": _magnitudes(lambda x: np.ceil(x - np.float32(0.5))),
}


def _limited(x: Array, width: Array, signed: int, narrow: int) -> Array:
    """Return numbers limited to those of a bit width."""
    most = 2 ** (int(width) - bool(signed)) - 1
    low, high = (narrow - most - 1, most) if signed else (0, most - narrow)
    return np.clip(x, np.float32(low), np.float32(high))


def _quant(
    x: Array, scale: Array, point: Array, width: Array, signed: int, narrow: int, rounding_mode: str = "ROUND"
) -> Array:
    steps = x / scale + point
    if signed and int(width) == 1:
        whole = np.where(steps >= 0, np.float32(1), np.float32(-1))
    else:
        whole = _ROUNDINGS[rounding_mode.upper()](_limited(steps, width, signed, narrow))
    return np.asarray((whole - point) * scale)


def _trunc(
    x: Array, scale: Array, point: Array, width: Array, *others: Array,
    signed: int = 1, narrow: int = 0, rounding_mode: str = "FLOOR",
) -> Array:  # fmt: skip
    *new_scale, new_width = others
    rounding, numbers = _ROUNDINGS[rounding_mode.upper()], np.round(x / scale + point)
    if not new_scale:
        return np.asarray((rounding(numbers / np.float32(2.0 ** (width - new_width))) - point) * scale)
    divisor = np.exp2(np.round(np.log2(new_scale[0] / scale)))
    whole = rounding(_limited(numbers / divisor, new_width, signed, narrow))
    return np.asarray((whole - point / divisor) * new_scale[0])


def _bipolar(x: Array, scale: Array) -> Array:
    return np.asarray(np.where(x >= 0, np.float32(1), np.float32(-1)) * scale)


_OPERATORS: Mapping[str, Callable[..., Array]] = {
    "Quant": _quant, "IntQuant": _quant, "BipolarQuant": _bipolar, "Trunc": _trunc,
}  # fmt: skip


def is_own(node: onnx.NodeProto) -> bool:
    """Whether a node is one of QONNX's."""
    return bool(node.domain) and node.op_type in _OPERATORS


def computed(node: onnx.NodeProto, inputs: Iterable[Array]) -> Array:
    """Return the result of a node of QONNX, in the inputs' type of floats."""
    plain = {attr.name: helper.get_attribute_value(attr) for attr in node.attribute}
    attrs = {name: value.decode() if isinstance(value, bytes) else value for name, value in plain.items()}
    return _OPERATORS[node.op_type](*inputs, **attrs)


def _opened(model: str | bytes, *, optimised: bool = False) -> Run:
    proto = onnx.load(model) if isinstance(model, str) else onnx.load_from_string(model)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    parts: list[_Part | onnx.NodeProto] = []
    for node in proto.graph.node:
        if is_own(node):
            parts.append(node)
            continue
        if not parts or isinstance(parts[-1], onnx.NodeProto):
            parts.append(_Part(proto, optimised))
        parts[-1].nodes.append(node)

    def run(feeds: Mapping[str, Array]) -> Sample:
        values = {**constants, **feeds}
        for part in parts:
            if isinstance(part, onnx.NodeProto):
                inputs = (np.asarray(values[name], np.float32) for name in part.input)
                values[part.output[0]] = computed(part, inputs)
            else:
                values |= part.run(values)
        return {output.name: values[output.name] for output in proto.graph.output}

    return run


class _Part:
    """Consecutive nodes, which onnxruntime computes; they are opened when the types of their inputs are known."""

    def __init__(self, model: onnx.ModelProto, optimised: bool) -> None:
        self._model, self._optimised = model, optimised
        self.nodes: list[onnx.NodeProto] = []
        self._run: Run | None = None

    def run(self, values: Mapping[str, Array]) -> Sample:
        """Return the outputs of all nodes."""
        outputs = [name for node in self.nodes for name in node.output if name]
        read = {name for node in self.nodes for name in _read(node)} & values.keys()
        if self._run is None:
            part = onnx.ModelProto(ir_version=self._model.ir_version, opset_import=self._model.opset_import)
            part.functions.extend(self._model.functions)
            part.graph.name = "part"
            part.graph.node.extend(self.nodes)
            held = [tensor for tensor in self._model.graph.initializer if tensor.name in read]
            part.graph.initializer.extend(held)
            fed = sorted(read - {tensor.name for tensor in held})
            kinds = {name: helper.np_dtype_to_tensor_dtype(values[name].dtype) for name in fed}
            inputs = [helper.make_tensor_value_info(name, kinds[name], values[name].shape) for name in fed]
            part.graph.input.extend(inputs)
            part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
            self._inputs, self._run = fed, ort.opened(part.SerializeToString(), optimised=self._optimised)
        return self._run({name: values[name] for name in self._inputs})


def _read(node: onnx.NodeProto) -> set[str]:
    """Return the values that a node and its graphs read."""
    graphs: list[Any] = [attr.g for attr in node.attribute if attr.HasField("g")]
    inner = {name for graph in graphs for node in graph.node for name in _read(node)}
    return {*node.input, *inner, *(output.name for graph in graphs for output in graph.output)}


outputs = over_samples(NAME, _opened, ort.INSTALL)
"""Run a model on each sample (mtool.verification.oracles.sequences)."""
