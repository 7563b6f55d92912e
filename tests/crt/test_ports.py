"""The drivers of crt/ports on models of the chips' registers: the order of accesses, ready bits, and values.

Registers, bits and conditions are those of the manuals that crt/ports/drivers.yaml names. What a driver sets is decoded
again: the clock has to be the board's, and the UART's rate within 1% of its own.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("unicorn", reason="needs the package unicorn")

from mtool import boards
from mtool.boards import drivers
from mtool.project import chip_drivers
from tests.crt.firmware import CRT
from tests.crt.registers import RAM, Chip, Core, Flash, Needs, Ready

pytestmark = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed")

MACROS = {name: chip_drivers.of_board(board, "p").macros for name, board in boards.load_all().items() if board.ports}


def bit(number: int, count: int = 1) -> int:
    return ((1 << count) - 1) << number


def at(base: int, **offsets: int) -> dict[str, int]:
    return {name: base + offset for name, offset in offsets.items()}


def test_every_driver_has_a_record_and_a_file() -> None:
    assert {path.stem.removeprefix("mt_") for path in (CRT / "ports").glob("mt_*.c")} == {*drivers.load_all()}
    for name, driver in drivers.load_all().items():
        text = (CRT / "ports" / f"mt_{name}.c").read_text()
        used = set(re.findall(rf"\bMT_{driver.role.upper()}_(\w+)", text)) - {"HZ", "BAUD"}
        known = {key.upper() for key in {**driver.keys, **driver.optional}}
        known |= {f"{key}_BIT" for key in known}
        constants = {"INTERNAL", "CRYSTAL", "EXTERNAL", "DIVIDER", "TX", "RX", "START", "BYTES", "IRQ", "SECTOR"}
        assert used <= known | constants, name


# Clocks.

STM32F1_CLOCK = Chip(
    {**at(0x40021000, CR=0, CFGR=4), "ACR": 0x40022000},
    reset={"CR": 0x83, "ACR": 0x30},
    rules=[
        Ready(("CR", bit(16), bit(16)), ("CR", bit(17), bit(17))),
        Ready(("CR", bit(24), bit(24)), ("CR", bit(25), bit(25))),
        Ready(("CFGR", 3, 2), ("CFGR", 3 << 2, 2 << 2)),
        Needs(("CR", bit(24), bit(24)), [("CR", bit(17), bit(17)), ("CFGR", bit(16), bit(16))]),
        Needs(("CFGR", 3, 2), [("CR", bit(25), bit(25)), ("ACR", 7, 2), ("CFGR", 7 << 8, 4 << 8)]),
    ],
)
STM32F4_CLOCK = Chip(
    {**at(0x40023800, CR=0, PLLCFGR=4, CFGR=8, APB1ENR=0x40), "ACR": 0x40023C00, **at(0x40007000, PWR_CR=0, PWR_CSR=4)},
    reset={"CR": 0x83, "PLLCFGR": 0x24003010, "PWR_CR": 0xC000},
    rules=[
        Ready(("CR", bit(16), bit(16)), ("CR", bit(17), bit(17))),
        Ready(("CR", bit(24), bit(24)), ("CR", bit(25), bit(25)), after=9),
        Ready(("CFGR", 3, 2), ("CFGR", 3 << 2, 2 << 2)),
        Ready(("PWR_CR", bit(16), bit(16)), ("PWR_CSR", bit(16), bit(16))),
        Ready(("PWR_CR", bit(17), bit(17)), ("PWR_CSR", bit(17), bit(17))),
        Needs(("CR", bit(24), bit(24)), [("CR", bit(17), bit(17)), ("PLLCFGR", bit(22), bit(22))]),
        Needs(("PWR_CR", bit(16), bit(16)), [("APB1ENR", bit(28), bit(28)), ("CR", bit(24), bit(24))]),
        Needs(("PWR_CR", bit(17), bit(17)), [("PWR_CSR", bit(16), bit(16))]),
        Needs(("CFGR", 3, 2), [("CR", bit(25), bit(25))]),
    ],
)
STM32L4_CLOCK = Chip(
    {**at(0x40021000, CR=0, CFGR=8, PLLCFGR=0xC, APB1ENR1=0x58), "ACR": 0x40022000, "PWR_CR5": 0x40007080},
    reset={"CR": 0x63, "PLLCFGR": 0x1000, "ACR": 0x600, "PWR_CR5": 0x100},
    rules=[
        Ready(("CR", bit(8), bit(8)), ("CR", bit(10), bit(10))),
        Ready(("CR", bit(24), bit(24)), ("CR", bit(25), bit(25))),
        Ready(("CFGR", 3, 3), ("CFGR", 3 << 2, 3 << 2)),
        Needs(("CR", bit(24), bit(24)), [("CR", bit(10), bit(10)), ("PLLCFGR", 3, 2)]),
        Needs(("PWR_CR5", bit(8), 0), [("APB1ENR1", bit(28), bit(28))]),
        Needs(
            ("CFGR", 3, 3),
            [("CR", bit(25), bit(25)), ("PLLCFGR", bit(24), bit(24)), ("ACR", 15, 5), ("PWR_CR5", bit(8), 0)],
        ),
        Needs(("CFGR", 15 << 4, 0), [("CFGR", 3 << 2, 3 << 2)]),  # not at the whole rate before the switch is done
    ],
)
STM32H7_CLOCK = Chip(
    {
        **at(0x58024400, CR=0, CFGR=0x10, D1CFGR=0x18, D2CFGR=0x1C, D3CFGR=0x20, PLLCKSELR=0x28, PLLCFGR=0x2C),
        **at(0x58024400, PLL1DIVR=0x30, APB4ENR=0xF4),
        "ACR": 0x52002000,
        **at(0x58024800, CSR1=4, CR3=0xC, D3CR=0x18),
        "PWRCR": 0x5800042C,
    },
    reset={"CR": 1, "CR3": 6, "D3CR": 0x4000, "PLLCFGR": 0x01FF0000, "ACR": 0x37},
    rules=[
        Ready(("CR3", 7, 2), ("CSR1", bit(13), bit(13))),
        Ready(("D3CR", 3 << 14, 3 << 14), ("D3CR", bit(13), bit(13))),
        Ready(("PWRCR", 1, 1), ("D3CR", bit(13), bit(13))),
        Ready(("CR", bit(16), bit(16)), ("CR", bit(17), bit(17))),
        Ready(("CR", bit(24), bit(24)), ("CR", bit(25), bit(25))),
        Ready(("CFGR", 7, 3), ("CFGR", 7 << 3, 3 << 3)),
        Needs(("D3CR", 3 << 14, 3 << 14), [("CSR1", bit(13), bit(13))]),
        Needs(("PWRCR", 1, 1), [("APB4ENR", 2, 2), ("D3CR", 3 << 14 | bit(13), 3 << 14 | bit(13))]),
        Needs(("CR", bit(24), bit(24)), [("CR", bit(17), bit(17)), ("PLLCKSELR", 3, 2), ("PLLCFGR", bit(16), bit(16))]),
        Needs(
            ("CFGR", 7, 3),
            [("CR", bit(25), bit(25)), ("ACR", 0x3F, 0x24), ("D1CFGR", 15, 8), ("D3CR", bit(13), bit(13))],
        ),
    ],
    writes={"PWRCR": lambda chip, _: chip.values.update(D3CR=chip.values["D3CR"] & ~bit(13))},
)
RP2040_CLOCK = Chip(
    {
        **at(0x4000C000, RESET=0, DONE=8),
        **at(0x40008000, REF=0x30, REF_IS=0x38, SYS=0x3C, SYS_IS=0x44, PERI=0x48),
        **at(0x40024000, XOSC=0, XOSC_STATUS=4, XOSC_STARTUP=0xC),
        **at(0x40028000, CS=0, PWR=4, FBDIV=8, PRIM=0xC),
    },
    reset={"RESET": 0x01FFFFFF, "REF_IS": 1, "SYS_IS": 1, "PWR": 0x2D, "PRIM": 0x77000},
    rules=[
        Ready(("XOSC", 0xFFFFFF, 0xFABAA0), ("XOSC_STATUS", bit(31), bit(31))),
        Ready(("REF", 3, 2), ("REF_IS", 15, 4)),
        Ready(("SYS", 1, 1), ("SYS_IS", 3, 2)),
        Ready(("RESET", bit(12), 0), ("DONE", bit(12), bit(12))),
        Ready(("PWR", 0x21, 0), ("CS", bit(31), bit(31)), after=9),
        Needs(("XOSC", 0xFFFFFF, 0xFABAA0), [("XOSC_STARTUP", 0x3FFF, 47)]),
        Needs(("REF", 3, 2), [("XOSC_STATUS", bit(31), bit(31))]),
        Needs(("PWR", 0x21, 0), [("DONE", bit(12), bit(12)), ("FBDIV", 0xFFF, 125), ("CS", 63, 1)]),
        Needs(("PWR", bit(3), 0), [("CS", bit(31), bit(31)), ("PRIM", 0x77000, 0x62000)]),
        Needs(("SYS", 1, 1), [("PWR", bit(3), 0), ("REF_IS", 15, 4)]),
    ],
)


def fresh(chip: Chip) -> Chip:
    return replace(chip)


def divided(code: int) -> int:
    return {0: 1, 4: 2, 5: 4, 6: 8, 7: 16}[code]


def f1_rate(chip: Chip, source_hz: int) -> tuple[int, int, int]:
    cfgr = chip.values["CFGR"]
    core = source_hz * ((cfgr >> 18 & 15) + 2)
    return core, core // divided(cfgr >> 8 & 7), core // divided(cfgr >> 11 & 7)


def f4_rate(chip: Chip, source_hz: int) -> tuple[int, int, int]:
    pll, cfgr = chip.values["PLLCFGR"], chip.values["CFGR"]
    core = source_hz // (pll & 63) * (pll >> 6 & 511) // (2 * (pll >> 16 & 3) + 2)
    return core, core // divided(cfgr >> 10 & 7), core // divided(cfgr >> 13 & 7)


def l4_rate(chip: Chip, source_hz: int) -> tuple[int, int, int]:
    pll = chip.values["PLLCFGR"]
    core = source_hz // ((pll >> 4 & 15) + 1) * (pll >> 8 & 127) // (2 * (pll >> 25 & 3) + 2)
    return core, core, core


def h7_rate(chip: Chip, source_hz: int) -> tuple[int, int, int]:
    divr = chip.values["PLL1DIVR"]
    core = source_hz // (chip.values["PLLCKSELR"] >> 4 & 63) * ((divr & 511) + 1) // ((divr >> 9 & 127) + 1)
    assert chip.values["D1CFGR"] & 15 == 8
    return (
        core,
        core // 2 // divided(chip.values["D2CFGR"] >> 4 & 7),
        core // 2 // divided(chip.values["D2CFGR"] >> 8 & 7),
    )


def rp2040_rate(chip: Chip, source_hz: int) -> tuple[int, int, int]:
    prim = chip.values["PRIM"]
    core = source_hz * chip.values["FBDIV"] // (prim >> 16 & 7) // (prim >> 12 & 7)
    assert chip.values["PERI"] == bit(11)
    return core, core, core


F4 = (STM32F4_CLOCK, f4_rate)
CLOCKS: dict[str, tuple[Chip, Callable[[Chip, int], tuple[int, int, int]], int]] = {
    "bluepill": (STM32F1_CLOCK, f1_rate, 8_000_000),
    "nucleo_f401re": (*F4, 8_000_000),
    "nucleo_f446re": (*F4, 8_000_000),
    "stm32f746g_disco": (*F4, 25_000_000),
    "nucleo_l4r5zi": (STM32L4_CLOCK, l4_rate, 16_000_000),
    "nucleo_h743zi": (STM32H7_CLOCK, h7_rate, 8_000_000),
    "rpi_pico": (RP2040_CLOCK, rp2040_rate, 12_000_000),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_a_clock(name: str) -> None:
    model, rate, source_hz = CLOCKS[name]
    board, chip = boards.get(name), fresh(model)
    Core(chip, str(board.ports["clock"]["driver"]), MACROS[name], board.cpu).call("mt_clock_init")
    chip.check()
    core, *buses = rate(chip, source_hz)
    assert board.timer is not None and core == board.clock_hz == board.timer.hz
    assert board.ports["uart"]["clock_hz"] in buses
    is_external = board.ports["clock"].get("source") == 2
    assert not is_external or chip.values["CR"] & bit(18)


@pytest.mark.product(4)
@pytest.mark.parametrize("name", CLOCKS)
def test_a_clock_waits_for_what_is_not_ready(name: str) -> None:
    """Without one of its ready bits a driver waits for ever, instead of going on at a wrong rate."""
    model, _, _ = CLOCKS[name]
    board = boards.get(name)
    waited = 0
    for left_out in [rule for rule in model.rules if isinstance(rule, Ready)]:
        chip = replace(model, rules=[rule for rule in model.rules if rule is not left_out])
        core = Core(chip, str(board.ports["clock"]["driver"]), MACROS[name], board.cpu)
        try:
            core.call("mt_clock_init")
        except AssertionError as waits:
            assert "waits for ever" in str(waits)
            waited += 1
        else:
            assert left_out.when[0] in ("PWR_CR", "PWRCR", "D3CR"), left_out  # not in this board's settings
    assert waited >= 3


def test_the_clock_of_an_nrf() -> None:
    chip = Chip(
        at(0x40000000, START=0, STARTED=0x100), rules=[Ready(("START", 1, 1), ("STARTED", 1, 1))], reset={"STARTED": 1}
    )
    Core(chip, "nrf_clock", MACROS["nrf52840dk"]).call("mt_clock_init")
    assert chip.values == {"START": 1, "STARTED": 1} and chip.written("STARTED") == [0]


def test_the_caches_of_a_cortex_m7() -> None:
    names = at(0xE000E000, CCR=0xD14, CCSIDR=0xD80, CSSELR=0xD84, ICIALLU=0xF50, DCISW=0xF60)
    chip = Chip(names, reset={"CCR": 0x40200, "CCSIDR": 127 << 13 | 3 << 3 | 1, "CSSELR": 1})
    Core(chip, "cortex_m7_cache", {}, "cortex-m7").call("mt_cache_init")
    lines = chip.written("DCISW")
    assert sorted(lines) == sorted(way << 30 | number << 5 for way in range(4) for number in range(128))
    assert chip.log[-1] == ("write", "CCR", 0x40200 | bit(16, 2)) and chip.values["CSSELR"] == 0
    assert chip.log[0][:2] == ("write", "ICIALLU")


# UARTs. Each has bytes that arrive, a transmitter that is busy for some reads, and errors.


class Line:
    """The other end of a UART: what it has sent, and what it has received."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.received: list[int] = []
        self.busy = 0

    def take(self, _: Chip, value: int) -> None:
        assert self.busy == 0, "a byte was written before there was room"
        self.received.append(value & 0xFF)
        self.busy = 3

    def give(self, _: Chip) -> int:
        assert self.sent, "a byte was read before one had arrived"
        return self.sent.pop(0)

    def is_free(self) -> bool:
        self.busy = max(self.busy - 1, 0)
        return self.busy == 0


