"""The stack's bound, which is read from machine code: as GCC knows it, and never below what is measured."""

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from mtool import boards
from mtool.base.errors import BuildError, FitError
from mtool.commands import Options
from mtool.commands.cost import bench
from mtool.device.build.stack import CallGraph
from tests import models
from tests.arduino import simavr, sine

CORES = {
    "cortex-m0": ("arm-none-eabi-gcc", "-mcpu=cortex-m0", "-mthumb"),
    "cortex-m4": ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    "cortex-m55": ("arm-none-eabi-gcc", "-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"),
    "rv32imc": ("riscv64-unknown-elf-gcc", "-march=rv32imc", "-mabi=ilp32", "--specs=picolibc.specs"),
    "avr": ("avr-gcc", "-mmcu=atmega328p"),
}
LINK = {"avr": 2}  # the return address that a call pushes, which GCC counts for the called function
FRAME = 108  # of an exception, with the FPU's registers: Armv7-M ARM, B1.5.7
LEVELS = ("-O0", "-Og", "-Os", "-O2", "-O3")
ALONE = "__attribute__((noinline))"
SOURCE = f"""
#include <math.h>
#include <stdint.h>
volatile int32_t seen;
int32_t leaf(int32_t x), flat(int32_t x), table(int32_t x), large(int32_t x), huge(int32_t x), many(int32_t *x);
int32_t tail(int32_t x), library(float x), early(int32_t *x), again(int32_t x), sized(int32_t x), calls(int32_t x);
int32_t (*pointer)(int32_t) = leaf;
{ALONE} int32_t leaf(int32_t x) {{ return x * seen; }}
{ALONE} int32_t flat(int32_t x) {{ return leaf(x) + leaf(x + 1); }}
{ALONE} int32_t table(int32_t x) {{
    switch (x) {{
    case 0: return flat(seen) + 3;
    case 1: return flat(x + seen) * 5;
    case 2: seen = 7; return leaf(2) + 1;
    case 3: return seen / 3;
    case 4: return flat(leaf(seen)) - 1;
    case 5: seen += 2; return seen;
    case 6: return many((int32_t *)&seen);
    }}
    return x;
}}
{ALONE} int32_t large(int32_t x) {{ volatile int32_t a[150]; a[0] = x; return a[seen & 127] + leaf(x); }}
{ALONE} int32_t huge(int32_t x) {{ volatile uint8_t a[7000]; a[1] = 1; return a[seen & 1023] + flat(x); }}
{ALONE} int32_t many(int32_t *x) {{
    int32_t a = x[0], b = x[1], c = x[2], d = x[3], e = x[4], f = x[5], g = x[6], h = x[7], i = x[8], j = x[9];
    for (int32_t k = 0; k < seen; ++k) {{
        a += b * c; b ^= d + e; c += f * g; d -= h; e += i * j; f ^= a; g += b; h += c; i ^= d; j += e;
    }}
    return a + b + c + d + e + f + g + h + i + j;
}}
{ALONE} int32_t early(int32_t *x) {{
    if (x == 0) {{ return 1; }}
    int32_t sum = many(x);
    for (int32_t i = 0; i < 9; ++i) {{ sum += flat(x[i]) * x[i + 1]; }}
    return sum;
}}
{ALONE} int32_t tail(int32_t x) {{ if (x > 9) {{ return large(x); }} return flat(x + seen); }}
{ALONE} int32_t library(float x) {{ return (int32_t)(expf(x) / (x + 3.0f)); }}
{ALONE} int32_t again(int32_t x) {{ return x < 1 ? 0 : x * again(x / 2) + seen; }}
{ALONE} int32_t sized(int32_t x) {{ volatile uint8_t a[x]; a[0] = 1; a[x / 2] = 3; return a[seen]; }}
{ALONE} int32_t calls(int32_t x) {{ return pointer(x) + 1; }}
int main(void) {{
    int32_t some[10] = {{0}};
    return (int)(table(seen) + huge(seen) + early(some) + tail(seen) + library(2.0f) + again(5) + sized(9) + calls(1));
}}
"""
KNOWN = ("leaf", "flat", "table", "large", "huge", "many", "early", "tail", "library")


@pytest.fixture(
    params=[
        pytest.param((core, level), marks=[pytest.mark.slow] * (level != "-O2"))
        for core, level in itertools.product(CORES, LEVELS)
    ],
    ids=" ".join,
)
def linked(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, CallGraph, dict[str, int]]:
    """Return a core's name, the graph of a program for it, and what GCC says of the frames."""
    core, level = request.param
    compiler = CORES[core]
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"{compiler[0]} is not installed")
    (tmp_path / "a.c").write_text(SOURCE)
    flags = [level, "-w", "-ffunction-sections", "-fstack-usage", "-nostartfiles", "-Wl,-e,main,--gc-sections"]
    argv = [*compiler, *flags, "a.c", "-o", "a.elf", "-lm"]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    rows = [line.split("\t") for line in next(tmp_path.glob("*.su")).read_text().splitlines()]
    frames = {where.rsplit(":", 1)[1]: int(size) - LINK.get(core, 0) for where, size, _ in rows}
    return core, CallGraph(tmp_path / "a.elf"), frames


