"""Weights of few bits: packed in flash, unpacked in the arena, with the results of plain ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import HOST, model
from one_firmware import Case, failures
from onnx import helper, numpy_helper

import mtool
from mtool.base import resources
from mtool.base.errors import UsageError
from mtool.boards import get
from mtool.commands import Deployment, Options
from mtool.compiler import frontend, passes
from mtool.compiler.ir import Graph
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Choice, make_plan
from mtool.compiler.plan.for_time import PackingRoom
from mtool.compiler.plan.step import PlanOptions
from mtool.compiler.plan.unpacked import Way, is_packed
from mtool.compiler.plan.whole import plan_whole

DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
INPUTS = [{"image": x} for x in np.random.default_rng(0).integers(-128, 128, (8, 1, 1, 8, 8)).astype(np.int8)]


def with_bits(bits: int, folder: Path) -> Path:
    """Return the digits' model with weights of fewer bits."""
    model = onnx.load(DIGITS)
    for tensor in model.graph.initializer:
        data = numpy_helper.to_array(tensor)
        if data.dtype == np.int8 and data.ndim > 1:
            tensor.CopyFrom(numpy_helper.from_array(data >> (8 - bits), tensor.name))
    onnx.save(model, folder / f"digits{bits}.onnx")
    return folder / f"digits{bits}.onnx"


def outputs(model: Path, board: str, folder: Path, compress: str) -> tuple[list[bytes], int]:
    options = Options(compress=compress)  # type: ignore[arg-type]
    ran = mtool.run(model, board=board, inputs=INPUTS, options=options, deployment=Deployment(folder / compress))
    found = [output.tobytes() for sample in ran.outputs for output in sample.values()]
    return found, mtool.compile(model, board=board, options=options).manifest.constant_bytes


@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 3, 2, 1])
@pytest.mark.parametrize(
    "board", ["mps2_an386", "mps2_an385", "mps2_an383", "mps3_an547", "qemu_riscv32", "qemu_riscv32_v"]
)
def test_boards_compute_the_same_from_packed_weights(board: str, bits: int, tmp_path: Path) -> None:
    model = with_bits(bits, tmp_path)
    plain, more = outputs(model, board, tmp_path, "none")
    packed, fewer = outputs(model, board, tmp_path, "auto")
    assert packed == plain
    assert fewer < more


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["table", "sparse", "huffman"])
@pytest.mark.parametrize("board", ["mps2_an386", "mps2_an385", "mps2_an383", "mps3_an547", "qemu_riscv32"])
def test_boards_compute_the_same_from_codes(board: str, coding: str, tmp_path: Path) -> None:
    model = with_bits(4, tmp_path)
    plain, more = outputs(model, board, tmp_path, "none")
    packed, fewer = outputs(model, board, tmp_path, coding)
    assert packed == plain
    assert fewer < more


def test_packed_weights_give_the_same_results_in_less_flash(tmp_path: Path) -> None:
    """With a schedule that reads the weights as they are, as small cores do."""
    model, choice = with_bits(4, tmp_path), Choice("c99_patch", {"weights": "packed"})
    options = Options(compress="none", schedules={"conv_2": choice})
    ran = mtool.run(model, board="host", inputs=INPUTS, options=options, deployment=Deployment(tmp_path / "p"))
    plain, more = outputs(model, "host", tmp_path, "none")
    assert [output.tobytes() for sample in ran.outputs for output in sample.values()] == plain
    assert mtool.compile(model, board="host", options=options).manifest.constant_bytes < more


def test_clustered_channels_are_stored_as_places_in_tables(tmp_path: Path) -> None:
    """Lossless, as the weights of TFLM's compressed files are."""
    proto, rng = onnx.load(DIGITS), np.random.default_rng(5)
    for tensor in proto.graph.initializer:
        data = numpy_helper.to_array(tensor)
        if data.dtype == np.int8 and data.ndim > 1:
            values = rng.integers(-120, 120, (len(data), 8)).astype(np.int8)
            places = rng.integers(0, 8, (len(data), data[0].size))
            clustered = np.take_along_axis(values, places, 1).reshape(data.shape)
            tensor.CopyFrom(numpy_helper.from_array(clustered, tensor.name))
    onnx.save(proto, tmp_path / "clustered.onnx")
    plain, small, none = (
        mtool.compile(tmp_path / "clustered.onnx", board="mps2_an383", options=Options(compress=how)).manifest
        for how in ("none", "table", "fields")
    )
    assert small.constant_bytes < 0.85 * plain.constant_bytes
    assert none.constant_bytes > small.constant_bytes + 500


def test_unpacking_does_not_take_ram_that_is_scarce(tmp_path: Path) -> None:
    """The arena grows to a quarter of the RAM at most, and not at all with --partial always."""
    model, plain = with_bits(4, tmp_path), Options(compress="none")
    arenas = [mtool.compile(model, board="microbit", options=one).manifest.arena_bytes for one in (Options(), plain)]
    assert arenas[0] <= max(4096, arenas[1])
    least = [replace(one, partial="always") for one in (Options(), plain)]
    arenas = [mtool.compile(model, board="mps2_an383", options=one).manifest.arena_bytes for one in least]
    assert arenas[0] <= arenas[1]


def test_weights_of_eight_bits_stay_as_they_are() -> None:
    plain = mtool.compile(DIGITS, board="mps2_an386", options=Options(compress="none"))
    assert mtool.compile(DIGITS, board="mps2_an386").files == plain.files