def stm32_v1(line: Line) -> Chip:
    def status(_: Chip) -> int:
        return (bit(5) if line.sent else 0) | (bit(6, 2) if line.is_free() else 0)

    names = {**at(0x40011000, SR=0, DR=4, BRR=8, CR1=0xC, CR2=0x10, CR3=0x14), "ENABLE": 0x40023844}
    rules = [Needs(("CR1", bit(13), bit(13)), [("ENABLE", bit(4), bit(4)), ("BRR", 0xFFFF, 729)])]
    return Chip(names, rules=rules, reads={"SR": status, "DR": line.give}, writes={"DR": line.take})


def stm32_v2(line: Line) -> Chip:
    def status(chip: Chip) -> int:
        return chip.values["ISR"] | (bit(5) if line.sent else 0) | (bit(6, 2) if line.is_free() else 0)

    names = {
        **at(0x40011000, CR1=0, CR2=4, CR3=8, BRR=0xC, ISR=0x1C, ICR=0x20, RDR=0x24, TDR=0x28),
        "ENABLE": 0x40023844,
    }
    rules = [Needs(("CR1", 1, 1), [("ENABLE", bit(4), bit(4)), ("BRR", 0xFFFFF, 938)])]
    clear = {"ICR": lambda chip, value: chip.values.update(ISR=chip.values["ISR"] & ~value), "TDR": line.take}
    return Chip(names, reset={"ISR": 8}, rules=rules, reads={"ISR": status, "RDR": line.give}, writes=clear)


