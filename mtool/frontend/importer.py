"""Walk an ONNX graph once: infer types, fold constants, bring every node to its canonical form."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mtool import ops
from mtool.errors import ModelError
from mtool.frontend.canonical import CANONICAL
from mtool.frontend.qoperators import EXPANSIONS
from mtool.ir import DType, Graph, Node, TensorType
from mtool.ir.graph import verify
from mtool.ir.types import Array

NEWEST_OPSET = 21  # the opset of the nodes that mtool itself writes when it expands an operator
UNFOLDED = {"DequantizeLinear", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli"}


class Importer:
    """The state of one import. Canonicalisers call `emit`, `constant` and `fail`."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.opsets = {entry.domain or "": entry.version for entry in model.opset_import}
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.nodes: list[Node] = []
        self.problems: list[tuple[str, str, str]] = []  # operator, node name, reason
        self._names: set[str] = set()
        self._unknown: set[str] = set()

    def unique(self, stem: str) -> str:
        """Return a value or node name that is not taken."""
        name, number = stem, 0
        while name in self._names or name in self.types:
            number += 1
            name = f"{stem}.{number}"
        self._names.add(name)
        return name

    def constant(self, stem: str, data: Array) -> str:
        """Add a constant and return its name."""
        name = self.unique(stem)
        self.add_constant(name, data)
        return name

    def add_constant(self, name: str, data: Array) -> None:
        """Give a value a constant."""
        data = np.ascontiguousarray(data).reshape(np.shape(data))
        self.constants[name] = data
        self.types[name] = TensorType(DType.of(data.dtype), data.shape)

    def emit(self, op: str, origin: str, inputs: list[str], outputs: list[str], attrs: Mapping[str, Any]) -> None:
        """Append a canonical node; its outputs must have types."""
        self.nodes.append(Node(op, self.unique(origin), tuple(inputs), tuple(outputs), dict(attrs), (origin,)))

    def fail(self, op: str, origin: str, reason: str) -> None:
        """Note a node that can't be compiled."""
        self.problems.append((op, origin, reason))

    def run(self, proto: onnx.NodeProto, version: int) -> None:
        """Import one node."""
        origin = proto.name or (proto.output[0] if proto.output else proto.op_type)
        if any(name in self._unknown for name in proto.input):
            self._unknown.update(proto.output)  # follows from a problem that is noted already
            return
        if proto.op_type == "Constant" and proto.domain in ("", "ai.onnx"):
            self.add_constant(proto.output[0], _constant_value(proto))
            return
        expand = EXPANSIONS.get((proto.domain, proto.op_type))
        if expand is not None:
            for part in expand(self, proto, origin):
                self.run(part, NEWEST_OPSET)
            return
        if proto.domain not in ("", "ai.onnx"):
            self.fail(proto.op_type, origin, f"domain {proto.domain} is not supported")
            self._unknown.update(proto.output)
            return
        try:
            self._infer(proto, version)
            if all(name in self.constants or not name for name in proto.input) and proto.op_type not in UNFOLDED:
                self._fold(proto, version)
                return
        except _Unsupported as problem:
            self.fail(proto.op_type, origin, str(problem))
            self._unknown.update(proto.output)
            return
        attrs = {attr.name: _plain(helper.get_attribute_value(attr)) for attr in proto.attribute}
        canonical = CANONICAL.get(proto.op_type)
        if canonical is None and proto.op_type not in ops.LOWERINGS:
            self.fail(proto.op_type, origin, "not supported")
            return
        if canonical is not None:
            canonical(self, proto, origin, attrs, version)
        else:
            self.emit(proto.op_type, origin, list(proto.input), list(proto.output), attrs)

    def _infer(self, proto: onnx.NodeProto, version: int) -> None:
        types = {
            name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(kind.dtype.numpy), kind.shape)
            for name in proto.input
            if name and (kind := self.types.get(name))
        }
        data = {
            name: numpy_helper.from_array(self.constants[name], name)
            for name in proto.input
            if name in self.constants and self.constants[name].size <= 1024
        }
        try:
            schema = onnx.defs.get_schema(proto.op_type, version, "")
            found = onnx.shape_inference.infer_node_outputs(
                schema, proto, types, data, opset_imports=[helper.make_opsetid("", version)], ir_version=10
            )
        except (onnx.shape_inference.InferenceError, onnx.defs.SchemaError, onnx.checker.ValidationError) as failed:
            raise _Unsupported(str(failed).strip().splitlines()[-1]) from None
        for name in proto.output:
            if not name:
                continue
            kind = found.get(name)
            if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
                raise _Unsupported("the shape of its output can't be told before it runs")
            dims = kind.tensor_type.shape.dim
            if not all(dim.HasField("dim_value") for dim in dims):
                raise _Unsupported("its output shape depends on data")
            try:
                dtype = DType.of(helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
            except KeyError:
                label = TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()
                raise _Unsupported(f"elements of type {label} are not supported") from None
            self.types[name] = TensorType(dtype, tuple(dim.dim_value for dim in dims))

    def _fold(self, proto: onnx.NodeProto, version: int) -> None:
        inputs = [helper.make_tensor_value_info(name, 1, None) for name in proto.input if name]
        outputs = [helper.make_tensor_value_info(name, 1, None) for name in proto.output if name]
        graph = helper.make_graph([proto], "fold", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
        feeds = {name: self.constants[name] for name in proto.input if name}
        for info, value in zip(outputs, ReferenceEvaluator(model).run(None, feeds), strict=True):
            kind = self.types[info.name]
            self.add_constant(info.name, np.asarray(value, kind.dtype.numpy).reshape(kind.shape))


class _Unsupported(Exception):
    """Why one node can't be compiled."""


def import_graph(model: onnx.ModelProto, name: str) -> Graph:
    """Return the graph of a checked model whose input shapes are numbers.

    Raises:
        ModelError: operators that can't be compiled; every one is listed.
    """
    state = Importer(model)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    for tensor in model.graph.initializer:
        try:
            state.add_constant(tensor.name, numpy_helper.to_array(tensor))
        except (KeyError, ValueError, TypeError) as failed:
            raise ModelError(f"initialiser {tensor.name!r} can't be read", details=[str(failed)]) from None
    inputs = []
    for value in model.graph.input:
        if value.name in state.constants:
            continue
        dims = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        try:
            dtype = DType.of(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        except KeyError:
            label = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
            raise ModelError(f"input {value.name!r} has elements of type {label}", details=["not supported"]) from None
        state.types[value.name] = TensorType(dtype, dims)
        inputs.append(value.name)
    version = state.opsets.get("", state.opsets.get("ai.onnx", NEWEST_OPSET))
    for proto in model.graph.node:
        state.run(proto, version)
    if state.problems:
        width = max(len(op) for op, _, _ in state.problems)
        raise ModelError(
            f"{len(state.problems)} operator{'s' * (len(state.problems) > 1)} of {name} can't be compiled",
            details=[f"{op:<{width}}  {origin}   {reason}" for op, origin, reason in state.problems],
            hint="see docs/operators.md for what is supported",
        )
    outputs = tuple(value.name for value in model.graph.output)
    graph = Graph(name, tuple(inputs), outputs, tuple(state.nodes), state.types, state.constants, outputs)
    verify(graph)
    return graph


def _constant_value(proto: onnx.NodeProto) -> Array:
    attr = proto.attribute[0]
    value = helper.get_attribute_value(attr)
    if attr.name == "value":
        return np.asarray(numpy_helper.to_array(value))
    dtype = np.float32 if attr.name.startswith("value_float") else np.int64
    return np.asarray(value, dtype)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else tuple(value) if isinstance(value, list) else value
