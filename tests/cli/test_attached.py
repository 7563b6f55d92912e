"""`mtool boards --attached`, on recorded port lists."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from mtool.cli import app, attached
from mtool.cli.output import Output
from mtool.device.flash import ports
from mtool.device.flash.ports import Attached

UNO = Attached("/dev/ttyACM3", "2341:0043", "55736303331351E0D1A1", "Arduino Uno")
ADAPTER = Attached("/dev/ttyUSB0", "1a86:7523", "", "USB Serial")
KEYBOARD = Attached("", "046d:c31c", "AB12", "Keyboard")
PROBE = Attached("", "2341:0010", "CD34", "Mega")

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "attached", lambda *_: [UNO, ADAPTER, KEYBOARD, PROBE])


def test_what_is_attached_is_listed_with_the_boards_that_it_may_be(plugged: None, capsys: Captured) -> None:
    assert app.invoke(["boards", "--attached"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["port", "device", "serial", "number", "usb", "board"]
    assert lines[1].split() == ["/dev/ttyACM3", "Arduino", "Uno", UNO.probe, "2341:0043", "arduino_uno"]
    assert lines[2].split() == ["/dev/ttyUSB0", "USB", "Serial", "1a86:7523"]
    assert lines[3].split() == ["Mega", "CD34", "2341:0010", "arduino_mega2560"]
    assert len(lines) == 4


def test_what_is_attached_as_json(plugged: None, capsys: Captured) -> None:
    assert app.invoke(["boards", "--attached", "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["attached"][0] == {
        "port": "/dev/ttyACM3",
        "more_ports": [],
        "probe": UNO.probe,
        "usb_id": "2341:0043",
        "description": "Arduino Uno",
        "boards": ["arduino_uno"],
    }


def test_nothing_attached_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(ports, "attached", lambda *_: [])
    assert app.invoke(["boards", "--attached"]) == 0
    assert capsys.readouterr().out == "no board is attached\n"


def test_a_watch_writes_a_line_for_what_comes_and_goes(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    looks = iter([[UNO], [UNO, ADAPTER, KEYBOARD], [ADAPTER]])
    monkeypatch.setattr(ports, "attached", lambda *_: next(looks))
    monkeypatch.setattr(ports, "time", SimpleNamespace(sleep=lambda _: None))
    attached.follow(Output("boards"), times=3)
    assert capsys.readouterr().out.splitlines() == [
        f"+ /dev/ttyACM3   Arduino Uno {UNO.probe}   arduino_uno",
        "+ /dev/ttyUSB0   USB Serial 1a86:7523",
        f"- /dev/ttyACM3   Arduino Uno {UNO.probe}   arduino_uno",
    ]