def pl011(line: Line) -> Chip:
    def flags(_: Chip) -> int:
        return (0 if line.sent else bit(4)) | (0 if line.is_free() else bit(3) | bit(5))

    names = {
        **at(
            0x40034000, DR=0, RSR=4, FR=0x18, IBRD=0x24, FBRD=0x28, LCRH=0x2C, CR=0x30, IFLS=0x34, IMSC=0x38, ICR=0x44
        ),
        **at(0x4000C000, RESET=0, DONE=8),
    }
    rules = [
        Ready(("RESET", bit(22), 0), ("DONE", bit(22), bit(22))),
        Needs(("IBRD", 0xFFFF, 67), [("DONE", bit(22), bit(22)), ("CR", 1, 0)]),
        Needs(("LCRH", 0x70, 0x70), [("IBRD", 0xFFFF, 67), ("FBRD", 63, 52)]),
        Needs(("CR", 1, 1), [("LCRH", 0x70, 0x70), ("IMSC", 0x50, 0x50)]),
    ]
    reads = {"FR": flags, "DR": line.give}
    return Chip(names, reset={"RESET": 0x01FFFFFF, "IFLS": 0x12}, rules=rules, reads=reads, writes={"DR": line.take})


def nrf(line: Line) -> Chip:
    def give(chip: Chip) -> int:
        assert chip.values["RXDRDY"] == 0, "the event was not cleared before RXD was read"
        return line.give(chip)

    def event(_: Chip) -> int:
        return 1 if line.sent else 0

    def sent(chip: Chip) -> int:
        return 1 if line.received and line.is_free() else 0

    names = at(
        0x40002000, STARTRX=0, STARTTX=8, RXDRDY=0x108, TXDRDY=0x11C, ERROR=0x124, INTENSET=0x304, ERRORSRC=0x480,
        ENABLE=0x500, PSELTXD=0x50C, PSELRXD=0x514, RXD=0x518, TXD=0x51C, BAUDRATE=0x524, CONFIG=0x56C,
    )  # fmt: skip
    rules = [
        Needs(("ENABLE", 15, 4), [("PSELTXD", 31, 24), ("PSELRXD", 31, 25), ("BAUDRATE", 0xFFFFFFFF, 0x01D7E000)]),
        Needs(("STARTRX", 1, 1), [("ENABLE", 15, 4), ("INTENSET", 4, 4)]),
    ]
    reads = {"RXDRDY": event, "TXDRDY": sent, "RXD": give}
    reset = {"PSELTXD": 0xFFFFFFFF, "PSELRXD": 0xFFFFFFFF, "ERROR": 1, "ERRORSRC": 1}
    return Chip(names, reset=reset, rules=rules, reads=reads, writes={"TXD": line.take}, ones_clear={"ERRORSRC": 15})


