"""Random valid networks: typed values, and nodes appended one after another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mtool.compiler.operators import operators
from mtool.compiler.operators.operator import Draw, Value

Array = NDArray[Any]
MOST_ELEMENTS = 3000


@dataclass(slots=True)
class Net(Draw):
    """A network under construction. `add` takes a node only if its types can be inferred."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attrs: Any) -> list[Value]:
        """Append a node and return its outputs.

        Raises:
            ValueError: the node is not valid, or its result is too large.
        """
        names = [self.fresh("v") for _ in range(outputs)]
        node = helper.make_node(op, inputs, names, name=self.fresh("n"), domain=domain, **attrs)
        made = self._types(node, domain)
        if any(value.size > MOST_ELEMENTS for value in made):
            raise ValueError("too large")
        self.nodes.append(node)
        self.values.update((value.name, value) for value in made)
        return made

    def one(self, op: str, inputs: Sequence[str], domain: str = "", **attrs: Any) -> Value:
        """Append a node of one output and return that."""
        return self.add(op, inputs, 1, domain, **attrs)[0]

    def _types(self, node: onnx.NodeProto, domain: str) -> list[Value]:
        version = self.opset if not domain else ml_opset([node]) if domain == "ai.onnx.ml" else 0
        if not onnx.defs.has(node.op_type, version, domain) or any(attr.HasField("g") for attr in node.attribute):
            return self._by_running(node)
        known, data = {}, {}
        for name in filter(None, node.input):
            if name in self.constants:
                data[name] = numpy_helper.from_array(self.constants[name], name)
                dtype, shape = self.constants[name].dtype, self.constants[name].shape
            else:
                dtype, shape = self.values[name].dtype, self.values[name].shape
            known[name] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), shape)
        schema = onnx.defs.get_schema(node.op_type, version, domain)
        imports = [helper.make_opsetid(domain, version)]
        try:
            found = onnx.shape_inference.infer_node_outputs(schema, node, known, data, opset_imports=imports)
        except Exception as refused:
            raise ValueError(str(refused)) from None
        made = []
        for name in node.output:
            kind = found[name].tensor_type if name in found else None
            if kind is None or not kind.HasField("shape") or any(not d.HasField("dim_value") for d in kind.shape.dim):
                return self._by_running(node)
            sizes = tuple(dim.dim_value for dim in kind.shape.dim)
            if min(sizes, default=0) < 0:
                raise ValueError("a negative size")
            made.append(Value(name, np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)), sizes))
        return made

    def _by_running(self, node: onnx.NodeProto) -> list[Value]:
        """Return the types of what a node gives, where ONNX's inference does not say them."""
        read = [self.values[name] for name in reads(node) if name in self.values]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
        model = to_model([node], read, outputs, self.constants, {}, self.opset)
        results = reference(model, feeds(model, 1))
        return [Value(name, data.dtype, data.shape) for name, data in results.items()]

    def model(self) -> onnx.ModelProto:
        """Return the network; what nothing reads, and sometimes a value between, is an output."""
        read = {name for node in self.nodes for name in reads(node)}
        made = [self.values[name] for node in self.nodes for name in node.output if name in self.values]
        outputs = [value for value in made if value.name not in read]
        between = [value for value in made if value.name in read]
        if between and self.rng.random() < 0.3:
            outputs.append(self.rng.choice(between))
        return to_model(self.nodes, self.inputs, outputs, self.constants, self.values, self.opset)


def ml_opset(nodes: Iterable[onnx.NodeProto]) -> int:
    """Return the opset of classical operators: 5 has trees of another kind than those before."""
    return 5 if any(node.op_type == "TreeEnsemble" for node in nodes) else 3


def reads(node: onnx.NodeProto) -> list[str]:
    """Return the values that a node and the graphs in it read."""
    inside = [name for attr in node.attribute for inner in attr.g.node for name in reads(inner)]
    return [*dict.fromkeys([*node.input, *inside])]


def draw_case(net: Net, op: str, domain: str = "") -> list[Value]:
    """Append a case of an operator, as its record draws it, and return its outputs.

    Raises:
        ValueError: nothing that is there goes with it.
    """
    operator = operators()[domain, op]
    assert operator.cases is not None, f"{op} has no cases"
    case = operator.cases(net, operator)
    made = net.add(op, case.inputs, case.outputs, domain, **case.attrs)
    if case.grid is not None:
        net.grids[made[0].name] = case.grid
    return made


def by_onnxruntime(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return onnxruntime's outputs by name, with no graph optimisation.

    Raises:
        ValueError: it refuses the model.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    names = [value.name for value in model.graph.output]
    try:
        typed = all(value.type.WhichOneof("value") for value in model.graph.output)
        if typed and all(onnx.defs.has(node.op_type, node.domain) for node in model.graph.node if not node.domain):
            onnx.checker.check_model(model)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return dict(zip(names, map(np.asarray, session.run(names, dict(inputs))), strict=True))
    except Exception as refused:  # onnxruntime's errors share no base
        raise ValueError(str(refused)) from None


def reference(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return onnxruntime's outputs by name, or those of onnx's reference evaluator where it refuses the model.

    Raises:
        ValueError: both refuse it.
    """
    try:
        return by_onnxruntime(model, inputs)
    except ValueError as refused:
        try:
            found = ReferenceEvaluator(model).run(None, dict(inputs))
        except Exception as failed:  # whatever an operator's own code raises
            raise ValueError(f"{refused}; onnx.reference: {failed!r}") from None
        return {value.name: np.asarray(data) for value, data in zip(model.graph.output, found, strict=True)}


def to_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value | onnx.ValueInfoProto],
    constants: dict[str, Array],
    values: dict[str, Value],
    opset: int,
) -> onnx.ModelProto:
    """Return a model with every type declared."""
    used = {name for node in nodes for name in reads(node)}
    initialisers = [numpy_helper.from_array(data, name) for name, data in constants.items() if name in used]
    declared = [info(values[name]) for node in nodes for name in node.output if name in values]
    named = {value.name for value in outputs}
    graph = helper.make_graph(
        list(nodes),
        "network",
        [info(value) for value in inputs],
        [value if isinstance(value, onnx.ValueInfoProto) else info(value) for value in outputs],
        initialisers,
        value_info=[kind for kind in declared if kind.name not in named],
    )
    opsets = [("", opset), ("com.microsoft", 1), ("ai.onnx.ml", ml_opset(nodes))]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in opsets], ir_version=9)


def info(value: Value) -> onnx.ValueInfoProto:
    """Return a value's type as ONNX writes it."""
    return helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def feeds(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    """Draw inputs of a network."""
    rng = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        if dtype.kind == "b":
            data = rng.integers(0, 2, shape).astype(bool)
        elif dtype.kind == "f":
            data = rng.normal(0, rng.choice((0.3, 1.0, 3.0)), shape).astype(dtype)
        else:
            limits = np.iinfo(dtype) if dtype.itemsize == 1 else np.iinfo(np.int8)
            data = rng.integers(max(limits.min, 0 if dtype.kind == "u" else -128), limits.max, shape, endpoint=True)
            data = data.astype(dtype)
        found[value.name] = np.asarray(data)
    return found
