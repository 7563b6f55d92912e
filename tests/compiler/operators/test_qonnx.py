"""QONNX's operators: values of the package qonnx 1.0, and networks as Brevitas exports them."""

import itertools
from pathlib import Path
from typing import Any

import interpreter
import numpy as np
import onnx
import pytest
from graphs import HOST, lowered
from onnx import helper, numpy_helper
from single_pass import DSP, MVE

from mtool.base.errors import ModelError
from mtool.cli import app
from mtool.compiler.frontend import from_proto
from mtool.compiler.ir.graph import moved
from mtool.compiler.operators.qonnx import DOMAINS, ROUNDINGS
from mtool.verification.oracles import qonnx

F = np.float32
X = np.array([-9, -2.5, -1.25, -1, -0.75, -0.25, 0, 0.25, 0.5, 0.75, 1.25, 1.5, 9], F)
# rounding mode, bits, signed, narrow, zero point: results in steps of 0.5
RECORDED: dict[tuple[str, int, int, int, float], list[int]] = {
    ("ROUND", 3, 1, 0, 0): [-4, -4, -2, -2, -2, 0, 0, 0, 1, 2, 2, 3, 3],
    ("half_even", 3, 1, 0, 0): [-4, -4, -2, -2, -2, 0, 0, 0, 1, 2, 2, 3, 3],
    ("CEIL", 3, 1, 0, 0): [-4, -4, -2, -2, -1, 0, 0, 1, 1, 2, 3, 3, 3],
    ("FLOOR", 3, 1, 0, 0): [-4, -4, -3, -2, -2, -1, 0, 0, 1, 1, 2, 3, 3],
    ("UP", 3, 1, 0, 0): [-4, -4, -3, -2, -2, -1, 0, 1, 1, 2, 3, 3, 3],
    ("DOWN", 3, 1, 0, 0): [-4, -4, -2, -2, -1, 0, 0, 0, 1, 1, 2, 3, 3],
    ("HALF_UP", 3, 1, 0, 0): [-4, -4, -3, -2, -2, -1, 0, 1, 1, 2, 3, 3, 3],
    ("HALF_DOWN", 3, 1, 0, 0): [-4, -4, -2, -2, -1, 0, 0, 0, 1, 1, 2, 3, 3],
    ("ROUND", 1, 1, 0, 0): [-1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1, 1],
    ("ROUND", 1, 0, 0, 0): [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1],
    ("ROUND", 2, 1, 1, 0): [-1, -1, -1, -1, -1, 0, 0, 0, 1, 1, 1, 1, 1],
    ("ROUND", 2, 1, 0, 0): [-2, -2, -2, -2, -2, 0, 0, 0, 1, 1, 1, 1, 1],
    ("ROUND", 4, 0, 0, 3): [-3, -3, -3, -2, -1, -1, 0, 1, 1, 1, 3, 3, 12],
    ("ROUND", 4, 0, 1, 3): [-3, -3, -3, -2, -1, -1, 0, 1, 1, 1, 3, 3, 11],
}


def model(
    nodes: list[onnx.NodeProto],
    x: tuple[int, ...],
    y: tuple[int, ...],
    constants: dict[str, Any],
    domain: str = DOMAINS[0],
    version: int = 1,
) -> onnx.ModelProto:
    """Return a model whose nodes that ONNX does not have are of QONNX's domain."""
    for node in nodes:
        node.domain = "" if onnx.defs.has(node.op_type) else domain
    held = [numpy_helper.from_array(np.asarray(data, F), name) for name, data in constants.items()]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, x)], [helper.make_tensor_value_info("y", 1, y)], held
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def one(op: str, x: Any, *operands: Any, domain: str = DOMAINS[0], version: int = 1, **attrs: Any) -> onnx.ModelProto:
    """Return a model of one node."""
    constants = {f"k{number}": data for number, data in enumerate(operands)}
    node = helper.make_node(op, ["x", *constants], ["y"], "it", **attrs)
    return model([node], x.shape, x.shape, constants, domain, version)


