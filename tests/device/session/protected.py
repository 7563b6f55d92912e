"""Firmware with memory protection around two models, one of which misbehaves on request, which ends it alone."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import stateful
from graphs import reference

import mtool
from mtool import boards, commands
from mtool.base.errors import DeviceError
from mtool.boards import Board
from mtool.boards.protection import needed_unit
from mtool.device import build, session
from mtool.device.session import Device
from tests.device.session import faulty

NAMED = "in operator 0, conv2d 3x3 "
PLACES = ("server", "caller's stack", "vectors", "other's state", "input", "peripheral", "nowhere")
"""What is written, as the first element of the input counts them from 1; read by negative numbers."""

LEAVE, LOST_STACK, ILLEGAL, RAISE, ENDLESS, DEEP, TWICE = range(20, 27)
"""Other requests of the input: to leave through the protection's exit, with 5; to lose the stack; ...; two faults at
once."""

_BEFORE = """
#include <stdint.h>
extern uint8_t mt_stack_top[], mt_server_bytes[], cell_digits_int8_arena[];
int *__errno(void);
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
#ifdef __arm__
    *__errno() = 1; /* as newlib's libm does */
#endif
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

_SERVERS = """
extern uint8_t mt_server_bytes[64];
uint8_t mt_server_bytes[64];
#ifdef __ZEPHYR__ /* in place of a C library's; on bare metal, startup.c has one */
int *__errno(void);
int *__errno(void)
{
    return (int *)(uintptr_t)mt_server_bytes;
}
#endif
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
    """The board, the project's folder, and the cell as ONNX with its states."""

    board: Board
    folder: Path
    proto: onnx.ModelProto
    pairs: Any


def make(name: str, folder: Path, template: str = "") -> Protected:
    """Build it for a board: a recurrent cell that keeps a state, and the digits' network, which is at fault."""
    board = boards.get(name)
    assert board.emulator is not None
    for program in (board.toolchain, board.emulator.program, "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    proto, pairs = stateful.recurrent("GRU", "torch", 1)
    onnx.save(proto, folder / "cell.onnx")
    both = mtool.Options(protect=True, template=template)
    options = [replace(both, states=tuple(pairs)), replace(both, io="external")]
    models = mtool.compile_models([folder / "cell.onnx", faulty.DIGITS], board=board, options=options)
    project = commands.write_project(models[0], folder / "project")
    source = project / "model" / "digits_int8.c"
    text = source.read_text()
    text = faulty.after(text, r"^#include \"digits_int8_weights\.h\"\n", _macros(board) + _BEFORE)
    text = faulty.after(text, r"^MT_ALONE void digits_int8_conv_0\([^)]*\)\n\{\n", "    wanted = input[0];\n" + _FAULTS)
    source.write_text(text)
    work = project / "crt" / "src" / "mt_work.c"
    work.write_text(work.read_text() + _SERVERS)
    build.build(project, kinds=["host_driven"])
    return Protected(board, project, proto, pairs)


class Cell:
    """The other model: a sequence of it, and what onnxruntime says of each step."""

    def __init__(self, built: Protected, device: Device) -> None:
        self.proto, self.pairs, self.device = built.proto, built.pairs, device
        self.kept = {value: np.zeros((1, 1, stateful.HIDDEN), np.float32) for _, value in built.pairs}
        self.rng = np.random.default_rng(0)

    def step(self) -> None:
        x = self.rng.standard_normal((1, 1, stateful.SIZE)).astype(np.float32)
        names = [output.name for output in self.proto.graph.output]
        made = dict(zip(names, reference(self.proto, {"x": x, **self.kept}), strict=True))
        self.kept = {value: made[output] for output, value in self.pairs}
        np.testing.assert_allclose(self.device["cell"].run({"x": x})["y"], made["y"], atol=1e-5)


def image(wanted: int = 0) -> dict[str, Any]:
    """Return an input that asks for something."""
    data = np.arange(64, dtype=np.int8).reshape(1, 1, 8, 8)
    data[0, 0, 0, 0] = wanted
    return {"image": data}


def _macros(board: Board) -> str:
    texts = _ARM if board.cpu.startswith("cortex") else _RISCV
    code = next(memory.base for memory in board.memories.values() if "code" in memory.holds)
    timer = board.timer.base if board.timer is not None and board.timer.base else board.port.get("clint", 0x40000000)
    macros = {**texts, "VECTORS": f"{code:#x}u", "TIMER": f"{timer:#x}u"}
    return "".join(f"#define {name} {text}\n" for name, text in macros.items())


def check(built: Protected) -> None:
    """Check that every request ends the digits' network alone, reported with its operator."""
    board, scores = built.board, reference(onnx.load(faulty.DIGITS), image())[0]
    with session.open(built.folder, timeout_s=30) as device:
        digits, cell = device["digits_int8"], Cell(built, device)

        def stopped(
            wanted: int, what: str | tuple[str, ...], *, in_steps: bool = True, timeout_s: float | None = None
        ) -> DeviceError:
            with pytest.raises(DeviceError) as caught:
                digits.run(image(wanted), in_steps=in_steps, timeout_s=timeout_s)
            assert caught.value.what.startswith(what) and (caught.value.operator == 0 or not in_steps)
            cell.step()
            np.testing.assert_array_equal(digits.run(image())["scores"], scores)
            return caught.value

        np.testing.assert_array_equal(digits.run(image())["scores"], scores)
        is_arm = board.cpu.startswith("cortex")
        has_flash_whole = needed_unit(board.cpu).in_eighths
        for number, place in enumerate(PLACES, 1):
            error = stopped(
                number, f"{'MemManage' if is_arm else 'store access fault'} {NAMED}", in_steps=number % 2 > 0
            )
            assert "digits_int8.c:" in error.details[0] and ("MMFAR 0x" if is_arm else "mtval 0x") in error.details[0]
            if place != "input" and not (place == "vectors" and has_flash_whole):
                stopped(-number, f"{'MemManage' if is_arm else 'load access fault'} {NAMED}", in_steps=number % 2 == 0)
        assert stopped(LEAVE, "the model failed on the device in operator 0 with code 5")
        stopped(LOST_STACK, "MemManage" if is_arm else "store access fault")
        stopped(TWICE, "MemManage" if is_arm else "illegal instruction")
        stopped(ILLEGAL, f"{'UsageFault' if is_arm else 'breakpoint'} {NAMED}")
        if board.name != "qemu_cortex_m3":  # QEMU's lm3s6965evb ignores failed accesses
            # HardFault: where a secure Zephyr leaves bus faults to a non-secure firmware, which there is not.
            kinds = ("BusFault", "HardFault") if is_arm else ("illegal instruction",)
            stopped(RAISE, tuple(f"{kind} {NAMED}" for kind in kinds))
        if board.name in ("mps2_an386", "qemu_riscv32"):
            stopped(ENDLESS, f"timeout {NAMED}", timeout_s=0.1)
        stopped(DEEP, f"stack overflow {NAMED}")
        with pytest.raises(DeviceError, match=NAMED):
            digits.time(2, 1, inputs=image(1))
        assert digits.time(2, 1, inputs=image()).median > 0
        cell.step()
