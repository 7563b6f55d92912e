"""Modules under memory protection (--modules): same results, and only a hostile one is ended."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mtool
from mtool.base.errors import DeviceError
from mtool.commands import modules
from mtool.device import session
from mtool.manifest.modules import format as file_format
from mtool.manifest.modules import keys
from mtool.stages.options import Options, module_options
from tests.device.session import faulty, protected

BOARD = "mps2_an386"
TOOLS = ("arm-none-eabi-as", "arm-none-eabi-objcopy", "arm-none-eabi-nm", "qemu-system-arm", "cmake", "ninja")

# entry(arena, number, table): where `number` is WHEN, write to WHERE; else nothing.
HOSTILE = """
.syntax unified
.thumb
    movw r3, #WHEN
    cmp r1, r3
    bne 1f
    movw r3, #:lower16:WHERE
    movt r3, #:upper16:WHERE
    str r3, [r3]
1:  movs r0, #0
    bx lr
"""


def hostile(folder: Path, module: file_format.Module, when: int, where: int) -> bytes:
    """Return a module that is signed and well formed, whose code writes to an address."""
    (folder / "code.s").write_text(HOSTILE.replace("WHEN", f"{when:#x}").replace("WHERE", f"{where:#x}"))
    for command in (
        ["arm-none-eabi-as", "-mcpu=cortex-m4", "-o", "code.o", "code.s"],
        ["arm-none-eabi-objcopy", "-O", "binary", "-j", ".text", "code.o", "code.bin"],
    ):
        subprocess.run(command, cwd=folder, check=True, timeout=60)
    code = (folder / "code.bin").read_bytes()
    image = module.image[: module.entry] + code + module.image[module.entry + len(code) :]
    return modules.sealed(replace(module, image=image, counter=9), modules.signer_of(folder / "own.key"))


def address_of(firmware: Path, symbol: str) -> int:
    listed = subprocess.run(["arm-none-eabi-nm", firmware], capture_output=True, text=True, check=True, timeout=60)
    return next(int(line.split()[0], 16) for line in listed.stdout.splitlines() if line.endswith(f" {symbol}"))


@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason="the Arm toolchain or QEMU is not installed")
@pytest.mark.slow
def test_modules_run_under_memory_protection(tmp_path: Path) -> None:
    check(tmp_path)


def check(tmp_path: Path, template: str = "") -> None:
    """Load a module that the firmware calls, and two that write into its arena."""
    keys.make(tmp_path / "own.key")
    made = modules.make_module(
        faulty.DIGITS, board=BOARD, key=tmp_path / "own.key", counter=1, options=Options(name="net")
    )
    modules.write_module(made, tmp_path / "net.mtm")
    taken = module_options(True, tmp_path / "own.key.pub")
    options = Options(name="own", template=template, template_options=taken)  # protected by default
    prepared = mtool.prepare(faulty.DIGITS, board=BOARD, folder=tmp_path / "project", options=options)
    arena = address_of(prepared.built.firmware["host_driven"], "own_arena")
    module, _ = modules.read_module(tmp_path / "net.mtm")
    image = protected.image()
    with session.open(prepared.folder, timeout_s=30) as device:
        expected = device.run(image)["scores"]
        for is_in_ram in (False, True):
            device.load(tmp_path / "net.mtm", ram=is_in_ram)
            np.testing.assert_array_equal(device["net"].run(image)["scores"], expected)
        assert device["net"].time(2, 1).median > 0
        with pytest.raises(DeviceError, match=r"^MemManage") as caught:  # as it is opened
            device.load(hostile(tmp_path, module, 0xFFFE, arena), ram=True)
        assert f"MMFAR {arena:#010x}" in caught.value.details[0]
        np.testing.assert_array_equal(device["own"].run(image)["scores"], expected)
        np.testing.assert_array_equal(device["net"].run(image)["scores"], expected)  # the one in flash
        device.load(hostile(tmp_path, module, 0xFFFF, arena), ram=True)
        for _ in range(2):
            with pytest.raises(DeviceError, match=r"^MemManage"):
                device["net"].run(image, in_steps=False)
            np.testing.assert_array_equal(device["own"].run(image)["scores"], expected)
        device.load(hostile(tmp_path, module, 0xFFFF, arena), trial=3)
        with pytest.raises(DeviceError, match=r"^MemManage"):
            device["net"].run(image, in_steps=False)
    with session.open(prepared.folder, timeout_s=30) as device:  # the fault has ended the trial
        np.testing.assert_array_equal(device["net"].run(image)["scores"], expected)
