"""mtool puts a machine-learning model (ONNX or TFLite) on a microcontroller.

    model = mtool.compile("model.onnx", board="mps2_an386")
    with mtool.open(model) as device:
        outputs = device.run({"input": x})
        print(device.time(number=10, repeat=5))

`run`, `verify`, `evaluate`, `bench`, `check`, `quantize`, `preprocess` and `tune` do what the commands of those names
do; `prepare` is `mtool build`, `flash_model` is `mtool flash`, and `make_module` is `mtool module`. Errors are of the
classes in mtool.errors, which are also here: `except mtool.FitError`. `conventions` returns a value for
`Options(conventions=...)`, and `BackendSpec` is the type in `Options(backends=...)`; both options also accept text.
"""

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from mtool.base import exports
from mtool.version import __version__ as __version__

if TYPE_CHECKING:
    from mtool.base import errors as errors
    from mtool.base.errors import BoardError as BoardError
    from mtool.base.errors import BuildError as BuildError
    from mtool.base.errors import CommunicationError as CommunicationError
    from mtool.base.errors import DeviceError as DeviceError
    from mtool.base.errors import FitError as FitError
    from mtool.base.errors import FlashError as FlashError
    from mtool.base.errors import MismatchError as MismatchError
    from mtool.base.errors import ModelError as ModelError
    from mtool.base.errors import MtoolError as MtoolError
    from mtool.base.errors import NeedsValues as NeedsValues
    from mtool.base.errors import NoAnswerError as NoAnswerError
    from mtool.base.errors import UsageError as UsageError
    from mtool.commands import Choice as Choice
    from mtool.commands import Deployment as Deployment
    from mtool.commands import Options as Options
    from mtool.commands import Pixels as Pixels
    from mtool.commands import Pool as Pool
    from mtool.commands import Scheme as Scheme
    from mtool.commands import Scoring as Scoring
    from mtool.commands import bench as bench
    from mtool.commands import bench_layers as bench_layers
    from mtool.commands import check as check
    from mtool.commands import check_models as check_models
    from mtool.commands import compile as compile
    from mtool.commands import compile_models as compile_models
    from mtool.commands import evaluate as evaluate
    from mtool.commands import flash_model as flash_model
    from mtool.commands import make_module as make_module
    from mtool.commands import open as open
    from mtool.commands import prepare as prepare
    from mtool.commands import preprocess as preprocess
    from mtool.commands import quantize as quantize
    from mtool.commands import report as report
    from mtool.commands import run as run
    from mtool.commands import verify as verify
    from mtool.commands import verify_layers as verify_layers
    from mtool.compiler.backends.spec import BackendSpec as BackendSpec
    from mtool.compiler.codegen.conventions import Conventions as Conventions
    from mtool.compiler.codegen.conventions import conventions as conventions
    from mtool.tuning.tuning import tune as tune
    from mtool.verification.comparison import Tolerance as Tolerance

_MODULES = exports.modules_by_name(__file__)
__all__ = sorted([*_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mtool' has no attribute {name!r}")
    if name == "errors":
        return importlib.import_module("mtool.errors")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    if inspect.isfunction(value):
        value = importlib.import_module("mtool.python").front(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
