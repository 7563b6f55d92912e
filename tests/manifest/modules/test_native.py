"""Native modules on emulated cores: at any address they compute the results of the compiled-in model."""

import shutil
import subprocess
from pathlib import Path

import amount
import numpy as np
import onnx
import pytest
from one_firmware import LINKER, STRICT, emulated
from onnx import TensorProto, helper, numpy_helper

import mtool
from mtool.boards import Board, get
from mtool.commands import modules
from mtool.manifest.modules import keys

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
BOARDS = ["mps2_an386", *["qemu_riscv32", "mps3_an547", "mps2_an385", "mps2_an500"] * amount.IS_ALL]
LOADER = ("mt_module", "mt_module_native", "mt_module_exports", "mt_sha512", "mt_ed25519")
COUNTER = 3


def float_model(path: Path) -> Path:
    """Write a float32 model with a state: dense layers, a sigmoid, a softmax."""
    rng = np.random.default_rng(5)
    weights = {
        "w0": rng.standard_normal((16, 32)), "b0": rng.standard_normal(32), "w1": rng.standard_normal((32, 8)),
        "b1": rng.standard_normal(8),
    }  # fmt: skip
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["a"], "first"),
        helper.make_node("Sigmoid", ["a"], ["s"], "gate"),
        helper.make_node("Add", ["s", "h"], ["g"], "state"),
        helper.make_node("Gemm", ["g", "w1", "b1"], ["d"], "second"),
        helper.make_node("Softmax", ["d"], ["y"], "end", axis=1),
    ]
    values = {name: (1, size) for name, size in (("x", 16), ("h", 32), ("g", 32), ("y", 8))}
    described = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in values.items()}
    graph = helper.make_graph(
        nodes, "cell", [described["x"], described["h"]], [described["y"], described["g"]],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module", params=BOARDS)
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the firmware of native.c says, a line for each module."""
    board = get(request.param)
    assert board.emulator
    for program in (board.toolchain, board.emulator.program):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    folder = tmp_path_factory.mktemp(board.name)
    _build(folder, board)
    return [line for line in emulated(folder, board.name).splitlines() if "warning" not in line]


def test_modules_compute_the_same_wherever_they_lie(said: list[str]) -> None:
    assert said == ["same " * 8] * 2 + ["end"]


def _build(folder: Path, board: Board) -> None:
    """Build checks.elf: two modules, what loads them, and the same models compiled in."""
    public = keys.make(folder / "own.key")
    other = keys.make(folder / "other.key")
    state = mtool.Options(
        name="cell", states=(("g", "h"),), state_values={"h": np.full((1, 32), 0.5, np.float32)}, weights="text"
    )
    models = {
        "cell": (float_model(folder / "cell.onnx"), state),
        "digits": (ROOT / "examples" / "digits" / "digits_int8.onnx", mtool.Options(name="digits", weights="text")),
    }
    lines = [
        f"static const uint8_t keys[2][32] = {{{{{_bytes(other.raw)}}}, {{{_bytes(public.raw)}}}}};",
        "#define IS_FLOAT(each) ((each) == cases)",
    ]
    made = {
        name: modules.make_module(path, board=board, options=options, key=folder / "own.key", counter=COUNTER)
        for name, (path, options) in models.items()
    }
    rows = []
    for name, (path, options) in models.items():
        (folder / f"{name}.mtm").write_bytes(made[name].data)
        compiled = mtool.compile(path, board=board, options=options)
        for file, data in compiled.sources().files.items():
            (folder / file).write_bytes(data)
        arena = compiled.manifest.symbols["arena"]
        lines += [
            f'#include "{name}.h"',
            f"extern const uint8_t {name}_file[];",
            f"extern uint8_t {arena}[];",
            f"static int32_t {name}_runs(void) {{ return {name}_run(&{name}_arena_inputs, &{name}_arena_outputs); }}",
            f"static void {name}_begins(void) {{ {'cell_reset();' * (name == 'cell')} }}",
        ]
        for kind, tensors in (("inputs", compiled.manifest.inputs), ("outputs", compiled.manifest.outputs)):
            places = ", ".join(f"{arena} + {one.arena_offset}" for one in tensors)
            lines.append(f"static void *const {name}_{kind}_at[] = {{{places}}};")
        tables = f"{name}_runs, {name}_begins, {name}_inputs_at, {name}_outputs_at"
        rows.append(f"{{{name}_file, {len(made[name].data)}, {tables}}}")
    lines.append(f"static const struct one cases[] = {{{', '.join(rows)}}};")
    place = max(len(one.data) for one in made.values()) + 4096 + 16
    ram = max(one.module.ram_bytes() for one in made.values()) + 64
    sizes = [f"#define PLACE_BYTES {place}", f"#define RAM_BYTES {ram}"]
    (folder / "cases.h").write_text("\n".join([*sizes, *lines, ""]))
    files = [
        f'.section .rodata.{name},"a"\n.balign 16\n.global {name}_file\n{name}_file: .incbin "{name}.mtm"\n'
        for name in made
    ]
    (folder / "files.S").write_text("".join(files))
    _link(folder, board)


def _link(folder: Path, board: Board) -> None:
    code, weights, arena = (board.memory_for(what) for what in ("code", "weights", "arena"))
    script = LINKER.format(code=code, weights=weights, arena=arena, constants="F" if weights == code else "C")
    (folder / "checks.ld").write_text(script)
    sources = [*folder.glob("*.c"), folder / "files.S", HERE / "native.c", ROOT / "tests" / "one_firmware.c"]
    sources += [ROOT / "crt" / "modules" / f"{name}.c" for name in LOADER]
    flags = [*board.cflags, *STRICT, f"-I{ROOT / 'crt' / 'include'}", "-I.", "-Os", "-ffunction-sections"]
    link = ["-nostartfiles", "-T", "checks.ld", "-Wl,--gc-sections", "-DMT_MODULE_MATH=2"]
    subprocess.run([board.toolchain, *flags, *sources, *link, "-o", "checks.elf", "-lm"], cwd=folder, check=True)


def _bytes(data: bytes) -> str:
    return ", ".join(map(str, data))
