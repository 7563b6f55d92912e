"""Firmware that unicorn runs in this process, while the caller waits for its bytes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from elftools.common.exceptions import ELFError

from mtool.base import distribution
from mtool.base.errors import BuildError, CommunicationError, MtoolError
from mtool.boards import Board
from mtool.device.transport.base import Transport

if TYPE_CHECKING:
    from mtool.device.transport.unicorn.machine import Machine

PROGRAM = "unicorn"
"""The name of this emulator in boards.yaml; its argument is the core."""


class UnicornTransport(Transport):
    """Run firmware and communicate with it through its registers.

    Args:
        board: the board that is emulated.
        elf: the firmware.
        on_exit: returns the error for the firmware's exit status, or None.

    Raises:
        BuildError: the package unicorn is not installed, or does not have the core.
        CommunicationError: the firmware can't be run.
    """

    is_lossless = True
    bytes_per_second = 1e6

    def __init__(self, board: Board, elf: Path, *, on_exit: Callable[[int], MtoolError | None] | None = None) -> None:
        self.name = f"the emulator {PROGRAM}"
        self._on_exit = on_exit
        self._machine: Machine | None = _machine(board, elf)

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Send all of `data`: the firmware receives it when it runs."""
        self._running().received += data

    def read(self, *, timeout_s: float) -> bytes:
        """Run the firmware until it sends something; empty after `timeout_s` without a byte."""
        machine = self._running()
        deadline = time.monotonic() + timeout_s
        while not machine.sent and machine.status is None and not (machine.is_waiting and not machine.received):
            rest_s = deadline - time.monotonic()
            if rest_s <= 0:
                return b""
            machine.run(rest_s)
        if machine.sent:
            data = bytes(machine.sent)
            machine.sent.clear()
            return data
        if machine.status is not None:
            meant = self._on_exit(machine.status) if self._on_exit is not None else None
            raise meant or CommunicationError(f"{self.name} ended with exit code {machine.status}")
        time.sleep(max(deadline - time.monotonic(), 0.0))  # the firmware waits, and so does the caller
        return b""

    def close(self) -> None:
        """Stop the firmware permanently."""
        self._machine = None

    def _running(self) -> "Machine":
        if self._machine is None:
            raise CommunicationError(f"{self.name} was closed")
        return self._machine


def _machine(board: Board, elf: Path) -> "Machine":
    try:
        from mtool.device.transport.unicorn.machine import CORES, Machine
    except ImportError as missing:
        raise BuildError(
            f"{PROGRAM} is not installed", details=[str(missing)], hint=distribution.install("emulator")
        ) from None
    assert board.emulator is not None
    arguments, timer = board.emulator.arguments, board.timer
    if len(arguments) != 1 or arguments[0] not in CORES or timer is None:
        details = [f"found     {' '.join(arguments) or 'no argument'}", f"expected  one of {', '.join(CORES)}"]
        hint = "an entry for this emulator needs one argument, the core, and a timer: see docs/pip-only.md"
        raise BuildError(f"{PROGRAM} can't emulate {board.name}", details=details, hint=hint)
    try:
        return Machine(elf, cpu=arguments[0], memories=board.memories, registers=timer.base)
    except (OSError, ELFError, MemoryError) as failed:
        raise CommunicationError(f"can't run {elf}", details=[str(failed)], hint="build it again") from None
