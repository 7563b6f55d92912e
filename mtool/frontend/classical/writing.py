"""How a classical operator is written as ONNX nodes: one after another, each imported at once."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from mtool.frontend.problems import Unsupported
from mtool.ir import TensorType

if TYPE_CHECKING:
    from mtool.frontend.importer import Importer

OPSET = {"": 21}
FLOATS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}


class Writer:
    """Writes the nodes that one operator stands for."""

    def __init__(self, state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Mapping[str, Any]) -> None:
        self.state, self.proto, self.origin, self.attrs = state, proto, origin, attrs

    def __call__(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Write a node with one output and return that.

        Raises:
            Unsupported: it can't be compiled; why is noted.
        """
        output = self.state.unique(f"{self.origin}/{op}")
        self.state.run(helper.make_node(op, inputs, [output], name=self.origin, **attrs), OPSET)
        if output not in self.state.types:
            raise Unsupported(f"it is made of a {op} that can't be compiled")
        return output

    def constant(self, data: Any, dtype: Any = np.float32) -> str:
        """Add a constant and return its name."""
        return self.state.constant(f"{self.origin}/parameter", np.asarray(data, dtype))

    def kind(self, value: str) -> TensorType:
        """Return a value's type."""
        kind: TensorType = self.state.types[value]
        return kind

    def dtype(self, value: str) -> Any:
        """Return a value's NumPy type."""
        return self.kind(value).dtype.numpy

    def numbers(self, key: str) -> list[Any]:
        """Return an attribute that is a list, or a tensor under `<key>_as_tensor`; empty if it is not given."""
        if f"{key}_as_tensor" in self.attrs:
            return list(onnx.numpy_helper.to_array(self.attrs[f"{key}_as_tensor"]).reshape(-1).tolist())
        return list(self.attrs.get(key) or ())

    def word(self, key: str, default: str = "NONE") -> str:
        """Return an attribute that is a word."""
        given = self.attrs.get(key, default)
        return given.decode() if isinstance(given, bytes) else str(given)

    def matrix(self) -> str:
        """Return the input as a matrix of float32 or float64, a row an example."""
        value: str = self.proto.input[0]
        if self.dtype(value) not in FLOATS:
            value = self("Cast", value, to=TensorProto.FLOAT)
        shape = self.kind(value).shape
        if len(shape) == 1:
            value = self("Unsqueeze", value, self.constant([0], np.int64))
        elif len(shape) != 2:
            raise Unsupported(f"its input has {len(shape)} dimensions; expected: [examples, features]")
        return value

    def give(self, value: str, place: int = 0) -> None:
        """Let a value be the operator's output of that number, if that is read."""
        if place < len(self.proto.output) and self.proto.output[place]:
            node = helper.make_node("Identity", [value], [self.proto.output[place]], name=self.origin)
            self.state.run(node, OPSET)

    def label(self, chosen: str, labels: list[int]) -> None:
        """Give the class label for the number of a class, [examples], as the first output."""
        if labels == list(range(len(labels))):
            self.give(chosen)
        else:
            self.give(self("Gather", self.constant(labels, np.int64), chosen))

    def integer_labels(self, *keys: str) -> list[int]:
        """Return the class labels.

        Raises:
            Unsupported: they are strings and the label is read.
        """
        *integers, strings = keys
        names = list(self.attrs.get(strings) or ())
        if names:
            raise Unsupported("its class labels are strings; export it with integer labels")
        return next((list(map(int, self.attrs[key])) for key in integers if self.attrs.get(key)), [])


Classical = Callable[[Writer], None]


def transformed(write: Writer, scores: str, how: str) -> str:
    """Apply a post_transform along the last axis of scores [examples, classes].

    Raises:
        Unsupported: there is no such transformation.
    """
    dtype = write.dtype(scores)

    def number(value: float) -> str:
        return write.constant(value, dtype)

    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return write("Sigmoid", scores)
    if how == "SOFTMAX":
        return write("Softmax", scores, axis=1)
    if how == "SOFTMAX_ZERO":  # what is 0 stays 0
        axis = write.constant([1], np.int64)
        top = write("ReduceMax", scores, axis, keepdims=1)
        zero = write("LessOrEqual", write("Abs", scores), number(1e-7))
        small = write("Mul", scores, write("Exp", write("Neg", top)))
        power = write("Where", zero, small, write("Exp", write("Sub", scores, top)))
        total = write("ReduceSum", power, axis, keepdims=1)
        empty = write("Equal", total, number(0))
        return write("Where", empty, number(0.5), write("Div", power, write("Where", empty, number(1), total)))
    if how == "PROBIT":  # onnxruntime's approximation of the inverse error function
        x = write("Sub", write("Mul", scores, number(2)), number(1))
        log = write("Log", write("Mul", write("Sub", number(1), x), write("Add", number(1), x)))
        v = write("Add", number(2 / (np.pi * 0.147)), write("Mul", log, number(0.5)))
        inner = write("Sub", write("Mul", v, v), write("Mul", log, number(1 / 0.147)))
        root = write("Sqrt", write("Sub", write("Sqrt", inner), v))
        return write("Mul", write("Mul", write("Sign", x), root), number(1.41421356))
    raise Unsupported(f"post_transform {how!r} is not known")
