"""mtool puts a machine-learning model (ONNX) on a microcontroller.

    model = mtool.compile("model.onnx", board="mps2_an386")
    with mtool.open(model) as device:
        outputs = device.run({"input": x})
        print(device.time(number=10, repeat=5))

`prepare`, `run`, `verify`, `bench`, `check` and `quantize` do what the commands of those names do (`prepare` is
`mtool build`, `flash_model` is `mtool flash`), and so does `tune`;
`make_module` makes what firmware takes at run time.
Errors are of the classes in mtool.errors, which are here too: `except mtool.FitError`. `conventions` makes what
`Options(conventions=...)` takes, and `BackendSpec` is what `Options(backends=...)` does; text does for both.
"""

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from mtool.version import __version__

if TYPE_CHECKING:
    from mtool.base import errors
    from mtool.base.errors import (
        BoardError,
        BuildError,
        CommunicationError,
        DeviceError,
        FitError,
        FlashError,
        MismatchError,
        ModelError,
        MtoolError,
        NeedsValues,
        NoAnswerError,
        UsageError,
    )
    from mtool.commands import (
        Choice,
        Deployment,
        Options,
        Pixels,
        Pool,
        Scheme,
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
    from mtool.compiler.backends.spec import BackendSpec
    from mtool.compiler.codegen.conventions import Conventions, conventions
    from mtool.device.session.verify import Tolerance
    from mtool.tuning import tune

__all__ = [
    "BackendSpec",
    "BoardError",
    "BuildError",
    "Choice",
    "CommunicationError",
    "Conventions",
    "Deployment",
    "DeviceError",
    "FitError",
    "FlashError",
    "MismatchError",
    "ModelError",
    "MtoolError",
    "NeedsValues",
    "NoAnswerError",
    "Options",
    "Pixels",
    "Pool",
    "Scheme",
    "Tolerance",
    "UsageError",
    "__version__",
    "bench",
    "bench_layers",
    "check",
    "check_models",
    "compile",
    "compile_models",
    "conventions",
    "errors",
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
_EXPORTS = {
    **{name: "mtool.commands" for name in __all__ if name != "__version__"},
    **{name: "mtool.errors" for name in __all__ if name.endswith("Error")},
    "BackendSpec": "mtool.compiler.backends.spec",
    "Conventions": "mtool.compiler.codegen.conventions",
    "NeedsValues": "mtool.errors",
    "Tolerance": "mtool.device.session.verify",
    "conventions": "mtool.compiler.codegen.conventions",
    "tune": "mtool.tuning",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'mtool' has no attribute {name!r}")
    if name == "errors":
        return importlib.import_module("mtool.errors")
    found = getattr(importlib.import_module(_EXPORTS[name]), name)
    if inspect.isfunction(found):
        found = importlib.import_module("mtool.python").front(found)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
