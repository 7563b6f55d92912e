"""What each operator of a model takes, and what has grown since that was recorded."""

from collections.abc import Iterator, Mapping
from typing import Any

from mtool.commands.cost import Cost
from mtool.device.build import measure
from mtool.device.build.stack import firmware as stack
from mtool.device.session import Device
from mtool.manifest import Operator
from mtool.stages.building import BuiltProject
from mtool.stages.samples import Sample

Parts = Mapping[str, Mapping[str, float]]
"""The figures of each operator and library function: instructions, code_bytes and others."""

REST = "everything else"
_OF_LIMITS = {
    "instructions": ("instructions",),
    "time_us": ("time_us",),
    "flash_bytes": ("code_bytes", "constant_bytes"),
    "ram_bytes": ("arena_bytes", "stack_bytes"),
    "stack_bytes": ("stack_bytes",),
}
_LIBRARY = "mt_"  # the runtime's functions, which operators share
_MOST = 5  # lines of a figure


def parts_of(prepared: BuiltProject, device: Device, sample: Sample, cost: Cost) -> dict[str, dict[str, float]]:
    """Return each operator's figures; functions that operators share are listed by their own names.

    Args:
        prepared: the built model.
        device: the device that runs it.
        sample: the inputs.
        cost: the cost of the whole model.
    """
    manifest, elf = prepared.manifest, prepared.plain_firmware
    parts: dict[str, dict[str, float]] = {}
    names = {operator.index: _name(operator) for operator in manifest.operators}
    unit, factor = ("instructions", 1.0) if cost.instructions is not None else ("time_us", 1e-3)
    total = cost.instructions if cost.instructions is not None else cost.time_ns
    profile = device.profile(sample, repeat=1)
    for row in profile.operators:
        _add(parts, names[row.index], unit, row.median * factor)
    if total is not None:
        _add(parts, REST, unit, max(total - profile.total, 0.0) * factor)
    functions = {} if elf is None else dict(measure(elf, manifest).functions)
    bounds = {} if elf is None else stack.bounds(elf, manifest, [operator.function for operator in manifest.operators])
    for op in manifest.operators:
        tensors = [operand for operand in (*op.reads, *op.writes) if operand.memory == "arena"]
        _add(parts, names[op.index], "code_bytes", functions.pop(op.function, 0))
        _add(parts, names[op.index], "constant_bytes", op.constant_bytes)
        _add(parts, names[op.index], "arena_bytes", sum(operand.bytes for operand in tensors) + op.scratch_bytes)
        _add(parts, names[op.index], "stack_bytes", bounds[op.function].bytes or 0 if op.function in bounds else 0)
    for function, count in functions.items():
        is_own = function.startswith((_LIBRARY, f"{manifest.model}_"))
        _add(parts, function.partition(".")[0] if is_own else REST, "code_bytes", count)
    return parts


def _name(operator: Operator) -> str:
    """Return a name that stays when operators before it are added: the first of the model's nodes."""
    return f"{operator.origins[0]} ({operator.label})" if operator.origins else operator.name


def _add(parts: dict[str, dict[str, float]], name: str, figure: str, value: float) -> None:
    figures = parts.setdefault(name, {})
    figures[figure] = figures.get(figure, 0) + round(value, 1)


def grown(limit: str, before: Parts, now: Parts) -> Iterator[str]:
    """Yield lines with what has grown most in a figure of limits.toml.

    Args:
        limit: its name there.
        before: what was recorded.
        now: what is measured.
    """
    for figure in _OF_LIMITS.get(limit, ()):
        rows = [(name, before.get(name, {}).get(figure, 0), after.get(figure, 0)) for name, after in now.items()]
        more = sorted((row for row in rows if row[2] > row[1] + 1), key=lambda row: row[1] - row[2])
        if figure == "arena_bytes" and more:  # the arena is as large as its largest step
            more = [row for row in more if row[2] > max((old.get(figure, 0) for old in before.values()), default=0)]
        for name, old, new in more[:_MOST]:
            was = f"was {old:,.0f}" if name in before else "new"
            yield f"  {figure:<15} {name}: {new:,.0f}, {was}"
        if len(more) > _MOST:
            yield f"  {figure:<15} and {len(more) - _MOST} more"


def is_parts(value: Any) -> bool:
    """Return whether a value read from a file is the figures of operators."""
    return isinstance(value, dict) and all(
        isinstance(figures, dict) and all(isinstance(value, int | float) for value in figures.values())
        for figures in value.values()
    )
