"""Modules are loaded through the chips' flash drivers, and power is lost at any instruction: each name has a module."""

import random
import shutil
from collections.abc import Callable, Mapping

import amount
import pytest

pytest.importorskip("unicorn", reason="needs the package unicorn")

from tests.crt.firmware import CRT
from tests.crt.registers import STACK_TOP, STOP, Chip, Core, Flash, Ready
from tests.crt.test_ports import ERRORS, FLASHES
from tests.zephyr import test_storage

pytestmark = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed")

SOURCES = (
    CRT / "tests" / "mt_test_power.c",
    CRT / "modules" / "mt_slots.c",
    CRT / "src" / "mt_crc32.c",
    CRT / "src" / "mt_siphash.c",
)
LINK_KEY = "-DMT_LINK_KEY={1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}"
STORAGE = CRT.parent / "project_templates" / "shared" / "storage_in_flash.c"
ZEPHYR = "zephyr"  # its flash API, over the driver of nRF
AREAS = {  # start, bytes, sector, names
    "stm32f1_flash": (0x0800C000, 0x4000, 1024, 2),
    "stm32f4_flash": (0x08060000, 0x80000, 0x20000, 1),
    "stm32l4_flash": (0x08180000, 0x6000, 4096, 2),
    "stm32h7_flash": (0x08180000, 0x80000, 0x20000, 1),
    "nrf_nvmc": (0x000F0000, 0x6000, 4096, 2),
    "rp2040_flash": (0x101F0000, 0x6000, 4096, 2),
    ZEPHYR: (0x000F0000, 0xC000, 4096, 2),
}
XIP = 0x10000000
RP2040: tuple[Callable[[], Chip], dict[str, str], int] = (
    lambda: Chip({}, flash=Flash(XIP, 0, 256, ("", 0, 0), lambda _: None)),
    {},
    XIP,
)
MOST = 50_000_000  # instructions of a call
LONGEST = 100_000  # instructions until the power is lost
SEEDS, CUTS = amount.of((48, 50), (2, 5))


class PowerLoss(Exception):
    """The power is lost."""


