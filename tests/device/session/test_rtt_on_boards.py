"""Firmware without a UART, driven over RTT in QEMU through its gdb stub."""

import contextlib
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import amount
import pytest

from mtool import boards, project
from mtool.base import filetree
from mtool.base.errors import BoardError, DeviceError, UsageError
from mtool.boards import Board
from mtool.device import build, session
from mtool.device.transport import ProcessTransport
from mtool.device.transport.emulator import command, free_port
from tests.crt import firmware
from tests.device.session.test_device import check, expected, first, inputs
from tests.device.session.test_on_boards import MODEL

BOARDS = ["mps2_an386", *(["qemu_riscv32"] if amount.IS_ALL else [])]


@pytest.fixture(scope="module", params=BOARDS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Board, Path]:
    board = boards.get(request.param)
    assert board.emulator is not None
    for program in (board.toolchain, board.emulator.program, "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    folder = tmp_path_factory.mktemp(board.name) / "project"
    options = {"channel": "rtt", "rtt_bytes": "2000"}
    tree, _ = project.render(MODEL, firmware.MANIFEST, board, template="baremetal", options=options)
    filetree.write(tree, folder)
    build.build(folder, kinds=["host_driven"])
    return board, folder


@contextlib.contextmanager
def machine(board: Board, folder: Path) -> Iterator[int]:
    """Run the firmware in an emulator of its own; yield the port of its gdb stub."""
    assert board.emulator is not None
    port = free_port()
    argv = [*command(board.emulator, folder / "build" / "host_driven.elf"), "-gdb", f"tcp:127.0.0.1:{port}"]
    with ProcessTransport(argv, name="the machine") as process:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            process.read(timeout_s=0.05)
        yield port


@pytest.mark.slow
def test_the_emulator_is_driven_over_rtt(built: tuple[Board, Path]) -> None:
    _, folder = built
    with session.open(folder, timeout_s=30) as device:
        check(device.run(inputs(1)), expected(inputs(1), run=1))
        assert device.time(number=2, repeat=2, inputs=inputs()).spread == 0
    with (
        session.open(folder, timeout_s=30) as device,
        pytest.raises(DeviceError, match="failed assertion"),
    ):
        device.run(first(firmware.LEAVE))


@pytest.mark.slow
def test_a_running_gdb_server(built: tuple[Board, Path]) -> None:
    board, folder = built
    with machine(board, folder) as port:
        for run in (1, 2):  # a session leaves the firmware running
            with session.open(folder, port=f"rtt:gdb:127.0.0.1:{port}", timeout_s=30) as device:
                check(device.run(inputs(run)), expected(inputs(run), run=run))


def test_a_firmware_without_rtt_and_a_board_without_a_reader(built: tuple[Board, Path], tmp_path: Path) -> None:
    _, folder = built
    shutil.copytree(folder, tmp_path / "copy")
    described = (folder / "mtool.json").read_text()
    without = described.replace('"emulator": {', '"emulator": null, "unused": {')
    assert without != described
    shutil.copy(__file__, tmp_path / "copy" / "build" / "host_driven.elf")
    with pytest.raises(UsageError, match="the firmware has no RTT"):
        session.open(tmp_path / "copy", port="rtt:jlink")
    board = boards.get("nucleo_l4r5zi")
    entry = project.render(MODEL, firmware.MANIFEST, board, template="zephyr", options={"channel": "rtt"})[0]
    filetree.write(entry, tmp_path / "zephyr")
    elf = tmp_path / "zephyr" / "build" / "host_driven" / "zephyr" / "zephyr.elf"
    elf.parent.mkdir(parents=True)
    shutil.copy(folder / "build" / "host_driven.elf", elf)
    with pytest.raises(BoardError, match="needs a debugger to read it"):
        session.open(tmp_path / "zephyr")
    port = (tmp_path / "zephyr" / "src" / "port.c").read_text()
    assert "_SEGGER_RTT" in port and "uart" not in port
