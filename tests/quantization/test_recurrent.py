"""mtool.quantize of LSTM, GRU, RNN, pools and Resize: the loss, the integers, and the same bytes as onnxruntime."""

import shutil
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import onnx
import pytest
from onnx import helper

import mtool
from mtool.base.errors import UsageError
from mtool.commands import Scheme
from mtool.quantization import recurrent
from mtool.verification.oracles import ort
from mtool.verification.oracles.quantizer import sqnr_db

pytest.importorskip("onnxruntime")

needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)

STEPS, BATCH, SIZE, HIDDEN = 12, 2, 6, 10
F = np.float32


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def layer(op: str, states: str = "", batch: int = BATCH, **attrs: Any) -> tuple[onnx.ModelProto, list[graphs.Array]]:
    """Return a model of one layer, with weights like those of a trained one, and samples of its input."""
    random, ways = np.random.default_rng(5), 2 if attrs.get("direction") == "bidirectional" else 1
    rows = recurrent.GATES[op] * HIDDEN
    constants = {
        "w": (random.normal(size=(ways, rows, SIZE)) / 2).astype(F),
        "r": (random.normal(size=(ways, rows, HIDDEN)) / 3).astype(F),
        "b": (random.normal(size=(ways, 2 * rows)) / 3).astype(F),
    }
    names = ["h0", "c0"][: 2 if op == "LSTM" else 1]
    first = {name: (random.normal(size=(ways, batch, HIDDEN)) / 3).astype(F) for name in names}
    inputs = {"x": (F, (STEPS, batch, SIZE))}
    if states == "inputs":
        inputs |= {name: (F, data.shape) for name, data in first.items()}
    elif states:
        constants |= first
    outputs = ["y", "yh", "yc"][: 3 if op == "LSTM" else 2]
    operands = ["x", "w", "r", "b", *(["", *names] if states else [])]
    nodes = [helper.make_node(op, operands, outputs, name="rnn", hidden_size=HIDDEN, **attrs)]
    samples = [{"x": random.normal(size=(STEPS, batch, SIZE)).astype(F)} for _ in range(12)]
    if states == "inputs":
        samples = [{**sample, **first} for sample in samples]
    return graphs.model(nodes, inputs, outputs, constants, recurrent.OPSET), samples


def outputs_of(proto: onnx.ModelProto, samples: list[Any]) -> list[Any]:
    onnx.save(proto, "model.onnx")
    return [*ort.outputs(str(Path("model.onnx").absolute()), samples, title="model")]


def quantized(proto: onnx.ModelProto, samples: list[Any], kind: str, *, symmetric: bool = False) -> onnx.ModelProto:
    found, refused = recurrent.layers(proto)
    assert not refused
    grids = recurrent.grids_of(proto, found, samples, kind, Path("observed.onnx"), symmetric=symmetric)
    recurrent.quantized(proto, found, grids, per_channel=True)
    return proto


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}),
    "lstm both ways": ("LSTM", {"direction": "bidirectional", "states": "constants"}),
    "lstm with states": ("LSTM", {"states": "inputs"}),
    "gru": ("GRU", {}),
    "gru backwards": ("GRU", {"direction": "reverse", "linear_before_reset": 1}),
    "gru with states": ("GRU", {"direction": "bidirectional", "linear_before_reset": 1, "states": "inputs"}),
    "rnn": ("RNN", {"direction": "bidirectional", "states": "constants"}),
    "rnn with relu": ("RNN", {"activations": ["Relu"], "batch": 1}),
}


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("case", CASES)
def test_every_output_is_close_to_the_float_layer_s(case: str, kind: str) -> None:
    op, attrs = CASES[case]
    proto, samples = layer(op, **attrs)
    before = outputs_of(proto, samples)
    made = quantized(proto, samples, kind, symmetric=case == "gru")
    onnx.checker.check_model(made, full_check=True)
    after = outputs_of(made, samples)
    least = 34 if kind == "int16" else 25
    for name in before[0]:
        loss = sqnr_db(*(np.stack([sample[name] for sample in run]) for run in (before, after)))
        assert loss is not None and loss > least, name


