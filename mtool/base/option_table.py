"""The options of a model, its project and its device: name, type, default, help, and which commands have each.

The command line's parameters, the fields of `mtool.Options`, the table [options] of mtool.toml, the names in error
messages and docs/commands.md are made from this table.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtool.base.option_values import (
    Arenas,
    Executor,
    Hybrid,
    InterfaceApi,
    Io,
    OperatorsApi,
    Optimize,
    Partial,
    Rounding,
    Weights,
)

_MODEL, _C, _PROJECT, _BOARD = "The model", "The generated C", "The project", "The board"  # sections of --help

_SHAPES = ("quantize",)
_MODELS = ("partition", "tune", "module")
_SOURCES = ("compile", "new", "project")
_PROJECTS = ("new", "project")
_RUNS = ("run", "flash")


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: the name of its value in commands, and in [options] of mtool.toml.
        kind: the type of that value, as the command line reads it.
        default: its value where it is left out.
        section: the heading in --help.
        help: what --help says.
        groups: the groups of options that have it (mtool.cli.parameters).
        metavar: what stands for the value in --help; empty: the values that it may have.
        flags: as they are typed; default: the name with dashes.
        field: its name in Python, where that is another: a field of `mtool.Options` or of `mtool.Deployment`.
        limits: the least and the largest value.
    """

    name: str
    kind: Any
    default: Any
    section: str
    help: str
    groups: tuple[str, ...]
    metavar: str = ""
    flags: tuple[str, ...] = ()
    field: str = ""
    limits: tuple[float | None, float | None] = (None, None)

    @property
    def spelled(self) -> tuple[str, ...]:
        """Its flags on the command line, the long one first."""
        return self.flags or (f"--{self.name.replace('_', '-')}",)

    @property
    def python_name(self) -> str:
        """Its name in Python."""
        return self.field or self.name


_TEXTS = list[str] | None

LEAST_TIMEOUT_S = 1e-3
"""The shortest timeout of an inference: the device's watchdog counts milliseconds."""

