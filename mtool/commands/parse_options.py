"""Parsing of the parameters that become a command's `Options`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtool.base.errors import UsageError
from mtool.base.identifiers import model_name
from mtool.base.option_table import DEFAULTS, OF_DEPLOYMENT, OPTIONS
from mtool.base.option_values import Arenas, InterfaceApi
from mtool.compiler.codegen import conventions
from mtool.compiler.plan.pool import section_fault
from mtool.stages.options import (
    READERS,
    Options,
    first_values,
)

if TYPE_CHECKING:
    from mtool.stages.deployment import Deployment


def options(**values: Any) -> Options:
    """Return how to compile, from the values of options by their names in the table, as the command line has them.

    What is left out has its default.

    Raises:
        UsageError: a pair is not NAME=VALUE or OUT:IN, a size is not a positive number, a schedule is not written as
            it should be, or the conventions do not go together.
    """
    given = {**{name: value for name, value in DEFAULTS.items() if name not in OF_DEPLOYMENT}, **values}
    names, arena, key = given.pop("name"), given["arena"], given.pop("module_key")
    force, keep = given.pop("force"), given.pop("keep")
    if force and keep:
        raise UsageError("--force and --keep do not go together")
    if names and len(names) > 1:
        raise UsageError(f"--name stands {len(names)} times", hint="once for each model")
    if names and model_name(names[0]) != names[0]:
        raise UsageError(f"--name {names[0]}: no name in C", hint=f"for instance: --name {model_name(names[0])}")
    given["arena_section"] = _section(given["arena_section"], arena)
    interface = _streamed(given.pop("interface_api"), given["stream"])
    operators, executor = given.pop("operators_api"), given.pop("executor")
    first = first_values(given["state"])
    modules = module_options(given.pop("modules"), key, unsigned=given.pop("unsigned_modules"))
    fields = {OPTIONS[name].python_name: value for name, value in given.items()}
    fields |= {name: READERS[name](value) for name, value in fields.items() if name in READERS}
    fields["template_options"] |= modules
    return Options(
        **fields,
        name=names[0] if names else "",
        state_values=first,
        conventions=conventions(interface, operators, executor, context=arena == "caller"),
        edits="force" if force else "keep" if keep else "stop",
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
    """Return the values that differ from their defaults; they are read, to tell what is wrong.

    Raises:
        UsageError: as `options`.
    """
    options(**values)
    return {name: value for name, value in values.items() if value and value != DEFAULTS[name]}


def deployment(**values: Any) -> "Deployment":
    """Return the project folder and the device, from the values of options by their names in the table."""
    from mtool.stages.deployment import Deployment  # the device half, which a compile does not load

    return Deployment(**{OPTIONS[name].python_name: value for name, value in values.items()})
