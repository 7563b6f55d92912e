"""A meter: a board that runs a trial, of which one operator after another is timed."""

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from mtool.base.errors import CommunicationError, MtoolError, NoAnswerError
from mtool.compiler.ir import TensorType
from mtool.compiler.tuned.record import Unit
from mtool.device.rpc import protocol
from mtool.device.session import Device
from mtool.tuning.operators import Operators

_LEAST_LIMIT_S = 0.5  # besides the seconds that the client waits for any device
_SLOWEST_HZ = 16e6
_CYCLES_PER_MAC = 200  # of a core without a multiplier
_RESTARTS = 3


class Meter(Protocol):
    """What measures: a board, or in a test what stands for one.

    Attributes:
        unit: what it counts.
        granularity: its smallest step, in that unit.
    """

    unit: Unit
    granularity: float

    def begin(self, names: Operators) -> None:
        """Give a task its inputs and let the reference compute its output."""

    def time(self, operator: str, number: int) -> float:
        """Run an operator some times and return the time of all of them together."""

    def differences(self, names: Operators) -> int:
        """Return how many elements the comparison has counted that differ from the reference's."""

    def restart(self) -> None:
        """Bring the board into its first state, after a candidate has failed there."""


class BoardMeter:
    """A board, or its emulator, through a session with the firmware of a trial.

    Args:
        open_device: flashes the firmware, or starts its emulator, and opens a session.
        seed: of the inputs.
        revive: brings the board back without writing its flash, and opens a session; told whether it hangs; None: it
            could not.

    Raises:
        MtoolError: the session can't be opened.
    """

    def __init__(
        self,
        open_device: Callable[[], Device],
        seed: int = 0,
        *,
        revive: Callable[[bool], Device | None] = lambda hangs: None,
    ) -> None:
        self._open, self._seed, self._revive = open_device, seed, revive
        self._hangs = False
        self._device = open_device()
        self.unit: Unit = "instructions" if self._device.unit == "instructions" else "ns"
        self.granularity = float(max(self._device.info().timer_granularity_ns, 1))
        described = self._device.manifest
        self._numbers = {operator.name: operator.index for operator in described.operators}
        self._work_s = {one.name: one.macs * _CYCLES_PER_MAC / _SLOWEST_HZ for one in described.operators}
        self._counts = {
            operand.value: operand.offset for operator in described.operators for operand in operator.writes
        }
        self._limit_s = _LEAST_LIMIT_S

    def begin(self, names: Operators) -> None:
        """Write random inputs and run the reference, whose own time says how long a candidate may take."""
        client = self._device.client
        for index, data in zip(names.inputs, inputs(names, self._seed), strict=True):
            client.write_at(protocol.INPUTS, index, 0, data)
        self._limit_s = _LEAST_LIMIT_S + self._work_s[names.reference]
        start = time.monotonic()
        self.time(names.reference, 1)
        self._limit_s = _LEAST_LIMIT_S + 20 * (time.monotonic() - start)

    def time(self, operator: str, number: int) -> float:
        """Run an operator under the device's timer."""
        limit_s = self._limit_s * max(1, number / 10)
        try:
            return float(self._device.client.time(number, work_s=limit_s, operator=self._numbers[operator]))
        except NoAnswerError:
            self._hangs = True
            raise

    def differences(self, names: Operators) -> int:
        """Read the counts from the arena."""
        client = self._device.client
        found = (client.read_at(protocol.ARENA, 0, self._counts[value], 4) for value in names.differences)
        return sum(int.from_bytes(data, "little") for data in found)

    def restart(self) -> None:
        """Open the session anew; the firmware is brought onto the board again where nothing less helps."""
        self.close()
        revived = self._revive(self._hangs)
        self._hangs = False
        if revived is not None:
            self._device = revived
            return
        for attempt in range(1, _RESTARTS + 1):
            try:
                self._device = self._open()
                return
            except CommunicationError:
                if attempt == _RESTARTS:
                    raise

    def close(self) -> None:
        """Let go of the board. May be called again."""
        try:
            self._device.close()
        except MtoolError:
            return


def inputs(names: Operators, seed: int) -> list[bytes]:
    """Return random inputs of a task: integers over their whole range, floats from the standard normal distribution."""
    random = np.random.default_rng(seed)
    return [_drawn(kind, random) for kind in names.input_types]


def _drawn(kind: TensorType, random: np.random.Generator) -> bytes:
    dtype = kind.dtype
    if dtype.is_float:
        return random.standard_normal(kind.shape).astype(dtype.numpy).tobytes()
    low, high = (0, 1) if dtype.name == "BOOL" else dtype.limits
    wide = np.int64 if low < 0 else np.uint64
    return random.integers(low, high, kind.shape, dtype=wide, endpoint=True).astype(dtype.numpy).tobytes()
