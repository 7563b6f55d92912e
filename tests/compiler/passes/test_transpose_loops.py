import networks
import numpy as np
import pytest
from graphs import model
from onnx import helper
from single_pass import assert_same, ops, pairs

from mtool.compiler.passes.layout import transposes_to_loops
from mtool.compiler.passes.lower import lower


def test_random_networks_stay_the_same() -> None:
    left = 0
    for before, after in pairs("transposes_to_loops", "float", 40):
        left += ops(before).count("transpose")
        assert "transpose" not in ops(after)
        assert_same(before, after)
    assert left > 10


@pytest.mark.parametrize("perm", [(1, 0, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0), (0, 2, 1)])
def test_every_order_of_dimensions(perm: tuple[int, ...]) -> None:
    proto = model([helper.make_node("Transpose", ["x"], ["y"], perm=perm)], {"x": (np.float32, (2, 3, 4))}, ["y"])
    graph = lower(networks.imported(proto))
    assert_same(graph, transposes_to_loops(graph))
