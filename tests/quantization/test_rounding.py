"""Weights of few bits: rounding that changes a layer's output least, and the models that it gives."""

from pathlib import Path

import graphs
import models
import numpy as np
import onnx
import pytest
from graphs import Array
from onnx import helper, numpy_helper

import mtool
from mtool.base.errors import UsageError
from mtool.commands import Scheme
from mtool.quantization import quantizing, rounding
from mtool.quantization.quantizing import Classes, OutputLoss
from mtool.verification.oracles import ort

pytest.importorskip("onnxruntime")
RANDOM = np.random.default_rng
LIMITS = {2: (-2, 1), 4: (-8, 7), 8: (-127, 127)}


def covariance(columns: int, seed: int = 0) -> Array:
    """Return the covariance of inputs that depend on each other, as neighbours in an image do."""
    mixed = RANDOM(seed).normal(size=(4 * columns, columns)) @ RANDOM(seed + 1).normal(size=(columns, columns))
    return (mixed.T @ mixed / len(mixed))[np.newaxis]


def error(target: Array, hessian: Array, codes: Array, scale: Array) -> Array:
    off = target - codes * scale[..., np.newaxis]
    return np.asarray(np.einsum("grk,gkl,grl->gr", off, hessian, off))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_that_are_on_a_grid_are_found(bits: int) -> None:
    low, high = LIMITS[bits]
    wanted = RANDOM(1).integers(low, high + 1, (1, 5, 12)).astype(np.float64)
    wanted[..., 0] = high
    scale = RANDOM(2).uniform(0.5, 2, (1, 5)).astype(np.float32).astype(np.float64)
    codes, found = rounding.rounded(wanted * scale[..., np.newaxis], np.eye(12)[np.newaxis], bits)
    np.testing.assert_array_equal(codes, wanted)
    np.testing.assert_allclose(found, scale, rtol=1e-6)


@pytest.mark.parametrize("bits", [2, 4])
def test_the_error_is_less_than_that_of_rounding_to_nearest(bits: int) -> None:
    low, high = LIMITS[bits]
    hessian, target = covariance(100), RANDOM(3).normal(size=(1, 16, 100))
    codes, scale = rounding.rounded(target, hessian, bits)
    assert codes.min() >= low and codes.max() <= high and (codes == np.rint(codes)).all()
    nearest = np.full((1, 16), np.inf)
    for share in np.linspace(0.2, 1, 20):
        tried = share * np.abs(target).max(-1) / high
        rounded = np.clip(np.rint(target / tried[..., np.newaxis]), low, high)
        nearest = np.minimum(nearest, error(target, hessian, rounded, tried))
    ours = error(target, hessian, codes, scale)
    assert (ours <= nearest).all() and ours.sum() < 0.6 * nearest.sum()


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_channels_without_effect_become_zeros(bits: int) -> None:
    """Training shrinks the weights of unused channels, to about 1e-30; zeros are neither stored nor computed."""
    target = RANDOM(4).normal(size=(1, 6, 20))
    target[0, 1:4] *= 1e-30
    codes, scale = rounding.rounded(target, covariance(20), bits)
    assert not codes[0, 1:4].any() and codes[0, [0, 4, 5]].any(-1).all() and scale.min() > 1e-3


@pytest.mark.parametrize("value", [0, 1e-20, 1, 300.3])
def test_weights_of_zero_and_constant_inputs_are_rounded(value: float) -> None:
    for weights in (np.zeros((3, 90)), RANDOM(0).normal(size=(3, 90))):
        x = np.full((50, 90), value, np.float32)
        x[:, :3] *= RANDOM(1).normal(1, 1e-5, (50, 3)).astype(np.float32)
        (found,) = rounding.fitted(gemm(weights, np.zeros(3)), [(x, x)], (4,))
        assert np.isfinite(found.scale).all() and (found.scale > 0).all()
        off = found.codes[0] * found.scale[0][:, np.newaxis] - weights
        assert np.sqrt(np.square(off).mean()) < 0.3


