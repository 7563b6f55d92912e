"""Slots for modules, in flash whose power is cut at every write of a load: crt/tests/mt_test_slots.c."""

import ctypes
import subprocess
from pathlib import Path

import amount
import pytest

from tests.crt.firmware import CRT, STRICT

LEAST_CUTS, ROUNDS = (10_000, 58) if amount.IS_ALL else (2_000, 14)
SOURCES = [*(CRT / "src" / f"{name}.c" for name in ("mt_crc32", "mt_siphash")), CRT / "modules" / "mt_slots.c"]
CHECKED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="module", params=["without a key", "MT_LINK_KEY={1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("slots") / "slots"
    key = [f"-D{request.param}"] if "=" in request.param else []
    subprocess.run(
        ["gcc", *STRICT, *CHECKED, *key, *SOURCES, CRT / "tests" / "mt_test_slots.c", "-o", made], check=True
    )
    return made


@pytest.mark.parametrize("seed", range(1, 101 if amount.IS_ALL else 2))
def test_power_that_is_cut_at_any_write_leaves_what_was_there_and_every_counter(program: Path, seed: int) -> None:
    done = subprocess.run([program, str(seed), str(ROUNDS)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    cuts, resumed, went, stayed, at_keys = (int(word) for word in done.stdout.split() if word.isdigit())
    assert cuts >= LEAST_CUTS
    assert min(went, stayed) > cuts // 50
    assert at_keys >= ROUNDS
    assert resumed > cuts // 25  # what a cut has left is gone on with


@pytest.mark.parametrize("reads_first", [True, False])
def test_a_key_stays_what_it_was_found_to_be(reads_first: bool, tmp_path: Path) -> None:
    """A key's record, then the HEAD of its copy, are half-written: they read right only at first, or only later."""
    flags = ["-shared", "-fPIC", f"-I{CRT / 'include'}", *SOURCES]
    subprocess.run(["gcc", *flags, "-o", tmp_path / "slots.so"], check=True)
    library, sector = ctypes.CDLL(str(tmp_path / "slots.so")), 4096
    flash = (ctypes.c_uint8 * (8 * sector))(*b"\xff" * 8 * sector)
    half_written, last = set[int](), 0
    library.mt_slots_next_key.restype = ctypes.c_void_p

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint32)
    def erase(at: int) -> int:
        flash[at : at + sector] = b"\xff" * sector
        half_written.difference_update({*range(at, at + sector)})
        return 0

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
    def program(at: int, data: int, count: int) -> int:
        nonlocal last
        assert bytes(flash[at : at + count]) == b"\xff" * count
        flash[at : at + count] = ctypes.string_at(data, count)
        last = at
        return 0

    class Storage(ctypes.Structure):
        _fields_ = (
            *(("memory", ctypes.c_void_p), ("bytes", ctypes.c_uint32), ("sector_bytes", ctypes.c_uint32)),
            *(("erase", type(erase)), ("program", type(program))),
        )

    storage = Storage(ctypes.addressof(flash), len(flash), sector, erase, program)
    slots, key, other = ctypes.create_string_buffer(4096), bytes(32), bytes([1]) * 32
    assert library.mt_slots_open(slots, ctypes.byref(storage), sector) == 0
    assert library.mt_slots_replace_key(slots, key, other) == 0
    flash[last] ^= not reads_first
    for _ in range(2):
        half_written.add(last)
        assert library.mt_slots_open(slots, ctypes.byref(storage), sector) == 0
        assert bool(library.mt_slots_next_key(slots, key)) == reads_first
    for at in half_written:
        flash[at] ^= 1
    assert library.mt_slots_open(slots, ctypes.byref(storage), sector) == 0
    assert bool(library.mt_slots_next_key(slots, key)) == reads_first
