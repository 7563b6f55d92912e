"""Casts of floats to integers: towards zero, and the same result everywhere where C leaves it undefined."""

import math
from pathlib import Path

import graphs
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from mtool.compiler.ir import DType, scalar
from mtool.compiler.ir.expr import axis, call, load

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
ENDS = [math.nan, math.inf, -math.inf, 1e30, -1e30, 0.9, -0.9, -1.0, 1.5, -128.7, 255.9, 256.0, 65536.0, -32769.0]
ENDS += [sign * 2.0**power + step for power in (31, 32, 63, 64) for sign in (1, -1) for step in (-1, 0, 1)]


def truncated(value: float, dtype: str) -> int:
    """The integer that a float is cast to: that of 32 bits for smaller types, whose lower bits stay."""
    bits = np.iinfo(dtype).bits
    held = max(bits, 32)
    whole = math.trunc(value) if math.isfinite(value) else 2**80
    unsigned = dtype.startswith("u") and bits >= 32 and 0 <= whole < 2**held
    signed = whole if -(2 ** (held - 1)) <= whole < 2 ** (held - 1) else -(2 ** (held - 1))
    return int(np.array((whole if unsigned else signed) % 2**bits, f"uint{bits}").astype(dtype))


@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
def test_whatever_the_number(source: str, tmp_path: Path) -> None:
    with np.errstate(over="ignore"):
        x = np.array(ENDS, source)
    nodes = [
        helper.make_node("Cast", ["x"], [kind], to=helper.np_dtype_to_tensor_dtype(np.dtype(kind))) for kind in INTEGERS
    ]
    proto = graphs.model(nodes, {"x": (np.dtype(source).type, x.shape)}, INTEGERS)
    outputs = graphs.run_c(graphs.compiled(proto), {"x": x}, tmp_path)
    for kind, found in zip(INTEGERS, outputs, strict=True):
        wanted = [truncated(float(value), kind) for value in x]
        assert found.tolist() == wanted, kind
        dtype = DType.of(np.dtype(kind))
        expr = call("cast", load(0, DType.of(x.dtype), (axis(0),)), dtype=dtype)
        assert scalar.evaluate(expr, [x], x.shape).tolist() == wanted, kind


def test_a_power_that_is_not_an_integer(tmp_path: Path) -> None:
    exponents = np.array([math.nan, math.inf, 1e30, 2.5, -1.0, 62.0], np.float32)
    nodes = [helper.make_node("Pow", ["a", "b"], ["y"])]
    proto = graphs.model(nodes, {"a": (np.int64, (6,)), "b": (np.float32, (6,))}, ["y"])
    (found,) = graphs.run_c(graphs.compiled(proto), {"a": np.int64([2] * 6), "b": exponents}, tmp_path)
    least = np.iinfo(np.int64).min
    assert found.tolist() == [least, least, least, 5, 0, 2**62]


@pytest.mark.parametrize("to", ["INT4", "UINT4"])
def test_into_four_bits(to: str, tmp_path: Path) -> None:
    x = np.array([math.nan, math.inf, -1e30, 7.9, -8.0, 17.0], np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=getattr(onnx.TensorProto, to)),
        helper.make_node("Cast", ["n"], ["y"], to=onnx.TensorProto.INT32),
    ]
    proto = graphs.model(nodes, {"x": (np.float32, x.shape)}, ["y"], opset=21)
    (found,) = graphs.run_c(graphs.compiled(proto), {"x": x}, tmp_path)
    wanted = np.array([truncated(float(value), "int8") & 15 for value in x], np.uint8).astype(ml_dtypes.uint4)
    assert found.tolist() == wanted.view(getattr(ml_dtypes, to.lower())).astype(int).tolist()
