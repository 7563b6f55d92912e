"""Small files that describe large or odd models: compiled in seconds, or a model error."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import HOST, compiled, model, reference, run_c
from onnx import TensorProto, helper

from mtool.base.errors import ModelError
from mtool.compiler import passes
from mtool.compiler.frontend.onnx_file import import_graph
from mtool.compiler.kernels.loop import Loop

F, INT = np.float32, np.int64


def lowered(op: str, shape: tuple[int, ...], constants: dict[str, Any] | None = None, **attrs: Any) -> None:
    """Lower a model of one node."""
    given = constants or {}
    proto = model([helper.make_node(op, ["x", *given], ["y"], **attrs)], {"x": (F, shape)}, ["y"], given)
    passes.run(import_graph(proto, "test"), HOST)


@pytest.mark.timeout(30)
def test_what_a_pass_takes_does_not_grow_with_what_a_shape_says() -> None:
    lowered("EyeLike", (2**14, 2**14))  # folded, it would be a gigabyte
    lowered("Unsqueeze", (2**27,), {"axes": np.array([0], INT)})  # channels, each looked at
    with pytest.raises(ModelError, match="limit 'constants'"):
        lowered("Pad", (2,), {"pads": np.array([0, 2**28], INT)}, mode="edge")  # a table of sources
    with pytest.raises(ModelError, match="limit 'work'"):
        lowered("Resize", (1, 1, 1, 2), {"r": F([]), "s": F([]), "n": np.array([1, 1, 1, 2**28], INT)})


@pytest.mark.timeout(30)
def test_an_expression_of_a_thousand_operands_is_compiled_and_compared() -> None:
    nodes = [
        helper.make_node("Sum", ["x"] * 1000, ["a"]),
        helper.make_node("Sum", ["z"] * 1000, ["b"]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    graph = passes.run(import_graph(model(nodes, {"x": (F, (2,)), "z": (F, (2,))}, ["y"]), "test"), HOST)
    one, two = (Loop.of(node).expr for node in graph.nodes[:2])
    assert one == two


def test_a_graph_without_outputs_and_one_that_gives_a_sequence_are_refused() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (F, (2,))}, ["y"])
    del proto.graph.output[:]
    with pytest.raises(ModelError, match="has no outputs"):
        import_graph(proto, "test")
    proto = model([helper.make_node("SequenceConstruct", ["x", "x"], ["y"])], {"x": (F, (2,))}, [])
    proto.graph.output.append(helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, [2]))
    with pytest.raises(ModelError, match="that computes its output"):
        import_graph(proto, "test")


def test_a_huge_dimension_beside_a_zero_is_refused() -> None:
    for shape in ((0, 2**62), (2**62, 0, 2**62)):
        with pytest.raises(ModelError, match=r"dimension of more than 2,147,483,647"):
            lowered("Relu", shape)


def test_extreme_integers_in_attributes_are_onnxruntimes(tmp_path: Path) -> None:
    """Steps and diagonals beyond the tensor, a wide LRN, powers below zero."""
    last = np.iinfo(INT).max
    constants = {
        "first": np.array([5], INT), "low": np.array([-last - 1], INT), "axis": np.array([0], INT),
        "down": np.array([-last - 1], INT), "zero": np.array([0], INT), "high": np.array([last], INT),
        "up": np.array([last], INT), "minus": np.array([-2, -3, -1, -7, 3, 62], INT),
    }  # fmt: skip
    nodes = [
        helper.make_node("Slice", ["x", "first", "low", "axis", "down"], ["a"]),
        helper.make_node("Slice", ["x", "zero", "high", "axis", "up"], ["b"]),
        helper.make_node("EyeLike", ["m"], ["c"], k=2**62),
        helper.make_node("LRN", ["i"], ["e"], size=2**20 + 1, alpha=1e5),
        helper.make_node("Pow", ["n", "minus"], ["f"]),
    ]
    inputs = {"x": (F, (6,)), "m": (F, (2, 3)), "i": (F, (1, 3, 2, 2)), "n": (INT, (6,))}
    proto = model(nodes, inputs, list("abcef"), constants)
    draw = np.random.default_rng(0)
    feeds = {name: draw.normal(size=shape).astype(F) for name, (_, shape) in inputs.items()}
    feeds["n"] = np.array([5, -1, -1, 1, -4, -2], INT)
    for found, expected in zip(run_c(compiled(proto), feeds, tmp_path), reference(proto, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
