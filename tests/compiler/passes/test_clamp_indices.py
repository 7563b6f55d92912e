"""Data-dependent indices are clamped to their tensors, except those that are proved to be in range."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sanitized
from graphs import Array, lowered, model, reference
from onnx import ModelProto, helper

from mtool.compiler.ir import DType, Expr
from mtool.compiler.ir.expr import axis, choose, compare, const, integer, least, load, most, number, wrapped
from mtool.compiler.ir.ranges import Ranges, ranges_implied_by
from mtool.compiler.kernels.loop import Loop
from mtool.plugins.onnx_backend.batch import Batch, CModel, build, to_c

F, N = np.float32, np.int64
X = np.arange(40, dtype=F).reshape(10, 4)
EDGES = [-(2**63), -(2**31), -11, -10, -1, 0, 9, 10, 2**31 - 1]  # around a dimension of 10


def one(op: str, inputs: Mapping[str, Any], constants: Mapping[str, Array] | None = None, **attrs: Any) -> ModelProto:
    """Return a model of one operator; its operands are `inputs`, in order, those in `constants` too."""
    fed = {name: given for name, given in inputs.items() if name not in (constants or {})}
    return model([helper.make_node(op, [*inputs], ["y"], **attrs)], fed, ["y"], constants)


def built(models: list[CModel], folder: Path) -> Batch:
    return build(models, folder, compiler=sanitized.COMPILER, flags=sanitized.FLAGS)


def bounds_in(proto: ModelProto) -> int:
    """Return how many bounds of indices the loops have."""
    loops = [Loop.of(node).expr for node in lowered(proto).nodes if node.op == "loop"]
    indices = {index for expr in loops for part in expr.walk() if part.op == "load" for index in part.args}
    return sum(index.op in ("minimum", "maximum") for index in indices)


def test_an_index_that_may_be_anything_has_two_bounds() -> None:
    (node,) = lowered(one("Gather", {"x": 0, "i": (N, [3])}, {"x": X})).nodes
    index = Loop.of(node).expr.args[0]
    assert (index.op, index.args[0].op) == ("maximum", "minimum")


def test_an_index_of_unknown_range_has_two_bounds() -> None:
    nodes = [helper.make_node("Cast", ["f"], ["i"], to=6), helper.make_node("Gather", ["x", "i"], ["y"])]
    *_, node = lowered(model(nodes, {"f": (F, [3])}, ["y"], {"x": X})).nodes
    index = Loop.of(node).expr.args[0]
    assert (index.op, index.args[0].op) == ("maximum", "minimum")


@pytest.mark.parametrize("indices", [[0, 9, 3], [-1, -10, 2]])
def test_constants_need_none(indices: list[int]) -> None:
    assert bounds_in(one("Gather", {"x": (F, (10, 4)), "i": 0}, {"i": np.array(indices)})) == 0


@pytest.mark.parametrize("last", [0, 1])
def test_what_arg_max_gives_needs_none(last: int) -> None:
    nodes = [
        helper.make_node("ArgMax", ["z"], ["i"], axis=0, keepdims=0, select_last_index=last),
        helper.make_node("Gather", ["x", "i"], ["y"]),
    ]
    assert bounds_in(model(nodes, {"z": (F, (10, 3))}, ["y"], {"x": X})) == 0
    assert bounds_in(model(nodes, {"z": (F, (11, 3))}, ["y"], {"x": X})) == 1


def test_a_small_type_needs_none() -> None:
    nodes = [helper.make_node("Cast", ["b"], ["i"], to=7), helper.make_node("Gather", ["x", "i"], ["y"])]
    assert bounds_in(model(nodes, {"b": (np.uint8, (3,))}, ["y"], {"x": np.zeros((256, 4), F)})) == 0
    assert bounds_in(model(nodes, {"b": (np.uint8, (3,))}, ["y"], {"x": np.zeros((255, 4), F)})) == 1


def test_what_a_condition_proves_needs_none() -> None:
    zeros = one("GridSample", {"x": (F, (1, 1, 4, 4)), "g": (F, (1, 2, 2, 2))}, padding_mode="zeros")
    assert bounds_in(zeros) == 0


def clamped(indices: Array, size: int) -> Array:
    """Return what the low 32 bits of indices mean: one below zero counts from the end, one outside is the nearest."""
    places = indices.astype(np.int32).astype(N)
    return np.clip(np.where(places < 0, places + size, places), 0, size - 1)


def test_reads_are_clamped_and_writes_outside_left_out(tmp_path: Path) -> None:
    """Against onnxruntime with the indices that the rule makes of them."""
    indices = np.array(EDGES[1:])
    spread = np.tile(indices[:, None], (1, 4))
    pairs = np.array([[i, j] for i in (-11, -1, 10, 2**40, 3) for j in (-5, 0, 4, -(2**62))])
    inside, both = (indices >= -10) & (indices < 10), ((pairs >= [-10, -4]) & (pairs < [10, 4])).all(axis=1)
    news, few = np.arange(100, 100 + spread.size, dtype=F).reshape(spread.shape), np.arange(len(pairs), dtype=F)
    lengths = np.array([-5, 0, 10, 2**40])
    cases: list[tuple[ModelProto, dict[str, Array], Array]] = []

    def case(proto: ModelProto, given: dict[str, Array], op: str, meant: dict[str, Array], **attrs: Any) -> None:
        kinds = {name: (data.dtype.type, data.shape) for name, data in meant.items()}
        cases.append((proto, given, reference(one(op, kinds, **attrs), meant)[0]))

    def added(op: str, given: dict[str, Array], meant: dict[str, Array], **attrs: Any) -> None:
        kinds = {name: (data.dtype.type, data.shape) for name, data in given.items()}
        case(one(op, kinds, **attrs), given, op, meant, **attrs)

    added("Gather", {"x": X, "i": indices}, {"x": X, "i": clamped(indices, 10)})
    added("GatherElements", {"x": X, "i": spread}, {"x": X, "i": clamped(spread, 10)}, axis=0)
    meant = np.stack([clamped(pairs[:, 0], 10), clamped(pairs[:, 1], 4)], axis=1)
    added("GatherND", {"x": X, "i": pairs}, {"x": X, "i": meant})
    added(
        "ScatterElements",
        {"x": X, "i": spread, "u": news},
        {"x": X, "i": spread[inside], "u": news[inside]},
        axis=0,
        reduction="add",
    )
    added("ScatterND", {"x": X, "i": pairs, "u": few}, {"x": X, "i": pairs[both], "u": few[both]}, reduction="add")
    short = lengths.astype(np.int32).clip(1, 10).astype(N)  # onnxruntime's 1 turns nothing, as 0 does
    added("ReverseSequence", {"x": X, "l": lengths}, {"x": X, "l": short})
    with built([to_c(proto, f"m{n}") for n, (proto, _, _) in enumerate(cases)], tmp_path) as batch:
        for number, (proto, given, wanted) in enumerate(cases):
            (seen,) = batch.run(number, list(given.values()))
            np.testing.assert_array_equal(seen, wanted, proto.graph.node[0].op_type)


def test_lengths_of_a_recurrent_layer_lie_between_none_and_all(tmp_path: Path) -> None:
    """Each kind, in both directions, as if the lengths were cut to the steps that there are."""
    rng = np.random.default_rng(1)
    models, given, wanted = [], [], []
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        made = [rng.standard_normal(shape).astype(F) for shape in ((5, 3, 2), (2, gates * 4, 2), (2, gates * 4, 4))]
        weights = {"w": made[1], "r": made[2], "b": np.zeros((2, gates * 8), F)}
        inputs = {"x": (F, (5, 3, 2)), "w": 0, "r": 0, "b": 0, "l": (np.int32, (3,))}
        proto = one(op, inputs, weights, hidden_size=4, direction="bidirectional")
        models.append(to_c(proto, op.lower()))
        given.append([made[0], np.array([2**31 - 1, 6, 3], np.int32)])
        wanted.append(reference(proto, {"x": made[0], "l": np.array([5, 5, 3], np.int32)})[0])
    with built(models, tmp_path) as batch:
        for number in range(3):
            np.testing.assert_allclose(batch.run(number, given[number])[0], wanted[number], atol=1e-6)


def test_a_tensor_without_elements_is_not_read(tmp_path: Path) -> None:
    proto = one("Gather", {"x": (F, (0, 4)), "i": (N, (3,))})
    with built([to_c(proto, "m")], tmp_path) as batch:
        assert not batch.run(0, [np.zeros((0, 4), F), np.array([0, 5, -1])])[0].any()


K = load(0, DType.INT8, (axis(0),))
J = integer(load(0, DType.INT64, (axis(0),)))


@pytest.mark.parametrize(
    ("expr", "wanted"),
    [
        (axis(0), (0, 6)),
        (axis(0) * 3 + axis(1), (0, 24)),
        (integer(K), (-128, 127)),
        (integer(K) + 128, (0, 255)),
        (number(3) - integer(K), (-124, 131)),
        (integer(K) // 10, (-12, 12)),
        (integer(K) % 10, (-9, 9)),
        ((integer(K) + 128) % 1000, (0, 255)),
        ((integer(K) + 128) // 10, (0, 25)),
        (least(most(J, 0), 9), (0, 9)),
        (J + 1, DType.INT32.limits),
        (wrapped(least(most(J, -10), 9), 10), (0, 9)),
        (wrapped(J, 10), (-(2**31) + 10, 2**31 - 1)),
        (choose(compare("less", axis(0), 7), axis(0), const(99, DType.INT32)), (0, 6)),
        (integer(K) * integer(K), (-16256, 16384)),
    ],
)
def test_ranges(expr: Expr, wanted: tuple[int, int]) -> None:
    assert Ranges(expr, (7, 7), [None]).of(expr) == wanted


def test_ranges_hold_for_every_number() -> None:
    """Each form, over all bytes, against C's arithmetic as Python has it."""
    numbers = range(-128, 128)
    for low, bound in ((-128, 7), (-5, 3), (0, 11), (100, 2)):
        part = most(integer(K), low)
        cut = [max(n, low) for n in numbers]
        quotients = [abs(n) // bound * (1 if n >= 0 else -1) for n in cut]
        rests = [n - q * bound for n, q in zip(cut, quotients, strict=True)]
        for expr, values in ((part // bound, quotients), (part % bound, rests)):
            found = Ranges(expr, (), [None]).of(expr)
            assert found is not None and found[0] <= min(values) and max(values) <= found[1]


def test_what_a_condition_says() -> None:
    index = integer(K)
    inside = compare("greater_equal", index, 2)
    assert ranges_implied_by(inside) == {index: (2, 2**31 - 1)} and ranges_implied_by(inside, holds=False) == {
        index: (-(2**31), 1)
    }
