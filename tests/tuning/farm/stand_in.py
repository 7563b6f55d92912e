"""A worker with simulated boards: they wait as long as flashing and a serial line would, and compute nothing.

    python -m tests.tuning.farm.stand_in ADDRESS BOARDS [BEHAVIOUR...]

A firmware is the time of each operator, as JSON. Each BEHAVIOUR is of one board, the first first: "good", "dead" (it
can't be flashed), "hangs" (in the middle of the second slice).
"""

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mtool.base.errors import CommunicationError, DeviceError, FlashError
from mtool.compiler.tuned.record import Unit
from mtool.tuning.farm.messages import Bundle
from mtool.tuning.farm.worker import Service, serve
from mtool.tuning.farm.worker_boards import HeldBoard, WorkerBoards
from mtool.tuning.measuring import IDLE, Operators, WholeRun

BOARD = "stand_in"
IDLE_NS = 500.0


@dataclass
class Firmware:
    """The nanoseconds of each operator, those that a board does not survive, and how long things take, in seconds."""

    times: Mapping[str, float]
    killers: Sequence[str] = ()
    flash_s: float = 0.02
    call_s: float = 0.0
    unit: Unit = "ns"

    def bundle(self, toolchain: str) -> Bundle:
        return Bundle({"firmware": json.dumps(self.__dict__).encode()}, toolchain)

    @classmethod
    def of(cls, bundle: Bundle) -> "Firmware":
        return cls(**json.loads(bundle.files["firmware"]))


@dataclass
class StandInMeter:
    firmware: Firmware
    behaviour: str
    is_dead: bool = False
    granularity: float = 40.0

    @property
    def unit(self) -> Unit:
        return self.firmware.unit

    def begin(self, names: Operators) -> None:
        time.sleep(self.firmware.call_s)

    def time(self, operator: str, number: int) -> float:
        time.sleep(self.firmware.call_s)
        if operator in self.firmware.killers:
            self.is_dead = True
            raise DeviceError("hard fault")
        own = self.firmware.times.get(operator, 1000.0) if operator != IDLE else 0.0
        return (own + IDLE_NS) * number

    def differences(self, names: Operators) -> int:
        if self.behaviour == "hangs":
            time.sleep(3600)
        time.sleep(self.firmware.call_s)
        return 0

    def restart(self) -> None:
        if self.is_dead:
            raise CommunicationError("it does not come back")
        time.sleep(self.firmware.flash_s)


@dataclass
class StandInOpened:
    meter: Any


@dataclass
class StandInOpener:
    behaviour: str = "good"
    opened: int = 0

    @contextmanager
    def open(self, bundle: Bundle) -> Iterator[StandInOpened]:
        firmware = Firmware.of(bundle)
        time.sleep(firmware.flash_s)
        if self.behaviour == "dead":
            raise FlashError("no probe answers")
        self.opened += 1
        yield StandInOpened(StandInMeter(firmware, self.behaviour if self.opened > 1 else "good"))

    def run(self, bundle: Bundle, unit: Unit) -> WholeRun:
        firmware = Firmware.of(bundle)
        return WholeRun((), (sum(firmware.times.values()),))


def worker_boards_of(count: int, behaviours: Sequence[str] = ()) -> WorkerBoards:
    hang_s = 2.0 if "hangs" in behaviours else 120.0
    kinds = [*behaviours, *["good"] * (count - len(behaviours))]
    boards = [
        HeldBoard(BOARD, f"{BOARD} {number} of {os.getpid()}", StandInOpener(kind)) for number, kind in enumerate(kinds)
    ]
    return WorkerBoards(boards, hang_s)


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    address, count, *behaviours = sys.argv[1:]
    serve(Service(address, worker_boards_of(int(count), behaviours)))
