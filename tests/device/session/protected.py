"""Firmware with memory protection around two models, one of which misbehaves if its input selects it."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import stateful

import mtool
from mtool import boards, commands
from mtool.boards import Board
from mtool.device import build
from tests.device.session import faulty

PLACES = ("server", "caller's stack", "vectors", "other's state", "input", "peripheral", "nowhere")
"""What is written, as the first element of the input counts them from 1; read by negative numbers."""

LEAVE, LOST_STACK, ILLEGAL, RAISE, ENDLESS, DEEP, TWICE = range(20, 27)
"""Other requests of the input: to leave through the protection's exit, with 5; to lose the stack; ...; two faults at
once."""

_BEFORE = """
#include <stdint.h>
extern uint8_t mt_stack_top[], mt_server_bytes[], cell_digits_int8_arena[];
static volatile int32_t wanted;
static int32_t go_deep(int32_t left);
static int32_t (*const volatile deeper)(int32_t) = go_deep;

static int32_t go_deep(int32_t left)
{
    volatile uint8_t bytes[64];
    bytes[left % 64] = 1;
    return left > 0 ? deeper(left - 1) + bytes[left % 64] : 0;
}
"""

_FAULTS = """
    volatile uint8_t *const places[] = {
        0, mt_server_bytes, (uint8_t *)((uintptr_t)mt_stack_top - 8u), (uint8_t *)VECTORS, cell_digits_int8_arena,
        (uint8_t *)(uintptr_t)input, (uint8_t *)TIMER, (uint8_t *)0x70000000u};
    if (wanted > 0 && wanted < 8)
        *places[wanted] = 1;
    if (wanted < 0)
        wanted = *places[-wanted];
    if (wanted == 20)
        __asm__ volatile(LEAVE);
    if (wanted == 21)
        __asm__ volatile(LOSE_STACK : : "r"(mt_server_bytes));
    if (wanted == 22)
        __builtin_trap();
    if (wanted == 23)
        __asm__ volatile(RAISE);
    while (wanted == 24)
        for (;;) /* no memory: an emulator is slow where a page has several regions */
            __asm__ volatile("");
    if (wanted == 25)
        wanted = deeper(1000000);
    if (wanted == 26)
        __asm__ volatile(TWICE : : "r"(mt_server_bytes));
"""

_ARM = {
    "LEAVE": r'"mov r0, #5\n\tsvc #3"',
    "LOSE_STACK": r'"mov sp, %0\n\tpush {r0}"',
    "TWICE": r'"mov sp, %0\n\tudf #0"',
    "RAISE": r'"mov r0, #0\n\tmsr control, r0\n\tisb\n\tcpsid i\n\tldr r1, =0xe000ed94\n\tstr r0, [r1]"',
}
_RISCV = {
    "LEAVE": r'"li a0, 5\n\tecall"',
    "LOSE_STACK": r'"mv sp, %0\n\tsw a0, 0(sp)"',
    "TWICE": r'"mv sp, %0\n\tunimp"',
    "RAISE": r'".option arch, +zicsr\n\tcsrw pmpcfg0, zero"',
}


@dataclass(frozen=True)
class Protected:
    """The project's folder, and the cell as ONNX with its states."""

    folder: Path
    proto: onnx.ModelProto
    pairs: Any


def make(name: str, folder: Path) -> Protected:
    """Build it for a board: a recurrent cell that keeps a state, and the digits' network, which is at fault."""
    board = boards.get(name)
    assert board.emulator is not None
    for program in (board.toolchain, board.emulator.program, "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    proto, pairs = stateful.recurrent("GRU", "torch", 1)
    onnx.save(proto, folder / "cell.onnx")
    options = [mtool.Options(states=tuple(pairs), protect=True), mtool.Options(io="external", protect=True)]
    models = mtool.compile_models([folder / "cell.onnx", faulty.DIGITS], board=board, options=options)
    project = commands.write_project(models[0], folder / "project")
    source = project / "model" / "digits_int8.c"
    text = source.read_text()
    text = faulty.after(text, r"^#include \"digits_int8_weights\.h\"\n", _macros(board) + _BEFORE)
    text = faulty.after(text, r"^MT_ALONE void digits_int8_conv_0\([^)]*\)\n\{\n", "    wanted = input[0];\n" + _FAULTS)
    source.write_text(text)
    work = project / "crt" / "src" / "mt_work.c"
    work.write_text(work.read_text() + "extern uint8_t mt_server_bytes[64];\nuint8_t mt_server_bytes[64];\n")
    build.build(project, kinds=["host_driven"])
    return Protected(project, proto, pairs)


def image(wanted: int = 0) -> dict[str, Any]:
    """Return an input that asks for something."""
    data = np.arange(64, dtype=np.int8).reshape(1, 1, 8, 8)
    data[0, 0, 0, 0] = wanted
    return {"image": data}


def _macros(board: Board) -> str:
    texts = _ARM if board.cpu.startswith("cortex") else _RISCV
    code = next(memory.base for memory in board.memories.values() if "code" in memory.holds)
    timer = board.timer.base if board.timer is not None and board.timer.base else board.port["clint"]
    macros = {**texts, "VECTORS": f"{code:#x}u", "TIMER": f"{timer:#x}u"}
    return "".join(f"#define {name} {text}\n" for name, text in macros.items())
