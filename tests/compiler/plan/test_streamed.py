"""A streamed input: computing rows as they arrive gives the results for the whole image."""

import ctypes
import functools
from dataclasses import replace
from pathlib import Path

import amount
import numpy as np
import onnx
import pytest
import sanitized
from convolutional import Network, images
from graphs import FLAGS, HOST, Array, model, reference
from one_firmware import Case, failures, rows_of
from onnx import helper

from mtool.base.errors import ModelError, UsageError
from mtool.compiler import codegen, frontend, passes
from mtool.compiler.codegen import Conventions
from mtool.compiler.ir import Slide
from mtool.compiler.kernels.target import Target
from mtool.compiler.operators.verification import verify
from mtool.compiler.passes.streamed_input import with_streamed_input
from mtool.compiler.plan import Plan, make_plan
from mtool.device.rpc.protocol import Status

F = np.float32
DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
FEED = Conventions("feed")
MANY = 8 if amount.IS_ALL else 2  # networks


def planned(proto: onnx.ModelProto, target: Target = HOST, name: str = "test", partial: str = "always") -> Plan:
    graph = with_streamed_input(frontend.from_proto(proto, name), "")
    plan = make_plan(passes.run(graph, target), target, partial=partial)  # type: ignore[arg-type]
    verify(plan.graph)
    return plan


def whole(proto: onnx.ModelProto, target: Target, name: str) -> Plan:
    return make_plan(passes.run(frontend.from_proto(proto, name), target), target, partial="never")


def is_streamed(plan: Plan) -> bool:
    """Whether more is computed as rows arrive than that they are kept."""
    assert plan.graph.stream is not None
    return plan.graph.stream.until != "take_row"


@functools.cache
def cases(target: Target, *, integer: bool, count: int) -> list[Case]:
    found: list[Case] = []
    for seed in range(2000, 2100):
        network = Network(seed, integer=integer)
        proto = network.build()
        plan = planned(proto, target, f"rows{seed}")
        if is_streamed(plan):
            other = whole(proto, target, f"whole{seed}")
            found.append(Case(plan, other, network.feeds(), 0 if integer else 1e-5))
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} networks were streamed")


