"""mtool boards, mtool doctor."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from mtool import boards
from mtool.cli import app
from mtool.device.build import toolchains

Captured = pytest.CaptureFixture[str]


def test_boards_lists_all(capsys: Captured) -> None:
    assert app.invoke(["boards", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert [board["name"] for board in document["boards"]] == list(boards.load_all())


def test_one_board_is_shown_in_full(capsys: Captured) -> None:
    assert app.invoke(["boards", "mps2_an386"]) == 0
    shown = capsys.readouterr().out
    assert "cortex-m4 dsp fpu" in shown and "0x20000000  4 MB" in shown and "qemu-system-arm" in shown
    assert "mps2/an386, run" in shown


def test_the_list_says_what_was_done_with_each_board(capsys: Captured) -> None:
    assert app.invoke(["boards"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "baremetal run, zephyr run" in lines["mps2_an386"]
    assert "zephyr built" in lines["stm32f746g_disco"]
    assert "zephyr generated" in lines["esp32c3_devkitm"]


def test_an_unknown_board_ends_with_6_and_names_its_neighbours(capsys: Captured) -> None:
    assert app.invoke(["boards", "mps2_an368"]) == 6
    assert "mps2_an386" in capsys.readouterr().err


def test_doctor_names_what_is_there(capsys: Captured) -> None:
    assert app.invoke(["doctor", "--json", "--board", "host"]) == 0
    tools = {tool["name"]: tool for tool in json.loads(capsys.readouterr().out)["tools"]}
    assert tools["cc"]["version"] and tools["cc"]["install"] == ""
    assert "qemu-system-arm" not in tools


def test_doctor_ends_with_the_boards_that_work(capsys: Captured) -> None:
    app.invoke(["doctor"])
    last = capsys.readouterr().out.rstrip().splitlines()[-1]
    assert re.match("ready to use: .*host.*; for another board: mtool doctor --board BOARD", last)


def test_doctor_lists_what_flashes_a_board(monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "west").write_text("#!/bin/sh\necho West version: v1.2.0\n")
    (tmp_path / "west").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda tool, **how: None if tool == "openocd" else real(tool, **how))
    app.invoke(["doctor", "--json", "--board", "nucleo_l4r5zi"])
    tools = {tool["name"]: tool for tool in json.loads(capsys.readouterr().out)["tools"]}
    assert tools["openocd"]["version"] is None and tools["openocd"]["install"] == "sudo apt-get install openocd"
    inner = tools["openocd for west"]
    assert inner["state"] == "missing" and inner["purpose"] == "mtool flash --runner west"
    assert tools["west"]["state"] == "ok"
    assert tools["openocd"]["purpose"] == "mtool flash --runner openocd" and "bossac" not in tools


def test_doctor_gives_the_command_for_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == "arm-none-eabi-gcc" else f"/bin/{name}")
    monkeypatch.setattr(toolchains, "output_of", lambda argv: "/there 1.2.3")
    assert app.invoke(["doctor"]) == 0  # the host board is complete
    assert "sudo apt-get install gcc-arm-none-eabi" in capsys.readouterr().out
    assert app.invoke(["doctor", "--board", "mps2_an386"]) == 5
    captured = capsys.readouterr()
    assert "sudo apt-get install gcc-arm-none-eabi" in captured.out
    assert captured.err.startswith("error: arm-none-eabi-gcc is missing\n")


def test_the_options_of_a_template_are_listed_without_a_model(capsys: Captured) -> None:
    assert app.invoke(["build", "-b", "mps2_an386", "--options"]) == 0
    shown = capsys.readouterr().out
    assert "options of the template baremetal" in shown and "-O2, -O3, -Os" in shown and "of at least 256" in shown
    assert app.invoke(["generate", "-b", "nucleo_l4r5zi", "--options", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["options"]["uart_ring_bytes"]["default"] == 2048
    assert app.invoke(["build", "-b", "mps2_an386", "--options", "-t", "arduino"]) == 2
    assert app.invoke(["build", "-b", "mps2_an386"]) == 2
    assert "missing argument 'MODEL...'" in capsys.readouterr().err