def sam(line: Line) -> Chip:
    def status(_: Chip) -> int:
        return (1 if line.sent else 0) | (bit(1) | bit(9) if line.is_free() else 0)

    names = {**at(0x400E0800, CR=0, MR=4, IER=8, SR=0x14, RHR=0x18, THR=0x1C, BRGR=0x20), "PCER": 0x400E0610}
    rules = [
        Needs(("CR", 0x50, 0x50), [("MR", 0xE00, 0x800), ("BRGR", 0xFFFF, 46), ("PCER", bit(8), bit(8)), ("IER", 1, 1)])
    ]
    return Chip(names, rules=rules, reads={"SR": status, "RHR": line.give}, writes={"THR": line.take})


RCC = {"MT_UART_ENABLE": "0x40023844u", "MT_UART_ENABLE_BIT": "4u", "MT_UART_BASE": "0x40011000u"}
SAM = {"MT_UART_ENABLE": "0x400E0610u", "MT_UART_ENABLE_BIT": "8u", "MT_UART_BASE": "0x400E0800u"}
UARTS: dict[str, tuple[str, Callable[[Line], Chip], dict[str, str]]] = {
    "stm32_usart_v1": ("stm32_usart_v1", stm32_v1, {**RCC, "MT_UART_CLOCK_HZ": "84000000u"}),
    "stm32_usart_v2": ("stm32_usart_v2", stm32_v2, {**RCC, "MT_UART_CLOCK_HZ": "108000000u"}),
    "pl011": ("pl011", pl011, MACROS["rpi_pico"]),
    "nrf_uart": ("nrf_uart", nrf, MACROS["microbit"]),
    "sam_usart": ("sam_usart", sam, {**SAM, "MT_UART_CLOCK_HZ": "84000000u"}),
}


@pytest.mark.parametrize("name", UARTS)
def test_a_uart(name: str) -> None:
    driver, of_line, macros = UARTS[name]
    line = Line()
    chip = of_line(line)
    core = Core(chip, driver, {"MT_UART_BAUD": "115200u", **macros})
    core.call("mt_uart_init")
    assert core.call("mt_uart_receive", b"\0") == 0
    line.sent += [0x00, 0xFF, 0x5A]
    for byte in (0x00, 0xFF, 0x5A):
        assert core.call("mt_uart_receive", b"\0") == 1
        assert core.array(1)[0] == byte
    assert core.call("mt_uart_receive", b"\0") == 0
    for byte in (1, 2, 0xFE):
        core.call("mt_uart_send", byte)
    core.call("mt_uart_flush")
    assert line.received == [1, 2, 0xFE] and line.is_free()
    chip.check()


def test_bytes_of_before_are_thrown_away_by_a_pl011() -> None:
    line = Line()
    line.sent += [1, 2, 3]
    Core(pl011(line), "pl011", MACROS["rpi_pico"]).call("mt_uart_init")
    assert line.sent == []


def test_an_overrun_is_cleared() -> None:
    line = Line()
    chip = stm32_v2(line)
    core = Core(chip, "stm32_usart_v2", {"MT_UART_BAUD": "115200u", **UARTS["stm32_usart_v2"][2]})
    assert core.call("mt_uart_receive", b"\0") == 0 and chip.written("ICR") == [15] and chip.values["ISR"] == 0
    chip = replace(stm32_v1(line), reads={"SR": lambda _: bit(3), "DR": lambda _: 0})
    core = Core(chip, "stm32_usart_v1", {"MT_UART_BAUD": "115200u", **UARTS["stm32_usart_v1"][2]})
    assert core.call("mt_uart_receive", b"\0") == 0 and chip.log[-1][:2] == ("read", "DR")
    chip = nrf(Line())
    core = Core(chip, "nrf_uart", MACROS["microbit"])
    assert core.call("mt_uart_receive", b"\0") == 0 and chip.values["ERROR"] == 0 and chip.values["ERRORSRC"] == 0


def test_an_lpuart_counts_256ths() -> None:
    board = boards.get("nucleo_l4r5zi")
    names = {**at(0x40008000, CR1=0, BRR=0xC, ISR=0x1C, ICR=0x20, RDR=0x24, TDR=0x28), "ENABLE": 0x4002105C}
    chip = Chip(names)
    Core(chip, "stm32_usart_v2", MACROS[board.name], board.cpu).call("mt_uart_init")
    assert abs(256 * 120_000_000 / chip.values["BRR"] / 115_200 - 1) < 1e-4


def test_a_uarte_moves_bytes_by_dma() -> None:
    line = Line()
    names = at(
        0x40002000, STARTRX=0, STARTTX=8, ENDRX=0x110, ENDTX=0x120, ERROR=0x124, INTENSET=0x304, ERRORSRC=0x480,
        ENABLE=0x500, PSELTXD=0x50C, PSELRXD=0x514, BAUDRATE=0x524, RXPTR=0x534, RXMAX=0x538, TXPTR=0x544, TXMAX=0x548,
        CONFIG=0x56C,
    )  # fmt: skip

    def transmit(chip: Chip, _: int) -> None:
        assert chip.values["ENDTX"] == 0 and chip.values["TXMAX"] == 1 and line.busy == 0
        line.take(chip, core.memory(chip.values["TXPTR"], 1)[0])

    def done(_: Chip) -> int:
        return 1 if line.is_free() else 0

    rules = [
        Needs(("ENABLE", 15, 8), [("PSELTXD", 31, 6), ("PSELRXD", 31, 8), ("BAUDRATE", 0xFFFFFFFF, 0x01D7E000)]),
        Needs(("STARTRX", 1, 1), [("ENABLE", 15, 8), ("RXMAX", 255, 1), ("RXPTR", RAM, RAM), ("INTENSET", 16, 16)]),
    ]
    chip = Chip(names, rules=rules, reads={"ENDTX": done}, writes={"STARTTX": transmit})
    core = Core(chip, "nrf_uarte", MACROS["nrf52840dk"])
    core.call("mt_uart_init")
    for byte in (7, 8):
        core.call("mt_uart_send", byte)
    core.call("mt_uart_flush")
    assert line.received == [7, 8]
    assert core.call("mt_uart_receive", b"\0") == 0
    chip.values["ENDRX"] = 1
    assert core.call("mt_uart_receive", b"\0") == 1 and chip.values["ENDRX"] == 0
    assert len(chip.written("STARTRX")) == 2
    chip.check()


