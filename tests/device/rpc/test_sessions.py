"""Consecutive sessions, two hosts, and devices that disappear: errors, delays, and recovery."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mtool.base.errors import BoardError, CommunicationError
from mtool.device.rpc import Client, handshake, window
from mtool.device.session import Device
from mtool.device.transport import ProcessTransport, SerialTransport, Transport
from tests.crt import firmware
from tests.device.rpc.bridge import Bridge
from tests.device.rpc.channels import Lossy
from tests.device.rpc.test_client import Sample
from tests.device.session import projects

ROOT = Path(__file__).parents[3]


class Shared(Lossy):
    """A channel that other computers can reach too, as a port behind a network."""

    is_exclusive = False

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner, rate=0, seed=0)


@pytest.fixture
def shared() -> Iterator[Shared]:
    with ProcessTransport([str(firmware.build())], name="the firmware") as transport:
        yield Shared(transport)


@pytest.fixture
def board() -> Iterator[Bridge]:
    with Bridge([str(firmware.build())]) as bridge:
        yield bridge


def open_port(board: Bridge) -> SerialTransport:
    return SerialTransport(board.port, baud=115200)


def test_a_second_host_is_refused(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Client(shared, timeout_s=5)
    Sample.draw(np.random.default_rng(1)).check(first, run=1)
    monkeypatch.setattr(handshake, "host_number", lambda: 77)
    began = time.monotonic()
    with pytest.raises(CommunicationError, match="is in use: another host has an open session") as caught:
        Client(shared, timeout_s=5)
    assert time.monotonic() - began < 3
    assert "take_over=True" in caught.value.hint
    assert caught.value.exit_code == 8
    Sample.draw(np.random.default_rng(2)).check(first, run=2)


def test_an_ended_session_does_not_lock_others_out(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in range(1, 4):
        monkeypatch.setattr(handshake, "host_number", lambda host=run: host)
        client = Client(shared, timeout_s=5)
        Sample.draw(np.random.default_rng(run)).check(client, run=run)
        client.close()
        client.close()


def test_a_session_can_be_taken_over(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Client(shared, timeout_s=5)
    first.ping(1)
    monkeypatch.setattr(handshake, "host_number", lambda: 77)
    second = Client(shared, timeout_s=5, take_over=True)
    with pytest.raises(CommunicationError, match="another host has opened a session with the firmware"):
        first.ping(1)
    first.close()
    second.ping(1)


def test_a_host_that_crashed_may_come_back_over_the_network(shared: Shared) -> None:
    for run in range(1, 4):
        Sample.draw(np.random.default_rng(run)).check(Client(shared, timeout_s=5), run=run)  # and no BYE


def test_a_crashed_host_does_not_lock_others_out(board: Bridge) -> None:
    for run in range(1, 4):
        with open_port(board) as port:
            Sample.draw(np.random.default_rng(run)).check(Client(port, timeout_s=5), run=run)  # and no BYE


def test_a_port_that_another_mtool_has_open_is_reported_with_its_process(board: Bridge) -> None:
    hold = ["import sys", "from mtool.device.transport import SerialTransport"]
    hold += [
        f"with SerialTransport({board.port!r}, baud=115200):",
        "    print('open', flush=True)",
        "    sys.stdin.read()",
    ]
    holder = subprocess.Popen(
        [sys.executable, "-c", "\n".join(hold)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert holder.stdin is not None and holder.stdout is not None
    assert holder.stdout.readline() == b"open\n"
    with pytest.raises(BoardError, match=f"{board.port} is in use by another mtool") as caught:
        open_port(board)
    assert caught.value.details == (f"process {holder.pid}",)
    assert caught.value.exit_code == 6
    holder.kill()  # however it ends
    holder.communicate()
    with open_port(board) as port:
        Client(port, timeout_s=5).ping(1)


def test_a_board_that_was_reset_is_reported_and_opened_again(board: Bridge) -> None:
    with Device(projects.described(), open_port(board), timeout_s=5, reopen=lambda: open_port(board)) as device:
        Sample.draw(np.random.default_rng(1)).check(device.client, run=1)
        assert device.is_alive()
        board.reset()
        with pytest.raises(CommunicationError, match="was reset in the middle of the session"):
            device.client.info()
        assert not device.is_alive()
        device.reconnect()
        Sample.draw(np.random.default_rng(2)).check(device.client, run=1)


def test_a_board_that_was_unplugged_is_reported_and_opened_again(board: Bridge) -> None:
    with Device(projects.described(), open_port(board), timeout_s=5, reopen=lambda: open_port(board)) as device:
        Sample.draw(np.random.default_rng(1)).check(device.client, run=1)
        board.cut_after = 1000
        with pytest.raises(CommunicationError, match="was lost"):
            Sample.draw(np.random.default_rng(2)).check(device.client, run=2)
        device.reconnect()
        Sample.draw(np.random.default_rng(3)).check(device.client, run=2)


def test_a_device_that_falls_silent_is_reported_before_the_transfer(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "IDLE_S", 0.05)
    monkeypatch.setattr(window, "ALIVE_S", 0.2)
    client = Client(shared, timeout_s=5)
    time.sleep(0.1)
    Sample.draw(np.random.default_rng(1)).check(client, run=1)
    shared.rate = 1  # not a byte gets through unharmed
    time.sleep(0.1)
    began = time.monotonic()
    with pytest.raises(CommunicationError, match="has stopped answering") as caught:
        client.write([b"", b"", bytes(40_000)])
    assert time.monotonic() - began < 1
    assert "expected a reply to MT_PING" in caught.value.details[0]


def test_a_firmware_at_another_baud_rate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with Bridge([str(firmware.build())], firmware_baud=57600) as board, open_port(board) as port:
        began = time.monotonic()
        with pytest.raises(CommunicationError, match="answers at 57,600 baud, not at 115,200") as caught:
            Client(port, timeout_s=0.3)
        assert time.monotonic() - began < 5
        assert "usb: uart: 57600" in caught.value.hint
        port.set_baud(57600)
        Sample.draw(np.random.default_rng(1)).check(Client(port, timeout_s=5), run=1)


def test_a_firmware_at_an_unusual_baud_rate_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "BAUD_S", 0.05)
    monkeypatch.setenv("TEST_TEXT", "temperature: 21.5 degrees")
    with Bridge([str(firmware.build())], firmware_baud=38400) as board:
        time.sleep(0.1)
        with open_port(board) as port:
            board.reset()
            with pytest.raises(CommunicationError, match="sends bytes, but no valid frames") as caught:
                Client(port, timeout_s=1.5)
    assert caught.value.details[1].startswith("tried 115200 baud, then 9600, 57600")
    assert "baud" in caught.value.hint


def test_a_log_only_firmware_is_shown_with_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TEXT", "*** Booting Zephyr OS ***\ntemperature: 21.5")
    with Bridge([str(firmware.build())]) as board, open_port(board) as port:
        board.reset()
        with pytest.raises(CommunicationError, match="prints text, but sends no frames") as caught:
            Client(port, timeout_s=1.5)
    assert caught.value.details[-2:] == ("  *** Booting Zephyr OS ***", "  temperature: 21.5")


def test_a_board_that_says_nothing_is_reported_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "BAUD_S", 0.05)
    with Bridge(["sleep", "60"]) as board, open_port(board) as port:
        began = time.monotonic()
        with pytest.raises(CommunicationError, match=r"no answer: .* sent nothing within 0\.3 s"):
            Client(port, timeout_s=0.3)
        assert time.monotonic() - began < 2
