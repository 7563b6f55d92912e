"""The sliding window: several requests at once, and retransmission of lost ones. crt/PROTOCOL.md has the rules."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mtool.base.errors import CommunicationError, MtoolError, NoAnswerError
from mtool.device.rpc.framing import FRAME_BYTES, Decoder, Frame, Seal, encode
from mtool.device.rpc.protocol import REPLY, WRITE_BYTES, Fault, Hello, Message, Reply, Request, Status, read_fault
from mtool.device.transport import Transport
from mtool.manifest.link_key import MAC_BYTES

# The speed of a link, measured by the bytes that were acknowledged.


_LEAST_BYTES = 1024  # of one measurement: fewer measure the round trip, not the line
_LEAST_S = 1e-4
_SLOWEST = 50.0
_WEIGHT = 0.25  # of a new measurement


class Speed:
    """The bytes per second of a link, from acknowledged frames.

    Args:
        bytes_per_second: the assumed speed until something was measured.
    """

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._is_measured = False
        self._bytes = 0
        self._seconds = 0.0

    def acknowledge(self, count: int, seconds: float) -> None:
        """Record that `count` more bytes on the line, in the busier direction, took `seconds`."""
        self._bytes += count
        self._seconds += seconds
        if self._bytes < _LEAST_BYTES or self._seconds < _LEAST_S:
            return
        measured = max(self._bytes / self._seconds, _SLOWEST)
        weight = _WEIGHT if self._is_measured else 1.0
        self.bytes_per_second += weight * (measured - self.bytes_per_second)
        self._is_measured = True
        self.begin()

    def begin(self) -> None:
        """Begin a measurement, after a pause or a loss."""
        self._bytes = 0
        self._seconds = 0.0


log = logging.getLogger(__name__)
device_log = logging.getLogger("mtool.firmware")
PATIENCE_S = 5.0  # without progress, in addition to the time of transfers and of the model
_LOADED = 10  # times slower than usual: an emulator on a busy computer, whose watchdog is as late
IDLE_S = 10.0  # after this time without a frame a session begins with PING
ALIVE_S = 3.0  # for the reply to it
_FLOW_CONTROLLED_BYTES = 48 << 10  # in flight if the device sets no limit: less than a pipe's capacity
RESEND_LOSSLESS_S = 0.5
RESEND_LEAST_S = 0.02
RESEND_MOST_S = 0.5
RESEND_RUNNING_S = 0.25  # once the device has reported that it runs the model
RESEND_RUNNING_MOST_S = 4.0
_FIRST_DATA_BYTES = 512  # of a frame, if bytes may be lost: 96% of the line's rate, yet most frames arrive
_LEAST_DATA_BYTES = 48
_LEAST_FRAME_BYTES = 128  # on the line, if the window is large enough
_FRAMES_IN_WINDOW = 3  # if bytes may be lost: while one is acknowledged, others keep the line busy
_MANY = 10  # frames that were sent again: more than an occasional loss
_CALM_REPLIES = 64  # frames grow after this number without a loss


@dataclass(slots=True)
class _Sent:
    """A request in flight. `order` counts transmissions: replies come in the order of the last ones."""

    request: Request
    sequence: int
    encoded: bytes
    order: int
    sent_at: float
    is_repeated: bool = False
    is_running: bool = False


class Window:
    """Exchange requests and replies with a device, several at a time.

    Args:
        transport: the channel, with an open session.
        session: its number.
        hello: the device's description of itself.
        seal: authenticates the frames; None: they are not authenticated.
        on_fault: returns the error to raise when the device reports a fault.
    """

    def __init__(
        self,
        transport: Transport,
        session: int,
        hello: Hello,
        *,
        seal: Seal | None = None,
        on_fault: Callable[[Fault], MtoolError],
    ) -> None:
        self._seal = seal
        self._number = 0  # of the next request, in full
        self.on_fault = on_fault
        self.transport = transport
        self.session = session
        self._hello = hello
        self._decoder = Decoder()
        self.next_sequence = 0  # sequence number
        self._order = 0
        self._sent: dict[int, _Sent] = {}
        self._bytes_sent = 0  # encoded, of all in `_sent`
        self._replies: dict[int, Reply] = {}
        self.round_trip_s = 0.1
        self._progress_at = 0.0
        self._sent_at = 0.0
        self._wait_s = 0.0  # until the next repetition; 0: the first one's
        self._heard_at = time.monotonic()  # of the last frame of this session
        self.least_patience_s = PATIENCE_S
        self.speed = Speed(transport.bytes_per_second)
        self._probe_bytes = 0
        self._calm = 0
        self.selected = 0
        """The current model of the device's requests."""
        self.is_open = True
        self.survived: Fault | None = None
        """The last fault that the firmware survived; the request that it stopped has a reply with MT_STOPPED."""
        self.resent = 0
        """Frames sent again since the session was opened."""
        self._window_bytes = hello.window_bytes or _FLOW_CONTROLLED_BYTES
        together = 1 if transport.is_lossless else _FRAMES_IN_WINDOW
        share = max(self._window_bytes // together, min(self._window_bytes, _LEAST_FRAME_BYTES))
        encoded_most = min(hello.packet_bytes, share * 254 // 256 - 4)
        self._frame_bytes = FRAME_BYTES + (MAC_BYTES if seal is not None else 0)
        self.max_data_bytes = max(encoded_most - self._frame_bytes - WRITE_BYTES, 1)
        self.data_bytes = self.max_data_bytes if transport.is_lossless else min(self.max_data_bytes, _FIRST_DATA_BYTES)
        """The bytes of a tensor that the next WRITE or READ should carry."""

    def exchange(self, requests: Iterable[Request]) -> list[Reply]:
        """Send requests and return their replies, in order, whatever their statuses.

        `requests` is consumed while there is space in the window. Among those of one call, only READ, INFO and
        STACK may follow a READ, a CALL or a TIME: their replies must be the same if the device is asked again.
        After a long pause a PING is sent first, so that a missing device is detected early.

        Raises:
            MtoolError: what `on_fault` returned.
            CommunicationError: the channel was closed, or there was no progress for longer than the pending
                transfers and work can take.
        """
        if self._sent:
            raise CommunicationError(
                f"the session with {self.transport.name} was interrupted", hint="open the device again, or reconnect"
            )
        if time.monotonic() - self._heard_at > IDLE_S:
            self.ask(Message.MT_PING, ALIVE_S)
        waiting = iter(requests)
        ahead = next(waiting, None)
        sequences: list[int] = []
        self._made_progress()
        self.speed.begin()
        while ahead is not None or self._sent:
            burst = []
            while ahead is not None and (encoded := self._fits(ahead)) is not None:
                sequences.append(self.next_sequence)
                burst.append(self._add(ahead, encoded))
                ahead = next(waiting, None)
            self._write(burst)
            self._receive()
        return [self._replies.pop(sequence) for sequence in sequences]

    def ask(self, message: Message, timeout_s: float) -> None:
        """Send a message without a payload: PING, to check that the device is present, or BYE, which ends the session.

        Raises:
            CommunicationError: the device did not answer within `timeout_s`, or has lost the session.
        """
        self._heard_at = time.monotonic()  # no PING before it
        self.least_patience_s = timeout_s
        try:
            self.exchange([Request(message)])
        finally:
            self.least_patience_s = PATIENCE_S

    @property
    def is_intact(self) -> bool:
        """Whether each request has its reply, so the session can continue."""
        return not self._sent

    def _fits(self, request: Request) -> bytes | None:
        """Return the request's frame if it fits in the window."""
        oldest = next(iter(self._sent), self.next_sequence)
        if (self.next_sequence - oldest) & 0xFFFF >= self._hello.window_frames:
            return None  # the device keeps its replies to this number of frames, no more
        frame = Frame(request.type, self.session, self.next_sequence, request.payload)
        encoded = encode(frame if self._seal is None else self._seal.seal(frame, self._number))
        return encoded if not self._sent or self._bytes_sent + len(encoded) <= self._window_bytes else None

    def _add(self, request: Request, encoded: bytes) -> bytes:
        self._order += 1
        self._sent[self.next_sequence] = _Sent(request, self.next_sequence, encoded, self._order, time.monotonic())
        self._bytes_sent += len(encoded)
        self.next_sequence = (self.next_sequence + 1) & 0xFFFF
        self._number += 1
        self._made_progress()
        return encoded

    def _made_progress(self) -> None:
        self._progress_at = time.monotonic()
        self._wait_s = 0.0
        self._probe_bytes = 0

    def _write(self, frames: list[bytes]) -> None:
        if frames:
            self._sent_at = time.monotonic()
            try:
                self.transport.write(b"".join(frames), timeout_s=self._patience_s())
            except MtoolError:
                self._hear_last_words()
                raise

    def _hear_last_words(self) -> None:
        """Handle the device's last frames before the channel closed: a fault explains more."""
        with contextlib.suppress(CommunicationError):
            while data := self.transport.read(timeout_s=0.0):
                for frame in self._decoder.feed(data):
                    if frame is not None and frame.type == Message.MT_FAULT:
                        self._handle(frame)

    def _receive(self) -> None:
        """Wait for bytes and handle the frames in them; after a long silence send the oldest request again."""
        oldest = next(iter(self._sent.values()))
        wait_s = self._wait_s or self._first_wait_s(oldest)
        resend_at = max(self._sent_at, self._progress_at) + wait_s
        give_up_at = self._progress_at + self._patience_s()
        rest_s = min(resend_at, give_up_at) - time.monotonic()
        for frame in self._decoder.feed(self.transport.read(timeout_s=max(rest_s, 0.0))):
            if frame is not None:
                self._handle(frame)
            elif self._sent:
                self._probe(next(iter(self._sent.values())))
        now = time.monotonic()
        if self._sent and self._progress_at + self._patience_s() < now:
            raise self._no_progress()
        if self._sent.get(oldest.sequence) is oldest and resend_at <= now:
            most_s = RESEND_RUNNING_MOST_S if oldest.is_running else max(wait_s, RESEND_MOST_S)
            self._wait_s = min(2 * wait_s, most_s)
            self._probe(oldest)

    def _probe(self, oldest: _Sent) -> None:
        """Send the oldest request again. While the device runs the model it does not read: don't fill its buffer."""
        if not oldest.is_running:
            self.shrink_frames()
        elif self._bytes_sent + self._probe_bytes + len(oldest.encoded) > self._window_bytes:
            self._sent_at = time.monotonic()
            return
        self._probe_bytes += len(oldest.encoded)
        self._resend([oldest])

    def _first_wait_s(self, oldest: _Sent) -> float:
        """Return the seconds to wait for a byte before something is considered lost."""
        if oldest.is_running:
            return RESEND_RUNNING_S
        least_s = RESEND_LOSSLESS_S if self.transport.is_lossless else RESEND_LEAST_S
        return max(least_s, 3 * self.round_trip_s) + self._transfer_s()

    def _transfer_s(self) -> float:
        reply_bytes = sum([self._frame_bytes + sent.request.reply_bytes for sent in self._sent.values()])
        return (self._bytes_sent + reply_bytes) / self.speed.bytes_per_second

    def _patience_s(self) -> float:
        slower = _LOADED if self.transport.is_process else 1
        requests = [sent.request for sent in self._sent.values()]
        work_s = sum([request.work_s * (slower if request.is_limited else 1) for request in requests])
        return self.least_patience_s + 4 * self._transfer_s() + work_s

    def _handle(self, frame: Frame) -> None:
        if frame.session != self.session:
            return  # a late frame of an earlier session
        if self._seal is not None and frame != Frame(
            Message.MT_RESEND, self.session, frame.sequence, bytes([Status.MT_NO_SESSION, *frame.payload[1:2]])
        ):  # only that is not authenticated, as a device without a session has no key for it
            opened = self._seal.open(frame, self._number)
            if opened is None:
                return
            frame = opened
        self._heard_at = time.monotonic()
        sent = self._sent.get(frame.sequence)
        if sent is not None and frame.type == sent.request.type | REPLY:
            if frame.payload:
                self._take(frame, sent)
        elif frame.type == Message.MT_LOG:
            device_log.info("%s", frame.payload.decode(errors="replace"))
        elif frame.type == Message.MT_FAULT:
            fault = read_fault(frame.payload)
            if not fault.survived:
                raise self.on_fault(fault)
            self.survived = fault
        elif frame.type == Message.MT_RESEND:
            if frame.payload[:1] == bytes([Status.MT_NO_SESSION]):
                raise self._no_session(is_open=frame.payload[1:2] == b"\1")
            self.shrink_frames()
            self._resend(list(self._sent.values()))
        elif frame.type == Message.MT_RUNNING and sent is not None and not sent.is_running:
            sent.is_running = True
            self._made_progress()

    def _take(self, frame: Frame, sent: _Sent) -> None:
        """Keep a reply. Older requests without one were lost, or their replies were."""
        del self._sent[frame.sequence]
        self._bytes_sent -= len(sent.encoded)
        now = self._heard_at
        if sent.is_repeated or sent.request.work_s:
            self.speed.begin()
        else:
            in_one_direction = max(len(sent.encoded), self._frame_bytes + len(frame.payload))
            self.speed.acknowledge(in_one_direction, now - max(self._progress_at, sent.sent_at))
        self._replies[frame.sequence] = Reply(sent.request, frame.payload[0], frame.payload[1:])
        self._made_progress()
        if not sent.is_repeated and not sent.request.work_s:
            self.round_trip_s += (now - sent.sent_at - self.round_trip_s) / 8
        self._calm += 1
        if self._calm >= _CALM_REPLIES:
            self._calm = 0
            self.data_bytes = min(2 * self.data_bytes, self.max_data_bytes)
        if lost := [older for older in self._sent.values() if older.order < sent.order]:
            self._resend(lost)

    def shrink_frames(self) -> None:
        """Make frames smaller, so that more of them arrive intact."""
        self._calm = 0
        if not self.transport.is_lossless:
            self.data_bytes = min(self.data_bytes, max(self.data_bytes // 2, _LEAST_DATA_BYTES))

    def _resend(self, lost: list[_Sent]) -> None:
        for sent in lost:
            self._order += 1
            sent.order = self._order
            sent.is_repeated = True
        self.resent += len(lost)
        self._write([sent.encoded for sent in lost])

    def _no_session(self, *, is_open: bool) -> CommunicationError:
        """Return the error for a device that does not know the session: it has another one, or none."""
        if is_open:
            what = f"another host has opened a session with {self.transport.name}"
            return CommunicationError(what, hint="close that session, then open the device again")
        what = f"{self.transport.name} was reset in the middle of the session"
        details = ["its firmware runs, but has no session"]
        return CommunicationError(what, details=details, hint="open the device again, or reconnect")

    def _no_progress(self) -> NoAnswerError:
        """Return the error for a device that has not answered the oldest request in time."""
        oldest = next(iter(self._sent.values()))
        name, work_s = self.transport.name, oldest.request.work_s
        details = [
            f"expected a reply to {oldest.request.type.name} within {self._patience_s():.3g} s",
            f"{self.resent} frame{'s were' if self.resent != 1 else ' was'} sent again since the session was opened",
        ]
        if not oldest.is_running:
            hint = "does its port lose bytes, or change them (CR before LF)?" if self.resent >= _MANY else ""
            return NoAnswerError(f"{name} has stopped answering", details=details, hint=hint)
        longer = f"need more than {work_s:.3g} s? set --timeout SECONDS, in Python timeout_s"
        hint = f"does the model hang on this device, or does it {longer if work_s else 'need more time?'}"
        return NoAnswerError(f"{name} started the model, which has not finished", details=details, hint=hint)


def data_frames(window: Window, total: int) -> Iterator[tuple[int, int]]:
    """Cut `total` bytes into pieces of the size that suits the link at the moment: (offset, length)."""
    offset = 0
    while offset < total:
        length = min(window.data_bytes, total - offset)
        yield offset, length
        offset += length
