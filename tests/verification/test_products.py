"""onnxruntime's integer products: exact on every processor, and detected if not."""

import logging
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import onnx
import pytest
from onnx import helper
from saturating import InferenceSession, product

import mtool
from mtool.base.errors import MismatchError
from mtool.verification import reference
from mtool.verification.oracles import ort, process

onnxruntime = pytest.importorskip("onnxruntime")

F = np.float32
M = "com.microsoft"
MIXED = [(np.uint8, np.int8), (np.int8, np.uint8)]


@pytest.fixture(autouse=True)
def each_test_looks_for_itself() -> Iterator[None]:
    ort.saturate.cache_clear()
    yield
    ort.saturate.cache_clear()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run onnxruntime in this process, where it can be patched."""

    def call(_: str, model: Path, function: str, /, **named: Any) -> Any:
        return process.function_of(function)(**named)

    monkeypatch.setattr(process, "call", call)


def far(dtype: Any, *shape: int) -> Any:
    """Draw numbers whose products saturate 16 bits in pairs."""
    info = np.iinfo(dtype)
    ends = [info.min, info.min + 1, info.max - 3, info.max]
    return np.random.default_rng(len(shape)).choice(ends, shape).astype(dtype)


def matmul(dtypes: Any, *, constant: bool, points: bool = True) -> tuple[onnx.ModelProto, dict[str, Any]]:
    a, b = far(dtypes[0], 4, 64), far(dtypes[1], 64, 16)
    zeros = {"az": np.asarray(7, dtypes[0]), "bz": np.asarray(3, dtypes[1])} if points else {}
    node = helper.make_node("MatMulInteger", ["a", "b", *zeros], ["y"])
    feeds, constants = ({"a": a}, {"b": b} | zeros) if constant else ({"a": a, "b": b}, zeros)
    return graphs.model([node], {n: (d.dtype.type, d.shape) for n, d in feeds.items()}, ["y"], constants), {
        "a": a,
        "b": b,
    }


@pytest.mark.parametrize("points", [True, False])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("dtypes", [*MIXED, (np.uint8, np.uint8), (np.int8, np.int8)])
def test_products_are_those_of_whole_numbers(dtypes: Any, constant: bool, points: bool) -> None:
    proto, data = matmul(dtypes, constant=constant, points=points)
    feeds = {put.name: data[put.name] for put in proto.graph.input}
    az, bz = (7, 3) if points else (0, 0)
    wanted = (data["a"].astype(np.int64) - az) @ (data["b"].astype(np.int64) - bz)
    np.testing.assert_array_equal(graphs.reference(proto, feeds)[0], wanted)


def cases() -> Iterator[tuple[str, list[str], dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Yield each operator that multiplies uint8 by int8: its name, inputs, feeds, constants, attributes."""
    x, w, zeros = far(np.uint8, 4, 64), far(np.int8, 64, 8), {"xz": np.uint8(7), "wz": np.int8(-5)}
    scales = {"xs": F(0.02), "ws": F(0.01)}
    out = {"ys": F(3), "yz": np.uint8(9)}
    qlinear = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    image, kernel = far(np.uint8, 1, 8, 6, 6), far(np.int8, 8, 8, 3, 3)
    per_row = np.full(8, 0.01, F)
    rows, floats = np.full(32, 0.002, F), np.resize(F([1, -1, 0.9]), (4, 64))
    many = {"ws": per_row, "wz": np.zeros(8, np.int8)}
    yield "ConvInteger", ["x", "w"], {"x": image.view(np.int8)}, {"w": kernel.view(np.uint8)}, {"pads": [1] * 4}
    yield "QLinearMatMul", qlinear, {"x": x}, {"w": w} | zeros | scales | out, {}
    yield "QLinearConv", qlinear, {"x": image}, {"w": kernel} | scales | zeros | out, {"pads": [1] * 4}
    yield "QLinearConv", qlinear, {"x": image}, {"w": kernel} | scales | zeros | out | many, {}
    yield "QGemm", [*qlinear[:6], "", "ys", "yz"], {"x": x}, {"w": w} | zeros | scales | out, {}
    yield "MatMulIntegerToFloat", ["x", "w", "xs", "ws", "xz"], {"x": x}, {"w": w} | zeros | scales, {}
    yield "MatMulIntegerToFloat", ["x", "w", "xs", "ws"], {"x": x}, {"w": w, "xs": F(0.02), "ws": per_row}, {}
    yield "DynamicQuantizeMatMul", ["x", "w", "ws"], {"x": floats}, {"w": w, "ws": per_row}, {}
    yield (
        "QAttention",
        ["x", "w", "b", "xs", "ws", "", "xz"],
        {"x": far(np.uint8, 1, 5, 8)},
        {"w": far(np.int8, 8, 24), "b": np.zeros(24, F)} | scales | zeros,
        {"num_heads": 2},
    )
    yield (
        "DynamicQuantizeLSTM",
        ["x", "w", "r", "", "", "", "", "", "s", "z", "s", "z"],
        {"x": floats[:, None, :16].copy()},
        {"w": far(np.int8, 1, 16, 32), "r": far(np.int8, 1, 8, 32), "s": rows[None], "z": np.zeros((1, 32), np.int8)},
        {"hidden_size": 8},
    )


