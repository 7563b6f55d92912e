"""Each tool's failures and mtool's errors for them. The tools are scripts that only print."""

import dataclasses
import os
from pathlib import Path

import pytest

from mtool.base.errors import BoardError, FlashError, MtoolError
from mtool.device import flash
from mtool.device.flash import all_runners, runner
from tests.device.flash.jobs import fake, job
from tests.device.flash.known import NO_PROBE

PERMISSION = {
    "west": "Error: libusb_open() failed with LIBUSB_ERROR_ACCESS\nError: open failed",
    "openocd": "Error: libusb_open() failed with LIBUSB_ERROR_ACCESS\nError: open failed",
    "pyocd": "USBError: [Errno 13] Access denied (insufficient permissions)",
    "st-flash": "WARN usb.c: Could not open USB device, LIBUSB_ERROR_ACCESS\nCouldn't find any ST-Link devices",
    "dfu-util": "Cannot open DFU device 0483:df11: LIBUSB_ERROR_ACCESS\nNo DFU capable USB device available",
    "avrdude": "avrdude OS error: cannot open port /dev/ttyACM7: Permission denied",
    "bossac": "Permission denied on ttyACM7",
    "esptool": "[Errno 13] could not open port /dev/ttyACM7: Permission denied: '/dev/ttyACM7'",
    "arduino-cli": 'ser_open(): can\'t open device "/dev/ttyACM7": Permission denied',
}
WRONG_CHIP = {
    "west": "Warn: target UNEXPECTED idcode: 0x6ba02477",
    "openocd": "Error: stm32f7x.cpu: expected 1 of 1: 0x5ba02477",
    "pyocd": "CRITICAL Error: Target type stm32f746zg not recognized.",
    "st-flash": "ERROR common.c: unknown chip id! 0x410",
    "nrfjprog": "ERROR: The --family option given with the command (NRF52) does not match the family of the device",
    "jlink": "Unknown device: the specified device is unknown to this software version",
    "avrdude": "avrdude: Expected signature for ATmega328P is 1E 95 0F",
    "bossac": "Device unsupported",
    "esptool": "A fatal error occurred: This chip is ESP32-C3 not ESP32-S3. Wrong --chip argument?",
    "gdb": "Cannot access memory at address 0x8000000\nLoad failed",
}
LOCKED = {
    "openocd": "Error: stm32x device is read-protected",
    "pyocd": "C Flash is read protected; target is locked",
    "st-flash": "ERROR: Flash is read out protected (RDP level 1)",
    "stm32cubeprogrammer": "Error: Read Out Protection is activated, RDP level 1",
    "nrfjprog": "ERROR: The operation attempted is unavailable due to readback protection in your device.",
    "nrfutil": "Error: access protection is enabled (APPROTECT)",
    "jlink": "The device is locked: read protect is active. secured",
    "dfu-util": "dfu-util: state(10) = dfuERROR, status(11) = errVENDOR: read protect",
}
NO_BOOT_LOADER = {  # avrdude 7.1 and 6.3, asked for an Uno at a pseudo-terminal where nothing answers
    "avrdude": "avrdude error: programmer is not responding\n"
    "avrdude warning: attempt 10 of 10: not in sync: resp=0x00\n"
    "avrdude error: unable to open programmer arduino on port /dev/ttyACM7",
    "arduino-cli": "avrdude: stk500_recv(): programmer is not responding\n"
    "avrdude: stk500_getsync() attempt 10 of 10: not in sync: resp=0xaa",
}
BUSY = {
    "avrdude": "avrdude OS error: cannot open port /dev/ttyACM7: Device or resource busy",
    "dfu-util": "Cannot claim interface 0: LIBUSB_ERROR_BUSY",
    "esptool": "Could not open /dev/ttyACM7, the port is busy or doesn't exist.",
}
VERIFY = {
    "openocd": "Error: ** Verify Failed **\nchecksum mismatch",
    "avrdude": "avrdude error: verification mismatch\n  first mismatch at byte 0x0000",
    "esptool": "A fatal error occurred: MD5 of file does not match data in flash!",
    "gdb": "Transfer rate: 1 KB/sec\nSection .text, range 0x0 -- 0x10: MIS-MATCHED!",
}


