"""The options of a model, what they mean for a board, and what is wrong with them whatever the model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mtool.base import checked, filetree
from mtool.base.errors import UsageError
from mtool.base.filetree import Edits
from mtool.base.identifiers import model_name
from mtool.base.option_table import DEFAULTS
from mtool.base.option_values import Arenas, InterfaceApi, Weights
from mtool.boards import Board
from mtool.compiler.backends.spec import BackendSpec, parse
from mtool.compiler.codegen import conventions
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.ir.types import Array
from mtool.compiler.plan import Choice
from mtool.compiler.plan.pool import section_fault
from mtool.compiler.request import Request
from mtool.compiler.tuned.known import Known
from mtool.stages.arrays import read
from mtool.stages.pool_options import pools
from mtool.stages.tuned import known_for

if TYPE_CHECKING:
    from mtool.project import Program

_DIGITS = 18  # of a size; more are no int64


def template_options(texts: Sequence[str] | None) -> dict[str, str]:
    """Return options of a template, from NAME=VALUE.

    Raises:
        UsageError: one is not written so, or a name stands twice.
    """
    return _pairs(texts, "--option", "opt=-O3")


def backends(texts: Sequence[str] | None) -> tuple[BackendSpec, ...]:
    """Return the backends that texts ask for.

    Raises:
        UsageError: one is malformed.
    """
    return tuple(map(parse, texts or ()))


def conventions_of(texts: Sequence[str]) -> Conventions:
    """Return the conventions of an interface, by its name.

    Raises:
        UsageError: there is no such interface.
    """
    return conventions(checked.value_of("conventions", texts[0] if len(texts) == 1 else texts, InterfaceApi))


def logs(paths: Sequence[str] | None) -> tuple[Path, ...]:
    """Return the paths of tuning logs.

    Raises:
        UsageError: one is empty.
    """
    if paths and not all(paths):
        raise UsageError("--tuned is empty", hint="give a tuning log, or a folder of them: --tuned tuning.jsonl")
    return tuple(map(Path, paths or ()))


def constant_values(constants: Sequence[str] | None) -> dict[str, Array]:
    """Return the values of inputs that become constants, from NAME=VALUE.

    Raises:
        UsageError: a value is neither a number, a JSON list of numbers, nor a .npy file.
    """
    return {
        name: _numbers(f"{name}={value}", value, "--const", "axes=[1]")
        for name, value in _pairs(constants, "--const", "axes=[1]").items()
    }


def _numbers(text: str, value: str, option: str, example: str) -> Array:
    """Return an array from a number, a JSON list of numbers or a .npy file.

    Raises:
        UsageError: it is none of these, or the file is missing or no array.
    """
    try:
        if value.endswith(".npy"):
            (array,) = read(Path(value)).values()
        else:
            array = np.asarray(json.loads(value))
    except (ValueError, MemoryError, RecursionError):
        array = np.asarray("")
    if array.dtype.kind not in "biuf":
        raise UsageError(
            f"{option} {text}: {value!r} is not a number, a list of numbers or a .npy file",
            hint=f"for instance: {option} {example}",
        )
    return array


def state_pairs(states: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """Return pairs of an output and an input, from OUT:IN or OUT:IN=VALUE.

    Where names have colons too, the middle one counts.

    Raises:
        UsageError: one is not OUT:IN.
    """
    pairs = []
    for text in states or ():
        parts = text.partition("=")[0].split(":")
        half = len(parts) // 2
        output, value = ":".join(parts[:half]), ":".join(parts[half:])
        if len(parts) % 2 or not output or not value:
            raise UsageError(
                f"--state {text}: that is not OUT:IN or OUT:IN=VALUE",
                hint="an output, the input that it feeds, and what that begins as: --state hn:h0, --state hn:h0=1.5",
            )
        pairs.append((output, value))
    return tuple(pairs)


def first_values(states: Sequence[str] | None) -> dict[str, Array]:
    """Return the values that states begin with, from those that are OUT:IN=VALUE; by the input.

    Raises:
        UsageError: a value is neither a number, a JSON list of numbers, nor a .npy file.
    """
    values = {}
    for text, (_, name) in zip(states or (), state_pairs(states), strict=True):
        _, equals, value = text.partition("=")
        if equals:
            values[name] = _numbers(text, value, "--state", "hn:h0=[0.5,0.25]")
    return values


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
    for name, value in _pairs(texts, option, example).items():
        number = int(value) if value.isdecimal() and len(value) <= _DIGITS else 0
        if number < 1:
            raise UsageError(
                f"{option} {name}={value}: {value!r} is not a number of at least 1",
                hint=f"for instance: {option} {example}",
            )
        values[name] = number
    return values


def _pairs(texts: Sequence[str] | None, option: str, example: str) -> dict[str, str]:
    """Return values by name, from NAME=VALUE.

    Raises:
        UsageError: one is not written so, or a name stands twice.
    """
    values: dict[str, str] = {}
    for text in texts or ():
        name, value = _pair(text, option, example)
        if name in values:
            raise UsageError(f"{option} {name} is given twice", details=[f"as {values[name]!r} and as {value!r}"])
        values[name] = value
    return values


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"{option} {text}: that is not NAME=VALUE", hint=f"for instance: {option} {example}")
    return name, value


READERS: Mapping[str, checked.Reader] = {
    "dims": dimensions,
    "constants": constant_values,
    "maxima": largest_sizes,
    "limits": limits,
    "states": state_pairs,
    "state_values": constant_values,
    "schedules": schedule_choices,
    "pools": pools,
    "backends": backends,
    "conventions": conventions_of,
    "template_options": template_options,
    "tuned": logs,
}
_MOST_STEPS = 255


@dataclass(frozen=True, slots=True)
class Options(Request):
    """The options of a model, of its compilation and of its project.

    What a command takes as text may be text here too, one or a sequence: dims="batch=1", states="hn:h0=0.5",
    schedules={"pw_2": "dsp_pointwise:unroll=16"}, pools=["dtcm=48KiB"], backends="cmsis_nn:path=DIR",
    conventions="packed" (the interface).

    template: a template's name or folder; empty: the board's first.
    template_options: values of the template's options, as text.
    edits: what to do about files in the project folder that are not as mtool wrote them: "stop", "force" overwrites
        them, "keep" leaves them.
    trust_template: a template that is named by its path may load Python code (`_extensions`).
    tuned: tuning logs, or folders of them, to take schedules from; none: those of mtool.toml.
    program: a user's own program, which is built as the standalone firmware; None: the template's.
    arenas: of the models of a firmware, if there are several.
    portable: on this computer, loops of plain C as other cores get them, and no vectors: to be read, or compiled
        elsewhere.
    single_file: the model's C is one source and one header.
    """

    template: str = DEFAULTS["template"]
    template_options: Mapping[str, str] = field(default_factory=dict)
    edits: Edits = "stop"
    trust_template: bool = DEFAULTS["trust_template"]
    tuned: tuple[Path, ...] = ()
    program: "Program | None" = None
    arenas: Arenas = DEFAULTS["arena"]
    portable: bool = DEFAULTS["portable"]
    single_file: bool = DEFAULTS["single_file"]

    def __post_init__(self) -> None:
        """Check the values, and read those that are text.

        Raises:
            UsageError: one is of another type, or none of those that there are.
        """
        states = checked.texts_of(self.states)
        checked.fields(self, READERS)
        if states:
            own = first_values(states)
            object.__setattr__(self, "state_values", {**own, **self.state_values})
        if self.program is not None:
            from mtool.project import Program

            checked.value_of("Options.program", self.program, Program)
        if self.name and model_name(self.name) != self.name:
            raise UsageError(f"name {self.name!r}: no name in C", hint=f"for instance: {model_name(self.name)}")
        if fault := section_fault(self.arena_section):
            raise UsageError(f"arena_section {self.arena_section!r}: {fault}", hint="for instance: .bss.dtcm")
        if not 0 <= self.tolerance <= _MOST_STEPS:
            raise UsageError(f"tolerance is {self.tolerance}", details=[f"expected 0 to {_MOST_STEPS}"])
        Request.__post_init__(self)

    def core_of(self, board: Board) -> Board:
        """Return the board as the compile half is to see it: without vectors, if the C has to be portable."""
        return board.model_copy(update={"features": board.features - {"simd"}}) if self.portable else board


def check_options(board: Board, options: Options, folder: Path | None = None) -> None:
    """Say now what is wrong whatever the model: a project's template, the options of that, its folder, schedules.

    Raises:
        UsageError: the template, an option of it or a schedule is unknown, or the folder holds something else or can't
            be written to.
    """
    from mtool import project
    from mtool.compiler.plan.choice import check_schedules

    if options.template or board.templates:
        template, _ = project.choose(board, options.template, options.template_options)
        if options.protect:
            project.check_fence(template, board)
    if options.protect and options.arena_section:
        raise UsageError(
            "--arena-section is for a linker script of yours, and --protect for that of mtool's templates",
            hint="leave one of them out",
        )
    if options.schedules:
        check_schedules(options.schedules)
    if folder is not None:
        filetree.check_folder(folder, edits=options.edits)


def known_of(board: Board, options: Options, *, tells: bool = True) -> Known:
    """Return what tuning has found: what the options know already, else what their logs do, or those of mtool.toml.

    `tells`: that the logs know nothing for the board is told.

    Raises:
        UsageError: a log is missing or malformed.
        BuildError: there are logs, and the compiler that they are looked up for is not installed.
    """
    if options.known != Known():
        return options.known
    return known_for(board, options.tuned, options.template, options.template_options, tells=tells)


def weights_of(board: Board, options: Options) -> Weights:
    """Return how constants are written: as text where the project's builder compiles C and C++ alone, as Arduino's."""
    from mtool import project

    template = options.template or next(iter(board.templates), "")
    return "text" if template and project.load(template).builder == "arduino" else options.weights
