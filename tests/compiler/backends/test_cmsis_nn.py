"""CMSIS-NN computes LiteRT's bytes. It is not part of mtool; CMSIS_NN_DIR is its folder."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import models
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mtool
from mtool import boards, commands
from mtool.compiler.backends import BackendSpec, Operand
from mtool.compiler.backends.cmsis_nn import conditions
from mtool.compiler.ir import DType, Quant, TensorType
from mtool.stages.building import build_project
from mtool.stages.options import Options

library = pytest.mark.skipif("CMSIS_NN_DIR" not in os.environ, reason="CMSIS_NN_DIR does not say where CMSIS-NN is")
BOARDS = {"host": "cc", "mps2_an386": "qemu-system-arm", "mps3_an547": "qemu-system-arm"}


@library
@models.needed
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("name", ["kws/kws_int8", "vww/vww_int8", "ic/ic_int8", "ad/ad_int8"])
def test_equal_to_litert(name: str, board: str, tmp_path: Path) -> None:
    if shutil.which(BOARDS[board]) is None:
        pytest.skip(f"{BOARDS[board]} is not installed")
    path = (models.FOLDER / name).with_suffix(".tflite")
    # of AD every layer is a product that it rounds twice and LiteRT once
    steps = 1 if name.startswith("ad/") else 0
    options = Options(rounding="tflite", backends=(BackendSpec("cmsis_nn"),), tolerance=steps)
    project = mtool.Deployment(tmp_path / "project")
    report = mtool.verify(path, board=board, options=options, deployment=project, samples=1)
    assert report.ok
    model = mtool.compile(path, board=board, options=options)
    taken = [claim for claim in model.manifest.claims if claim.backend]
    assert len(taken) >= len(model.manifest.claims) // 3


def test_two_ways_to_round() -> None:
    values = np.array([-3, -1, 0, 1, 3, 1000, -1000])
    half, shift = 1 << 30, 0
    np.testing.assert_array_equal(conditions.requantized(values, half, shift), [-1, 0, 0, 1, 2, 500, -500])
    np.testing.assert_array_equal(conditions.rounded_real(values, 0.5), [-2, -1, 0, 1, 2, 500, -500])
    scale = 0.03125 * (1 + 2**-30)
    assert conditions.differs_from_real(scale, scale, 1 << 16, wide=False)
    assert not conditions.differs_from_real(0.75, 0.75, 1, wide=False)
    assert conditions.differs_from_real(0.3, 0.3, 1 << 24, wide=False), "more than are tried"


@pytest.mark.parametrize("kind", ["Gemm", "MatMul"])
def test_the_product_of_two_scales_is_litert_s(kind: str) -> None:
    """In float64 of a fully connected layer, in float32 of a batched product."""
    x, weights, output = (
        Operand("x", "x", TensorType(DType.INT8, (1,)), Quant((float(np.float32(scale)),), (0,)))
        for scale in (0.15, 0.01, 0.1)
    )
    operation: Any = SimpleNamespace(kind=kind, operand=[x, weights].__getitem__, output=output)
    (found,) = conditions.product_scales(operation)
    one, other, below = (np.float32(scale) for scale in (0.15, 0.01, 0.1))
    exact = float(one) * float(other) / float(below)
    assert exact != float(one * other) / float(below)
    assert found == (exact if kind == "Gemm" else float(one * other) / float(below))


IMAGE, CHANNELS, WIDE, DEEP = 16, 8, 16, 32
SCALE, ZERO, BY = 0.05, 3, 0.01  # of the activations; of the weights
HAND = """
#include "net.h"
#include "cmsis_nn/arm_nnfunctions.h"

{constants}
static int8_t first[16 * 16 * 16], second[16 * 16 * 16];
static uint8_t buffer[16384] __attribute__((aligned(16)));
static int32_t by[32], shifts[32];
uint8_t net_arena[NET_ARENA_BYTES];

int32_t net_run(const struct net_inputs *inputs, const struct net_outputs *outputs)
{{
    const cmsis_nn_context context = {{buffer, sizeof buffer}};
    const cmsis_nn_per_channel_quant_params scales = {{by, shifts}};
    const cmsis_nn_dims image = {{1, 16, 16, 8}}, middle = {{1, 16, 16, 16}}, result = {{1, 16, 16, 32}};
    const cmsis_nn_dims window = {{16, 3, 3, 8}}, taps = {{1, 3, 3, 16}}, point = {{32, 1, 1, 16}};
    const cmsis_nn_dims none = {{1, 1, 1, 16}};
    const cmsis_nn_conv_params padded = {{-3, 3, {{1, 1}}, {{1, 1}}, {{1, 1}}, {{-128, 127}}}};
    const cmsis_nn_conv_params pointwise = {{-3, 3, {{1, 1}}, {{0, 0}}, {{1, 1}}, {{-128, 127}}}};
    const cmsis_nn_dw_conv_params depthwise = {{-3, 3, 1, {{1, 1}}, {{1, 1}}, {{1, 1}}, {{-128, 127}}}};
    if (by[0] == 0) {{
        for (int i = 0; i < 32; ++i) {{
            by[i] = 1374389535; /* 0.01 */
            shifts[i] = -6;
        }}
    }}
    arm_convolve_wrapper_s8(&context, &padded, &scales, &image, inputs->x, &window, weights0, &none, bias0, &middle,
                            first);
    arm_depthwise_conv_wrapper_s8(&context, &depthwise, &scales, &middle, first, &taps, weights1, &none, bias1,
                                  &middle, second);
    arm_convolve_wrapper_s8(&context, &pointwise, &scales, &middle, second, &point, weights2, &none, bias2, &result,
                            outputs->y);
    return 0;
}}

