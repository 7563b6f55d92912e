"""A native module's image: its contents, and code that can't be a module."""

import shutil

import pytest

from mtool.base.errors import BuildError
from mtool.base.filetree import FileTree
from mtool.boards import get
from mtool.device.build import module_image

CALLED = "int mt_module_call(void *arena, unsigned number);\nint mt_module_call(void *arena, unsigned number)\n"
BOARDS = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(get(name).toolchain) is None, reason="no compiler"))
    for name in ("mps2_an386", "qemu_riscv32")
]


def link(board: str, body: str, before: str = "") -> module_image.Image:
    source = f"{before}\n{CALLED}{{\n{body}\n}}\n"
    return module_image.link(FileTree({"one.c": source.encode()}), get(board), {}, "-O2")


@pytest.mark.parametrize("board", BOARDS)
def test_code_stands_before_constants_and_imports_are_reported(board: str) -> None:
    table = "#include <string.h>\nextern const int odd[64];\nconst int odd[64] = {1, 3, 5, 7};\n"
    image = link(board, "    memset(arena, (int)number, number);\n    return odd[number & 63];", table)
    assert image.imports == ("memset",)
    constants = image.data[image.code_bytes :]
    assert constants.startswith(b"\1\0\0\0\3\0\0\0\5\0\0\0\7\0\0\0") and len(constants) in range(256, 272)
    assert 0 < image.stack_bytes < 100
    assert image.entry == 0 and image.alignment >= 16 and image.code_bytes % 4 == 0


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(
    ("before", "body", "reported"),
    [
        ("static int kept;", "    kept += (int)number;\n    return kept;", "kept"),
        ("int begun = 3;", "    return begun++;", "begun"),
        (
            "static int two(void) { return 2; }\nstatic int three(void) { return 3; }\n"
            "int (*const table[])(void) = {two, three};",
            "    return table[number & 1]();",
            "table",
        ),
        ("extern int far_away(void *);", "    return far_away(arena);", "far_away"),
        ("int printf(const char *, ...);", '    return printf("%u", number);', "printf"),
    ],
    ids=["bss", "data", "table of addresses", "unknown function", "firmware does not export"],
)
def test_what_no_module_has_is_named(board: str, before: str, body: str, reported: str) -> None:
    with pytest.raises(BuildError) as caught:
        link(board, body, before)
    assert reported in str(caught.value)


def test_floats_without_an_fpu_are_the_compilers_own() -> None:
    body = "    float *values = arena;\n    values[0] = values[1] * values[2];\n    return (int)number;"
    image = link("mps2_an385", body)
    assert image.imports == () and "__aeabi_fmul" in image.linked
