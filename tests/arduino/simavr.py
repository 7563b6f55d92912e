"""Run a sketch in simavr: its UART is a transport."""

import contextlib
import os
import shutil
import subprocess
import tty
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mtool import manifest
from mtool.device.build import Built
from mtool.device.session import Device
from mtool.device.transport import ProcessTransport, emulator

HEADER = Path("/usr/include/simavr/sim_avr.h")
CORE = Path("/usr/share/arduino/hardware/arduino/avr")
_START_S = 20.0


def need_the_core() -> None:
    """Skip the test unless sketches can be built with the plain AVR core."""
    for program in ("avr-gcc", "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if not CORE.is_dir():
        pytest.skip("arduino-core-avr is not installed")


def need() -> None:
    """Skip the test unless sketches can be built with the plain AVR core and run in simavr."""
    need_the_core()
    if not HEADER.is_file():
        pytest.skip("libsimavr-dev is not installed")


def command(built: Built, kind: str) -> list[str]:
    """Return the argv that runs a firmware with its UART as standard input and output."""
    project = built.manifest.project
    assert project is not None
    assert project.board.emulator is not None
    return emulator.command(project.board.emulator, built.firmware[kind].absolute(), channel="uart")


@contextlib.contextmanager
def plugged_in(argv: Sequence[str]) -> Iterator[str]:
    """Run a simulator's argv and yield the name of the port that leads to its UART."""
    device, port = os.openpty()
    tty.setraw(port)
    with subprocess.Popen(argv, stdin=device, stdout=device) as process:
        try:
            yield os.ttyname(port)
        finally:
            process.kill()
            os.close(device)
            os.close(port)


def start(built: Built, kind: str) -> ProcessTransport:
    """Start a firmware; bytes arrive as fast as its UART's rate allows."""
    project = built.manifest.project
    assert project is not None and project.board.usb is not None
    transport = ProcessTransport(command(built, kind), name="simavr", bytes_per_second=project.board.usb.uart / 10)
    transport.is_lossless = False
    return transport


def open_device(built: Built) -> Device:
    """Open a session with the host-driven sketch."""
    return Device(manifest.load(built.folder), start(built, "host_driven"), timeout_s=_START_S)
