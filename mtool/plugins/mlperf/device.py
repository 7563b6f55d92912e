"""A device under test: commands that end with %, answers that end with m-ready (mlcommons/tiny, benchmark/api)."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mtool.base.errors import CommunicationError, DeviceError, NoAnswerError
from mtool.device.transport.base import Transport

_READY = "m-ready"
_BYTES_A_COMMAND = 31  # of a sample: two digits each, in the device's 80 characters
_ANSWER_S = 20.0
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Inferred:
    """An answer to `infer`: the time of all inferences in microseconds, and the outputs of the last one."""

    elapsed_us: int
    results: tuple[float, ...]


class DeviceUnderTest:
    """A device that runs the firmware of a project of the type mlperftiny.

    Args:
        transport: leads to it; closed by whoever opened it.
        tell: is given each line of the dialogue, with the side that said it: "host" or "dut".
    """

    def __init__(self, transport: Transport, tell: Callable[[str, str], None]) -> None:
        self._transport = transport
        self._tell = tell
        self._rest = b""

    def begin(self) -> None:
        """Wait until the device has greeted; one that has done so long ago is asked for its name.

        Raises:
            CommunicationError: it does not answer, or is no device under test.
        """
        try:
            self._answer(_LOOK_S * 6)
        except NoAnswerError:
            self.ask("name")
        except CommunicationError as ended:
            raise CommunicationError(
                ended.what,
                details=ended.details,
                hint="does its program answer EEMBC's commands, as src/runner.c does?",
            ) from None

    def identity(self) -> dict[str, str]:
        """Return the device's name, profile and model (kws01, …)."""
        lines = [*self.ask("name"), *self.ask("profile")]
        found = {}
        for line in lines:
            match = re.fullmatch(r"m-(name-dut|profile|model)-\[([^]]+)]", line)
            if match:
                found[match[1].partition("-")[0]] = match[2]
        if "model" not in found:
            raise CommunicationError(
                f"{self._transport.name} is no device under test of MLPerf Tiny",
                details=[f"it answered: {line}" for line in lines[:5]],
                hint="its firmware is that of a project of the type mlperftiny: mtool new --type mlperftiny",
            )
        return found

    def load(self, data: bytes) -> None:
        """Load a sample into the device.

        Raises:
            DeviceError: the device does not take it.
        """
        lines = self.ask(f"db load {len(data)}")
        if f"m-[Expecting {len(data)} bytes]" not in lines:
            raise DeviceError("the device does not take a sample", details=[f"of {len(data)} bytes", *lines[:3]])
        for start in range(0, len(data), _BYTES_A_COMMAND):
            lines = self.ask(f"db {data[start : start + _BYTES_A_COMMAND].hex()}")
        if "m-load-done" not in lines:
            raise DeviceError("the device has not taken all of a sample", details=lines[:3])

    def infer(self, count: int, warmups: int, *, timeout_s: float) -> Inferred:
        """Run inferences on the sample that was loaded.

        Raises:
            DeviceError: the device tells an error, or no time or result.
        """
        lines = self.ask(f"infer {count} {warmups}", timeout_s=timeout_s)
        laps = [int(match[1]) for line in lines if (match := re.fullmatch(r"m-lap-us-([0-9]+)", line))]
        results = [match[1] for line in lines if (match := re.fullmatch(r"m-results-\[([^]]+)\]", line))]
        wrong = [line for line in lines if line.startswith(("e-", "Input db"))]
        if wrong or len(laps) != 2 or not results:
            raise DeviceError("the device could not run the model", details=wrong or lines[-5:])
        try:
            values = tuple(float(word) for word in results[-1].split(",") if word.strip())
        except ValueError:
            raise DeviceError("the device's results are no numbers", details=[results[-1]]) from None
        return Inferred((laps[1] - laps[0]) % 2**32, values)

    def ask(self, command: str, *, timeout_s: float = _ANSWER_S) -> list[str]:
        """Send a command and return the lines of the answer, but for m-ready.

        Raises:
            CommunicationError: the device does not answer in time, or the channel was closed.
        """
        self._tell("host", f"{command}%")
        self._transport.write(f"{command}%".encode(), timeout_s=_ANSWER_S)
        return self._answer(timeout_s)

    def _answer(self, timeout_s: float) -> list[str]:
        lines: list[str] = []
        deadline = time.monotonic() + timeout_s
        while True:
            while b"\n" in self._rest:
                line, _, self._rest = self._rest.partition(b"\n")
                text = line.decode("ascii", "backslashreplace").strip()
                if text:
                    self._tell("dut", text)
                if text == _READY:
                    return lines
                if text:
                    lines.append(text)
            left = deadline - time.monotonic()
            if left <= 0:
                raise NoAnswerError(
                    f"{self._transport.name} has not said {_READY} within {timeout_s:.3g} s",
                    details=[f"it said: {line}" for line in _last(lines)],
                )
            self._rest += self._transport.read(timeout_s=min(left, _LOOK_S))


def _last(lines: Sequence[str]) -> Sequence[str]:
    return lines[-3:]
