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


class Simulated:
    """mt_slots.c on a flash in which single bytes can be half-written."""

    def __init__(self, folder: Path, sector: int) -> None:
        flags = ["-shared", "-fPIC", f"-I{CRT / 'include'}", *SOURCES]
        subprocess.run(["gcc", *flags, "-o", folder / "slots.so"], check=True)
        self.library = ctypes.CDLL(str(folder / "slots.so"))
        self.library.mt_slots_next_key.restype = ctypes.c_void_p
        self.flash = (ctypes.c_uint8 * 32768)(*b"\xff" * 32768)
        self.half_written, self.last, self.erases_left = set[int](), 0, 1 << 30

        @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint32)
        def erase(at: int) -> int:
            self.erases_left -= 1
            if self.erases_left < 0:
                return 1
            self.flash[at : at + sector] = b"\xff" * sector
            self.half_written.difference_update({*range(at, at + sector)})
            return 0

        @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
        def program(at: int, data: int, count: int) -> int:
            assert bytes(self.flash[at : at + count]) == b"\xff" * count
            self.flash[at : at + count] = ctypes.string_at(data, count)
            self.last = at
            return 0

        class Storage(ctypes.Structure):
            _fields_ = (
                *(("memory", ctypes.c_void_p), ("bytes", ctypes.c_uint32), ("sector_bytes", ctypes.c_uint32)),
                *(("erase", type(erase)), ("program", type(program))),
            )

        self.storage = Storage(ctypes.addressof(self.flash), len(self.flash), sector, erase, program)
        self.slots = ctypes.create_string_buffer(4096)

    def open(self) -> None:
        assert self.library.mt_slots_open(self.slots, ctypes.byref(self.storage), 4096) == 0

    def replace_key(self, number: int) -> None:
        assert self.library.mt_slots_replace_key(self.slots, bytes([number]) * 32, bytes([number + 1]) * 32) == 0

    def is_replaced(self, number: int) -> bool:
        return bool(self.library.mt_slots_next_key(self.slots, bytes([number]) * 32))

    def half_write(self) -> None:
        """The last record reads right or wrong after the next start."""
        self.half_written.add(self.last)

    def flip(self) -> None:
        for at in self.half_written:
            self.flash[at] ^= 1


@pytest.mark.parametrize("reads_first", [True, False])
def test_a_key_stays_what_it_was_found_to_be(reads_first: bool, tmp_path: Path) -> None:
    """A key's record, then the HEAD of its copy, are half-written: they read right only at first, or only later."""
    device = Simulated(tmp_path, 4096)
    device.open()
    device.replace_key(0)
    device.flash[device.last] ^= not reads_first
    for _ in range(2):
        device.half_write()
        device.open()
        assert device.is_replaced(0) == reads_first
    device.flip()
    device.open()
    assert device.is_replaced(0) == reads_first


def test_a_copy_that_is_partly_erased_is_not_used(tmp_path: Path) -> None:
    """Its HEAD, half-written, reads wrong until the copy's first sectors are erased, and then right."""
    device, keys = Simulated(tmp_path, 256), range(5)
    device.open()
    for key in keys:
        device.replace_key(key)
    for erases in range(1, 17):
        device.open()
        device.half_write()
        device.flip()
        device.erases_left = erases
        device.open()
        device.flip()
        device.erases_left = 1 << 30
        device.open()
        assert all(map(device.is_replaced, keys)), erases
        device.half_written.clear()
