"""The runtime compiles without a warning for every kind of core, and the server stays small."""

import re
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.crt import firmware

CORES = {
    "x86-64": ["gcc", "-Os"],
    "cortex-m0plus": ["arm-none-eabi-gcc", "-mcpu=cortex-m0plus", "-mthumb", "-Os"],
    "cortex-m4": ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-Os"],
    "rv32imc": ["riscv64-unknown-elf-gcc", "-march=rv32imc", "-mabi=ilp32", "--specs=picolibc.specs", "-Os"],
    "avr": ["avr-gcc", "-mmcu=atmega2560", "-Os"],
}
OPTIONAL = {
    ("mt_functions",): 2 * 1024,
    ("mt_graph", "mt_json"): 8 * 1024,
    ("mt_schedule",): 1024,
    ("mt_integrity",): 1152,
}  # bytes of flash at most
MOST_FLASH_BYTES = 6 * 1024
WIDER = {"x86-64": 7744, "avr": 8704}  # unwind tables; 8-bit instructions
MOST_RAM_BYTES = 1024


def compiled(core: str, folder: Path, stems: Collection[str]) -> tuple[int, int]:
    """Compile parts of the runtime; bytes of text and data, of data and bss."""
    compiler, *flags = CORES[core]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    modules = (firmware.CRT / "modules").glob("*.c")
    sources = [str(path) for path in [*firmware.SOURCES, *modules] if path.stem in stems]
    subprocess.run([compiler, *firmware.STRICT, *flags, "-c", *sources], cwd=folder, check=True)
    size = shutil.which(compiler.replace("gcc", "size")) or "size"
    objects = sorted(str(path) for path in folder.glob("*.o"))
    listing = subprocess.run([size, "-t", *objects], capture_output=True, text=True, check=True).stdout
    total = re.search(r"^\s*(\d+)\s+(\d+)\s+(\d+).*TOTALS", listing, re.MULTILINE)
    assert total is not None
    text, data, bss = map(int, total.groups())
    return text + data, data + bss


@pytest.mark.product(3)
@pytest.mark.parametrize("core", CORES)
def test_the_server_compiles_and_is_small(core: str, tmp_path: Path) -> None:
    optional = {part for parts in OPTIONAL for part in parts}
    flash_bytes, ram_bytes = compiled(core, tmp_path, {path.stem for path in firmware.SOURCES} - optional)
    assert 1000 < flash_bytes <= WIDER.get(core, MOST_FLASH_BYTES)
    assert 50 < ram_bytes <= MOST_RAM_BYTES


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize(("parts", "most_bytes"), OPTIONAL.items(), ids=lambda value: str(value))
def test_what_a_firmware_need_not_link_is_small_too(
    core: str, parts: Collection[str], most_bytes: int, tmp_path: Path
) -> None:
    flash_bytes, ram_bytes = compiled(core, tmp_path, parts)
    assert 300 < flash_bytes <= most_bytes
    assert ram_bytes <= 300  # all memory is the model's; x86 relocates the names of element types


@pytest.mark.parametrize("path", sorted((firmware.CRT / "include").glob("*.h")), ids=lambda path: path.name)
def test_a_header_stands_alone(path: Path, tmp_path: Path) -> None:
    source = tmp_path / "alone.c"
    source.write_text(f'#include "{path.name}"\n#include "{path.name}"\nextern int declared;\n')
    subprocess.run(["gcc", *firmware.STRICT, "-fsyntax-only", str(source)], check=True)


def test_the_loader_of_modules_is_small(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("loader", "messages")]
    for folder in folders:
        folder.mkdir()
    flash_bytes, ram_bytes = compiled("cortex-m4", folders[0], ("mt_module", "mt_module_native", "mt_slots"))
    assert (flash_bytes <= 3872, ram_bytes) == (True, 0)
    assert compiled("cortex-m4", folders[1], ("mt_loader",))[0] <= 3072
