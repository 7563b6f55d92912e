"""A board's entry, in the form of boards.yaml, from a Zephyr tree's description of it; cached until that changes."""

import contextlib
import hashlib
import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mtool.base import files, proc, resources
from mtool.base.errors import BuildError, UsageError
from mtool.base.frozen import frozen
from mtool.boards import zephyr
from mtool.boards.zephyr.failures import explain, unknown_board
from mtool.version import __version__

_FORMAT = 2  # of the cache
_COMPILERS = {"arm": "arm-none-eabi-gcc", "riscv": "riscv64-unknown-elf-gcc", "posix": "cc"}
_VARIABLES = ("ZEPHYR_TOOLCHAIN_VARIANT", "ZEPHYR_EXTRA_MODULES", "EXTRA_ZEPHYR_MODULES", "ZEPHYR_MODULES")
_NAME = re.compile(r"\w[\w.+@/-]*")


def describe(name: str, folder: Path | None = None) -> dict[str, Any]:
    """Return a board's entry by its Zephyr name, with qualifiers ("nrf5340dk/nrf5340/cpuapp").

    The first time, Zephyr is configured for the board, which takes about ten seconds.

    Args:
        name: Zephyr's name, without the prefix "zephyr:".
        folder: where to look for a west workspace if ZEPHYR_BASE is not set; default: the working folder.

    Raises:
        UsageError: the name is malformed.
        BoardError: the tree has no such board, or it needs a qualifier.
        BuildError: the Zephyr tree, a vendor's module, a compiler, CMake or Ninja is missing.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a Zephyr board name", hint="example: zephyr:nrf5340dk/nrf5340/cpuapp")
    tree = zephyr.base(folder).resolve()
    roots = zephyr.roots()
    board_roots = roots.get("BOARD_ROOT", ())
    of_board = zephyr.board_folder(tree, name, board_roots)
    if of_board is None:
        raise unknown_board(name, tree, board_roots)
    architecture = zephyr.architecture(of_board, name)
    compiler = _COMPILERS.get(architecture, "")
    variant = zephyr.variant_of(compiler)
    if not variant and not compiler and "ZEPHYR_TOOLCHAIN_VARIANT" not in os.environ and not zephyr.has_sdk():
        what = f"no compiler for {name}"
        details = [f"its architecture is {architecture or 'not given in its files'}"]
        raise BuildError(what, details=details, hint="install Zephyr's SDK: west sdk install")
    env = {**os.environ, "ZEPHYR_BASE": str(tree), **variant}
    variables = [f"{key}={env.get(key, '')}" for key in _VARIABLES]
    key = [__version__, str(_FORMAT), str(tree), zephyr.version(tree), name, *variables, str(sorted(roots.items()))]
    place = _place(key)
    remembered = _remembered(place)
    if remembered is not None:
        return remembered
    config = configure(tree, name, env=env, roots=roots, compiler=compiler)
    description = zephyr.full_name(tree, name, board_roots)
    source = f"Zephyr {zephyr.version(tree)}, a configure run for {name}"
    entry = entry_of(config, name, description=description, source=source, compiler=compiler)
    of_boards = [*of_board.glob("*")]
    _remember(place, entry, sorted({*config.files, *(file for file in of_boards if file.is_file())}))
    return entry


def _place(key: Iterable[str]) -> Path | None:
    state = resources.state_folder()
    digest = hashlib.sha256("\n".join(key).encode()).hexdigest()
    return None if state is None else state / "zephyr" / f"{digest[:32]}.json"


def _remembered(place: Path | None) -> dict[str, Any] | None:
    """Return the cached entry if all files that it was derived from are unchanged."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads(place.read_bytes()) if place is not None else {}
        if stored and stored["state"] == _state_of(map(Path, stored["files"])):
            entry: dict[str, Any] = stored["entry"]
            return entry
    return None


def _remember(place: Path | None, entry: dict[str, Any], of: list[Path]) -> None:
    if place is None:
        return
    stored = {"entry": entry, "files": [str(file) for file in of], "state": _state_of(of)}
    with contextlib.suppress(UsageError):  # next time it is configured again
        files.write(place, json.dumps(stored).encode())


