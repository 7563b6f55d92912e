"""The estimates of `mtool check` are enough for the build, and not much more."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import toy
from onnx import TensorProto, helper, numpy_helper

from mtool import boards, commands
from mtool.base import resources
from mtool.base.errors import FitError
from mtool.boards import Board
from mtool.commands import Options
from mtool.compiler.codegen import conventions
from mtool.compiler.codegen.c_text import include, parts_of, variable
from mtool.compiler.plan import Choice
from mtool.device.build.fit import Need
from mtool.stages.fitting import fit_of
from mtool.stages.sizes import c_source
from tests.arduino import simavr

pytestmark = pytest.mark.long

DIGITS = resources.path("examples/digits") / "digits_int8.onnx"
MOST = 1.7  # times the real code, at most


def options_of(board: Board, **options: str) -> Options:
    builder = {"builder": "cmake"} if "arduino" in board.templates else {}
    return Options(template_options={**builder, **options})


def need(board: Board) -> None:
    if "arduino" in board.templates:
        simavr.need_the_core()
    for program in (board.toolchain, "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def shrunk(board: Board, needs: tuple[Need, ...], less: int = 0) -> Board:
    """Return the board with memories that have just what is needed, or less."""
    memories = {
        need.memory: board.memories[need.memory].model_copy(update={"size": max(need.bytes - less, 1)})
        for need in needs
    }
    return board.model_copy(update={"memories": memories})


def perceptron(path: Path, hidden: int) -> Path:
    rng = np.random.default_rng(1)
    shapes = {"w0": (1, hidden), "b0": (hidden,), "w1": (hidden, 1), "b1": (1,)}
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], "hidden"),
            helper.make_node("Relu", ["h"], ["r"], "relu"),
            helper.make_node("Gemm", ["r", "w1", "b1"], ["y"], "output"),
        ],
        "perceptron",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
        [numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name) for name, shape in shapes.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return path


WINOGRAD = {"mps2_an386": "dsp_winograd", "qemu_riscv32": "int_winograd"}
"""Boards, and the schedule by which they compute a convolution of the example."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("mps2_an385", DIGITS),
        ("mps2_an386", DIGITS),
        ("mps3_an547", DIGITS),
        ("qemu_riscv32", DIGITS),
        ("arduino_mega2560", DIGITS),
        ("mps2_an385", None),
        ("arduino_uno", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "digits" if value else "toy",
)
@pytest.mark.product(2)
def test_a_board_with_just_the_estimate_takes_the_firmware(name: str, model: Path | None, tmp_path: Path) -> None:
    board = boards.get(name)
    need(board)
    path, given = model or toy.write(tmp_path / "toy.onnx"), {} if model else {"states": toy.GIVEN.states}
    options = Options(template_options=options_of(board).template_options, optimize="size", **given)
    if name in WINOGRAD:  # used by a board that is just large enough only on request
        options = replace(options, schedules={"conv_2": Choice(WINOGRAD[name])})
    estimated = fit_of(commands.compile(path, board=board, options=options), folder=tmp_path / "none")
    assert estimated.fits and not estimated.is_built
    assert {part.what for need in estimated.needs for part in need.parts if part.estimated} >= {"runtime", "data"}
    small = shrunk(board, estimated.needs)
    compiled = commands.compile(path, board=small, options=options)
    assert fit_of(compiled, folder=tmp_path / "none").fits
    commands.build_model(compiled, tmp_path / "p", kinds=commands.ALL_KINDS)
    measured = fit_of(compiled, folder=tmp_path / "p")
    assert measured.is_built and measured.fits
    for real, guess in zip(measured.needs, estimated.needs, strict=True):
        assert real.bytes <= guess.bytes
        weights = sum(part.bytes for part in guess.parts if part.what in ("weights", "arena"))
        assert guess.bytes - weights <= MOST * (real.bytes - weights) + 1024, (real, guess)


@pytest.mark.slow
def test_a_graph_executor_counts_with_its_graph(tmp_path: Path) -> None:
    board = boards.get("mps2_an386")
    need(board)
    options = Options(conventions=conventions("packed", None, "graph"))
    compiled = commands.compile(DIGITS, board=board, options=options)
    estimated = fit_of(compiled, folder=tmp_path / "none")
    commands.build_model(compiled, tmp_path / "p", kinds=commands.ALL_KINDS)
    for real, guess in zip(fit_of(compiled, folder=tmp_path / "p").needs, estimated.needs, strict=True):
        assert real.bytes <= guess.bytes < 1.3 * real.bytes


