"""The workflows of a user: quantise, compile, build, run, verify, bench. The command line's twin.

Each name is loaded when it is first used, so that a command imports what it needs and no more.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtool.plan import Choice
    from mtool.plan.pool import Pool
    from mtool.session.cycles import Clock
    from mtool.workflow.building import HOST_DRIVEN, Prepared, build_model, build_plan, open, prepare
    from mtool.workflow.compiling import Model, compile, compile_models
    from mtool.workflow.cost import ALL_KINDS, Cost, bench, comparison, cost_of, time_function
    from mtool.workflow.cycles import clocks, cycle_rows, hertz, mix_rows, part_headings, part_rows, standing_for
    from mtool.workflow.dataset import Pixels
    from mtool.workflow.deployment import Deployment
    from mtool.workflow.execution import Ran, run
    from mtool.workflow.fitting import Fit, Fits, check, check_models
    from mtool.workflow.flashing import Ready, Smoke, flash_model, flash_plan
    from mtool.workflow.layer_report import Layers
    from mtool.workflow.layers import verify_layers
    from mtool.workflow.modules import Made, make_module, read_module, write_module
    from mtool.workflow.options import Options
    from mtool.workflow.partitioning import Parts, partition
    from mtool.workflow.profiling import bench_layers
    from mtool.workflow.quantisation import Quantised, Scheme, quantize
    from mtool.workflow.reporting import Report, report
    from mtool.workflow.tolerance import default_tolerance
    from mtool.workflow.verification import verify
    from mtool.workflow.writing import write_package, write_project, write_sources

_EXPORTS = {
    "mtool.plan": ("Choice",),
    "mtool.plan.pool": ("Pool",),
    "mtool.workflow.building": (
        "HOST_DRIVEN",
        "Prepared",
        "build_model",
        "build_plan",
        "open",
        "prepare",
    ),
    "mtool.workflow.compiling": (
        "Model",
        "compile",
        "compile_models",
    ),
    "mtool.workflow.cost": (
        "ALL_KINDS",
        "Cost",
        "bench",
        "comparison",
        "cost_of",
        "time_function",
    ),
    "mtool.workflow.cycles": (
        "Clock",
        "clocks",
        "hertz",
        "cycle_rows",
        "mix_rows",
        "part_headings",
        "part_rows",
        "standing_for",
    ),
    "mtool.workflow.dataset": ("Pixels",),
    "mtool.workflow.execution": (
        "Ran",
        "run",
    ),
    "mtool.workflow.fitting": (
        "Fit",
        "Fits",
        "check",
        "check_models",
    ),
    "mtool.workflow.flashing": (
        "Ready",
        "Smoke",
        "flash_model",
        "flash_plan",
    ),
    "mtool.workflow.layer_report": ("Layers",),
    "mtool.workflow.layers": ("verify_layers",),
    "mtool.workflow.deployment": ("Deployment",),
    "mtool.workflow.options": ("Options",),
    "mtool.workflow.modules": ("Made", "make_module", "read_module", "write_module"),
    "mtool.workflow.partitioning": (
        "Parts",
        "partition",
    ),
    "mtool.workflow.profiling": ("bench_layers",),
    "mtool.workflow.quantisation": (
        "Quantised",
        "Scheme",
        "quantize",
    ),
    "mtool.workflow.reporting": (
        "Report",
        "report",
    ),
    "mtool.workflow.tolerance": ("default_tolerance",),
    "mtool.workflow.verification": ("verify",),
    "mtool.workflow.writing": (
        "write_package",
        "write_project",
        "write_sources",
    ),
}
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}

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
    if name not in _MODULES:
        raise AttributeError(f"module 'mtool.workflow' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
