"""Measure the size of generated code, libraries and templates for `mtool check`: mtool/stages/sizes/sizes.json.

    scripts/sizes.py [--models DIR] [--core NAME]... [--templates]

Compiles a corpus for each core whose compiler is installed: the example, random operators for every schedule, one test
of the `onnx` package for each operator, and the MLPerf Tiny models if they are there (default: ../shared/models). A
function's bytes are taken as proportional to its length in tokens, by the largest ratio that its schedule has in the
corpus. With --templates, each template is built with a model of one operator, on each board that can be built here;
with ZEPHYR_BASE set, Zephyr's too. What can't be measured here stays as it is.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT), str(ROOT / "tests")]

from mtool import boards, commands  # noqa: E402
from mtool.base import resources  # noqa: E402
from mtool.base.errors import MtoolError  # noqa: E402
from mtool.base.filetree import FileTree  # noqa: E402
from mtool.compiler import codegen  # noqa: E402
from mtool.compiler.codegen.c_text import parts_of  # noqa: E402
from mtool.compiler.compilation import target_of  # noqa: E402
from mtool.compiler.frontend import load  # noqa: E402
from mtool.compiler.passes import run as lowered  # noqa: E402
from mtool.compiler.plan import make_plan  # noqa: E402
from mtool.device.build import toolchains  # noqa: E402
from mtool.manifest import Manifest  # noqa: E402
from mtool.stages.sizes import c_source  # noqa: E402
from mtool.stages.sizes.estimate import CALLS, LEAST_TOKENS, TABLE, WIDE, core_of  # noqa: E402

BOARDS = {  # the board whose compiler and flags stand for a core
    "thumb1": "rpi_pico", "thumb2": "mps2_an385", "thumb2_fpu": "mps2_an386", "mve": "mps3_an547",
    "rv32": "qemu_riscv32", "avr": "arduino_mega2560",
}  # fmt: skip
FAMILIES = {  # of schedules that are there for a core
    "thumb2_fpu": ("dsp", "dsp16", "f32"), "mve": ("mve", "mve16", "mve_f32"),
    "thumb2": ("int",), "rv32": ("int",), "avr": ("int",),
}  # fmt: skip
EXECUTORS = {  # by the header that generated code includes: what of the runtime it brings in
    "mt_graph": ("mt_graph", "mt_json"),
    "mt_functions": ("mt_functions",),
}
COMMON = ["-std=gnu99", "-ffunction-sections", "-fdata-sections", "-ffp-contract=off", "-fno-math-errno",
          "-fno-trapping-math", "-w"]  # fmt: skip
NAMES = [f"{model}_{kind}" for model in ("kws", "vww", "ic", "ad") for kind in ("int8_qdq", "float32")]

MAIN = """int main(void);
int *__errno(void);
int main(void) { return 0; }
int *__errno(void) { static int number; return &number; }
"""

Made = tuple[FileTree, Manifest]


def corpus(core: str, models: Path) -> Iterator[Made]:
    """Yield the compiled models of the corpus."""
    from graphs import compiled
    from onnx_suite.cases import node_cases

    from tests.schedules import cases_of

    target = target_of(boards.get(BOARDS[core]))
    for path in networks(models):
        graph = load(path)
        yield codegen.generate(make_plan(lowered(graph, target), target), path.name, "0" * 64)
    for family in FAMILIES.get(core, ()):
        for case in cases_of(target, family, 4):
            for plan in (case.plan, case.reference):
                yield codegen.generate(plan, "case.onnx", "0" * 64)
    seen = set()
    for case in node_cases():
        if case.subject not in seen:
            seen.add(case.subject)
            try:
                yield codegen.generate(compiled(case.model, target, "one"), "one.onnx", "0" * 64)
            except (MtoolError, AssertionError):
                continue


def networks(models: Path) -> list[Path]:
    """Return the files of whole networks."""
    found = [models / name.split("_")[0] / f"{name}.onnx" for name in NAMES]
    return [ROOT / "examples" / "digits" / "digits_int8.onnx", *(path for path in found if path.is_file())]


class Compiler:
    """The compiler of a core, with a board's flags."""

    def __init__(self, core: str, folder: Path) -> None:
        board = boards.get(BOARDS[core])
        self.program = board.toolchain
        self.flags = [*board.cflags, *COMMON, f"-I{resources.path('crt') / 'include'}"]
        self.optimise = "-Os" if core == "avr" else "-O2"
        self.folder = folder
        self.is_avr = core == "avr"

    def sizes(self, files: FileTree, number: int, optimise: str = "") -> tuple[dict[str, int], set[str]]:
        """Return the bytes of each function, and the names that are left to libraries."""
        place = self.folder / str(number)
        place.mkdir(exist_ok=True)
        for name in files:
            (place / name).write_bytes(files[name])
        sources = c_source.sources(files)
        argv = [self.program, *self.flags, optimise or self.optimise, "-c", *sources]
        subprocess.run(argv, cwd=place, check=True, capture_output=True)
        nm = self.program.removesuffix("gcc") + "nm"
        objects = [source[:-1] + "o" for source in sources]
        listed = subprocess.run([nm, "-S", *objects], cwd=place, check=True, capture_output=True, text=True).stdout
        rows = [line.split() for line in listed.splitlines()]
        defined = {row[3]: int(row[1], 16) for row in rows if len(row) == 4 and row[2] in "tT"}
        wanted = {row[1] for row in rows if len(row) == 2 and row[0] == "U"}
        own = tuple(source.removesuffix(".c").removesuffix("_rpc") for source in sources)
        return defined, {name for name in wanted if not name.startswith(("mt_", *own))}

    def runtime(self, parts: tuple[str, ...]) -> int:
        """Return the bytes of parts of the runtime."""
        total = 0
        for part in parts:
            source = resources.path("crt") / "src" / f"{part}.c"
            argv = [self.program, *self.flags, self.optimise, "-c", str(source), "-o", "part.o"]
            subprocess.run(argv, cwd=self.folder, check=True)
            argv = [self.program.removesuffix("gcc") + "size", "part.o"]
            sized = subprocess.run(argv, cwd=self.folder, check=True, capture_output=True, text=True).stdout
            total += int(sized.splitlines()[1].split()[0])
        return total

    def linked(self, names: list[str]) -> int:
        """Return the bytes of a program that needs these names of the libraries."""
        start = [] if self.is_avr else ["-nostartfiles", "-Wl,-e,main"]
        argv = [self.program, *self.flags, self.optimise, *start, "-Wl,--gc-sections", *(f"-Wl,-u,{n}" for n in names)]
        argv += ["-x", "c", "-", "-lm", "-o", "all.elf"]
        done = subprocess.run(argv, cwd=self.folder, input=MAIN, text=True, capture_output=True)
        if done.returncode != 0:
            return 0  # a name that no library has: the runtime's, or the model's
        argv = [self.program.removesuffix("gcc") + "size", "all.elf"]
        sized = subprocess.run(argv, cwd=self.folder, check=True, capture_output=True, text=True).stdout
        code, data = sized.splitlines()[1].split()[:2]
        return int(code) + int(data)


