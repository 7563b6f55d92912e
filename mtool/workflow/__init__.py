"""What a user does with a model, whole: quantise, compile, build, run, verify, bench. The command line's twin."""

from mtool.plan import Choice
from mtool.workflow.cost import ALL_KINDS, Cost, bench, comparison, cost_of
from mtool.workflow.cycles import Clock, clocks, cycle_rows, mix_rows, part_headings, part_rows
from mtool.workflow.dataset import Pixels
from mtool.workflow.execution import Ran, run
from mtool.workflow.fitting import Fit, Fits, check
from mtool.workflow.flashing import Ready, flash_model, flash_plan
from mtool.workflow.layers import Layers, verify_layers
from mtool.workflow.place import Place
from mtool.workflow.profiling import bench_layers
from mtool.workflow.quantisation import Quantised, Scheme, quantize
from mtool.workflow.reporting import Report, report
from mtool.workflow.stages import (
    Model,
    Options,
    Prepared,
    build_model,
    build_plan,
    compile,
    open,
    prepare,
    write_sources,
)
from mtool.workflow.tolerance import default_tolerance
from mtool.workflow.verification import verify

__all__ = [
    "ALL_KINDS",
    "Choice",
    "Clock",
    "Cost",
    "Fit",
    "Fits",
    "Layers",
    "Model",
    "Options",
    "Pixels",
    "Place",
    "Prepared",
    "Quantised",
    "Ran",
    "Ready",
    "Report",
    "Scheme",
    "bench",
    "bench_layers",
    "build_model",
    "build_plan",
    "check",
    "clocks",
    "comparison",
    "compile",
    "cost_of",
    "cycle_rows",
    "default_tolerance",
    "flash_model",
    "flash_plan",
    "mix_rows",
    "open",
    "part_headings",
    "part_rows",
    "prepare",
    "quantize",
    "report",
    "run",
    "verify",
    "verify_layers",
    "write_sources",
]