# Pins.

PINS: dict[str, tuple[Chip, dict[str, int]]] = {
    "nucleo_l4r5zi": (
        Chip(
            {
                **at(0x48001800, MODER=0, PUPDR=0xC, AFRL=0x20, AFRH=0x24),
                **at(0x40021000, AHB2ENR=0x4C, APB1ENR1=0x58),
                "PWR_CR2": 0x40007004,
            },
            reset={"MODER": 0xFFFFFFFF},
            rules=[Needs(("PWR_CR2", bit(9), bit(9)), [("APB1ENR1", bit(28), bit(28))])],
        ),
        {
            "AHB2ENR": bit(6),
            "PWR_CR2": bit(9),
            "AFRL": 8 << 28,
            "AFRH": 8,
            "MODER": 0xFFFFFFFF & ~(5 << 14),
            "PUPDR": 1 << 16,
        },
    ),
    "nucleo_f401re": (
        Chip({**at(0x40020000, MODER=0, PUPDR=0xC, AFRL=0x20), "AHB1ENR": 0x40023830}, reset={"MODER": 0xA8000000}),
        {"AHB1ENR": 1, "AFRL": 0x7700, "MODER": 0xA80000A0, "PUPDR": 1 << 6},
    ),
    "bluepill": (
        Chip(
            {**at(0x40010800, CRL=0, CRH=4, BSRR=0x10), "APB2ENR": 0x40021018},
            reset={"CRL": 0x44444444, "CRH": 0x44444444},
        ),
        {"APB2ENR": 4, "CRL": 0x44444444, "CRH": 0x444448B4},
    ),
    "rpi_pico": (
        Chip(
            {
                **at(0x4000C000, RESET=0, DONE=8),
                **at(0x40014000, CTRL0=4, CTRL1=0xC),
                **at(0x4001C000, PAD0=4, PAD1=8),
            },
            reset={"RESET": 0x01FFFFFF, "CTRL0": 31, "CTRL1": 31},
            rules=[
                Ready(("RESET", 0x120, 0), ("DONE", 0x120, 0x120)),
                Needs(("CTRL0", 31, 2), [("DONE", 0x120, 0x120), ("PAD0", 0x40, 0x40)]),
            ],
        ),
        {"CTRL0": 2, "CTRL1": 2, "PAD0": 0x52, "PAD1": 0x4A, "RESET": 0x01FFFFFF & ~0x120},
    ),
    "nrf52840dk": (
        Chip(at(0x50000000, OUTSET=0x508, CNF6=0x718, CNF8=0x720), reset={"CNF6": 2, "CNF8": 2}),
        {"OUTSET": bit(6), "CNF6": 3, "CNF8": 0xC},
    ),
    "lm3s6965evb": (
        Chip({**at(0x40004000, AFSEL=0x420, DEN=0x51C), "RCGC2": 0x400FE108}),
        {"RCGC2": 1, "AFSEL": 3, "DEN": 3},
    ),
}


@pytest.mark.parametrize("name", PINS)
def test_pins(name: str) -> None:
    model, expected = PINS[name]
    board, chip = boards.get(name), fresh(model)
    Core(chip, str(board.ports["pins"]["driver"]), MACROS[name], board.cpu).call("mt_pins_init")
    chip.check()
    assert {key: chip.values[key] for key in expected} == expected


def test_pins_of_a_sam() -> None:
    chip = Chip(at(0x400E0E00, PDR=4, PUER=0x64, ABSR=0x70), reset={"ABSR": 0xFFFF})
    macros = {"MT_PINS_BASE": "0x400E0E00u", "MT_UART_TX": "9u", "MT_UART_RX": "8u"}
    Core(chip, "sam_pio", macros).call("mt_pins_init")
    assert sorted(chip.written("PDR")) == [bit(8), bit(9)] and chip.values["ABSR"] == 0xFCFF


# Timers.


def ticks(core: Core) -> tuple[int, int]:
    in_range = core.call("mt_timer_stop", bytes(8))
    return in_range, int.from_bytes(core.array(8), "little")


def test_the_cycle_counter() -> None:
    names = {**at(0xE0001000, CTRL=0, CYCCNT=4, COMP0=0x20, FUNCTION0=0x28, LAR=0xFB0), "DEMCR": 0xE000EDFC}
    cycles = iter([1, 2, 1000, 2000])

    def function(chip: Chip) -> int:
        value = chip.values["FUNCTION0"]
        chip.values["FUNCTION0"] = value & ~bit(24)  # reading clears MATCHED
        return value

    rules = [
        Needs(
            ("CTRL", 1, 1), [("DEMCR", bit(24), bit(24)), ("COMP0", 0xFFFFFFFF, 0xFFFFFFFF), ("FUNCTION0", 0x8F, 0x88)]
        )
    ]
    reads = {"CYCCNT": lambda _: next(cycles), "FUNCTION0": function}
    chip = Chip(names, reset={"CTRL": 0x40000000, "FUNCTION0": bit(24)}, rules=rules, reads=reads)
    core = Core(chip, "dwt", {}, "cortex-m4")
    assert core.call("mt_timer_start") == 1 and chip.written("CYCCNT") == [0, 0] and chip.written("LAR") == [0xC5ACCE55]
    assert ticks(core) == (1, 1000)
    chip.values["FUNCTION0"] |= bit(24)
    assert ticks(core) == (0, 2000)
    chip.check()


def test_a_cycle_counter_that_does_not_count() -> None:
    names = {**at(0xE0001000, CTRL=0, CYCCNT=4, COMP0=0x20, FUNCTION0=0x28, LAR=0xFB0), "DEMCR": 0xE000EDFC}
    assert Core(Chip(names, reads={"CYCCNT": lambda _: 0}), "dwt", {}, "cortex-m4").call("mt_timer_start") == 0