def _state_of(of: Iterable[Path]) -> str:
    """Return a hash of the files' sizes and times."""
    sha = hashlib.sha256()
    for file in of:
        try:
            status = file.stat()
            sha.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
        except OSError:
            sha.update(f"{file} is not there\n".encode())
    return sha.hexdigest()


# A Zephyr configure run for a board: an empty application, and the files that CMake leaves behind.


_TIMEOUT_S = 600.0
_CMAKE = """cmake_minimum_required(VERSION 3.20)
find_package(Zephyr REQUIRED HINTS $ENV{ZEPHYR_BASE})
project(board LANGUAGES C)
target_sources(app PRIVATE main.c)
"""
_KCONFIG = """config MT_MODEL
	bool
	default y
	imply FPU

source "Kconfig.zephyr"
"""
_PROPERTY = re.compile(
    r'^set_target_properties\(devicetree_target PROPERTIES "([^"]*)" "?([^"\n]*?)"?\)$', re.MULTILINE
)
_OF_CPU = ("-mcpu=", "-march=", "-mthumb", "-mfpu=", "-mfloat-abi=", "-mabi=", "-m32", "-m64", "-mcmodel=")


@frozen
class Configured:
    """What a configure run says about a board.

    kconfig: the symbols that are set, without CONFIG_; y, a number or a text.
    devicetree: the properties as Zephyr passes them to CMake: "DT_CHOSEN|zephyr,sram", "DT_REG|/memory@0|SIZE".
    runners: runners.yaml.
    flags: the compiler's flags for the core.
    emulator: the command that runs the firmware in QEMU; empty: Zephyr has none for the board.
    files: the files of the tree that it used.
    """

    kconfig: Mapping[str, str]
    devicetree: Mapping[str, str]
    runners: Mapping[str, Any]
    flags: tuple[str, ...]
    emulator: tuple[str, ...]
    files: tuple[Path, ...]

    def number(self, symbol: str) -> int:
        """Return a numeric Kconfig symbol; 0 if it is not set."""
        return int(self.kconfig.get(symbol, "0") or "0", 0)

    def has(self, symbol: str) -> bool:
        """Return whether a Kconfig symbol is y."""
        return self.kconfig.get(symbol) == "y"


def configure(
    tree: Path, board: str, *, env: Mapping[str, str], roots: Mapping[str, list[Path]], compiler: str
) -> Configured:
    """Configure an empty application for a board, in a temporary folder.

    Args:
        tree: the Zephyr tree.
        board: Zephyr's name of the board.
        env: the environment, with ZEPHYR_BASE and the toolchain's variables.
        roots: folders with additional boards, by the name of the CMake variable.
        compiler: the compiler that the board needs; "": unknown.

    Raises:
        BoardError: the tree has no such board, or it needs a qualifier.
        BuildError: CMake or Ninja is missing, or the run failed: a vendor's module or a toolchain is missing.
    """
    for program in ("cmake", "ninja"):
        proc.find(program, hint="sudo apt-get install cmake ninja-build")
    with tempfile.TemporaryDirectory(prefix="mtool-zephyr-") as top:
        source, build = Path(top) / "app", Path(top) / "build"
        source.mkdir()
        for name, text in (("CMakeLists.txt", _CMAKE), ("Kconfig", _KCONFIG), ("prj.conf", ""), ("main.c", _MAIN)):
            (source / name).write_text(text)
        argv = ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(build), f"-DBOARD={board}"]
        argv += [f"-D{name}={';'.join(map(str, paths))}" for name, paths in roots.items()]
        done = proc.run(argv, what="Zephyr's configure run", timeout_s=_TIMEOUT_S, env=env, cwd=source, check=False)
        if done.returncode != 0:
            last = ["$ " + shlex.join(done.argv), *done.output.splitlines()[-proc.LAST_LINES :]]
            error = explain(done.output, tree, board, zephyr.modules_in(build), compiler)
            raise error or BuildError(f"can't configure Zephyr for {board}", details=last)
        return _configured(build, inside=Path(top))


