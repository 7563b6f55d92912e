"""The storage of modules in a partition of Zephyr's flash, whose sectors may have different sizes: src/storage.c of a
project, compiled for this computer with a flash in memory."""

import functools
import subprocess
import tempfile
from pathlib import Path

import jinja2
import pytest

from mtool.base import resources
from tests.crt.firmware import CRT

KIB = 1 << 10
F4 = (16, 16, 16, 16, 64, 128, 128, 128)
"""The sectors of an STM32F405, as of an F7 with half the size, in KiB (RM0090, 3.3)."""

HERE = Path(__file__).parent
HEADERS = ("cache.h", "drivers/flash.h", "storage/flash_map.h")


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="mtool-storage-")


@functools.cache
def source() -> tuple[Path | str, ...]:
    """Return src/storage.c of a project, and the compiler's flags to build it without Zephyr."""
    folder = Path(_folder().name)
    for header in HEADERS:
        (folder / "zephyr" / header).parent.mkdir(parents=True, exist_ok=True)
        (folder / "zephyr" / header).touch()
    source = "zephyr/{{cookiecutter.folder}}/src/{% if cookiecutter.modules %}storage.c{% endif %}"
    text = (resources.path("project_templates") / source).read_text()
    variables = {"modules": {"simulates_flash": False}}
    made = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(text).render(cookiecutter=variables)
    (folder / "storage.c").write_text(f'#include "fake_flash.h"\n{made}')
    return folder / "storage.c", f"-I{folder}", f"-I{HERE}"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("storage") / "storage"
    text, *flags = source()
    flags += ["-include", text, f"-I{CRT / 'include'}", "-Wall", "-fsanitize=undefined"]
    subprocess.run(["gcc", *flags, HERE / "test_storage.c", "-o", built], check=True)
    return built


@pytest.mark.parametrize(
    ("offset", "size", "sectors", "expected"),
    [
        (64, 32, (4,) * 32, "4096 32768"),
        (0, 512, F4, "131072 524288"),  # four small ones and a larger one are erased together
        (0, 128, F4, "65536 131072"),
        (0, 64, F4, "16384 65536"),
        (256, 256, F4, "131072 262144"),
        (0, 144, (128, 16), "131072 131072"),  # the rest stays unused
        (32, 352, F4, "none"),  # 16, 16, 64 and 128: no 128 from the start
        (8, 120, F4, "none"),  # it begins in a sector,
        (128, 192, F4, "none"),  # or ends in one
        (0, 1024, F4, "none"),  # beyond the flash
    ],
)
def test_sectors_of_different_sizes_are_erased_as_sectors_of_the_largest(
    program: Path, offset: int, size: int, sectors: tuple[int, ...], expected: str
) -> None:
    arguments = [str(number * KIB) for number in (offset, size, *sectors)]
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == expected