def test_systick_counts_beyond_its_24_bits() -> None:
    chip = Chip({**at(0xE000E000, CSR=0x10, RVR=0x14, CVR=0x18, ICSR=0xD04)})
    core = Core(chip, "systick", {"MT_TIMER_HZ": "24000000u"})
    assert core.call("mt_timer_start") == 1 and chip.values["CSR"] == 7 and chip.values["RVR"] == 24_000_000 // 50 - 1
    for _ in range(100):
        core.call("mt_systick_interrupt")
    chip.values["CVR"] = 480_000 - 7
    assert ticks(core) == (1, 100 * 480_000 + 7) and chip.values["CSR"] == 0
    core.call("mt_timer_start")
    chip.values |= {"CVR": 480_000 - 9, "ICSR": bit(26)}  # it has wrapped, and its interrupt has to wait
    assert ticks(core) == (1, 480_000 + 9)
    core.call("mt_systick_watch", 1)
    core.call("mt_timer_start")
    ticks(core)
    assert chip.values["CSR"] == 7, "the watchdog still needs it"
    core.call("mt_systick_watch", 0)
    assert chip.values["CSR"] == 0


def test_a_timer_of_an_stm32() -> None:
    names = {**at(0x40000000, CR1=0, DIER=0xC, SR=0x10, EGR=0x14, CNT=0x24, PSC=0x28, ARR=0x2C), "APB1ENR": 0x40023840}
    rules = [Needs(("CR1", 1, 1), [("APB1ENR", 1, 1), ("ARR", 0xFFFFFFFF, 0xFFFFFFFF), ("SR", 1, 0), ("DIER", 1, 1)])]
    chip = Chip(names, rules=rules, writes={"EGR": lambda chip, _: chip.values.update(SR=1)})
    core = Core(chip, "stm32_tim", MACROS["netduinoplus2"])
    assert core.call("mt_timer_start") == 1 and chip.values["CR1"] == 1
    chip.values["CNT"] = 12345
    assert ticks(core) == (1, 12345)
    core.call("mt_timer_start")
    chip.values |= {"CNT": 5, "SR": 1}
    assert ticks(core) == (0, 5)
    chip.check()


def test_a_timer_of_an_nrf() -> None:
    names = at(
        0x40008000, START=0, STOP=4, CLEAR=0xC, CAPTURE0=0x40, COMPARE1=0x144, SHORTS=0x200, MODE=0x504, BITMODE=0x508,
        PRESCALER=0x510, CC0=0x540, CC1=0x544,
    )  # fmt: skip
    rules = [
        Needs(
            ("START", 1, 1), [("BITMODE", 3, 3), ("PRESCALER", 15, 0), ("CC1", 0xFFFFFFFF, 0xFFFFFFFF), ("CLEAR", 1, 1)]
        )
    ]
    chip = Chip(
        names, reset={"PRESCALER": 4}, rules=rules, writes={"CAPTURE0": lambda chip, _: chip.values.update(CC0=77)}
    )
    core = Core(chip, "nrf_timer", MACROS["microbit"])
    assert core.call("mt_timer_start") == 1 and ticks(core) == (1, 77)
    chip.values["COMPARE1"] = 1
    assert ticks(core) == (0, 77)
    chip.check()


def test_a_timer_of_a_stellaris() -> None:
    names = {**at(0x40030000, CFG=0, TAMR=4, CTL=0xC, RIS=0x1C, ICR=0x24, TAILR=0x28, TAR=0x48), "RCGC1": 0x400FE104}
    rules = [
        Needs(
            ("CTL", 1, 1),
            [("RCGC1", bit(16), bit(16)), ("CFG", 7, 0), ("TAMR", 3, 1), ("TAILR", 0xFFFFFFFF, 0xFFFFFFFF)],
        )
    ]
    chip = Chip(names, reset={"RIS": 1}, rules=rules, writes={"ICR": lambda chip, _: chip.values.update(RIS=0)})
    macros = {"MT_TIMER_BASE": "0x40030000u", "MT_TIMER_ENABLE": "0x400FE104u", "MT_TIMER_ENABLE_BIT": "16u"}
    core = Core(chip, "lm3s_gptm", macros)

    def count_down(chip: Chip) -> int:
        chip.values["TAR"] -= 1
        return chip.values["TAR"]

    assert core.call("mt_timer_start") == 0, "as in QEMU, whose can't be read"
    chip.reads = {"TAR": count_down}
    assert core.call("mt_timer_start") == 1
    chip.reads = {}
    chip.values["TAR"] = 0xFFFFFFFF - 99
    assert ticks(core) == (1, 99)
    chip.values["RIS"] = 1
    assert ticks(core)[0] == 0
    chip.check()


# Flash.

KEYS = (0x45670123, 0xCDEF89AB)


def f1_erases(chip: Chip) -> tuple[int, int] | None:
    return (chip.values["AR"], 1024) if chip.values["CR"] & 0x42 == 0x42 else None


def f4_erases(chip: Chip) -> tuple[int, int] | None:
    if chip.values["CR"] & 0x10002 != 0x10002:
        return None
    sector = chip.values["CR"] >> 3 & 15
    return 0x08000000 + (sector - 4) * 0x20000, 0x20000


def l4_erases(chip: Chip) -> tuple[int, int] | None:
    if chip.values["CR"] & 0x10002 != 0x10002:
        return None
    bank, page = chip.values["CR"] >> 11 & 1, chip.values["CR"] >> 3 & 0xFF
    return 0x08000000 + bank * 0x100000 + page * 4096, 4096


def h7_erases(chip: Chip) -> tuple[int, int] | None:
    if chip.values["CR"] & 0x84 != 0x84:
        return None
    return 0x08100000 + (chip.values["CR"] >> 8 & 7) * 0x20000, 0x20000


def nrf_erases(chip: Chip) -> tuple[int, int] | None:
    return (chip.values["ERASEPAGE"], 4096) if chip.values["ERASEPAGE"] else None


F4_BUSY = [
    Ready(("CR", 0x10002, 0x10002), ("SR", bit(16), 0), after=5),
    Needs(("CR", bit(16), bit(16)), [("CR", 3 << 8, 2 << 8), ("SR", 0xF2, 0)]),
]
L4_BUSY = [
    Ready(("CR", 0x10002, 0x10002), ("SR", bit(16), 0), after=5),
    Needs(("CR", bit(16), bit(16)), [("CR", 2, 2), ("SR", 0xC3FA, 0)]),
]
H7_BUSY = [
    Ready(("CR", 0x84, 0x84), ("SR", 7, 0), after=5),
    Needs(("CR", 0x80, 0x80), [("CR", 4, 4)]),
]