class Powered(Core):
    """A core that is powered up with what its flash holds; it loses power at an instruction or a flash operation."""

    def __init__(self, name: str, memory: bytes, torn: set[int], draw: random.Random, *flags: str) -> None:
        driver = "nrf_nvmc" if name == ZEPHYR else name
        make, macros, _ = FLASHES.get(driver, RP2040)
        start, count, sector, _ = AREAS[name]
        chip = make()
        assert chip.flash is not None
        chip.rules = [rule for rule in chip.rules if isinstance(rule, Ready)]  # the order is test_ports.py's
        self.erases = chip.flash.erases
        chip.flash = Flash(start, count, chip.flash.unit, chip.flash.programs, lambda _: None)
        self.flash, self.held, self.torn, self.draw = chip.flash, memory, torn, draw
        self.errors = ERRORS.get(name, 0)
        self.last: tuple[int, bytes, bytes] | None = None  # the operation in progress: its place, before, after
        self.operations, self.cut = 0, -1
        area = {"MT_FLASH_START": f"0x{start:x}u", "MT_FLASH_BYTES": f"{count}u", "MT_FLASH_SECTOR": f"{sector}u"}
        storage = (*test_storage.source(), "-w") if name == ZEPHYR else (STORAGE,)
        cpu = "cortex-m3" if chip.registers else "cortex-m0plus"
        super().__init__(chip, driver, {**macros, **area}, cpu, (*SOURCES, *storage, *flags))
        if not chip.registers:
            calls = {"RE": Powered.rom_erases, "RP": Powered.rom_programs, "FC": Powered.rom_is_ready}
            self.rom({**dict.fromkeys(("IF", "EX", "CX"), lambda _: None), **calls})

    def map(self, begin: int, count: int) -> None:
        import unicorn

        if begin == self.flash.start:
            self.uc.mem_map(begin, count)
            self.uc.mem_write(begin, self.held)
            self.uc.hook_add(unicorn.UC_HOOK_MEM_WRITE, self._programs, None, begin, begin + count - 1)
            return

        def read(_: object, offset: int, size: int, __: object) -> int:
            value = self.chip.read(begin + offset, size)
            self.last = self.last if self.chip.is_busy else None
            return value

        def write(_: object, offset: int, size: int, value: int, __: object) -> None:
            self.chip.write(begin + offset, size, value)
            erased = self.erases(self.chip)
            if erased is not None and (self.chip.is_busy or "READY" in self.chip.values) and self.last is None:
                self._erase(*erased)
                self.chip.values["ERASEPAGE"] = 0

        self.uc.mmio_map(begin, count, read, None, write, None)

    def _erase(self, address: int, count: int) -> None:
        self._operate(address, b"\xff" * count)
        self.uc.mem_write(address, b"\xff" * count)
        self.torn -= {*range(address, address + count)}

    def rom_erases(self) -> None:
        self._erase(XIP + self.argument(0), self.argument(1))

    def rom_programs(self) -> None:
        address, wanted = XIP + self.argument(0), self.memory(self.argument(1), self.argument(2))
        before = self.memory(address, len(wanted))
        for at, (old, new) in enumerate(zip(before, wanted, strict=True)):
            assert 0xFF in (old, new) or address + at in self.torn, f"0x{address + at:08x} was not erased"
        after = bytes(a & b for a, b in zip(before, wanted, strict=True))
        self._operate(address, after)
        self.uc.mem_write(address, after)

    def rom_is_ready(self) -> None:
        self.last = None

    def _programs(self, _: object, __: int, address: int, size: int, value: int, ___: object) -> None:
        assert self.chip.holds(self.flash.programs), "the flash is programmed while it is locked"
        before, wanted = bytes(self.uc.mem_read(address, size)), (value % (1 << 8 * size)).to_bytes(size, "little")
        unit = address // self.flash.unit * self.flash.unit
        if any(unit + at in self.torn for at in range(self.flash.unit)):
            self.chip.values["SR"] = self.chip.values.get("SR", 0) | self.errors  # noticed by the controller
        else:
            assert before == b"\xff" * size, f"0x{address:08x} was not erased"
        self._operate(address, bytes(a & b for a, b in zip(before, wanted, strict=True)))
        self.last = None if (address + size) % self.flash.unit == 0 else self.last

    def _operate(self, address: int, after: bytes) -> None:
        self.last = (address, self.memory(address, len(after)), after)
        self.operations += 1
        if self.operations == self.cut:
            raise PowerLoss

    def run(self, function: str, *arguments: int, most: int = MOST) -> int:
        """Call a function; PowerLoss: at the flash operation `cut`, or after `most` instructions."""
        from unicorn import arm_const

        for number, argument in enumerate(arguments):
            self.uc.reg_write(arm_const.UC_ARM_REG_R0 + number, argument)
        self.uc.reg_write(arm_const.UC_ARM_REG_SP, STACK_TOP)
        self.uc.reg_write(arm_const.UC_ARM_REG_LR, STOP | 1)
        self.uc.emu_start(self.symbols[function] | 1, STOP, count=most)
        if self.uc.reg_read(arm_const.UC_ARM_REG_PC) & ~1 != STOP:
            assert most < MOST, f"{function} does not end"
            raise PowerLoss
        return int(self.uc.reg_read(arm_const.UC_ARM_REG_R0))

    def off(self) -> tuple[bytes, set[int]]:
        """Return what the flash holds then: of an operation in progress, anything between before and after."""
        memory = bytearray(self.memory(self.flash.start, self.flash.count))
        if self.last is not None:
            address, before, after = self.last
            unit = max(self.flash.unit, len(after))
            begin = address // unit * unit
            taken = self.draw.choice((0, 255, None))
            for at, (old, new) in enumerate(zip(before, after, strict=True)):
                bits = self.draw.randrange(256) if taken is None else taken
                memory[address - self.flash.start + at] = old ^ (old ^ new) & bits
            self.torn |= {*range(begin, begin + unit)}
        return bytes(memory), self.torn


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", AREAS)
def test_power_is_lost_at_any_instruction_of_an_update(name: str, seed: int) -> None:
    draw = random.Random(f"{name} {seed}")
    flags = [LINK_KEY] * (seed % 2)
    _, count, _, names = AREAS[name]
    memory, torn = b"\xff" * count, set[int]()
    modules: Mapping[int, int] = dict.fromkeys(range(1, names + 1), 0)
    number = cuts = 0
    operations = 20
    while cuts < CUTS:
        core = Powered(name, memory, torn, draw, *flags)
        assert core.run("boot") == 0
        assert {one: core.run("found", one) for one in modules} == modules
        assert all(core.run("counter", one) >= of for one, of in modules.items())
        number, of = number + 1, draw.choice([*modules])
        arguments = of, number, draw.randrange(1, 2000)
        at_operation = draw.randrange(2)
        core.cut = core.operations + draw.randrange(1, operations) if at_operation else -1
        before = core.operations
        try:
            assert core.run("load", *arguments, most=MOST if at_operation else draw.randrange(1, LONGEST)) == 0
            core.last = None
            may_be = [{**modules, of: number}]
            operations = max(operations, core.operations - before + 2)
        except PowerLoss:
            cuts += 1
            is_committing = core.memory(core.symbols["is_committing"], 1) != b"\0"
            may_be = [modules, *[{**modules, of: number}] * is_committing]
        memory, torn = core.off()
        again = Powered(name, memory, torn, draw, *flags)
        assert again.run("boot") == 0
        found = {one: again.run("found", one) for one in modules}
        assert found in may_be, (found, may_be, cuts)
        memory, torn = again.off()
        modules = found
