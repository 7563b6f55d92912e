"""onnxruntime as the reference of an ONNX model, on one thread.

Its products of integers are exact whatever the processor (mtool.verification.oracles.ort).
"""

import functools
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, inliner, numpy_helper

from mtool.base import distribution
from mtool.base.tensors import Array, Sample
from mtool.verification.oracles.sequences import Run, over_samples

# The import of onnxruntime.


def import_onnxruntime() -> Any:
    """Import onnxruntime without its telemetry, which sends reports and leaves a file `.ses` in the temporary folder.

    Raises:
        ImportError: it is not installed.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when it is imported
    import onnxruntime

    return onnxruntime


# Products of 8-bit integers that onnxruntime computes exactly, whatever the processor.
#
# For uint8 times int8, x86 processors without VNNI use VPMADDUBSW, which adds pairs of products with saturation to 16
# bits: 255 x 127 twice is 32,767, not 64,770. onnxruntime's kernels (MLAS, U8S8) accept that. The kernels for operands
# of the same sign widen to 16 bits first and are exact. So if an operator multiplies uint8 by int8, the int8 operand
# and its zero point are changed to uint8 by adding 128: the same numbers, in the exact kernels. Operators in QDQ form
# are not affected, as the reference computes them in float.


SAYING = "onnxruntime's products of uint8 and int8 saturate on this processor: both are passed as uint8, which is exact"
_OFFSET = 128


@dataclass(frozen=True, slots=True)
class _Operand:
    """The places of an 8-bit operand, its zero point, and the scale whose shape a missing zero point gets."""

    data: int
    zero: int
    scale: int | None = None


_DYNAMIC = None  # a float input, which the operator itself quantizes to uint8
_Pair = tuple[_Operand | None, _Operand]
_PRODUCTS: dict[str, tuple[_Pair, ...]] = {
    "MatMulInteger": ((_Operand(0, 2), _Operand(1, 3)),),
    "ConvInteger": ((_Operand(0, 2), _Operand(1, 3)),),
    "QLinearMatMul": ((_Operand(0, 2), _Operand(3, 5)),),
    "QLinearConv": ((_Operand(0, 2), _Operand(3, 5)),),
    "QGemm": ((_Operand(0, 2), _Operand(3, 5)),),
    "MatMulIntegerToFloat": ((_Operand(0, 4), _Operand(1, 5, scale=3)),),
    "QAttention": ((_Operand(0, 6), _Operand(1, 7, scale=4)),),
    "DynamicQuantizeMatMul": ((_DYNAMIC, _Operand(1, 3, scale=2)),),
    "DynamicQuantizeLSTM": ((_DYNAMIC, _Operand(1, 9)), (_DYNAMIC, _Operand(2, 11))),
}


def has_products(model: onnx.ModelProto) -> bool:
    """Return whether a model has operators that multiply 8-bit integers directly."""
    bodies = (model.graph, *(onnx.GraphProto(node=function.node) for function in model.functions))
    return any(node.op_type in _PRODUCTS for body in bodies for graph in _graphs(body) for node in graph.node)


@functools.cache
def saturate() -> bool:
    """Return whether onnxruntime's products of uint8 and int8 saturate on this processor, by trying one.

    Raises:
        ImportError: onnxruntime is not installed.
    """
    onnxruntime = import_onnxruntime()
    left, right = np.full((4, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]>'
        "probe (uint8[4,64] a, int8[64,16] b) => (int32[4,16] y) { y = MatMulInteger(a, b) }"
    )
    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session: Any = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (product,) = session.run(None, {"a": left, "b": right})
    return not np.array_equal(product, left.astype(np.int32) @ right.astype(np.int32))


def exact(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return an equivalent model without operators that multiply uint8 by int8.

    Operands of unknown type are not changed. The model's functions are inlined, except those that onnxruntime does not
    call because it has an operator of that name.

    Raises:
        ImportError: onnxruntime is not installed.
    """
    if model.functions:
        changed: onnx.ModelProto = inliner.inline_selected_functions(model, _hidden_functions(model), exclude=True)
    else:
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
    inferred = onnx.shape_inference.infer_shapes(changed).graph
    _Signs(_types(inferred), {name for graph in _graphs(inferred) for name in _names(graph)}).change(changed.graph)
    return changed