def starts(mask: int, busy: int) -> Callable[[Chip, int], None]:
    """Return what sets the busy bits when an operation starts."""

    def act(chip: Chip, value: int) -> None:
        if value & mask == mask:
            chip.values["SR"] |= busy

    return act


AREA = {"MT_FLASH_START": "0u", "MT_FLASH_BYTES": "0u"}
FLASHES: dict[str, tuple[Callable[[], Chip], dict[str, str], int]] = {
    "stm32f1_flash": (
        lambda: Chip(
            at(0x40022000, KEYR=4, SR=0xC, CR=0x10, AR=0x14),
            reset={"CR": 0x80, "SR": 0x20},
            ones_clear={"SR": 0x34},
            unlock=("KEYR", KEYS, ("CR", 0x80, 0x80)),
            rules=[
                Ready(("CR", 0x42, 0x42), ("SR", 1, 0), after=5),
                Needs(("CR", 0x40, 0x40), [("CR", 2, 2), ("AR", 0xFFFFFFFF, 0x0800F000), ("SR", 0x14, 0)]),
            ],
            writes={"CR": starts(0x42, 1)},
            flash=Flash(0x0800F000, 0x1000, 2, ("CR", 1, 1), f1_erases),
        ),
        {"MT_FLASH_BASE": "0x40022000u", "MT_FLASH_SECTOR": "1024u"},
        0x0800F000,
    ),
    "stm32f4_flash": (
        lambda: Chip(
            at(0x40023C00, ACR=0, KEYR=4, SR=0xC, CR=0x10),
            reset={"CR": bit(31), "ACR": 0x702, "SR": 0x80},
            ones_clear={"SR": 0xF3},
            unlock=("KEYR", KEYS, ("CR", bit(31), bit(31))),
            rules=F4_BUSY,
            writes={"CR": starts(0x10002, bit(16))},
            flash=Flash(0x08060000, 0x20000, 4, ("CR", 0x301, 0x201), f4_erases),
        ),
        {"MT_FLASH_BASE": "0x40023C00u", "MT_FLASH_UNIT": "16384u"},
        0x08060000,
    ),
    "stm32l4_flash": (
        lambda: Chip(
            at(0x40022000, ACR=0, KEYR=8, SR=0x10, CR=0x14),
            reset={"CR": bit(31), "ACR": 0x705, "SR": 0x8000},
            ones_clear={"SR": 0xC3FB},
            unlock=("KEYR", KEYS, ("CR", bit(31), bit(31))),
            rules=L4_BUSY,
            writes={"CR": starts(0x10002, bit(16))},
            flash=Flash(0x08180000, 0x10000, 8, ("CR", 1, 1), l4_erases),
        ),
        {"MT_FLASH_BASE": "0x40022000u", "MT_FLASH_SECTOR": "4096u", "MT_FLASH_BANK": "0x100000u"},
        0x08180000,
    ),
    "stm32h7_flash": (
        lambda: Chip(
            at(0x52002100, KEYR=4, CR=0xC, SR=0x10, CCR=0x14),
            reset={"CR": 1, "SR": bit(17)},
            unlock=("KEYR", KEYS, ("CR", 1, 1)),
            rules=H7_BUSY,
            writes={
                "CR": starts(0x84, 5),
                "CCR": lambda chip, value: chip.values.update(SR=chip.values["SR"] & ~value),
            },
            flash=Flash(0x081C0000, 0x20000, 32, ("CR", 2, 2), h7_erases),
        ),
        {"MT_FLASH_BASE": "0x52002000u"},
        0x081C0000,
    ),
    "nrf_nvmc": (
        lambda: Chip(
            at(0x4001E000, READY=0x400, CONFIG=0x504, ERASEPAGE=0x508),
            reset={"READY": 1},
            rules=[Needs(("ERASEPAGE", 0xFFFFFFFF, 0x000F0000), [("CONFIG", 3, 2)])],
            flash=Flash(0x000F0000, 0x4000, 4, ("CONFIG", 3, 1), nrf_erases),
        ),
        {"MT_FLASH_BASE": "0x4001E000u"},
        0x000F0000,
    ),
}


@pytest.mark.parametrize("name", FLASHES)
def test_a_flash(name: str) -> None:
    make, macros, start = FLASHES[name]
    chip = make()
    core = Core(chip, name, {**AREA, **macros})
    assert chip.flash is not None
    chip.memory[:128] = bytes(128)
    assert core.call("mt_flash_erase", start) == 0
    assert chip.memory[:128] == b"\xff" * 128
    if "ERASEPAGE" in chip.values:
        chip.values["ERASEPAGE"] = 0
    data = bytes(range(64, 128))
    assert core.call("mt_flash_program", start + 64, data, 64) == 0
    assert chip.memory[64:128] == data and chip.memory[:64] == b"\xff" * 64
    chip.check()
    if chip.unlock:
        assert chip.holds(chip.unlock[2]), "it is locked again"
    if "ACR" in chip.values:
        caches = [value & 0x1E00 for value in chip.written("ACR")]
        assert caches[-4:] == [0, 0x1800, 0, 0x600], "the caches are emptied while they are off"


ERRORS = {"stm32f1_flash": 4, "stm32f4_flash": 0x80, "stm32l4_flash": 0x80, "stm32h7_flash": bit(18)}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_the_flash_is_reported(name: str) -> None:
    make, macros, start = FLASHES[name]
    chip = make()
    chip.reads = {"SR": lambda chip: chip.values["SR"] & ~7 & ~bit(16) | ERRORS[name]}
    core = Core(chip, name, {**AREA, **macros})
    assert core.call("mt_flash_erase", start) == 12
    assert core.call("mt_flash_program", start, bytes(64), 64) == 12
    assert chip.unlock and chip.holds(chip.unlock[2])


def test_what_an_nrf_did_not_program_is_noticed() -> None:
    make, macros, start = FLASHES["nrf_nvmc"]
    chip = make()
    assert chip.flash is not None
    core = Core(chip, "nrf_nvmc", {**AREA, **macros})
    chip.memory[0] = 0
    assert core.call("mt_flash_program", start, b"\x01" * 64, 64) == 0
    assert "0x000f0000 was not erased" in chip.wrong


# Random numbers.

WORDS = (0x11223344, 0x55667788, 0x99AABBCC)


