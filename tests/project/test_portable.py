"""One package for many cores: built for each in its ecosystem, run in an emulator, equal to onnxruntime."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from packages import write

from mtool import boards, commands, project
from mtool.base import resources
from mtool.base.filetree import FileTree
from mtool.base.option_values import Format
from mtool.device.transport import emulator
from mtool.project import portable
from tests.arduino import simavr
from tests.project.test_registries import broken_rules

DIGITS = resources.path("examples/digits")
HERE = Path(__file__).parent
SAMPLES = 2


@dataclass(frozen=True)
class Machine:
    """A core and a machine that has it: compiler, flags, the board that is its emulator, where memory lies."""

    core: str
    compiler: str
    flags: str
    board: str = ""
    code: int = 0
    ram: int = 0x20000000
    uart: int = 0x40004000


MACHINES = {
    "avr": Machine("avr", "avr-gcc", "-mmcu=atmega2560", "arduino_mega2560"),
    "m0plus": Machine("plain", "arm-none-eabi-gcc", "-mcpu=cortex-m0plus -mthumb", "mps2_an385"),  # an M3 runs it
    "m4": Machine(
        "dsp", "arm-none-eabi-gcc", "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16", "mps2_an386"
    ),
    "m4-no-fpu": Machine(
        "dsp_no_fpu", "arm-none-eabi-gcc", "-mcpu=cortex-m4 -mthumb -mfloat-abi=soft", "mps2_an386"
    ),
    "m7": Machine("dsp", "arm-none-eabi-gcc", "-mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16", "mps2_an500"),
    "m55": Machine(
        "mve", "arm-none-eabi-gcc", "-mcpu=cortex-m55 -mthumb -mfloat-abi=hard", "mps3_an547",
        0x10000000, 0x30000000, 0x59303000,
    ),
    "riscv": Machine(
        "riscv", "riscv64-unknown-elf-gcc", "-march=rv32imc -mabi=ilp32 -specs=picolibc.specs", "qemu_riscv32",
        0x80000000, 0x80100000, 0x10000000,
    ),
}  # fmt: skip
EACH: list[tuple[Format, str]] = [
    *[("arduino-lib", machine) for machine in ("avr", "m0plus", "m4", "m4-no-fpu", "m7", "m55")],
    ("cmsis-pack", "m4"),
    ("idf-component", "riscv"),
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Format, Path]]:
    folder = tmp_path_factory.mktemp("packages")
    made = {}
    for form in dict.fromkeys(form for form, _ in EACH):
        compiled = commands.compile(DIGITS / "digits_int8.onnx", board="host")
        made[form] = write(compiled, folder / form, form=form)
        for pack in made[form].glob("*.pack"):
            shutil.unpack_archive(pack, made[form], "zip")
    yield made


def _images() -> np.ndarray:
    with np.load(DIGITS / "test_data.npz") as data:
        return np.asarray(data["x"][:SAMPLES])


def _expected() -> bytes:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(DIGITS / "digits_int8.onnx", providers=["CPUExecutionProvider"])
    return b"".join(session.run(None, {"image": image[np.newaxis]})[0].tobytes() for image in _images())


def _built(package: Path, machine: Machine, folder: Path) -> Path:
    """Compile every source of a package, without a warning, and link a program that runs the model."""
    if shutil.which(machine.compiler) is None:
        pytest.skip(f"{machine.compiler} is not installed")
    rows = ",".join("{" + ",".join(map(str, image.reshape(-1))) + "}" for image in _images())
    (folder / "samples.h").write_text(f"#define COUNT {SAMPLES}\n#define SAMPLES {{{rows}}}\n")
    include = package / ("include" if (package / "include").is_dir() else "src")
    argv = [machine.compiler, "-std=gnu11", "-Os", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", f"-I{include}"]
    argv += [*machine.flags.split(), "-ffunction-sections", "-fdata-sections"]
    sources = [*sorted((package / "src").rglob("*.c")), HERE / "bare.c"]
    linked = ["-Wl,--gc-sections", "-o", "app.elf", "-lm"]
    if machine.core != "avr":
        linked += [
            "-nostartfiles",
            f"-T{HERE / 'bare.ld'}",
            f"-Wl,--defsym=CODE={machine.code},--defsym=RAM={machine.ram}",
        ]
    argv += ["-I.", f"-DUART={machine.uart:#x}u", *map(str, sources), *linked]
    subprocess.run(argv, cwd=folder, check=True)
    return folder / "app.elf"


def _output(elf: Path, board: str, count: int) -> bytes:
    machine = boards.get(board).emulator
    assert machine is not None
    if board.startswith("arduino"):
        simavr.need()
    elif shutil.which(machine.program) is None:
        pytest.skip(f"{machine.program} is not installed")
    argv = emulator.command(machine, elf, channel="uart")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        found = running.stdout.read(count)
        running.kill()
    return found


@pytest.mark.product(2)
@pytest.mark.parametrize(("form", "name"), EACH)
def test_a_package_is_right_on_each_core(form: Format, name: str, packages: dict[Format, Path], tmp_path: Path) -> None:
    machine, expected = MACHINES[name], _expected()
    elf = _built(packages[form], machine, tmp_path)
    assert _output(elf, machine.board, len(expected)) == expected
    if name == "avr":
        sizes = subprocess.run(["avr-size", "-A", elf], check=True, capture_output=True, text=True).stdout
        data = next(int(line.split()[1]) for line in sizes.splitlines() if line.startswith(".data"))
        assert data < 64, "the weights stay in flash"


def test_the_cores_own_macros_choose(packages: dict[Format, Path], tmp_path: Path) -> None:
    for name, machine in MACHINES.items():
        if shutil.which(machine.compiler) is None:
            continue
        form: Format = "idf-component" if name == "riscv" else "arduino-lib"
        include = packages[form] / ("include" if name == "riscv" else "src")
        argv = [machine.compiler, *machine.flags.split(), "-dM", "-E", include / "digits_int8_core.h"]
        macros = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        chosen = [line.split()[1] for line in macros.splitlines() if "DIGITS_INT8_CORE_" in line and "_H" not in line]
        assert chosen == [f"DIGITS_INT8_CORE_{machine.core.upper()}"], name


def test_the_library_for_all_cores_keeps_the_library_managers_rules(packages: dict[Format, Path]) -> None:
    assert not [*broken_rules(packages["arduino-lib"])]
    assert "\narchitectures=*\n" in (packages["arduino-lib"] / "library.properties").read_text()


def test_a_board_that_is_named_is_the_only_one(tmp_path: Path) -> None:
    compiled = commands.compile(DIGITS / "digits_int8.onnx", board="arduino_mega2560")
    files = compiled.package("arduino-lib")
    assert "src/digits_int8.c" in files and not [path for path in files if path.startswith("src/dsp")]
    assert "architectures=avr\n" in files.text("library.properties")


def test_files_of_the_runtime_and_of_a_model_of_one_letter_are_distinguished() -> None:
    tree = FileTree({"m.c": b"1", "m.h": b"2", "mt_math.h": b"3", "m_graph.json": b"4", "mtool.json": b"5"})
    first, *_, last = portable.CORES["arduino-lib"]
    made = portable.merged("m", {first: tree, last: tree})
    assert {*made} == {"avr/m_avr.c", "plain/m_plain.c", "avr/m.h", "plain/m.h", "m.h", "m_core.h", "mt_math.h"}


def test_a_core_that_can_not_hold_the_model_says_so(tmp_path: Path) -> None:
    compiled = commands.compile(DIGITS / "digits_int8.onnx", board="host")
    avr, *_, plain = portable.CORES["arduino-lib"]
    large = compiled.manifest.model_copy(update={"arena_bytes": 20_000})
    assert not avr.refusal(compiled.manifest) and not plain.refusal(large)
    why = avr.refusal(large)
    assert why == "it needs 20,000 bytes of RAM, and these cores have at most 16,384"
    module = project.Module(compiled.sources(), compiled.manifest)
    packed = project.Packed(module, {plain: (module.sources, module.manifest)}, {avr: why})
    package = project.package(packed, "arduino-lib")
    (tmp_path / "core.h").write_bytes(package["src/digits_int8_core.h"])
    assert f"Not for 8-bit AVR: {why}." in package.text("README.md")
    if shutil.which("avr-gcc") is not None:
        done = subprocess.run(["avr-gcc", "-E", tmp_path / "core.h"], capture_output=True, text=True)
        assert done.returncode != 0 and f"digits_int8: {why}" in done.stderr
    if shutil.which("cc") is not None:
        subprocess.run(["cc", "-E", tmp_path / "core.h"], check=True, capture_output=True)


def test_every_core_but_the_last_is_selected_by_macros() -> None:
    for cores in portable.CORES.values():
        assert all(core.macros for core in cores[:-1]) and not cores[-1].macros
        assert len({core.name for core in cores}) == len(cores)
        assert all(boards.get(core.board) for core in cores)
