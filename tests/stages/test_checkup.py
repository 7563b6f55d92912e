"""What a board needs on this computer, in folders and environments that lack one thing after another."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mtool import boards
from mtool.cli import app
from mtool.device.build import toolchains
from mtool.device.flash import ports
from mtool.stages import checkup

BOARD_YML = "board: {name: nucleo_l4r5zi, full_name: Nucleo, vendor: st, socs: [{name: stm32l4r5xx}]}\n"
MANIFEST = """
manifest:
  projects:
    - {name: hal_stm32, path: modules/hal/stm32}
    - {name: cmsis_6, path: modules/hal/cmsis_6}
# - name: hal_stm32
"""
Item = checkup.Item


@pytest.fixture
def zephyr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Play a whole workspace, an SDK and all programs; return the tree."""
    tree = tmp_path / "work" / "zephyr"
    files = {
        "VERSION": "VERSION_MAJOR = 4\nVERSION_MINOR = 1\nPATCHLEVEL = 0\n",
        "boards/st/nucleo_l4r5zi/board.yml": BOARD_YML,
        "soc/st/stm32/soc.yml": "family:\n- name: stm32\n  socs:\n  - name: stm32l4r5xx\n",
        "soc/st/stm32/Kconfig": "config SOC_SERIES_STM32L4X\n\tselect HAS_STM32CUBE\n",
        "modules/Kconfig.stm32": "config HAS_STM32CUBE\n\tbool\n",
        "west.yml": MANIFEST,
        "../modules/hal/stm32/there": "",
        "../modules/hal/cmsis_6/there": "",
        "../sdk/arm-zephyr-eabi/there": "",
        "../.west/config": "[zephyr]\nbase = zephyr\n",
    }
    for name, text in files.items():
        (tree / name).resolve().parent.mkdir(parents=True, exist_ok=True)
        (tree / name).resolve().write_text(text)
    monkeypatch.setenv("ZEPHYR_BASE", str(tree))
    monkeypatch.setenv("ZEPHYR_SDK_INSTALL_DIR", str(tmp_path / "work" / "sdk"))
    monkeypatch.delenv("ZEPHYR_TOOLCHAIN_VARIANT", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/bin/{name}")
    for module in (toolchains, checkup):
        monkeypatch.setattr(module, "output_of", lambda argv: "/there 1.6.3")
    monkeypatch.setattr(ports, "attached", lambda: [])
    for runner in checkup.flash.all_runners().values():
        monkeypatch.setattr(type(runner), "probe_version", lambda self: (1, 2))
    return tree


def missing(board: str) -> dict[str, Item]:
    return {item.name: item for item in checkup.missing(checkup.of_board(boards.get(board)))}


def test_a_whole_workspace_is_enough(zephyr: Path) -> None:
    assert missing("nucleo_l4r5zi") == {}
    found = {item.name: item.found for item in checkup.of_board(boards.get("nucleo_l4r5zi"))}
    assert found["hal_stm32"] == "there" and found["Zephyr tree"].startswith("4.1.0 in ")


@pytest.mark.parametrize(
    ("spoil", "name", "install"),
    [
        (lambda tree: shutil.rmtree(tree.parent / "modules/hal/stm32"), "hal_stm32", "west update hal_stm32"),
        (lambda tree: shutil.rmtree(tree.parent / "modules/hal/cmsis_6"), "cmsis_6", "west update cmsis_6"),
        (lambda tree: shutil.rmtree(tree.parent / ".west"), "west workspace", "west init -l zephyr && west update"),
        (lambda tree: (tree / "VERSION").unlink(), "Zephyr tree", "west init"),
        (lambda tree: (tree / "VERSION").write_text("VERSION_MAJOR = 3\nVERSION_MINOR = 5"), "Zephyr tree", "checkout"),
        (lambda tree: shutil.rmtree(tree.parent / "sdk/arm-zephyr-eabi"), "compiler", "west sdk install -t arm-zephyr"),
    ],
)
def test_less_is_not_enough(zephyr: Path, spoil: Callable[[Path], object], name: str, install: str) -> None:
    spoil(zephyr)
    lacking = missing("nucleo_l4r5zi")
    assert install in lacking[name].install


def test_a_template_has_needs_of_its_own(
    zephyr: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.invoke(["doctor", "--template", "zephyr"]) == 0
    shutil.rmtree(zephyr.parent / ".west")
    assert app.invoke(["doctor", "--template", "zephyr"]) == 5
    assert (
        app.invoke(["doctor", "--template", "baremetal"]) == 0
    )  # which needs no tree, nor has a compiler without a board
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    capsys.readouterr()
    assert app.invoke(["doctor", "--template", "baremetal", "--json"]) == 5
    reported = json.loads(capsys.readouterr().out)["tools"]
    assert [(one["name"], one["state"], one["board"]) for one in reported] == [("cmake", "missing", None)]
    missing_with = {
        board: {item.name for item in checkup.missing(checkup.of_board(boards.get(board), "zephyr"))}
        for board in ("mps2_an385", "nucleo_l4r5zi")
    }
    assert all("west workspace" in names for names in missing_with.values())


def test_a_compiler_for_xtensa_is_not_that_for_arm(zephyr: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "west sdk install -t xtensa-" in missing("esp32s3_devkitc")["compiler"].install
    monkeypatch.delenv("ZEPHYR_SDK_INSTALL_DIR")
    monkeypatch.setenv("HOME", str(zephyr))
    assert missing("esp32s3_devkitc")["compiler"].install == "west sdk install"
    monkeypatch.setattr(checkup, "output_of", lambda argv: "picolibc.specs")  # GCC has no such file
    assert "picolibc-arm-none-eabi" in missing("nucleo_l4r5zi")["compiler"].install


def test_one_tool_that_flashes_is_enough(zephyr: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"west", "dtc", "cmake", "ninja", "st-flash"}
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/bin/{name}" if name in there else None)
    assert missing("nucleo_l4r5zi") == {}
    there.remove("st-flash")
    lacking = missing("nucleo_l4r5zi")
    assert lacking["openocd for west"].install == "sudo apt-get install openocd"  # which west runs


def test_rights_to_the_port_and_to_the_probe(
    zephyr: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(checkup, "groups", lambda: ({"users"}, {"users", "dialout"}))
    monkeypatch.setattr(checkup, "RULES", (str(tmp_path),))
    (tmp_path / "60-other.rules").write_text('ATTRS{idVendor}=="1366", MODE="0666"')
    lacking = missing("nucleo_l4r5zi")
    assert lacking["serial port"].install.startswith("sudo usermod -aG dialout ")
    assert (
        'ATTRS{idVendor}=="0483"' in lacking["udev"].install and "udevadm control --reload" in lacking["udev"].install
    )
    assert app.invoke(["doctor", "-b", "nucleo_l4r5zi"]) == 5
    assert "2 things are missing" in capsys.readouterr().err
    (tmp_path / "49-stlink.rules").write_text('SUBSYSTEMS=="usb", ATTRS{idVendor}=="0483", TAG+="uaccess"')
    monkeypatch.setattr(checkup, "groups", lambda: ({"dialout"}, {"dialout"}))
    assert missing("nucleo_l4r5zi") == {}
    monkeypatch.setattr(checkup, "is_wsl", lambda: True)
    monkeypatch.setattr("mtool.device.flash.runner.is_wsl", lambda: True)
    found = {item.name: item for item in checkup.of_board(boards.get("nucleo_l4r5zi"))}
    assert "usbipd attach --wsl" in found["WSL"].install