def test_frames_are_what_gcc_says(linked: tuple[str, CallGraph, dict[str, int]]) -> None:
    _, graph, by_gcc = linked
    frames = graph.frames()
    assert {name: frames[name] for name in KNOWN if name in by_gcc} == {
        name: by_gcc[name] for name in by_gcc if name in KNOWN
    }


def test_calls_add_up_and_what_is_not_bounded_is_said(linked: tuple[str, CallGraph, dict[str, int]]) -> None:
    core, graph, by_gcc = linked
    link = LINK.get(core, 0)
    bounds = {name: graph.bound(name) for name in graph.names if name in by_gcc}
    bytes_of = {name: bound.bytes or 0 for name, bound in bounds.items()}
    assert bytes_of["flat"] == by_gcc["flat"] + link + bytes_of["leaf"]
    assert bytes_of["huge"] == by_gcc["huge"] + link + bytes_of["flat"]
    deepest = max(bytes_of[name] for name in ("flat", "many"))
    assert deepest <= bytes_of["table"] <= by_gcc["table"] + link + deepest  # less if it jumps there at its end
    assert bytes_of["library"] > by_gcc["library"] + link
    assert bytes_of["tail"] >= bytes_of["large"]
    assert bounds["huge"].path[:2] == (("huge", by_gcc["huge"] + link), ("flat", by_gcc["flat"] + link))
    assert bounds["sized"].unknown == "sized sets the stack pointer to a value that depends on data"
    assert bounds["calls"].unknown == "calls calls a function through a pointer"
    assert graph.bound("calls", {"calls": ["flat"]}).bytes == by_gcc["calls"] + link + bytes_of["flat"]
    if bounds["again"].bytes is None:  # GCC may have made a loop of it
        assert bounds["again"].unknown == "functions call one another in a circle: again, again"
    assert graph.callers("huge") == ("main",)
    assert "tail" in graph.callers("flat")


def test_a_file_that_is_not_firmware_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("no code")
    with pytest.raises(BuildError, match=r"the code of .* can't be read"):
        CallGraph(tmp_path / "a")
    assert CallGraph(Path("/bin/true")).bound("main").unknown == "the code of x64 can't be read"


EMULATED = [
    board.name
    for board in boards.load_all().values()
    if board.emulator and {"baremetal", "unicorn"} & {*board.templates} and board.memories
]


DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
KWS = [models.path(f"kws/kws_{kind}") for kind in ("int8_qdq", "float32")]


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("board", EMULATED)
@pytest.mark.parametrize("path", [DIGITS, *KWS], ids=lambda path: path.stem)
def test_no_bound_is_below_what_is_measured(path: Path, board: str, level: str) -> None:
    target = boards.get(board)
    assert target.emulator is not None
    if not path.exists() or (path != DIGITS and "unicorn" in target.templates):
        pytest.skip("the model is missing, or takes minutes there")
    for program in (target.toolchain, target.emulator.program):
        if program not in ("ziglang", "unicorn") and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    try:
        cost = bench(path, board=board, repeat=1, options=Options(template_options={"opt": level}))
    except FitError as small:
        pytest.skip(small.what)
    assert cost.stack_bound_unknown == ""
    assert cost.stack_bytes is not None and cost.served_stack_bound_bytes is not None
    has_interrupt = bool(target.ports) or (target.timer is not None and target.timer.kind == "systick")
    frame = FRAME if "fpu" in target.features else 36
    assert cost.interrupt_stack_bytes == (frame if has_interrupt else 0)
    assert cost.stack_bytes <= cost.served_stack_bound_bytes + cost.interrupt_stack_bytes
    assert cost.stack_bound_bytes is not None and cost.stack_bound_bytes < cost.served_stack_bound_bytes


@pytest.mark.slow
def test_no_bound_is_below_what_is_measured_on_an_avr(tmp_path: Path) -> None:
    simavr.need()
    options = Options(template_options={"builder": "cmake"})
    cost = bench(sine.write(tmp_path / "sine.onnx"), board="arduino_uno", repeat=1, options=options)
    assert cost.stack_bound_unknown == ""
    handlers = cost.interrupt_stack_bytes  # of Arduino's core: the timer's overflow, the UART's two
    assert handlers is not None and 10 < handlers < 100
    assert cost.stack_bytes is not None and cost.stack_bytes <= (cost.served_stack_bound_bytes or 0) + handlers
