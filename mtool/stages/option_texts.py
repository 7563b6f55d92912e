"""What the options of a model are as text, one by one: the command line's, and Python's where they are text there."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mtool.base import checked
from mtool.base.errors import UsageError
from mtool.base.option_values import InterfaceApi
from mtool.compiler.backends.spec import BackendSpec, parse
from mtool.compiler.codegen import conventions
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.ir.types import Array
from mtool.compiler.plan import Choice
from mtool.stages.arrays import read
from mtool.stages.pool_options import pools

__all__ = [
    "backends",
    "constant_values",
    "conventions_of",
    "dimensions",
    "first_values",
    "largest_sizes",
    "limits",
    "logs",
    "pools",
    "schedule_choices",
    "state_pairs",
    "template_options",
]

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
