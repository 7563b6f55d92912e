"""The client against a real server in a process, over channels that lose and damage bytes."""

import logging
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from mtool.base.errors import CommunicationError, DeviceError
from mtool.device.rpc import Client, protocol, window
from mtool.device.rpc.framing import Frame, encode
from mtool.device.rpc.protocol import Message, Status
from mtool.device.transport import ProcessTransport, Transport
from tests.crt import firmware
from tests.device.rpc.channels import HARMS, Lossy, Scripted, Watched
from tests.device.rpc.test_handshake import reply_to

OUTPUT_BYTES = [1200, 20, 4, 40_000]


def process(*defines: str) -> ProcessTransport:
    return ProcessTransport([str(firmware.build(defines=defines))], name="the firmware")


@pytest.fixture
def client() -> Iterator[Client]:
    with process() as transport:
        yield Client(transport, timeout_s=5)


@dataclass
class Sample:
    x0: np.ndarray
    x1: np.ndarray
    x2: np.ndarray

    @classmethod
    def draw(cls, random: np.random.Generator, *, size: int = 40_000) -> "Sample":
        x0 = random.integers(-128, 100, 300).astype(np.int8)
        return cls(x0, random.standard_normal(5).astype(np.float32), random.integers(0, 256, size).astype(np.uint8))

    def check(self, client: Client, *, run: int, work_s: float = 5.0) -> None:
        size = self.x2.size
        inputs = [self.x0.tobytes(), self.x1.tobytes(), self.x2.tobytes()]
        y0, y1, y2, y3 = client.run(inputs, [*OUTPUT_BYTES[:3], size], work_s=work_s)
        assert np.array_equal(np.frombuffer(y0, np.int32), 3 * self.x0.astype(int) + np.arange(300))
        assert np.array_equal(np.frombuffer(y1, np.float32), 2 * self.x1)
        assert int.from_bytes(y2, "little") == run
        assert np.array_equal(np.frombuffer(y3, np.uint8), self.x2 ^ 0x5A)


@pytest.mark.slow
@pytest.mark.product(3)
@pytest.mark.parametrize("defines", [(), ("TEST_BUFFER_BYTES=256",), ("TEST_BUFFER_BYTES=65536",)])
def test_inference_after_inference(defines: tuple[str, ...]) -> None:
    random = np.random.default_rng(0)
    with process(*defines) as transport:
        client = Client(transport, timeout_s=5)
        for run in range(1, 4):
            Sample.draw(random).check(client, run=run)
        assert client.resent == 0


def test_a_large_input_goes_in_fast(client: Client) -> None:
    data = bytes(27_648)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        client.write([b"", b"", data])
        times.append(time.perf_counter() - start)
    assert min(times) < 0.01


@pytest.mark.parametrize("harm", [*HARMS, "all"])
def test_noise_never_changes_a_result(harm: str) -> None:
    random = np.random.default_rng(1)
    with process() as transport:
        noisy = Lossy(transport, rate=1e-3, seed=HARMS.index(harm) if harm in HARMS else 7, harms=[harm])
        if harm == "all":
            noisy = Lossy(transport, rate=1e-3, seed=7)
        client = Client(noisy, timeout_s=5)
        for run in range(1, 101):
            Sample.draw(random, size=1000).check(client, run=run)
    assert noisy.harmed > 100
    assert client.resent > 100


@pytest.mark.slow
def test_heavy_noise_and_a_small_buffer() -> None:
    random = np.random.default_rng(2)
    with process("TEST_BUFFER_BYTES=256", "TEST_WINDOW_BYTES=300") as transport:
        client = Client(Lossy(transport, rate=4e-3, seed=3), timeout_s=5)
        for run in range(1, 7):
            Sample.draw(random, size=500).check(client, run=run)


def test_a_dead_line_is_reported_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "PATIENCE_S", 0.2)
    with process() as transport:
        noisy = Lossy(transport, rate=0, seed=0)
        client = Client(noisy, timeout_s=5)
        noisy.rate = 1
        start = time.monotonic()
        with pytest.raises(CommunicationError, match="has stopped answering"):
            client.info()
        assert time.monotonic() - start < 1
        with pytest.raises(CommunicationError, match="was interrupted"):
            client.info()


