"""mtool.quantize: calibration, the QDQ model, its loss and savings; mtool's results equal onnxruntime's."""

import shutil
from pathlib import Path
from typing import Any

import amount
import graphs
import models
import numpy as np
import onnx
import pytest
from onnx import helper
from tflite_models import Op, T, model

import mtool
from mtool.base.errors import BuildError, UsageError
from mtool.commands import Pixels, Scheme
from mtool.quantization import dataset, quantizing
from mtool.quantization.quantizing import QuantizationResult
from mtool.verification.oracles import ort

pytestmark = pytest.mark.long

pytest.importorskip("onnxruntime")

needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)
CLASSES = 4
NAMES = ("c1", "r1", "c2", "r2", "pool", "flat", "fc")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def network(path: Path, opset: int = 17) -> Path:
    """Write a network that tells in which quarter of a 12x12 image it is brightest."""
    random = np.random.default_rng(3)
    quarters = np.zeros((1, 12, 12, CLASSES), np.float32)
    for number in range(CLASSES):
        row, column = divmod(number, 2)
        quarters[:, 6 * row : 6 * row + 6, 6 * column : 6 * column + 6, number] = 1 / 36
    quarters *= random.uniform(0.9, 1.1, quarters.shape).astype(np.float32)
    constants = {
        "w1": random.normal(size=(6, 1, 3, 3)).astype(np.float32) / 6,
        "b1": random.normal(size=6).astype(np.float32) / 10,
        "w2": np.full((1, 6, 1, 1), 1 / 6, np.float32),
        "fw": quarters.reshape(144, CLASSES),
        "fb": np.zeros(CLASSES, np.float32),
    }
    constants["w1"][0, 0] = 4  # one channel much larger than the others: a scale each pays
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], name="c1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="r1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="c2"),
        helper.make_node("Relu", ["c"], ["d"], name="r2"),
        helper.make_node("Flatten", ["d"], ["e"], name="flat"),
        helper.make_node("Gemm", ["e", "fw", "fb"], ["y"], name="fc"),
    ]
    onnx.save(graphs.model(nodes, {"x": (np.float32, (1, 1, 12, 12))}, ["y"], constants, opset), path)
    return path


