"""Sessions that are authenticated with a link key: only a host with the key changes anything; a record is useless."""

import logging
import os
import random
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cobs import cobs

from mtool.base.errors import CommunicationError, UsageError
from mtool.device.rpc import Client, loading, protocol
from mtool.device.rpc.framing import Frame, Seal, encode
from mtool.device.rpc.loading import Place
from mtool.device.rpc.protocol import OUTPUTS, REPLY, Message, Request, Status
from mtool.device.transport import ProcessTransport, Transport
from mtool.manifest import link_key
from mtool.manifest.link_key import LinkKey
from tests.crt import firmware
from tests.crt.test_server import NONCE, RUN, SESSION, Server
from tests.device.rpc.channels import Lossy
from tests.device.rpc.test_client import Sample
from tests.device.rpc.test_loading import FLASH_BYTES, module

KEY, OTHER = LinkKey(bytes(range(16))), LinkKey(bytes(16))
WITH_KEY = "MT_LINK_KEY={0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}"
CHALLENGE = bytes(range(100, 108))
HELLO = Frame(Message.MT_HELLO, SESSION, 0, protocol.hello(NONCE, take_over=True, host=0, challenge=CHALLENGE))
# Of SipHash-2-4 under 00 .. 0f: the paper's, and others from the authors' vectors.html.
VECTORS = {0: "726fdb47dd0e0e31", 1: "74f839c593dc67fd", 15: "a129ca6149be45e5", 63: "958a324ceb064572"}


def process(*defines: str) -> ProcessTransport:
    return ProcessTransport([str(firmware.build(defines=defines))], name="the firmware")


def test_the_codes_are_those_of_siphash() -> None:
    printed = subprocess.check_output([firmware.build("mt_test_siphash.c", defines=(WITH_KEY,))], text=True).split()
    assert printed == [f"{KEY.code(bytes(range(count))):016x}" for count in range(64)]
    assert {count: printed[count] for count in VECTORS} == VECTORS


def hello(nonce: int) -> bytes:
    payload = protocol.hello(nonce, take_over=True, host=0, challenge=CHALLENGE)
    return encode(Frame(Message.MT_HELLO, SESSION, 0, payload))


def opened(server: Server) -> Seal:
    """Open a session with a server, and return its seal."""
    server.send(encode(HELLO))
    reply = server.next()
    assert reply is not None and reply.payload[0] == Status.MT_OK
    seal = Seal(KEY.of_session(CHALLENGE, reply.payload[-16:-8]))
    assert seal.open(reply, 0) is not None
    return seal


def sealed(seal: Seal, kind: int, sequence: int, payload: bytes = b"") -> bytes:
    return encode(seal.seal(Frame(kind, SESSION, sequence, payload), sequence))


def runs_of(server: Server, seal: Seal, sequence: int) -> int:
    """Return how often the model has run; frames before the reply are refusals."""
    server.send(sealed(seal, Message.MT_READ, sequence, protocol.read(OUTPUTS, 2, 0, 4).payload))
    while (reply := server.next()) is not None and reply.type != Message.MT_READ | REPLY:
        assert reply.type in (Message.MT_RESEND, Message.MT_HELLO | REPLY)
    assert reply is not None
    answer = seal.open(reply, sequence + 1)
    assert answer is not None and answer.payload[0] == Status.MT_OK
    return int.from_bytes(answer.payload[1:], "little")


def changed(encoded: bytes, change: Callable[[bytearray], object]) -> bytes:
    """Return a frame with changed bytes and their right CRC."""
    body = bytearray(cobs.decode(encoded.strip(b"\0"))[:-4])
    change(body)
    return b"\0" + bytes(cobs.encode(bytes(body) + struct.pack("<I", zlib.crc32(body)))) + b"\0"


def flipped(at: int, bit: int) -> Callable[[bytearray], object]:
    return lambda body: body.__setitem__(at, body[at] ^ 1 << bit)


def test_a_change_of_any_byte_is_refused() -> None:
    server = Server(WITH_KEY)
    with server.transport:
        seal = opened(server)
        call = sealed(seal, Message.MT_CALL, 0, RUN)
        size = len(cobs.decode(call.strip(b"\0"))) - 4
        assert size == 5 + len(RUN) + 8
        for at in range(size):
            server.send(changed(call, flipped(at, at % 8)))
        for count in range(5, size):
            server.send(changed(call, lambda body, count=count: body.__delitem__(slice(count, None))))  # type: ignore[misc]
        server.send(encode(Seal(OTHER).seal(Frame(Message.MT_CALL, SESSION, 0, RUN), 0)))
        server.send(encode(Frame(Message.MT_CALL, SESSION, 0, RUN)))
        assert runs_of(server, seal, 0) == 0
        server.send(sealed(seal, Message.MT_CALL, 1, RUN))  # the same frame at its own number is executed
        assert [frame.type for frame in (server.next(), server.next()) if frame] == [Message.MT_RUNNING, 0x85]
        assert runs_of(server, seal, 2) == 1


