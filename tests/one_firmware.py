"""Many small models in one firmware: built once, run once in QEMU (or on the host under the sanitizers)."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sanitized
from graphs import Array, compiled

from mtool.base import resources
from mtool.boards import get
from mtool.compiler import codegen
from mtool.compiler.codegen import Conventions
from mtool.compiler.codegen.weights import number_rows
from mtool.compiler.plan import Plan
from mtool.manifest import Manifest, Tensor

HERE = Path(__file__).parent
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-ffp-contract=off", "-fno-math-errno"]
LINKER = """
MEMORY {{ F (rx) : ORIGIN = {code.base:#x}, LENGTH = {code.size}
         C (r) : ORIGIN = {weights.base:#x}, LENGTH = {weights.size}
         R (rw) : ORIGIN = {arena.base:#x}, LENGTH = {arena.size} }}
stack_top = ORIGIN(R) + LENGTH(R);
SECTIONS {{ .text : {{ KEEP(*(.vectors)) *(.text*) *(.ARM*) }} > F
           .rodata : {{ *(.rodata*) *(.srodata*) }} > {constants}
           .bss (NOLOAD) : {{ bss_start = .; *(.data*) *(.sdata*) *(.bss*) *(.sbss*) *(COMMON)
                              . = ALIGN(4); bss_end = .; }} > R }}
"""


@dataclass(frozen=True)
class Case:
    """A plan, another of the same model that it should equal, what goes in, and how far apart elements may be."""

    plan: Plan
    reference: Plan
    feeds: dict[str, Array]
    tolerance: float = 0.0


def failures(
    cases: Sequence[Case], folder: Path, board: str | None, optimise: str = "-O2", definitions: Sequence[str] = ()
) -> list[str]:
    """Run every case, on a board's emulator or (None) on the host; return what went wrong, a line a case.

    Plans of one name are the same plan: several cases may have one reference. `definitions` are macros, on the host.
    """
    sources: dict[str, list[str]] = {"models.c": [], "references.c": []}
    checks = ["#include <stdint.h>", "#include <string.h>", "#include <math.h>", "void say(const char *text);"]
    calls = []
    written: dict[str, Manifest] = {}
    for number, case in enumerate(cases):
        lines = [f"static int check{number}(void)", "{"]
        for plan in (case.plan, case.reference):
            model = plan.graph.name
            if model not in written:
                files, written[model] = codegen.generate(plan, "test.onnx", "0" * 64, conventions_of(plan))
                for name in files:  # a streamed model and a whole one, which else do not link
                    (folder / name).write_bytes(re.sub(rb"MT_CONVENTION.*\n", b"", files[name]))
                unit = "models.c" if plan is case.plan else "references.c"
                sources[unit] += [f"{model}.c", f"{model}_weights.c"]
                checks.append(f'#include "{model}.h"')
            for tensor in written[model].inputs:
                given = f"x{number}_{tensor.c_name}"
                if plan is case.plan:
                    checks.append(_array(given, np.ascontiguousarray(case.feeds[tensor.name])))
                if tensor.stream is not None:
                    checks.append(_array(f"rows{number}", rows_of(tensor, case.feeds[tensor.name])))
                    continue
                lines.append(f"    memcpy({model}_arena_inputs.{tensor.c_name}, {given}, {tensor.bytes});")
            lines += _inference(written[model], number)
        manifests = [written[plan.graph.name] for plan in (case.plan, case.reference)]
        mine, other = (f"{m.model}_arena_outputs.{m.outputs[0].c_name}" for m in manifests)
        lines += [
            f"    for (int i = 0; i < {int(np.prod(manifests[0].outputs[0].shape))}; ++i)",
            f"        if (!(fabsf((float){mine}[i] - (float){other}[i])",
            f"              <= {case.tolerance:.9f}f * (1.0f + fabsf((float){other}[i]))))",
            "            return 0;",
            "    return 1;",
            "}",
        ]
        checks += lines
        calls.append(f'    if (!check{number}())\n        say("{number}\\n");')
    if board is None:
        checks += ["#include <stdio.h>", "void say(const char *text) { fputs(text, stdout); }"]
    checks += ["int main(void)", "{", *calls, '    say("end\\n");', "    return 0;", "}"]
    # Few translation units: the runtime's inline functions are compiled once in each.
    for unit, names in sources.items():
        (folder / unit).write_text("".join(f'#include "{name}"\n' for name in names))
    (folder / "checks.c").write_text("\n".join(checks) + "\n")
    done = _run_host(folder, definitions) if board is None else _run_board(folder, board, optimise)
    assert "end" in done.split(), done
    return [f"case {n}: {_describe(cases[int(n)])}" for n in re.findall(r"^(\d+)$", done, re.MULTILINE)]


def conventions_of(plan: Plan) -> Conventions:
    """Return those that a plan goes with."""
    return Conventions("feed" if plan.graph.stream else "c")


def rows_of(tensor: Tensor, data: Array) -> Array:
    """Return an input as its rows are given."""
    assert tensor.stream is not None
    return np.ascontiguousarray(data.transpose(tensor.stream.order) if tensor.stream.order else data)


def _inference(manifest: Manifest, number: int) -> list[str]:
    """Return the C of one inference, on one row, then two, then three and so on if there is a stream."""
    model = manifest.model
    streamed = next((tensor for tensor in manifest.inputs if tensor.stream is not None), None)
    if streamed is None:
        return [f"    if ({model}_run(&{model}_arena_inputs, &{model}_arena_outputs))", "        return 0;"]
    row = f"{model}_{streamed.c_name}_ROW".upper()
    begin = f"&{model}_arena_inputs" if len(manifest.inputs) > 1 else ""
    return [
        f"    if ({model}_begin({begin}))",
        "        return 0;",
        f"    for (int32_t row = 0, count = 1; row < {row}S; row += count, ++count) {{",
        f"        count = count < {row}S - row ? count : {row}S - row;",
        f"        if ({model}_feed(rows{number} + row * {row}_COUNT, count))",
        "            return 0;",
        "    }",
        f"    if ({model}_finish(&{model}_arena_outputs))",
        "        return 0;",
    ]


def _array(name: str, data: Array) -> str:
    kinds = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t", "float32": "float"}
    return f"static const {kinds[data.dtype.name]} {name}[{data.size}] = {{\n{number_rows(data)}\n}};"


def _describe(case: Case) -> str:
    plan = case.plan
    return "; ".join(f"{s.schedule.name} {s.op.label(s.node, plan.graph)}, {s.node}"[:1500] for s in plan.steps[:2])


def _run_host(folder: Path, definitions: Sequence[str]) -> str:
    include = resources.path("crt") / "include"
    flags = [*STRICT, "-Wno-unused-function", f"-I{include}", *(f"-D{name}" for name in definitions)]
    units = [folder / name for name in ("models.c", "references.c", "checks.c")]
    program = sanitized.build(units, folder / "checks", flags)
    return subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout


def _run_board(folder: Path, board_name: str, optimise: str) -> str:
    build_for(folder, board_name, optimise)
    return emulated(folder, board_name)


def build_for(folder: Path, board_name: str, optimise: str) -> None:
    """Build checks.elf of models.c, checks.c and, without optimisation, references.c in the folder."""
    board = get(board_name)
    code, weights, arena = (board.memory_for(what) for what in ("code", "weights", "arena"))
    assert code and weights and arena and board.emulator
    constants = "F" if weights == code else "C"
    script = LINKER.format(code=code, weights=weights, arena=arena, constants=constants)
    (folder / "checks.ld").write_text(script)
    flags = [*board.cflags, *STRICT, f"-I{resources.path('crt') / 'include'}", "-ffunction-sections"]
    link = ["-nostartfiles", "-T", "checks.ld", "-Wl,--gc-sections", str(HERE / "one_firmware.c")]
    for argv in (
        [board.toolchain, *flags, "-O0", "-c", "references.c"],  # which is not what is tried
        [board.toolchain, *flags, optimise, "models.c", "checks.c", "references.o", *link, "-o", "checks.elf", "-lm"],
    ):
        subprocess.run(argv, cwd=folder, check=True)


def emulated(folder: Path, board_name: str, change: tuple[str, str] = ("", "")) -> str:
    """Run checks.elf and return what it says; `change`: a text in the emulator's arguments that another replaces."""
    board = get(board_name)
    assert board.emulator
    arguments = [argument.replace("{elf}", "checks.elf").replace(*change) for argument in board.emulator.arguments]
    argv = [board.emulator.program, *arguments, "-semihosting-config", "enable=on,target=native", "-display", "none"]
    done = subprocess.run(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.stdout


__all__ = ["Case", "build_for", "compiled", "emulated", "failures"]
