"""The client: what a device can be asked for, as plain functions."""

import itertools
import struct
from collections.abc import Iterator, Sequence

from mtool.errors import CommunicationError, DeviceError
from mtool.rpc import protocol
from mtool.rpc.handshake import Expected, shake_hands
from mtool.rpc.protocol import Hello, Info, Message, Reply, Request
from mtool.rpc.status import Status, describe
from mtool.rpc.window import Window, data_frames
from mtool.transport import Transport

HELLO_TIMEOUT_S = 10.0


class Client:
    """A session with a device.

    Args:
        transport: the channel to it.
        expected: the firmware that should answer; None: any.
        timeout_s: how long it may take to start and to answer.

    Raises:
        CommunicationError: no firmware answers, or another one; the message says which.
    """

    def __init__(
        self, transport: Transport, *, expected: Expected | None = None, timeout_s: float = HELLO_TIMEOUT_S
    ) -> None:
        self._name = transport.name
        session, self.hello = shake_hands(transport, expected=expected, timeout_s=timeout_s)
        self._window = Window(transport, session, self.hello)

    hello: Hello
    """What the device said of itself."""

    @property
    def resent(self) -> int:
        """Frames that were sent again since the session was opened."""
        return self._window.resent

    def info(self) -> Info:
        """Return the timer's granularity and the tensors' sizes."""
        return protocol.read_info(self._one(Request(Message.MT_INFO, reply_bytes=64)))

    def write(self, inputs: Sequence[bytes]) -> None:
        """Write the inputs, in the model's order; an input may be shorter than its tensor.

        Raises:
            DeviceError: one is longer than its tensor, or there are more than tensors.
        """
        self._all(self._writes(inputs))

    def read(self, kind: int, lengths: Sequence[int]) -> list[bytes]:
        """Read the first `lengths[i]` bytes of each tensor of INPUTS or OUTPUTS.

        Raises:
            DeviceError: a length is larger than its tensor.
        """
        return _joined(self._all(self._reads(kind, lengths)), lengths)

    def run(self, inputs: Sequence[bytes], output_bytes: Sequence[int], *, work_s: float) -> list[bytes]:
        """Write the inputs, run the model once and read the outputs, in one go.

        Args:
            inputs: their bytes, in the model's order.
            output_bytes: the outputs' sizes, in the model's order.
            work_s: seconds that one inference may take.

        Raises:
            DeviceError: the model failed, or the device refused a message.
            CommunicationError: the device stopped answering.
        """
        calls = [protocol.call(work_s)]
        requests = itertools.chain(self._writes(inputs), calls, self._reads(protocol.OUTPUTS, output_bytes))
        return _joined(self._all(requests), output_bytes)

    def time(self, number: int, *, work_s: float) -> int:
        """Run the model `number` times and return the nanoseconds of all of them, by the device's timer.

        Raises:
            DeviceError: the model failed, or the timer ran over its range.
        """
        return protocol.read_time(self._one(protocol.time(number, work_s)))

    def stack_bytes(self) -> int | None:
        """Return how much stack the last `run` used, or None if the firmware can't tell."""
        reply = self._window.exchange([Request(Message.MT_STACK, reply_bytes=5)])[0]
        if reply.status == Status.MT_NOT_SUPPORTED:
            return None
        self._check(reply)
        return protocol.read_stack(reply.payload)

    def reset(self) -> None:
        """Let the firmware leave its server; the session is over."""
        self._one(Request(Message.MT_RESET))

    def _writes(self, inputs: Sequence[bytes]) -> Iterator[Request]:
        for index, data in enumerate(inputs):
            for offset, length in data_frames(self._window, len(data)):
                yield protocol.write(protocol.INPUTS, index, offset, data[offset : offset + length])

    def _reads(self, kind: int, lengths: Sequence[int]) -> Iterator[Request]:
        for index, total in enumerate(lengths):
            for offset, length in data_frames(self._window, total):
                yield protocol.read(kind, index, offset, length)

    def _one(self, request: Request) -> bytes:
        return self._all([request])[0].payload

    def _all(self, requests: Iterator[Request] | list[Request]) -> list[Reply]:
        replies = self._window.exchange(requests)
        for reply in replies:
            self._check(reply)
        return replies

    def _check(self, reply: Reply) -> None:
        if reply.status == Status.MT_OK:
            return
        request = reply.request.type.name.removeprefix("MT_")
        if reply.status == Status.MT_MODEL and len(reply.payload) >= 4:
            code = struct.unpack_from("<i", reply.payload)[0]
            raise DeviceError(f"the model failed on the device with code {code}", details=[f"in reply to {request}"])
        hint = "time fewer runs at once" if reply.status == Status.MT_TIMER_OVERFLOW else ""
        raise DeviceError(
            f"{self._name} reports {describe(reply.status)}", details=[f"in reply to {request}"], hint=hint
        )


def _joined(replies: Sequence[Reply], lengths: Sequence[int]) -> list[bytes]:
    """Put the pieces of READ's replies together to tensors."""
    data = b"".join(reply.payload for reply in replies if reply.request.type == Message.MT_READ)
    if len(data) != sum(lengths):
        raise CommunicationError(
            "the device sent other amounts of data than it was asked for",
            details=[f"expected {sum(lengths):,} B, found {len(data):,} B"],
        )
    ends = list(itertools.accumulate(lengths))
    return [data[end - length : end] for end, length in zip(ends, lengths, strict=True)]
