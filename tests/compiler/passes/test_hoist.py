"""Values shared by many elements are computed once before them, if that pays; results keep every bit."""

from collections.abc import Sequence
from math import prod

import networks
import numpy as np
import onnx
import pytest
from graphs import HOST, model
from onnx import helper
from single_pass import assert_same, pairs

from mtool.compiler import passes
from mtool.compiler.ir import DType, Expr, Graph, Node, TensorType
from mtool.compiler.ir.expr import Reduction, axis, call, const, load
from mtool.compiler.ir.node import expression_of
from mtool.compiler.kernels.expressions import LIBM
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.operators.verification import verify
from mtool.compiler.passes.hoist import hoist_broadcasts

F32 = np.float32
N = helper.make_node


def calls(graph: Graph) -> int:
    """Return how often a function of the mathematical library is called."""
    found = 0
    for node in graph.nodes:
        expr = expression_of(node)
        parts = [part for part in expr.walk() if part.op in LIBM] if expr is not None else []
        found += len(parts) * graph.types[node.outputs[0]].count
    return found


def compiled(nodes: Sequence[onnx.NodeProto], inputs: dict[str, tuple[int, ...]], **constants: object) -> Graph:
    shapes = {name: (F32, shape) for name, shape in inputs.items()}
    proto = model(nodes, shapes, ["y"], {name: np.asarray(data) for name, data in constants.items()})
    imported = networks.imported(proto)
    made = passes.run(imported, HOST)
    assert_same(imported, made, exact=False)
    return made


@pytest.mark.parametrize(
    ("nodes", "inputs", "constants", "wanted"),
    [
        ([N("Exp", ["a"], ["e"]), N("Tanh", ["e"], ["t"]), N("Add", ["t", "b"], ["y"])],
         {"a": (64, 1), "b": (64, 10)}, {}, 2 * 64),
        ([N("Exp", ["a"], ["e"]), N("Mul", ["e", "b"], ["y"])], {"a": (1,), "b": (1000,)}, {}, 1),
        ([N("Sigmoid", ["a"], ["e"]), N("Mul", ["e", "b"], ["y"])], {"a": (1, 10), "b": (64, 10)}, {}, 10),
        ([N("Expand", ["a", "s"], ["e"]), N("Exp", ["e"], ["f"]), N("Tanh", ["f"], ["y"])],
         {"a": (1, 64, 1)}, {"s": np.array([4, 64, 5])}, 2 * 64),
        ([N("Conv", ["b", "w"], ["c"]), N("Sigmoid", ["a"], ["e"]), N("Mul", ["c", "e"], ["y"])],
         {"a": (1, 8, 1, 1), "b": (1, 2, 12, 12)}, {"w": np.ones((8, 2, 3, 3), F32)}, 8),
        ([N("Exp", ["a"], ["e"]), N("Mul", ["e", "b"], ["f"]), N("Tanh", ["f"], ["t"]), N("Mul", ["t", "c"], ["y"])],
         {"a": (1, 1, 8), "b": (1, 16, 8), "c": (16, 16, 8)}, {}, 8 + 16 * 8),
    ],
    ids=["behind", "scalar", "before", "expanded", "epilogue", "twice"],
)  # fmt: skip
def test_functions_are_called_once_for_what_they_depend_on(
    nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, ...]], constants: dict[str, object], wanted: int
) -> None:
    assert calls(compiled(nodes, inputs, **constants)) == wanted


@pytest.mark.parametrize(
    ("nodes", "inputs"),
    [
        ([N("Neg", ["a"], ["e"]), N("Add", ["e", "b"], ["y"])], {"a": (64, 1), "b": (64, 10)}),
        ([N("Exp", ["a"], ["e"]), N("Add", ["e", "b"], ["y"])], {"a": (1, 1), "b": (1, 3)}),
        ([N("Exp", ["a"], ["e"]), N("Add", ["e", "b"], ["y"])], {"a": (64, 10), "b": (64, 10)}),
    ],
    ids=["cheap", "small", "nothing shared"],
)
def test_what_does_not_pay_stays(nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, ...]]) -> None:
    assert len(compiled(nodes, inputs).nodes) == 1


def looped(expr: Expr, inputs: dict[str, tuple[int, ...]], shape: tuple[int, ...]) -> Graph:
    types = {name: TensorType(DType.FLOAT32, size) for name, size in {**inputs, "y": shape}.items()}
    node = Node("loop", "y", tuple(inputs), ("y",), Loop(expr=expr))
    return Graph("g", tuple(inputs), ("y",), (node,), types, {})


def guarded(index: Expr, rows: int) -> Graph:
    """Return a loop that computes an expensive function of a row where an element is below zero."""
    inner = call("div", const(1, DType.FLOAT32), call("exp", load(0, DType.FLOAT32, (index, const(0, DType.INT32)))))
    own = load(1, DType.FLOAT32, (axis(0), axis(1)))
    guard = call("less", own, const(0, DType.FLOAT32), dtype=DType.BOOL)
    shapes = {"a": (rows, 1), "b": (64, 10)}
    return looped(call("where", guard, inner, own, dtype=DType.FLOAT32), shapes, (64, 10))


def test_what_a_condition_guards_moves_where_half_of_the_elements_pay_for_it() -> None:
    before = guarded(axis(0), 64)
    after = hoist_broadcasts(before)
    verify(after)
    assert_same(before, after)
    assert calls(after) == 64


@pytest.mark.parametrize(
    ("index", "rows"),
    [(axis(0), 63), (call("add", axis(0), const(1, DType.INT32)), 65), (const(-1, DType.INT32), 64)],
    ids=["too far", "computed", "before the first"],
)
def test_what_a_condition_may_prove_to_be_there_stays_behind_it(index: Expr, rows: int) -> None:
    graph = guarded(index, rows)
    assert hoist_broadcasts(graph) == graph


def test_a_mask_of_an_attention() -> None:
    nodes = [
        N("Softplus", ["slope"], ["p"]), N("Log", ["p"], ["l"]), N("MatMul", ["q", "k"], ["s"]),
        N("Add", ["s", "l"], ["t"]), N("Greater", ["row", "length"], ["c"]), N("Where", ["c", "neg", "t"], ["y"]),
    ]  # fmt: skip
    shapes = {"slope": (4, 1, 1), "q": (4, 8, 6), "k": (4, 6, 8), "length": (8,)}
    made = compiled(nodes, shapes, neg=np.array(-1e4, F32), row=np.arange(8, dtype=F32).reshape(8, 1))
    assert calls(made) == 2 * 4


def test_factors_of_a_sum_of_products() -> None:
    column = (axis(2), axis(1))
    factor = call("exp", load(0, DType.FLOAT32, (axis(2),)))
    total = Expr("reduce", DType.FLOAT32, (call("mul", factor, load(1, DType.FLOAT32, column)),),
                 Reduction("add", ((2, 32),)))  # fmt: skip
    before = looped(total, {"a": (32,), "b": (32, 10)}, (4, 10))
    after = hoist_broadcasts(before)
    verify(after)
    assert_same(before, after)
    assert [prod(after.types[node.outputs[0]].shape) for node in after.nodes] == [32, 10, 40]
    assert calls(after) == 32


@pytest.mark.parametrize(("kind", "count"), [("float", 30), ("long", 10), ("int8", 10)])
def test_random_networks_stay_the_same(kind: str, count: int) -> None:
    for before, after in pairs("hoist_broadcasts", kind, count):
        assert_same(before, after)