def made(case: Any) -> tuple[onnx.ModelProto, dict[str, Any]]:
    op, names, feeds, constants, attributes = case
    domain = "" if op in ("ConvInteger", "QLinearMatMul", "QLinearConv") else M
    node = helper.make_node(op, names, ["y"], domain=domain, **attributes)
    used = {name: data for name, data in constants.items() if name in names}
    return graphs.model([node], {n: (d.dtype.type, d.shape) for n, d in feeds.items()}, ["y"], used), feeds


@pytest.mark.skipif(ort.saturate(), reason="there is nothing to compare with on a processor that saturates")
@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case[0])
def test_every_operator_keeps_its_numbers_with_both_operands_unsigned(case: Any) -> None:
    proto, feeds = made(case)
    exact = ort.exact(proto)
    assert exact != proto and ort.exact(exact) == exact
    for one, other in zip(plain(proto, feeds), plain(exact, feeds), strict=True):
        np.testing.assert_array_equal(one, other)


def plain(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def test_constants_of_an_outer_graph_are_changed_within_a_branch() -> None:
    proto, _ = matmul(MIXED[0], constant=True)
    inner = helper.make_graph(list(proto.graph.node), "inner", [], [proto.graph.output[0]])
    chosen = helper.make_node("If", ["yes"], ["z"], then_branch=inner, else_branch=inner)
    proto.graph.node[0].CopyFrom(chosen)
    proto.graph.output[0].name = "z"
    proto.graph.input.append(helper.make_tensor_value_info("yes", onnx.TensorProto.BOOL, []))
    a = far(np.uint8, 4, 64)
    b = far(np.int8, 64, 16)
    (found,) = plain(ort.exact(proto), {"a": a, "yes": np.array(True)})
    np.testing.assert_array_equal(found, (a.astype(int) - 7) @ (b.astype(int) - 3))


def test_the_model_of_the_instruction() -> None:
    """The figure that such a processor gives."""
    a, b = np.full((1, 64), 255, np.uint8), np.full((64, 1), 127, np.int8)
    assert product(a, b).item() == 1_048_544 and (a.astype(int) @ b.astype(int)).item() == 2_072_640
    assert product(a, b.view(np.uint8)).item() == 2_072_640


def dynamic() -> onnx.ModelProto:
    """Return what dynamic quantization makes of a product, with sums that saturate."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    return graphs.model(nodes, {"x": (F, (2, 64))}, ["y"], {"w": np.full((64, 4), 127, np.int8)})


def qlinear() -> onnx.ModelProto:
    (case,) = (case for case in cases() if case[0] == "QLinearMatMul")
    return made(case)[0]


@pytest.mark.product(2)
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("make", [dynamic, qlinear])
def test_verify_notices_a_processor_that_saturates(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(make(), path)
    deployment = mtool.Deployment(tmp_path / "project")
    monkeypatch.setattr(onnxruntime, "InferenceSession", InferenceSession)
    assert ort.saturate()
    with caplog.at_level(logging.WARNING):
        assert mtool.verify(path, board="host", deployment=deployment).ok
    assert ort.SAYING in caplog.text
    monkeypatch.setattr(ort, "saturate", lambda: False)  # what it would have said without looking
    with pytest.raises(MismatchError):
        mtool.verify(path, board="host", deployment=deployment).check()


@pytest.mark.usefixtures("here")
@pytest.mark.skipif(ort.saturate(), reason="this processor saturates")
def test_nothing_is_reported_of_a_processor_that_does_not_saturate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(dynamic(), path)
    reference.outputs(path, [{"x": np.ones((2, 64), F)}])
    assert ort.SAYING not in caplog.text


@pytest.mark.usefixtures("here")
def test_only_models_with_such_products_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> bool:
        raise AssertionError("nothing is multiplied as integers here")

    monkeypatch.setattr(ort, "saturate", asked)
    path = tmp_path / "float.onnx"
    onnx.save(graphs.model([helper.make_node("Relu", ["x"], ["y"])], {"x": (F, (2,))}, ["y"]), path)
    assert reference.outputs(path, [{"x": F([-1, 1])}])[0]["y"].tolist() == [0, 1]


@pytest.mark.usefixtures("here")
def test_the_spread_of_a_quantized_model_is_not_that_of_saturation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With optimisations, onnxruntime makes integer kernels of QDQ form; it is asked for exact ones by an option."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        helper.make_node("MatMul", ["xf", "wf"], ["yf"]),
        helper.make_node("QuantizeLinear", ["yf", "ys", "yz"], ["y"]),
    ]
    constants = {"w": far(np.int8, 64, 8), "wz": np.int8(0), "xz": np.uint8(7), "xs": F(0.02), "ws": F(0.01)}
    constants |= {"ys": F(3.1), "yz": np.uint8(9)}
    path = tmp_path / "qdq.onnx"
    onnx.save(graphs.model(nodes, {"x": (np.uint8, (4, 64))}, ["y"], constants), path)
    entries: list[tuple[str, ...]] = []
    real = onnxruntime.SessionOptions.add_session_config_entry

    def watched(options: Any, *entry: str) -> None:
        entries.append(entry)
        real(options, *entry)

    monkeypatch.setattr(onnxruntime.SessionOptions, "add_session_config_entry", watched)
    monkeypatch.setattr(ort, "saturate", lambda: True)
    assert reference.spread_of_reference(path, [{"x": far(np.uint8, 4, 64)}], {"y": 1.0}, mtool.Options()) == 0
    assert entries == [("session.x64quantprecision", "1")]


RUN = """
import sys, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
for name in "plain", "exact":
    session = onnxruntime.InferenceSession(f"{sys.argv[1]}/{name}.onnx", options)
    numpy.save(f"{sys.argv[1]}/{name}.npy", session.run(None, {"a": numpy.load(f"{sys.argv[1]}/a.npy")})[0])
"""


@pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("qemu-x86_64") is None, reason="qemu-x86_64 is not installed"
)
def test_on_a_haswell(tmp_path: Path) -> None:
    """The real onnxruntime on an emulated processor with AVX2 and without VNNI."""
    proto, data = matmul(MIXED[0], constant=True, points=False)
    onnx.save(proto, tmp_path / "plain.onnx")
    onnx.save(ort.exact(proto), tmp_path / "exact.onnx")
    np.save(tmp_path / "a.npy", data["a"])
    argv = ["qemu-x86_64", "-cpu", "Haswell", sys.executable, "-c", RUN, str(tmp_path)]
    subprocess.run(argv, check=True, capture_output=True, timeout=300)
    found = {name: np.load(tmp_path / f"{name}.npy") for name in ("plain", "exact")}
    np.testing.assert_array_equal(found["exact"], data["a"].astype(int) @ data["b"].astype(int))
    np.testing.assert_array_equal(found["plain"], product(data["a"], data["b"]))
    assert not np.array_equal(found["plain"], found["exact"])


@pytest.mark.parametrize(("domain", "name"), [("", "Relu"), (M, "QuickGelu"), ("acme", "Relu")])
def test_an_operator_goes_before_a_function_of_its_name_as_in_onnxruntime(domain: str, name: str) -> None:
    opsets = [helper.make_opsetid("", 13), *([helper.make_opsetid(domain, 1)] if domain else [])]
    body = [helper.make_node("Neg", ["x"], ["y"])]
    function = helper.make_function(domain, name, ["x"], ["y"], body, opsets[:1])
    nodes = [
        helper.make_node("MatMulInteger", ["a", "b"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["wide"], to=onnx.TensorProto.FLOAT),
        helper.make_node(name, ["wide"], ["y"], domain=domain),
    ]
    a, b = np.array([[1, 2]], np.uint8), np.array([[-3, 1], [1, 1]], np.int8)
    types = {"a": (np.uint8, a.shape), "b": (np.int8, b.shape)}
    proto = graphs.model(nodes, types, ["y"])
    del proto.opset_import[:]
    proto.opset_import.extend(opsets)
    proto.functions.append(function)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 2)))

    def computed(model: onnx.ModelProto) -> Any:
        return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"a": a, "b": b})[0]

    np.testing.assert_array_equal(computed(ort.exact(proto)), computed(proto))