def test_a_recorded_session_does_nothing_after_a_reset_or_its_end() -> None:
    server = Server(WITH_KEY)
    with server.transport:
        seal = opened(server)
        recorded = [encode(HELLO), sealed(seal, Message.MT_CALL, 0, RUN), sealed(seal, Message.MT_BYE, 1)]
        server.send(b"".join(recorded[1:]))
        assert [frame.type for frame in (server.next(), server.next(), server.next()) if frame] == [0xF1, 0x85, 0x8A]
        server.send(b"".join([*recorded, *recorded]))
        assert runs_of(server, opened_again(server), 0) == 1
    another = Server(WITH_KEY)
    with another.transport:
        another.send(b"".join(recorded))
        assert runs_of(another, opened_again(another), 0) == 0


def opened_again(server: Server) -> Seal:
    """Open another session with a server that is still answering something else."""
    nonce = NONCE ^ 0x10000  # the frames look like those of the session before
    server.send(hello(nonce))
    while (reply := server.next()) is not None:
        if reply.type == Message.MT_HELLO | REPLY and reply.payload[2:6] == struct.pack("<I", nonce):
            return Seal(KEY.of_session(CHALLENGE, reply.payload[-16:-8]))
    raise AssertionError("no reply")


def test_a_repeated_hello_keeps_the_key_and_a_truncated_one_opens_nothing() -> None:
    server = Server(WITH_KEY)
    with server.transport:
        for count in range(len(HELLO.payload)):
            server.send(encode(Frame(Message.MT_HELLO, SESSION, 0, HELLO.payload[:count])))
            if count >= 5:
                refused = server.next()
                assert refused is not None and refused.payload == struct.pack("<BBI", 32, 1, NONCE)
        assert server.ask(Message.MT_CALL, 0, RUN).payload == bytes([Status.MT_NO_SESSION, 0])
        seal = opened(server)
        server.send(encode(HELLO))
        reply = server.next()
        assert reply is not None and seal.open(reply, 0) is not None
        assert runs_of(server, seal, 0) == 0


@pytest.mark.parametrize(
    ("of_device", "of_host", "said"),
    [
        (WITH_KEY, None, "opens a session only for a host with its link key"),
        (WITH_KEY, OTHER, "has another link key"),
        ("TEST_WINDOW_BYTES=0", KEY, "does not authenticate its sessions"),
    ],
)
def test_a_wrong_or_missing_key_is_reported(of_device: str, of_host: LinkKey | None, said: str) -> None:
    with process(of_device) as transport, pytest.raises(CommunicationError, match=said) as refused:
        Client(transport, timeout_s=5, key=of_host)
    assert refused.value.exit_code == 8


def test_a_port_without_random_numbers_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_NO_RANDOM", "1")
    with process(WITH_KEY) as transport, pytest.raises(CommunicationError, match="mt_port_random"):
        Client(transport, timeout_s=5, key=KEY)


def test_without_random_numbers_challenges_come_from_the_flash_of_modules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEST_NO_RANDOM", "1")
    monkeypatch.setenv("TEST_FLASH", str(tmp_path / "flash"))
    (tmp_path / "flash").write_bytes(bytes([0xFF]) * FLASH_BYTES)
    challenges = []
    for _ in range(3):
        server = Server(WITH_KEY, sources=firmware.MODULES)
        with server.transport:
            for nonce in (NONCE, NONCE + 1, NONCE):
                server.send(hello(nonce))
                reply = server.next()
                assert reply is not None and reply.payload[0] == Status.MT_OK
                challenges.append(reply.payload[-16:-8])
    assert len({*challenges}) == 9


def test_an_authenticated_device_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mtool.firmware")
    with process(WITH_KEY) as transport:
        client = Client(transport, timeout_s=5, key=KEY)
        client.ping(5)
        client.run([bytes([firmware.LOG])], [1200, 20, 4, 40_000], work_s=5)
    assert [record.getMessage() for record in caplog.records] == ["the model says hello"]