def of_constant(op: str, x: Any, *operands: Any, **attrs: Any) -> onnx.ModelProto:
    """Return a model that adds a node's result for a constant to its input."""
    constants = {"k": x} | {f"k{number}": data for number, data in enumerate(operands)}
    nodes = [helper.make_node(op, [*constants], ["c"], **attrs), helper.make_node("Add", ["x", "c"], ["y"])]
    return model(nodes, x.shape, x.shape, constants)


def computed(proto: onnx.ModelProto, x: Any) -> Any:
    ((found,),) = interpreter.run(lowered(proto), [{"x": x}])
    return found


def expected(proto: onnx.ModelProto, x: Any) -> Any:
    return qonnx.outputs(proto.SerializeToString(), [{"x": x}], title="the model")[0]["y"]


@pytest.mark.parametrize("case", RECORDED, ids=str)
def test_quant(case: tuple[str, int, int, int, float]) -> None:
    mode, bits, signed, narrow, point = case
    attrs = {"signed": signed, "narrow": narrow, "rounding_mode": mode}
    wanted = np.array(RECORDED[case], F) * F(0.5)
    proto = one("Quant", X, 0.5, point, bits, **attrs)
    np.testing.assert_array_equal(computed(proto, X), wanted)
    np.testing.assert_array_equal(expected(proto, X), wanted)
    constant = of_constant("Quant", X, 0.5, point, bits, **attrs)
    np.testing.assert_array_equal(computed(constant, np.zeros_like(X)), wanted)


def test_trunc() -> None:
    x = np.array([-64, -33, -4, -3, 0, 3, 4, 5, 63], F)
    for proto, wanted in (
        (one("Trunc", x, 1, 0, 8, 6), [-16, -9, -1, -1, 0, 0, 1, 1, 15]),
        (one("Trunc", x, 1, 0, 8, 4, 4, rounding_mode="ROUND", version=2), [-32, -32, -4, -4, 0, 4, 4, 4, 28]),
    ):
        np.testing.assert_array_equal(computed(proto, x), wanted)
        np.testing.assert_array_equal(expected(proto, x), wanted)


@pytest.mark.parametrize("domain", DOMAINS)
def test_bipolar_quant(domain: str) -> None:
    proto = one("BipolarQuant", X, 0.5, domain=domain)
    np.testing.assert_array_equal(computed(proto, X), np.where(X < 0, F(-0.5), F(0.5)))
    np.testing.assert_array_equal(expected(proto, X), np.where(X < 0, F(-0.5), F(0.5)))


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_domain_that_the_exporter_does_not_import(domain: str) -> None:
    proto = one("BipolarQuant", X, 0.5, domain=domain)
    del proto.opset_import[1:]
    assert [node.op for node in from_proto(proto, "m").nodes] == ["GreaterOrEqual", "Where", "Cast", "DequantizeLinear"]


def test_parameters_that_are_integers() -> None:
    proto = one("Quant", X, 0.5, 3, 4, signed=0, narrow=0)
    for tensor in proto.graph.initializer[1:]:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.int64), tensor.name))
    np.testing.assert_array_equal(computed(proto, X), np.array(RECORDED["ROUND", 4, 0, 0, 3], F) * F(0.5))


@pytest.mark.slow
@pytest.mark.parametrize("bits", [1, 4, 9, 24])
def test_all_quants_against_the_oracle(bits: int) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([[[0.5, 1.5, -0.5, -1.5]], rng.normal(0, 30, (1, 4)), rng.normal(0, 3, (3, 4))]).astype(F)
    for signed, narrow, mode, point, scale in itertools.product(
        (0, 1), (0, 1), ROUNDINGS, (0, 3, 2.5), (F(0.5), rng.uniform(0.1, 0.6, (5, 1)))
    ):
        attrs = {"signed": signed, "narrow": narrow, "rounding_mode": mode}
        for proto in (make("Quant", x, scale, point, bits, **attrs) for make in (one, of_constant)):
            np.testing.assert_array_equal(computed(proto, x), expected(proto, x), err_msg=f"{attrs} {point} {scale}")


