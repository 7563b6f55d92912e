from pathlib import Path

import pytest

from mtool.base.errors import BuildError
from mtool.boards import Emulator
from mtool.device.transport import open_emulator
from mtool.device.transport.emulator import command

MACHINE = Emulator(program="cat", arguments=("-u", "file={elf}", "-"))


def test_the_command_names_the_firmware() -> None:
    assert command(MACHINE, Path("/p/a.elf")) == ["cat", "-u", "file=/p/a.elf", "-"]


def test_it_is_driven_over_its_pipes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"firmware says: ")
    machine = Emulator(program="cat", arguments=("{elf}", "-"))
    with open_emulator(machine, tmp_path / "a") as transport:
        assert transport.name == "the emulator cat"
        assert transport.read(timeout_s=5) == b"firmware says: "
        transport.write(b"bytes", timeout_s=5)
        assert transport.read(timeout_s=5) == b"bytes"


def test_a_missing_emulator_is_reported() -> None:
    with pytest.raises(BuildError, match="qemu-system-nothing is not installed"):
        open_emulator(Emulator(program="qemu-system-nothing", arguments=()), Path("a.elf"))