def test_the_last_row_alone_becomes_floats() -> None:
    proto, samples = layer("LSTM")
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in proto.graph.initializer} | {"at": np.asarray(-1)}
    (node,) = proto.graph.node
    del node.output[1:]
    nodes = [node, helper.make_node("Gather", ["y", "at"], ["last"], name="last")]
    moved = graphs.model(nodes, {"x": (F, (STEPS, BATCH, SIZE))}, ["last"], constants, recurrent.OPSET)
    before = outputs_of(moved, samples)
    assert recurrent.same_grid(moved, recurrent.layers(moved)[0]) == {"y": "rnn", "last": "rnn"}
    made = quantized(moved, samples, "int8")
    assert [node.op_type for node in made.graph.node][-3:] == ["Unsqueeze", "Gather", "DequantizeLinear"]
    assert "w" not in [tensor.name for tensor in made.graph.initializer]
    loss = sqnr_db(*(np.stack([sample["last"] for sample in run]) for run in (before, outputs_of(made, samples))))
    assert loss is not None and loss > 25


@pytest.mark.parametrize(
    ("attrs", "reason"),
    [
        ({"clip": 3.0}, "clipped sums"),
        ({"input_forget": 1}, "coupled gates"),
        ({"activations": ["Sigmoid", "Elu", "Tanh"]}, "the activation Elu"),
        ({"lengths": np.full(BATCH, 3, np.int32)}, "sequence lengths"),
        ({"peephole": np.ones((1, 3 * HIDDEN), F)}, "peepholes"),
    ],
)
def test_a_layer_that_stays_in_float_has_a_reason(attrs: dict[str, Any], reason: str) -> None:
    places = {"lengths": 4, "peephole": 7}
    constants = {name: data for name, data in attrs.items() if name in places}
    proto, _ = layer("LSTM", **{name: value for name, value in attrs.items() if name not in places})
    (node,) = proto.graph.node
    node.input.extend([""] * 4)
    for name, data in constants.items():
        node.input[places[name]] = name
        proto.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    found, refused = recurrent.layers(proto)
    assert found == [] and reason in refused["rnn"]


def test_weights_that_are_inputs_stay_in_float() -> None:
    proto, _ = layer("GRU")
    weights = next(tensor for tensor in proto.graph.initializer if tensor.name == "w")
    proto.graph.initializer.remove(weights)
    assert recurrent.layers(proto)[1] == {"rnn": "its weights are not constant"}


def saved(proto: onnx.ModelProto, path: str = "net.onnx") -> Path:
    onnx.save(proto, path)
    return Path(path)


def integers_in(path: Path) -> set[str]:
    """Return the operators of the bodies of a model that read integers."""
    bodies = [attr.g for node in onnx.load(path).graph.node for attr in node.attribute if attr.name == "body"]
    return {node.op_type for body in bodies for node in body.node}


