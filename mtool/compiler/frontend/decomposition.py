"""Decomposition of one operator into other ONNX nodes; each is imported at once, so its type is known."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import TensorType

OPSET = {"": 23}


class Decomposition:
    """One operator, and the nodes that it is decomposed into."""

    def __init__(self, state: Importer, proto: onnx.NodeProto, origin: str, attrs: Mapping[str, Any]) -> None:
        self.state, self.proto, self.origin, self.attrs = state, proto, origin, attrs

    def __call__(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Write a node with one output and return that.

        Raises:
            Unsupported: it can't be compiled; why is noted.
        """
        return self.several(op, 1, *inputs, **attrs)[0]

    def several(self, op: str, count: int, *inputs: str, **attrs: Any) -> list[str]:
        """Write a node and return its outputs; attributes of None are left out.

        Raises:
            Unsupported: it can't be compiled; why is noted.
        """
        outputs = [self.state.unique(f"{self.origin}/{op}") for _ in range(count)]
        kept = {key: value for key, value in attrs.items() if value is not None}
        self.state.run(helper.make_node(op, inputs, outputs, name=self.origin, **kept), OPSET)
        if any(output not in self.state.types for output in outputs):
            raise Unsupported(f"it is made of a {op} that can't be compiled")
        return outputs

    def constant(self, data: Any, dtype: Any = np.float32) -> str:
        """Add a constant and return its name."""
        return self.state.constant(f"{self.origin}/parameter", np.asarray(data, dtype))

    def input(self, index: int) -> str:
        """Return the name of an input; empty: it is not given."""
        return self.proto.input[index] if index < len(self.proto.input) else ""

    def kind(self, value: str) -> TensorType:
        """Return a value's type."""
        kind: TensorType = self.state.types[value]
        return kind

    def dtype(self, value: str) -> Any:
        """Return a value's NumPy type."""
        return self.kind(value).dtype.numpy

    def word(self, key: str, default: str = "NONE") -> str:
        """Return an attribute that is a word."""
        word = self.attrs.get(key, default)
        return word.decode() if isinstance(word, bytes) else str(word)

    def give(self, value: str, index: int = 0) -> None:
        """Make a value the operator's output of that number, if that is read."""
        if index < len(self.proto.output) and self.proto.output[index]:
            node = helper.make_node("Identity", [value], [self.proto.output[index]], name=self.origin)
            self.state.run(node, OPSET)

    def refuse(self, **named: Any) -> None:
        """Refuse inputs and attributes that are given but not supported, by what they are called.

        Raises:
            Unsupported: one is given.
        """
        for name, value in named.items():
            if value:
                raise Unsupported(f"its {name} is not supported")
