"""What a tie is, and that `verify` and `verify --layers` treat it the same."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import graphs
import numpy as np
import onnx
import pytest
from altered import Altered
from onnx import helper

import mtool
from mtool.base.errors import MismatchError
from mtool.cli import app
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.schedule import Schedule
from mtool.manifest import Operand, Source
from mtool.stages import samples
from mtool.verification import reference, verification
from mtool.verification.comparison import Tolerance
from mtool.verification.rounding_ties import Bounds, RoundingTies, SampleTies, Unknown
from mtool.verification.verification import judge

pytest.importorskip("onnxruntime")

F = np.float32


def quantize(name: str, to: str, scale: str = "s", zero: str = "z") -> onnx.NodeProto:
    return helper.make_node("QuantizeLinear", [name, scale, zero], [to])


def dequantize(name: str, to: str, scale: str = "s", zero: str = "z", **axis: int) -> onnx.NodeProto:
    return helper.make_node("DequantizeLinear", [name, scale, zero], [to], **axis)


def bounds(nodes: list[onnx.NodeProto], constants: dict[str, Any], known: dict[str, Any], tensor: str) -> Bounds:
    inputs = {name: (array.dtype.type, array.shape) for name, array in known.items() if name == "x"}
    proto = graphs.model(nodes, inputs, [tensor], constants)
    return RoundingTies(proto).bounds(tensor, known, set(known) - {tensor})


def test_what_lies_halfway_has_two_neighbours() -> None:
    known = {"x": np.array([15.75, 15.7, 1.0, -1e9, 1e9], F)}
    found = bounds([quantize("x", "y")], {"s": F(0.5), "z": np.int8(0)}, known, "y")
    assert found.open and found.low.tolist() == [31, 31, 2, -128, 127] and found.high.tolist() == [32, 31, 2, -128, 127]


def test_a_sum_is_a_tie_as_far_as_float32_can_not_report() -> None:
    """Behind 10,000,000 float32 has no fractions: 0.49 of a step comes out as nothing or a whole one."""
    nodes = [helper.make_node("Add", ["x", "c"], ["a"]), helper.make_node("Sub", ["a", "c"], ["d"]), quantize("d", "y")]
    known, zero = {"x": np.array([0.49, 2.0], F)}, {"s": F(1), "z": np.int8(0)}
    small = bounds(nodes, {"c": F(1)} | zero, known, "y")
    assert not small.open and small.value.tolist() == [0, 2]
    large = bounds(nodes, {"c": F(1e7)} | zero, known, "y")
    assert large.low.tolist()[0] == 0 and large.high.tolist()[0] == 1


def test_a_tie_goes_through_a_concat_a_turn_and_another_rounding() -> None:
    nodes = [
        quantize("x", "q"),
        dequantize("q", "d"),
        helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
        helper.make_node("Concat", ["t", "c"], ["k"], axis=0),
        quantize("k", "y", "half"),
    ]
    constants = {"s": F(0.5), "half": F(0.25), "z": np.int8(0), "c": np.full((1, 2), 3, F)}
    known = {"x": np.array([[1.0, 15.75, 2.1], [3, 3, 3]], F)}
    found = bounds(nodes, constants, known, "y")
    assert (found.high.astype(int) - found.low).tolist() == [[0, 0], [2, 0], [0, 0], [0, 0]]


def test_a_float_on_a_grid_has_ties_too() -> None:
    nodes = [quantize("x", "q"), dequantize("q", "y")]
    found = bounds(nodes, {"s": F(0.5), "z": np.int8(3)}, {"x": np.array([15.75, 1.0], F)}, "y")
    assert found.low.tolist() == [15.5, 1.0] and found.high.tolist() == [16.0, 1.0]


@pytest.mark.parametrize("kind", ["INT8", "INT4"])
@pytest.mark.parametrize("between", ["Identity", "Flatten"])
def test_a_bias_that_is_rounded_to_the_steps_of_few_bits(kind: str, between: str) -> None:
    """The sum is 1.9, less than half of the result's step 4; with the bias 1 instead of 0.9 it is a half."""
    nodes = [
        dequantize("x", "f", "one"),
        helper.make_node(between, ["f"], ["flat"]),
        dequantize("w", "wf", "one", "wz"),
        helper.make_node("Gemm", ["flat", "wf", "b"], ["g"]),
        quantize("g", "y", "four"),
    ]
    constants = {"one": F(1), "four": F(4), "z": np.int8(0), "b": np.array([0.9], F)}
    proto = graphs.model(nodes, {"x": (np.int8, (1, 1))}, ["y"], constants, opset=21)
    for name, sizes in {"w": [1, 1], "wz": []}.items():
        number = int(name == "w")
        proto.graph.initializer.append(helper.make_tensor(name, getattr(onnx.TensorProto, kind), sizes, [number]))
    found = RoundingTies(proto).bounds("y", {"x": np.array([[1]], np.int8)}, set())
    assert (found.low.item(), found.high.item()) == (0, 1)