def test_an_operator_can_be_packed_by_name(tmp_path: Path) -> None:
    both = Choice("c99_patch", {"weights": "packed", "opt": "O3"})
    model = with_bits(4, tmp_path)
    leveled = mtool.compile(model, board="mps2_an385", options=Options(compress="none", schedules={"conv_2": both}))
    assert {one.name: one.schedule for one in leveled.manifest.operators}["conv_2"] == "c99_patch:weights=packed,opt=O3"
    options = Options(compress="none", schedules={"conv_2": Choice("c99_patch", {"weights": "packed"})})
    made = mtool.compile(model, board="mps2_an385", options=options)
    assert {one.name: one.schedule for one in made.manifest.operators}["conv_2"] == "c99_patch:weights=packed"
    assert "mt_unpack((uint8_t *)scratch + " in made.files.text("digits4.c")
    with pytest.raises(UsageError, match=r"the constants of conv_2 .* can't be packed"):
        mtool.compile(DIGITS, board="mps2_an385", options=options)


SHAPES = {"conv": (1, 8, 9, 7), "dense": (1, 96), "rows": (3, 96)}


def layer(name: str, target: Target) -> Graph:
    """Return a convolution, a dense layer or a product of three rows, with weights of 4 bits."""
    rng, outputs = np.random.default_rng(2), 16 if name == "conv" else 48
    constants = {
        "w": rng.integers(-8, 8, (16, 8, 3, 3) if name == "conv" else (48, 96)).astype(np.int8),
        "b": rng.integers(-3000, 3000, outputs).astype(np.int32), "s": np.float32(0.1), "ys": np.float32(0.15),
        "ws": rng.choice([0.01, 0.015], outputs).astype(np.float32), "z": np.int8(3),
        "wz": np.zeros(outputs, np.int8), "bz": np.zeros(outputs, np.int32),
    }  # fmt: skip
    constants["bs"] = constants["s"] * constants["ws"]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["c"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["d"], axis=0),
        helper.make_node("Conv", ["a", "c", "d"], ["e"], pads=[1, 1, 1, 1])
        if name == "conv"
        else helper.make_node("Gemm", ["a", "c", "d"], ["e"], transB=1),
        helper.make_node("QuantizeLinear", ["e", "ys", "z"], ["y"]),
    ]
    proto = model(nodes, {"x": (np.int8, SHAPES[name])}, ["y"], constants)
    return passes.run(frontend.from_proto(proto, name), target)


def in_blocks(target: Target) -> list[Case]:
    """Return layers in blocks of outputs, against whole ones."""
    rng, cases = np.random.default_rng(3), []
    for name, shape in SHAPES.items():
        graph, options = layer(name, target), PlanOptions(target, grown={})
        plain = plan_whole(graph, options)
        title = next(step.node.title for step in plain.steps if step.node.op in ("conv2d", "dense"))
        for blocks in (2, 4):
            made = plan_whole(
                replace(graph, name=f"{name}{blocks}"), replace(options, packed={title: Way(blocks=blocks)})
            )
            assert [step.node.title for step in made.steps if is_packed(step.schedule)] == [title]
            feeds = {"x": rng.integers(-128, 128, shape).astype(np.int8)}
            cases.append(Case(made, plain, feeds))
    return cases


def test_a_layer_is_unpacked_in_blocks_where_the_arena_has_no_room_for_all() -> None:
    graph = layer("dense", HOST)
    plain, packed, little, none = (
        make_plan(graph, HOST, packing_room=room).arena_bytes
        for room in (
            None,
            PackingRoom(flash_bytes=1000),
            PackingRoom(arena_bytes=700, flash_bytes=1000),
            PackingRoom(arena_bytes=200, flash_bytes=1000),
        )
    )
    assert none == plain < little <= 700 < packed < 2000
    assert make_plan(graph, HOST, packing_room=PackingRoom()).arena_bytes == plain  # time is worth more than flash


def test_blocks_of_outputs_give_the_results_of_the_whole(tmp_path: Path) -> None:
    assert failures(in_blocks(HOST), tmp_path, None) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "board", ["mps2_an386", "mps2_an385", "mps2_an383", "mps3_an547", "qemu_riscv32", "qemu_riscv32_v"]
)
def test_blocks_of_outputs_give_the_results_of_the_whole_on(board: str, tmp_path: Path) -> None:
    chip = get(board)
    assert failures(in_blocks(Target(chip.cpu, chip.features)), tmp_path, board) == []


def test_a_model_with_weights_of_8_bits_is_as_fast_as_before(tmp_path: Path) -> None:
    """Tables and a few zeros are packed only beside weights of few bits."""
    schedules = {}
    for bits, path in ((8, DIGITS), (4, with_bits(4, tmp_path))):
        operators = mtool.compile(path, board="mps2_an385").manifest.operators
        schedules[bits] = [one.schedule for one in operators if "weights=packed" in str(one.schedule)]
    assert not schedules[8] and schedules[4]


def test_a_layer_that_takes_too_much_of_the_arena_leaves_its_time_to_others() -> None:
    done = mtool.compile(DIGITS.with_name("digits_2bit.onnx"), board="mps2_an386").manifest
    packed = [operator.name for operator in done.operators if "weights=packed" in operator.schedule]
    assert packed == ["conv_3", "dense_6"] and done.constant_bytes < 12_000 and done.arena_bytes < 10_000
