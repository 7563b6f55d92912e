"""CMSIS-NN on TFLite's int16, LSTM and SVDF: LiteRT's bytes, or within the requested tolerance."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_models import Array, Op, T, model

import mtool
from mtool.compiler import frontend
from mtool.compiler.backends import BackendSpec
from mtool.compiler.backends.partition import aligned
from mtool.compiler.backends.reading import operations_of
from mtool.stages.options import Options

library = pytest.mark.skipif("CMSIS_NN_DIR" not in os.environ, reason="CMSIS_NN_DIR does not say where CMSIS-NN is")
R = np.random.default_rng(11)
SLIDE = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}
POOL = {"StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2, "Padding": 0}


def word(name: str, shape: list[int], scale: float) -> T:
    return T(name, shape, np.int16, scale, 0)


def weights(name: str, shape: list[int], axis: int | None = None) -> T:
    scale: Any = 0.011 if axis is None else R.uniform(0.002, 0.01, shape[axis])
    return T(name, shape, np.int8, scale, 0, axis or 0, R.integers(-127, 128, shape).astype(np.int8))


def bias(name: str, count: int, dtype: Any = np.int64) -> T:
    most = 200_000 if dtype is np.int64 else 900
    return T(name, [count], dtype, data=R.integers(-most, most, count).astype(dtype))


def words() -> tuple[list[T], list[Op]]:
    """Return a network of int16."""
    tensors = [
        word("x", [1, 9, 8, 5], 5e-4),
        weights("w1", [6, 3, 3, 5], 0), bias("b1", 6), word("c1", [1, 9, 8, 6], 6e-4),
        weights("w2", [1, 3, 3, 6], 3), bias("b2", 6), word("c2", [1, 9, 8, 6], 5e-4),
        word("sum", [1, 9, 8, 6], 8e-4), word("product", [1, 9, 8, 6], 7e-4),
        word("mean", [1, 5, 4, 6], 7e-4), word("most", [1, 3, 2, 6], 7e-4),
        word("rows", [1, 36], 7e-4), weights("w3", [7, 36]), bias("b3", 7), word("sums", [1, 7], 1.5e-3),
        word("shares", [1, 7], 2.0**-15),
    ]  # fmt: skip
    ops = [
        Op("CONV_2D", ["x", "w1", "b1"], ["c1"], "Conv2DOptions", SLIDE | {"FusedActivationFunction": 1}),
        Op("DEPTHWISE_CONV_2D", ["c1", "w2", "b2"], ["c2"], "DepthwiseConv2DOptions", SLIDE | {"DepthMultiplier": 1}),
        Op("ADD", ["c1", "c2"], ["sum"], "AddOptions", {"FusedActivationFunction": 3}),
        Op("MUL", ["sum", "c2"], ["product"], "MulOptions"),
        Op("AVERAGE_POOL_2D", ["product"], ["mean"], "Pool2DOptions", POOL),
        Op("MAX_POOL_2D", ["mean"], ["most"], "Pool2DOptions", POOL),
        Op("RESHAPE", ["most"], ["rows"], "ReshapeOptions", {"NewShape": np.asarray([1, 36], np.int32)}),
        Op("FULLY_CONNECTED", ["rows", "w3", "b3"], ["sums"], "FullyConnectedOptions"),
        Op("SOFTMAX", ["sums"], ["shares"], "SoftmaxOptions", {"Beta": 1.0}),
    ]
    return tensors, ops


def svdf() -> tuple[list[T], list[Op]]:
    """Return a filter bank with a state of int16."""
    time: Array = R.integers(-30000, 30000, [6, 4]).astype(np.int16)
    tensors = [
        T("z", [1, 5], np.int8, 0.02, -3), weights("wf", [6, 5]), T("wt", [6, 4], np.int16, 0.00004, data=time),
        bias("bs", 3, np.int32), T("memory", [1, 24], np.int16, 0.0003, 0, variable=True),
        T("bank", [1, 3], np.int8, 0.1, 4),
    ]  # fmt: skip
    values = {"Rank": 2, "FusedActivationFunction": 1}
    return tensors, [Op("SVDF", ["z", "wf", "wt", "bs", "memory"], ["bank"], "SVDFOptions", values)]


def lstm(tag: str, shape: list[int], *, major: bool = False) -> tuple[list[T], list[Op]]:
    """Return an LSTM of int8, of 7 cells and 5 numbers; of two dimensions, one of a single step."""
    names = [f"{tag}.{part}{gate}" for part in "wr" for gate in range(4)]
    tensors = [T(f"{tag}.x", shape, np.int8, 0.02, -3)]
    tensors += [weights(name, [7, 7 if name[-2] == "r" else 5]) for name in names]
    tensors += [bias(f"{tag}.b{gate}", 7, np.int32) for gate in range(4)]
    images = shape[1] if major else shape[0]
    tensors.append(T(f"{tag}.h", [images, 7], np.int8, 0.0078, 2, variable=True))
    tensors.append(T(f"{tag}.c", [images, 7], np.int16, 2.0**-11, 0, variable=True))
    between = [T(f"{tag}.i{n}", [0], np.int16, 0.01, 0) for n in range(4)]
    between.append(T(f"{tag}.i4", [0], np.int8, 0.0078, 2))
    made = T(f"{tag}.y", [*shape[:-1], 7], np.int8, 0.0078, 2)
    inputs = [f"{tag}.x", *names, "", "", "", *(f"{tag}.b{gate}" for gate in range(4)), "", "", f"{tag}.h", f"{tag}.c"]
    kind, options, values = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions", {"TimeMajor": major}
    if len(shape) == 2:
        kind, options, values = "LSTM", "LSTMOptions", {}
    values["FusedActivationFunction"] = 4
    op = Op(kind, inputs, [made.name], options, values, [one.name for one in between])
    return [*tensors, *between, made], [op]


LSTMS = (lstm("flat", [1, 5]), lstm("one", [1, 1, 5]), lstm("batch", [2, 6, 5]), lstm("major", [4, 2, 5], major=True))

ROWS = [ops[0].outputs[0] for _, ops in LSTMS]


def written(folder: Path, *parts: tuple[list[T], list[Op]], outputs: list[str]) -> Path:
    tensors = [tensor for part, _ in parts for tensor in part]
    inputs = [one.name for part, _ in parts for one in part[:1]]
    path = folder / "net.tflite"
    path.write_bytes(model(tensors, [op for _, ops in parts for op in ops], inputs, outputs))
    return path


def claimed(path: Path, options: Options, folder: Path) -> dict[str, str]:
    """Return who computes each kind of operator; a model that differs from LiteRT is an error."""
    deployment = mtool.Deployment(folder / "project")
    mtool.verify(path, board="host", options=options, deployment=deployment, samples=3).check()
    claims = mtool.compile(path, board="host", options=options).manifest.claims
    return {claim.kind: claim.backend or claim.refusals[0].reason for claim in claims}


@library
def test_int16_and_svdf_are_litert_s(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = written(tmp_path, words(), svdf(), outputs=["shares", "most", "bank"])
    found = claimed(path, Options(rounding="tflite", backends=(BackendSpec("cmsis_nn"),)), tmp_path)
    own = {found.pop("Reshape"), found.pop("Gemm")}
    assert {*found.values()} == {"cmsis_nn"} and {"IntegerSvdf", "Softmax", "Pool", "Mul"} <= found.keys()
    assert any("15-bit numbers where LiteRT uses float64" in reason for reason in own)


@library
def test_lstm_is_near_to_litert_s(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = written(tmp_path, *LSTMS, outputs=[*ROWS])
    options = Options(rounding="tflite", backends=(BackendSpec("cmsis_nn"),), tolerance=2)
    assert claimed(path, options, tmp_path)["IntegerLstm"] == "cmsis_nn"
    optional = BackendSpec("cmsis_nn", optional=True)
    exact = mtool.compile(path, board="host", options=Options(rounding="tflite", backends=(optional,)))
    assert not any(claim.backend for claim in exact.manifest.claims), "it is not exact"


def test_recurrent_operators_are_one_operation_each(tmp_path: Path) -> None:
    """Their borders are what is computed too, by the names that it has there."""
    path = written(tmp_path, *LSTMS, svdf(), outputs=[*ROWS, "bank"])
    graph = frontend.load(path, frontend.ModelOptions(rounding="tflite"))
    view = aligned(frontend.load(path, frontend.ModelOptions(whole=True)), graph)
    found = [one for one in operations_of(view) if one.kind.startswith("Integer")]
    assert [one.kind for one in found] == ["IntegerLstm"] * 4 + ["IntegerSvdf"]
    for operation in found:
        for operand in (*operation.variables, *operation.outputs):
            assert graph.types[operand.value] == operand.type
    assert view.outputs == graph.outputs
