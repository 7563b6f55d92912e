"""Parameters that several commands take, and how their text is read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from mtool.codegen import conventions
from mtool.errors import UsageError
from mtool.frontend import Rounding
from mtool.manifest import Executor, InterfaceApi, OperatorsApi
from mtool.plan import Choice, Io, Partial
from mtool.workflow import Options, samples
from mtool.workflow.samples import Array


def _folder(text: str) -> Path:
    """Read a folder's name. None at all is no name of the working folder: a shell's variable that is not set."""
    if not text:
        raise UsageError("--output-dir is empty", hint="give a folder, or leave the option out")
    return Path(text)


ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="The model, .onnx or .tflite.", show_default=False)]
BoardName = Annotated[str, typer.Option("--board", "-b", metavar="BOARD", help="The board; `mtool boards` lists them.")]
OutputDir = Annotated[
    Path | None,
    typer.Option(
        "--output-dir",
        "-d",
        metavar="DIR",
        parser=_folder,
        help="The project folder; default: build/<model>-<board>.",
        show_default=False,
    ),
]
InputsAndOutputs = Annotated[
    Io,
    typer.Option("--io", help="Inputs and outputs lie in the arena, or in memory of the caller."),
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
        help="The largest size of a value whose size depends on data; may be repeated.",
        show_default=False,
    ),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=N",
        help="What compiling the model may take (docs/limits.md); may be repeated.",
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
        metavar="OUT:IN",
        help="Keep an output on the device, as this input of the next run; may be repeated.",
        show_default=False,
    ),
]
RoundingMode = Annotated[
    Rounding,
    typer.Option("--rounding", help="Of integers: ONNX's, or of a .tflite model that of TFLite's reference kernels."),
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
    typer.Option("--executor", help="What calls the operators: C, the graph executor on the device, or the host."),
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
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the inputs that are drawn.")]
_MOST_SAMPLES = 100_000  # all of them are drawn before the first is run
_DIGITS = 18  # of a size; more are no int64
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
SampleCount = Annotated[
    int, typer.Option("--samples", min=1, max=_MOST_SAMPLES, help="How many to draw, without --golden.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the commands that would be run, and run none.")]


def options(
    *,
    io: Io = "arena",
    partial: Partial = "auto",
    dim: Sequence[str] | None = None,
    const: Sequence[str] | None = None,
    rounding: Rounding = "onnx",
    maxima: Sequence[str] | None = None,
    limit: Sequence[str] | None = None,
    state: Sequence[str] | None = None,
    interface_api: InterfaceApi = "c",
    operators_api: OperatorsApi | None = None,
    executor: Executor = "aot",
    schedule: Sequence[str] | None = None,
    template: str = "",
    option: Sequence[str] | None = None,
    force: bool = False,
    keep: bool = False,
    trust_template: bool = False,
) -> Options:
    """Return how to compile, from what was given on the command line.

    Raises:
        UsageError: a pair is not NAME=VALUE or OUT:IN, a size is not a positive number, a schedule is not written as
            it should be, or the conventions do not go together.
    """
    if force and keep:
        raise UsageError("--force and --keep do not go together")
    return Options(
        io=io,
        partial=partial,
        dims=dimensions(dim),
        constants=constant_values(const),
        rounding=rounding,
        maxima=largest_sizes(maxima),
        limits=limits(limit),
        states=state_pairs(state),
        template=template,
        template_options=dict(_pair(text, "--option", "opt=-O3") for text in option or ()),
        conventions=conventions(interface_api, operators_api, executor),
        schedules=schedule_choices(schedule),
        edits="force" if force else "keep" if keep else "stop",
        trust_template=trust_template,
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """Several options of the command line that become one argument of a command: `options` of their values.

    `parameters` has each one's annotation and default by its name.
    """

    parameters: Mapping[str, tuple[Any, Any]]


_OF_A_SHAPE: dict[str, tuple[Any, Any]] = {"dim": (Dims, None), "const": (Constants, None), "limit": (Limits, None)}
_OF_A_MODEL: dict[str, tuple[Any, Any]] = {
    **_OF_A_SHAPE,
    "state": (States, None),
    "rounding": (RoundingMode, "onnx"),
    "maxima": (Maxima, None),
}
_OF_ITS_C: dict[str, tuple[Any, Any]] = {
    "io": (InputsAndOutputs, "arena"),
    "partial": (PartialExecution, "auto"),
    **_OF_A_MODEL,
    "interface_api": (Interface, "c"),
    "operators_api": (Operators, None),
    "executor": (ExecutorName, "aot"),
    "schedule": (Schedules, None),
    "force": (Force, False),
    "keep": (Keep, False),
}
_OF_A_PROJECT = {
    **_OF_ITS_C,
    "template": (TemplateName, ""),
    "option": (TemplateOptions, None),
    "trust_template": (TrustTemplate, False),
}

ShapeOptions = Annotated[Options, Asked(_OF_A_SHAPE)]
"""What a model's shapes follow from."""

