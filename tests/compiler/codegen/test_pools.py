"""The C of an arena in several memories, with arrays of the model's or the caller's, computes the right results."""

import ctypes
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sanitized
import stateful
from graphs import FLAGS, model, reference
from onnx import helper

import mtool
from mtool import boards
from mtool.base.errors import UsageError
from mtool.base.option_values import InterfaceApi
from mtool.boards import PoolSettings
from mtool.cli import app
from mtool.commands.reporting import memory_map
from mtool.compiler.codegen import conventions
from mtool.compiler.plan.pool import Pool

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
ARM = [shutil.which(program) for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")]
Array = np.ndarray[Any, Any]


def library(
    path: Path, options: mtool.Options, folder: Path, board: str | boards.Board = "host"
) -> tuple[ctypes.CDLL, mtool.commands.CompiledModel]:
    made = mtool.compile(path, board=board, options=options)
    folder.mkdir()
    for name in made.files:
        (folder / name).write_bytes(made.files[name])
    return ctypes.CDLL(str(sanitized.library(folder, made.manifest.model, FLAGS))), made


def test_states_in_a_pool_that_is_not_cleared_are_reset(tmp_path: Path) -> None:
    proto, ((output, value),) = stateful.recurrent("GRU", "torch", 1)
    onnx.save(proto, tmp_path / "cell.onnx")
    first, last = Pool("first", 96, waits=3), Pool("last", 4096, waits=0, alignment=64)
    own = mtool.Options(states=((output, value),), pools=(first, last))
    code, made = library(tmp_path / "cell.onnx", own, tmp_path / "own")
    (state,) = made.manifest.states
    assert (made.manifest.pools[state.pool].name, made.manifest.pools[state.pool].memory) == ("last", "last")
    pool = (ctypes.c_uint8 * made.manifest.pools[1].bytes).in_dll(code, "cell_pool_last")
    assert ctypes.addressof(pool) % 64 == 0
    ctypes.memset(pool, 0xA5, len(pool))  # as its memory may begin
    callers = replace(own, conventions=conventions(context=True), arenas="caller")
    other, _ = library(tmp_path / "cell.onnx", callers, tmp_path / "callers")
    instances = []
    for _ in range(2):
        memory = [np.full(64, 0xA5A5A5A5A5A5A5A5, np.uint64), np.full(1024, 0xA5A5A5A5A5A5A5A5, np.uint64)]
        places = [one.ctypes.data + -one.ctypes.data % 64 for one in memory]
        instances.append((memory, (ctypes.c_void_p * 2)(*places)))
        other.cell_reset(ctypes.byref(instances[-1][1]))
    rng = np.random.default_rng(0)
    names = [one.name for one in proto.graph.output]
    kept = [np.zeros((1, 1, stateful.HIDDEN), np.float32) for _ in range(3)]
    for turn in (0, 1, 0, 2, 2, 1, 0, 2):
        x = rng.standard_normal((1, 1, stateful.SIZE)).astype(np.float32)
        wanted = dict(zip(names, reference(proto, {"x": x, value: kept[turn]}), strict=True))
        kept[turn] = wanted[output]
        y = np.zeros((1, 1, stateful.CLASSES), np.float32)
        both = ctypes.byref(ctypes.c_void_p(x.ctypes.data)), ctypes.byref(ctypes.c_void_p(y.ctypes.data))
        status = code.cell_run(*both) if turn == 0 else other.cell_run(ctypes.byref(instances[turn - 1][1]), *both)
        assert status == 0
        np.testing.assert_allclose(y.reshape(-1), wanted["y"].reshape(-1), atol=1e-6)


@pytest.mark.slow
@pytest.mark.product(2)
@pytest.mark.parametrize(
    "options",
    [["--partial", "always", "--interface-api", "step"], ["--stream", "image"]],
    ids=lambda options: options[1],
)
def test_layers_are_read_in_their_pools(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pools = ["--pool", "slow=6KiB,waits=2", "--pool", "fast=600"]
    assert app.invoke(["verify", str(DIGITS), *pools, *options, "--layers"]) == 0, capsys.readouterr().err
    made = mtool.manifest.load(tmp_path / "build" / "digits_int8-host")
    assert all(pool.bytes for pool in made.pools) and {one.index for op in made.operators for one in op.writes} >= {
        0,
        1,
    }


@pytest.mark.slow
def test_what_pools_do_not_go_with_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    one, pool = [str(DIGITS)], ["--pool", "a=8K"]
    both = [*one, *one, "--name", "a", "--name", "b"]
    for wrong, reported in (
        ([*one, "--executor", "graph"], "--pool can't be combined with --executor graph"),
        ([*one, "--arena-section", ".bss.x"], "--pool can't be combined with --arena-section"),
        (both, "--arena own gives each model pools of its own"),
        ([*one, "--emit", "cmake"], "make can't place a model's pools"),
    ):
        assert app.invoke(["compile", *wrong, *pool]) == 2
        assert reported in capsys.readouterr().err
    assert app.invoke(["compile", *both, "--arena", "own", *pool]) == 0
    with pytest.raises(UsageError, match="use a single RAM"):
        options = mtool.Options(template="arduino", pools=(Pool("sram", 8192),))
        mtool.compile(DIGITS, board="nano_33_ble", options=options).render_project()


def test_zephyr_puts_a_pool_into_the_memory_of_its_node() -> None:
    options = mtool.Options(pools=(Pool("dtcm", 1024), Pool("axi_sram", 8192)))
    made = mtool.compile(DIGITS, board="nucleo_h743zi", options=options)
    files, described = made.render_project()
    build = files.text("CMakeLists.txt")
    assert 'NODELABEL "dtcm"' in build and "MT_MEMORY_dtcm=" in build and "axi_sram" not in build
    code = files.text("model/digits_int8.c")
    assert "MT_IN_MEMORY(dtcm, 16) uint8_t digits_int8_pool_dtcm[" in code and "Pool dtcm, 896 bytes" in code
    assert "MT_ARENA uint8_t digits_int8_pool_axi_sram[" in code and described.pools[1].is_arena


def slow_flash() -> boards.Board:
    """Return this computer with the memories of a board whose flash lets the core wait."""
    host, board = boards.get("host"), boards.get("nucleo_l4r5zi")
    fast = board.memories["sram"].model_copy(update={"base": 0x10000000, "size": 64 << 10, "holds": ()})
    memories = {"flash": board.memories["flash"], "fast": fast, "sram": board.memories["sram"]}
    return host.model_copy(update={"memories": memories, "clock_hz": board.clock_hz, "features": frozenset({"fpu"})})


@pytest.mark.parametrize("interface", ["c", "step", "feed"])
def test_constants_are_read_from_their_copies(interface: InterfaceApi, tmp_path: Path) -> None:
    both = (Pool("fast", 32 << 10, use="weights", waits=0), Pool("sram", 32 << 10, use="tensors", waits=0))
    options = mtool.Options(pools=both, conventions=conventions(interface))
    code, made = library(DIGITS, options, tmp_path / "c", slow_flash())
    pool, other = made.manifest.pools
    assert 0 < pool.constant_bytes == pool.bytes <= 32 << 10 and not other.constant_bytes and other.bytes
    inside = [one.name for one in made.manifest.operators if one.constants_in == "fast"]
    assert inside and made.manifest.arena_bytes == other.bytes
    blocks = memory_map(made.manifest)
    assert {block.kind for block in blocks} >= {"output", "between"}
    assert all(block.offset + block.bytes <= made.manifest.arena_bytes for block in blocks)
    assert f", the last {pool.constant_bytes:,} of copies of constants" in made.files.text("digits_int8.c")
    rng = np.random.default_rng(0)
    wanted = onnx.load(DIGITS)
    for _ in range(2):
        x, y = rng.integers(-128, 128, (1, 1, 8, 8)).astype(np.int8), np.zeros((1, 10), np.int8)
        inputs, outputs = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
        if interface == "c":
            assert code.digits_int8_run(ctypes.byref(inputs), ctypes.byref(outputs)) == 0
        elif interface == "step":
            code.digits_int8_begin(ctypes.byref(inputs), ctypes.byref(outputs))
            while not code.digits_int8_done():
                assert code.digits_int8_step() == 0
        else:
            assert code.digits_int8_begin() == code.digits_int8_feed(inputs, 8) == 0
            assert code.digits_int8_finish(ctypes.byref(outputs)) == 0
        np.testing.assert_array_equal(y, reference(wanted, {"image": x})[0])


def test_constants_stay_in_flash_where_a_copy_saves_nothing() -> None:
    slow, all_of_it = Pool("fast", 64 << 10, waits=9), Pool("fast", 64 << 10, waits=0)
    for pool, options in (
        (slow, mtool.Options()),
        (all_of_it, mtool.Options(optimize="size")),
        (replace(all_of_it, use="tensors"), mtool.Options()),
        (all_of_it, mtool.Options(conventions=conventions("packed", "packed"))),
        (all_of_it, mtool.Options(conventions=conventions(context=True), arenas="caller")),
    ):
        made = mtool.compile(DIGITS, board=slow_flash(), options=replace(options, pools=(pool,))).manifest
        assert not any(one.constant_bytes for one in made.pools) and not any(one.constants_in for one in made.operators)
    with pytest.raises(UsageError, match="which each instance would have a copy of"):
        callers = mtool.Options(conventions=conventions(context=True), arenas="caller")
        mtool.compile(DIGITS, board=slow_flash(), options=replace(callers, pools=(replace(all_of_it, use="weights"),)))


@pytest.mark.skipif(None in ARM, reason="the Arm toolchain or QEMU is not installed")
def test_an_arena_that_fits_no_memory_is_split_into_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turned = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
    onnx.save(model([turned], {"x": (np.float32, (50, 60))}, ["y"]), tmp_path / "turn.onnx")
    board = boards.get("mps2_an386")
    sizes = {"ssram23": 23 << 10, "psram": 13 << 10}  # the input in one, the output in the other
    pool = PoolSettings(source="a test", waits=1)
    own = {name: board.memories[name].model_copy(update={"size": size, "pool": pool}) for name, size in sizes.items()}
    small = board.model_copy(update={"memories": {**board.memories, **own}})
    made = mtool.compile(tmp_path / "turn.onnx", board=small)
    assert [(pool.name, pool.bytes) for pool in made.manifest.pools] == [("ssram23", 12000), ("psram", 12000)]
    x = np.arange(3000, dtype=np.float32).reshape(50, 60)
    monkeypatch.chdir(tmp_path)
    with mtool.open(made) as device:
        np.testing.assert_array_equal(device.run({"x": x})["y"], x.T)