@pytest.mark.slow
@pytest.mark.parametrize("window_bytes", [0, 200, 1000])
def test_the_window_is_never_overrun(window_bytes: int) -> None:
    with process(f"TEST_WINDOW_BYTES={window_bytes}") as transport:
        watched = Watched(transport)
        client = Client(watched, timeout_s=5)
        for run in range(1, 4):
            Sample.draw(np.random.default_rng(3)).check(client, run=run)
    assert watched.most_bytes <= (window_bytes or 48 << 10)
    assert watched.most_frames <= 16
    assert watched.most_frames == 16 or window_bytes == 200


def test_info_and_partial_reads(client: Client) -> None:
    info = client.info()
    assert (info.granularity_ns, info.inputs, info.outputs) == (7, 3, 4)
    assert info.tensor_bytes == (300, 20, 40_000, *OUTPUT_BYTES)
    client.write([b"some bytes"])
    assert client.read(protocol.INPUTS, [4, 0]) == [b"some", b""]


def test_time(client: Client) -> None:
    assert [client.time(10, work_s=5) for _ in range(2)] == [1000, 2000]
    assert client.read(protocol.OUTPUTS, [0, 0, 4]) == [b"", b"", (20).to_bytes(4, "little")]
    assert client.stack_bytes() is None


def test_a_timer_that_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_OVERFLOW", "1")
    with process() as transport, pytest.raises(DeviceError, match="MT_TIMER_OVERFLOW") as caught:
        Client(transport, timeout_s=5).time(10, work_s=5)
    assert "in reply to TIME" in caught.value.details
    assert "fewer" in caught.value.hint


def test_a_model_that_fails(client: Client) -> None:
    with pytest.raises(DeviceError, match="the model failed on the device in operator 0 with code 42"):
        client.run([bytes([firmware.FAIL])], OUTPUT_BYTES, work_s=5)
    Sample.draw(np.random.default_rng(4)).check(client, run=2)


def test_a_request_that_is_refused(client: Client) -> None:
    with pytest.raises(DeviceError, match="MT_BAD_RANGE"):
        client.write([bytes(301)])
    with pytest.raises(DeviceError, match="MT_BAD_INDEX"):
        client.write([b"", b"", b"", b"x"])


