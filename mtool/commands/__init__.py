"""The user's workflows: quantize, compile, build, run, verify, bench. The command line is built on them.

Each name is imported when it is first used, so that a command imports only what it needs.
"""

from typing import TYPE_CHECKING

from mtool.base import exports

if TYPE_CHECKING:
    from mtool.commands.cost import ALL_KINDS as ALL_KINDS
    from mtool.commands.cost import Cost as Cost
    from mtool.commands.cost import bench as bench
    from mtool.commands.cost import bench_layers as bench_layers
    from mtool.commands.execution import RunResult as RunResult
    from mtool.commands.execution import run as run
    from mtool.commands.flashing import SmokeRun as SmokeRun
    from mtool.commands.flashing import flash_model as flash_model
    from mtool.commands.modules import make_module as make_module
    from mtool.commands.modules import read_module as read_module
    from mtool.commands.partitioning import partition as partition
    from mtool.commands.reporting import report as report
    from mtool.compiler.plan import Choice as Choice
    from mtool.compiler.plan.pool import Pool as Pool
    from mtool.device.cycles import Clock as Clock
    from mtool.preprocessing.prepending import Preprocessed as Preprocessed
    from mtool.preprocessing.prepending import preprocess as preprocess
    from mtool.quantization.dataset import Pixels as Pixels
    from mtool.quantization.evaluation import Evaluation as Evaluation
    from mtool.quantization.evaluation import evaluate as evaluate
    from mtool.quantization.metrics import Scoring as Scoring
    from mtool.quantization.quantizing import QuantizationResult as QuantizationResult
    from mtool.quantization.quantizing import Scheme as Scheme
    from mtool.quantization.quantizing import quantize as quantize
    from mtool.stages.building import HOST_DRIVEN as HOST_DRIVEN
    from mtool.stages.building import BuiltProject as BuiltProject
    from mtool.stages.building import build_model as build_model
    from mtool.stages.building import build_plan as build_plan
    from mtool.stages.building import open as open
    from mtool.stages.building import prepare as prepare
    from mtool.stages.building import write_package as write_package
    from mtool.stages.building import write_project as write_project
    from mtool.stages.compiling import CompiledModel as CompiledModel
    from mtool.stages.compiling import compile as compile
    from mtool.stages.compiling import compile_models as compile_models
    from mtool.stages.deployment import Deployment as Deployment
    from mtool.stages.fitting import Fit as Fit
    from mtool.stages.fitting import FitReport as FitReport
    from mtool.stages.fitting import check as check
    from mtool.stages.fitting import check_models as check_models
    from mtool.stages.options import Options as Options
    from mtool.verification.layers import LayerReport as LayerReport
    from mtool.verification.verification import verify as verify
    from mtool.verification.verification import verify_layers as verify_layers

MODULES = exports.modules_by_name(__file__)
__all__ = sorted(MODULES)


__getattr__ = exports.getter(__name__, MODULES)


def __dir__() -> list[str]:
    return __all__
