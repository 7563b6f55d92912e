"""Measure the table of TVM's AOT RFC, text, data, bss and stack by calling convention, and write docs/aot-table.md.

    scripts/aot_table.py [--models DIR] [--board BOARD]

The models are one of micro_speech's shape, which this script makes (its weights are drawn: they change no size), and
KWS int8 from DIR (default: ../shared/models), or the example where that is not there. What one translation unit saves
is measured with all of MLPerf Tiny that are there.
"""

import argparse
import logging
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from onnx import TensorProto, helper, numpy_helper

from mtool import commands
from mtool.commands import Options
from mtool.compiler.codegen import conventions
from mtool.device import session
from mtool.device.build.size import STACK_SECTION
from mtool.stages.compiling import CompiledModel
from mtool.stages.samples import seeded

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "docs" / "aot-table.md"

# The RFC's rows, and what TVM measured for micro_speech on a Cortex-M: text, data, bss, most stack.
RFC = {
    "packed": (41108, 672, 44, 664),
    "no DLTensor": (40852, 672, 36, 216),
    "+ no TVMValue": (40756, 672, 36, 144),
    "+ unpacked": (40556, 672, 36, 48),
}
ROWS: dict[str, tuple[str, Options]] = {
    "packed": (
        "--interface-api packed --operators-api packed",
        Options(conventions=conventions("packed", "packed")),
    ),
    "no DLTensor": ("--operators-api values", Options(conventions=conventions("c", "values"))),
    "+ no TVMValue": ("--operators-api pointers", Options(conventions=conventions("c", "pointers"))),
    "+ unpacked": ("(the default)", Options()),
    "+ single translation unit": ("--single-file", Options(single_file=True)),
    "C2": ("--interface-api pointers", Options(conventions=conventions("pointers"))),
    "step": ("--interface-api step", Options(conventions=conventions("step"))),
    "graph": ("--executor graph", Options(conventions=conventions("c", None, "graph"))),
}
Units = Mapping[tuple[str, str], tuple[tuple[int, int], tuple[int, int]]]
"""By model and level what `code_bytes` returns, of several files and of one."""
LEVELS = ("-Os", "-O2")
MLPERF = {"KWS": "kws/kws_int8_qdq", "VWW": "vww/vww_int8_qdq", "IC": "ic/ic_int8_qdq", "AD": "ad/ad_int8_qdq"}


@dataclass(frozen=True)
class Row:
    """Bytes of the standalone image, the arena and the place for the stack apart, and of the deepest stack."""

    text: int
    data: int
    bss: int
    stack: int
    arena: int

    @property
    def total(self) -> int:
        """Text, data and bss."""
        return self.text + self.data + self.bss


