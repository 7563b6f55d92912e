"""A configure run's results as an entry of boards.yaml; the recordings are Zephyr 4.1's, shortened."""

from typing import Any

import pytest

from mtool import boards
from mtool.boards.zephyr.describing import Configured, entry_of

AN547 = {
    "ARCH": "arm", "BOARD_TARGET": "mps3/corstone300/an547", "CPU_CORTEX_M55": "y", "ARMV8_M_DSP": "y", "XIP": "y",
    "ARMV8_1_M_MVEI": "y", "ARMV8_1_M_MVEF": "y", "CPU_HAS_FPU": "y", "FPU": "y", "CORTEX_M_SYSTICK": "y",
    "SYS_CLOCK_HW_CYCLES_PER_SEC": "25000000", "FLASH_SIZE": "512", "FLASH_BASE_ADDRESS": "0x10000000",
    "SRAM_SIZE": "512", "SRAM_BASE_ADDRESS": "0x30000000",
}  # fmt: skip
RV32 = {
    "ARCH": "riscv", "RISCV_ISA_RV32I": "y", "RISCV_ISA_EXT_M": "y", "RISCV_ISA_EXT_A": "y", "RISCV_ISA_EXT_C": "y",
    "CPU_HAS_FPU": "y", "SRAM_SIZE": "262144", "SRAM_BASE_ADDRESS": "0x80000000",
    "SYS_CLOCK_HW_CYCLES_PER_SEC": "10000000",
}  # fmt: skip
L4 = {
    **AN547, "CPU_CORTEX_M55": "n", "CPU_CORTEX_M4": "y", "ARMV8_M_DSP": "n", "ARMV8_1_M_MVEI": "n",
    "FLASH_LOAD_OFFSET": "0x10000", "FLASH_LOAD_SIZE": "0x20000",
}  # fmt: skip
QEMU = (
    "/usr/bin/qemu-system-arm -cpu cortex-m55 -machine mps3-an547 -nographic -vga none -net none -pidfile qemu.pid "
    "-chardev stdio,id=con,mux=on -serial chardev:con -mon chardev=con,mode=readline -rtc clock=vm "
    "-icount shift=7,align=off,sleep=off -kernel"
)
RUNNERS = {
    "flash-runner": "stm32cubeprogrammer",
    "args": {"stm32cubeprogrammer": ["--port=swd"], "jlink": ["--dt-flash=y", "--device=STM32L4R5ZI"], "openocd": None},
}


def board(kconfig: dict[str, str], *, emulator: str = "", **values: Any) -> boards.Board:
    found = Configured(kconfig, {}, values.pop("runners", {}), values.pop("flags", ()), tuple(emulator.split()), ())
    entry = entry_of(found, "a/b", description="A", source="s", compiler="arm-none-eabi-gcc")
    return boards.Board.model_validate({"name": "zephyr:a/b", **entry})


def test_a_helium_board_in_qemu() -> None:
    made = board(AN547, emulator=QEMU)
    known = boards.get("mps3_an547")
    assert (made.cpu, made.features) == (known.cpu, known.features)
    assert made.region_for("code") == "flash" and made.memories["flash"].base == known.memories["itcm"].base
    assert made.emulator is not None and made.timer is not None and made.timer.unit == "instructions"
    assert made.emulator.program == "qemu-system-arm" and made.emulator.uart == ("-serial", "stdio")
    words = " ".join(made.emulator.arguments)
    assert words.startswith("-cpu cortex-m55 -machine mps3-an547 -icount shift=0,sleep=off")
    assert words.endswith("-kernel {elf}") and "pidfile" not in words and "chardev" not in words
    assert made.folder_name == "zephyr-a-b" and made.templates == {"zephyr": "a/b"}


def test_a_board_of_risc_v_with_one_memory() -> None:
    made = board(RV32)
    assert (made.cpu, made.features, made.clock_hz) == ("rv32imac", frozenset(), 0)
    assert [*made.memories] == ["sram"] and made.region_for("weights") == made.region_for("arena") == "sram"
    assert made.emulator is None and made.timer is None
    # Zephyr's Kconfig has no letter for the FPU that the application asks for; the compiler's flags have.
    made = board({**RV32, "FPU": "y"}, flags=("-mabi=ilp32f", "-march=rv32imafc_zicsr_zifencei"))
    assert (made.cpu, made.features) == ("rv32imafc", {"fpu"})


@pytest.mark.parametrize(("has", "features"), [({"FPU": "y"}, {"fpu", "dsp"}), ({"FPU": "n"}, {"dsp"})])
def test_a_board_behind_a_boot_loader(has: dict[str, str], features: set[str]) -> None:
    made = board({**L4, **has}, runners=RUNNERS)
    assert made.cpu == "cortex-m4" and made.features == features
    assert (made.memories["flash"].base, made.memories["flash"].size) == (0x10010000, 0x20000)
    assert made.flash == {
        "west": {"runner": "stm32cubeprogrammer"},
        "jlink": {"device": "STM32L4R5ZI"},
        "stm32cubeprogrammer": {},
    }
