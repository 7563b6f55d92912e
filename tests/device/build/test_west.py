"""west's arguments, recorded by a program in its place; no Zephyr is needed."""

import json
from pathlib import Path

import pytest
import toy

from mtool import boards, manifest, project
from mtool.base import filetree
from mtool.base.errors import BuildError, FitError, UsageError
from mtool.base.filetree import FileTree
from mtool.device.build import build, west

MODEL, MANIFEST = toy.compiled()
NUCLEO = boards.get("nucleo_f746zg")

# Writes down its arguments and what it was given in its environment; makes what a build would, or fails with a text.
FAKE_WEST = """#!/usr/bin/env python3
import json, os, pathlib, sys
names = ["ZEPHYR_BASE", "ZEPHYR_TOOLCHAIN_VARIANT", "GNUARMEMB_TOOLCHAIN_PATH"]
with open("{log}", "a") as log:
    log.write(json.dumps([sys.argv[1:], {{name: os.environ.get(name, "") for name in names}}]) + chr(10))
if {says!r}:
    sys.exit({says!r})
folder = pathlib.Path(sys.argv[sys.argv.index("-d") + 1])
(folder / "zephyr").mkdir(parents=True, exist_ok=True)
(folder / "zephyr" / "zephyr.elf").write_text("elf")
(folder / "build.ninja").write_text("")
cache = ["APPLICATION_SOURCE_DIR:PATH=" + os.getcwd(), "ZEPHYR_BASE:PATH=" + os.environ["ZEPHYR_BASE"], ""]
(folder / "CMakeCache.txt").write_text(chr(10).join(cache))
"""