@pytest.mark.product(2)
@pytest.mark.parametrize("integer", [True, False], ids=["int8", "float32"])
def test_rows_give_the_results_of_the_whole(integer: bool, tmp_path: Path) -> None:
    """Paddings, strides, dilations, odd heights, residual sums, joined channels; one row a call, then two, ..."""
    assert failures(cases(HOST, integer=integer, count=MANY if integer else MANY // 2), tmp_path, None) == []


def test_rows_give_the_results_of_the_whole_in_simd(tmp_path: Path) -> None:
    assert failures(cases(DSP, integer=True, count=MANY), tmp_path, "mps2_an386") == []


@pytest.mark.parametrize("seed", range(2))
def test_rows_are_what_onnxruntime_computes(seed: int, tmp_path: Path) -> None:
    network = Network(2000 + seed, integer=True)
    proto, feeds = network.build(), network.feeds()
    rows = Rows(planned(proto), tmp_path)
    np.testing.assert_allclose(rows.run(feeds), reference(proto, feeds)[0], atol=1)  # an average may be a tie


class Rows:
    """The C of a streamed model on the host."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        files, self.manifest = codegen.generate(plan, "test.onnx", "0" * 64, FEED)
        for name in files:
            (folder / name).write_bytes(files[name])
        self.code = ctypes.CDLL(str(sanitized.library(folder, self.manifest.model, FLAGS)))
        self.outputs = ctypes.byref(ctypes.c_void_p.in_dll(self.code, "test_arena_outputs"))

    def begin(self, **others: Array) -> int:
        if not others:
            return int(self.code.test_begin())
        kept = [others[one.name] for one in self.manifest.inputs if one.stream is None]
        pointers = (ctypes.c_void_p * len(kept))(*(each.ctypes.data for each in kept))
        return int(self.code.test_begin(pointers))

    def feed(self, rows: Array, count: int) -> int:
        return int(self.code.test_feed(np.ascontiguousarray(rows).ctypes.data_as(ctypes.c_void_p), count))

    def finish(self) -> int:
        return int(self.code.test_finish(self.outputs))

    def rows(self, feeds: dict[str, Array]) -> list[Array]:
        (tensor,) = (tensor for tensor in self.manifest.inputs if tensor.stream is not None)
        assert tensor.stream is not None
        return np.split(rows_of(tensor, feeds[tensor.name]).reshape(-1), tensor.stream.rows)

    def run(self, feeds: dict[str, Array]) -> Array:
        others = {one.name: feeds[one.name] for one in self.manifest.inputs if one.stream is None}
        assert self.begin(**others) == 0
        assert [self.feed(row, 1) for row in self.rows(feeds)] == [0] * len(self.rows(feeds))
        assert self.finish() == 0
        return self.result()

    def result(self) -> Array:
        (tensor,) = self.manifest.outputs
        assert tensor.arena_offset is not None
        arena = (ctypes.c_uint8 * self.manifest.arena_bytes).in_dll(self.code, "test_arena")
        raw = bytes(arena)[tensor.arena_offset : tensor.arena_offset + tensor.bytes]
        return np.frombuffer(raw, tensor.dtype).reshape(tensor.shape)


def test_calls_in_a_wrong_order_are_refused_and_do_nothing(tmp_path: Path) -> None:
    proto, feeds = images()
    rows = Rows(planned(proto), tmp_path)
    lines = rows.rows(feeds)
    assert rows.feed(lines[0], 1) == rows.finish() == Status.MT_BAD_ORDER
    assert rows.begin() == 0
    assert rows.finish() == Status.MT_BAD_ORDER
    for line in lines[:7]:
        assert rows.feed(line * 3, 1) == 0
    assert rows.begin() == 0, "the rows of the frame before are forgotten"
    assert rows.feed(np.concatenate(lines[:5]), 5) == rows.feed(lines[0], 0) == 0
    assert rows.feed(lines[5], len(lines)) == rows.feed(lines[5], -1) == Status.MT_BAD_RANGE
    assert rows.feed(np.concatenate(lines[5:-1]), len(lines) - 6) == 0
    assert rows.finish() == Status.MT_BAD_ORDER
    assert rows.feed(lines[-1], 1) == 0
    assert rows.feed(lines[-1], 1) == Status.MT_BAD_RANGE
    assert rows.finish() == 0
    np.testing.assert_allclose(rows.result(), reference(proto, feeds)[0], rtol=1e-4, atol=1e-5)
    assert rows.finish() == rows.feed(lines[0], 1) == Status.MT_BAD_ORDER


def test_other_inputs_are_given_at_the_beginning(tmp_path: Path) -> None:
    proto, feeds = images(gated=True)
    plan = make_plan(passes.run(with_streamed_input(frontend.from_proto(proto, "test"), "x"), HOST), HOST)
    assert is_streamed(plan)
    rows = Rows(plan, tmp_path)
    for _ in range(2):
        np.testing.assert_allclose(rows.run(feeds), reference(proto, feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "dtype", "order"), [(3, np.uint8, (0, 2, 3, 1)), (1, np.uint8, (0, 2, 3, 1)), (3, F, (0, 2, 3, 1))]
)
def test_a_row_is_pixels_with_their_channels_side_by_side(
    channels: int, dtype: type, order: tuple[int, ...], tmp_path: Path
) -> None:
    proto, feeds = images(channels, height=21, width=9, dtype=dtype)
    plan = planned(proto)
    rows = Rows(plan, tmp_path)
    (tensor,) = rows.manifest.inputs
    assert tensor.shape == (1, channels, 21, 9) and tensor.stream is not None and tensor.arena_offset is None
    size = np.dtype(dtype).itemsize
    assert (tensor.stream.order, tensor.stream.rows, tensor.stream.row_bytes) == (order, 21, 9 * channels * size)
    assert tensor.outside_bytes == tensor.stream.row_bytes, "no program has more of it"
    np.testing.assert_allclose(rows.run(feeds), reference(proto, feeds)[0], rtol=1e-4, atol=1e-5)


def test_features_of_an_odd_number_of_bytes(tmp_path: Path) -> None:
    """A spectrogram, with time down and a new row of ten features every 20 ms; its row is not a whole number of
    words."""
    rng = np.random.default_rng(1)
    constants = {
        "s": F(0.1), "z": np.int8(3), "w": rng.integers(-100, 100, (8, 1, 10, 4)).astype(np.int8), "ws": F(0.002),
        "wz": np.int8(0), "shape": np.array([1, 1, 49, 10]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["image"]),
        helper.make_node("DequantizeLinear", ["image", "s", "z"], ["real"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["weights"]),
        helper.make_node("Conv", ["real", "weights"], ["c"], strides=[2, 2], pads=[4, 1, 5, 1]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("MaxPool", ["d"], ["m"], kernel_shape=[5, 5], strides=[5, 5]),
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["y"]),
    ]
    proto = model(nodes, {"x": (np.int8, (1, 490))}, ["y"], constants)
    plan = planned(proto)
    assert is_streamed(plan) and plan.arena_bytes < 25 * 5 * 8
    feeds = {"x": rng.integers(-128, 128, (1, 490)).astype(np.int8)}
    rows = Rows(plan, tmp_path)
    assert len(rows.rows(feeds)) == 49
    assert np.array_equal(rows.run(feeds), reference(proto, feeds)[0])


def test_what_reads_all_rows_at_once_is_named() -> None:
    nodes = [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])]
    proto = model(nodes, {"x": (F, (1, 1, 8, 8))}, ["y"], {"w": np.ones((64, 2), F)})
    with pytest.raises(ModelError, match=r"x can't be streamed: it is read as float32\[1,64\]") as found:
        planned(proto)
    assert "dense_0" in str(found.value)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((2, 3, 8, 8), "a batch of 2; only a single image"),
        ((1, 3, 1, 9), "of height 1: one row is the whole"),
    ],
)
def test_the_reason_why_an_image_can_not_be_streamed(shape: tuple[int, ...], said: str) -> None:
    proto = model(
        [helper.make_node("Conv", ["x", "w"], ["y"])], {"x": (F, shape)}, ["y"], {"w": np.ones((4, 3, 1, 1), F)}
    )
    with pytest.raises(ModelError, match=said):
        planned(proto)


def test_which_input_is_streamed() -> None:
    proto, _ = images(gated=True)
    graph = frontend.from_proto(proto, "test")
    with pytest.raises(UsageError, match="which input is streamed") as found:
        with_streamed_input(graph, "")
    assert "--stream gate" in str(found.value)
    with pytest.raises(UsageError, match="unknown input") as found:
        with_streamed_input(graph, "gats")
    assert "did you mean gate?" in str(found.value)
    with pytest.raises(UsageError, match="can't be combined with --slide"):
        with_streamed_input(replace(graph, slides=(Slide("gate", 1),)), "gate")