def test_the_device_logs(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mtool.firmware")
    client.run([bytes([firmware.LOG])], OUTPUT_BYTES, work_s=5)
    assert [record.getMessage() for record in caplog.records] == ["the model says hello"]


@pytest.mark.slow
def test_a_model_that_hangs(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "PATIENCE_S", 0.2)
    monkeypatch.setattr(window, "RESEND_RUNNING_S", 0.05)
    with pytest.raises(CommunicationError, match="started the model, which has not finished") as failed:
        client.run([bytes([firmware.HANG])], OUTPUT_BYTES, work_s=0.1)
    assert "more than 0.1 s? set --timeout SECONDS, in Python timeout_s" in failed.value.hint


@pytest.mark.slow
def test_a_slow_model_is_polled_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it runs, repetitions of the CALL must not fill the device's receive buffer."""
    monkeypatch.setattr(window, "PATIENCE_S", 0.3)
    monkeypatch.setattr(window, "RESEND_RUNNING_S", 0.001)
    monkeypatch.setattr(window, "RESEND_RUNNING_MOST_S", 0.001)
    with process("TEST_WINDOW_BYTES=200") as transport:
        client = Client(transport, timeout_s=5)
        client.write([bytes([firmware.HANG])])
        with pytest.raises(CommunicationError, match="started the model"):
            client.time(1, work_s=0.1)
        assert 5 <= client.resent <= 200 // 12


def test_a_model_that_ends_the_firmware(client: Client) -> None:
    with pytest.raises(CommunicationError, match="the firmware ended with exit code 99"):
        client.run([bytes([firmware.LEAVE])], OUTPUT_BYTES, work_s=5)


def test_reset(client: Client) -> None:
    client.reset()
    with pytest.raises(CommunicationError, match=f"ended with exit code {70 + Status.MT_OK}"):
        client.info()


def test_one_session_after_another() -> None:
    with process() as transport:
        for run in range(1, 4):
            Sample.draw(np.random.default_rng(run)).check(Client(transport, timeout_s=5), run=run)


def test_a_session_that_was_taken_over() -> None:
    with process() as transport:
        first = Client(transport, timeout_s=5)
        second = Client(transport, timeout_s=5)
        with pytest.raises(CommunicationError, match="another host has opened a session with the firmware"):
            first.info()
        assert second.info().inputs == 3


@pytest.mark.slow
def test_bytes_beside_the_frames_do_no_harm() -> None:
    class Chatty(Lossy):
        """A firmware that prints into the same channel."""

        def read(self, *, timeout_s: float) -> bytes:
            data = super().read(timeout_s=timeout_s)
            return b"debug: x = 3\r\n" + data if data else b""

    with process() as transport:
        client = Client(Chatty(transport, rate=0, seed=0), timeout_s=5)
        for run in range(1, 21):
            Sample.draw(np.random.default_rng(run), size=2000).check(client, run=run)


def test_a_device_that_answers_amiss() -> None:
    def answer(frame: Frame) -> bytes:
        if frame.type == Message.MT_HELLO:
            return reply_to(frame)
        return encode(Frame(frame.type | protocol.REPLY, frame.session, frame.sequence, b"\0short"))

    client = Client(Scripted(answer), timeout_s=1)
    with pytest.raises(CommunicationError, match="wrong amount of data"):
        client.read(protocol.OUTPUTS, [100])
    with pytest.raises(CommunicationError, match="is too short"):
        client.info()
    with pytest.raises(CommunicationError, match="is too short"):
        client.time(1, work_s=1)


def test_frames_of_another_session_are_ignored() -> None:
    def answer(frame: Frame) -> bytes:
        if frame.type == Message.MT_HELLO:
            return reply_to(frame)
        wrong = encode(Frame(frame.type | protocol.REPLY, frame.session ^ 1, frame.sequence, b"\0\1\1\1\1\1\1"))
        right = encode(Frame(frame.type | protocol.REPLY, frame.session, frame.sequence, b"\0\2\0\0\0\3\4"))
        return wrong + right

    transport: Transport = Scripted(answer)
    info = Client(transport, timeout_s=1).info()
    assert (info.granularity_ns, info.inputs, info.outputs) == (2, 3, 4)


def test_a_session_is_ended_once() -> None:
    def answer(frame: Frame) -> bytes:
        if frame.type == Message.MT_HELLO:
            return reply_to(frame)
        return encode(Frame(frame.type | protocol.REPLY, frame.session, frame.sequence, b"\0"))

    closed, left = Scripted(answer), Scripted(answer)
    client = Client(closed, timeout_s=1)
    for _ in range(2):
        client.close()
    assert [frame.type for frame in closed.seen] == [Message.MT_HELLO, Message.MT_BYE]
    client = Client(left, timeout_s=1)
    client.reset()
    client.close()
    assert [frame.type for frame in left.seen] == [Message.MT_HELLO, Message.MT_RESET]


def test_what_lies_at_a_place_of_a_tensor_is_cut_into_frames(client: Client) -> None:
    data = np.random.default_rng(8).integers(0, 256, 9000).astype(np.uint8).tobytes()
    client.write_at(protocol.INPUTS, 2, 1234, data)
    assert client.read_at(protocol.INPUTS, 2, 1234, 9000) == data
    assert client.read_at(protocol.INPUTS, 2, 5234, 100) == data[4000:4100]
    assert client.read_at(protocol.INPUTS, 2, 1234, 0) == b""


def test_the_stack_and_the_limit_of_a_call_in_the_devices_time() -> None:
    def answer(frame: Frame) -> bytes:
        if frame.type == Message.MT_HELLO:
            return reply_to(frame)
        payload = b"\0" + (1234).to_bytes(4, "little") if frame.type == Message.MT_STACK else b"\0"
        return encode(Frame(frame.type | protocol.REPLY, frame.session, frame.sequence, payload))

    device = Scripted(answer)
    assert Client(device, timeout_s=1).stack_bytes() == 1234
    for options, in_steps, payload in (
        ({}, True, struct.pack("<BI", 0, 3000)),
        ({"device_s": 0.5}, True, struct.pack("<BI", 0, 1500)),
        ({"device_s": 0.5}, False, struct.pack("<BI", 1, 0)),
    ):
        Client(device, timeout_s=1, **options).run([], [], work_s=3.0, in_steps=in_steps)
        assert (device.seen[-1].type, device.seen[-1].payload) == (Message.MT_CALL, payload)