def bright(count: int, seed: int = 0) -> tuple[graphs.Array, graphs.Array]:
    """Draw images whose brightest quarter is known."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    x = random.random((count, 1, 12, 12), np.float32) * 0.4
    for image, label in zip(x, labels, strict=True):
        row, column = divmod(int(label), 2)
        image[0, 6 * row : 6 * row + 6, 6 * column : 6 * column + 6] += 0.5
    return x, labels


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def check_it_runs(done: QuantizationResult, board: str = "host") -> None:
    report = mtool.verify(done.path, board=board)
    report.check()
    assert [output.differing for output in report.outputs] == [0] * len(report.outputs)


@pytest.mark.slow
def test_a_network_keeps_its_classes_and_shrinks(tmp_path: Path) -> None:
    x, labels = bright(60)
    np.savez(tmp_path / "data.npz", x=x, labels=labels)
    done = mtool.quantize(network(tmp_path / "net.onnx"), tmp_path / "data.npz")
    assert done.path == Path("net_int8.onnx") and done.path.is_file()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert done.classes is not None and done.classes.samples == 60
    before, after = (one.by_name for one in done.accuracy)
    assert before["top1"] == before["auc"] == 1 and after["top1"] > 0.96
    (output,) = done.outputs
    assert output.name == "y" and 0 < output.mean_abs < output.max_abs < 0.2
    assert output.sqnr_db is not None and output.sqnr_db > 25 and output.cosine is not None and output.cosine > 0.99
    assert done.after.constant_bytes < 0.6 * done.before.constant_bytes
    assert done.after.arena_bytes < done.before.arena_bytes  # of which the larger is computed a few rows at a time
    assert done.before.macs == done.after.macs > 0
    assert [entry.domain for entry in onnx.load(done.path).opset_import] == [""]
    check_it_runs(done)


def test_a_bias_may_have_two_dimensions(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    constants = {"w": random.normal(size=(8, 3)).astype(np.float32), "b": np.ones((1, 3), np.float32)}
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="fc")]
    onnx.save(graphs.model(nodes, {"x": (np.float32, (1, 8))}, ["y"], constants), tmp_path / "gemm.onnx")
    np.savez(tmp_path / "data.npz", x=random.random((20, 8), np.float32))
    done = mtool.quantize(tmp_path / "gemm.onnx", tmp_path / "data.npz")
    assert operators(done.path).count("DequantizeLinear") == 4  # of the bias as well
    check_it_runs(done)


@pytest.mark.slow
def test_the_worst_layer_is_the_one_that_can_be_left_out(tmp_path: Path) -> None:
    x, _ = bright(20)
    np.savez(tmp_path / "data.npz", x=x)
    model = network(tmp_path / "net.onnx")
    done = mtool.quantize(model, tmp_path / "data.npz")
    errors = [layer.sqnr_db for layer in done.layers]
    assert None not in errors and errors == sorted(errors, key=float)
    assert {layer.node for layer in done.layers} <= set(NAMES)
    first = next(layer for layer in done.layers if layer.node == "fc")
    assert first.op == "Gemm" and first.weights_sqnr_db is not None and first.weights_sqnr_db > 30
    without = mtool.quantize(model, tmp_path / "data.npz", output="some.onnx", scheme=Scheme(exclude=("fc",)))
    assert operators(without.path).count("Gemm") == 1
    reads = next(node.input for node in onnx.load(without.path).graph.node if node.op_type == "Gemm")
    assert "fw" in reads  # its weights are float
    mtool.verify(without.path, board="host").check()
    with pytest.raises(UsageError, match=r"no node 'fd'") as caught:
        mtool.quantize(model, tmp_path / "data.npz", scheme=Scheme(exclude=("fd",)))
    assert "fc" in str(caught.value)


@pytest.mark.parametrize(
    "scheme",
    [
        Scheme(method="entropy"),
        Scheme(method="percentile"),
        Scheme(activations="uint8"),
        Scheme(activations="int16"),
        Scheme(symmetric=True),
        Scheme(per_channel=False),
        Scheme(integer_io=True),
        Scheme(integer_io=True, activations="uint8", symmetric=True),
    ],
    ids=str,
)
@pytest.mark.product
def test_each_scheme_gives_a_model_that_runs(scheme: Scheme, tmp_path: Path) -> None:
    x, _ = bright(20)
    samples = [{"x": image[np.newaxis]} for image in x]
    done = mtool.quantize(network(tmp_path / "net.onnx"), samples, scheme=scheme)
    made = onnx.load(done.path)
    points = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    activations = [node for node in made.graph.node if node.op_type == "QuantizeLinear"]
    assert {points[node.input[2]].dtype.name for node in activations} == {scheme.activations}
    if scheme.symmetric:
        assert {int(points[node.input[2]]) for node in activations} == {0 if scheme.activations == "int8" else 128}
    weights = next(node for node in made.graph.node if node.op_type == "Conv").input[1]
    scale = next(points[node.input[1]] for node in made.graph.node if weights in node.output)
    assert scale.size == (6 if scheme.per_channel else 1)
    kinds = {value.type.tensor_type.elem_type for value in (*made.graph.input, *made.graph.output)}
    integer = getattr(onnx.TensorProto, scheme.activations.upper())
    assert kinds == {integer if scheme.integer_io else onnx.TensorProto.FLOAT}
    assert done.outputs[0].sqnr_db is not None and done.outputs[0].sqnr_db > 20
    check_it_runs(done)


@pytest.mark.slow
def test_a_scale_for_each_channel_loses_less(tmp_path: Path) -> None:
    x, _ = bright(20)
    samples = [{"x": image[np.newaxis]} for image in x]
    model = network(tmp_path / "net.onnx")
    each, one = (
        mtool.quantize(model, samples, scheme=Scheme(per_channel=per_channel)).layers for per_channel in (True, False)
    )
    better, worse = (next(layer.weights_sqnr_db for layer in layers if layer.node == "c1") for layers in (each, one))
    assert better is not None and worse is not None and better > worse


@pytest.mark.slow
def test_an_integer_input_stays_behind_a_transposition(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], name="t", perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "w"], ["y"], name="c"),
    ]
    path = tmp_path / "nhwc.onnx"
    onnx.save(graphs.model(nodes, {"x": (np.float32, (1, 8, 8, 3))}, ["y"], {"w": weights}), path)
    samples = [{"x": x} for x in np.random.default_rng(1).random((5, 1, 8, 8, 3), np.float32)]
    done = mtool.quantize(path, samples, scheme=Scheme(integer_io=True))
    compiled = mtool.compile(done.path, board="host")
    assert [tensor.dtype for tensor in (*compiled.manifest.inputs, *compiled.manifest.outputs)] == ["int8", "int8"]
    assert compiled.manifest.inputs[0].shape == (1, 8, 8, 3)
    check_it_runs(done)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (
            np.full((1, 1, 12, 12), np.nan, np.float32),
            r"the data: values are not finite\n.*sample 1: x\[0,0,0,0\] is nan",
        ),
        (np.zeros((1, 1, 12, 12)), "sample 1: input x has the wrong type"),
        (np.zeros((1, 12, 12), np.float32), "sample 1: input x has the wrong shape"),
        (None, "sample 1: the names are not those of the model's inputs"),
    ],
)
def test_wrong_arrays_for_calibration_are_refused(tmp_path: Path, x: graphs.Array | None, expected: str) -> None:
    good = np.zeros((1, 1, 12, 12), np.float32)
    with pytest.raises(UsageError, match=expected):
        mtool.quantize(network(tmp_path / "net.onnx"), [{"x": good}, {"y": good} if x is None else {"x": x}])


@pytest.mark.slow
def test_a_sliding_model_is_calibrated_with_whole_windows_and_still_slides(tmp_path: Path) -> None:
    path, (x, labels) = network(tmp_path / "net.onnx"), bright(8)
    made = onnx.load(path)
    made.metadata_props.add(key="mtool.slides", value="x=3")
    onnx.save(made, path)
    np.savez(tmp_path / "data.npz", x=x, labels=labels)
    done = mtool.quantize(path, tmp_path / "data.npz")
    assert done.accuracy[1].by_name["top1"] == 1
    (input_,) = mtool.compile(done.path, board="host").manifest.inputs
    assert input_.shape == (1, 1, 3, 12) and input_.window is not None and input_.window.rows == 12
    with pytest.raises(UsageError, match="each sample has the new rows of a window of 12"):
        mtool.evaluate(done.path, tmp_path / "data.npz")


def test_images_are_resized_and_scaled(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "images"
    folder.mkdir()
    x, labels = bright(12)
    for number, one in enumerate(x):
        bytes_ = np.rint(one[0] * 255).astype(np.uint8)
        grey = image.fromarray(bytes_).resize((24, 24), image.Resampling.NEAREST)
        grey.save(folder / f"{number:02}.png")
    (folder / "notes.txt").write_text("not an image")
    (tmp_path / "labels.txt").write_text("\n".join(map(str, labels)))
    model = network(tmp_path / "net.onnx")
    np.savez(tmp_path / "nan.npz", x=np.where(x == x.max(), np.nan, x))
    with pytest.raises(UsageError, match="values are not finite"):
        mtool.quantize(model, tmp_path / "nan.npz")
    np.savez(tmp_path / "two.npz", a=labels, b=labels)
    (tmp_path / "two.npz").rename(tmp_path / "two.npy")
    with pytest.raises(UsageError, match="does not contain numbers"):
        mtool.quantize(model, folder, labels=tmp_path / "two.npy")
    done = mtool.quantize(model, folder, labels=tmp_path / "labels.txt")
    assert done.accuracy[0].by_name["top1"] == 1
    one = tmp_path / "one"
    one.mkdir()
    pixels = np.rint(x[0, 0] * 255).astype(np.uint8)
    image.fromarray(pixels).save(one / "a.png")
    tensors = mtool.compile(model, board="host").manifest.inputs
    (read,) = dataset.read(one, tensors, pixels=Pixels(scale=2, offset=-3)).samples
    assert read["x"].dtype == np.float32
    np.testing.assert_array_equal(read["x"], pixels.astype(np.float32).reshape(1, 1, 12, 12) * 2 - 3)


@pytest.mark.parametrize("weights", [np.int8, *([np.float32] if amount.IS_ALL else [])])
def test_a_tflite_model_is_quantized(weights: type, tmp_path: Path) -> None:
    """LiteRT has what the float model says; weights alone that are integers are floats to it, at the least."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    random = np.random.default_rng(4)
    is_float, scale = weights is np.float32, 1 / 64
    filters, rows = random.integers(-100, 101, (6, 3, 3, 1)), random.integers(-100, 101, (5, 6 * 64))
    data = [(one * scale).astype(weights) if is_float else one.astype(weights) for one in (filters, rows)]
    tensors = [
        T("x", [1, 8, 8, 1]),
        T("f", [6, 3, 3, 1], weights, None if is_float else scale, data=data[0]),
        T("c", [6], data=random.normal(size=6).astype(np.float32)),
        T("h", [1, 8, 8, 6]),
        T("w", [5, 6 * 64], weights, None if is_float else scale, data=data[1]),
        T("y", [1, 5]),
    ]
    same = {"Padding": 0, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    ops = [
        Op("CONV_2D", ["x", "f", "c"], ["h"], "Conv2DOptions", {**same, "FusedActivationFunction": 1}),
        Op("FULLY_CONNECTED", ["h", "w"], ["y"], "FullyConnectedOptions", {}),
    ]
    path = tmp_path / "net.tflite"
    path.write_bytes(model(tensors, ops, ["x"], ["y"]))
    x = random.normal(size=(20, 1, 8, 8, 1)).astype(np.float32)
    done = mtool.quantize(path, [{"x": one} for one in x], evaluate=[{"x": one} for one in x[:10]])
    kinds = operators(done.path)
    in_the_file = sum(one.nbytes for one in data) + 6 * 4
    assert "QuantizeLinear" in kinds and done.before.weight_bytes == in_the_file
    assert done.after.weight_bytes < 3000
    interpreter = litert.Interpreter(model_content=path.read_bytes())
    interpreter.allocate_tensors()
    made = ort.outputs(str(done.path.absolute()), [{"x": one} for one in x], title="net")
    wanted = []
    for one in x:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], one)
        interpreter.invoke()
        wanted.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    noise = np.concatenate(wanted) - np.concatenate([one["y"] for one in made])
    assert 10 * np.log10(np.square(wanted).mean() / np.square(noise).mean()) > 28
    assert done.doubts == ()


