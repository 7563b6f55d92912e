"""Constants in several memories, placed by how often they are read; the firmware matches the map."""

import ctypes
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import sanitized
from elftools.elf.elffile import ELFFile
from graphs import FLAGS, reference

import mtool
from mtool import boards
from mtool.base.errors import BuildError, FitError, UsageError
from mtool.cli import app
from mtool.compiler.codegen import conventions, weights
from mtool.compiler.plan.pool import Pool
from mtool.compiler.plan.pools import Constant, constant_pools, in_sections, requested_pools, tensor_pools
from mtool.device.build import size
from mtool.device.build.size import addresses

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
ARM = [shutil.which(program) for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")]


def test_what_is_read_most_by_the_byte_lies_in_the_fastest() -> None:
    slow, fast = Pool("slow", 4096, waits=9), Pool("fast", 96, waits=1)
    constants = [Constant("a", 64, 64), Constant("b", 64, 6400), Constant("c", 30, 300)]
    found = in_sections("m", constants, (slow, fast))
    assert {name: pool.name for name, pool in found.items()} == {"a": "slow", "b": "fast", "c": "fast"}
    first = in_sections(
        "m", constants, (Pool("one", 64), Pool("two", 4096))
    )  # as fast: in the order that they are given
    assert {name for name, pool in first.items() if pool.name == "one"} == {"b"}
    tight = (Pool("fast", 64), Pool("slow", 96, waits=9))  # by density the largest finds no room
    found = in_sections("m", [Constant("small", 32, 3200), Constant("large", 96, 96), Constant("other", 32, 32)], tight)
    assert {name: pool.name for name, pool in found.items()} == {"small": "fast", "large": "slow", "other": "fast"}
    with pytest.raises(FitError) as raised:
        in_sections("m", [*constants, Constant("huge", 5000, 0)], (slow, fast))
    for reported in ("slow has 4,096 B", "no room for huge: 5,000 B", "one of 5,008 B"):
        assert reported in str(raised.value)
    with pytest.raises(FitError, match="enlarge a pool"):
        in_sections("m", [*constants, Constant("d", 4096, 0)], (slow, fast))


def test_memories_that_are_only_read_take_constants_themselves() -> None:
    board = boards.get("stm32f746g_disco")
    flash, psram = requested_pools(board, (Pool("flash", use="weights"), Pool("x", 64, "constants", section=".x")))
    memory = board.memories["flash"]
    assert memory.reads is not None and board.clock_hz
    assert flash.use == "constants" and flash.bytes == memory.size - (64 << 10)  # code has the rest
    assert flash.waits == memory.reads.waits(board.clock_hz) * 4 / memory.reads.width > 0
    assert not flash.is_arena and not psram.is_arena and tensor_pools(board, (flash, psram)) == ()
    assert requested_pools(board, (Pool("dtcm", 64, "weights"),))[0].use == "weights"  # which is written: copies
    with pytest.raises(UsageError, match="use it for constants: --pool flash,for=weights"):
        requested_pools(board, (Pool("flash"),))
    with pytest.raises(UsageError, match=r"\.bss\.x can.t hold constants"):
        constant_pools(board, (Pool("x", 64, "constants", section=".bss.x"),))
    avr = boards.get("arduino_uno")
    with pytest.raises(FitError, match="has one flash"):
        mtool.compile(DIGITS, board=avr, options=mtool.Options(pools=(Pool("flash", use="weights"),)))


@pytest.mark.parametrize("limit", [1 << 30, 256], ids=["text", "file"])
def test_constants_lie_in_sections_of_ones_own(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "LARGE_BYTES", limit)
    monkeypatch.setattr(weights, "PIECE_BYTES", 100)
    both = tuple(Pool(n, s, "constants", w, section=f".{n}") for n, s, w in (("rom_a", 600, 0), ("rom_b", 1 << 20, 9)))
    callers = mtool.Options(pools=both, conventions=conventions(context=True), arenas="caller")
    made = mtool.compile(DIGITS, board="host", options=callers)
    for name in made.files:
        (tmp_path / name).write_bytes(made.files[name])
    assert (b"WEIGHTS(section" in made.files["digits_int8_weights.c"]) == (limit == 256)
    near, far = made.manifest.constant_pools
    assert near.constants and far.constants and near.bytes <= near.limit_bytes == 600
    assert sorted([*near.constants, *far.constants]) == sorted(made.manifest.constants)
    code = made.files.text("digits_int8.c")
    assert f"Constants in rom_a, {near.bytes} bytes of 600" in code and ", about 9 cycles an access" in code
    library = sanitized.library(tmp_path, "digits_int8", [*FLAGS, f"-I{tmp_path}"])
    with library.open("rb") as file:
        elf = ELFFile(file)
        symbols = {one.name: one for one in elf.get_section_by_name(".symtab").iter_symbols()}
        for pool in (near, far):
            for symbol, count in pool.constants.items():
                assert elf.get_section(symbols[symbol]["st_shndx"]).name == pool.section
                assert symbols[symbol]["st_size"] == count and symbols[symbol]["st_value"] % 16 == 0
    run = ctypes.CDLL(str(library)).digits_int8_run
    arena = np.zeros(made.manifest.arena_bytes + 16, np.uint8)
    start = ctypes.c_void_p(arena.ctypes.data + -arena.ctypes.data % 16)
    x = np.random.default_rng(0).integers(-128, 128, (1, 1, 8, 8)).astype(np.int8)
    y = np.zeros((1, 10), np.int8)
    ends = ctypes.byref(ctypes.c_void_p(x.ctypes.data)), ctypes.byref(ctypes.c_void_p(y.ctypes.data))
    assert run(start, *ends) == 0
    np.testing.assert_array_equal(y, reference(onnx.load(DIGITS), {"image": x})[0])


def test_copies_are_taken_of_what_lies_in_slow_pools() -> None:
    fast = Pool("sram", 40 << 10, waits=0)
    for waits, copied in ((0.0, False), (20.0, True)):
        pools = (Pool("qspi", 1 << 20, "constants", waits, section=".qspi"), fast)
        made = mtool.compile(DIGITS, board="stm32f746g_disco", options=mtool.Options(pools=pools)).manifest
        assert bool(made.pools[0].constant_bytes) == copied and len(made.constant_pools) == 1


@pytest.mark.slow
@pytest.mark.skipif(None in ARM, reason="the Arm toolchain or QEMU is not installed")
def test_a_firmware_has_constants_where_the_map_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pools = ["--pool", "itcm=600,for=weights", "--pool", "qspi,for=weights,waits=8"]
    assert app.invoke(["verify", str(DIGITS), "--board", "mps3_an547", *pools]) == 0, capsys.readouterr().err
    assert "constants in itcm " in capsys.readouterr().err
    folder = tmp_path / "build" / "digits_int8-mps3_an547"
    manifest = mtool.manifest.load(folder)
    assert manifest.project is not None
    elf = folder / next(one for one in manifest.project.firmware.values() if (folder / one).exists())
    found, memories = addresses(elf), manifest.project.board.memories
    for pool in manifest.constant_pools:
        base = memories[pool.name].base
        assert pool.constants and all(0 <= found[one] - base < memories[pool.name].size for one in pool.constants)
    turned = zip(manifest.constant_pools, reversed(manifest.constant_pools), strict=True)
    wrong = tuple(one.model_copy(update={"constants": other.constants}) for one, other in turned)
    with pytest.raises(BuildError, match=r"does not place the model's constants in itcm"):
        size.check(elf, manifest.model_copy(update={"constant_pools": wrong}))
