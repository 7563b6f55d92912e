"""A session over TCP, and over RTT with a fake of J-Link's software, with the firmware as a process."""

import contextlib
import socket
import threading
from pathlib import Path

import pytest

from mtool.device import session
from mtool.device.transport import ProcessTransport
from tests.crt import firmware
from tests.device.session import projects
from tests.device.session.test_device import check, expected, inputs

BANNER = b"SEGGER J-Link V7.94e - Real time terminal output\r\nProcess: JLinkGDBServerCLExe\r\n"
ASKED = b"$$SEGGER_TELNET_ConfigStr=RTTCh;0;SetRTTAddr;0x20000400$$"


def serve(server: socket.socket, greeting: bytes, banner: bytes) -> None:
    """Let one client speak to the firmware, once it has greeted."""
    end, _ = server.accept()
    with end, ProcessTransport([str(firmware.build())], name="the firmware") as process:
        assert end.recv(len(greeting), socket.MSG_WAITALL) == greeting
        end.sendall(banner)

        def forth() -> None:
            with contextlib.suppress(Exception):
                while data := end.recv(4096):
                    process.write(data, timeout_s=5)

        there = threading.Thread(target=forth)
        there.start()
        with contextlib.suppress(OSError):
            while there.is_alive():
                end.sendall(process.read(timeout_s=0.05))
        there.join()


@pytest.mark.parametrize(
    ("form", "greeting", "banner"), [("tcp://{}", b"", b""), ("rtt:jlink:{}@0x20000400", ASKED, BANNER)]
)
def test_a_session_over_a_network(form: str, greeting: bytes, banner: bytes, tmp_path: Path) -> None:
    folder = projects.write(tmp_path / "project")
    with socket.create_server(("127.0.0.1", 0)) as server:
        other_end = threading.Thread(target=serve, args=(server, greeting, banner))
        other_end.start()
        with session.open(folder, port=form.format(f"127.0.0.1:{server.getsockname()[1]}"), timeout_s=10) as device:
            for run in (1, 2):
                check(device.run(inputs(run)), expected(inputs(run), run=run))
        other_end.join(10)
        assert not other_end.is_alive()
