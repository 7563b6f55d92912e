"""Bytecode modules on emulated cores give the bytes of the model's graph."""

import shutil
import subprocess
from pathlib import Path

import amount
import interpreter
import models
import numpy as np
import onnx
import pytest
from networks import feeds_of
from one_firmware import LINKER, STRICT, emulated

from mtool.boards import get
from mtool.commands import Options
from mtool.commands.modules import make_bytecode
from mtool.compiler.bytecode.model import compile_bytecode
from tests.compiler.bytecode import host, small

ROOT = Path(__file__).parents[3]
BOARDS = ["mps2_an386", *["mps2_an385", "qemu_riscv32", "mps2_an500", "mps3_an547"] * amount.IS_ALL]
LOADER = ("mt_module", "mt_module_native", "mt_sha512", "mt_ed25519")


def _bytes(name: str, data: bytes) -> str:
    return f"static const uint8_t {name}[] __attribute__((aligned(16))) = {{{','.join(map(str, data))}}};"


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_computes_the_same(name: str, tmp_path: Path) -> None:
    board = get(name)
    assert board.emulator
    for program in (board.toolchain, board.emulator.program):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    onnx.save(small.network(), tmp_path / "small.onnx")
    paths = [tmp_path / "small.onnx", ROOT / "examples" / "digits" / "digits_int8.onnx"]
    kws = models.FOLDER / "kws" / "kws_int8.tflite"
    paths += [kws] if kws.exists() else []
    lines, rows, ram = [], [], 0
    for number, path in enumerate(paths):
        plan = compile_bytecode(path, Options()).plan
        made = make_bytecode(path)
        feeds = feeds_of(plan.graph, number)[0]
        results = interpreter.run(plan.graph, [feeds])[0]
        given = b"".join(np.ascontiguousarray(feeds[value]).tobytes() for value in plan.graph.inputs)
        lines += [
            _bytes(f"file{number}", made.data),
            _bytes(f"input{number}", given),
            _bytes(f"output{number}", b"".join(one.tobytes() for one in results)),
        ]
        rows.append(f"{{file{number}, input{number}, output{number}, {len(made.data)}}}")
        ram = max(ram, made.module.ram_bytes())
    lines += [f"static const struct one cases[] = {{{', '.join(rows)}}};", f"#define RAM_BYTES {ram}"]
    (tmp_path / "cases.h").write_text("\n".join([*lines, ""]))
    code, weights, arena = (board.memory_for(what) for what in ("code", "weights", "arena"))
    script = LINKER.format(code=code, weights=weights, arena=arena, constants="F" if weights == code else "C")
    (tmp_path / "checks.ld").write_text(script)
    sources = [Path(__file__).parent / "firmware.c", ROOT / "tests" / "one_firmware.c", *host.SOURCES]
    sources += [host.CRT / "bytecode" / "mt_module_bytecode.c"]
    sources += [host.CRT / "modules" / f"{one}.c" for one in LOADER]
    flags = [*board.cflags, *STRICT, f"-I{host.CRT / 'include'}", "-I.", "-Os", "-ffunction-sections"]
    link = ["-nostartfiles", "-T", "checks.ld", "-Wl,--gc-sections"]
    subprocess.run([board.toolchain, *flags, *sources, *link, "-o", "checks.elf", "-lm"], cwd=tmp_path, check=True)
    said = [line for line in emulated(tmp_path, name).splitlines() if "warning" not in line]
    assert said == ["same " * 2 * len(paths) + "end"]
