"""The models whose generated C is under review."""

import numpy as np
import onnx
from graphs import model
from onnx import helper, numpy_helper


def small_model() -> object:
    """A quantized convolution with a residual add, a pool, a dense layer and a softmax."""
    rng = np.random.default_rng(3)

    def q(name: str, scale: float, zero: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
        return {f"{name}_s": np.asarray(scale, np.float32), f"{name}_z": np.asarray(zero, np.int8)}

    constants = {
        **q("x", 0.05, -3), **q("c", 0.1, -128), **q("d", 0.12, 5), **q("r", 0.15, -128), **q("g", 0.15, -128),
        **q("h", 0.2, 4), **q("y", 1 / 256, -128),
        "w1": rng.integers(-127, 128, (4, 2, 3, 3)).astype(np.int8),
        "w1_s": np.linspace(0.01, 0.02, 4).astype(np.float32),
        "w2": rng.integers(-127, 128, (4, 1, 3, 3)).astype(np.int8),
        "w2_s": np.linspace(0.02, 0.03, 4).astype(np.float32),
        "w3": rng.integers(-127, 128, (4, 3)).astype(np.int8), "w3_s": np.asarray(0.02, np.float32),
        "z4": np.zeros(4, np.int8), "z0": np.int8(0), "flat": np.array([1, 4], np.int64),
    }  # fmt: skip

    def dq(value: str, scale: str, zero: str, out: str, **attrs: int) -> object:
        return helper.make_node("DequantizeLinear", [value, scale, zero], [out], **attrs)

    def quant(value: str, name: str, out: str) -> list[object]:
        return [
            helper.make_node("QuantizeLinear", [value, f"{name}_s", f"{name}_z"], [f"{out}_q"]),
            dq(f"{out}_q", f"{name}_s", f"{name}_z", out),
        ]

    nodes = [
        dq("x", "x_s", "x_z", "xf"),
        dq("w1", "w1_s", "z4", "w1f", axis=0),
        dq("w2", "w2_s", "z4", "w2f", axis=0),
        dq("w3", "w3_s", "z0", "w3f"),
        helper.make_node("Conv", ["xf", "w1f"], ["conv"], pads=[1, 1, 1, 1], name="stem/conv"),
        helper.make_node("Relu", ["conv"], ["relu"], name="stem/relu"),
        *quant("relu", "c", "cf"),
        helper.make_node("Conv", ["cf", "w2f"], ["dw"], pads=[1, 1, 1, 1], group=4, name="block/depthwise"),
        *quant("dw", "d", "df"),
        helper.make_node("Add", ["cf", "df"], ["sum"], name="block/add"),
        helper.make_node("Relu", ["sum"], ["sumr"], name="block/relu"),
        *quant("sumr", "r", "rf"),
        helper.make_node("GlobalAveragePool", ["rf"], ["pool"], name="head/pool"),
        *quant("pool", "g", "gf"),
        helper.make_node("Reshape", ["gf", "flat"], ["vec"], name="head/flatten"),
        helper.make_node("MatMul", ["vec", "w3f"], ["logits"], name="head/dense"),
        *quant("logits", "h", "hf"),
        helper.make_node("Softmax", ["hf"], ["probs"], name="head/softmax"),
        helper.make_node("QuantizeLinear", ["probs", "y_s", "y_z"], ["y"]),
    ]
    return model(nodes, {"x": (np.int8, (1, 2, 6, 6))}, ["y"], constants)  # type: ignore[arg-type]


def sized_model() -> onnx.ModelProto:
    """Rows of int8, as many as are given: a dense layer, and a softmax of how alike the rows are."""
    rng = np.random.default_rng(4)
    constants = {
        "x_s": np.asarray(0.05, np.float32), "x_z": np.asarray(-3, np.int8), "w_s": np.asarray(0.013, np.float32),
        "z0": np.int8(0), "w": rng.integers(-127, 128, (6, 4)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_s", "x_z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "w_s", "z0"], ["wf"]),
        helper.make_node("MatMul", ["xf", "wf"], ["dense"], name="dense"),
        helper.make_node("QuantizeLinear", ["dense", "x_s", "x_z"], ["rows"]),
        helper.make_node("DequantizeLinear", ["rows", "x_s", "x_z"], ["rf"]),
        helper.make_node("Transpose", ["rf"], ["turned"], name="turned"),
        helper.make_node("MatMul", ["rf", "turned"], ["alike"], name="alike"),
        helper.make_node("Softmax", ["alike"], ["share"], name="share"),
    ]
    values = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("x", onnx.TensorProto.INT8, ["n", 6]), ("rows", onnx.TensorProto.INT8, ["n", 4]),
            ("share", onnx.TensorProto.FLOAT, ["n", "n"]),
        )
    ]  # fmt: skip
    initialisers = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    graph = helper.make_graph(nodes, "sized", values[:1], values[1:], initialisers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
