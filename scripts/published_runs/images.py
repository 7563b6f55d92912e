"""Flash images from STM32 boards: the model's function in them is called on an emulated Cortex-M4.

There are no symbols. What MLPerf's firmware says before it measures ("m-infer-start") leads to the loop that calls the
model, and its addresses are below.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mtool import boards
from mtool.device.cycles import Clock, Estimate, cores, execution
from mtool.device.cycles.estimate import flash_arguments, summarise
from mtool.device.cycles.execution import Listing
from published_runs.counting import TOOLCHAIN, run

_BASE, _HARNESS = 0x08000000, 0x080F0000
_HAS_FLASH_THERE = "nucleo_l4r5zi"
_MACHINE = "-M netduinoplus2 -nic none -display none -monitor none -serial null -serial null -serial null"
_START = """
.syntax unified
.cpu cortex-m4
.section .harness,"ax"
.word 0x20020000
.word reset
.thumb_func
.global reset
.type reset, %function
reset:
    ldr r0, =0xe000ed88         @ the FPU is off at reset
    ldr r1, =0x00f00000
    str r1, [r0]
    dsb
    isb
    ldr r0, =0x20000000         @ the model's buffer, and whatever lies in it
    ldr r1, =0x20018000
    movs r2, #1
    ldr r4, =1664525
    ldr r5, =1013904223
1:  mla r2, r2, r4, r5
    str r2, [r0], #4
    cmp r0, r1
    bne 1b
    ldr r0, =0x20000000
    bl one_inference
    movs r0, #0x18              @ semihosting: done
    ldr r1, =0x20026
    bkpt 0xab
    b .
.thumb_func
.global one_inference
.type one_inference, %function
one_inference:
    push {r4, lr}
    ldr r4, =MODEL
    blx r4
    pop {r4, pc}
.size one_inference, . - one_inference
.ltorg
"""


@dataclass(frozen=True)
class Image:
    """The image, and the address of the model's function in it."""

    path: Path
    entry: int


def count_image(image: Image, clock: Clock) -> Estimate:
    """Count one inference of an image, for the board that it was built for."""
    with tempfile.TemporaryDirectory(prefix="bench-cycles-") as temporary:
        folder = Path(temporary)
        out = folder / "counts.txt"
        unlabelled = _linked(image, folder, ())
        flashes = flash_arguments([clock], boards.get(_HAS_FLASH_THERE))
        plugin = execution.build_plugin(folder)
        listing = Listing(unlabelled, TOOLCHAIN)
        arguments = execution.emulator_arguments(plugin, listing, ["one_inference"], out, flashes)
        semihosting = ["-semihosting-config", "enable=on,target=native"]
        run(["qemu-system-arm", *_MACHINE.split(), *semihosting, *arguments, "-kernel", str(unlabelled)])
        blocks = {int(line.split()[2], 16) for line in out.read_text().splitlines() if line.startswith("block")}
        listing = Listing(_linked(image, folder, sorted(blocks)), TOOLCHAIN)
        executed = execution.read(out, listing, ["one_inference"])
        return summarise(executed, listing, [core for core in cores() if core.cpu == clock.cpu], [], [clock])


def _linked(image: Image, folder: Path, blocks: Iterable[int]) -> Path:
    """Link the image with what calls its model; each block has a symbol, so that it is disassembled from there."""
    data, elf = bytearray(image.path.read_bytes()), folder / "image.elf"
    data[:8] = (0x20020000).to_bytes(4, "little") + (_HARNESS + 9).to_bytes(4, "little")
    (folder / "image.bin").write_bytes(data)
    inside = [address - _BASE for address in blocks if address < _BASE + len(data)]
    pieces = []
    for first, after in zip([0, *inside], [*inside, len(data)], strict=True):
        name = f"at_{_BASE + first:x}"
        pieces += [".thumb_func", f".type {name}, %function", f"{name}:"]
        pieces.append(f'.incbin "{folder / "image.bin"}", {first}, {after - first}')
    code = "\n".join([_START.replace("MODEL", hex(image.entry | 1)), '.section .image,"ax"', *pieces, ""])
    (folder / "image.s").write_text(code)
    link = ["-nostdlib", "-nostartfiles", "-Wl,-e,reset", f"-Wl,--section-start=.image={_BASE:#x}"]
    link += [f"-Wl,--section-start=.harness={_HARNESS:#x}"]
    run([TOOLCHAIN, "-mcpu=cortex-m4", "-mthumb", str(folder / "image.s"), *link, "-o", str(elf)])
    run([TOOLCHAIN.replace("gcc", "objcopy"), "-w", "--strip-symbol=$d*", str(elf)])
    return elf