def _hidden_functions(model: onnx.ModelProto) -> list[tuple[str, str]]:
    """Return a model's functions, by domain and name, that onnxruntime replaces by its own operators."""
    import_onnxruntime()
    from onnxruntime.capi import onnxruntime_pybind11_state

    state: Any = onnxruntime_pybind11_state
    operators = {(schema.domain, schema.name) for schema in state.get_all_operator_schema()}
    named = [(function.domain, function.name) for function in model.functions if not function.overload]
    return [(domain, name) for domain, name in named if ("" if domain == "ai.onnx" else domain, name) in operators]


@dataclass(slots=True)
class _Signs:
    """Changes int8 operands in a graph and its subgraphs; `types` and `names` cover all their tensors."""

    types: dict[str, int]
    names: set[str]
    twins: dict[str, str] = field(default_factory=dict)  # int8 tensors and their uint8 twins in the current graph

    def change(self, graph: onnx.GraphProto) -> None:
        """Change a graph in place."""
        outer, self.twins = self.twins, dict(self.twins)
        constants = {tensor.name: tensor for tensor in graph.initializer}
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            for inner in _inner_graphs(node):
                self.change(inner)
            for left, right in _PRODUCTS.get(node.op_type, ()):
                for operand in self._mixed(node, left, right):
                    self._make_unsigned(graph, constants, node, operand)
            graph.node.append(node)
        self.twins = outer

    def _mixed(self, node: onnx.NodeProto, left: _Operand | None, right: _Operand) -> list[_Operand]:
        """Return the int8 operand of a product with a uint8 one; none for any other product."""
        kinds = [TensorProto.UINT8 if side is None else self.types.get(node.input[side.data]) for side in (left, right)]
        if set(kinds) != {TensorProto.UINT8, TensorProto.INT8}:
            return []
        return [side for side, kind in zip((left, right), kinds, strict=True) if side and kind == TensorProto.INT8]

    def _make_unsigned(
        self, graph: onnx.GraphProto, constants: dict[str, onnx.TensorProto], node: onnx.NodeProto, operand: _Operand
    ) -> None:
        node.input[operand.data] = self._twin(graph, constants, node.input[operand.data])
        node.input.extend([""] * (operand.zero + 1 - len(node.input)))
        if node.input[operand.zero]:
            node.input[operand.zero] = self._twin(graph, constants, node.input[operand.zero])
            return
        scale = None if operand.scale is None else constants.get(node.input[operand.scale])
        shape = () if scale is None else tuple(scale.dims)
        node.input[operand.zero] = self._constant(graph, "zero", np.full(shape, _OFFSET, np.uint8))

    def _twin(self, graph: onnx.GraphProto, constants: dict[str, onnx.TensorProto], name: str) -> str:
        """Return the name of a tensor with 128 added: another constant, or the output of three more nodes."""
        if name in self.twins:
            return self.twins[name]
        if name in constants:
            data = numpy_helper.to_array(constants[name]).astype(np.int16) + _OFFSET
            self.twins[name] = self._constant(graph, name, data.astype(np.uint8))
        else:
            wide, moved, twin = (self._new(f"{name}_{what}") for what in ("wide", "moved", "unsigned"))
            offset = self._constant(graph, "offset", np.array(_OFFSET, np.int32))
            graph.node.extend(
                [
                    helper.make_node("Cast", [name], [wide], to=TensorProto.INT32),
                    helper.make_node("Add", [wide, offset], [moved]),
                    helper.make_node("Cast", [moved], [twin], to=TensorProto.UINT8),
                ]
            )
            self.twins[name] = twin
        return self.twins[name]

    def _constant(self, graph: onnx.GraphProto, name: str, data: Any) -> str:
        new = self._new(f"{name}_unsigned")
        graph.initializer.append(numpy_helper.from_array(data, new))
        return new

    def _new(self, name: str) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name


def _inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and its subgraphs."""
    yield graph
    for node in graph.node:
        for inner in _inner_graphs(node):
            yield from _graphs(inner)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (tensor.name for tensor in (*graph.initializer, *graph.input))
    yield from (name for node in graph.node for name in node.output)


def _types(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the known element types of the tensors of a graph and its subgraphs."""
    types: dict[str, int] = {}
    for sub in _graphs(graph):
        types |= {tensor.name: tensor.data_type for tensor in sub.initializer}
        types |= {value.name: value.type.tensor_type.elem_type for value in (*sub.input, *sub.value_info, *sub.output)}
    return types


NAME = "onnxruntime"
INSTALL = distribution.install("verify")
log = logging.getLogger(__name__)
_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}  # the others have NumPy's names
_WIDE = {f"tensor(int{bits})": TensorProto.INT8 for bits in (2, 4)} | {
    f"tensor(uint{bits})": TensorProto.UINT8 for bits in (2, 4)
}
_BYTES = "_bytes"


