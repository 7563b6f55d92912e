"""Two pixels' products in one 32-bit multiplication: exact at the limits of int8, refused beyond them."""

from itertools import product

import numpy as np
import pytest
from graphs import model
from onnx import helper

from mtool.compiler.frontend.onnx_file import import_graph
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.conv2d.integer import Pairs
from mtool.compiler.kernels.target import Target
from mtool.compiler.passes import run

M3 = Target("cortex-m3", frozenset())
HALF = 32768  # MT_PAIR_HALF
ENDS = (-128, -127, -1, 0, 127)


def parts(x: tuple[int, ...], w: tuple[int, ...]) -> tuple[int, int, bool]:
    """What mt_int_pairs makes of two elements of two pixels: both sums, and whether 32 bits are enough."""
    both = (x[0] + 65536 * x[1]) * w[0] + HALF + (x[2] + 65536 * x[3]) * w[1]
    upper = both >> 16
    return both - HALF - 65536 * upper, upper, -(2**31) <= both < 2**31


def test_two_elements_are_exact_but_for_two_weights_of_128() -> None:
    for w in product(ENDS, repeat=2):
        right = all(
            parts(x, w) == (x[0] * w[0] + x[2] * w[1], x[1] * w[0] + x[3] * w[1], True) for x in product(ENDS, repeat=4)
        )
        assert right == (w != (-128, -128))


@pytest.mark.parametrize(("beside", "taken"), [(-127, True), (-128, False)])
def test_two_weights_of_128_beside_each_other_are_refused(beside: int, taken: bool) -> None:
    weights = np.full((8, 6, 1, 1), 3, np.int8)
    weights[5, 2:4, 0, 0] = -128, beside
    constants = {
        "xs": np.float32(0.1), "xz": np.int8(0), "w": weights, "ws": np.float32(0.01), "wz": np.int8(0),
        "ys": np.float32(0.5), "yz": np.int8(0),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        helper.make_node("Conv", ["xf", "wf"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    graph = run(import_graph(model(nodes, {"x": (np.int8, (1, 6, 5, 5))}, ["y"], constants), "m"), M3)
    (node,) = (node for node in graph.nodes if node.op == "conv2d")
    assert Pairs().supports(node, graph, M3) == taken
    assert any(schedule.supports(node, graph, M3) for schedule in registry.KERNELS["conv2d"].schedules)
