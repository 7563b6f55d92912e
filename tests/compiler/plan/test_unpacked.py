"""Weights of few bits: packed in flash, unpacked in the arena, with the results of plain ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import mtool
from mtool.base import resources
from mtool.base.errors import UsageError
from mtool.commands import Deployment, Options
from mtool.compiler.plan import Choice

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
@pytest.mark.parametrize("bits", [4, 2, 1])
@pytest.mark.parametrize(
    "board", ["mps2_an386", "mps2_an385", "mps2_an383", "mps3_an547", "qemu_riscv32", "qemu_riscv32_v"]
)
def test_boards_compute_the_same_from_packed_weights(board: str, bits: int, tmp_path: Path) -> None:
    model = with_bits(bits, tmp_path)
    plain, more = outputs(model, board, tmp_path, "none")
    packed, fewer = outputs(model, board, tmp_path, "auto")
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
