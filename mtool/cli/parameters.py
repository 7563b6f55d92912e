"""Parameters that several commands take. Nothing here loads the compiler: `--help` and a shell's completion read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mtool.cli import completion
from mtool.errors import UsageError
from mtool.option_values import Executor, Hybrid, InterfaceApi, Io, OperatorsApi, Partial, Rounding, Weights

if TYPE_CHECKING:
    from mtool.workflow import Deployment, Options


def _folder(text: str) -> Path:
    """Read a folder's name. None at all is no name of the working folder: a shell's variable that is not set."""
    if not text:
        raise UsageError("--output-dir is empty", hint="give a folder, or leave the option out")
    return Path(text)


def _model(text: str) -> Path:
    """Read a model's path; as for a folder's, none at all is no path."""
    if not text:
        raise UsageError("the model's path is empty", hint="give the path of an .onnx or .tflite file")
    return Path(text)


ModelFile = Annotated[
    Path,
    typer.Argument(metavar="MODEL", parser=_model, help="The model, .onnx or .tflite.", show_default=False),
]
BoardName = Annotated[
    str,
    typer.Option(
        "--board",
        "-b",
        metavar="BOARD",
        help="The board; `mtool boards` lists them.",
        autocompletion=completion.boards,
    ),
]


def output_dir(meaning: str, *others: str) -> Any:
    """Return the option -d with its help; `others` are further names of it."""
    return typer.Option("--output-dir", "-d", *others, metavar="DIR", parser=_folder, help=meaning, show_default=False)


def boards(meaning: str) -> Any:
    """Return the option -b of a command that takes several boards, with its help."""
    return typer.Option(
        "--board", "-b", metavar="BOARD", help=meaning, show_default=False, autocompletion=completion.boards
    )


def output_file(metavar: str, meaning: str) -> Any:
    """Return the option -o with its help."""
    return typer.Option("--output", "-o", metavar=metavar, help=meaning, show_default=False)


def repeat(meaning: str) -> Any:
    """Return the option --repeat with its help."""
    return typer.Option("--repeat", min=1, help=meaning)


OutputDir = Annotated[Path | None, output_dir("The project folder; default: build/<model>-<board>.")]
SourceDir = Annotated[Path | None, output_dir("The folder to write to; default: build/<model>-<board>-<format>.")]
BuiltDir = Annotated[
    Path | None, output_dir("A project folder, whose build is measured; default: build/<model>-<board>.")
]
InputsAndOutputs = Annotated[
    Io,
    typer.Option("--io", help="Where inputs and outputs lie: in the arena, or in memory of the caller."),
]
PartialExecution = Annotated[
    Partial,
    typer.Option(
        "--partial",
        help="Compute operators a few rows at a time for a smaller arena: where it costs little, never, or always.",
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", metavar="NAME=N", help="The value of a symbolic dimension; may be repeated.", show_default=False
    ),
]
Maxima = Annotated[
    list[str] | None,
    typer.Option(
        "--max",
        metavar="NAME=N",
        help="The largest size of an input's symbolic dimension, which is then known at run time, or of a value whose "
        "size depends on data; may be repeated.",
        show_default=False,
    ),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=N",
        help="A limit of what compiling the model may take (docs/limits.md); may be repeated.",
        show_default=False,
    ),
]
Constants = Annotated[
    list[str] | None,
    typer.Option(
        "--const",
        metavar="NAME=VALUE",
        help="Make an input a constant: a number, a JSON list or a .npy file; may be repeated.",
        show_default=False,
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="OUT:IN[=VALUE]",
        help="Keep an output on the device, as this input of the next run, which begins as 0 or as VALUE (a number, a "
        "JSON list or a .npy file); may be repeated.",
        show_default=False,
    ),
]
RoundingMode = Annotated[
    Rounding,
    typer.Option(
        "--rounding",
        help="How integers are rounded: as in ONNX, or as TFLite's reference kernels do (.tflite models only).",
    ),
]
HybridOperators = Annotated[
    Hybrid,
    typer.Option(
        "--hybrid",
        help="Products of float activations and int8 weights: in int8 as LiteRT does, in float, or with weights (of "
        "float16 too) stored as float32; auto: int8 of a .tflite model.",
    ),
]
Interface = Annotated[
    InterfaceApi,
    typer.Option(
        "--interface-api", help="The entry point: a typed C function, a packed one, or one call for each operator."
    ),
]
Operators = Annotated[
    OperatorsApi | None,
    typer.Option(
        "--operators-api",
        help="How the operators are called: typed, or by wrappers; default: as the executor wants.",
        show_default=False,
    ),
]
ExecutorName = Annotated[
    Executor,
    typer.Option("--executor", help="The caller of the operators: C, the graph executor on the device, or the host."),
]
Schedules = Annotated[
    list[str] | None,
    typer.Option(
        "--schedule",
        metavar="NODE=SCHEDULE[:KNOB=VALUE,...]",
        help="Compute a node by this schedule (docs/schedules.md); may be repeated.",
        show_default=False,
    ),
]
Backends = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        metavar="NAME[:KEY=VALUE,...]",
        help="Let a backend, by its name or file, compute what it can (docs/backends.md); may be repeated, in order of "
        "preference.",
        show_default=False,
    ),
]
Steps = Annotated[
    int,
    typer.Option("--tolerance", min=0, max=255, help="By how many steps an integer of a backend may differ."),
]
Fallback = Annotated[
    bool, typer.Option("--backend-fallback", help="Leave to C what a backend fails to compile, with a warning.")
]
TunedLogs = Annotated[
    list[str] | None,
    typer.Option(
        "--tuned",
        metavar="FILE|DIR",
        help="Take the fastest schedules that tuning logs know for this board and compiler (docs/tune.md); may be "
        "repeated; default: those of mtool.toml.",
        show_default=False,
    ),
]
WeightsAs = Annotated[
    Weights,
    typer.Option(
        "--weights", help="Where large constants are written: to a .bin file that GCC and Clang include, or as C text."
    ),
]
TemplateName = Annotated[
    str,
    typer.Option(
        "--template", "-t", metavar="NAME|DIR", help="A template; default: the board's first.", show_default=False
    ),
]
TemplateOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="An option of the template; may be repeated.", show_default=False
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Overwrite or remove files in the output folder that mtool did not write.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Leave files in the output folder that you edited as they are.")]
TrustTemplate = Annotated[
    bool, typer.Option("--trust-template", help="Let a template of your own load Python code (SECURITY.md).")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The seed of the inputs that are drawn.")]
_MOST_SAMPLES = 100_000  # all of them are drawn before the first is run
HOST = "host"  # the board that is always there
Port = Annotated[
    str,
    typer.Option(
        "--port",
        "-p",
        metavar="DEVICE",
        help="The board's serial port; default: MTOOL_PORT, mtool.toml, the single match.",
        show_default=False,
    ),
]
Probe = Annotated[
    str,
    typer.Option(
        "--probe",
        metavar="SERIAL",
        help="The USB serial number of the board or its probe, or its beginning; default: MTOOL_PROBE.",
        show_default=False,
    ),
]
FlashCommand = Annotated[
    str,
    typer.Option(
        "--flash-command",
        metavar="COMMAND",
        help="The command that flashes the board, in place of a flash tool: 'labtool write --to {port} {elf}'.",
        show_default=False,
    ),
]
PowerCommand = Annotated[
    str,
    typer.Option(
        "--power",
        metavar="COMMAND",
        help="The command that cycles the board's power when nothing else brings it back: 'uhubctl -a cycle -p 2'.",
        show_default=False,
    ),
]
Scheduler = Annotated[
    str,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Measure on the boards of a rack: those of the workers of this Dask scheduler, HOST:PORT (docs/farm.md).",
        show_default=False,
    ),
]
TlsCa = Annotated[
    Path | None,
    typer.Option("--tls-ca", metavar="FILE", help="The certificate of who signs those of a rack.", show_default=False),
]
TlsCertificate = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", help="This computer's certificate, for a rack.", show_default=False),
]
TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of --tls-cert.", show_default=False)
]
SampleCount = Annotated[int, typer.Option("--samples", min=1, max=_MOST_SAMPLES, help="The number of inputs to draw.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the commands that would be run, and run none.")]


@dataclass(frozen=True, slots=True)
class Asked:
    """Several options of the command line that become one argument of a command.

    parameters: each option's annotation and default by its name.
    reader: the function of `reading` that makes the argument of their values.
    """

    parameters: Mapping[str, tuple[Any, Any]]
    reader: str = "options"


_OF_A_SHAPE: dict[str, tuple[Any, Any]] = {"dim": (Dims, None), "const": (Constants, None), "limit": (Limits, None)}
_OF_A_MODEL: dict[str, tuple[Any, Any]] = {
    **_OF_A_SHAPE,
    "state": (States, None),
    "rounding": (RoundingMode, "onnx"),
    "hybrid": (HybridOperators, "auto"),
    "maxima": (Maxima, None),
}
_OF_ITS_C: dict[str, tuple[Any, Any]] = {
    "io": (InputsAndOutputs, "arena"),
    "partial": (PartialExecution, "auto"),
    **_OF_A_MODEL,
    "interface_api": (Interface, "c"),
    "operators_api": (Operators, None),
    "executor": (ExecutorName, "aot"),
    "weights": (WeightsAs, "auto"),
    "schedule": (Schedules, None),
    "tuned": (TunedLogs, None),
    "backend": (Backends, None),
    "tolerance": (Steps, 0),
    "backend_fallback": (Fallback, False),
}
_OF_A_FOLDER: dict[str, tuple[Any, Any]] = {"force": (Force, False), "keep": (Keep, False)}
_OF_A_TEMPLATE: dict[str, tuple[Any, Any]] = {
    "template": (TemplateName, ""),
    "option": (TemplateOptions, None),
    "trust_template": (TrustTemplate, False),
}

_OF_A_DEPLOYMENT: dict[str, tuple[Any, Any]] = {
    "output_dir": (OutputDir, None),
    "port": (Port, ""),
    "probe": (Probe, ""),
}

ProjectDeployment = Annotated["Deployment", Asked(_OF_A_DEPLOYMENT, "deployment")]
"""The project folder, and the device that runs it."""

_OF_A_BOARD: dict[str, tuple[Any, Any]] = {"flash_command": (FlashCommand, ""), "power": (PowerCommand, "")}

FlashDeployment = Annotated["Deployment", Asked({**_OF_A_DEPLOYMENT, **_OF_A_BOARD}, "deployment")]
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

SourceOptions = Annotated["Options", Asked({**_OF_ITS_C, **_OF_A_FOLDER})]
"""And how it becomes C, in a folder."""

PartitionOptions = Annotated[
    "Options",
    Asked({**_OF_A_MODEL, **{name: _OF_ITS_C[name] for name in ("backend", "tolerance")}, **_OF_A_FOLDER}),
]
"""Which model and which backends, in a folder."""

FitOptions = Annotated[
    "Options", Asked({**{name: each for name, each in _OF_ITS_C.items() if name != "tuned"}, **_OF_A_TEMPLATE})
]
"""How it becomes C and a firmware, on any board; nothing is written, and no compiler asked for its version."""

TuningOptions = Annotated[
    "Options",
    Asked(
        {
            "io": _OF_ITS_C["io"],
            "partial": _OF_ITS_C["partial"],
            **_OF_A_MODEL,
            **{name: _OF_ITS_C[name] for name in ("weights", "schedule", "backend", "tolerance", "backend_fallback")},
            **_OF_A_TEMPLATE,
        }
    ),
]
"""What the model is, and how it becomes a firmware; of the schedules those that are not to be tuned."""

ProjectOptions = Annotated["Options", Asked({**_OF_ITS_C, **_OF_A_TEMPLATE, **_OF_A_FOLDER})]
"""And a project, by a template, in a folder."""
