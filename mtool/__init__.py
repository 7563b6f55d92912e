"""mtool puts a machine-learning model (ONNX) on a microcontroller.

    model = mtool.compile("model.onnx", board="mps2_an386")
    with mtool.open(model) as device:
        outputs = device.run({"input": x})
        print(device.time(number=10, repeat=5))

`prepare`, `run`, `verify`, `bench`, `check` and `quantize` do what the commands of those names do (`prepare` is
`mtool build`, `flash_model` is `mtool flash`), and so does `tune`;
`make_module` makes what firmware takes at run time.
Errors are of the classes in mtool.errors.
"""

import importlib
from typing import TYPE_CHECKING, Any

from mtool.version import __version__

if TYPE_CHECKING:
    from mtool.tuning import tune
    from mtool.workflow import (
        Choice,
        Deployment,
        Options,
        Pool,
        bench,
        bench_layers,
        check,
        check_models,
        compile,
        compile_models,
        flash_model,
        make_module,
        open,
        prepare,
        quantize,
        report,
        run,
        verify,
        verify_layers,
    )

__all__ = [
    "Choice",
    "Deployment",
    "Options",
    "Pool",
    "__version__",
    "bench",
    "bench_layers",
    "check",
    "check_models",
    "compile",
    "compile_models",
    "flash_model",
    "make_module",
    "open",
    "prepare",
    "quantize",
    "report",
    "run",
    "tune",
    "verify",
    "verify_layers",
]

# Loaded when first used: importing mtool stays light. Named as text: no part of mtool depends on what stands above it.
_EXPORTS = {**{name: "mtool.workflow" for name in __all__ if name != "__version__"}, "tune": "mtool.tuning"}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'mtool' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