def gemm(weights: Array, bias: Array | None) -> rounding.Layer:
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)
    rows = None if bias is None else bias[np.newaxis]
    return rounding.Layer(node, node, weights[np.newaxis], (), rows, 0.1)


@pytest.mark.parametrize("bits", [2, 4])
def test_the_mean_of_an_output_stays(bits: int) -> None:
    """Its inputs have the errors of earlier layers, for which weights and bias make up."""
    weights, bias = RANDOM(4).normal(size=(6, 10)), RANDOM(5).normal(size=6)
    x = RANDOM(6).gamma(1, size=(200, 1, 10)).astype(np.float32)
    changed = (0.8 * x + 0.3 + RANDOM(7).normal(0, 0.01, x.shape)).astype(np.float32)
    (found,) = rounding.fitted(gemm(weights, bias), list(zip(x, changed, strict=True)), (bits,))
    assert found.bias is not None
    off = x[:, 0] @ weights.T + bias - changed[:, 0] @ (found.codes * found.scale[..., np.newaxis])[0].T - found.bias[0]
    np.testing.assert_allclose(off.mean(0), 0, atol=1e-4)
    assert np.square(off).mean() < {2: 0.3, 4: 0.01}[bits] * np.var(x @ weights.T)


@pytest.mark.parametrize(
    ("size", "weights", "attrs"),
    [
        ((1, 4, 7, 6), (6, 4, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
        ((1, 4, 7, 6), (8, 2, 3, 3), {"group": 2, "dilations": [2, 2], "auto_pad": "VALID"}),
        ((1, 4, 7, 6), (4, 1, 3, 3), {"group": 4, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((1, 4, 8, 6), (4, 1, 2, 2), {"group": 4, "auto_pad": "SAME_LOWER"}),
        ((2, 3, 9), (5, 3, 4), {"strides": [3]}),
    ],
    ids=str,
)
def test_a_convolution_is_a_product_of_its_rows(
    size: tuple[int, ...], weights: tuple[int, ...], attrs: dict[str, object], tmp_path: Path
) -> None:
    x, w = (RANDOM(number).normal(size=shape).astype(np.float32) for number, shape in enumerate((size, weights)))
    node = helper.make_node("Conv", ["x", "w"], ["y"], **attrs)
    onnx.save(graphs.model([node], {"x": (np.float32, size)}, ["y"], {"w": w}), tmp_path / "conv.onnx")
    (wanted,) = ort.outputs(str(tmp_path / "conv.onnx"), [{"x": x}], title="conv")
    groups = int(str(attrs.get("group", 1)))
    layer = rounding.Layer(node, node, w.reshape(groups, weights[0] // groups, -1), weights[2:], None, 1.0)
    made = layer.rows(x) @ layer.weights.swapaxes(1, 2)  # [groups, positions, rows]
    by_channel = made.transpose(1, 0, 2).reshape(len(x), -1, weights[0]).swapaxes(1, 2)
    np.testing.assert_allclose(by_channel.reshape(wanted["y"].shape), wanted["y"], atol=1e-5)


def chain(path: Path) -> onnx.ModelProto:
    """Write convolutions whose channels have very different ranges, which a depthwise one passes on."""
    random = RANDOM(8)
    uneven = 4.0 ** np.arange(-5, 7)
    wide = [1, 1, 1]
    constants = {
        "w1": random.normal(size=(12, 2, 3, 3)) * uneven.reshape(-1, *wide),
        "b1": random.normal(size=12) * uneven,
        "w2": random.normal(size=(12, 1, 3, 3)),
        "w3": random.normal(size=(3, 12, 1, 1)) / uneven.reshape(1, -1, 1, 1),
        "b3": random.normal(size=3),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], name="c1"),
        helper.make_node("Relu", ["a"], ["b"], name="r1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="c2", group=12),
        helper.make_node("Relu", ["c"], ["d"], name="r2"),
        helper.make_node("Conv", ["d", "w3", "b3"], ["y"], name="c3"),
    ]
    floats = {name: data.astype(np.float32) for name, data in constants.items()}
    made = graphs.model(nodes, {"x": (np.float32, (1, 2, 8, 8))}, ["y"], floats)
    onnx.save(made, path)
    return made


def test_channels_of_different_ranges_are_equalized(tmp_path: Path) -> None:
    made = chain(tmp_path / "before.onnx")
    there = {tensor.name: numpy_helper.to_array(tensor).copy() for tensor in made.graph.initializer}
    there["w1"][0] *= 1e-20  # a channel that training gave up, but for its bias
    there["b1"][0] = 0.5
    for tensor in made.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(there[tensor.name], tensor.name))
    onnx.save(made, tmp_path / "before.onnx")
    rounding.prepare(made)
    onnx.save(made, tmp_path / "after.onnx")
    x = {"x": RANDOM(9).normal(size=(1, 2, 8, 8)).astype(np.float32)}
    before, after = (ort.outputs(str(tmp_path / f"{name}.onnx"), [x], title="")[0]["y"] for name in ("before", "after"))
    np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-3)
    there = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    ranges = np.abs(there["w1"]).max((1, 2, 3))
    assert ranges[1:].max() < 8 * ranges[1:].min()
    assert abs(there["b1"][0]) < 100  # not 1e10: a bias of its own has a range
    assert [len(node.input) for node in made.graph.node if node.op_type == "Conv"] == [3, 3, 3]  # of which one is new


@pytest.mark.slow
def test_equalized_channels_keep_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chain(tmp_path / "net.onnx")
    samples = [{"x": x} for x in RANDOM(10).normal(size=(40, 1, 2, 8, 8)).astype(np.float32)]
    wide, few = (
        mtool.quantize(tmp_path / "net.onnx", samples, scheme=Scheme(weights=weights)).outputs[0].sqnr_db
        for weights in ("int8", "int4")
    )
    assert wide is not None and few is not None and few > wide  # one scale for all channels: int8 loses the small ones


def perceptron(path: Path, layers: list[tuple[Array, Array]]) -> Path:
    nodes, constants, value = [], {}, "x"
    for number, (weights, bias) in enumerate(layers):
        constants |= {f"w{number}": weights.astype(np.float32), f"b{number}": bias.astype(np.float32)}
        is_last = number == len(layers) - 1
        names = [value, f"w{number}", f"b{number}"]
        nodes.append(helper.make_node("Gemm", names, ["y" if is_last else f"s{number}"], name=f"fc{number}"))
        if not is_last:
            value = f"a{number}"
            nodes.append(helper.make_node("Relu", [f"s{number}"], [value], name=f"r{number}"))
    size = (1, len(layers[0][0]))
    onnx.save(graphs.model(nodes, {"x": (np.float32, size)}, ["y"], constants), path)
    return path


def test_a_walk_computes_each_value_from_those_before(tmp_path: Path) -> None:
    layers = [(RANDOM(n).normal(size=(6, 6)), RANDOM(n + 9).normal(size=6)) for n in range(3)]
    made = onnx.load(perceptron(tmp_path / "net.onnx", layers))
    made.graph.node[4].input[2] = "a0"  # a residual connection
    samples = [{"x": RANDOM(n).normal(size=(1, 6)).astype(np.float32)} for n in range(3)]
    walk = rounding.Walk(made, ["x", "a0", "a1"], samples, tmp_path)
    held = []
    for name in ("x", "a0", "a1"):
        found = walk.at(name)
        np.testing.assert_array_equal(found, walk.at(name))
        walk.forget(name)
        held.append({*walk.values[0]})
    assert held == [{"x"}, {"a0"}, set()]
    first = np.maximum(samples[2]["x"] @ layers[0][0] + layers[0][1], 0)
    np.testing.assert_allclose(found[2], np.maximum(first @ layers[1][0] + layers[1][1], 0), rtol=1e-4)


def test_what_few_bits_cost_is_reported() -> None:
    good, bad = (OutputLoss("y", 1.0, 0.1, sqnr, 0.9) for sqnr in (20.0, 4.0))
    same, changed = Classes(100, 95), Classes(100, 78)
    assert not quantizing.doubts_of_loss({}, [good], same, ()) and not quantizing.doubts_of_loss(
        {"a": 4}, [good], None, ()
    )
    assert not quantizing.doubts_of_loss({"a": 4}, [good], changed, ())  # an autoencoder's
    (line,) = quantizing.doubts_of_loss({"a": 4, "b": 8}, [good, bad], None, ())
    assert "SQNR is 4.0 dB; try more calibration data, or --weights auto or int8" in line
    (line,) = quantizing.doubts_of_loss({}, [OutputLoss("y", 1.0, 0.1, 12.0, 0.9)], changed, ())
    assert "the class of 22 of 100 samples changed; try more calibration data, or --activations int16" in line
    (line,) = quantizing.doubts_of_loss({"a": 8}, [good], None, ())
    assert "no layer can have fewer than 8 bits" in line
    assert quantizing.doubts_of_samples([{"x": np.arange(2.0)}] * 99, "int8") == ()
    one = {"x": np.zeros((1, 4), np.float32), "state": np.zeros(3, np.int64), "gain": np.ones(1, np.float32)}
    few, constant = quantizing.doubts_of_samples([one] * 99, "int4")
    assert "99 samples" in few and "give 100 or more" in few and "the input x is 0 everywhere" in constant
    assert quantizing.doubts_of_samples([one] * 100, "int2") == (constant,)
    with pytest.raises(UsageError, match="need a scale for each channel"):
        Scheme(weights="int4", per_channel=False)


@pytest.mark.slow
def test_digits_are_recognized_with_few_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    from sklearn.neural_network import MLPClassifier

    monkeypatch.chdir(tmp_path)
    x, labels = datasets.load_digits(return_X_y=True)
    trained = MLPClassifier((48, 32), random_state=0, tol=1e-3, max_iter=500).fit(x[:1000] / 16, labels[:1000])
    model = perceptron(tmp_path / "net.onnx", list(zip(trained.coefs_, trained.intercepts_, strict=True)))
    x = (x / 16).astype(np.float32)
    np.savez("calibrate.npz", x=x[:200])
    np.savez("test.npz", x=x[1000:], labels=labels[1000:])
    seen, top, done = [], {}, {}
    for weights in ("int4", "int2", "auto"):
        done[weights] = mtool.quantize(
            model, "calibrate.npz", evaluate="test.npz", scheme=Scheme(weights=weights),
            listener=lambda number, total: seen.append((number, total)),
        )  # fmt: skip
        top[weights] = [one.by_name["top1"] for one in done[weights].accuracy]
    assert seen[:6] == [(1, 3), (2, 3), (3, 3)] * 2 and seen[-1][0] == seen[-1][1]
    assert [{layer.node: layer.bits for layer in done[one].layers} for one in ("int4", "int2")] == [
        {"fc0": 4, "fc1": 4, "fc2": 4}, {"fc0": 4, "fc1": 2, "fc2": 4}
    ]  # fmt: skip
    assert {layer.bits for layer in done["auto"].layers} <= {2, 4, 8} and top["auto"][1] >= top["auto"][0] - 0.01
    before = top["int4"][0]
    assert before > 0.9 and all(after > before - 0.02 for _, after in top.values())
    assert {path.name for path in tmp_path.glob("net_*.onnx")} == {"net_int4.onnx", "net_int2.onnx", "net_auto.onnx"}
    there = {one.name: numpy_helper.to_array(one) for one in onnx.load("net_int4.onnx").graph.initializer}
    assert all(there[f"w{n}_quantized"].min() >= -8 and there[f"w{n}_quantized"].max() <= 7 for n in range(3))
    mtool.verify("net_int4.onnx", board="host").check()


@pytest.mark.slow
@models.needed
def test_each_kind_of_activation_is_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, data = models.path("kws/kws_float32"), models.golden("kws/kws_float32")
    for kind in ("uint8", "int16"):
        scheme = Scheme(weights="int4", activations=kind, integer_io=True)
        done = mtool.quantize(model, data, scheme=scheme)
        assert {layer.bits for layer in done.layers} == {4, None}
        mtool.verify(done.path, board="host").check()
