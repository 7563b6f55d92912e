"""The workflows of a user: quantize, compile, build, run, verify, bench. The command line's twin.

Each name is loaded when it is first used, so that a command imports what it needs and no more.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtool.commands.cost import (
        ALL_KINDS,
        Cost,
        bench,
        bench_layers,
        clocks,
        comparison,
        cycle_rows,
        hertz,
        mix_rows,
        part_headings,
        part_rows,
        standing_for,
        time_function,
    )
    from mtool.commands.execution import RunResult, run
    from mtool.commands.flashing import SmokeRun, flash_model, flash_plan
    from mtool.commands.modules import make_module, read_module
    from mtool.commands.partitioning import partition
    from mtool.commands.reporting import report
    from mtool.compiler.plan import Choice
    from mtool.compiler.plan.pool import Pool
    from mtool.device.cycles import Clock
    from mtool.quantization.dataset import Pixels
    from mtool.quantization.quantizing import QuantizationResult, Scheme, quantize
    from mtool.stages.building import (
        HOST_DRIVEN,
        BuiltProject,
        build_model,
        build_plan,
        open,
        prepare,
        write_package,
        write_project,
        write_sources,
    )
    from mtool.stages.compiling import CompiledModel, compile, compile_models
    from mtool.stages.deployment import Deployment
    from mtool.stages.fitting import Fit, FitReport, check, check_models
    from mtool.stages.options import Options
    from mtool.verification.layers import LayerReport, default_tolerance, verify_layers
    from mtool.verification.verification import verify

_EXPORTS = {
    "mtool.commands.cost": (
        "ALL_KINDS Clock Cost bench bench_layers clocks comparison cycle_rows "
        "hertz mix_rows part_headings part_rows standing_for time_function"
    ),
    "mtool.commands.execution": "RunResult run",
    "mtool.commands.flashing": "SmokeRun flash_model flash_plan",
    "mtool.commands.modules": "make_module read_module",
    "mtool.commands.partitioning": "partition",
    "mtool.commands.reporting": "report",
    "mtool.compiler.plan": "Choice",
    "mtool.compiler.plan.pool": "Pool",
    "mtool.quantization.dataset": "Pixels",
    "mtool.quantization.quantizing": "QuantizationResult Scheme quantize",
    "mtool.stages.building": (
        "BuiltProject HOST_DRIVEN build_model build_plan open prepare write_package write_project write_sources"
    ),
    "mtool.stages.compiling": "CompiledModel compile compile_models",
    "mtool.stages.deployment": "Deployment",
    "mtool.stages.fitting": "Fit FitReport check check_models",
    "mtool.stages.options": "Options",
    "mtool.verification.layers": "LayerReport default_tolerance verify_layers",
    "mtool.verification.verification": "verify",
}
MODULES = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = [
    "ALL_KINDS",
    "HOST_DRIVEN",
    "BuiltProject",
    "Choice",
    "Clock",
    "CompiledModel",
    "Cost",
    "Deployment",
    "Fit",
    "FitReport",
    "LayerReport",
    "Options",
    "Pixels",
    "Pool",
    "QuantizationResult",
    "RunResult",
    "Scheme",
    "SmokeRun",
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
