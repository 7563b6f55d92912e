"""Projects of a real model with an operator that misbehaves if the input selects it."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtool import commands
from mtool.boards import Board
from mtool.commands import Options
from mtool.device import build
from mtool.manifest import Manifest

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
NAMED = 'operator 2, conv2d 3x3 "conv2" (schedule '

# What the first element of the input asks for. 0: nothing.
UNMAPPED, NULL, DEEP, LARGE, ILLEGAL, ASSERTION, ENDLESS, DIVISION, CANARY, ABORT, IN_LIBRARY = range(1, 12)

_BEFORE = """
#include <assert.h>
#include <string.h>
#include "mtool.h"

#if UINTPTR_MAX == UINT32_MAX
#define UNMAPPED ((uintptr_t)0x70000000u)
#else
#define UNMAPPED ((uintptr_t)0x10u)
#endif
#if UINTPTR_MAX == UINT32_MAX && !defined(__ZEPHYR__)
extern uint8_t mt_stack_low[];
#else
static uint8_t mt_stack_low[1];
#endif

static volatile int32_t wanted;
static int32_t go_deep(int32_t left);
static int32_t (*volatile deeper)(int32_t) = go_deep;

static int32_t go_deep(int32_t left)
{
    volatile uint8_t bytes[64];
    bytes[left % 64] = 1;
    return left > 0 ? deeper(left - 1) + bytes[left % 64] : 0;
}

static __attribute__((noinline)) int32_t be_large(void)
{
    volatile uint8_t bytes[64000];
    bytes[0] = 1;
    return bytes[0];
}
"""

_FAULTS = """
    volatile uintptr_t address = 0;
    volatile int32_t zero = 0;
    if (wanted == 1) {
        address = UNMAPPED;
        *(volatile int32_t *)address = 1; /* line 1 */
    }
    if (wanted == 2) {
        *(volatile int32_t *)address = 1; /* line 2 */
    }
    if (wanted == 3) {
        zero = deeper(10000000);
    }
    if (wanted == 4) {
        zero = be_large();
    }
    if (wanted == 5) {
        __builtin_trap(); /* line 5 */
    }
    assert(wanted != 6); /* line 6 */
    while (wanted == 7) { /* line 7 */
    }
    if (wanted == 8) {
#ifdef __ARM_ARCH
        *(volatile uint32_t *)0xE000ED14u |= 1u << 4; /* CCR.DIV_0_TRP */
#endif
        zero = wanted / zero; /* line 8 */
    }
    if (wanted == 9) {
        *(volatile uint8_t *)mt_stack_low = 0;
    }
    if (wanted == 10) {
        mt_port_abort(5);
    }
    if (wanted == 11) {
        address = UNMAPPED;
        memset((void *)address, 1, 100000);
    }
"""


def make(board: Board, folder: Path, *, template: str = "", replace: dict[str, str] | None = None) -> Path:
    """Build the host-driven firmware of DIGITS for a board, with faults in the operator NAMED."""
    for program in [board.toolchain, *([board.emulator.program, "cmake", "ninja"] if board.emulator else [])]:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    model = commands.compile(DIGITS, board=board, options=Options(template=template))
    commands.write_project(model, folder)
    source = folder / "model" / "digits_int8.c"
    text = source.read_text()
    text = after(text, r"^#include \"digits_int8_weights\.h\"\n", _BEFORE)
    text = after(text, r"^MT_ALONE void digits_int8_conv_0\([^)]*\)\n\{\n", "    wanted = input[0];\n")
    text = after(text, r"^MT_ALONE void digits_int8_conv_2\([^)]*\)\n\{\n", _FAULTS)
    source.write_text(text)
    for path, changed in (replace or {}).items():
        (folder / path).write_text(changed)
    build.build(folder, kinds=["host_driven"])
    return folder


def after(text: str, pattern: str, added: str) -> str:
    """Return C with something added behind the first place that matches."""
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, pattern
    return text[: found.end()] + added + text[found.end() :]


def line(folder: Path, fault: int) -> str:
    """Return the file and the line at which a fault happens."""
    lines = (folder / "model" / "digits_int8.c").read_text().splitlines()
    (number,) = [number for number, text in enumerate(lines, 1) if f"/* line {fault} */" in text]
    return f"digits_int8.c:{number}"


def sample(manifest: Manifest, fault: int = 0) -> dict[str, Any]:
    """Return an input that asks for a fault."""
    (described,) = manifest.inputs
    data = np.zeros(described.shape, described.dtype)
    data.reshape(-1)[0] = fault
    return {described.name: data}