@pytest.mark.parametrize("mode", ["align_corners", "tf_crop_and_resize"])
def test_a_resize_between_corners_has_whole_sizes(mode: str) -> None:
    """Of 2.3 x 5 elements 11 are left: the second is at 4 / 10."""
    resize = helper.make_node(
        "Resize", ["x", "roi", "times"], ["y"], mode="linear", coordinate_transformation_mode=mode
    )
    constants = {"roi": np.array([0, 0, 1, 1], F), "times": np.array([1, 2.3], F)}
    found = bounds([resize], constants, {"x": np.array([[0, 10, 0, 10, 0]], F)}, "y")
    assert found.value.shape == (1, 11) and found.value[0, 1] == pytest.approx(4)


@pytest.mark.parametrize(
    ("op", "mode", "low", "high"),
    [
        ("Quant", "ROUND", [1, 1.5, 4.5, 7.5], [1, 2, 4.5, 7.5]),
        ("IntQuant", "CEIL", [1, 2, 5, 7.5], [1.5, 2, 5, 7.5]),
        ("Quant", "FLOOR", [0.5, 1.5, 4.5, 7.5], [1, 1.5, 4.5, 7.5]),
        ("BipolarQuant", "", [0.5] * 4, [0.5] * 4),
    ],
)
def test_quants_of_qonnx_have_ties_of_their_rounding(op: str, mode: str, low: list[float], high: list[float]) -> None:
    """Whole steps, halves, what is between, and more than 4 bits have."""
    parameters = ["s", "z", "b"] if mode else ["s"]
    attrs = {"signed": 0, "narrow": 0, "rounding_mode": mode} if mode else {}
    nodes = [helper.make_node("Mul", ["x", "k"], ["m"])]
    nodes.append(helper.make_node(op, ["m", *parameters], ["y"], domain="qonnx.custom_op.general", **attrs))
    constants = {"k": F(0.5), "s": F(0.5), "z": F(0), "b": F(4)}
    found = bounds(nodes, constants, {"x": np.array([2, 3.5, 9.3, 99], F)}, "y")
    assert (found.low.tolist(), found.high.tolist()) == (low, high)
    x = np.array([1, 1.75, 4.65, 49.5], F)  # floats of the model are divided alike on both sides
    alone = bounds(
        [helper.make_node(op, ["x", *parameters], ["y"], domain="onnx.brevitas", **attrs)], constants, {"x": x}, "y"
    )
    assert not alone.open