@pytest.mark.slow
def test_what_a_build_refuses_is_never_said_to_fit(tmp_path: Path) -> None:
    """One byte less than is needed, in each memory: the linker says no, and so did the estimate."""
    board = boards.get("mps3_an547")
    need(board)
    compiled = commands.compile(DIGITS, board=board)
    commands.build_model(compiled, tmp_path / "p", kinds=commands.ALL_KINDS)
    real = fit_of(compiled, folder=tmp_path / "p").needs
    for name in (need.memory for need in real if need.bytes):
        less = {need.memory: need.bytes - 16 * (need.memory == name) for need in real}
        changed = {memory: {"size": less[memory] or 16, "pool": None} for memory in less}  # no pools
        memories = {memory: board.memories[memory].model_copy(update=changed[memory]) for memory in less}
        tight = commands.compile(DIGITS, board=board.model_copy(update={"memories": memories}))
        assert not fit_of(tight, folder=tmp_path / "none").fits
        with pytest.raises(FitError, match="does not fit") as caught:
            commands.build_model(tight, tmp_path / "tight", kinds=commands.ALL_KINDS)
        assert any(line.startswith(name) and "too many" in line for line in caught.value.details)


def largest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest number for which `fits` holds, by halves."""
    assert fits(low) and not fits(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("arduino_uno", 4_000), ("arduino_mega2560", 8_000)])
@pytest.mark.product(2)
def test_the_largest_estimated_to_fit_an_arduino_builds(name: str, most: int, tmp_path: Path) -> None:
    board = boards.get(name)
    need(board)

    def compiled(hidden: int) -> commands.CompiledModel:
        path = perceptron(tmp_path / "perceptron.onnx", hidden)
        return commands.compile(path, board=board, options=options_of(board))

    hidden = largest(lambda count: fit_of(compiled(count), folder=tmp_path / "none").fits, 4, most)
    built = commands.build_model(compiled(hidden), tmp_path / "p", kinds=commands.ALL_KINDS)
    free = min(need.limit_bytes - need.bytes for need in fit_of(compiled(hidden), folder=built.folder).needs)
    assert 0 <= free < 512, "the estimate was too careful"


def test_an_arena_takes_the_memory_that_the_board_has_for_it(tmp_path: Path) -> None:
    """1.5 MB: more than the memory with all other data has."""
    graph = helper.make_graph(
        [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])],
        "turned",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [500, 400])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [400, 500])],
    )
    path = tmp_path / "turned.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    board = boards.get("mps3_an547")
    need(board)
    compiled = commands.compile(path, board=board)
    assert compiled.manifest.arena_bytes > board.memories["dtcm"].size
    assert fit_of(compiled, folder=tmp_path / "none").fits
    commands.build_model(compiled, tmp_path / "p", kinds=["standalone"])


def test_one_array_of_an_avr_has_its_limit(tmp_path: Path) -> None:
    board = boards.get("arduino_mega2560")
    fitting, large = (
        fit_of(
            commands.compile(perceptron(tmp_path / "p.onnx", hidden), board=board, options=options_of(board)),
            folder=tmp_path / "none",
        )
        for hidden in (1_000, 9_000)
    )
    assert not fitting.refused
    assert not large.fits and "is an array of 36,000 B; the compiler accepts at most 32,767 B" in large.refused[0]


@pytest.mark.parametrize("board", boards.load_all().values(), ids=lambda board: board.name)
def test_every_board_has_an_estimate_by_each_template(board: Board, tmp_path: Path) -> None:
    files, manifest = toy.compiled(board)
    for template in board.templates:
        model = commands.CompiledModel(tmp_path / "toy.onnx", board, Options(template=template), files, manifest)
        found = fit_of(model, folder=tmp_path / "none")
        assert found.fits
        placed = board.placed_by(template).memories
        assert [need.memory for need in found.needs] == [name for name, one in placed.items() if one.is_always_used]
        if board.memories:
            assert found.flash and found.flash.bytes > manifest.constant_bytes + 3_000
            assert found.ram and found.ram.bytes > manifest.arena_bytes + 256
            assert any(part.what == "server's buffers" for need in found.needs for part in need.parts)


@pytest.mark.slow
def test_a_build_of_other_options_does_not_count(tmp_path: Path) -> None:
    board = boards.get("mps2_an386")
    need(board)
    options = options_of(board, rpc_buffer_bytes="1024")
    compiled = commands.compile(DIGITS, board=board, options=options)
    commands.build_model(compiled, tmp_path / "p", kinds=commands.ALL_KINDS)
    assert fit_of(compiled, folder=tmp_path / "p").is_built
    other = commands.compile(DIGITS, board=board, options=options_of(board))
    assert not fit_of(other, folder=tmp_path / "p").is_built
    (tmp_path / "p" / "src" / "main.c").write_text("int main(void) { return 0; }\n")
    assert not fit_of(compiled, folder=tmp_path / "p").is_built


def test_the_text_is_read_as_it_is_written() -> None:
    files, manifest = toy.compiled()
    read = c_source.read(part for name in c_source.sources(files) for part in parts_of(files, name))
    assert {operator.function for operator in manifest.operators} | {"toy_run", "run", "toy_operator"} <= set(
        read.functions
    )
    assert "mt_exp_f32" in read.called and read.has_float and not read.is_wide
    table = variable("static const int32_t table[9]", " = {0}")
    variables = [table, variable("static int32_t codes[5]"), variable("static uint8_t is_started")]
    assert c_source.read(variables).data_bytes == 21
    assert c_source.read(variables).table_bytes == 4
    name = variable("const char *const name", ' = "seven!"')
    assert c_source.read([*include("a.h"), name]).table_bytes == 7