{operator}
{{
{unused}
    return 0;
}}
"""


def network(weights: list[np.ndarray], biases: list[np.ndarray]) -> onnx.ModelProto:
    """Return three convolutions: plain, of each channel by itself, of single pixels; the channels are last."""
    constants = {"scale": np.float32(SCALE), "zero": np.int8(ZERO), "by": np.float32(BY), "none": np.int8(0)}
    constants |= {"both": np.float32(SCALE * BY), "nought": np.int32(0)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real"]),
        helper.make_node("Transpose", ["real"], ["image"], perm=[0, 3, 1, 2]),
    ]
    value = "image"
    for number, (taps, bias) in enumerate(zip(weights, biases, strict=True)):
        constants |= {f"w{number}": taps, f"b{number}": bias}
        nodes += [
            helper.make_node("DequantizeLinear", [f"w{number}", "by", "none"], [f"dw{number}"]),
            helper.make_node("DequantizeLinear", [f"b{number}", "both", "nought"], [f"db{number}"]),
            helper.make_node(
                "Conv", [value, f"dw{number}", f"db{number}"], [f"c{number}"], f"conv{number}",
                group=WIDE if number == 1 else 1, pads=[1] * 4 if number < 2 else [0] * 4,
            ),
        ]  # fmt: skip
        if number < 2:
            nodes.append(helper.make_node("QuantizeLinear", [f"c{number}", "scale", "zero"], [f"q{number}"]))
            nodes.append(helper.make_node("DequantizeLinear", [f"q{number}", "scale", "zero"], [f"r{number}"]))
        value = f"r{number}" if number < 2 else f"c{number}"
    nodes += [
        helper.make_node("Transpose", [value], ["last"], perm=[0, 2, 3, 1]),
        helper.make_node("QuantizeLinear", ["last", "scale", "zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [1, IMAGE, IMAGE, CHANNELS])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [1, IMAGE, IMAGE, DEEP])],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@library
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
def test_as_fast_as_by_hand(board: str, tmp_path: Path) -> None:
    """The calls in a row, as a person writes them, built with the same flags: within 2 % of the instructions."""
    if shutil.which(BOARDS[board]) is None:
        pytest.skip(f"{BOARDS[board]} is not installed")
    random = np.random.default_rng(0)
    shapes = ((WIDE, CHANNELS, 3, 3), (WIDE, 1, 3, 3), (DEEP, WIDE, 1, 1))
    weights = [random.integers(-127, 128, shape).astype(np.int8) for shape in shapes]
    biases = [random.integers(-2000, 2000, shape[0]).astype(np.int32) for shape in shapes]
    onnx.save(network(weights, biases), tmp_path / "net.onnx")
    options = Options(backends=(BackendSpec("cmsis_nn"),), tolerance=1, io="external")
    model = mtool.compile(tmp_path / "net.onnx", board=board, options=options)
    assert [one.backend for one in model.manifest.operators] == ["cmsis_nn"] * 3
    prepared = commands.build_model(model, tmp_path / "project")
    sample = {"x": random.integers(-128, 128, (1, IMAGE, IMAGE, CHANNELS)).astype(np.int8)}

    def measured() -> tuple[np.ndarray, float]:
        with mtool.open(prepared) as device:
            return device.run(sample, in_steps=False)["y"], device.time(inputs=sample).median

    result, ours = measured()
    packed = [weights[0].transpose(0, 2, 3, 1), weights[1].transpose(2, 3, 0, 1), weights[2].transpose(0, 2, 3, 1)]
    arrays = []
    for number, (taps, bias) in enumerate(zip(packed, biases, strict=True)):
        arrays.append(f"static const int8_t weights{number}[] = {{{', '.join(map(str, taps.reshape(-1)))}}};")
        arrays.append(f"static const int32_t bias{number}[] = {{{', '.join(map(str, bias))}}};")
    (place,) = (tmp_path / "project").rglob("net.c")
    (header,) = (tmp_path / "project").rglob("net_operators.h")
    operator = next(line for line in header.read_text().splitlines() if "net_operator(" in line).rstrip(";")
    names = [part.split()[-1].lstrip("*") for part in operator.partition("(")[2].rstrip(")").split(",")]
    unused = "\n".join(f"    (void){name};" for name in names)
    place.write_text(HAND.format(constants="\n".join(arrays), operator=operator, unused=unused))
    build_project(boards.get(board), tmp_path / "project")
    by_hand, instructions = measured()
    np.testing.assert_array_equal(by_hand, result)
    print(f"{board}: {ours:,.0f} instructions, {instructions:,.0f} by hand")
    assert abs(ours - instructions) <= 0.02 * instructions
