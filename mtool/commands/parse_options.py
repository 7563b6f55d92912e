"""Parsing of the parameters that become a command's `Options`."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtool.base.errors import UsageError
from mtool.base.identifiers import model_name
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
from mtool.compiler.codegen import conventions
from mtool.compiler.plan.plan import section_fault
from mtool.stages.option_texts import (
    backends,
    constant_values,
    dimensions,
    first_values,
    largest_sizes,
    limits,
    logs,
    pools,
    schedule_choices,
    state_pairs,
    template_options,
)
from mtool.stages.options import Options

if TYPE_CHECKING:
    from mtool.stages.deployment import Deployment


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
            **template_options(option),
            **module_options(modules, module_key, unsigned=unsigned_modules),
        },
        conventions=conventions(_streamed(interface_api, stream), operators_api, executor, context=arena == "caller"),
        stream=stream,
        schedules=schedule_choices(schedule),
        weights=weights,
        edits="force" if force else "keep" if keep else "stop",
        trust_template=trust_template,
        tuned=logs(tuned),
        backends=backends(backend),
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
    from mtool.manifest.modules.keys import read_public
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
    from mtool.stages.deployment import Deployment  # the device half, which a compile does not load

    return Deployment(output_dir, port, probe, flash_command, power, timeout)
