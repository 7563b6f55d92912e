"""What a configure run tells, as an entry of boards.yaml: core, features, memories, runners, emulator."""

import re
from collections.abc import Mapping
from typing import Any

from mtool.boards.zephyr.configuring import Configured

_KIB = 1024
_EXTENSIONS = "mafdcv"  # of RISC-V, in the order of its names
# Options of QEMU that say which machine it is, with one argument each; the others say how Zephyr shows its output.
_OF_MACHINE = ("-cpu", "-machine", "-M", "-m", "-bios", "-device", "-smp", "-global", "-dtb")
_ALONE = ("-no-reboot", "-no-acpi")
_COUNTED = ("-icount", "shift=0,sleep=off", "-nic", "none", "-display", "none", "-monitor", "none", "-kernel", "{elf}")


def entry_of(found: Configured, name: str, *, description: str, source: str, compiler: str) -> dict[str, Any]:
    """Return the entry of a board, without its name in mtool; `name` is Zephyr's."""
    cpu = _cpu(found)
    emulator = _emulator(found, cpu)
    entry: dict[str, Any] = {
        "description": f"{description}, {found.kconfig.get('BOARD_TARGET', name)}",
        "source": source,
        "cpu": cpu,
        "features": _features(found, cpu),
        "clock_hz": _clock_hz(found),
        "memories": {} if cpu == "host" else _memories(found),
        "toolchain": compiler,
        "cflags": list(found.flags),
        "templates": {"zephyr": name},
        "flash": {} if emulator else _flash(found.runners),
    }
    if emulator:
        entry["emulator"] = emulator
        ticks = found.number("SYS_CLOCK_HW_CYCLES_PER_SEC") or 1
        entry["timer"] = {"kind": "system_clock", "hz": ticks, "unit": "ns" if cpu == "host" else "instructions"}
    return {key: value for key, value in entry.items() if value not in ({}, [], 0)}


def _cpu(found: Configured) -> str:
    """Return GCC's name of the core, or of the instruction set; of others the architecture's."""
    architecture = found.kconfig.get("ARCH", "")
    if architecture == "posix":
        return "host"
    named = next((flag.partition("=")[2] for flag in found.flags if flag.startswith(("-mcpu=", "-march=rv"))), "")
    if named:
        return re.split("[+_]", named)[0]
    cores = [re.fullmatch(r"CPU_(CORTEX_[AMR]\d+\w*)", symbol) for symbol in found.kconfig if found.has(symbol)]
    core = next((match[1] for match in cores if match and "_HAS_" not in match[1]), "")
    if core:
        return core.lower().replace("_", "-")
    if architecture == "riscv":
        base = "rv64" if found.has("64BIT") else "rv32"
        least = "e" if found.has("RISCV_ISA_RV32E") else "i"
        return base + least + "".join(one for one in _EXTENSIONS if found.has(f"RISCV_ISA_EXT_{one.upper()}"))
    return "i686" if architecture == "x86" else architecture


def _features(found: Configured, cpu: str) -> list[str]:
    """Return what the compile half may use of the core, as Zephyr's own build will have it."""
    if found.kconfig.get("ARCH") == "riscv":
        return ["fpu"] if found.has("FPU") and re.search("[fg]", cpu.removeprefix("rv")) else []
    has_fpu = cpu == "host" or (found.has("CPU_HAS_FPU") and found.has("FPU"))
    has_dsp = cpu in ("cortex-m4", "cortex-m7") or cpu.startswith("cortex-r") or found.has("ARMV8_M_DSP")
    has_mve = found.has("ARMV8_1_M_MVEI") and found.has("ARMV8_1_M_MVEF")
    return [name for name, there in (("fpu", has_fpu), ("dsp", has_dsp), ("mve", has_mve)) if there]


def _clock_hz(found: Configured) -> int:
    """Return the core's clock: the devicetree's, or that of the timer that runs at the same rate; 0: not told."""
    told = found.devicetree.get("DT_PROP|/cpus/cpu@0|clock-frequency", "")
    if told.isdigit():
        return int(told)
    return found.number("SYS_CLOCK_HW_CYCLES_PER_SEC") if found.has("CORTEX_M_SYSTICK") else 0


def _memories(found: Configured) -> dict[str, Any]:
    """Return the memories that Zephyr's linker script uses: the chosen zephyr,flash and zephyr,sram."""
    ram = {"base": found.number("SRAM_BASE_ADDRESS"), "size": found.number("SRAM_SIZE") * _KIB}
    offset = found.number("FLASH_LOAD_OFFSET")
    size = found.number("FLASH_LOAD_SIZE") or found.number("FLASH_SIZE") * _KIB - offset
    flash = {"base": found.number("FLASH_BASE_ADDRESS") + offset, "size": size}
    if not ram["size"]:
        return {}
    overlap = flash["base"] < ram["base"] + ram["size"] and ram["base"] < flash["base"] + size
    if not found.has("XIP") or size <= 0 or overlap:
        return {"sram": {**ram, "holds": ["code", "weights", "arena", "data", "stack"]}}
    return {
        "flash": {**flash, "holds": ["code", "weights"]},
        "sram": {**ram, "holds": ["arena", "data", "stack"]},
    }


def _flash(runners: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the flash runners: Zephyr's own first, then those of mtool whose settings Zephyr's arguments tell."""
    first = runners.get("flash-runner")
    if not first:
        return {}
    arguments = {name: " ".join(map(str, each or ())) for name, each in (runners.get("args") or {}).items()}
    found = {"west": {"runner": str(first)}}
    for name, setting, option in (("jlink", "device", "device"), ("pyocd", "target", "target")):
        told = re.search(rf"--{option}[= ](\S+)", arguments.get(name, ""))
        if told:
            found[name] = {setting: told[1]}
    if "stm32cubeprogrammer" in arguments and "--extload" not in arguments["stm32cubeprogrammer"]:
        found["stm32cubeprogrammer"] = {}
    return found


def _emulator(found: Configured, cpu: str) -> dict[str, Any] | None:
    """Return the emulator: Zephyr's machine in QEMU, which here counts instructions, or the program itself."""
    if cpu == "host":
        return {"program": "{elf}", "arguments": [], "announces": "connected to pseudotty: "}
    if not found.emulator:
        return None
    program, *given = found.emulator
    machine: list[str] = []
    words = iter(given)
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
