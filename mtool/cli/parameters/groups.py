"""Groups of options: several options of the command line that become one argument of a command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mtool.cli.parameters.device import FlashCommand, Port, PowerCommand, Probe, Timeout
from mtool.cli.parameters.generated_c import (
    ArenaSection,
    ArenasOfModels,
    Backends,
    ExecutorName,
    Fallback,
    InputsAndOutputs,
    Interface,
    Operators,
    OptimizeFor,
    PartialExecution,
    Pools,
    Portable,
    Protect,
    Schedules,
    SingleFile,
    Steps,
    StreamedInput,
    TunedLogs,
    WeightsAs,
)
from mtool.cli.parameters.model import Constants, Dims, HybridOperators, Limits, Maxima, Names, RoundingMode, States
from mtool.cli.parameters.project import (
    Force,
    Keep,
    ModuleKey,
    OutputDir,
    TakesModules,
    TemplateName,
    TemplateOptions,
    TrustTemplate,
    UnsignedModules,
    output_dir,
)

if TYPE_CHECKING:
    from mtool.commands import Deployment, Options


@dataclass(frozen=True, slots=True)
class Asked:
    """Several options of the command line that become one argument of a command.

    parameters: each option's annotation and default by its name.
    reader: the function of `reading` that makes the argument of their values.
    of_models: there is one argument for each model that the command is given.
    """

    parameters: Mapping[str, tuple[Any, Any]]
    reader: str = "options"
    of_models: bool = False


_OF_A_SHAPE: dict[str, tuple[Any, Any]] = {"dim": (Dims, None), "const": (Constants, None), "limit": (Limits, None)}
_OF_A_MODEL: dict[str, tuple[Any, Any]] = {
    **_OF_A_SHAPE,
    "state": (States, None),
    "rounding": (RoundingMode, "onnx"),
    "hybrid": (HybridOperators, "auto"),
    "maxima": (Maxima, None),
}
_OF_MODELS: dict[str, tuple[Any, Any]] = {
    "name": (Names, None),
    "arena": (ArenasOfModels, "shared"),
    "arena_section": (ArenaSection, ""),
    "pool": (Pools, None),
}
_OF_ITS_C: dict[str, tuple[Any, Any]] = {
    "io": (InputsAndOutputs, "arena"),
    "partial": (PartialExecution, "auto"),
    "optimize": (OptimizeFor, "balanced"),
    **_OF_A_MODEL,
    "interface_api": (Interface, None),
    "operators_api": (Operators, None),
    "executor": (ExecutorName, "aot"),
    "stream": (StreamedInput, ""),
    "weights": (WeightsAs, "auto"),
    "schedule": (Schedules, None),
    "tuned": (TunedLogs, None),
    "backend": (Backends, None),
    "tolerance": (Steps, 0),
    "backend_fallback": (Fallback, False),
}
_OF_ITS_FILES: dict[str, tuple[Any, Any]] = {**_OF_ITS_C, "single_file": (SingleFile, False)}
_OF_A_PROGRAM: dict[str, tuple[Any, Any]] = {
    **_OF_ITS_FILES,
    "portable": (Portable, False),
    "protect": (Protect, False),
}
_OF_A_FOLDER: dict[str, tuple[Any, Any]] = {"force": (Force, False), "keep": (Keep, False)}
_OF_A_TEMPLATE: dict[str, tuple[Any, Any]] = {
    "template": (TemplateName, ""),
    "option": (TemplateOptions, None),
    "trust_template": (TrustTemplate, False),
}
_OF_MODULES: dict[str, tuple[Any, Any]] = {
    "modules": (TakesModules, False),
    "module_key": (ModuleKey, None),
    "unsigned_modules": (UnsignedModules, False),
}
_OF_A_DEPLOYMENT: dict[str, tuple[Any, Any]] = {
    "output_dir": (OutputDir, None),
    "port": (Port, ""),
    "probe": (Probe, ""),
}
_OF_A_RUN: dict[str, tuple[Any, Any]] = {**_OF_A_DEPLOYMENT, "timeout": (Timeout, None)}
ProjectDeployment = Annotated["Deployment", Asked(_OF_A_RUN, "deployment")]
"""The project folder, and the device that runs it."""
_OF_A_BOARD: dict[str, tuple[Any, Any]] = {"flash_command": (FlashCommand, ""), "power": (PowerCommand, "")}
FlashDeployment = Annotated["Deployment", Asked({**_OF_A_RUN, **_OF_A_BOARD}, "deployment")]
"""And the commands that flash it and cycle its power."""
TrialsDeployment = Annotated[
    "Deployment",
    Asked(
        {
            **_OF_A_DEPLOYMENT,
            **_OF_A_BOARD,
            "output_dir": (
                Annotated[
                    Path | None,
                    output_dir("The folder for the trials' projects; default: build/tune-<model>-<board>."),
                ],
                None,
            ),
        },
        "deployment",
    ),
]
"""The same, with a folder for many projects."""
ShapeOptions = Annotated["Options", Asked(_OF_A_SHAPE)]
"""What a model's shapes follow from."""
ModelOptions = Annotated["Options", Asked(_OF_A_MODEL)]
"""And its numbers and states."""
SourceOptions = Annotated["Sequence[Options]", Asked({**_OF_MODELS, **_OF_ITS_FILES, **_OF_A_FOLDER}, of_models=True)]
"""And how each model becomes C, in a folder."""
PartitionOptions = Annotated[
    "Options",
    Asked({**_OF_A_MODEL, **{name: _OF_ITS_C[name] for name in ("backend", "tolerance")}, **_OF_A_FOLDER}),
]
"""Which model and which backends, in a folder."""
FitOptions = Annotated[
    "Sequence[Options]",
    Asked(
        {**_OF_MODELS, **{name: each for name, each in _OF_ITS_C.items() if name != "tuned"}, **_OF_A_TEMPLATE},
        of_models=True,
    ),
]
"""How each model becomes C and a firmware, on any board; nothing is written, and no compiler asked for its version."""
TuningOptions = Annotated[
    "Options",
    Asked(
        {
            "io": _OF_ITS_C["io"],
            "partial": _OF_ITS_C["partial"],
            "optimize": _OF_ITS_C["optimize"],
            **_OF_A_MODEL,
            **{name: _OF_ITS_C[name] for name in ("weights", "schedule", "backend", "tolerance", "backend_fallback")},
            **_OF_A_TEMPLATE,
        }
    ),
]
"""What the model is, and how it becomes a firmware; of the schedules those that are not to be tuned."""
GivenOptions = Annotated["Mapping[str, Any]", Asked({**_OF_A_PROGRAM, **_OF_A_TEMPLATE}, "given")]
"""Options of a project that are stored, not used: those that differ from their defaults, by their names."""

ModuleOptions = Annotated[
    "Options",
    Asked(
        {
            "name": _OF_MODELS["name"],
            **{name: _OF_ITS_C[name] for name in ("partial", "optimize")},
            **_OF_A_MODEL,
            **{name: _OF_ITS_C[name] for name in ("schedule", "tuned")},
            **_OF_A_TEMPLATE,
        }
    ),
]
"""How a model becomes the C of a module."""

_OF_A_PROJECT = Asked({**_OF_MODELS, **_OF_A_PROGRAM, **_OF_A_TEMPLATE, **_OF_MODULES, **_OF_A_FOLDER}, of_models=True)
ProjectOptions = Annotated["Options", _OF_A_PROJECT]
"""And a project, by a template, in a folder."""
FirmwareOptions = Annotated["Sequence[Options]", _OF_A_PROJECT]
"""The same, of each model of the firmware."""
