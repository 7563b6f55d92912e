"""Bodies computed a few rows at a time, if a control node's scratch is the arena's peak."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import HOST, compiled, model, reference, run_c
from onnx import TensorProto, helper, numpy_helper

from mtool.base.option_values import Partial
from mtool.compiler import passes
from mtool.compiler.frontend.onnx_file import import_graph
from mtool.compiler.plan import Plan, make_plan
from mtool.compiler.plan.whole import plans_in

N = helper.make_node
SHAPE = (1, 3, 32, 32)


def head(source: str) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:  # type: ignore[type-arg]
    """Return a network whose first tensors are far larger than the others, and its constants."""
    rng = np.random.default_rng(3)
    shapes = {"w1": (12, 3, 3, 3), "w2": (8, 12, 3, 3), "d": (8, 4)}
    constants = {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    same = {"pads": [1] * 4}
    nodes = [
        N("Conv", [source, "w1"], ["h1"], **same), N("Relu", ["h1"], ["h2"]),
        N("MaxPool", ["h2"], ["h3"], kernel_shape=[2, 2], strides=[2, 2]),
        N("Conv", ["h3", "w2"], ["h4"], **same, strides=[2, 2]), N("Relu", ["h4"], ["h5"]),
        N("GlobalAveragePool", ["h5"], ["h6"]), N("Flatten", ["h6"], ["h7"]), N("MatMul", ["h7", "d"], ["r"]),
    ]  # fmt: skip
    return nodes, constants


def info(name: str, kind: int = TensorProto.FLOAT, shape: tuple[int, ...] = (1, 4)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def branch() -> onnx.ModelProto:
    nodes, constants = head("x")
    zeros = numpy_helper.from_array(np.zeros((1, 4), np.float32))
    then = helper.make_graph(nodes, "then", [], [info("r")])
    other = helper.make_graph([N("Constant", [], ["e"], value=zeros)], "else", [], [info("e")])
    chosen = N("If", ["yes"], ["y"], then_branch=then, else_branch=other)
    return model([chosen], {"x": (np.float32, SHAPE), "yes": (np.bool_, ())}, ["y"], constants)


def rows() -> onnx.ModelProto:
    """The same, in each round of something else, which is written by rows."""
    nodes, constants = head("xi")
    first = [N("Identity", ["c"], ["go"]), N("Cast", ["i"], ["f"], to=1), N("Mul", ["x", "f"], ["xi"])]
    put = [info("i", TensorProto.INT64, ()), info("c", TensorProto.BOOL, ())]
    body = helper.make_graph([*first, *nodes], "body", put, [info("go", TensorProto.BOOL, ()), info("r")])
    loop = N("Loop", ["twelve", ""], ["y"], body=body)
    return model([loop], {"x": (np.float32, SHAPE)}, ["y"], {**constants, "twelve": np.array(12)})


def planned(proto: onnx.ModelProto, partial: Partial) -> Plan:
    return make_plan(passes.run(import_graph(proto, "test"), HOST), HOST, partial=partial)


@pytest.mark.parametrize("proto", [branch(), rows()], ids=["a branch", "a loop"])
def test_a_body_is_computed_by_rows(proto: onnx.ModelProto, tmp_path: Path) -> None:
    whole, small = planned(proto, "never"), compiled(proto)
    assert not any(plan.graph.line_buffers for plan in plans_in(whole))
    assert any(plan.graph.line_buffers for plan in plans_in(small))
    assert small.arena_bytes < 0.6 * whole.arena_bytes
    feeds = {"x": np.random.default_rng(5).normal(0, 1, SHAPE).astype(np.float32), "yes": np.array(True)}
    feeds = {name: data for name, data in feeds.items() if name in {value.name for value in proto.graph.input}}
    (found,), (expected,) = run_c(small, feeds, tmp_path), reference(proto, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert "for (int32_t n = 0;" in (tmp_path / "test.c").read_text()


def test_a_body_that_is_not_a_peak_stays_whole() -> None:
    proto = branch()
    proto.graph.node.append(N("Softmax", ["large"], ["z"], axis=0))
    proto.graph.node.append(N("Softmax", ["z"], ["v"], axis=0))
    proto.graph.input.append(info("large", TensorProto.FLOAT, (40000,)))
    proto.graph.output.extend(info(name, TensorProto.FLOAT, (40000,)) for name in ("z", "v"))
    assert not any(plan.graph.line_buffers for plan in plans_in(compiled(proto)))
