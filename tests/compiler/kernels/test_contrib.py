"""onnxruntime's own operators (com.microsoft) against onnxruntime, beyond their records' cases."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import HOST, compiled, model, reference, run_c
from onnx import helper

from mtool.base.errors import ModelError
from mtool.verification.oracles import ort

RNG = np.random.default_rng(9)
F = np.float32


@pytest.fixture(autouse=True)
def the_same_numbers_in_any_order_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.RNG", np.random.default_rng(9))


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F)


def codes(dtype: Any, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def check(
    op: str, feeds: dict[str, Any], names: list[str], constants: dict[str, Any], folder: Path, **rest: Any
) -> None:
    """Compare an operator with inputs of these names, "" for one that is not given, with onnxruntime."""
    atol, outputs = rest.pop("atol", 1e-5), rest.pop("outputs", ["y"])
    node = helper.make_node(op, names, outputs, domain="com.microsoft", **rest)
    proto = model([node], {n: (d.dtype.type, d.shape) for n, d in feeds.items()}, [o for o in outputs if o], constants)
    for mine, theirs in zip(run_c(compiled(proto, HOST), feeds, folder), reference(proto, feeds), strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=atol)
        else:
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.7]), ("HardSigmoid", [0.3, 0.4]), ("Tanh", [])],
)
def test_fused_conv(activation: str, parameters: list[float], tmp_path: Path) -> None:
    attrs = {"activation": activation, **({"activation_params": parameters} if parameters else {})}
    constants = {"w": floats(4, 3, 3, 3) / 4, "b": floats(4)}
    check("FusedConv", {"x": floats(1, 3, 6, 6)}, ["x", "w", "b"], constants, tmp_path, pads=[1] * 4, **attrs)


def test_fused_conv_with_a_residual(tmp_path: Path) -> None:
    feeds = {"x": floats(1, 3, 6, 6), "z": floats(1, 4, 4, 4)}
    check("FusedConv", feeds, ["x", "w", "", "z"], {"w": floats(4, 3, 3, 3) / 4}, tmp_path, activation="Relu")


def test_fused_gemm(tmp_path: Path) -> None:
    constants = {"w": floats(5, 4), "c": floats(4)}
    attrs = {"activation": "LeakyRelu", "activation_alpha": 0.3, "alpha": 0.5}
    check("FusedGemm", {"x": floats(2, 5)}, ["x", "w", "c"], constants, tmp_path, **attrs)


def test_fused_matmul(tmp_path: Path) -> None:
    feeds = {"a": floats(2, 5, 3), "b": floats(2, 4, 5)}
    check("FusedMatMul", feeds, ["a", "b"], {}, tmp_path, transA=1, transB=1, alpha=0.25)


@pytest.mark.parametrize("names", [["x", "s", "g"], ["x", "s", "g", "b"], ["x", "s", "g", "b", "c"]])
def test_skip_layer_normalization(names: list[str], tmp_path: Path) -> None:
    feeds = {"x": floats(2, 3, 8), "s": floats(2, 3, 8)}
    constants = {name: floats(8) for name in names[2:]}
    check("SkipLayerNormalization", feeds, names, constants, tmp_path, epsilon=1e-6, outputs=["y", "", "", "total"])


@pytest.mark.parametrize("names", [["q", "k", "v"], ["q", "k", "v", "b"], ["q", "k", "v", "", "", "m"]])
def test_multi_head_attention(names: list[str], tmp_path: Path) -> None:
    feeds = {"q": floats(1, 3, 8), "k": floats(1, 5, 8), "v": floats(1, 5, 8)}
    if "m" in names:
        feeds["m"] = floats(1, 2, 3, 5)
    check("MultiHeadAttention", feeds, names, {"b": floats(24)} if "b" in names else {}, tmp_path, num_heads=2)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int, tmp_path: Path) -> None:
    feeds = {"x": floats(1, 3, 16), "p": np.array([[2, 0, 4]])}
    angles = RNG.random((6, 4))
    constants = {"c": np.cos(angles).astype(F), "s": np.sin(angles).astype(F)}
    check("RotaryEmbedding", feeds, ["x", "p", "c", "s"], constants, tmp_path, interleaved=interleaved)


@pytest.mark.parametrize(
    ("bits", "points"),
    [(2, ""), (2, "uint8"), (2, "float"), (4, ""), (4, "uint8"), (4, "float"), (8, ""), (8, "uint8")],
)
def test_weights_in_blocks(bits: int, points: str, tmp_path: Path) -> None:
    rows, columns, size = 6, 40, 16
    blocks = -(-columns // size)
    constants = {"w": codes(np.uint8, rows, blocks, size * bits // 8), "s": floats(rows * blocks) / 10}
    if points == "uint8":
        constants["z"] = codes(np.uint8, rows * -(-blocks * bits // 8))
    if points == "float":
        constants["z"] = floats(rows, blocks)
    attrs = {"K": columns, "N": rows, "bits": bits, "block_size": size}
    check("MatMulNBits", {"x": floats(2, columns)}, ["x", *constants], constants, tmp_path, atol=1e-4, **attrs)


@pytest.mark.parametrize("is_even", [True, False])
def test_inputs_of_a_block_in_any_order(is_even: bool, tmp_path: Path) -> None:
    """Blocks of 16 inputs are groups again once the inputs are sorted; other numbers of inputs make real weights."""
    blocks = np.arange(48) // 16 if is_even else RNG.integers(0, 3, 48)
    constants = {"w": codes(np.uint8, 6, 3, 8), "s": floats(18) / 10, "g": RNG.permutation(blocks).astype(np.int32)}
    attrs = {"K": 48, "N": 6, "bits": 4, "block_size": 16}
    check("MatMulNBits", {"x": floats(2, 48)}, ["x", "w", "s", "", "g"], constants, tmp_path, atol=1e-4, **attrs)


def test_activations_of_a_product_stay_floats(tmp_path: Path) -> None:
    """With accuracy_level 4, onnxruntime would round them to int8."""
    constants = {"w": codes(np.uint8, 6, 3, 8), "s": floats(18) / 10}
    attrs = {"K": 48, "N": 6, "bits": 4, "block_size": 16, "accuracy_level": 4}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **attrs)
    proto, feeds = model([node], {"x": (F, (2, 48))}, ["y"], constants), {"x": floats(2, 48)}
    theirs = ort.opened(proto.SerializeToString())(feeds)["y"]
    np.testing.assert_allclose(run_c(compiled(proto, HOST), feeds, tmp_path)[0], theirs, atol=1e-4)


@pytest.mark.parametrize(
    ("attrs", "bytes_of_block", "reason"),
    [
        ({"bits": 3}, 8, "its weights have 3 bits; expected 2, 4 or 8"),
        ({"block_size": 24}, 8, "its block_size is 24; expected a power of two from 16 on"),
        ({}, 4, "its B has 72 elements; expected 144"),
    ],
)
def test_weights_in_blocks_that_are_refused(attrs: dict[str, int], bytes_of_block: int, reason: str) -> None:
    constants = {"w": codes(np.uint8, 6, 3, bytes_of_block), "s": floats(18)}
    given = {"K": 40, "N": 6, "bits": 4, "block_size": 16} | attrs
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **given)
    with pytest.raises(ModelError, match=reason):
        compiled(model([node], {"x": (F, (2, 40))}, ["y"], constants), HOST)


@pytest.mark.parametrize("per_column", [True, False])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_dynamic_quantize_matmul(dtype: Any, per_column: bool, tmp_path: Path) -> None:
    shape = (5,) if per_column else ()
    scale = (np.abs(RNG.standard_normal(shape)) * 0.02 + 0.001).astype(F)
    constants = {"w": codes(dtype, 7, 5), "s": scale, "z": codes(dtype, *shape, 1)[..., 0], "b": floats(5)}
    check("DynamicQuantizeMatMul", {"x": floats(3, 7)}, ["x", *constants], constants, tmp_path, atol=1e-4)


def test_matmul_of_integers_to_float(tmp_path: Path) -> None:
    constants = {
        "w": codes(np.int8, 7, 5), "xs": F(0.02), "ws": np.abs(floats(5)), "xz": np.uint8(100), "b": floats(5),
    }  # fmt: skip
    names = ["x", "w", "xs", "ws", "xz", "", "b"]
    check("MatMulIntegerToFloat", {"x": codes(np.uint8, 3, 7)}, names, constants, tmp_path, atol=1e-4)


def scales(*names: str) -> dict[str, Any]:
    return {
        f"{n}{k}": v for i, n in enumerate(names) for k, v in (("s", F(0.0217 + i * 0.01093)), ("z", np.uint8(90 + i)))
    }


def test_qgemm(tmp_path: Path) -> None:
    constants = scales("x", "w", "y") | {"w": codes(np.uint8, 6, 4), "b": codes(np.int8, 4).astype(np.int32) * 20}
    constants["ys"] = F(0.3)
    names = ["x", "xs", "xz", "w", "ws", "wz", "b", "ys", "yz"]
    check("QGemm", {"x": codes(np.uint8, 2, 6)}, names, constants, tmp_path)


def test_quantization_to_16_bits(tmp_path: Path) -> None:
    constants = {"s": F(0.001), "z": np.uint16(30000)}
    check("QuantizeLinear", {"x": floats(3, 4)}, ["x", "s", "z"], constants, tmp_path)


def test_dequantization_of_16_bits(tmp_path: Path) -> None:
    constants = {"s": F(0.001), "z": np.uint16(30000)}
    check("DequantizeLinear", {"x": codes(np.uint16, 3, 4)}, ["x", "s", "z"], constants, tmp_path)


def test_convolution_with_the_channels_last(tmp_path: Path) -> None:
    """onnxruntime has no such kernel on a CPU: its own convolution, turned."""
    x, w, b = floats(1, 3, 6, 7), floats(4, 3, 3, 3), floats(4)
    attrs = {"pads": [1, 1, 1, 1], "strides": [2, 1]}
    (wanted,) = reference(
        model(
            [helper.make_node("Conv", ["x", "w", "b"], ["y"], **attrs)], {"x": (F, x.shape)}, ["y"], {"w": w, "b": b}
        ),
        {"x": x},
    )
    turned = x.transpose(0, 2, 3, 1).copy()
    node = helper.make_node("NhwcFusedConv", ["x", "w", "b"], ["y"], domain="com.microsoft", activation="Relu", **attrs)
    proto = model([node], {"x": (F, turned.shape)}, ["y"], {"w": w.transpose(0, 2, 3, 1).copy(), "b": b})
    (found,) = run_c(compiled(proto, HOST), {"x": turned}, tmp_path)
    np.testing.assert_allclose(found, np.maximum(wanted, 0).transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-5)


def test_features_that_heads_can_not_share() -> None:
    node = helper.make_node("MultiHeadAttention", ["q", "q", "q"], ["y"], "it", domain="com.microsoft", num_heads=3)
    with pytest.raises(ModelError, match="can't be compiled") as refused:
        compiled(model([node], {"q": (F, (0, 3, 8))}, ["y"], {}), HOST)
    assert "not a multiple of its 3 heads" in str(refused.value.details)
