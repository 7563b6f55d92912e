"""What counts as a multiply-accumulate where both factors are computed at run time."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import helper

from mtool.onnx_backend.batch import to_c
from tests.graphs import model

Shapes = Mapping[str, tuple[int, ...]]


def made(node: onnx.NodeProto, shapes: Shapes) -> onnx.ModelProto:
    return model([node], {name: (np.float32, shape) for name, shape in shapes.items()}, ["y"])


@pytest.mark.parametrize(
    ("node", "shapes", "macs"),
    [
        (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": (2, 3, 5), "b": (2, 5, 7)}, 2 * 3 * 5 * 7),
        (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": (5,), "b": (5,)}, 5),
        (helper.make_node("Gemm", ["a", "b"], ["y"], transA=1, alpha=0.5), {"a": (5, 3), "b": (5, 7)}, 3 * 5 * 7),
        (helper.make_node("Einsum", ["a", "b"], ["y"], equation="ik,jk->ij"), {"a": (3, 5), "b": (7, 5)}, 3 * 5 * 7),
        (helper.make_node("Einsum", ["a", "a"], ["y"], equation="ik,jk->ij"), {"a": (3, 5)}, 3 * 3 * 5),
        (helper.make_node("Conv", ["a", "b"], ["y"]), {"a": (1, 2, 6, 6), "b": (4, 2, 3, 3)}, 4 * 4 * 4 * 2 * 9),
        (helper.make_node("ReduceSumSquare", ["a"], ["y"]), {"a": (3, 5)}, 0),
        (helper.make_node("ReduceMean", ["a"], ["y"]), {"a": (3, 5)}, 0),
        (helper.make_node("Mul", ["a", "b"], ["y"]), {"a": (3, 5), "b": (3, 5)}, 0),
    ],
)
def test_products_of_activations_are_counted(node: onnx.NodeProto, shapes: Shapes, macs: int) -> None:
    assert to_c(made(node, shapes), "m").manifest.macs == macs