def measure_core(core: str, models: Path) -> dict[str, Any]:
    """Return a core's entry of the table."""
    ratios: dict[str, float] = {}
    functions: dict[str, int] = {}
    named: set[str] = set()
    arithmetic: dict[str, set[str]] = {kind: set() for kind in ("integer", "float", "wide")}
    count = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        compiler = Compiler(core, Path(folder))

        def one(job: tuple[int, Made]) -> tuple[Made, dict[str, int], set[str]]:
            number, made = job
            try:
                return made, *compiler.sizes(made[0], number)
            except subprocess.CalledProcessError:
                return made, {}, set()

        for (files, manifest), sizes, wanted in pool.map(one, enumerate([*corpus(core, models)])):
            count += 1
            found = c_source.read(part for name in c_source.sources(files) for part in parts_of(files, name))
            for key, ratio in ratios_of(found, manifest, sizes).items():
                ratios[key] = max(ratios.get(key, 0), ratio)
            for name, size in sizes.items():
                if name not in found.functions and name.startswith("mt_"):
                    functions[name] = max(functions.get(name, 0), size)
            called = found.called | {name.removesuffix("f") for name in found.called}  # an AVR's expf is exp
            named |= wanted & called
            for kind in kinds_of(found):
                arithmetic[kind] |= wanted - called
        empty = compiler.linked([])
        there = {kind: [n for n in sorted(names) if compiler.linked([n])] for kind, names in arithmetic.items()}
        helpers = {kind: compiler.linked(names) - empty for kind, names in there.items()}
        named = {name for name in named if compiler.linked([name])}
        beside = compiler.linked(there["float"])  # what calls a function of libm has floats
        library = {name: compiler.linked([*there["float"], name]) - beside for name in sorted(named)}
        everything = compiler.linked([*there["wide"], *sorted(named)]) - empty
        executors = {name: compiler.runtime(needs) for name, needs in EXECUTORS.items()}
        found = toolchains.check(toolchains.load_all()[compiler.program])
    flags = " ".join(flag for flag in compiler.flags if flag.startswith(("-m", "-spec")))
    return {
        "source": f"{compiler.program} {found.version} {flags} {compiler.optimise}, {count} models",
        "bytes_per_token": {key: round(ratio, 2) for key, ratio in sorted(ratios.items())},
        "functions": dict(sorted(functions.items())),
        "library": library,
        "arithmetic": helpers,
        "library_most": everything,
        "executors": executors,
    }


def ratios_of(found: c_source.CSource, manifest: Manifest, sizes: Mapping[str, int]) -> dict[str, float]:
    """Return the bytes a token of the functions of each schedule, at most, and of all that calls them together.

    What calls them is inlined where it is called, so that the functions which have it are far larger than their text.
    """
    schedules = {operator.function: operator.schedule for operator in manifest.operators}
    for operator in manifest.operators:
        schedules |= operator.calls
    ratios: dict[str, float] = {}
    code, tokens = dict[str, int](), dict[str, int]()
    for name, length in found.functions.items():
        wide = WIDE if length.is_wide else ""
        if name not in schedules:
            code[f"{CALLS}{wide}"] = code.get(f"{CALLS}{wide}", 0) + sizes.get(name, 0)
            tokens[f"{CALLS}{wide}"] = tokens.get(f"{CALLS}{wide}", 0) + length.tokens + LEAST_TOKENS
        elif name in sizes:
            key = schedules[name].partition(":")[0] + wide
            ratios[key] = max(ratios.get(key, 0), sizes[name] / (length.tokens + LEAST_TOKENS))
    return ratios | {key: code[key] / tokens[key] for key in code if code[key]}