ModelOptions = Annotated[Options, Asked(_OF_A_MODEL)]
"""And its numbers and states."""

SourceOptions = Annotated[Options, Asked(_OF_ITS_C)]
"""And how it becomes C."""

ProjectOptions = Annotated[Options, Asked(_OF_A_PROJECT)]
"""And a project, by a template."""

DEFAULTS = Options()


def constant_values(constants: Sequence[str] | None) -> dict[str, Array]:
    """Return the values of inputs that become constants, from NAME=VALUE.

    Raises:
        UsageError: a value is neither a number, a JSON list of numbers, nor a .npy file.
    """
    values = {}
    for text in constants or ():
        name, value = _pair(text, "--const", "axes=[1]")
        try:
            if value.endswith(".npy"):
                (values[name],) = samples.read(Path(value)).values()
            else:
                values[name] = np.asarray(json.loads(value))
        except (UsageError, OSError, ValueError, MemoryError, RecursionError):
            values[name] = np.asarray("")
        if values[name].dtype.kind not in "biuf":
            raise UsageError(
                f"--const {text}: {value!r} is not a number, a list of numbers or a .npy file",
                hint="for instance: --const axes=[1]",
            )
    return values


def state_pairs(states: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """Return pairs of an output and an input, from OUT:IN; where names have colons too, the middle one counts.

    Raises:
        UsageError: one is not OUT:IN.
    """
    pairs = []
    for text in states or ():
        parts = text.split(":")
        half = len(parts) // 2
        output, value = ":".join(parts[:half]), ":".join(parts[half:])
        if len(parts) % 2 or not output or not value:
            raise UsageError(
                f"--state {text}: that is not OUT:IN", hint="an output and the input that it feeds: --state hn:h0"
            )
        pairs.append((output, value))
    return tuple(pairs)


def schedule_choices(schedules: Sequence[str] | None) -> dict[str, Choice]:
    """Return the schedules that are asked for, by node, from NODE=SCHEDULE[:KNOB=VALUE,...].

    Raises:
        UsageError: one is not written so, or a node has two.
    """
    example = "pw_2=dsp_pointwise:unroll=16"
    choices: dict[str, Choice] = {}
    for text in schedules or ():
        node, value = _pair(text, "--schedule", example)
        name, _, settings = value.partition(":")
        pairs = [setting.partition("=") for setting in settings.split(",")] if settings else []
        wrong = next(("".join(pair) for pair in pairs if not all(pair)), None)
        problem = (
            "that names no schedule" if not name
            else f"{node} has another schedule already" if node in choices
            else f"{wrong!r} is not KNOB=VALUE" if wrong is not None
            else ""
        )  # fmt: skip
        if problem:
            raise UsageError(f"--schedule {text}: {problem}", hint=f"for instance: --schedule {example}")
        choices[node] = Choice(name, {knob: setting for knob, _, setting in pairs})
    return choices


def dimensions(dims: Sequence[str] | None) -> dict[str, int]:
    """Return the values of symbolic dimensions, from NAME=N.

    Raises:
        UsageError: one is not NAME=N with N at least 1.
    """
    return _sizes(dims, "--dim", "batch=1")


def largest_sizes(maxima: Sequence[str] | None) -> dict[str, int]:
    """Return the largest sizes of what has a size that depends on data, from NAME=N.

    Raises:
        UsageError: one is not NAME=N with N at least 1.
    """
    return _sizes(maxima, "--max", "selected=100")


def limits(texts: Sequence[str] | None) -> dict[str, int]:
    """Return limits of what compiling may take, from NAME=N.

    Raises:
        UsageError: one is not NAME=N with N at least 1.
    """
    return _sizes(texts, "--limit", "nodes=50000")


def _sizes(texts: Sequence[str] | None, option: str, example: str) -> dict[str, int]:
    values = {}
    for text in texts or ():
        name, value = _pair(text, option, example)
        number = int(value) if value.isdecimal() and len(value) <= _DIGITS else 0
        if number < 1:
            raise UsageError(
                f"{option} {text}: {value!r} is not a number of at least 1", hint=f"for instance: {option} {example}"
            )
        values[name] = number
    return values


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"{option} {text}: that is not NAME=VALUE", hint=f"for instance: {option} {example}")
    return name, value