@pytest.mark.slow
def test_the_oracle_against_qonnx() -> None:
    quant = pytest.importorskip("qonnx.custom_op.general.intquant").int_quant
    trunc = pytest.importorskip("qonnx.custom_op.general.trunc").trunc_v2
    for signed, narrow, mode, point, bits in itertools.product((0, 1), (0, 1), ROUNDINGS, (0, 3, 2.5), (1, 2, 5, 8)):
        attrs = {"signed": signed, "narrow": narrow, "rounding_mode": mode}
        wanted = quant(X, F(0.5), F(point), F(bits), signed, narrow, mode)
        np.testing.assert_array_equal(expected(one("Quant", X, 0.5, point, bits, **attrs), X), wanted)
        wanted = trunc(X, F(0.25), F(point), F(8), narrow, signed, F(1), F(bits), mode)
        found = expected(one("Trunc", X, 0.25, point, 8, 1, bits, version=2, **attrs), X)
        np.testing.assert_array_equal(found, wanted)


def network(weights: str = "Quant", **activations: Any) -> onnx.ModelProto:
    """Return a convolution, pooling and a dense layer of 4-bit or binary weights, with a scale per channel."""
    rng = np.random.default_rng(4)
    w, v = rng.normal(0, 0.3, (8, 4, 3, 3)), rng.normal(0, 0.3, (10, 8))
    ws, vs = np.abs(w).max((1, 2, 3), keepdims=True) / 7, np.abs(v).max(1, keepdims=True) / 7
    constants = {
        "w": w, "ws": ws, "v": v, "vs": vs, "xs": 1 / 32, "rs": 1 / 8, "gs": 1 / 64, "z": 0, "b4": 4, "b8": 8
    }  # fmt: skip
    attrs = {"signed": 1, "narrow": 1, "rounding_mode": "ROUND"}

    def few(name: str) -> onnx.NodeProto:
        if weights == "BipolarQuant":
            return helper.make_node(weights, [name, f"{name}s"], [f"{name}q"])
        return helper.make_node(weights, [name, f"{name}s", "z", "b4"], [f"{name}q"], **attrs)

    nodes = [
        helper.make_node("Quant", ["x", "xs", "z", "b8"], ["q"], **attrs | {"narrow": 0}),
        few("w"),
        helper.make_node("Conv", ["q", "wq"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Quant", ["r", "rs", "z", "b4"], ["rq"], **attrs | {"signed": 0, "narrow": 0} | activations),
        helper.make_node("GlobalAveragePool", ["rq"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Quant", ["f", "gs", "z", "b8"], ["g"], **attrs | {"signed": 0, "narrow": 0}),
        few("v"),
        helper.make_node("Transpose", ["vq"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["g", "t"], ["y"]),
    ]
    return model(nodes, (1, 4, 6, 6), (1, 10), constants)


IMAGE = np.random.default_rng(5).normal(0, 1, (1, 4, 6, 6)).astype(F)


@pytest.mark.parametrize("target", [HOST, DSP, MVE], ids=["host", "dsp", "mve"])
@pytest.mark.parametrize("weights", ["Quant", "BipolarQuant"])
@pytest.mark.parametrize("activations", [{}, {"rounding_mode": "FLOOR"}])
def test_integers_reach_the_kernels(activations: dict[str, Any], weights: str, target: Any) -> None:
    proto = network(weights, **activations)
    graph = lowered(proto, target)
    kernels = [node for node in graph.nodes if node.op in ("conv2d", "dense")]
    kinds = [[graph.types[value].dtype.bits for value in node.inputs[:2]] for node in kernels]
    assert kinds == [[8, 8], [8, 8]], [str(node) for node in graph.nodes]
    assert all(np.abs(graph.constants[node.inputs[1]]).max() <= 7 for node in kernels)
    ((found,),) = interpreter.run(graph, [{"x": IMAGE}])
    np.testing.assert_allclose(found, expected(proto, IMAGE), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op", "mode"), [("Quant", "ROUND"), ("Quant", "FLOOR"), ("BipolarQuant", "")])
def test_a_bias_between_coarse_steps_is_not_rounded(op: str, mode: str) -> None:
    """With few bits, a step of the accumulator is several steps of the result."""
    rng = np.random.default_rng(8)
    constants = {"w": rng.normal(0, 0.3, (8, 16, 1, 1)), "b": rng.normal(0, 1, 8), "i": np.eye(8)[:, :, None, None]}
    constants |= {"ws": 0.3, "s": 2, "rs": 0.07, "one": 1, "z": 0, "b2": 2, "b8": 8}
    attrs = {"signed": 1, "narrow": 1, "rounding_mode": "ROUND"}
    nodes = [
        helper.make_node("Quant", ["x", "s", "z", "b2"], ["q"], **attrs),
        helper.make_node("Quant", ["w", "ws", "z", "b2"], ["wq"], **attrs),
        helper.make_node("Conv", ["q", "wq", "b"], ["c"]),
        helper.make_node("Quant", ["c", "rs", "z", "b8"], ["r"], **attrs | {"rounding_mode": mode})
        if mode
        else helper.make_node(op, ["c", "rs"], ["r"]),
        helper.make_node("Quant", ["i", "one", "z", "b8"], ["iq"], **attrs),
        helper.make_node("Conv", ["r", "iq"], ["y"]),
    ]
    proto = model(nodes, (1, 16, 6, 6), (1, 8, 6, 6), constants)
    x = rng.normal(0, 2, (1, 16, 6, 6)).astype(F)
    np.testing.assert_allclose(computed(proto, x), expected(proto, x), atol=1e-5)


def test_the_floats_of_integers_are_known() -> None:
    """So `verify --layers` compares the integers, which QONNX does not have."""
    graph = from_proto(network(rounding_mode="FLOOR"), "net")
    activations = [
        node for node in graph.nodes if node.op == "DequantizeLinear" and node.inputs[0] not in graph.constants
    ]
    assert [node.outputs[0] for node in activations] == ["q", "rq", "g"]
    for node in activations:
        value, scale, point = node.inputs
        integers = np.arange(100, dtype=graph.types[value].dtype.numpy)
        source = graph.sources[value]
        floats = (integers - graph.constants[point]).astype(F) * graph.constants[scale]
        assert source.tensor == node.outputs[0]
        np.testing.assert_array_equal(moved(floats, source.moves), integers)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["host", "mps2_an386"])
def test_verify(board: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = network()
    del proto.opset_import[1:]  # as older versions of Brevitas write it
    onnx.save(proto, tmp_path / "net.onnx")
    command = ["verify", str(tmp_path / "net.onnx"), "--board", board, "-d", str(tmp_path / "project")]
    assert app.invoke(command) == 0
    assert app.invoke([*command, "--layers"]) == 0
    assert "not in the model" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "reason"),
    [
        ("Quant", (0.5, 0, 4), {"narrow": 0}, "its attribute signed is None; expected 0 or 1"),
        ("Quant", (0.5, 0, 4), {"signed": 2, "narrow": 0}, "its attribute signed is 2; expected 0 or 1"),
        ("Quant", (0.5, 0, 4.5), {"signed": 1, "narrow": 0}, "its bit_width is 4.5; expected one whole number"),
        ("Quant", (0.5, 0, [4, 8]), {"signed": 1, "narrow": 0}, r"its bit_width is of shape \[2\]"),
        ("Quant", (-0.5, 0, 4), {"signed": 1, "narrow": 0}, "its scale has numbers that are not positive"),
        ("Quant", (0.5, 0), {"signed": 1, "narrow": 0}, "it has 3 inputs; expected 4"),
        (
            "Quant", (0.5, 0, 4), {"signed": 1, "narrow": 0, "rounding_mode": "NEAREST"},
            "its rounding_mode is 'NEAREST'; expected one of ROUND, HALF_EVEN, CEIL",
        ),
        ("BipolarQuant", (), {}, "it has 1 input; expected 2"),
        ("MultiThreshold", (0.5,), {}, "domain qonnx.custom_op.general is not supported"),
    ],
)  # fmt: skip
def test_refused(op: str, operands: tuple[Any, ...], attrs: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        lowered(one(op, X, *operands, **attrs))