_MAIN = "int main(void)\n{\n    return 0;\n}\n"


def _configured(build: Path, inside: Path) -> Configured:
    of_zephyr = build / "zephyr"
    kconfig = re.findall(r'^CONFIG_(\w+)="?(.*?)"?$', (of_zephyr / ".config").read_text(), re.MULTILINE)
    devicetree = _PROPERTY.findall((of_zephyr / "dts.cmake").read_text())
    runners = of_zephyr / "runners.yaml"
    read = resources.read_yaml(runners) if runners.is_file() else {}
    ninja = (build / "build.ninja").read_text()
    flags = re.search(r"^build [^\n]*app/[^\n]*main\.c[^\n]*\n(?: [^\n]*\n)*?  FLAGS = ([^\n]*)", ninja, re.MULTILINE)
    qemu = re.search(r"(\S*qemu-system-\w+ [^\n]*?-kernel) ", ninja)
    depended = (of_zephyr / "zephyr.dts.d").read_text().replace("\\\n", " ").split()[1:]
    sources = of_zephyr / "kconfig" / "sources.txt"
    listed = [*depended, *(sources.read_text().split() if sources.is_file() else ())]
    files = sorted({Path(path) for path in listed if not Path(path).is_relative_to(inside)})
    return Configured(
        dict(kconfig),
        dict(devicetree),
        read if isinstance(read, dict) else {},
        tuple(flag for flag in shlex.split(flags[1]) if flag.startswith(_OF_CPU)) if flags else (),
        tuple(shlex.split(qemu[1].replace("$ ", " "))) if qemu else (),
        tuple(files),
    )


# A configure run's results as an entry of boards.yaml: core, features, memories, runners, emulator.


_KIB = 1024
_EXTENSIONS = "mafdcv"  # of RISC-V, in their canonical order
# QEMU options that select the machine, with one argument each; the others are for Zephyr's console output.
_OF_MACHINE = ("-cpu", "-machine", "-M", "-m", "-bios", "-device", "-smp", "-global", "-dtb")
_ALONE = ("-no-reboot", "-no-acpi")
_COUNTED = ("-icount", "shift=0,sleep=off", "-nic", "none", "-display", "none", "-monitor", "none", "-kernel", "{elf}")


def entry_of(config: Configured, name: str, *, description: str, source: str, compiler: str) -> dict[str, Any]:
    """Return a board's entry, without its name in mtool; `name` is Zephyr's."""
    cpu = _cpu(config)
    emulator = _emulator(config, cpu)
    entry: dict[str, Any] = {
        "description": f"{description}, {config.kconfig.get('BOARD_TARGET', name)}",
        "source": source,
        "cpu": cpu,
        "features": _features(config, cpu),
        "clock_hz": _clock_hz(config),
        "memories": {} if cpu == "host" else _memories(config),
        "toolchain": compiler,
        "cflags": list(config.flags),
        "templates": {"zephyr": name},
        "flash": {} if emulator else _flash(config.runners),
    }
    if emulator:
        entry["emulator"] = emulator
        ticks = config.number("SYS_CLOCK_HW_CYCLES_PER_SEC") or 1
        entry["timer"] = {"kind": "system_clock", "hz": ticks, "unit": "ns" if cpu == "host" else "instructions"}
    return {key: value for key, value in entry.items() if value not in ({}, [], 0)}


def _cpu(config: Configured) -> str:
    """Return GCC's name of the core, or of the instruction set; otherwise the architecture's."""
    architecture = config.kconfig.get("ARCH", "")
    if architecture == "posix":
        return "host"
    flag_cpu = next((flag.partition("=")[2] for flag in config.flags if flag.startswith(("-mcpu=", "-march=rv"))), "")
    if flag_cpu:
        return re.split("[+_]", flag_cpu)[0]
    cores = [re.fullmatch(r"CPU_(CORTEX_[AMR]\d+\w*)", symbol) for symbol in config.kconfig if config.has(symbol)]
    core = next((match[1] for match in cores if match and "_HAS_" not in match[1]), "")
    if core:
        return core.lower().replace("_", "-")
    if architecture == "riscv":
        base = "rv64" if config.has("64BIT") else "rv32"
        least = "e" if config.has("RISCV_ISA_RV32E") else "i"
        return base + least + "".join(letter for letter in _EXTENSIONS if config.has(f"RISCV_ISA_EXT_{letter.upper()}"))
    return "i686" if architecture == "x86" else architecture


