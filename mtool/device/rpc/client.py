"""The client: the requests to a device, as plain functions."""

import contextlib
import copy
import itertools
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mtool.base.errors import CommunicationError, DeviceError, MtoolError, UsageError
from mtool.device.rpc import protocol
from mtool.device.rpc.handshake import Expected, shake_hands
from mtool.device.rpc.protocol import Fault, FaultKind, Hello, Info, Message, Placed, Reply, Request, Status
from mtool.device.rpc.window import Window, data_frames
from mtool.device.transport import Transport
from mtool.manifest.link_key import LinkKey

# The owner of a session: the process that opened it, one thread at a time.


class Owner:
    """The current process; its threads take turns.

    The device detects a repeated request by its number, and a forked process would use the same numbers.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()

    @property
    def is_here(self) -> bool:
        """Whether the caller is in that process, not in a fork of it."""
        return os.getpid() == self._process

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Make other threads wait while the block runs; the same thread may enter again.

        Raises:
            UsageError: the caller is in another process.
        """
        if not self.is_here:
            what = "the session with the device belongs to another process"
            details = [f"opened by process {self._process}", f"used by process {os.getpid()}, a fork of it"]
            raise UsageError(what, details=details, hint="open the device in the process that uses it")
        with self._lock:
            yield


HELLO_TIMEOUT_S = 10.0
_BYE_S = 0.5


@dataclass(frozen=True, slots=True)
class Served:
    """The model of a client's requests.

    Attributes:
        index: its number in the firmware.
        on_fault: returns the error to raise when the device reports a fault, or that an operator failed.
        on_stopped: repairs the model after a fault stopped it; takes the client of its requests.
        region_of: returns a readable name for an operator's number if it is a backend's region; "": it is not. Its
            failure is the accelerator's.
        stream: the number of the input that the model takes by rows; None: it takes none so.
    """

    index: int = 0
    on_fault: Callable[[Fault], MtoolError] = protocol.device_error
    on_stopped: "Callable[[Client], None]" = lambda client: None
    region_of: Callable[[int], str] = lambda number: ""
    stream: int | None = None


