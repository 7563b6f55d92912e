"""Discovery of an operator's schedules: `SCHEDULES` of each module and package in its folder, and in theirs."""

import importlib
import pkgutil
from collections.abc import Iterable

from mtool.compiler.kernels.schedule import Schedule

INSTRUCTION_SETS = {
    "c99": "portable C",
    "int": "portable C, blocked for the core's registers",
    "f32": "Cortex-M with a float32 FPU",
    "dsp": "SIMD32 (Armv7E-M, Armv8-M with DSP) and an FPU",
    "mve": "Helium with floating point",
    "rvv": "RISC-V vectors",
    "simd": "this computer, in vectors of floats",
}
"""Instruction sets by prefix of schedule names, in order of preference: of equal costs, the first is taken."""


def instruction_set(schedule: Schedule) -> str:
    """Return the instruction set of a schedule, from INSTRUCTION_SETS."""
    return schedule.name.split("_")[0].removesuffix("16")


def schedules_of(package: str, path: Iterable[str]) -> tuple[Schedule, ...]:
    """Return the schedules of an operator by instruction set, each as its module lists them.

    Args:
        package: the operator's, `__name__`.
        path: the package's folder, `__path__`.
    """
    modules = [importlib.import_module(info.name) for info in pkgutil.walk_packages(path, f"{package}.")]
    schedules: list[Schedule] = [schedule for module in modules for schedule in getattr(module, "SCHEDULES", ())]
    order = [*INSTRUCTION_SETS]
    return tuple(sorted(schedules, key=lambda schedule: order.index(instruction_set(schedule))))