_TABLE = (
    Option(
        "name", _TEXTS, None, _MODEL,
        "The model's name in C, in place of its file's; with several models once for each, in their order.",
        ("compile", "check", "module", "project"), "NAME",
    ),
    Option(
        "arena", Arenas, "shared", _C,
        "With several models: one arena, as one of them runs at a time; one in which each may run between two "
        "operators of those named after it; or one for each. caller: memory that is passed with each call.",
        ("compile", "check", "project"), field="arenas",
    ),
    Option(
        "arena_section", str, "", _C, "The section that the arena lies in, for a linker script of yours.",
        ("compile", "check", "project"), "NAME",
    ),
    Option(
        "pool", _TEXTS, None, _C,
        "A memory that tensors or constants may lie in, by the board's name of it (docs/memories.md), of which "
        "so many bytes; for=tensors, weights or constants, waits=CYCLES, align=BYTES, section=NAME; may be repeated.",
        ("compile", "check", "project"), "NAME[=BYTES][,KEY=VALUE...]", field="pools",
    ),
    Option(
        "io", Io, "arena", _C, "Where inputs and outputs lie: in the arena, or in memory of the caller.",
        (*_SOURCES, "check", "tune"),
    ),
    Option(
        "partial", Partial, "auto", _C,
        "Compute operators a few rows at a time for a smaller arena: where it costs little, never, or always.",
        (*_SOURCES, "check", "tune", "module"),
    ),
    Option(
        "optimize", Optimize, "balanced", _C,
        "What the board's memory is spent on, larger constants and constants in RAM beside a slow flash: where "
        "that saves time enough, wherever there is room, or nothing.",
        (*_SOURCES, "check", "tune", "module"),
    ),
    Option(
        "dim", _TEXTS, None, _MODEL, "The value of a symbolic dimension; may be repeated.",
        (*_SHAPES, *_MODELS, *_SOURCES, "check"), "NAME=N", field="dims",
    ),
    Option(
        "const", _TEXTS, None, _MODEL,
        "Make an input a constant: a number, a JSON list or a .npy file; may be repeated.",
        (*_SHAPES, *_MODELS, *_SOURCES, "check"), "NAME=VALUE", field="constants",
    ),
    Option(
        "limit", _TEXTS, None, _MODEL,
        "A limit of what compiling the model may take (docs/limits.md); may be repeated.",
        (*_SHAPES, *_MODELS, *_SOURCES, "check"), "NAME=N", field="limits",
    ),
    Option(
        "state", _TEXTS, None, _MODEL,
        "Keep an output on the device, as this input of the next run, which begins as 0 or as VALUE (a number, a "
        "JSON list or a .npy file); may be repeated.",
        (*_MODELS, *_SOURCES, "check"), "OUT:IN[=VALUE]", field="states",
    ),
    Option(
        "rounding", Rounding, "onnx", _MODEL,
        "How integers are rounded: as in ONNX, or as TFLite's reference kernels do (.tflite models only).",
        (*_MODELS, *_SOURCES, "check"),
    ),
    Option(
        "hybrid", Hybrid, "auto", _MODEL,
        "Products of float activations and int8 weights: in int8 as LiteRT does, in float, or with weights (of "
        "float16 too) stored as float32; auto: int8 of a .tflite model.",
        (*_MODELS, *_SOURCES, "check"),
    ),
    Option(
        "maxima", _TEXTS, None, _MODEL,
        "The largest size of an input's symbolic dimension, which is then known at run time, or of a value whose "
        "size depends on data; may be repeated.",
        (*_MODELS, *_SOURCES, "check"), "NAME=N", ("--max",),
    ),
    Option(
        "interface_api", InterfaceApi | None, None, _C,
        "The entry point: a typed C function, one of arrays of pointers and a resource for devices, a packed "
        "one, one call for each operator, or one for each row of an input as it arrives; default: c, and with --stream "
        "feed.",
        (*_SOURCES, "check"), field="conventions.interface",
    ),
    Option(
        "operators_api", OperatorsApi | None, None, _C,
        "How the operators are called: typed, or by wrappers; default: as the executor wants.",
        (*_SOURCES, "check"), field="conventions.operators",
    ),
    Option(
        "executor", Executor, "aot", _C,
        "The caller of the operators: C, the graph executor on the device, or the host.",
        (*_SOURCES, "check"), field="conventions.executor",
    ),
    Option(
        "stream", str, "", _C,
        "The input that is given by rows (docs/streamed-input.md); means --interface-api feed; default there: the "
        "only one.",
        (*_SOURCES, "check"), "INPUT",
    ),
    Option(
        "weights", Weights, "auto", _C,
        "Where large constants are written: to a .bin file that GCC and Clang include, or as C text.",
        (*_SOURCES, "check", "tune"),
    ),
    Option(
        "schedule", _TEXTS, None, _C, "Compute a node by this schedule (docs/schedules.md); may be repeated.",
        (*_SOURCES, "check", "tune", "module"), "NODE=SCHEDULE[:KNOB=VALUE,...]", field="schedules",
    ),
    Option(
        "tuned", _TEXTS, None, _C,
        "Take the fastest schedules that tuning logs know for this board and compiler (docs/tune.md); may be "
        "repeated; default: those of mtool.toml.",
        (*_SOURCES, "module"), "FILE|DIR",
    ),
    Option(
        "backend", _TEXTS, None, _C,
        "Let a backend, by its name or file, compute what it can (docs/backends.md); may be repeated, in order of "
        "preference.",
        (*_SOURCES, "check", "tune", "partition"), "NAME[:KEY=VALUE,...]", field="backends",
    ),
    Option(
        "tolerance", int, 0, _C, "By how many steps an integer of a backend may differ.",
        (*_SOURCES, "check", "tune", "partition"), limits=(0, 255),
    ),
    Option(
        "backend_fallback", bool, False, _C, "Leave to C what a backend fails to compile, with a warning.",
        (*_SOURCES, "check", "tune"),
    ),
    Option(
        "single_file", bool, False, _C,
        "One .c and one .h in place of the model's files and the runtime's that they have.", _SOURCES,
    ),
    Option(
        "portable", bool, False, _C,
        "On this computer, loops of plain C in place of vectors, as `mtool compile` writes.", _PROJECTS,
    ),
    Option(
        "protect", bool, False, _C,
        "While a model runs, let it have its own memory alone, by the core's memory protection "
        "(docs/protect.md); a wild write ends the model, and the firmware goes on.", _PROJECTS,
    ),
    Option(
        "template", str, "", _PROJECT, "A template; default: the board's first.",
        (*_PROJECTS, "check", "tune", "module"), "NAME|DIR", ("--template", "-t"),
    ),
    Option(
        "option", _TEXTS, None, _PROJECT, "An option of the template; may be repeated.",
        (*_PROJECTS, "check", "tune", "module"), "NAME=VALUE", field="template_options",
    ),
    Option(
        "trust_template", bool, False, _PROJECT, "Let a template of your own load Python code (SECURITY.md).",
        (*_PROJECTS, "check", "tune", "module"),
    ),
    Option(
        "modules", bool, False, _PROJECT, "The firmware takes models at run time, as modules (docs/modules.md).",
        ("project",),
    ),
    Option(
        "module_key", Path | None, None, _PROJECT,
        "With --modules: the public key of those who sign them (`mtool key`).", ("project",), "FILE",
    ),
    Option(
        "unsigned_modules", bool, False, _PROJECT,
        "With --modules: those that nobody has signed, too; for development.", ("project",),
    ),
    Option(
        "force", bool, False, _PROJECT, "Overwrite or remove files in the output folder that mtool did not write.",
        ("compile", "partition", "project"),
    ),
    Option(
        "keep", bool, False, _PROJECT, "Leave files in the output folder that you edited as they are.",
        ("compile", "partition", "project"),
    ),
    Option(
        "output_dir", Path | None, None, _PROJECT, "The project folder; default: build/<model>-<board>.",
        (*_RUNS, "trials"), "DIR", ("--output-dir", "-d"), field="folder",
    ),
    Option(
        "port", str, "", _BOARD,
        "The board's serial port, tcp://HOST:PORT or rtt:... (docs/transports.md); default: MTOOL_PORT, "
        "mtool.toml, the single match. emulator: the board's emulator.",
        (*_RUNS, "trials"), "DEVICE", ("--port", "-p"),
    ),
    Option(
        "probe", str, "", _BOARD,
        "The USB serial number of the board or its probe, or its beginning; default: MTOOL_PROBE.",
        (*_RUNS, "trials"), "SERIAL",
    ),
    Option(
        "timeout", float | None, None, _BOARD,
        "How long an inference may take; default: generously by its estimated instructions.",
        _RUNS, "SECONDS", field="timeout_s", limits=(LEAST_TIMEOUT_S, None),
    ),
    Option(
        "flash_command", str, "", _BOARD,
        "The command that flashes the board, in place of a flash tool: 'labtool write --to {port} {elf}'.",
        ("flash", "trials"), "COMMAND", field="flash",
    ),
    Option(
        "power", str, "", _BOARD,
        "The command that cycles the board's power when nothing else brings it back: 'uhubctl -a cycle -p 2'.",
        ("flash", "trials"), "COMMAND",
    ),
)  # fmt: skip

OPTIONS = {one.name: one for one in _TABLE}
"""Every option by its name, in the order of --help."""

DEFAULTS: dict[str, Any] = {one.name: one.default for one in _TABLE}
"""The value of each option where it is left out."""

OF_DEPLOYMENT = ("output_dir", "port", "probe", "timeout", "flash_command", "power")
"""The options that say where a project lies and which device runs it; all others say how it is compiled and built."""


def of_group(group: str) -> tuple[str, ...]:
    """Return the names of the options that a group has, in the order of --help."""
    return tuple(one.name for one in _TABLE if group in one.groups)