def cases(table: dict[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("runner", "says"), table.items(), ids=list(table))


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/bin{os.pathsep}/usr/bin")
    monkeypatch.setattr(runner, "is_wsl", lambda: False)
    return folder


NO_BOARD = BoardError.exit_code


def fail(
    tools: Path, runner: str, says: str, *, probe: str = "", ends: int = 1, code: int = FlashError.exit_code
) -> MtoolError:
    """Flash with a fake tool that fails, and return the error, which has an exit code."""
    given = job(runner, tools.parent / "project", port="/dev/ttyACM7", probe=probe)
    given.firmware.parent.mkdir(parents=True, exist_ok=True)
    given.firmware.write_bytes(b"\x7fELF")
    for helper in ("arm-none-eabi-objcopy", "stty"):
        fake(tools, helper)
    fake(tools, all_runners()[runner].programs[0], says=says, ends=ends)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mtool.device.flash.flashing.time.sleep", lambda seconds: None)
        patch.setattr(type(all_runners()[runner]), "files", lambda self, job: {})
        with pytest.raises(MtoolError) as caught:
            flash.flash(all_runners()[runner], given)
    assert caught.value.exit_code == code
    assert caught.value.details[0].startswith("$ ")
    assert caught.value.details[-1] == says.splitlines()[-1].strip()
    return caught.value


@cases(NO_PROBE)
def test_no_probe(runner: str, says: str, tools: Path) -> None:
    error = fail(tools, runner, says, code=NO_BOARD)
    assert "found no some_board" in error.what
    assert "mtool boards --attached" in error.hint


def test_every_runner_knows_that_it_found_nothing() -> None:
    assert set(NO_PROBE) == set(all_runners()) - {"command"}  # with unknown messages


def test_a_probe_that_is_not_there_is_named(tools: Path) -> None:
    error = fail(tools, "openocd", NO_PROBE["openocd"], probe="0671FF39", code=NO_BOARD)
    assert error.what == "openocd found no some_board with the probe 0671FF39"


def test_on_wsl_the_hint_is_usbipd(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "is_wsl", lambda: True)
    error = fail(tools, "openocd", NO_PROBE["openocd"], code=NO_BOARD)
    assert "usbipd bind --busid" in error.hint and "usbipd attach --wsl" in error.hint


@pytest.mark.parametrize(("release", "wsl"), [("5.15.90.1-microsoft-standard-WSL2", True), ("6.1.0-18-amd64", False)])
def test_wsl_is_recognized_by_its_kernel(release: str, wsl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: release)
    assert runner.is_wsl() is wsl


@cases(NO_BOOT_LOADER)
def test_a_port_where_no_boot_loader_answers(runner: str, says: str, tools: Path) -> None:
    error = fail(tools, runner, says)
    assert error.what.startswith(f"{runner} opened /dev/ttyACM7, but some_board's boot loader does not answer")
    assert "check the port" in error.hint and "57600" in error.hint


@cases(PERMISSION)
def test_permission(runner: str, says: str, tools: Path) -> None:
    error = fail(tools, runner, says)
    assert "has no permission to use /dev/ttyACM7" in error.what
    assert "usermod -aG dialout" in error.hint


def test_permission_of_a_probe_is_a_udev_rule(tools: Path) -> None:
    hint = runner.permission_hint(job("openocd").board, "")
    assert 'ATTRS{idVendor}=="0483"' in hint and "udevadm control --reload" in hint


@cases(WRONG_CHIP)
def test_wrong_chip(runner: str, says: str, tools: Path) -> None:
    assert "found a chip that is not some_board's" in fail(tools, runner, says).what


@cases(LOCKED)
def test_locked_flash(runner: str, says: str, tools: Path) -> None:
    error = fail(tools, runner, says)
    assert error.what == "the flash of some_board is locked"
    assert all_runners()[runner].programs[0] in error.hint


@cases(BUSY)
def test_busy(runner: str, says: str, tools: Path) -> None:
    assert "is in use by another program" in fail(tools, runner, says).what


@cases(VERIFY)
def test_what_reads_back_differently(runner: str, says: str, tools: Path) -> None:
    assert "differs from what" in fail(tools, runner, says).what


@pytest.mark.parametrize("runner", [name for name in all_runners() if name != "command"])
def test_a_failure_of_another_kind_shows_the_last_lines(runner: str, tools: Path) -> None:
    error = fail(tools, runner, "one\n\ntwo of something odd", ends=42)
    assert error.what == f"{all_runners()[runner].programs[0]} failed with exit code 42"
    assert error.details[1:] == ("one", "two of something odd")


@pytest.mark.parametrize("runner", ["pyocd", "gdb"])
def test_exit_code_0_is_not_enough(runner: str, tools: Path) -> None:
    assert "found no some_board" in fail(tools, runner, NO_PROBE[runner], ends=0, code=NO_BOARD).what


def test_a_tool_that_hangs_is_ended(tools: Path) -> None:
    given = job("openocd", tools.parent)
    given.firmware.parent.mkdir(parents=True)
    given.firmware.write_bytes(b"")
    fake(tools, "openocd")
    (tools / "openocd").write_text('#!/bin/sh\ncase "$*" in *--version*) echo 0.12.0; exit;; esac\nexec sleep 60\n')
    with pytest.raises(FlashError, match=r"flashing some_board with openocd took more than 0.3 s"):
        flash.flash(dataclasses.replace(all_runners()["openocd"], timeout_s=0.3), given)


def test_a_working_setup_is_reported(tools: Path) -> None:
    given = job("st-flash", tools.parent / "project", probe="X")
    given.firmware.parent.mkdir(parents=True)
    given.firmware.write_bytes(b"")
    for name in ("st-flash", "arm-none-eabi-objcopy"):
        fake(tools, name)
    flashed = flash.flash(all_runners()["st-flash"], given)
    assert (flashed.runner, flashed.verified) == ("st-flash", True)
    ran = (tools / "log").read_text().splitlines()
    assert [line.split()[0] for line in ran] == ["arm-none-eabi-objcopy", "st-flash"]


def test_a_serial_port_without_permission_is_reported_before_the_tool_is_run(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tools, "avrdude")
    given = job("avrdude", tools.parent, port="/dev/null")
    given.firmware.parent.mkdir(parents=True)
    given.firmware.write_bytes(b"")
    access = os.access
    monkeypatch.setattr("os.access", lambda path, mode: str(path) != "/dev/null" and access(path, mode))
    with pytest.raises(FlashError, match="avrdude has no permission to use /dev/null") as caught:
        flash.flash(all_runners()["avrdude"], given)
    assert "dialout" in caught.value.hint and not (tools / "log").exists()
