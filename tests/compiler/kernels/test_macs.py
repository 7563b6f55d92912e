"""What counts as a multiply-accumulate if both factors are computed at run time."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import helper

from mtool.device.session.device import generous_s
from mtool.plugins.onnx_backend.batch import to_c
from tests.graphs import HOST, NO_FPU, model

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


def test_elementwise_work_in_software_has_its_time() -> None:
    nodes = [helper.make_node("LpNormalization", ["a"], ["y"], axis=2, p=2)]
    proto = model(nodes, {"a": (np.float32, (8, 128, 1024))}, ["y"])
    hard, soft = (to_c(proto, "m", target=target).manifest for target in (HOST, NO_FPU))
    # at the least a product and a quotient for each element, of a hundred instructions in software
    assert soft.macs == 0 and soft.instructions > 8 * 128 * 1024 * 200 > hard.instructions
    assert generous_s([soft]) > 8 * 128 * 1024 * 200 / 20e6 > generous_s([hard])