def version() -> str:
    """Return onnxruntime's version, or "" if it is not installed."""
    return distribution.version_of(NAME)


def opened(model: str | bytes, *, optimised: bool = False) -> Run:
    """Open a model; `optimised`: with graph optimisations, which mean integer kernels for a quantized model."""
    onnxruntime = import_onnxruntime()
    options: Any = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # its errors are raised as well; on the terminal it would colour them
    exact = _with_exact_products(model)
    if optimised and exact is model and saturate():  # the kernels it fuses from QDQ form must not saturate either
        options.add_session_config_entry("session.x64quantprecision", "1")
    providers = ["CPUExecutionProvider"]
    session: Any = onnxruntime.InferenceSession(exact, options, providers=providers)
    names = [output.name for output in session.get_outputs()]
    small = {put.name: put.type for put in (*session.get_inputs(), *session.get_outputs()) if put.type in _WIDE}
    if small:
        session = onnxruntime.InferenceSession(_with_bytes(exact, small), options, providers=providers)
    kinds = {put.name: _TYPES.get(put.type, put.type[7:-1]) for put in session.get_inputs()}  # "tensor(int64)"

    def run(feeds: Mapping[str, Array]) -> Sample:
        passed = {name + _BYTES * (name in small): data for name, data in feeds.items()}
        outputs = session.run(None, {name: _fed(data, kinds.get(name, "")) for name, data in passed.items()})
        return {name: _array(value) for name, value in zip(names, outputs, strict=True)}

    return run


outputs = over_samples(NAME, opened, INSTALL)
"""Run a model on each sample (mtool.verification.oracles.sequences)."""


def _with_exact_products(model: str | bytes) -> str | bytes:
    """Return the model, or an equivalent one if its integer products would saturate on this processor.

    In MatMulNBits, an `accuracy_level` of 4 lets onnxruntime round activations to int8: products of floats instead.
    """
    proto = onnx.load(model, load_external_data=False) if isinstance(model, str) else onnx.load_from_string(model)
    saturates = has_products(proto) and saturate()
    if not saturates and not any(_levels(proto)):
        return model
    source = onnx.load(model) if isinstance(model, str) else proto
    for attribute in _levels(source):
        attribute.i = 0
    if saturates:
        log.warning("%s", SAYING)
        source = exact(source)
    return bytes(source.SerializeToString())


def _levels(model: onnx.ModelProto) -> Iterator[onnx.AttributeProto]:
    """Return the attributes of MatMulNBits that let activations have fewer bits."""
    bodies: tuple[Any, ...] = (model.graph, *model.functions)
    nodes = (node for body in bodies for graph in _graphs(body) for node in graph.node)
    attributes = (attribute for node in nodes if node.op_type == "MatMulNBits" for attribute in node.attribute)
    return (attribute for attribute in attributes if attribute.name == "accuracy_level" and attribute.i)


def _with_bytes(model: str | bytes, names: Mapping[str, str]) -> bytes:
    """Return the model whose inputs and outputs of fewer than 8 bits, which NumPy has no type for, are bytes."""
    proto = onnx.load(model) if isinstance(model, str) else onnx.load_from_string(model)
    for tensor in proto.graph.input:
        if kind := names.get(name := tensor.name):
            narrow = tensor.type.tensor_type.elem_type
            proto.graph.node.insert(0, helper.make_node("Cast", [name + _BYTES], [name], to=narrow))
            tensor.name, tensor.type.tensor_type.elem_type = name + _BYTES, _WIDE[kind]
    for tensor in proto.graph.output:
        if kind := names.get(name := tensor.name):
            proto.graph.node.append(helper.make_node("Cast", [name], [name + _BYTES], to=_WIDE[kind]))
            tensor.CopyFrom(onnx.ValueInfoProto(name=name + _BYTES))
    return bytes(proto.SerializeToString())


def _fed(data: Array, kind: str) -> Array:
    """Return an input in the model's type: a constant from the command line may have another."""
    array = np.asarray(data)
    return array if not kind or array.dtype.kind in "OUS" else array.astype(kind, copy=False)


def _array(value: Any) -> Array:
    """Return an output as an array; of a sequence of maps (ZipMap) their values, as in the C."""
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return np.array([list(row.values()) for row in value], np.float32)
    return np.asarray(value)
