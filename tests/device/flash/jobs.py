"""A board, a job for each runner, and fake tools that print what a test needs."""

import stat
from pathlib import Path

from mtool.boards import Board
from mtool.device.flash import Job
from tests.device.flash.known import SETTINGS

MEMORIES = {
    "flash": {"base": 0x08000000, "size": "1 MiB", "holds": ["code", "weights"]},
    "sram": {"base": 0x20000000, "size": "64 KiB", "holds": ["arena", "data", "stack"]},
}
BOARD = Board.model_validate(
    {
        "name": "some_board",
        "description": "d",
        "source": "s",
        "cpu": "cortex-m7",
        "toolchain": "arm-none-eabi-gcc",
        "templates": {"zephyr": "some_board/soc", "arduino": "vendor:arch:board"},
        "memories": MEMORIES,
        "flash": {name: given for name, given in SETTINGS.items() if name != "command"},
        "usb": {"ids": ["0483:374b"]},
    }
)
PORTS = {"port": "/dev/ttyACM7", "gdb": "127.0.0.1:3333"}


def job(name: str, folder: Path = Path("/p"), *, port: str = "", probe: str = "", **settings: str | int) -> Job:
    return Job(
        folder=folder,
        firmware=folder / "build/zephyr/zephyr.elf",
        board=BOARD,
        framework_board="vendor:arch:board",
        settings={**SETTINGS[name], **settings},
        port=port,
        probe=probe,
    )


def fake(folder: Path, name: str, *, says: str = "", ends: int = 0, version: str = "99.0.0") -> None:
    """Make a program that writes its arguments to `log`, and tells its version if asked, else `says`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.says").write_text(says)
    lines = [
        "#!/bin/sh",
        f'case "$*" in *version*|-\\?|--help) echo "{name} {version}"; exit 0;; esac',
        f'echo "{name} $*" >> "{folder}/log"',
        f'cat "{folder}/{name}.says"',
        f"exit {ends}",
    ]
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