def kinds_of(found: c_source.CSource) -> tuple[str, ...]:
    """Return the kinds of arithmetic whose helpers a model of this text may need: its own and those above it."""
    return ("wide",) if found.is_wide else ("float", "wide") if found.has_float else ("integer", "float", "wide")


def optimised(core: str) -> dict[str, float]:
    """Return how much larger the example's functions become with other levels of optimisation, at most."""
    target = target_of(boards.get(BOARDS[core]))
    path = ROOT / "examples" / "digits" / "digits_int8.onnx"
    files, _ = codegen.generate(make_plan(lowered(load(path), target), target), path.name, "0" * 64)
    with tempfile.TemporaryDirectory() as folder:
        compiler = Compiler(core, Path(folder))
        normal = compiler.sizes(files, 0)[0]
        factors = {}
        for level in ("-O3", "-Os"):
            try:
                sizes = compiler.sizes(files, 1, level)[0]
            except subprocess.CalledProcessError as failed:
                print(core, level, failed.stderr.decode(), file=sys.stderr)
                continue
            factors[level] = round(max(1.0, sum(sizes.values()) / sum(normal.values())), 2)
    return factors


def tiny(path: Path) -> Path:
    """Write a model of one operator."""
    values = [helper.make_tensor_value_info(name, TensorProto.INT8, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), str(path))
    return path


def measure_template(template: str, board: boards.Board) -> dict[str, dict[str, int]]:
    """Return what each kind of firmware takes besides the model, its libraries and what the options ask for."""
    from mtool.device.build.size import measure

    own_options = {"builder": "cmake"} if template == "arduino" else {}
    options = commands.Options(template=template, template_options=own_options)
    with tempfile.TemporaryDirectory() as folder:
        model, place = tiny(Path(folder) / "tiny.onnx"), Path(folder) / "p"
        prepared = commands.prepare(model, board=board, folder=place, options=options, kinds=commands.ALL_KINDS)
        assert prepared.manifest.project is not None
        given = prepared.manifest.project.options
        entry = {}
        for kind, firmware in prepared.built.firmware.items():
            size = measure(firmware, prepared.manifest)
            of_model = {name for name in size.functions if name.startswith("tiny_")} | {"run", "step"}
            own = sum(count for name, count in size.functions.items() if name in of_model)
            asked = ("rpc_buffer_bytes", "uart_ring_bytes") if kind == "host_driven" else ()
            buffers = sum(int(given.get(name, 0)) for name in asked)
            if template == "zephyr":
                buffers += int(given["stack_bytes"])
            entry[kind] = {"code": size.flash_code_bytes - own, "data": size.ram_static_bytes - buffers}
    return entry


def measure_templates() -> dict[str, Any]:
    """Return the entry of each template, by cpu and by core, at most over the boards that can be built here."""
    table: dict[str, Any] = {}
    for board in boards.load_all().values():
        for template in board.templates:
            if not board.memories or template not in ("baremetal", "arduino", "zephyr"):
                continue
            try:
                entry = measure_template(template, board)
            except MtoolError as missing:
                print(f"{template} on {board.name}: {missing.what}", file=sys.stderr)
                continue
            core, factor = core_of(board)
            for key in {board.cpu, core} if factor == 1.0 else {board.cpu}:
                known = table.setdefault(template, {}).setdefault(key, entry)
                table[template][key] = {
                    kind: {role: max(known[kind][role], entry[kind][role]) for role in entry[kind]} for kind in entry
                }
            print(template, board.name, entry, file=sys.stderr)
    return table


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with the entries of another in place of its own."""
    return {**old, **{key: {**old.get(key, {}), **entry} for key, entry in new.items()}}


def main() -> None:
    """Measure, and write the table."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ROOT.parent / "shared" / "models")
    parser.add_argument("--core", action="append", choices=[*BOARDS], default=None)
    parser.add_argument("--templates", action="store_true")
    arguments = parser.parse_args()
    np.random.seed(0)
    for core in arguments.core if arguments.core is not None else ([] if arguments.templates else [*BOARDS]):
        entry = {**measure_core(core, arguments.models), "optimise": {} if core == "avr" else optimised(core)}
        table = json.loads(TABLE.read_text()) if TABLE.is_file() else {}
        write({**table, "cores": {**table.get("cores", {}), core: entry}})
    if arguments.templates:
        table = json.loads(TABLE.read_text())
        write({**table, "templates": merged(table.get("templates", {}), measure_templates())})


def write(table: Mapping[str, Any]) -> None:
    """Write the table: a line for each figure, in order."""
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
