"""Layouts settle quickly, and only the places of elements change."""

import random
from unittest import mock

import networks
import numpy as np
import pytest
from graphs import model
from onnx import helper
from single_pass import assert_same, ops, pairs

from mtool.base.errors import ModelError
from mtool.compiler.ir import editor
from mtool.compiler.passes import layout
from mtool.compiler.passes.layout import simplify_layout
from mtool.compiler.passes.lower import lower

F32 = np.float32
NHWC, NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


@pytest.mark.parametrize(("kind", "count"), [("float", 40), ("long", 20), ("int8", 10)])
def test_random_networks_stay_the_same(kind: str, count: int) -> None:
    turned = left = 0
    for before, after in pairs("simplify_layout", kind, count):
        turned, left = turned + ops(before).count("transpose"), left + ops(after).count("transpose")
        assert_same(before, after, exact=False)
        for value, source in after.sources.items():
            assert source.tensor in before.types or source.tensor in {s.tensor for s in before.sources.values()}
            assert value in after.types
    assert left < 0.8 * turned


def test_settled_layouts_do_not_change() -> None:
    for _, after in pairs("simplify_layout", "float", 25):
        assert [str(node) for node in simplify_layout(after).nodes] == [str(node) for node in after.nodes]


def test_changes_are_few() -> None:
    for before, _ in pairs("simplify_layout", "long", 25):
        with mock.patch.object(editor, "MAX_CHANGES", 30), mock.patch.object(editor, "MAX_CHANGES_PER_NODE", 3):
            simplify_layout(before)


def test_a_rule_that_undoes_itself_is_stopped() -> None:
    def turn_round(graph: editor.Editor, node):  # type: ignore[no-untyped-def]
        return (lambda r, n: r.node(n.op, n.inputs, n.outputs, n.attrs, like=n)) if node.op == "loop" else None

    graph = lower(networks.imported(model([helper.make_node("Relu", ["x"], ["y"])], {"x": (F32, (3,))}, ["y"])))
    with mock.patch.object(layout, "_RULES", (turn_round,)), pytest.raises(ModelError, match=r"still changing.*y"):
        simplify_layout(graph)


@pytest.mark.parametrize("shape", [(7, 3), (7, 2, 4, 7, 3), (1, 1, 3)])
@pytest.mark.parametrize("op", ["Relu", "Exp"])
def test_an_input_that_is_an_output_too(shape: tuple[int, ...], op: str) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node(op, ["a"], ["y"])]
    graph = lower(networks.imported(model(nodes, {"x": (F32, shape)}, ["y", "a"])))
    assert_same(graph, simplify_layout(graph))


def test_moves_alone_settle() -> None:
    """Chains of nothing but moves and elementwise operators, whose tensors are outputs here and there."""
    for seed in range(60):
        chance = random.Random(seed)
        shape = chance.choice([(1, 2, 3, 4), (2, 1, 1, 3), (2, 3), (1, 4, 4, 4)])
        values, nodes, constants = {"x": shape}, [], {"flat": np.array([-1])}
        for number in range(10):
            source = chance.choice([*values][-4:])
            shape, out = values[source], f"v{number}"
            kind = chance.choice(["Transpose", "Reshape", "Relu", "Identity", "Add", "Concat"])
            if kind == "Transpose":
                perm = chance.choice([NHWC, NCHW]) if len(shape) == 4 else tuple(reversed(range(len(shape))))
                nodes.append(helper.make_node(kind, [source], [out], perm=perm))
                values[out] = tuple(shape[place] for place in perm)
            elif kind == "Reshape":
                values[out] = chance.choice(
                    [(1, *shape)[:4] if len(shape) < 4 else shape[1:] if shape[0] == 1 else shape]
                )
                constants[f"s{number}"] = np.array(values[out])
                nodes.append(helper.make_node(kind, [source, f"s{number}"], [out]))
            elif kind in ("Add", "Concat"):
                other = chance.choice([value for value, form in values.items() if form == shape])
                attrs = {"axis": 0} if kind == "Concat" else {}
                nodes.append(helper.make_node(kind, [source, other], [out], **attrs))
                values[out] = (shape[0] * 2, *shape[1:]) if kind == "Concat" else shape
            else:
                nodes.append(helper.make_node(kind, [source], [out]))
                values[out] = shape
        outputs = sorted({f"v{chance.randrange(10)}" for _ in range(4)} | {"v9"})
        graph = lower(networks.imported(model(nodes, {"x": (F32, values["x"])}, outputs, constants)))
        with mock.patch.object(editor, "MAX_CHANGES", 30), mock.patch.object(editor, "MAX_CHANGES_PER_NODE", 3):
            assert_same(graph, simplify_layout(graph))


def test_a_product_reads_what_was_flattened_before_it_was_turned() -> None:
    rng = np.random.default_rng(3)
    constants = {
        "w": rng.uniform(-1, 1, (4, 2, 1, 1)).astype(F32),
        "p": rng.uniform(-1, 1, (4 * 3 * 5, 6)).astype(F32),
        "flat": np.array([1, 60]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Reshape", ["c", "flat"], ["f"]),
        helper.make_node("MatMul", ["f", "p"], ["y"]),
    ]
    graph = lower(networks.imported(model(nodes, {"x": (F32, (1, 2, 3, 5))}, ["y"], constants)))
    settled = simplify_layout(graph)
    assert ops(settled).count("transpose") == 1  # of the input
    assert_same(graph, settled, exact=False)


def test_an_integer_product_finds_its_elements_before_they_were_turned() -> None:
    grid = {"s": F32(0.05), "z": np.int8(2)}
    nodes = []
    for name, perm in (("a", [0, 2, 1, 3]), ("b", [0, 2, 3, 1])):
        nodes.append(helper.make_node("DequantizeLinear", [name, "s", "z"], [f"{name}f"]))
        nodes.append(helper.make_node("Transpose", [f"{name}f"], [f"{name}t"], perm=perm))
    nodes.append(helper.make_node("MatMul", ["at", "bt"], ["y"]))
    inputs = {"a": (np.int8, (2, 3, 4, 5)), "b": (np.int8, (2, 6, 4, 5))}
    graph = lower(networks.imported(model(nodes, inputs, ["y"], grid)))
    settled = simplify_layout(graph)
    assert ops(settled) == ["matmul"]
    assert_same(graph, settled)
