"""Parsing of the parameters that become a command's `Options`."""

import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mtool.backends.spec import parse
from mtool.codegen import conventions
from mtool.errors import UsageError
from mtool.identifiers import model_name
from mtool.ir.types import Array
from mtool.option_values import (
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
from mtool.plan import Choice
from mtool.plan.pool import section_fault
from mtool.workflow.arrays import read
from mtool.workflow.options import Options
from mtool.workflow.pool_options import pools

if TYPE_CHECKING:
    from mtool.workflow.deployment import Deployment

_DIGITS = 18  # of a size; more are no int64


def options(
    *,
    name: Sequence[str] | None = None,
    arena: Arenas = "shared",
    arena_section: str = "",
    pool: Sequence[str] | None = None,
    io: Io = "arena",
    partial: Partial = "auto",
    optimize: Optimize = "balanced",
    dim: Sequence[str] | None = None,
    const: Sequence[str] | None = None,
    rounding: Rounding = "onnx",
    hybrid: Hybrid = "auto",
    maxima: Sequence[str] | None = None,
    limit: Sequence[str] | None = None,
    state: Sequence[str] | None = None,
    interface_api: InterfaceApi | None = None,
    operators_api: OperatorsApi | None = None,
    executor: Executor = "aot",
    stream: str = "",
    weights: Weights = "auto",
    schedule: Sequence[str] | None = None,
    tuned: Sequence[str] | None = None,
    backend: Sequence[str] | None = None,
    tolerance: int = 0,
    backend_fallback: bool = False,
    portable: bool = False,
    protect: bool = False,
    single_file: bool = False,
    template: str = "",
    option: Sequence[str] | None = None,
    force: bool = False,
    keep: bool = False,
    trust_template: bool = False,
    modules: bool = False,
    module_key: Path | None = None,
    unsigned_modules: bool = False,
) -> Options:
    """Return how to compile, from what was given on the command line.

    Raises:
        UsageError: a pair is not NAME=VALUE or OUT:IN, a size is not a positive number, a schedule is not written as
            it should be, or the conventions do not go together.
    """
    if force and keep:
        raise UsageError("--force and --keep do not go together")
    if name and len(name) > 1:
        raise UsageError(f"--name stands {len(name)} times", hint="once for each model")
    if name and model_name(name[0]) != name[0]:
        raise UsageError(f"--name {name[0]}: no name in C", hint=f"for instance: --name {model_name(name[0])}")
    return Options(
        name=name[0] if name else "",
        arenas=arena,
        arena_section=_section(arena_section, arena),
        pools=pools(pool),
        io=io,
        partial=partial,
        optimize=optimize,
        dims=dimensions(dim),
        constants=constant_values(const),
        rounding=rounding,
        hybrid=hybrid,
        maxima=largest_sizes(maxima),
        limits=limits(limit),
        states=state_pairs(state),
        state_values=first_values(state),
        template=template,
        template_options={
            **_pairs(option, "--option", "opt=-O3"),
            **module_options(modules, module_key, unsigned=unsigned_modules),
        },
        conventions=conventions(_streamed(interface_api, stream), operators_api, executor, context=arena == "caller"),
        stream=stream,
        schedules=schedule_choices(schedule),
        weights=weights,
        edits="force" if force else "keep" if keep else "stop",
        trust_template=trust_template,
        tuned=logs(tuned),
        backends=tuple(map(parse, backend or ())),
        tolerance=tolerance,
        backend_fallback=backend_fallback,
        portable=portable,
        protect=protect,
        single_file=single_file,
    )


def module_options(modules: bool, key: Path | None, *, unsigned: bool = False) -> dict[str, str]:
    """Return the options of a template for firmware that takes modules.

    Raises:
        UsageError: the key can't be read, or it or its absence does not go with the rest.
    """
    if not modules:
        if key is not None or unsigned:
            raise UsageError(
                f"{'--module-key' if key is not None else '--unsigned-modules'} is for firmware that takes modules",
                hint="give --modules too",
            )
        return {}
    from mtool.modules.keys import read_public
    from mtool.project import loaded_modules

    taken = {loaded_modules.MODULES: loaded_modules.UNSIGNED if unsigned else loaded_modules.SIGNED}
    if key is not None:
        taken[loaded_modules.KEY] = read_public(key).raw.hex()
    return taken


def _streamed(interface_api: InterfaceApi | None, stream: str) -> InterfaceApi:
    """Return the interface: by default "c", or "feed" where an input is given by rows.

    Raises:
        UsageError: another interface is asked for.
    """
    if stream and interface_api not in (None, "feed"):
        raise UsageError(
            f"--stream {stream} gives the model rows by <model>_feed, --interface-api {interface_api} has none",
            hint="leave --interface-api out",
        )
    return interface_api or ("feed" if stream else "c")


def _section(name: str, arena: Arenas) -> str:
    """Return the name of the arena's section.

    Raises:
        UsageError: no linker takes it, or puts it into flash, or the caller has the arena.
    """
    if fault := section_fault(name):
        raise UsageError(f"--arena-section {name!r}: {fault}", hint="for instance: --arena-section .bss.dtcm")
    if name and arena == "caller":
        raise UsageError("--arena-section is for an arena of the model's, and --arena caller leaves it to the caller")
    return name


def given(**values: Any) -> dict[str, Any]:
    """Return the values that differ from what `options` takes without them; they are read, to tell what is wrong.

    Raises:
        UsageError: as `options`.
    """
    options(**values)
    defaults = inspect.signature(options).parameters
    return {name: value for name, value in values.items() if value and value != defaults[name].default}


def deployment(
    *,
    output_dir: Path | None = None,
    port: str = "",
    probe: str = "",
    flash_command: str = "",
    power: str = "",
    timeout: float | None = None,
) -> "Deployment":
    """Return the project folder and the device, from what was given on the command line."""
    from mtool.workflow.deployment import Deployment  # the device half, which a compile does not load

    return Deployment(output_dir, port, probe, flash_command, power, timeout)


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