class World:
    """A computer with west and an Arm compiler, a Zephyr tree and a project on it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.zephyr = folder / "workspace" / "zephyr"
        self.project = folder / "project"
        self.zephyr.mkdir(parents=True)
        (self.zephyr / "VERSION").write_text("VERSION_MAJOR = 4\nVERSION_MINOR = 1\nPATCHLEVEL = 0\nEXTRAVERSION =\n")
        (folder / "usr" / "bin").mkdir(parents=True)
        self.program("west", FAKE_WEST.format(log=folder / "log", says=""))
        self.program("cmake", "#!/bin/sh\necho cmake version 3.25.1\n")
        self.program("ninja", "#!/bin/sh\necho 1.11.1\n")
        answer = 'case "$1" in --version) echo "gcc (x) 12.2.1";; *) echo /lib/libc.a;; esac'
        self.program("arm-none-eabi-gcc", f"#!/bin/sh\n{answer}\n")
        monkeypatch.setenv("PATH", f"{folder / 'usr' / 'bin'}:/usr/bin:/bin")
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("ZEPHYR_BASE", str(self.zephyr))
        for name in ("ZEPHYR_TOOLCHAIN_VARIANT", "ZEPHYR_SDK_INSTALL_DIR", "GNUARMEMB_TOOLCHAIN_PATH"):
            monkeypatch.delenv(name, raising=False)

    def program(self, name: str, text: str) -> None:
        path = self.folder / "usr" / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def write(self, board: boards.Board = NUCLEO, *, folder: Path | None = None, text: str = "") -> Path:
        files = FileTree({**MODEL.files, "toy.c": MODEL["toy.c"] + text.encode()})
        place = folder or self.project
        tree, _ = project.render(files, MANIFEST, board, template="zephyr")
        filetree.write(tree, place)
        return place

    def log(self) -> list[tuple[list[str], dict[str, str]]]:
        """Return the arguments and the environment of each call so far."""
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_each_kind_has_its_folder_and_is_configured_once(world: World) -> None:
    built = build(world.write(), kinds=["host_driven", "standalone"])
    assert [argv for argv, _ in world.log()] == [
        ["build", "-d", "build/host_driven", "-p", "always", "-b", "nucleo_f746zg"],
        ["build", "-d", "build/standalone", "-p", "always", "-b", "nucleo_f746zg", "--", "-DFILE_SUFFIX=standalone"],
    ]
    assert built.toolchain == "Zephyr 4.1.0 with arm-none-eabi-gcc 12.2.1"
    assert build(world.project, kinds=["host_driven"]).up_to_date
    assert not build(world.write(text="\n/* changed */\n"), kinds=["host_driven"]).up_to_date
    assert world.log()[2:] == [[["build", "-d", "build/host_driven"], world.log()[0][1]]]


def test_a_folder_that_moved_is_configured_again(world: World) -> None:
    build(world.write(), kinds=["host_driven"])
    moved = world.project.rename(world.folder / "moved")
    (moved / "build" / "host_driven.key").unlink()
    build(moved, kinds=["host_driven"])
    assert "always" in world.log()[-1][0]


def test_the_boards_own_compiler_is_given_to_zephyr(world: World) -> None:
    build(world.write(), kinds=["host_driven"])
    assert world.log()[0][1] == {
        "ZEPHYR_BASE": str(world.zephyr),
        "ZEPHYR_TOOLCHAIN_VARIANT": "gnuarmemb",
        "GNUARMEMB_TOOLCHAIN_PATH": str(world.folder / "usr"),
    }


@pytest.mark.parametrize("reported", ["variant", "installed", "registered"])
def test_a_configured_zephyr_toolchain_is_kept(reported: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    if reported == "variant":
        monkeypatch.setenv("ZEPHYR_TOOLCHAIN_VARIANT", "llvm")
    elif reported == "installed":
        monkeypatch.setenv("ZEPHYR_SDK_INSTALL_DIR", str(world.folder))
    else:
        (world.folder / ".cmake" / "packages" / "Zephyr-sdk").mkdir(parents=True)
        (world.folder / ".cmake" / "packages" / "Zephyr-sdk" / "5a1b").write_text("")
    built = build(world.write(), kinds=["host_driven"])
    assert world.log()[0][1]["GNUARMEMB_TOOLCHAIN_PATH"] == ""
    assert built.toolchain == f"Zephyr 4.1.0 with {'llvm' if reported == 'variant' else 'the Zephyr SDK'}"


def test_the_workspace_around_the_project_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZEPHYR_BASE")
    inside = world.write(folder=world.zephyr.parent / "app")
    with pytest.raises(BuildError, match="Zephyr tree not found") as caught:
        build(inside, kinds=["host_driven"])
    assert "ZEPHYR_BASE" in caught.value.hint
    (world.zephyr.parent / ".west").mkdir()
    (world.zephyr.parent / ".west" / "config").write_text("[manifest]\npath = zephyr\n\n[zephyr]\nbase = zephyr\n")
    build(inside, kinds=["host_driven"])
    assert world.log()[0][1]["ZEPHYR_BASE"] == str(world.zephyr)


def test_a_wrong_zephyr_base_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEPHYR_BASE", str(world.folder))
    with pytest.raises(BuildError, match="Zephyr tree not found") as caught:
        build(world.write(), kinds=["host_driven"])
    assert caught.value.details == (f"ZEPHYR_BASE is {world.folder}, which has no VERSION file",)


def test_a_missing_west_is_reported_with_its_command(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.folder / "usr" / "bin" / "west").unlink()
    monkeypatch.setattr("sys.executable", str(world.folder / "python"))
    with pytest.raises(BuildError, match="west is not installed") as caught:
        build(world.write(), kinds=["host_driven"])
    assert "pip install 'mtool-mcu[zephyr]'" in caught.value.hint


def test_a_west_beside_this_python_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = world.folder / "venv" / "bin"
    beside.mkdir(parents=True)
    (world.folder / "usr" / "bin" / "west").rename(beside / "west")
    monkeypatch.setattr("sys.executable", str(beside / "python"))
    assert west.program() == str(beside / "west")
    assert not build(world.write(), kinds=["host_driven"]).up_to_date


def test_a_board_that_zephyr_has_no_name_for_is_reported(world: World) -> None:
    nameless = NUCLEO.model_copy(update={"templates": {"arduino": "x:y:z"}})
    written = manifest.load(world.write()).project
    assert written is not None
    with pytest.raises(UsageError, match="unknown Zephyr name for nucleo_f746zg"):
        west.command(written.model_copy(update={"board": nameless}), "host_driven", configured=False)


def test_a_failed_build_shows_the_last_lines(world: World) -> None:
    world.program("west", FAKE_WEST.format(log=world.folder / "log", says="[1/2] Building\nport.c:1: error: no UART"))
    with pytest.raises(BuildError, match="build of the firmware failed with exit code 1") as caught:
        build(world.write(), kinds=["host_driven"])
    assert caught.value.details[1:] == ("port.c:1: error: no UART",)


def test_what_failed_is_configured_again(world: World) -> None:
    build(world.write(), kinds=["host_driven"])
    answers = world.project / "build" / "host_driven" / "zephyr" / ".config"
    answers.write_text("CONFIG_NEWLIB_LIBC=y")
    world.program("west", FAKE_WEST.format(log=world.folder / "log", says="libc-hooks.c:1:1: error: _LOCK_T"))
    with pytest.raises(BuildError):
        build(world.write(text="\n"), kinds=["host_driven"])
    world.program("west", FAKE_WEST.format(log=world.folder / "log", says=""))
    build(world.project, kinds=["host_driven"])
    assert ["always" in argv for argv, _ in world.log()] == [True, False, True]
    assert not answers.exists()


def test_an_overflow_is_reported_in_the_boards_own_words(world: World) -> None:
    says = "ld.bfd: region `FLASH' overflowed by 12345 bytes\nld.bfd: region `RAM' overflowed by 16 bytes"
    world.program("west", FAKE_WEST.format(log=world.folder / "log", says=says))
    with pytest.raises(FitError, match="does not fit nucleo_f746zg") as caught:
        build(world.write(), kinds=["host_driven"])
    assert any(line.startswith("flash") and "13 KB too many" in line for line in caught.value.details)
    assert any(line.startswith("sram") and "16 B too many" in line for line in caught.value.details)
