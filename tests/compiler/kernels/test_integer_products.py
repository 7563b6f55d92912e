"""MatMulInteger and ConvInteger with constant weights, as written by onnxruntime's quantize_dynamic, are kernels."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import compiled, model, reference, run_c
from onnx import helper

from mtool.compiler import codegen
from mtool.compiler.kernels.target import Target

F = np.float32
TARGETS = [
    Target("host", frozenset({"fpu"})),
    Target("cortex-m3", frozenset()),
    Target("cortex-m4", frozenset({"fpu", "dsp"})),
    Target("cortex-m55", frozenset({"fpu", "dsp", "mve"})),
]


def network(dtype: Any, per_channel: bool) -> onnx.ModelProto:
    """Return a dense layer and convolutions of what DynamicQuantizeLinear makes of a float input."""
    rng = np.random.default_rng(4)
    limits = np.iinfo(dtype)

    def weights(*shape: int) -> Any:
        return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)

    points = rng.integers(limits.min, limits.max, 12).astype(dtype) if per_channel else np.asarray(5, dtype)
    constants = {
        "w": weights(30, 12), "w.z": points, "c": weights(8, 5, 3, 3), "g": weights(10, 1, 3, 3), "v": weights(6, 5, 3),
        "one": np.asarray(3, dtype), "s": rng.uniform(0.01, 0.02, 12).astype(F), "b": rng.standard_normal(12).astype(F),
        "rows": np.array([2, -1, 30], np.int64), "line": np.array([1, 5, -1], np.int64),
    }  # fmt: skip
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("Reshape", ["q", "rows"], ["q.rows"]),
        helper.make_node("MatMulInteger", ["q.rows", "w", "zero", "w.z"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["real"], to=1),
        helper.make_node("Mul", ["scale", "s"], ["factor"]),
        helper.make_node("Mul", ["real", "factor"], ["scaled"]),
        helper.make_node("Add", ["scaled", "b"], ["y"]),
        helper.make_node("ConvInteger", ["q", "c", "zero", "one"], ["k"], **pads),
        helper.make_node("ConvInteger", ["q", "g", "zero", "one"], ["d"], group=5, strides=[2, 2], **pads),
        helper.make_node("Reshape", ["q", "line"], ["q.line"]),
        helper.make_node("ConvInteger", ["q.line", "v", "zero", "one"], ["l"], pads=[2, 0]),
        helper.make_node("MatMulInteger", ["q.rows", "w"], ["plain"]),
    ]
    return model(nodes, {"x": (F, (1, 5, 4, 6))}, ["y", "k", "d", "l", "plain", "sums"], constants)


@pytest.mark.product(3)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
@pytest.mark.parametrize(("dtype", "per_channel"), [(np.int8, False), (np.uint8, True)])
def test_sums_are_those_of_onnxruntime(target: Target, dtype: Any, per_channel: bool, tmp_path: Path) -> None:
    proto = network(dtype, per_channel)
    feeds = {"x": (np.random.default_rng(2).standard_normal((1, 5, 4, 6)) * 3).astype(F)}
    found = run_c(compiled(proto, target), feeds, tmp_path)
    real, *sums = zip(found, reference(proto, feeds), strict=True)
    np.testing.assert_allclose(*real, rtol=1e-5, atol=1e-5)
    for mine, theirs in sums:
        assert theirs.dtype == np.int32 and theirs.any()
        np.testing.assert_array_equal(mine, theirs)


def test_weights_take_a_byte_and_the_kernels_are_those_of_integers() -> None:
    rows = np.random.default_rng(1).integers(-127, 128, (64, 64)).astype(np.int8)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["y"]),
    ]
    plan = compiled(model(nodes, {"x": (F, (1, 64))}, ["y"], {"w": rows}), TARGETS[2])
    assert [step.schedule.name for step in plan.steps if step.node.op == "dense"] == ["dsp16_row_sums"]
    assert codegen.generate(plan, "test.onnx", "0" * 64)[1].constant_bytes < 1.1 * rows.nbytes
