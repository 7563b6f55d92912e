"""Graphs with thousands of nodes: no recursion, no expression that C compilers refuse, linear work."""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import networks
import numpy as np
import onnx
import pytest
from graphs import HOST, model, run_c
from onnx import helper
from single_pass import results

from mtool.compiler import passes as package
from mtool.compiler.ir import editor
from mtool.compiler.passes import pipeline
from mtool.compiler.plan import make_plan

F32 = np.float32
MANY = 1050  # more than Python may recurse
X = {"x": (F32, (1, 4))}


def chain() -> onnx.ModelProto:
    ops = ["Relu", "Sigmoid", "Add", "Tanh", "Mul"]
    nodes = []
    for n in range(MANY):
        op = ops[n % len(ops)]
        inputs = [f"v{n}", "c"] if op in ("Add", "Mul") else [f"v{n}"]
        nodes.append(helper.make_node(op, inputs, [f"v{n + 1}"]))
    return model(nodes, {"v0": (F32, (1, 4))}, [f"v{MANY}"], {"c": F32([0.75])})


def of_one_value() -> onnx.ModelProto:
    nodes = [helper.make_node("Sub", [f"v{n}" if n else "x", "x"], [f"v{n + 1}"]) for n in range(MANY)]
    return model(nodes, X, [f"v{MANY}"])


def side_by_side() -> onnx.ModelProto:
    constants = {f"c{n}": F32([n / MANY]) for n in range(MANY)}
    nodes = [helper.make_node("Add", ["x", f"c{n}"], [f"v{n}"]) for n in range(MANY)]
    nodes.append(helper.make_node("Max", [f"v{n}" for n in range(MANY)], ["y"]))
    return model(nodes, X, ["y"], constants)


def pools() -> onnx.ModelProto:
    """Return integers that go through pools one after the other: their channels have to agree."""
    numbers = {"s": F32(0.05), "z": np.int8(1), "w": np.ones((4, 4, 1, 1), np.int8)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["wf"]),
        helper.make_node("Conv", ["xf", "wf"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["v0"]),
        *(helper.make_node("MaxPool", [f"v{n}"], [f"v{n + 1}"], kernel_shape=[1, 1]) for n in range(MANY)),
    ]
    return model(nodes, {"x": (np.int8, (1, 4, 2, 2))}, [f"v{MANY}"], numbers)


@pytest.mark.slow
@pytest.mark.parametrize("made", [chain, of_one_value, side_by_side, pools])
@pytest.mark.product(2)
def test_a_thousand_nodes(made: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    graph = networks.imported(made())
    with mock.patch.object(editor, "MAX_CHANGES", 30), mock.patch.object(editor, "MAX_CHANGES_PER_NODE", 3):
        passed = pipeline.run(graph, HOST)
    (fed,) = networks.feeds_of(graph, 0)
    expected = results(graph, [fed])[0]
    for mine, theirs in zip(run_c(make_plan(passed, HOST), fed, tmp_path), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_every_pass_has_tests_of_its_own() -> None:
    here = Path(__file__).parent
    folder = Path(package.__file__).parent
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    tested = {path.stem.removeprefix("test_") for path in here.glob("test_*.py")}
    assert not modules - tested - {"__init__"}
