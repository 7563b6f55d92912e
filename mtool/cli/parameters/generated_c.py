"""Options of the generated C: its interface, its memory, its schedules and backends."""

import functools
from typing import Annotated

import typer

from mtool.base.option_values import Arenas, Executor, InterfaceApi, Io, OperatorsApi, Optimize, Partial, Weights

_option = functools.partial(typer.Option, rich_help_panel="The generated C")

InputsAndOutputs = Annotated[
    Io,
    _option("--io", help="Where inputs and outputs lie: in the arena, or in memory of the caller."),
]
PartialExecution = Annotated[
    Partial,
    _option(
        "--partial",
        help="Compute operators a few rows at a time for a smaller arena: where it costs little, never, or always.",
    ),
]
ArenasOfModels = Annotated[
    Arenas,
    _option(
        "--arena",
        help="With several models: one arena, as one of them runs at a time; one in which each may run between two "
        "operators of those named after it; or one for each. caller: memory that is passed with each call.",
    ),
]
OptimizeFor = Annotated[
    Optimize,
    _option(
        "--optimize",
        help="What the board's memory is spent on, larger constants and constants in RAM beside a slow flash: where "
        "that saves time enough, wherever there is room, or nothing.",
    ),
]
ArenaSection = Annotated[
    str,
    _option(
        "--arena-section",
        metavar="NAME",
        help="The section that the arena lies in, for a linker script of yours.",
        show_default=False,
    ),
]
Pools = Annotated[
    list[str] | None,
    _option(
        "--pool",
        metavar="NAME[=BYTES][,KEY=VALUE...]",
        help="A memory that tensors or constants may lie in, by the board's name of it (docs/memories.md), of which "
        "so many bytes; for=tensors, weights or constants, waits=CYCLES, align=BYTES, section=NAME; may be repeated.",
        show_default=False,
    ),
]
Interface = Annotated[
    InterfaceApi | None,
    _option(
        "--interface-api",
        help="The entry point: a typed C function, one of arrays of pointers and a resource for devices, a packed "
        "one, one call for each operator, or one for each row of an input as it arrives; default: c, and with --stream "
        "feed.",
        show_default=False,
    ),
]
StreamedInput = Annotated[
    str,
    _option(
        "--stream",
        metavar="INPUT",
        help="The input that is given by rows (docs/streamed-input.md); means --interface-api feed; default there: the "
        "only one.",
        show_default=False,
    ),
]
Operators = Annotated[
    OperatorsApi | None,
    _option(
        "--operators-api",
        help="How the operators are called: typed, or by wrappers; default: as the executor wants.",
        show_default=False,
    ),
]
ExecutorName = Annotated[
    Executor,
    _option("--executor", help="The caller of the operators: C, the graph executor on the device, or the host."),
]
WeightsAs = Annotated[
    Weights,
    _option(
        "--weights", help="Where large constants are written: to a .bin file that GCC and Clang include, or as C text."
    ),
]
Schedules = Annotated[
    list[str] | None,
    _option(
        "--schedule",
        metavar="NODE=SCHEDULE[:KNOB=VALUE,...]",
        help="Compute a node by this schedule (docs/schedules.md); may be repeated.",
        show_default=False,
    ),
]
TunedLogs = Annotated[
    list[str] | None,
    _option(
        "--tuned",
        metavar="FILE|DIR",
        help="Take the fastest schedules that tuning logs know for this board and compiler (docs/tune.md); may be "
        "repeated; default: those of mtool.toml.",
        show_default=False,
    ),
]
Backends = Annotated[
    list[str] | None,
    _option(
        "--backend",
        metavar="NAME[:KEY=VALUE,...]",
        help="Let a backend, by its name or file, compute what it can (docs/backends.md); may be repeated, in order of "
        "preference.",
        show_default=False,
    ),
]
Steps = Annotated[
    int,
    _option("--tolerance", min=0, max=255, help="By how many steps an integer of a backend may differ."),
]
Fallback = Annotated[
    bool, _option("--backend-fallback", help="Leave to C what a backend fails to compile, with a warning.")
]
SingleFile = Annotated[
    bool,
    _option("--single-file", help="One .c and one .h in place of the model's files and the runtime's that they have."),
]
Portable = Annotated[
    bool,
    _option("--portable", help="On this computer, loops of plain C in place of vectors, as `mtool compile` writes."),
]
Protect = Annotated[
    bool,
    _option(
        "--protect",
        help="While a model runs, let it have its own memory alone, by the core's memory protection "
        "(docs/protect.md); a wild write ends the model, and the firmware goes on.",
    ),
]
