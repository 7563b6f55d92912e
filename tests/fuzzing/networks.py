"""Random valid networks: values with their types, and nodes drawn one after another onto what is there."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from mtool.compiler.operators import operators

Array = NDArray[Any]
OPSET = 18
MOST_ELEMENTS = 3000
SIZES = (1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12)


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the network."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass(slots=True)
class Net:
    """A network under construction. `add` takes a node only if onnx infers types for it."""

    rng: random.Random
    inputs: list[Value] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    opset: int = OPSET
    count: int = 0

    def fresh(self, stem: str) -> str:
        """Return a name that is free."""
        self.count += 1
        return f"{stem}{self.count}"

    def input(self, dtype: Any, shape: Sequence[int]) -> Value:
        """Add an input."""
        value = Value(self.fresh("x"), np.dtype(dtype), tuple(shape))
        self.inputs.append(value)
        self.values[value.name] = value
        return value

    def constant(self, data: Any, dtype: Any = None) -> str:
        """Add a constant and return its name."""
        name = self.fresh("k")
        self.constants[name] = np.asarray(data, dtype)
        return name

    def normal(self, shape: Sequence[int], spread: float = 0.5) -> str:
        """Add a constant of random float32 and return its name."""
        return self.constant(self.numbers().normal(0, spread, tuple(shape)), np.float32)

    def whole(self, numbers: Sequence[int]) -> str:
        """Add a constant of int64 and return its name."""
        return self.constant(list(numbers), np.int64)

    def numbers(self) -> np.random.Generator:
        """Return a generator that the network's own one seeds."""
        return np.random.default_rng(self.rng.getrandbits(32))

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
        known, data = {}, {}
        for name in filter(None, node.input):
            if name in self.constants:
                data[name] = numpy_helper.from_array(self.constants[name], name)
                dtype, shape = self.constants[name].dtype, self.constants[name].shape
            else:
                dtype, shape = self.values[name].dtype, self.values[name].shape
            known[name] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), shape)
        if domain:  # onnx has no schemas of these; each keeps the type of its first input, its caller gives the shape
            raise ValueError("use `declare`")
        schema = onnx.defs.get_schema(node.op_type, self.opset, domain)
        imports = [helper.make_opsetid(domain, self.opset)]
        try:
            found = onnx.shape_inference.infer_node_outputs(schema, node, known, data, opset_imports=imports)
        except Exception as refused:
            raise ValueError(str(refused)) from None
        made = []
        for name in node.output:
            kind = found[name].tensor_type if name in found else None
            if kind is None or not kind.HasField("shape") or any(not d.HasField("dim_value") for d in kind.shape.dim):
                raise ValueError(f"no shape of {node.op_type}")
            sizes = tuple(dim.dim_value for dim in kind.shape.dim)
            if min(sizes, default=0) < 0:
                raise ValueError("a negative size")
            made.append(Value(name, np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)), sizes))
        return made

    def declare(self, op: str, inputs: Sequence[str], dtype: Any, shape: Sequence[int], **attrs: Any) -> Value:
        """Append a node of com.microsoft, whose result has this type."""
        value = Value(self.fresh("v"), np.dtype(dtype), tuple(shape))
        self.nodes.append(
            helper.make_node(op, inputs, [value.name], name=self.fresh("n"), domain="com.microsoft", **attrs)
        )
        self.values[value.name] = value
        return value

    def pick(self, dtype: Any = np.float32, rank: int | None = None) -> Value:
        """Choose a value, a recent one more often.

        Raises:
            ValueError: there is none.
        """
        found = [v for v in self.values.values() if v.dtype == dtype and (rank is None or v.rank == rank)]
        if not found:
            raise ValueError("nothing of that kind")
        return found[-1] if self.rng.random() < 0.5 else self.rng.choice(found[-6:])

    def axis(self, value: Value) -> int:
        """Choose an axis, sometimes counted from the end.

        Raises:
            ValueError: it has none.
        """
        if not value.rank:
            raise ValueError("no axis")
        return self.rng.randrange(-value.rank, value.rank)

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """Draw a shape; equal sizes are frequent, so that an axis that is taken for another shows."""
        rng = self.rng
        rank = rng.choice((0, 1, 2, 2, 3, 3, 4, 4, 4, 5)) if rank is None else rank
        if rng.random() < 0.35:
            return (rng.choice((2, 3, 3, 4)),) * rank
        sizes = [rng.choice(SIZES if rank < 4 else (1, 2, 3, 3, 4, 5, 7)) for _ in range(rank)]
        if rank == 4 and rng.random() < 0.6:
            sizes = [1, rng.choice((1, 2, 3, 4, 6, 8)), rng.randint(3, 9), rng.randint(3, 9)]
        return tuple(sizes)

    def model(self) -> onnx.ModelProto:
        """Return the network; what nothing reads, and sometimes a value between, is an output."""
        read = {name for node in self.nodes for name in node.input}
        made = [self.values[name] for node in self.nodes for name in node.output if name in self.values]
        outputs = [value for value in made if value.name not in read]
        between = [value for value in made if value.name in read]
        if between and self.rng.random() < 0.3:
            outputs.append(self.rng.choice(between))
        return to_model(self.nodes, self.inputs, outputs, self.constants, self.values, self.opset)


def draw_case(net: Net, *ops: str) -> None:
    """Append a case of one of the operators, as its record has them.

    Raises:
        ValueError: nothing that is there goes with it.
    """
    op = net.rng.choice(ops)
    cases = operators()["", op].cases
    assert cases is not None, f"{op} has no cases"
    cases(net, op)


def to_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: dict[str, Array],
    values: dict[str, Value],
    opset: int,
) -> onnx.ModelProto:
    """Return a model with every type declared."""
    used = {name for node in nodes for name in node.input}
    initialisers = [numpy_helper.from_array(data, name) for name, data in constants.items() if name in used]
    declared = [info(values[name]) for node in nodes for name in node.output if name in values]
    named = {value.name for value in outputs}
    graph = helper.make_graph(
        list(nodes),
        "network",
        [info(value) for value in inputs],
        [info(value) for value in outputs],
        initialisers,
        value_info=[kind for kind in declared if kind.name not in named],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


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