def nrf_rng(line: Line) -> Chip:
    names = at(0x4000D000, START=0, STOP=4, VALRDY=0x100, VALUE=0x508)
    reads = {"VALRDY": lambda _: int(line.is_free()), "VALUE": line.give}
    line.sent += [byte for word in WORDS[1:] for byte in word.to_bytes(4, "little")]
    return Chip(names, reads=reads, writes={"VALRDY": lambda _, __: setattr(line, "busy", 3)})


def stm32_rng(line: Line) -> Chip:
    def give(chip: Chip) -> int:
        assert chip.holds(("ENABLE", bit(12), bit(12))) and chip.holds(("CLOCK", bit(1), bit(1)))
        line.busy = 3
        return line.give(chip)

    names = {**at(0x48021800, CR=0, SR=4, DR=8), "ENABLE": 0x580244DC, "CLOCK": 0x58024400}
    rules = [
        Ready(("CLOCK", 1, 1), ("CLOCK", 2, 2)),
        Needs(("CR", 4, 4), [("CLOCK", 2, 2), ("ENABLE", bit(12), bit(12))]),
    ]
    line.sent += WORDS
    return Chip(names, rules=rules, reads={"SR": lambda _: int(line.is_free()), "DR": give})


RANDOMS = {
    "nrf_rng": (nrf_rng, MACROS["nrf52840dk"]),
    "stm32_rng": (
        stm32_rng,
        {
            **{"MT_RANDOM_BASE": "0x48021800u", "MT_RANDOM_ENABLE": "0x580244DCu", "MT_RANDOM_ENABLE_BIT": "12u"},
            **{"MT_RANDOM_OSCILLATOR": "0x58024400u", "MT_RANDOM_OSCILLATOR_BIT": "0u"},
        },
    ),
}


@pytest.mark.parametrize("name", RANDOMS)
def test_random_numbers(name: str) -> None:
    of_line, macros = RANDOMS[name]
    chip = of_line(Line())
    core = Core(chip, name, macros)
    assert core.call("mt_port_random", bytes(8), 8) == 0
    assert core.array(8) == b"".join(word.to_bytes(4, "little") for word in WORDS[1:])
    chip.check()
    chip = of_line(Line())
    chip.reads = dict.fromkeys(chip.reads, lambda _: 0)
    assert Core(chip, name, macros).call("mt_port_random", bytes(8), 8) == 12, "it waits no longer"


def test_random_bits_of_an_rp2040() -> None:
    bits = [0] * 1024
    for one in (0, 64, 100, 512 + 3, 1023):  # an even number in the second bit's
        bits[one] = 1
    bits[65] = 1
    chip = Chip({"RANDOMBIT": 0x4006001C}, reads={"RANDOMBIT": lambda _: bits.pop(0)})
    core = Core(chip, "rp2040_rosc", {}, "cortex-m0plus")
    assert core.call("mt_port_random", bytes(2), 2) == 0
    assert core.array(2) == bytes([0b11, 0b10000001]) and bits == []


# RP2040's second stage.


def test_the_second_stage_of_an_rp2040() -> None:
    import unicorn
    from unicorn import arm_const

    text = (CRT / "ports" / "mt_rp2040_boot.c").read_text()
    table, last = text.partition("= {")[2].split("[63] =")
    words = [int(word, 16) for word in re.findall(r"0x([0-9A-F]{8})u", table)]
    image = b"".join(word.to_bytes(4, "little") for word in words).ljust(252, b"\0")
    crc = 0xFFFFFFFF
    for byte in image:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc & bit(31) else 0)) & 0xFFFFFFFF
    assert int(re.findall(r"0x([0-9A-F]{8})u", last)[0], 16) == crc
    written: dict[int, int] = {}
    uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)

    def write(_: Any, offset: int, __: int, value: int, base: int) -> None:
        assert base != 0x18000000 or offset == 8 or written.get(0x18000008) == 0, "the SSI is set up while it is off"
        written[base + offset] = value

    for base in (0x18000000, 0xE000E000):
        uc.mmio_map(base, 0x1000, lambda *_: 0, None, write, base)
    uc.mem_map(0x20040000, 0x2000)
    uc.mem_map(0x10000000, 0x1000)
    uc.mem_write(0x20041F00, image)
    uc.mem_write(0x10000100, (0x20041000).to_bytes(4, "little") + (0x10000201).to_bytes(4, "little"))
    uc.emu_start(0x20041F01, 0x10000200, count=100)
    assert uc.reg_read(arm_const.UC_ARM_REG_PC) == 0x10000200 and uc.reg_read(arm_const.UC_ARM_REG_SP) == 0x20041000
    ssi = {key - 0x18000000: value for key, value in written.items() if key < 0xE0000000}
    assert ssi == {0x08: 1, 0x14: 4, 0x00: 0x001F0300, 0xF4: 0x03000218, 0x04: 0} and written[0xE000ED08] == 0x10000100


def test_the_flash_of_an_rp2040() -> None:
    """The ROM's functions are called in their order, from RAM, and a page keeps what is not to be programmed."""
    start, said = 0x10000000, []
    chip = Chip({}, flash=Flash(start, 0x2000, 1, ("X", 0, 0), lambda _: None))

    def record(name: str) -> Callable[[Core], None]:
        def act(core: Core) -> None:
            assert RAM <= core.caller() < RAM + 0x10000, f"{name} returns to the flash"
            said.append(name)
            offset, second = core.argument(0), core.argument(1)
            if name == "RE":
                assert (core.argument(2), core.argument(3)) == (65536, 0xD8)
                chip.memory[offset : offset + second] = b"\xff" * second
            elif name == "RP":
                page = core.memory(second, core.argument(2))
                chip.memory[offset : offset + len(page)] = bytes(
                    a & b for a, b in zip(chip.memory[offset:], page, strict=False)
                )

        return act

    core = Core(chip, "rp2040_flash", {**AREA, "MT_FLASH_SECTOR": "4096u"}, "cortex-m0plus")
    core.rom({name: record(name) for name in ("IF", "EX", "RE", "RP", "FC", "CX")})
    chip.memory[0x1000:0x1100] = bytes(256)
    assert core.call("mt_flash_erase", start + 0x1000) == 0 and said == ["IF", "EX", "RE", "FC", "CX"]
    data = bytes(range(1, 65)) * 4
    assert core.call("mt_flash_program", start + 0x1080, data, 256) == 0
    assert said[5:] == ["IF", "EX", "RP", "FC", "CX"] * 2
    assert chip.memory[0x1000:0x1200] == b"\xff" * 128 + data + b"\xff" * 128
