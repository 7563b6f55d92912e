"""The worst latency of the more urgent of two models: bench's figure, and a timer's in the emulator."""

import shutil
import time
from pathlib import Path

import pytest

import mtool
from mtool import boards, project
from mtool.base import resources
from mtool.base.errors import CommunicationError
from mtool.commands import build_model
from mtool.commands.cost import worst_latency
from mtool.compiler.codegen import conventions
from mtool.device import session
from mtool.stages.deployment import Deployment

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
ARM = [shutil.which(program) for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")]
BOARD = "mps2_an386"
TICK = 40  # instructions of a nanosecond each, in one of SysTick's ticks
OVERHEAD = 1.03  # the scheduler, the interrupt, and the clock that the program reads


def said(folder: Path) -> dict[str, int]:
    """Run the firmware's program, and return the numbers that it reports."""
    text, until = b"", time.monotonic() + 60
    with session.open_transport(folder, kind="standalone") as channel:
        while b"same" not in text.rpartition(b"\n")[0] and time.monotonic() < until:
            try:
                text += channel.read(timeout_s=1)
            except CommunicationError:
                break
    return {words[0]: int(words[1]) for line in text.decode().splitlines() if len(words := line.split()) == 2}


@pytest.mark.slow
@pytest.mark.skipif(None in ARM, reason="the Arm toolchain or QEMU is not installed")
def test_an_urgent_model_waits_for_one_operator_of_the_other_at_most(tmp_path: Path) -> None:
    console = resources.path("project_templates") / "own" / "console" / "baremetal.c"
    source = tmp_path / "src" / "main.c"
    source.parent.mkdir()
    source.write_text(console.read_text() + Path(__file__).with_name("urgent.c").read_text())
    folder = tmp_path / "project"
    program = project.program_in(source.parent, folder)
    options = [
        mtool.Options(name=name, conventions=conventions("step"), arenas="interleaved", program=program)
        for name in ("digits", "again")
    ]
    models = mtool.compile_models([DIGITS, DIGITS], board=boards.get(BOARD), options=options)
    prepared = build_model(models[0], folder, kinds=("host_driven", "standalone"))
    bench = worst_latency(prepared, Deployment(folder, models=models))
    found = said(folder)
    assert bench.unit == "instructions" and bench.waits_for == "again"
    assert 0.3 * bench.own < bench.wait < 0.7 * bench.own  # the longest operator, not all of the other model
    assert bench.own <= found["least"] * TICK < found["worst"] * TICK <= OVERHEAD * bench.worst
    assert found["worst"] * TICK > bench.own + 0.5 * bench.wait
    assert (found["missed"], found["same"]) == (0, 1) and found["runs"] > 3
