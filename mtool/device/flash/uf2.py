"""UF2: the board shows up as a USB drive, and a file that is copied there is flashed. No tool is needed.

Settings: volume (the drive's label: "RPI-RP2"), family (the chip's family in the file: 0xe48bff56). A build that makes
a .uf2 file needs no family. The format: github.com/microsoft/uf2, "UF2 File Format".
"""

import getpass
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from elftools.elf.elffile import ELFFile

from mtool.device.flash.runner import NEWEST, Cause, Job, Kind, Runner, Version

_PAGE = 256
_MAGIC = (0x0A324655, 0x9E5D5157, 0x0AB16F30)
_FAMILY_PRESENT = 0x2000
MOUNTS = ("/media/{user}", "/run/media/{user}", "/Volumes", "/mnt")


class Uf2(Runner):
    """Copy a file to the drive of the board's bootloader."""

    name = "uf2"
    programs = ("cp",)
    install = "cp is part of coreutils"
    takes = ".uf2"
    selects = ""
    verifies = False
    version_argv = ()
    causes = (
        Cause(Kind.PERMISSION, r"permission denied|read-only file system"),
        Cause(Kind.NO_PROBE, r"no such file or directory|not a directory|cannot create"),
    )

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Copy; the drive vanishes when the bootloader has all of it."""
        return [self.program(), str(self.image(job)), str(drive(job.setting("volume"))) + "/"]

    def files(self, job: Job) -> Mapping[Path, bytes]:
        """The .uf2 file, unless the build makes it."""
        if ".uf2" in job.made:
            return {}
        family = int(job.setting("family"), 0)
        return {self.image(job): convert(job.firmware, family)}


def drive(volume: str) -> Path:
    """Return the folder at which a drive is mounted; where it would be, if it is not."""
    folders = [Path(mount.format(user=getpass.getuser())) / volume for mount in MOUNTS]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def convert(elf: Path, family: int) -> bytes:
    """Return a firmware as UF2: blocks of 512 bytes with 256 bytes of flash each."""
    pages: dict[int, bytearray] = {}
    for address, data in _segments(elf):
        for offset, byte in enumerate(data):
            base, at = divmod(address + offset, _PAGE)
            pages.setdefault(base * _PAGE, bytearray(_PAGE))[at] = byte
    blocks = []
    for number, (address, page) in enumerate(sorted(pages.items())):
        head = struct.pack("<8I", *_MAGIC[:2], _FAMILY_PRESENT, address, _PAGE, number, len(pages), family)
        blocks.append(head + page.ljust(476, b"\0") + struct.pack("<I", _MAGIC[2]))
    return b"".join(blocks)


def _segments(elf: Path) -> Iterator[tuple[int, bytes]]:
    with elf.open("rb") as file:
        for segment in ELFFile(file).iter_segments("PT_LOAD"):
            if segment["p_filesz"]:
                yield segment["p_paddr"], segment.data()
