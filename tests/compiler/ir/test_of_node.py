"""What a graph caches for its nodes, and that large constants are not kept by it."""

import numpy as np
import pytest

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.graph import LARGE_BYTES


@pytest.mark.parametrize(("size", "times"), [(16, 1), (LARGE_BYTES, 3)])
def test_an_answer_is_computed_once_unless_the_constants_are_large(size: int, times: int) -> None:
    node = Node("loop", "one", ("x",), ("y",))
    weights = np.broadcast_to(np.zeros((), np.int8), (size,))
    graph = Graph("model", ("x",), ("y",), (node,), {}, {"weights": weights})
    asked: list[str] = []
    for _ in range(3):
        graph.of_node(node, "about", lambda: asked.append("answer"))
    assert len(asked) == times
    graph.without_elements().of_node(node, "about", lambda: asked.append("again"))
    assert asked[-1] == "again", "an answer about elements is not kept without them"