def _features(config: Configured, cpu: str) -> list[str]:
    """Return the core's features that compiled code may use, as Zephyr's own build enables them."""
    if config.kconfig.get("ARCH") == "riscv":
        return ["fpu"] if config.has("FPU") and re.search("[fg]", cpu.removeprefix("rv")) else []
    has_fpu = cpu == "host" or (config.has("CPU_HAS_FPU") and config.has("FPU"))
    has_dsp = cpu in ("cortex-m4", "cortex-m7") or cpu.startswith("cortex-r") or config.has("ARMV8_M_DSP")
    has_mve = config.has("ARMV8_1_M_MVEI") and config.has("ARMV8_1_M_MVEF")
    return [name for name, there in (("fpu", has_fpu), ("dsp", has_dsp), ("mve", has_mve)) if there]


def _clock_hz(config: Configured) -> int:
    """Return the core's clock: the devicetree's, or that of the timer that runs at the same rate; 0: unknown."""
    clock = config.devicetree.get("DT_PROP|/cpus/cpu@0|clock-frequency", "")
    if clock.isdigit():
        return int(clock)
    return config.number("SYS_CLOCK_HW_CYCLES_PER_SEC") if config.has("CORTEX_M_SYSTICK") else 0


def _memories(config: Configured) -> dict[str, Any]:
    """Return the memories that Zephyr's linker script uses: the chosen zephyr,flash and zephyr,sram."""
    ram = {"base": config.number("SRAM_BASE_ADDRESS"), "size": config.number("SRAM_SIZE") * _KIB}
    offset = config.number("FLASH_LOAD_OFFSET")
    size = config.number("FLASH_LOAD_SIZE") or config.number("FLASH_SIZE") * _KIB - offset
    flash = {"base": config.number("FLASH_BASE_ADDRESS") + offset, "size": size}
    if not ram["size"]:
        return {}
    overlap = flash["base"] < ram["base"] + ram["size"] and ram["base"] < flash["base"] + size
    if not config.has("XIP") or size <= 0 or overlap:
        return {"sram": {**ram, "holds": ["code", "weights", "arena", "data", "stack"]}}
    return {
        "flash": {**flash, "holds": ["code", "weights"]},
        "sram": {**ram, "holds": ["arena", "data", "stack"]},
    }


def _flash(runners: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the flash runners: Zephyr's own first, then those of mtool's whose settings Zephyr's arguments contain."""
    first = runners.get("flash-runner")
    if not first:
        return {}
    arguments = {name: " ".join(map(str, args or ())) for name, args in (runners.get("args") or {}).items()}
    result = {"west": {"runner": str(first)}}
    for name, setting, option in (("jlink", "device", "device"), ("pyocd", "target", "target")):
        match = re.search(rf"--{option}[= ](\S+)", arguments.get(name, ""))
        if match:
            result[name] = {setting: match[1]}
    if "stm32cubeprogrammer" in arguments and "--extload" not in arguments["stm32cubeprogrammer"]:
        result["stm32cubeprogrammer"] = {}
    return result


def _emulator(config: Configured, cpu: str) -> dict[str, Any] | None:
    """Return the emulator: Zephyr's QEMU machine, set to count instructions, or the program itself."""
    if cpu == "host":
        return {"program": "{elf}", "arguments": [], "announces": "connected to pseudotty: "}
    if not config.emulator:
        return None
    program, *arguments = config.emulator
    machine: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in _OF_MACHINE:
            machine += [word, next(words, "")]
        elif word in _ALONE:
            machine.append(word)
    return {
        "program": program.rpartition("/")[2],
        "arguments": [*machine, *_COUNTED],
        "uart": ["-serial", "stdio"],
    }
