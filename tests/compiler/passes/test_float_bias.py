"""A float bias of a quantized operator: onnxruntime's results with its optimizations, or float's own."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import Array, compiled, lowered, model, reference, run_c
from onnx import helper

from mtool.compiler.ir.node import WithEpilogue
from mtool.verification.rounding_ties import RoundingTies

onnxruntime = pytest.importorskip("onnxruntime")

F = np.float32
CHANNELS, DEPTH = 24, 16
RNG = np.random.default_rng(5)


def network(op: str, size: float, x_scale: float = 0.0213471, *, rounded: bool = True) -> onnx.ModelProto:
    """Return a quantized Conv, Gemm or MatMul + Add whose bias is a float of about `size`."""
    shape = (CHANNELS, DEPTH, 3, 3) if op == "Conv" else (DEPTH, CHANNELS)
    constants: dict[str, Any] = {
        "xs": F(x_scale), "xz": np.int8(3), "ws": F(0.0113379), "wz": np.int8(0), "ys": F(0.0213 * size + 0.0137),
        "yz": np.int8(-4), "b": (RNG.standard_normal(CHANNELS) * size).astype(F),
        "w": RNG.integers(-127, 128, shape).astype(np.int8),
    }  # fmt: skip
    made = "sum" if rounded else "y"
    nodes = [helper.make_node("DequantizeLinear", [name, f"{name}s", f"{name}z"], [f"{name}f"]) for name in "xw"]
    if op == "MatMul":
        nodes += [helper.make_node("MatMul", ["xf", "wf"], ["p"]), helper.make_node("Add", ["p", "b"], [made])]
    else:
        nodes.append(helper.make_node(op, ["xf", "wf", "b"], [made]))
    if rounded:
        nodes.append(helper.make_node("QuantizeLinear", ["sum", "ys", "yz"], ["y"]))
    return model(nodes, {"x": (np.int8, (1, DEPTH, 40, 40) if op == "Conv" else (1500, DEPTH))}, ["y"], constants)


def feeds(proto: onnx.ModelProto) -> dict[str, Array]:
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    return {"x": RNG.integers(-128, 128, shape).astype(np.int8)}


def optimised(proto: onnx.ModelProto, given: dict[str, Array]) -> Array:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, given)[0])


def unexplained(proto: onnx.ModelProto, given: dict[str, Array], seen: Array, expected: Array) -> int:
    """Return how many elements differ, and are neither ties nor what the rounding of the bias moves over a half."""
    bounds = RoundingTies(proto).bounds("y", {**given, "y": expected}, set())
    assert (bounds.low < bounds.high).mean() < 0.05
    return int(((seen != expected) & ~((bounds.low <= seen) & (seen <= bounds.high))).sum())


@pytest.mark.parametrize("op", ["Conv", "Gemm", "MatMul"])
def test_a_quantized_result(op: str, tmp_path: Path) -> None:
    proto = network(op, 1.0)
    given = feeds(proto)
    (seen,) = run_c(compiled(proto), given, tmp_path)
    (plain,) = reference(proto, given)
    assert unexplained(proto, given, seen, plain) == 0
    if op == "MatMul":  # a sum of its own: exact
        np.testing.assert_array_equal(seen, plain)
    else:
        theirs = optimised(proto, given)
        assert (seen != theirs).sum() <= (plain != theirs).sum()
        assert unexplained(proto, given, theirs, plain) == 0


@pytest.mark.parametrize("op", ["Conv", "Gemm"])
def test_a_bias_of_more_steps_than_32_bits_have_stays_a_float(op: str, tmp_path: Path) -> None:
    """onnxruntime rounds it too and overflows; without its optimisations it does not."""
    proto = network(op, 3000.0, 2.13e-5)
    given = feeds(proto)
    (seen,) = run_c(compiled(proto), given, tmp_path)
    np.testing.assert_array_equal(seen, reference(proto, given)[0])


@pytest.mark.parametrize("op", ["Conv", "Gemm", "MatMul"])
def test_a_float_result_has_the_bias_as_it_is(op: str, tmp_path: Path) -> None:
    proto = network(op, 1e-4, rounded=False)
    given = feeds(proto)
    (seen,) = run_c(compiled(proto), given, tmp_path)
    (wanted,) = reference(proto, given)
    assert np.abs(seen - wanted).max() <= 1e-6 * np.abs(wanted).max()


def test_the_sums_are_requantized_as_those_of_an_integer_bias() -> None:
    """What schedules of SIMD instructions know by heart."""
    (node,) = (node for node in lowered(network("Conv", 1.0)).nodes if node.op == "conv2d")
    assert [part.op for part in WithEpilogue.of(node).epilogue.walk()].count("add") == 0
    assert WithEpilogue.of(node).epilogue.op == "requantize"


def test_a_tie_knows_how_far_the_bias_is_rounded_and_no_further() -> None:
    proto = network("Gemm", 1.0)
    bias = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    given = feeds(proto)
    step = np.float64(bias["xs"]) * np.float64(bias["ws"])
    found = RoundingTies(proto).bounds("sum", given, set())
    assert (found.high - found.low).max() <= step / 2
    np.testing.assert_allclose(
        (found.high - found.low)[0], np.abs(np.rint(bias["b"] / step) * step - bias["b"]), atol=1e-12
    )