def test_calibration_data_that_can_not_be_right_are_doubted(tmp_path: Path) -> None:
    """Batch normalization holds the mean and variance of what the network was trained with."""
    random = np.random.default_rng(6)
    x = random.normal(3, 2, (12, 1, 4, 6, 6)).astype(np.float32)
    constants = {
        "gamma": np.ones(4, np.float32),
        "beta": np.zeros(4, np.float32),
        "mean": np.full(4, 3, np.float32),
        "var": np.full(4, 4, np.float32),
        "w": random.normal(size=(144, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("BatchNormalization", ["x", "gamma", "beta", "mean", "var"], ["n"], name="bn"),
        helper.make_node("Flatten", ["n"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "w"], ["y"], name="fc"),
    ]
    path = tmp_path / "net.onnx"
    onnx.save(graphs.model(nodes, {"x": (np.float32, (1, 4, 6, 6))}, ["y"], constants), path)
    proto = onnx.load(path)

    def doubts(values: graphs.Array) -> tuple[str, ...]:
        return quantizing.of_statistics(proto, [{"x": one} for one in values], path)

    assert doubts(x) == ()
    for wrong in (x * 50, x / 50, x * 0 + 3):
        (line,) = doubts(wrong)
        assert "the data differ from the training data: before bn" in line
    np.save(tmp_path / "wrong.npy", x[:1].repeat(9, 0) * 50)
    done = mtool.quantize(path, tmp_path / "wrong.npy", evaluate=tmp_path / "wrong.npy")
    assert [word in line for word, line in zip(("before bn", "for all 9", "same data"), done.doubts, strict=True)]


def test_calibration_data_of_another_range_are_doubted(tmp_path: Path) -> None:
    x, labels = bright(30, seed=1)
    np.save(tmp_path / "scaled.npy", x / 50)
    np.savez(tmp_path / "test.npz", x=x, y=labels)  # the labels' usual name
    done = mtool.quantize(network(tmp_path / "net.onnx"), tmp_path / "scaled.npy", evaluate=tmp_path / "test.npz")
    assert done.accuracy[0].samples == 30 and done.accuracy[0].by_name["top1"] == 1
    (line,) = done.doubts
    assert "the calibration data have another range" in line
    np.save(tmp_path / "right.npy", x)
    done = mtool.quantize(network(tmp_path / "net.onnx"), tmp_path / "right.npy", evaluate=tmp_path / "test.npz")
    assert done.doubts == ()


def test_images_of_another_shape_are_doubted(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    tensors = mtool.compile(network(tmp_path / "net.onnx"), board="host").manifest.inputs
    for (width, height), words in {
        (24, 24): "", (48, 36): "", (12, 12): "", (48, 20): "20x48 pixels stretched to 12x12", (5, 5): "enlarged"
    }.items():  # fmt: skip
        folder = tmp_path / f"{width}"
        folder.mkdir(exist_ok=True)
        image.new("L", (width, height)).save(folder / "a.png")
        doubts = dataset.read(folder, tensors).doubts
        assert bool(doubts) == bool(words) and words in "".join(doubts)


def test_other_data_may_measure_the_loss(tmp_path: Path) -> None:
    np.save(tmp_path / "calibrate.npy", bright(10)[0])
    x, labels = bright(30, seed=1)
    np.savez(tmp_path / "test.npz", x0=x, y0=labels)
    done = mtool.quantize(
        network(tmp_path / "net.onnx"), tmp_path / "calibrate.npy", evaluate=tmp_path / "test.npz", output="q.onnx"
    )
    assert (done.calibrated_with, done.compared_over) == (10, 30)
    assert done.accuracy[0].samples == 30 and done.accuracy[0].by_name["top1"] == 1


@pytest.mark.slow
def test_an_old_model_is_converted(tmp_path: Path) -> None:
    samples = [{"x": image[np.newaxis]} for image in bright(5)[0]]
    done = mtool.quantize(network(tmp_path / "net.onnx", opset=9), samples)
    assert onnx.load(done.path).opset_import[0].version >= 13
    check_it_runs(done)


def test_what_can_not_be_done_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [{"x": image[np.newaxis]} for image in bright(3)[0]]
    model = network(tmp_path / "net.onnx")
    done = mtool.quantize(model, samples)
    before = done.path.read_bytes()
    with pytest.raises(UsageError, match="is already quantized"):
        mtool.quantize(done.path, samples, output="twice.onnx")
    with pytest.raises(UsageError, match="is the model itself"):
        mtool.quantize(model, samples, output=model)
    with pytest.raises(UsageError, match=r"an \.onnx file"):
        mtool.quantize(model, samples, output="net.tflite")
    with pytest.raises(UsageError, match="no samples to calibrate"):
        mtool.quantize(model, [])
    with pytest.raises(UsageError, match="has no samples"):
        (tmp_path / "empty").mkdir()
        mtool.quantize(model, tmp_path / "empty")
    nodes = [helper.make_node("Sin", ["x"], ["y"], name="s")]
    onnx.save(graphs.model(nodes, {"x": (np.float32, (1, 4))}, ["y"]), tmp_path / "sin.onnx")
    with pytest.raises(UsageError, match="nothing that can be quantized"):
        mtool.quantize(tmp_path / "sin.onnx", [{"x": np.zeros((1, 4), np.float32)}])
    (tmp_path / "labels.txt").write_text("1 2")
    np.save(tmp_path / "x.npy", bright(3)[0])
    with pytest.raises(UsageError, match="3 samples but 2 labels"):
        mtool.quantize(model, tmp_path / "x.npy", labels=tmp_path / "labels.txt")
    monkeypatch.setattr(ort, "version", str)
    with pytest.raises(BuildError, match="onnxruntime is not installed") as caught:
        mtool.quantize(model, samples)
    assert "pip install 'mtool-mcu[quantize]'" in caught.value.hint
    assert done.path.read_bytes() == before


@pytest.mark.product(2)
@needs_arm
@models.needed
@pytest.mark.parametrize(("name", "arena"), [("kws", 0.27), ("ic", 0.75)])  # Winograd's weights are in ic's arena
def test_a_shared_model_runs_bit_for_bit_on_a_board(name: str, arena: float) -> None:
    done = mtool.quantize(
        models.path(f"{name}/{name}_float32"), models.golden(f"{name}/{name}_float32"), board="mps2_an386"
    )
    assert done.classes is not None and not done.accuracy  # its y0 are the outputs, not labels
    assert done.before.code_bytes and done.after.code_bytes
    assert done.before.fits and done.after.fits
    assert done.after.constant_bytes < 0.35 * done.before.constant_bytes
    assert done.after.arena_bytes < arena * done.before.arena_bytes
    check_it_runs(done, "mps2_an386")


@pytest.mark.parametrize(
    ("size", "values", "expected"),
    [(3, None, True), (4, None, False), (3, [[0.5, 2, 3]], False), (4, [2], True), (3, [[0, 1, 1]], False)],
)
def test_values_are_not_compared_as_classes(size: int, values: list[Any] | None, expected: bool) -> None:
    """A row of the input's shape is an autoencoder's; labels decide."""
    outputs, labels = {"y": np.zeros((1, size))}, None if values is None else np.array(values)
    assert quantizing.has_classes({"x": np.zeros((1, 4))}, outputs, labels) is expected
    assert not quantizing.has_classes({"x": np.zeros((1, 4))}, {**outputs, "z": np.zeros((1, 3))}, labels)
