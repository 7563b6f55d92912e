"""Small models, and users' own projects around them."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mtool.cli import app


def line(path: Path, slope: float = 2.0, width: int = 12, *, flat: bool = False) -> Path:
    """Write a model y = slope * x; `flat`: y has one axis, of another shape than x."""
    weights = numpy_helper.from_array((slope * np.eye(width)).astype(np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["product" if flat else "y"])]
    if flat:
        nodes.append(helper.make_node("Squeeze", ["product"], ["y"]))
    shapes = {"x": [1, width], "y": [width] if flat else [1, width]}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def begin(folder: Path, model: Path, *more: str, board: str = "host") -> int:
    """Run `mtool new`, and return its exit code."""
    return app.invoke(["new", str(folder), "--model", str(model), "--board", board, "-q", *more])
