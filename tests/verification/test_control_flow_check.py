"""Differences in a control node are classified: ties in its bodies, a wrong operator there, or the node."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from altered import Altered
from tflite_models import Graph as SubGraph
from tflite_models import Op, T
from tflite_models import model as tflite_model

import mtool
from mtool.base.errors import MismatchError
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.target import Target
from mtool.verification.control_flow import NotWritten, Trace, captured
from tests.control_flow import CASES

ort = pytest.importorskip("onnxruntime")
needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)
WEIGHTS = ",".join(f"{number * 37 % 19 / 19 - 0.5:.3f}" for number in range(64))
F = "float[1, 8]"


def on_grid(name: str, output: str) -> str:
    return f"{output}_q = QuantizeLinear ({name}, s, z) {output} = DequantizeLinear ({output}_q, s, z)"


def tying() -> onnx.ModelProto:
    """Return a model whose products lie halfway between two steps now and then."""
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g ({F} x, bool yes) => ({F} y)
            <float s = {{0.02}}, int8 z = {{3}}, int8 zw = {{0}}, int64 n = {{20}}, float[8, 8] W = {{{WEIGHTS}}}> {{
            wq = QuantizeLinear (W, s, zw) w = DequantizeLinear (wq, s, zw) {on_grid("x", "h")}
            l = Loop (n, "", h) <body = b (int64 i, bool c, {F} a) => (bool d, {F} r) {{
                d = Identity (c) [first] m = MatMul (a, w) {on_grid("m", "o")}
                p = If (yes) <
                    then_branch = t () => ({F} t1) {{
                        [second] t0 = MatMul (o, w) u = Add (t0, h) {on_grid("u", "t1")} }},
                    else_branch = e () => ({F} e1) {{ e0 = Add (o, h) {on_grid("e0", "e1")} }}>
                r = Identity (p) }}>
            y = Neg (l) }}"""
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(tying(), tmp_path / "tying.onnx")
    return tmp_path / "tying.onnx"


@pytest.mark.slow
@pytest.mark.parametrize("board", ["host", pytest.param("mps2_an386", marks=[needs_arm, pytest.mark.product])])
def test_ties_in_bodies_are_ties(board: str, path: Path, tmp_path: Path) -> None:
    deployment = mtool.Deployment(tmp_path / "project")
    found = mtool.verify_layers(path, board=board, deployment=deployment)
    found.check()
    (loop,) = [layer for layer in found.layers if layer.operator.schedule == "calls"]
    assert loop.inside and loop.ties == sum(one.ties for one in loop.inside) > 0
    assert loop.difference is not None and "inside it" in loop.difference.allowed
    report = mtool.verify(path, board=board, deployment=deployment)
    report.check()
    assert report.ties == found.ties