@pytest.mark.parametrize("activations", ["int8", "int16"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_a_model_of_one_layer_runs_as_onnxruntime_computes_it(case: str, activations: Any) -> None:
    op, attrs = CASES[case]
    proto, samples = layer(op, **attrs)
    done = mtool.quantize(saved(proto), samples, scheme=Scheme(activations=activations))
    assert done.path.name == f"net_{activations}.onnx"
    assert "QuantizeLinear" in integers_in(done.path)
    assert [one.op for one in done.layers] == [op]
    assert all(one.sqnr_db is not None and one.sqnr_db > (35 if activations == "int16" else 25) for one in done.outputs)
    mtool.verify(done.path, board="host").check()


def classifier(op: str) -> tuple[onnx.ModelProto, list[Any]]:
    """Return a network of a convolution over time, a recurrent layer and a matrix product, and samples of its input."""
    proto, _ = layer(op, batch=1)
    random = np.random.default_rng(8)
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in proto.graph.initializer}
    constants |= {
        "k": (random.normal(size=(SIZE, 3, 3)) / 2).astype(F), "v": random.normal(size=(HIDDEN, 5)).astype(F),
        "zero": np.asarray([0]),
    }  # fmt: skip
    (node,) = proto.graph.node
    node.input[0] = "t"
    nodes = [
        helper.make_node("Conv", ["in", "k"], ["c"], name="conv", pads=[1, 1]),
        helper.make_node("Relu", ["c"], ["a"], name="relu"),
        helper.make_node("Transpose", ["a"], ["t"], name="turn", perm=[2, 0, 1]),
        node,
        helper.make_node("Squeeze", ["yh", "zero"], ["s"], name="last"),
        helper.make_node("MatMul", ["s", "v"], ["z"], name="fc"),
    ]
    samples = [{"in": random.normal(size=(1, 3, STEPS)).astype(F)} for _ in range(16)]
    return graphs.model(nodes, {"in": (F, (1, 3, STEPS))}, ["z"], constants), samples


@needs_arm
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
@pytest.mark.slow
def test_a_mixed_model_is_integers_from_input_to_output(op: str) -> None:
    proto, samples = classifier(op)
    model = saved(proto)
    done = mtool.quantize(model, samples, scheme=Scheme(integer_io=True), board="mps2_an386")
    assert {layer.node for layer in done.layers} >= {"rnn", "fc"}
    compiled = mtool.compile(done.path, board="host")
    assert [tensor.dtype for tensor in (*compiled.manifest.inputs, *compiled.manifest.outputs)] == ["int8", "int8"]
    assert done.after.weight_bytes < 0.55 * done.before.weight_bytes
    for board in ("host", "mps2_an386", "mps2_an385"):
        report = mtool.verify(done.path, board=board)
        report.check()
        assert [output.differing for output in report.outputs] == [0]
    without = mtool.quantize(model, samples, output="some.onnx", scheme=Scheme(exclude=("rnn",)))
    assert op in [node.op_type for node in onnx.load(without.path).graph.node]
    assert done.outputs[0].sqnr_db is not None and done.outputs[0].sqnr_db > 22


POOLS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "Resize": (["x", "", "scales"], {"mode": "linear"}),
    "MaxPool": (["x"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "AveragePool": (["x"], {"kernel_shape": [3, 3], "strides": [2, 2]}),
    "GlobalMaxPool": (["x"], {}),
    "GlobalAveragePool": (["x"], {}),
}


@pytest.mark.parametrize("activations", ["int8", "int16"])
@pytest.mark.parametrize("op", POOLS)
@pytest.mark.slow
def test_a_pool_alone_is_quantized(op: str, activations: Any) -> None:
    inputs, attrs = POOLS[op]
    nodes = [helper.make_node(op, inputs, ["p"], name="pool", **attrs), helper.make_node("Relu", ["p"], ["y"])]
    constants = {"scales": np.asarray([1, 1, 2, 2], F)} if op == "Resize" else {}
    random = np.random.default_rng(2)
    samples = [{"x": random.normal(size=(1, 3, 8, 8)).astype(F)} for _ in range(8)]
    model = saved(graphs.model(nodes, {"x": (F, (1, 3, 8, 8))}, ["y"], constants))
    done = mtool.quantize(model, samples, scheme=Scheme(activations=activations, integer_io=True))
    tensors = mtool.compile(done.path, board="host").manifest
    assert [tensor.dtype for tensor in (*tensors.inputs, *tensors.outputs)] == [activations] * 2
    mtool.verify(done.path, board="host").check()


def test_the_reason_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    proto, samples = layer("LSTM", clip=3.0)
    with pytest.raises(UsageError, match="nothing that can be quantized") as caught:
        mtool.quantize(saved(proto), samples)
    assert "rnn: it has clipped sums" in str(caught.value)
    assert "rnn stays in float: it has clipped sums" in caplog.text
