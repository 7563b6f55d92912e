"""A built firmware must fit its board's memories, by the sections that each really holds."""

import dataclasses

import pytest
import toy

from mtool import boards, project
from mtool.base.errors import FitError
from mtool.device.build import fit
from mtool.device.build.size import Size
from mtool.manifest import Manifest, Operand

UNO = boards.get("arduino_uno")
SIZE = Size(
    flash_code_bytes=9_000,
    flash_const_bytes=1_000,
    ram_static_bytes=700,
    arena_bytes=100,
    stack_bytes=0,
    functions={},
    memories={"flash": 10_000, "sram": 800},
    has_threads=False,
)


def manifest_of(board: boards.Board, **options: str) -> Manifest:
    files, described = toy.compiled(board)
    return project.render(files, described, board, options=options)[1]


def grown(**memories: int) -> Size:
    return dataclasses.replace(SIZE, memories={**SIZE.memories, **memories})


def test_what_fits_passes_and_a_byte_more_does_not() -> None:
    manifest = manifest_of(UNO, stack_bytes="200")
    fit.check(grown(flash=32_256, sram=2_048 - 200), manifest)
    with pytest.raises(FitError, match=r"toy\.onnx does not fit arduino_uno") as flash:
        fit.check(grown(flash=32_257), manifest)
    assert flash.value.exit_code == 4
    assert flash.value.details[0].startswith("flash    needs 32 KB of 32 KB, 1 B too many     weights 1,000 B")
    assert ", fits" in flash.value.details[1]
    with pytest.raises(FitError) as ram:
        fit.check(grown(sram=2_048 - 199), manifest)
    assert ram.value.details[1] == (
        "sram     needs 2,049 B of 2,048 B, 1 B too many     arena 100 B, data 1,749 B, stack 200 B"
    )


def test_a_stack_that_the_linker_reserves_counts_once() -> None:
    board = boards.get("mps2_an386")
    size = dataclasses.replace(SIZE, stack_bytes=4096, memories={"ssram1": 10_000, "ssram23": 4096 + 800})
    _, ram = fit.needs_of(size, manifest_of(board))
    assert ram.bytes == 4896
    assert {part.what: part.bytes for part in ram.parts} == {"arena": 100, "stack": 4096, "data": 700}


def test_each_memory_counts_by_itself() -> None:
    """Weights that fill one flash say nothing of another with the code."""
    board = boards.get("mps3_an547")
    memories = {"itcm": 512 << 10, "qspi": 8 << 20, "dtcm": 4096, "isram": 4 << 20}
    size = dataclasses.replace(SIZE, flash_const_bytes=8 << 20, arena_bytes=4 << 20, memories=memories)
    manifest = manifest_of(board)
    fit.check(size, manifest)
    for name in memories:
        with pytest.raises(FitError) as caught:
            fit.check(dataclasses.replace(size, memories={**memories, name: memories[name] + (1 << 20)}), manifest)
        (line,) = [line for line in caught.value.details if "too many" in line]
        assert line.startswith(name)


def test_an_overflow_of_a_float_model_suggests_quantization() -> None:
    with pytest.raises(FitError) as caught:
        fit.check(grown(sram=3_000), manifest_of(UNO).model_copy(update={"constant_bytes": 4_000, "parameters": 1_000}))
    assert "weights 1,000 B (float32)" in caught.value.details[0]
    assert "int8 version" in caught.value.hint


def test_an_array_that_the_compiler_does_not_take_is_reported() -> None:
    manifest = manifest_of(UNO)
    name = manifest.constants[0]
    error = fit.explain(f"m.c:2:27: error: size of array ‘{name}’ is too large", manifest)
    assert error is not None and error.exit_code == 4
    assert error.details[-1] == f"{name} is one array of more than 32,767 B, which the compiler can't address"
    assert fit.explain("m.c:2:27: error: size of array ‘other’ is too large", manifest) is None


def test_a_memory_region_of_a_devicetree_is_one_of_the_boards() -> None:
    board = boards.get("mps3_an547")
    files, described = toy.compiled(board)
    _, manifest = project.render(files, described, board, template="zephyr")
    error = fit.explain("ld.bfd: region `ISRAM' overflowed by 4096 bytes", manifest)
    assert error is not None
    assert next(line for line in error.details if "too many" in line).startswith("isram    needs ")


@pytest.mark.parametrize(("dtype", "is_float"), [("float32", True), ("int8", False)])
def test_only_a_float_model_is_advised_to_be_quantized(dtype: str, is_float: bool) -> None:
    """A depthwise filter of integers has more bytes of bias and scale than of weights."""
    manifest = manifest_of(UNO)
    operators = tuple(
        one.model_copy(update={"macs": 1000, "reads": tuple(_of_dtype(read, dtype) for read in one.reads)})
        for one in manifest.operators
    )
    described = manifest.model_copy(update={"operators": operators, "parameters": 100, "constant_bytes": 450})
    assert operators and fit.is_float(described) == is_float
    assert ("int8 version" in fit.advice(described, UNO, {"flash": 33_000})) == is_float


def _of_dtype(read: Operand, dtype: str) -> Operand:
    return read.model_copy(update={"dtype": dtype})