def looping() -> bytes:
    """Return a TFLite model of 20 rounds, in which products lie halfway between two steps now and then."""
    number = {"shape": [], "dtype": np.int32}
    weights = np.random.default_rng(3).integers(-22, 23, [16, 16])

    def row(name: str) -> T:
        return T(name, [1, 16], np.int8, 0.02, 3)

    def known(name: str, value: int) -> T:
        return T(name, **number, data=np.int32(value))

    node = Op("WHILE", ["x", "zero"], ["y", "n"], "WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})
    less = Op("LESS", ["i", "most"], ["c"])
    condition = SubGraph([row("x"), T("i", **number), known("most", 20), T("c", [], bool)], [less], ["x", "i"], ["c"])
    tensors = [row("x"), T("i", **number), known("one", 1), T("k", **number), row("d"), row("y")]
    ops = [
        Op("FULLY_CONNECTED", ["x", "w", ""], ["d"], "FullyConnectedOptions", {}),
        Op("ADD", ["d", "x"], ["y"], "AddOptions", {}),
        Op("ADD", ["i", "one"], ["k"], "AddOptions", {}),
    ]
    body = SubGraph([*tensors, T("w", [16, 16], np.int8, 0.02, 0, 0, weights)], ops, ["x", "i"], ["y", "k"])
    outer = [row("x"), known("zero", 0), T("n", **number), row("y")]
    return tflite_model(outer, [node], ["x"], ["y"], condition, body)


@pytest.mark.slow
def test_ties_in_rounds_of_tflite_are_ties(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(looping())
    found = mtool.verify_layers(path, board="host", samples=1, seed=9, deployment=mtool.Deployment(tmp_path / "p"))
    found.check()
    assert found.layers[0].inside and found.layers[0].ties > 0


@pytest.mark.slow
def test_ties_behind_a_state_are_ties(path: Path, tmp_path: Path) -> None:
    """The first two samples are equal; the third finds the state that they leave."""
    first = np.linspace(-0.75, 0.75, 8, dtype=np.float32)[None]
    options = mtool.Options(states=[("y", "x")], state_values={"x": first})
    deployment = mtool.Deployment(tmp_path / "project")
    found = mtool.verify_layers(path, board="host", samples=3, options=options, deployment=deployment)
    found.check()
    (loop,) = [layer for layer in found.layers if layer.operator.schedule == "calls"]
    assert found.sequence and loop.inside and loop.ties > 0


class In(Altered):
    """Alters what computes an ONNX node, wherever that stands."""

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        return any(origin.endswith(self.node) for origin in node.origins) and self.sound.supports(node, graph, target)


def broken(monkeypatch: pytest.MonkeyPatch, kind: Callable[..., Altered], node: str) -> None:
    dense = registry.KERNELS["dense"]
    sound = next(one for one in dense.schedules if one.name == "c99_rows")
    schedule = kind("broken", sound, node, lambda body: body + "\n    output[7] = output[0];")
    monkeypatch.setitem(registry.KERNELS, "dense", replace(dense, schedules=(*dense.schedules, schedule)))


@pytest.mark.slow
def test_a_wrong_operator_of_a_body_is_named_with_its_round(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, In, "second")
    with pytest.raises(MismatchError) as caught:
        mtool.verify_layers(path, board="host", deployment=mtool.Deployment(tmp_path / "project")).check()
    inside = [line for line in caught.value.details if "inside it, operator" in line]
    assert inside and '"l, round 0: p, then: ' in inside[0], caught.value.details


@pytest.mark.slow
def test_what_only_the_node_itself_gets_wrong_is_not_excused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {operator.name for operator in mtool.compile(path, board="host").manifest.operators}
    broken(monkeypatch, Altered, next(f"dense_{number}" for number in range(2, 9) if f"dense_{number}" not in names))
    deployment = mtool.Deployment(tmp_path / "project")
    for compare in (mtool.verify, mtool.verify_layers):
        with pytest.raises(MismatchError):
            compare(path, board="host", deployment=deployment).check()


@pytest.mark.product(3)
@pytest.mark.parametrize("name", [*CASES])
def test_the_taken_path_gives_what_the_model_does(name: str) -> None:
    case = CASES[name]
    opsets = case.proto.opset_import

    def run(proto: onnx.ModelProto, feeds: object) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
        session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        names = [value.name for value in proto.graph.output]
        return dict(zip(names, session.run(names, feeds), strict=True))

    for feeds in case.feeds:
        if any(
            np.asarray(data).dtype == np.int64 and np.size(data) == 1 and not 0 < data < 100 for data in feeds.values()
        ):
            continue
        path = Trace(run, opsets, feeds, {tensor.name: tensor for tensor in case.proto.graph.initializer})
        names = {value: value for value in (*feeds, *path.constants)}
        try:
            path.write(case.proto.graph.node, names, "")
        except NotWritten:
            continue  # of too many rounds, or rows of none
        wanted = run(case.proto, feeds)
        assert {*names} >= {*wanted}
        for output, expected in wanted.items():
            np.testing.assert_array_equal(path.value(names[output]), expected)


def test_what_is_captured() -> None:
    (loop,) = [node for node in tying().graph.node if node.op_type == "Loop"]
    assert captured(loop) == ["n", "h", "w", "s", "z", "yes"]
