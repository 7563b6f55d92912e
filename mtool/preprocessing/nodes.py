"""Write ONNX nodes: those in front of a model, and the bodies of functions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mtool.compiler.operators.problems import OWN

OPSET = 18
"""The oldest opset of these nodes: older ones have axes of reductions as attributes."""


class Nodes:
    """Nodes that are appended one after the other.

    An operand is a value's name or a constant: an int becomes int64, a float float32, a list int64; a NumPy value keeps
    its type. An attribute `to` is a NumPy type. The names of nodes and values begin with `prefix`.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def __call__(self, kind: str, *operands: Any, **attrs: Any) -> str:
        """Append a node with one output and return that; otherwise as `several`."""
        return self.several(kind, 1, *operands, **attrs)[0]

    def several(self, kind: str, count: int, *operands: Any, **attrs: Any) -> list[str]:
        """Append a node of ONNX or of mtool's own domain with `count` outputs, and return them."""
        name = f"{self.prefix}{kind.lower()}_{len(self.nodes)}"
        outputs = [f"{name}_{number}" if count > 1 else name for number in range(count)]
        inputs = [operand if isinstance(operand, str) else self.constant(operand) for operand in operands]
        if "to" in attrs:
            attrs["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(attrs["to"]))
        domain = "" if onnx.defs.has(kind) else OWN
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, domain=domain, **attrs))
        return outputs

    def constant(self, data: Any) -> str:
        """Add a constant and return its name."""
        if not isinstance(data, np.ndarray | np.generic):
            data = np.asarray(data, np.float32 if isinstance(data, float) else np.int64)
        name = f"{self.prefix}constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(data), name))
        return name

    def cast(self, value: str, dtype: Any) -> str:
        """Append a Cast to a NumPy type."""
        return self("Cast", value, to=dtype)

    def floor_divided(self, value: str, by: int) -> str:
        """Append an integer division that rounds down."""
        return self("Div", self("Sub", value, self("Mod", value, by)), by)

    def chosen(self, value: str, table: Sequence[int]) -> str:
        """Append a lookup in a table of int64."""
        return self("Gather", np.asarray(table, np.int64), value)

    def function(
        self, name: str, inputs: Sequence[str], outputs: Sequence[str], results: Sequence[str]
    ) -> onnx.FunctionProto:
        """Return these nodes as a function of mtool's domain whose outputs are the values `results`."""
        constants = [
            helper.make_node("Constant", [], [tensor.name], name=tensor.name, value=tensor) for tensor in self.constants
        ]
        ends = [helper.make_node("Identity", [name], [output]) for name, output in zip(results, outputs, strict=True)]
        imports = [helper.make_opsetid("", OPSET)]
        return helper.make_function(OWN, name, list(inputs), list(outputs), [*constants, *self.nodes, *ends], imports)