def micro_speech() -> onnx.ModelProto:
    """Return a model of micro_speech's shape: int8[1,49,40,1], a depthwise convolution, 4 classes."""
    rng = np.random.default_rng(0)
    constants: dict[str, np.ndarray] = {
        "filter": rng.integers(-127, 128, (8, 1, 10, 8)).astype(np.int8),
        "filter_zero": np.zeros(8, np.int8),
        "filter_scale": np.full(8, 0.004, np.float32),
        "conv_bias": rng.integers(-500, 500, 8).astype(np.int32),
        "conv_bias_scale": np.full(8, 0.1 * 0.004, np.float32),
        "conv_bias_zero": np.zeros(8, np.int32),
        "matrix": rng.integers(-127, 128, (4000, 4)).astype(np.int8),
        "matrix_zero": np.int8(0),
        "matrix_scale": np.float32(0.002),
        "shape": np.array([1, 4000], np.int64),
    }
    for name, scale, zero in (("x", 0.1, -128), ("c", 0.05, -128), ("d", 0.1, 0), ("y", 1 / 256, -128)):
        constants |= {f"{name}_scale": np.float32(scale), f"{name}_zero": np.int8(zero)}

    def dequantized(source: str, scale: str, zero: str, **attributes: int) -> onnx.NodeProto:
        return helper.make_node("DequantizeLinear", [source, scale, zero], [f"{source}_f"], **attributes)

    def requantized(source: str, name: str) -> list[onnx.NodeProto]:
        quantized = helper.make_node("QuantizeLinear", [source, f"{name}_scale", f"{name}_zero"], [name])
        return [quantized, dequantized(name, f"{name}_scale", f"{name}_zero")]

    nodes = [
        dequantized("x", "x_scale", "x_zero"),
        helper.make_node("Transpose", ["x_f"], ["plane"], perm=[0, 3, 1, 2]),
        dequantized("filter", "filter_scale", "filter_zero", axis=0),
        dequantized("conv_bias", "conv_bias_scale", "conv_bias_zero", axis=0),
        helper.make_node(
            "Conv", ["plane", "filter_f", "conv_bias_f"], ["conv"], strides=[2, 2], pads=[4, 3, 5, 3], name="conv"
        ),
        helper.make_node("Relu", ["conv"], ["relu"], name="relu"),
        *requantized("relu", "c"),
        helper.make_node("Transpose", ["c_f"], ["pixels"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["pixels", "shape"], ["flat"]),
        dequantized("matrix", "matrix_scale", "matrix_zero"),
        helper.make_node("MatMul", ["flat", "matrix_f"], ["logits"], name="dense"),
        *requantized("logits", "d"),
        helper.make_node("Softmax", ["d_f"], ["classes"], name="softmax"),
        helper.make_node("QuantizeLinear", ["classes", "y_scale", "y_zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "micro_speech",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 49, 40, 1])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [1, 4])],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measure(path: Path, board: str, options: Options) -> Row:
    """Build a model with these options, run it, and return its row."""
    with tempfile.TemporaryDirectory(prefix="mtool-aot-") as folder:
        prepared = commands.prepare(
            path,
            board=board,
            folder=Path(folder) / "project",
            options=options,
            kinds=commands.ALL_KINDS,
        )
        with session.open(prepared.folder) as device:
            (inputs,) = seeded(prepared.manifest.inputs, count=1, seed=0)
            device.run(inputs, in_steps=False)
            stack = device.stack_bytes()
        assert stack is not None, f"{board} does not measure its stack"
        text, data, bss = sections(prepared.built.firmware["standalone"])
    arena = prepared.manifest.arena_bytes
    return Row(text, data, bss - arena, stack, arena)


def code_bytes(path: Path, board: str, level: str, *, single: bool) -> tuple[int, int]:
    """Build a model at a level of optimisation.

    Returns:
        The bytes of instructions of the model's objects, and of the image's text but for the constants.
    """
    with tempfile.TemporaryDirectory(prefix="mtool-aot-") as folder:
        options = Options(single_file=single, template_options={"opt": level})
        model = commands.compile(path, board=board, options=options)
        built = commands.build_model(model, Path(folder) / "project", kinds=("standalone",))
        text, _, _ = sections(built.built.firmware["standalone"])
    return object_bytes(model, level), text - model.manifest.constant_bytes


def object_bytes(model: CompiledModel, level: str) -> int:
    """Return the bytes of instructions of a model's objects, as another build compiles its C."""
    sources = model.sources()
    flags = [level, "-std=c99", "-I.", *model.board.cflags]
    with tempfile.TemporaryDirectory(prefix="mtool-aot-") as folder:
        for name in sources:
            (Path(folder) / name).write_bytes(sources[name])
        names = [name for name in sources if name.endswith(".c")]
        subprocess.run([model.board.toolchain, *flags, "-c", *names], cwd=folder, check=True)
        return sum(map(instruction_bytes, Path(folder).glob("*.o")))


def instruction_bytes(object_file: Path) -> int:
    """Return the bytes of instructions of an object file."""
    with object_file.open("rb") as file:
        found = (section for section in ELFFile(file).iter_sections() if section["sh_type"] == "SHT_PROGBITS")
        return sum(section["sh_size"] for section in found if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR)


def sections(elf: Path) -> tuple[int, int, int]:
    """Return text (all that is only read), data and bss, as `size` counts them, but for the place for the stack."""
    sizes = [0, 0, 0]
    with elf.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            flags = section["sh_flags"]
            if flags & SH_FLAGS.SHF_ALLOC and section.name != STACK_SECTION:
                is_empty = section["sh_type"] == "SHT_NOBITS"
                sizes[2 if is_empty else 1 if flags & SH_FLAGS.SHF_WRITE else 0] += section["sh_size"]
    return sizes[0], sizes[1], sizes[2]


def markdown(tables: dict[str, dict[str, Row]], board: str, units: Units) -> str:
    """Return the page."""
    lines = [
        "# Overhead of calling conventions",
        "",
        "Code size, RAM and stack for each way to call a model and its operators. Read this page if every byte counts.",
        f"It repeats the table of TVM's AOT RFC, for the standalone image of one model on `{board}`; `make aot-table`",
        "writes it, and [Executors](executors.md) describes the options. *text* is code and constants, including",
        "the weights. *bss* excludes the arena and the memory reserved for the stack. *stack* is the deepest stack of",
        "an inference, measured by painting.",
    ]
    for title, rows in tables.items():
        first = next(iter(rows.values()))
        lines += ["", f"## {title}, arena {first.arena:,} B", ""]
        lines += ["| row | options | text | data | bss | total | saving | stack |", "|---|---|--:|--:|--:|--:|--:|--:|"]
        for name, row in rows.items():
            figures = _figures(row.text, row.data, row.bss, first.total, row.stack)
            option = ROWS[name][0] if ROWS[name][0].startswith("(") else f"`{ROWS[name][0]}`"
            lines.append(f"| {name} | {option} | {figures} |")
    lines += ["", "## TVM's figures for micro_speech on a Cortex-M, from the RFC", ""]
    lines += ["| row | text | data | bss | total | saving | stack |", "|---|--:|--:|--:|--:|--:|--:|"]
    most = sum(RFC["packed"][:3])
    for name, (text, data, bss, stack) in RFC.items():
        lines.append(f"| {name} | {_figures(text, data, bss, most, stack)} |")
    lines += ["", "## A single translation unit", ""]
    lines += [
        "`--single-file` writes one source in which the model's functions and constants are static, so the compiler",
        "removes the function that runs an operator by its number. With `-ffunction-sections` and `--gc-sections`,",
        "which mtool's own builds use, the linker removes it too, and `--single-file` saves only a few bytes. The",
        "instruction bytes of the model's objects, and the text of the whole image without the constants:",
        "",
        "| model | level | objects: several | one | saving | image: several | one | saving |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for (model, level), (several, one) in units.items():
        pairs = zip(several, one, strict=True)
        figures = " | ".join(f"{number:,}" for before, after in pairs for number in (before, after, before - after))
        lines.append(f"| {model} | `{level}` | {figures} |")
    return "\n".join([*lines, ""])


def _figures(text: int, data: int, bss: int, most: int, stack: int) -> str:
    total = text + data + bss
    return " | ".join(f"{figure:,}" for figure in (text, data, bss, total, most - total, stack))


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared" / "models", help="folder of the models")
    parser.add_argument("--board", default="mps2_an386", help="an emulated board that measures its stack")
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="mtool-aot-") as folder:
        speech = Path(folder) / "micro_speech.onnx"
        onnx.save(micro_speech(), speech)
        kws = arguments.models / "kws" / "kws_int8_qdq.onnx"
        digits = ROOT / "examples" / "digits" / "digits_int8.onnx"
        paths = {"micro_speech's shape": speech, **({"KWS int8": kws} if kws.is_file() else {"digits": digits})}
        tables = {
            title: {name: measure(path, arguments.board, chosen) for name, (_, chosen) in ROWS.items()}
            for title, path in paths.items()
        }
    files = {name: arguments.models / f"{path}.onnx" for name, path in MLPERF.items()}
    there = {name: path for name, path in files.items() if path.is_file()} or {"digits": digits}
    units = {
        (name, level): (
            code_bytes(path, arguments.board, level, single=False),
            code_bytes(path, arguments.board, level, single=True),
        )
        for name, path in there.items()
        for level in LEVELS
    }
    page = markdown(tables, arguments.board, units)
    RESULT.write_text(page)
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
