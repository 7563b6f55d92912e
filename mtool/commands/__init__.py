"""The workflows of a user: quantise, compile, build, run, verify, bench. The command line's twin.

Each name is loaded when it is first used, so that a command imports what it needs and no more.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtool.commands.cost import ALL_KINDS, Cost, bench, comparison, cost_of, time_function
    from mtool.commands.cycles import clocks, cycle_rows, hertz, mix_rows, part_headings, part_rows, standing_for
    from mtool.commands.execution import Ran, run
    from mtool.commands.flashing import Ready, Smoke, flash_model, flash_plan
    from mtool.commands.modules import Made, make_module, read_module, write_module
    from mtool.commands.partitioning import Parts, partition
    from mtool.commands.profiling import bench_layers
    from mtool.commands.reporting import Report, report
    from mtool.compiler.plan import Choice
    from mtool.compiler.plan.plan import Pool
    from mtool.device.cycles import Clock
    from mtool.quantization.dataset import Pixels
    from mtool.quantization.quantizing import Quantised, Scheme, quantize
    from mtool.stages.building import HOST_DRIVEN, Prepared, build_model, build_plan, open, prepare
    from mtool.stages.compiling import Model, compile, compile_models
    from mtool.stages.deployment import Deployment
    from mtool.stages.fitting import Fit, Fits, check, check_models
    from mtool.stages.options import Options
    from mtool.stages.writing import write_package, write_project, write_sources
    from mtool.verification.layer_report import Layers
    from mtool.verification.layers import verify_layers
    from mtool.verification.tolerance import default_tolerance
    from mtool.verification.verification import verify

_EXPORTS = {
    "mtool.compiler.plan": ("Choice",),
    "mtool.compiler.plan.plan": ("Pool",),
    "mtool.stages.building": (
        "HOST_DRIVEN",
        "Prepared",
        "build_model",
        "build_plan",
        "open",
        "prepare",
    ),
    "mtool.stages.compiling": (
        "Model",
        "compile",
        "compile_models",
    ),
    "mtool.commands.cost": (
        "ALL_KINDS",
        "Cost",
        "bench",
        "comparison",
        "cost_of",
        "time_function",
    ),
    "mtool.commands.cycles": (
        "Clock",
        "clocks",
        "hertz",
        "cycle_rows",
        "mix_rows",
        "part_headings",
        "part_rows",
        "standing_for",
    ),
    "mtool.quantization.dataset": ("Pixels",),
    "mtool.commands.execution": (
        "Ran",
        "run",
    ),
    "mtool.stages.fitting": (
        "Fit",
        "Fits",
        "check",
        "check_models",
    ),
    "mtool.commands.flashing": (
        "Ready",
        "Smoke",
        "flash_model",
        "flash_plan",
    ),
    "mtool.verification.layer_report": ("Layers",),
    "mtool.verification.layers": ("verify_layers",),
    "mtool.stages.deployment": ("Deployment",),
    "mtool.stages.options": ("Options",),
    "mtool.commands.modules": ("Made", "make_module", "read_module", "write_module"),
    "mtool.commands.partitioning": (
        "Parts",
        "partition",
    ),
    "mtool.commands.profiling": ("bench_layers",),
    "mtool.quantization.quantizing": (
        "Quantised",
        "Scheme",
        "quantize",
    ),
    "mtool.commands.reporting": (
        "Report",
        "report",
    ),
    "mtool.verification.tolerance": ("default_tolerance",),
    "mtool.verification.verification": ("verify",),
    "mtool.stages.writing": (
        "write_package",
        "write_project",
        "write_sources",
    ),
}
MODULES = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [
    "ALL_KINDS",
    "HOST_DRIVEN",
    "Choice",
    "Clock",
    "Cost",
    "Deployment",
    "Fit",
    "Fits",
    "Layers",
    "Made",
    "Model",
    "Options",
    "Parts",
    "Pixels",
    "Pool",
    "Prepared",
    "Quantised",
    "Ran",
    "Ready",
    "Report",
    "Scheme",
    "Smoke",
    "bench",
    "bench_layers",
    "build_model",
    "build_plan",
    "check",
    "check_models",
    "clocks",
    "comparison",
    "compile",
    "compile_models",
    "cost_of",
    "cycle_rows",
    "default_tolerance",
    "flash_model",
    "flash_plan",
    "hertz",
    "make_module",
    "mix_rows",
    "open",
    "part_headings",
    "part_rows",
    "partition",
    "prepare",
    "quantize",
    "read_module",
    "report",
    "run",
    "standing_for",
    "time_function",
    "verify",
    "verify_layers",
    "write_module",
    "write_package",
    "write_project",
    "write_sources",
]


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'mtool.commands' has no attribute {name!r}")
    return getattr(importlib.import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
