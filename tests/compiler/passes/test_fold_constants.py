import networks
import numpy as np
from graphs import model
from onnx import helper
from single_pass import assert_same, pairs

from mtool.compiler.ir import DType, Expr, Graph, Node, TensorType
from mtool.compiler.ir.expr import call, identity, load
from mtool.compiler.ir.node import Transpose, View
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.softmax import SoftmaxOfRows
from mtool.compiler.passes.fold_constants import fold_constants
from mtool.compiler.passes.lower import lower


def test_random_networks_stay_the_same() -> None:
    for kind, count in (("float", 25), ("int8", 10)):
        for before, after in pairs("fold_constants", kind, count):
            assert_same(before, after)
            for node in after.nodes:
                movable = node.op in ("loop", "view", "transpose", "concat")
                assert not movable or not all(value in after.constants for value in node.inputs)


def graph_of(*nodes: Node, shapes: dict[str, tuple[int, ...]], **constants: np.ndarray) -> Graph:  # type: ignore[type-arg]
    """Return a graph of float nodes whose last value is the output."""
    types = {value: TensorType(DType.FLOAT32, data.shape) for value, data in constants.items()}
    types |= {value: TensorType(DType.FLOAT32, shape) for value, shape in shapes.items()}
    return Graph("test", ("x",), (nodes[-1].outputs[0],), nodes, types, constants)


def element(number: int, rank: int) -> Expr:
    return load(number, DType.FLOAT32, identity(rank))


def test_every_kind_of_node_is_folded() -> None:
    """The frontend folds what the model has; this is what lowering adds."""
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (2, 3, 4)).astype(np.float32) for _ in range(2))
    graph = graph_of(
        Node("loop", "exp", ("a",), ("e",), Loop(expr=call("exp", element(0, 3)))),
        Node("concat", "join", ("e", "b"), ("c",), Concat(axis=1)),
        Node("transpose", "turn", ("c",), ("t",), Transpose(perm=(2, 0, 1))),
        Node("view", "flat", ("t",), ("r",), View()),
        Node("loop", "sum", ("x", "r"), ("y",), Loop(expr=call("add", element(0, 2), element(1, 2)))),
        shapes={"x": (8, 6), "e": (2, 3, 4), "c": (2, 6, 4), "t": (4, 2, 6), "r": (8, 6), "y": (8, 6)}, a=a, b=b,
    )  # fmt: skip
    folded = fold_constants(graph)
    assert [node.name for node in folded.nodes] == ["sum"] and {*folded.constants} == {"r"}
    joined = np.concatenate([np.exp(a), b], axis=1)
    np.testing.assert_allclose(folded.constants["r"], joined.transpose(2, 0, 1).reshape(8, 6), rtol=1e-6)
    assert_same(graph, folded)


def test_kernels_of_constants_and_what_the_run_gives_stay() -> None:
    attrs = SoftmaxOfRows(expr=Expr("acc", DType.FLOAT32))
    graph = graph_of(
        Node("softmax", "s", ("a",), ("m",), attrs),
        Node("loop", "sum", ("x", "m"), ("y",), Loop(expr=call("add", element(0, 2), element(1, 2)))),
        shapes={"x": (2, 3), "m": (2, 3), "y": (2, 3)}, a=np.ones((2, 3), np.float32),
    )  # fmt: skip
    assert fold_constants(graph).nodes == graph.nodes


def test_a_constant_output_is_folded_and_stays() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["z"])]
    proto = model(nodes, {"x": (np.float32, (2,))}, ["y", "z"], {"a": np.float32([1, -2])})
    folded = fold_constants(lower(networks.imported(proto)))
    assert folded.outputs == ("y", "z") and folded.constants["y"].tolist() == [-1, 2]