class Hostile(Transport):
    """Drop, repeat, exchange, reflect or change one frame in `1 / rate`, with right CRCs."""

    is_lossless = False
    bytes_per_second = 1e6

    def __init__(self, inner: Transport, *, rate: float, seed: int) -> None:
        self._inner, self._rate, self._random = inner, rate, random.Random(seed)
        self.name, self.harmed = inner.name, 0
        self._seen: list[bytes] = []
        self._rest = b""

    def write(self, data: bytes, *, timeout_s: float) -> None:
        self._inner.write(b"".join(self._harm(data.split(b"\0"))), timeout_s=timeout_s)

    def read(self, *, timeout_s: float) -> bytes:
        *pieces, self._rest = (self._rest + self._inner.read(timeout_s=timeout_s)).split(b"\0")
        return b"".join(self._harm(pieces))

    def close(self) -> None:
        self._inner.close()

    def _harm(self, pieces: list[bytes]) -> list[bytes]:
        frames = [b"\0" + piece + b"\0" for piece in pieces if piece]
        out: list[bytes] = []
        for frame in frames:
            self._seen.append(frame)
            if self._random.random() >= self._rate or len(self._seen) < 3:  # HELLO passes
                out.append(frame)
                continue
            self.harmed += 1
            harm = self._random.randrange(4)
            size = len(cobs.decode(frame.strip(b"\0"))) - 4
            if harm == 0:
                out.append(changed(frame, flipped(self._random.randrange(5, size), self._random.randrange(8))))
            elif harm == 1:
                out += [self._random.choice(self._seen), frame]  # also one of the other direction
            elif harm == 2 and out:
                out.insert(-1, frame)
        return out


def test_an_attacker_on_the_line_changes_no_result() -> None:
    chance = np.random.default_rng(0)
    with Hostile(process(WITH_KEY), rate=0.1, seed=1) as line:
        client = Client(line, timeout_s=5, key=KEY)
        for run in range(1, 6):
            Sample.draw(chance, size=4000).check(client, run=run)
    assert line.harmed > 20 and client.resent > 0


def test_counters_count_only_under_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TEST_FLASH", str(tmp_path / "flash"))
    (tmp_path / "flash").write_bytes(bytes([0xFF]) * FLASH_BYTES)
    counters = []
    for define, key in ((WITH_KEY, KEY), (WITH_KEY, KEY), ("MT_LINK_KEY={0}", OTHER)):
        program = firmware.build(*firmware.MODULES, defines=(define,))
        with ProcessTransport([str(program)], name="the firmware") as transport:
            client = Client(transport, timeout_s=5, key=key)
            counters.append(loading.module_limits(client, "adder").counter)
            if not counters[0]:
                loading.load(client, module(5, counter=7), Place.FLASH)
    assert counters == [0, 7, 0]


def test_noise_changes_no_result_of_an_authenticated_session() -> None:
    chance = np.random.default_rng(0)
    with Lossy(process(WITH_KEY, "TEST_BUFFER_BYTES=512"), rate=0, seed=1) as line:
        client = Client(line, timeout_s=5, key=KEY)
        line.rate = 5e-4
        for run in range(1, 4):
            Sample.draw(chance, size=8000).check(client, run=run)
    assert line.harmed > 10 and client.resent > 0


@pytest.mark.slow
def test_more_frames_than_a_sequence_number_counts() -> None:
    with process(WITH_KEY) as transport:
        client = Client(transport, timeout_s=5, key=KEY)
        for _ in range(66):
            client.ask([Request(Message.MT_PING)] * 1000)
        Sample.draw(np.random.default_rng(0), size=4000).check(client, run=1)


def test_a_key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, folder = tmp_path / "device.key", tmp_path / "project"
    link_key.make(file)
    assert os.name != "posix" or file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="never overwritten"):
        link_key.make(file)
    folder.mkdir()
    assert link_key.find(None, folder) is None
    monkeypatch.setenv(link_key.VARIABLE, str(file))
    for path, there in ((None, None), (None, KEY), (file, KEY)):  # the option, then the folder, then the variable
        (folder / link_key.FILE_NAME).write_bytes(link_key.file(there).files.get(link_key.FILE_NAME, b""))
        if there is None:
            (folder / link_key.FILE_NAME).unlink()
        found = link_key.find(path, folder)
        assert found is not None and (found.digits == KEY.digits) == (there is KEY and path is None)
    for text in ("00" * 16, "12"):
        file.write_text(text)
        with pytest.raises(UsageError, match="is not a link key"):
            link_key.read(file)
    (folder / link_key.FILE_NAME).write_text("00" * 16)
    with pytest.raises(
        UsageError, match=r"MTOOL_LINK_KEY: .* is not a link key"
    ) as refused:  # even if it is not needed
        link_key.find(None, folder)
    assert refused.value.exit_code == 2


def test_without_a_key_the_firmware_has_nothing_of_it(tmp_path: Path) -> None:
    for name in ("mt_siphash", "mt_link", "mt_server"):
        built = tmp_path / f"{name}.o"
        argv = ["gcc", *firmware.STRICT, "-c", str(firmware.CRT / "src" / f"{name}.c"), "-o", str(built)]
        subprocess.run(argv, check=True)
        symbols = subprocess.check_output(["nm", built], text=True)
        assert not {"mt_siphash", "mt_link_key", "mt_port_random", "mac_of"} & {*symbols.split()}
        subprocess.run([*argv, f"-D{WITH_KEY}"], check=True)
        assert "mt_siphash" in subprocess.check_output(["nm", built], text=True) or name == "mt_server"
