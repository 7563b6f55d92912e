"""The operators of ai.onnx.ml, written as the ONNX operators that they are made of: what they have in common.

Examples in rows, class labels, transformations of scores. The only kernels are the traversal of a tree ensemble, and
libsvm's coupling of pairwise probabilities. Semantics where the standard is silent: onnxruntime's.
"""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto

from mtool.compiler.ir import Attributes
from mtool.compiler.operators.lowering import Lower
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import Operator
from mtool.compiler.operators.problems import CLASSICAL, Unsupported

FLOATS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}


class ClassicalNode(OnnxNode):
    """One node of a classical operator."""

    def numbers(self, key: str) -> list[float]:
        """Return an attribute that is a list, or a tensor under `<key>_as_tensor`; empty if it is not given."""
        if f"{key}_as_tensor" in self.attrs:
            return list(onnx.numpy_helper.to_array(self.attrs[f"{key}_as_tensor"]).reshape(-1).tolist())
        return list(self.attrs.get(key) or ())

    def matrix(self) -> str:
        """Return the input as a matrix of float32 or float64, a row an example."""
        value: str = self.inputs[0]
        if self.dtype(value) not in FLOATS:
            value = self("Cast", value, to=TensorProto.FLOAT)
        shape = self.kind(value).shape
        if len(shape) == 1:
            value = self("Unsqueeze", value, self.constant([0], np.int64))
        elif len(shape) != 2:
            raise Unsupported(f"its input has {len(shape)} dimensions; expected: [examples, features]")
        return value

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


def classical(
    name: str,
    write: Callable[[ClassicalNode], None],
    lower: Lower | None = None,
    attributes: type[Attributes] = Attributes,
) -> Operator:
    """Return the record of an operator of ai.onnx.ml that a function writes as others, or as one with a lowering."""

    def expand(node: OnnxNode) -> None:
        write(ClassicalNode(node.state, node.proto, node.origin, node.attrs, node.version))

    return Operator(name, domain=CLASSICAL, attributes=attributes, expand=expand, lower=lower)


def transformed(write: ClassicalNode, scores: str, how: str) -> str:
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
