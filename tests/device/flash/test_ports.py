"""Selecting a device, with port lists that pyserial returned for real boards, and with pseudo-terminals."""

import os
import pty
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mtool.base.errors import BoardError, UsageError
from mtool.device.flash import ports
from mtool.device.flash.ports import Attached, DeviceSelector
from tests.device.flash.jobs import BOARD

FIRST, SECOND = "066BFF515349897167163627", "0671FF393135324E43142930"


def info(device: str, usb_id: str = "", serial: str | None = None, product: str = "", location: str = "") -> Any:
    """Return what pyserial's comports() gives for a port: None for what a device does not tell."""
    vid, pid = (int(part, 16) for part in usb_id.split(":")) if usb_id else (None, None)
    return SimpleNamespace(
        device=device,
        vid=vid,
        pid=pid,
        serial_number=serial,
        product=product or None,
        description=product or "n/a",
        location=location or None,
    )


ONE = [info("/dev/ttyACM0", "0483:374b", FIRST, "ST-LINK", "1-2:1.2"), info("/dev/ttyS0")]
TWO = [*ONE, info("/dev/ttyACM1", "0483:374b", SECOND, "ST-LINK", "1-3:1.2")]
JLINK = [
    info("/dev/ttyACM2", "1366:1055", "001050012345", "J-Link", "1-4:1.2"),
    info("/dev/ttyACM1", "1366:1055", "001050012345", "J-Link", "1-4:1.0"),
]
CLONES = [info("/dev/ttyUSB10", "0483:374b", None, "CP2102"), info("/dev/ttyUSB9", "0483:374b", None, "CP2102")]


def found(recorded: list[Any]) -> list[Attached]:
    return ports.attached(lambda: recorded, Path("/nonexistent"))


def test_the_single_match_is_taken_with_its_probe_and_its_port() -> None:
    assert ports.require(BOARD, DeviceSelector(), found(ONE)) == Attached("/dev/ttyACM0", "0483:374b", FIRST, "ST-LINK")


def test_ports_that_are_not_usb_are_not_boards() -> None:
    assert [device.port for device in found(ONE)] == ["/dev/ttyACM0"]


def test_several_matches_are_refused_with_the_list() -> None:
    with pytest.raises(BoardError) as caught:
        ports.resolve(BOARD, DeviceSelector(), found(TWO))
    assert caught.value.exit_code == 6
    assert str(caught.value).splitlines() == [
        "2 boards match some_board",
        f"  /dev/ttyACM0   ST-LINK {FIRST}",
        f"  /dev/ttyACM1   ST-LINK {SECOND}",
        "choose one with --probe 066BFF51 (a prefix is enough) or set MTOOL_PROBE",
    ]


def test_boards_without_serial_numbers_are_distinguished_by_their_ports() -> None:
    assert [device.port for device in found(CLONES)] == ["/dev/ttyUSB9", "/dev/ttyUSB10"]
    with pytest.raises(BoardError) as caught:
        ports.resolve(BOARD, DeviceSelector(), found(CLONES))
    assert caught.value.hint == "choose one with --port /dev/ttyUSB9 or set MTOOL_PORT"


def test_a_prefix_that_is_shared_grows() -> None:
    twins = [info(f"/dev/ttyACM{n}", "0483:374b", f"066BFF515349{n}", "ST-LINK", f"1-{n}:1.0") for n in (1, 2)]
    with pytest.raises(BoardError, match="2 boards match") as caught:
        ports.resolve(BOARD, DeviceSelector(), found(twins))
    assert "--probe 066BFF5153491 " in caught.value.hint


@pytest.mark.parametrize("prefix", ["0671FF39", "0671ff", SECOND])
def test_a_probe_is_chosen_by_a_prefix_and_brings_its_port(prefix: str) -> None:
    device = ports.resolve(BOARD, DeviceSelector(probe=prefix, origin="--probe"), found(TWO))
    assert device is not None and (device.port, device.probe) == ("/dev/ttyACM1", SECOND)


def test_a_probe_without_a_port_is_found_on_linux(tmp_path: Path) -> None:
    for name, facts in (
        ("1-2", ("0483", "374b", FIRST, "ST-LINK")),
        ("1-5", ("1366", "0101", "000260012345", "J-Link")),
        ("usb1", ("1d6b", "0002", "0000:00:14.0", "xHCI Host Controller")),
    ):
        (tmp_path / name).mkdir()
        for file, text in zip(("idVendor", "idProduct", "serial", "product"), facts, strict=True):
            (tmp_path / name / file).write_text(text + "\n")
    devices = ports.attached(lambda: ONE, tmp_path)
    assert [str(device) for device in devices] == [
        f"/dev/ttyACM0   ST-LINK {FIRST}",
        "no port   J-Link 000260012345",
    ]
    device = ports.resolve(BOARD, DeviceSelector(probe="00026"), devices)
    assert device is not None and device.port == "" and device.probe == "000260012345"


def test_a_prefix_of_several_is_refused() -> None:
    with pytest.raises(BoardError, match="2 boards match"):
        ports.resolve(BOARD, DeviceSelector(probe="06"), found(TWO))