class Client:
    """A session with a device, for one process; threads take turns, a request at a time.

    Args:
        transport: the channel to it.
        expected: the expected firmware; None: any.
        timeout_s: how long it may take to start and to answer.
        model: the model of the requests; default: the first one, with no further knowledge.
        key: the device's link key, for an authenticated session; None: the firmware has none.
        take_over: open the session even if a host on another computer has one open with the device.
        device_s: the least device time that passes in a second of host time; less than 1 in an emulator.
        stream_s: how long a model may compute when it receives rows of an input.
        owner: the session's owner; default: this process.

    Raises:
        CommunicationError: no firmware answers, or not the expected one; the message says which.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        expected: Expected | None = None,
        timeout_s: float = HELLO_TIMEOUT_S,
        model: Served = Served(),
        key: LinkKey | None = None,
        take_over: bool = False,
        device_s: float = 1.0,
        stream_s: float = 0.0,
        owner: Owner | None = None,
    ) -> None:
        self.owner = owner or Owner()
        self._model, self._stream_s, self._device_s = model, stream_s, device_s
        self._name = transport.name
        session, self.hello, seal = shake_hands(
            transport, expected=expected, timeout_s=timeout_s, take_over=take_over, key=key
        )
        self.window = Window(transport, session, self.hello, seal=seal, on_fault=model.on_fault)

    hello: Hello
    """The device's answer to the handshake."""

    owner: Owner
    """The session's owner: `owner.alone()` excludes other threads for more than one request."""

    def of_model(self, model: Served) -> "Client":
        """Return a client of the same session for another model of the firmware."""
        other = copy.copy(self)
        other._model = model
        return other

    @property
    def resent(self) -> int:
        """Frames that were sent again since the session was opened."""
        return self.window.resent

    def info(self) -> Info:
        """Return the timer's granularity and the tensors' sizes."""
        return protocol.read_info(self._payload(Request(Message.MT_INFO, reply_bytes=64)))

    def write(self, inputs: Sequence[bytes]) -> None:
        """Write the inputs, in the model's order; an input may be shorter than its tensor.

        An input that is taken by rows is written last: the device computes as they arrive.

        Raises:
            DeviceError: one is longer than its tensor, or there are too many.
        """
        self.ask(self._writes(inputs))

    def read(self, kind: int, lengths: Sequence[int]) -> list[bytes]:
        """Read the first `lengths[i]` bytes of each tensor of INPUTS or OUTPUTS.

        Raises:
            DeviceError: a length is larger than its tensor.
        """
        return _joined(self.ask(self._reads(kind, lengths)), lengths)

    def read_at(self, kind: int, index: int, offset: int, count: int) -> bytes:
        """Read `count` bytes from the byte `offset` of a tensor of INPUTS or OUTPUTS, or of the ARENA (index 0).

        Raises:
            DeviceError: it is not that large.
        """
        requests = (
            protocol.read(kind, index, offset + begin, length) for begin, length in data_frames(self.window, count)
        )
        return _joined(self.ask(requests), [count])[0]

    def write_at(self, kind: int, index: int, offset: int, data: bytes) -> None:
        """Write `data` to a tensor of INPUTS or OUTPUTS, or to the ARENA (index 0), from the byte `offset` on.

        Raises:
            DeviceError: it is not that large.
        """
        pieces = data_frames(self.window, len(data))
        self.ask(protocol.write(kind, index, offset + at, data[at : at + length]) for at, length in pieces)

    def run(
        self,
        inputs: Sequence[bytes],
        output_bytes: Sequence[int],
        *,
        work_s: float,
        in_steps: bool = True,
        is_limited: bool = False,
    ) -> list[bytes]:
        """Write the inputs, run the model once and read the outputs, in one go.

        Args:
            inputs: their bytes, in the model's order.
            output_bytes: the outputs' sizes, in the model's order.
            work_s: seconds that one inference may take.
            in_steps: run operator by operator, under the device's watchdog, so that a fault is reported with its
                operator; otherwise through the model's entry point, without interruption: the stack use is the model's.
            is_limited: whether the watchdog limits the latter too.

        Raises:
            DeviceError: the model failed, or the device refused a message.
            CommunicationError: the device stopped answering.
        """
        limit_s = work_s * self._device_s if in_steps or is_limited else 0.0
        calls = [protocol.call(work_s, in_steps=in_steps, limit_s=limit_s)]
        requests = itertools.chain(self._writes(inputs), calls, self._reads(protocol.OUTPUTS, output_bytes))
        return _joined(self.ask(requests), output_bytes)

    def time(self, number: int, *, work_s: float, operator: int | None = None) -> int:
        """Run the model or one operator `number` times; return the total nanoseconds, by the device's timer.

        Raises:
            DeviceError: the model failed, or the timer overflowed.
        """
        return self._number(protocol.time(number, work_s, operator=operator))

    def start_timer(self) -> None:
        """Start the device's timer.

        Raises:
            DeviceError: it is running.
        """
        self._payload(protocol.timer(begin=True))

    def stop_timer(self) -> int:
        """Stop the device's timer and return the nanoseconds since it was started.

        Raises:
            DeviceError: it was not running, or overflowed.
        """
        return self._number(protocol.timer(begin=False))

    def stack_bytes(self) -> int | None:
        """Return the stack that the last `run` used, or None if the firmware can't measure it."""
        with self.owner.alone():
            reply = self.window.exchange([Request(Message.MT_STACK, reply_bytes=5)])[0]
        if reply.status == Status.MT_NOT_SUPPORTED:
            return None
        self._check(reply)
        return protocol.read_number(Message.MT_STACK, reply.payload)

    def ping(self, timeout_s: float) -> None:
        """Check that the device answers.

        Raises:
            CommunicationError: it did not answer within `timeout_s`, or has lost the session.
        """
        with self.owner.alone():
            self.window.ask(Message.MT_PING, timeout_s)

    def lookup(self, name: str) -> int:
        """Return the number of a function by its name.

        Raises:
            DeviceError: the firmware has no functions, or no such one.
        """
        return self._number(protocol.lookup(name))

    def invoke(self, index: int, arguments: Sequence[int | float | Placed], *, work_s: float) -> int | float | None:
        """Call a function by its number and return its result, if it has one in addition to its status.

        Args:
            index: the result of `lookup`.
            arguments: numbers, and tensors that are already on the device.
            work_s: seconds that it may take.

        Raises:
            DeviceError: the function returned a status other than MT_OK, or the device refused an argument.
        """
        return protocol.read_invoke(self._payload(protocol.invoke(index, arguments, work_s)))

    def ask(self, requests: Iterable[Request]) -> list[Reply]:
        """Exchange messages, including those without a method here (mtool.device.rpc.loading has some).

        Raises:
            DeviceError: the device refused one.
            CommunicationError: the device stopped answering.
        """
        with self.owner.alone():
            self.window.on_fault = self._model.on_fault
            if self.window.selected != self._model.index:
                self._check(self.window.exchange([protocol.select(self._model.index)])[0])
                self.window.selected = self._model.index
            replies = self.window.exchange(requests)
            for reply in replies:
                self._check(reply)
            return replies

    def pieces(self, total: int) -> Iterator[tuple[int, int]]:
        """Cut `total` bytes into pieces of the size that suits the link at the moment: (offset, length)."""
        return data_frames(self.window, total)

    def reset(self) -> None:
        """Make the firmware leave its server; this ends the session."""
        self._payload(Request(Message.MT_RESET))
        self.window.is_open = False

    @property
    def is_intact(self) -> bool:
        """Whether the session is open and each request has its reply, so it can continue."""
        return self.window.is_open and self.window.is_intact

    def close(self) -> None:
        """End the session, so that another host may open one. May be called again, and if the device no longer answers.

        In a fork of the process that opened it, does nothing.
        """
        if not self.owner.is_here:
            return
        with self.owner.alone():
            if self.is_intact:
                with contextlib.suppress(MtoolError):
                    self.window.ask(Message.MT_BYE, _BYE_S)
            self.window.is_open = False

    def _writes(self, inputs: Sequence[bytes]) -> Iterator[Request]:
        for index, data in sorted(enumerate(inputs), key=lambda pair: pair[0] == self._model.stream):
            kind, work_s = (protocol.ROWS, self._stream_s) if index == self._model.stream else (protocol.INPUTS, 0.0)
            for offset, length in data_frames(self.window, len(data)):
                yield protocol.write(kind, index, offset, data[offset : offset + length], work_s)

    def _reads(self, kind: int, lengths: Sequence[int]) -> Iterator[Request]:
        for index, total in enumerate(lengths):
            for offset, length in data_frames(self.window, total):
                yield protocol.read(kind, index, offset, length)

    def _payload(self, request: Request) -> bytes:
        return self.ask([request])[0].payload

    def _number(self, request: Request) -> int:
        return protocol.read_number(request.type, self._payload(request))

    def _check(self, reply: Reply) -> None:
        if reply.status == Status.MT_OK:
            return
        if reply.status == Status.MT_STOPPED:
            fault = self.window.survived or Fault(FaultKind.MT_FAULT_EXCEPTION, None, 0, ())
            self.window.survived = None
            self._model.on_stopped(self)
            raise self._model.on_fault(fault)
        request = reply.request.type.name.removeprefix("MT_")
        if reply.status == Status.MT_MODEL and reply.request.type == Message.MT_INVOKE and len(reply.payload) >= 4:
            code = struct.unpack_from("<i", reply.payload)[0]
            if code == Status.MT_DEVICE and len(reply.payload) >= 13:
                status, number = struct.unpack_from("<ii", reply.payload, 5)
                raise _failure_of(self._model.region_of(number) or f"operator {number}", status)
            raise DeviceError(f"the function failed on the device with {protocol.describe(code)}")
        is_call = reply.request.type == Message.MT_CALL
        has_failed = reply.status in (Status.MT_MODEL, Status.MT_STACK_OVERFLOW)
        if has_failed and len(reply.payload) >= 6 and (is_call or reply.request.type == Message.MT_TIME):
            code = struct.unpack_from("<i", reply.payload)[0]
            number = struct.unpack_from("<H", reply.payload if is_call else reply.request.payload, 4)[0]
            operator = None if number == protocol.NO_OPERATOR else number
            if reply.status == Status.MT_STACK_OVERFLOW:
                raise self._model.on_fault(Fault(FaultKind.MT_FAULT_STACK, operator, 0, ()))
            if operator is not None and (region := self._model.region_of(operator)):
                raise _failure_of(region, code)
            if code in protocol.GUARDED:
                hint = protocol.GUARDED[Status(code)]
                raise DeviceError(f"the model failed on the device with {protocol.describe(code)}", hint=hint)
            at = "" if operator is None else f" in operator {operator}"
            raise DeviceError(f"the model failed on the device{at} with code {code}", operator=operator)
        hint = "time fewer runs at once" if reply.status == Status.MT_TIMER_OVERFLOW else ""
        if reply.status == Status.MT_NOT_SUPPORTED and is_call:
            hint = "the chip may have no memory protection unit, or too few regions for --protect; use --no-protect"
        raise DeviceError(
            f"{self._name} reports {protocol.describe(reply.status)}", details=[f"in reply to {request}"], hint=hint
        )


def _failure_of(region: str, status: int) -> DeviceError:
    details = ["the status comes from the accelerator: see its backend's or driver's documentation"]
    return DeviceError(f"the device of {region} failed with status {status}", details=details)


def _joined(replies: Sequence[Reply], lengths: Sequence[int]) -> list[bytes]:
    """Join the pieces of READ's replies to tensors."""
    data = b"".join(reply.payload for reply in replies if reply.request.type == Message.MT_READ)
    if len(data) != sum(lengths):
        what = "the device sent a wrong amount of data"
        raise CommunicationError(what, details=[f"expected {sum(lengths):,} B, found {len(data):,} B"])
    ends = list(itertools.accumulate(lengths))
    return [data[end - length : end] for end, length in zip(ends, lengths, strict=True)]
