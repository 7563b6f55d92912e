"""The C in the tutorials compiles against the header of the example's model."""

import re
import subprocess
from pathlib import Path

import pages
import pytest

import mtool

STUBS = (
    "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#define printk printf\n#define Error_Handler abort\n"
)
BLOCKS = [
    (page.stem, block)
    for page in sorted((pages.ROOT / "docs" / "tutorials").glob("*.md"))
    for block in pages.blocks(page.read_text(), "c")
    if '"digits_int8.h"' in block
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("c")
    files = mtool.compile(pages.ROOT / "examples" / "digits" / "digits_int8.onnx", board="host").sources()
    for name in files:
        path = folder / Path(name).name
        path.write_bytes(files[name])
    return folder


def test_there_are_such_blocks() -> None:
    assert {"zephyr", "esp-idf", "from-x-cube-ai"} <= {name for name, _ in BLOCKS}


@pytest.mark.parametrize("name, block", BLOCKS, ids=[name for name, _ in BLOCKS])
def test_the_block_compiles(name: str, block: str, sources: Path) -> None:
    includes = "".join(re.findall(r"^#include.*\n", block, re.MULTILINE))
    code = re.sub(r"^#include.*\n", "", block, flags=re.MULTILINE)
    is_whole = re.search(r"^\{", code, re.MULTILINE) is not None  # functions, not statements
    text = STUBS + includes + (code if is_whole else f"void block(void)\n{{\n{code}\n}}\n")
    done = subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", sources, "-x", "c", "-"],
        input=text,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
