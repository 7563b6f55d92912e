"""Binary networks: values that are signs on a grid."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from graphs import model
from onnx import helper

SIGN = [
    helper.make_node("GreaterOrEqual", ["t", "zero"], ["c"]),
    helper.make_node("Where", ["c", "yes", "no"], ["f"]),
    helper.make_node("QuantizeLinear", ["f", "s", "z"], ["y"]),
]


def binary(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int], constants: dict[str, Any], step: float
) -> onnx.ModelProto:
    """Return nodes behind the signs of a float input, -1 and 1 in steps: from `a`, a float, to `y`."""
    own = {"s": np.float32(step), "z": np.int8(0), "zero": np.float32(0), "yes": np.float32(1), "no": np.float32(-1)}
    first = [
        helper.make_node("GreaterOrEqual", ["x", "zero"], ["xc"]),
        helper.make_node("Where", ["xc", "yes", "no"], ["xf"]),
        helper.make_node("QuantizeLinear", ["xf", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["a"]),
    ]
    made = [*first, *nodes]
    used = {name for node in made for name in node.input}
    known = {name: data for name, data in (own | constants).items() if name in used}
    return model(made, {"x": (np.float32, shape)}, ["y"], known)