def test_what_can_not_be_computed_is_reported() -> None:
    with pytest.raises(Unknown):
        bounds([helper.make_node("Relu", ["x"], ["y"])], {}, {"z": np.zeros(1, F)}, "y")
    proto = graphs.model([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")], {"x": (F, (1,))}, ["y"])
    with pytest.raises(Unknown):
        RoundingTies(proto).bounds("y", {"x": np.zeros(1, F)}, set())


def test_ties_are_reported_from_differences() -> None:
    proto = graphs.model([quantize("x", "y")], {"x": (F, (5,))}, ["y"], {"s": F(1), "z": np.int8(0)})
    known = {"x": np.array([3.5, 3.5, 3.5, 3.2, 3.2], F), "y": np.array([4, 4, 4, 3, 3], np.int8)}
    source = Source(tensor="y", moves=())
    operand = Operand(value="y", dtype="int8", shape=(5,), bytes=5, memory="outputs", index=0, offset=0, source=source)
    ties = SampleTies(RoundingTies(proto), known)
    accepted, count = ties.accept(operand, known["y"], np.array([4, 3, 5, 3, 4], np.int8))
    assert accepted.tolist() == [4, 4, 5, 3, 4] and count == 1
    wrong = {**known, "y": np.array([9, 4, 4, 3, 3], np.int8)}  # no rounding makes 9 of 3.5
    accepted, count = SampleTies(RoundingTies(proto), wrong).accept(operand, wrong["y"], known["y"])
    assert accepted.tolist() == known["y"].tolist() and count == 0


def branches(dtype: Any, channels: int = 16, size: int = 12) -> onnx.ModelProto:
    """Two convolutions and, behind both, a concat with a grid of its own and a third: a U-Net in small."""
    random = np.random.default_rng(12)
    constants: dict[str, Any] = {"z": np.asarray(77, dtype), "wz": np.int8(0), "bz": np.int32(0)}
    nodes = [quantize("x", "xq", "image_s"), dequantize("xq", "image", "image_s")]
    widest = float(np.iinfo(dtype).max) - float(np.iinfo(dtype).min)
    constants["image_s"] = F(8 / widest)

    def convolution(name: str, source: str, inputs: int) -> None:
        constants[f"{name}_w"] = random.integers(-127, 128, (channels, inputs, 3, 3)).astype(np.int8)
        constants[f"{name}_ws"] = F(0.023 / np.sqrt(inputs * 9))
        constants[f"{name}_bs"] = constants[f"{source}_s"] * constants[f"{name}_ws"]
        constants[f"{name}_b"] = np.rint(random.standard_normal(channels) / constants[f"{name}_bs"]).astype(np.int32)
        nodes.append(dequantize(f"{name}_w", f"{name}_wf", f"{name}_ws", "wz"))
        nodes.append(dequantize(f"{name}_b", f"{name}_bf", f"{name}_bs", "bz"))
        pads = {"pads": [1, 1, 1, 1]}
        nodes.append(helper.make_node("Conv", [source, f"{name}_wf", f"{name}_bf"], [f"{name}_c"], **pads))
        put_on_grid(f"{name}_c", name, 16)

    def put_on_grid(source: str, name: str, extent: float) -> None:
        constants[f"{name}_s"] = F(extent / widest)
        nodes.extend([quantize(source, f"{name}_q", f"{name}_s"), dequantize(f"{name}_q", name, f"{name}_s")])

    convolution("left", "image", 3)
    convolution("right", "left", channels)
    nodes.append(helper.make_node("Concat", ["left", "right"], ["joined_c"], axis=1))
    put_on_grid("joined_c", "joined", 17.3)
    convolution("end", "joined", 2 * channels)
    return graphs.model(nodes, {"x": (F, (1, 3, size, size))}, ["end"], constants, opset=21)


def off(sound: Schedule) -> Altered:
    """Return a schedule of which one element is a step too large."""
    return Altered("off", sound, "conv_2", lambda body: f"{body}\n    output[7] = (int16_t)(output[7] ^ 2);")


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ties") / "sixteen.onnx"
    onnx.save(branches(np.int16), path)
    return path


@pytest.mark.slow
def test_both_allow_ties_of_16_bits_and_count_the_same(sixteen: Path, tmp_path: Path) -> None:
    deployment = mtool.Deployment(tmp_path / "project")
    whole = mtool.verify(sixteen, board="host", deployment=deployment)
    layers = mtool.verify_layers(sixteen, board="host", deployment=deployment)
    whole.check()
    layers.check()
    (output,) = whole.outputs
    assert output.differing > 0 and whole.ties == layers.ties > 0
    assert "ties" in output.allowed
    elements = sum(layer.difference.elements for layer in layers.layers if layer.difference)
    assert layers.ties < elements / 20, "more can't be halfway"


def test_neither_allows_more(sixteen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convolution = registry.KERNELS["conv2d"]
    sound = next(schedule for schedule in convolution.schedules if schedule.name == "c99_patch")
    kernels = replace(convolution, schedules=(*convolution.schedules, off(sound)))
    monkeypatch.setitem(registry.KERNELS, "conv2d", kernels)
    deployment = mtool.Deployment(tmp_path / "project")
    for compare in (mtool.verify, mtool.verify_layers):
        with pytest.raises(MismatchError):
            compare(sixteen, board="host", deployment=deployment).check()


@pytest.mark.slow
def test_a_number_of_steps_that_is_requested_counts_ties_too(
    sixteen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["verify", str(sixteen), "--output-dir", "project"]
    assert app.invoke([*command, "--layers", "--lsb", "0"]) == 9
    capsys.readouterr()
    assert app.invoke([*command, "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)["ties"]
    assert app.invoke([*command, "--json", "--layers"]) == 0
    assert json.loads(capsys.readouterr().out)["ties"] == counted > 0
    strict = Tolerance(ties=False, grid_steps=0)
    assert not mtool.verify(sixteen, board="host", tolerance=strict, deployment=mtool.Deployment(Path("project"))).ok


@pytest.mark.slow
def test_8_bits_behind_a_concat_have_hardly_a_tie(tmp_path: Path) -> None:
    path = tmp_path / "eight.onnx"
    onnx.save(branches(np.int8), path)
    deployment = mtool.Deployment(tmp_path / "project")
    layers = mtool.verify_layers(path, board="host", deployment=deployment)
    layers.check()
    assert layers.ties < 10
    assert mtool.verify(path, board="host", deployment=deployment).ok


@pytest.mark.slow
def test_rows_that_are_all_alike_before_a_normalisation(tmp_path: Path) -> None:
    """Only the noise of the mean is left, and divided by nearly nothing."""
    nodes = [
        dequantize("x", "f"),
        helper.make_node("Tile", ["f", "times"], ["t"]),
        helper.make_node("LayerNormalization", ["t", "w", "b"], ["n"], axis=-1, epsilon=1e-3),
        quantize("n", "y", "ys"),
    ]
    random = np.random.default_rng(3)
    constants = {
        "s": F(0.0101), "z": np.int8(-3), "times": np.array([1, 30]), "ys": F(0.01),
        "w": np.ones(30, F), "b": (random.integers(-90, 90, 30) * F(0.01) + F(0.004999)).astype(F),
    }  # fmt: skip
    path = tmp_path / "alike.onnx"
    onnx.save(graphs.model(nodes, {"x": (np.int8, (40, 1))}, ["y"], constants), path)
    deployment = mtool.Deployment(tmp_path / "project")
    assert mtool.verify(path, board="host", deployment=deployment).ok == (
        not mtool.verify_layers(path, board="host", deployment=deployment).diverging
    )
    mtool.verify_layers(path, board="host", deployment=deployment).check()


@pytest.mark.slow
def test_floats_within_their_tolerance_that_are_rounded_afterwards(tmp_path: Path) -> None:
    """Dynamic quantization between float products: each operator is right, and steps apart by what it was given."""
    random, constants = np.random.default_rng(4), {"k": F(1e-3)}
    nodes, last = [], "x"
    for i in "abc":
        constants[f"v{i}"] = (random.standard_normal((256, 256)) / 16).astype(F)
        constants[f"w{i}"] = random.integers(-127, 128, (256, 256)).astype(np.int8)
        nodes += [
            helper.make_node("MatMul", [last, f"v{i}"], [f"m{i}"]),
            helper.make_node("Tanh", [f"m{i}"], [f"t{i}"]),
            helper.make_node("DynamicQuantizeLinear", [f"t{i}"], [f"q{i}", f"s{i}", f"z{i}"]),
            helper.make_node("MatMulInteger", [f"q{i}", f"w{i}", f"z{i}"], [f"i{i}"]),
            helper.make_node("Cast", [f"i{i}"], [f"f{i}"], to=1),
            helper.make_node("Mul", [f"f{i}", f"s{i}"], [f"g{i}"]),
            helper.make_node("Mul", [f"g{i}", "k"], [f"h{i}"]),
        ]
        last = f"h{i}"
    path = tmp_path / "dynamic.onnx"
    onnx.save(graphs.model(nodes, {"x": (F, (40, 256))}, [last], constants), path)
    deployment = mtool.Deployment(tmp_path / "project")
    mtool.verify_layers(path, board="host", deployment=deployment).check()
    whole = mtool.verify(path, board="host", deployment=deployment)
    whole.check()
    (output,) = whole.outputs
    assert output.differing == 0 or (output.max_abs is not None and output.max_abs < 0.1)


@pytest.mark.parametrize(
    ("wrong", "explains", "looked_into"), [(3, True, [3]), (20, True, [16, 20]), (20, False, [16])]
)
def test_of_many_samples_those_that_differ_are_looked_into(
    wrong: int, explains: bool, looked_into: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "relu.onnx"
    nodes = [dequantize("x", "f"), helper.make_node("Relu", ["f"], ["r"]), quantize("r", "y")]
    onnx.save(graphs.model(nodes, {"x": (np.int8, (1, 8))}, ["y"], {"s": F(0.1), "z": np.int8(0)}), path)
    model = mtool.compile(path, board="host")
    inputs = samples.seeded(model.manifest.inputs, count=40, seed=1)
    expected = reference.outputs(path, inputs)
    found = [{"y": one["y"].copy()} for one in expected]
    for number in range(wrong):
        found[2 * number + 1 if wrong == 3 else number]["y"][0, 3] ^= 16
    asked: list[Sequence[Any]] = []

    def layers(device: None, model: object, some: Sequence[Any], allowed: Tolerance) -> Any:
        asked.append(some)
        return SimpleNamespace(explain=explains, ties=5)

    monkeypatch.setattr(verification, "compare_layers", layers)
    report = judge(model, inputs, expected, found, opened=contextlib.nullcontext)  # type: ignore[arg-type]
    assert (report.ok, report.ties) == ((True, 5) if explains else (False, None))
    assert [len(some) for some in asked] == looked_into
    differing = [
        sample for sample, one, other in zip(inputs, expected, found, strict=True) if (one["y"] != other["y"]).any()
    ]
    assert all(one is other for some in asked for one, other in zip(some, differing, strict=False))
