"""UF2: a file that is flashed by copying it to a board's USB drive. The format: github.com/microsoft/uf2."""

import getpass
import struct
from pathlib import Path

from elftools.elf.elffile import ELFFile

_PAGE = 256
_MAGIC = (0x0A324655, 0x9E5D5157, 0x0AB16F30)
_FAMILY_PRESENT = 0x2000
MOUNTS = ("/media/{user}", "/run/media/{user}", "/Volumes", "/mnt")


def drive(volume: str) -> Path:
    """Return a drive's mount point, also if it is not mounted."""
    folders = [Path(mount.format(user=getpass.getuser())) / volume for mount in MOUNTS]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def convert(elf: Path, family: int) -> bytes:
    """Return a firmware as UF2: blocks of 512 bytes with 256 bytes of flash each."""
    pages: dict[int, bytearray] = {}
    with elf.open("rb") as file:
        for segment in ELFFile(file).iter_segments("PT_LOAD"):
            for address, byte in enumerate(segment.data(), segment["p_paddr"]):
                base, at = divmod(address, _PAGE)
                pages.setdefault(base * _PAGE, bytearray(_PAGE))[at] = byte
    blocks = []
    for number, (address, page) in enumerate(sorted(pages.items())):
        head = struct.pack("<8I", *_MAGIC[:2], _FAMILY_PRESENT, address, _PAGE, number, len(pages), family)
        blocks.append(head + page.ljust(476, b"\0") + struct.pack("<I", _MAGIC[2]))
    return b"".join(blocks)