def test_a_probe_that_is_not_there_is_refused_with_the_list() -> None:
    with pytest.raises(BoardError, match="no probe 1234 is attached") as caught:
        ports.resolve(BOARD, DeviceSelector(probe="1234", origin="the environment"), found(TWO))
    assert "requested by the environment" in caught.value.details
    assert f"/dev/ttyACM0   ST-LINK {FIRST}" in caught.value.details


def test_a_port_is_chosen_and_brings_its_probe(tmp_path: Path) -> None:
    device = ports.resolve(BOARD, DeviceSelector(port="/dev/ttyACM1"), found(TWO))
    assert device is not None and device.probe == SECOND
    link = tmp_path / "usb-STMicroelectronics_STM32_STLink_0671FF39-if02"
    link.symlink_to("/dev/ttyACM1")
    device = ports.resolve(BOARD, DeviceSelector(port=str(link)), found(TWO))
    assert device is not None and device.probe == SECOND


def test_a_port_and_a_probe_of_different_boards_are_refused() -> None:
    with pytest.raises(BoardError, match="/dev/ttyACM1 is not the port of the probe 066B"):
        ports.resolve(BOARD, DeviceSelector(port="/dev/ttyACM1", probe="066B"), found(TWO))


def test_a_port_that_is_not_there_is_refused() -> None:
    with pytest.raises(BoardError, match="port /dev/ttyACM77 not found") as caught:
        ports.resolve(BOARD, DeviceSelector(port="/dev/ttyACM77"), found(ONE))
    assert caught.value.hint == "choose one of these with --port"


def test_a_pseudo_terminal_and_a_socket_are_ports_too() -> None:
    master, slave = pty.openpty()
    try:
        name = os.ttyname(slave)
        device = ports.resolve(BOARD, DeviceSelector(port=name), found(ONE))
        assert device == Attached(name, "", "", "")
    finally:
        os.close(master)
        os.close(slave)
    device = ports.resolve(BOARD, DeviceSelector(port="socket://localhost:7000"), found(ONE))
    assert device is not None and device.port == "socket://localhost:7000"


def test_a_probe_with_several_ports_is_one_device() -> None:
    (device,) = found(JLINK)
    assert (device.port, device.more_ports, device.probe) == ("/dev/ttyACM1", ("/dev/ttyACM2",), "001050012345")
    assert str(device) == "/dev/ttyACM1   J-Link 001050012345   also /dev/ttyACM2"
    board = BOARD.model_copy(update={"usb": BOARD.usb.model_copy(update={"ids": ("1366:1055",)})})  # type: ignore[union-attr]
    chosen = ports.resolve(board, DeviceSelector(port="/dev/ttyACM2"), found(JLINK))
    assert chosen is not None and (chosen.port, chosen.probe) == ("/dev/ttyACM2", "001050012345")


def test_a_probe_of_its_own_is_chosen_by_its_serial_number() -> None:
    device = ports.resolve(BOARD, DeviceSelector(probe="00105"), found([*ONE, *JLINK]))
    assert device is not None and device.probe == "001050012345"


def test_nothing_attached_is_reported() -> None:
    assert ports.resolve(BOARD, DeviceSelector(), []) is None
    with pytest.raises(BoardError, match="no some_board is attached") as caught:
        ports.require(BOARD, DeviceSelector(), [])
    assert caught.value.details == ("looked for: USB 0483:374b", "nothing with a serial port is attached")
    assert "USB data cable" in caught.value.hint


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "mtool.toml").write_text('port = "/dev/from-file"\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    environment = {"MTOOL_PROBE": "066B"}
    assert ports.selector("/dev/x", environment=environment, folder=below) == DeviceSelector(
        "/dev/x", "", "the command line"
    )
    assert ports.selector(environment=environment, folder=below) == DeviceSelector("", "066B", "the environment")
    assert ports.selector(environment={}, folder=below) == DeviceSelector("/dev/from-file", "", "mtool.toml")
    assert ports.selector(environment={}, folder=Path("/")) == DeviceSelector()


@pytest.mark.parametrize("text", ["port = 3\n", 'speed = "fast"\n', "port =\n"])
def test_a_wrong_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "mtool.toml").write_text(text)
    with pytest.raises(UsageError, match=r"mtool\.toml"):
        ports.selector(environment={}, folder=tmp_path)


@pytest.mark.parametrize(
    "written", [b'port = "COM3"\r\n', b'\xef\xbb\xbfport = "COM3"\n', b'# B\xc3\xbcro\nport = "COM3"']
)
def test_a_file_is_read_as_other_editors_write_it(written: bytes, tmp_path: Path) -> None:
    (tmp_path / "mtool.toml").write_bytes(written)
    assert ports.selector(environment={}, folder=tmp_path).port == "COM3"


def test_a_watch_reports_what_comes_and_goes() -> None:
    looks = iter([ONE, TWO, [TWO[2]], []])
    seen = [(sign, device.port) for sign, device in ports.watch(lambda: next(looks), poll_s=0, times=4)]
    assert seen == [
        ("+", "/dev/ttyACM0"),
        ("+", "/dev/ttyACM1"),
        ("-", "/dev/ttyACM0"),
        ("-", "/dev/ttyACM1"),
    ]
