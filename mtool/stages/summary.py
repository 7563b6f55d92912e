"""What is told of a model when it is compiled: its tensors, its size, its operators and its arena."""

import logging
import time
from pathlib import Path

from mtool.base.escaping import short_name
from mtool.manifest import Manifest, Protection
from mtool.stages import formatting
from mtool.stages.weight_overhead import warn_of_growth

log = logging.getLogger(__name__)


def tell(source: Path, described: Manifest, start: float, *, was_before: bool = False) -> None:
    """Log what was compiled: its tensors, its size, its operators and its arena."""
    inputs = ", ".join(formatting.tensor(tensor) for tensor in described.inputs if tensor.range is None)
    outputs = ", ".join(map(formatting.tensor, described.outputs))
    for limits in (tensor.range for tensor in described.sizes):
        if limits is not None:
            outputs += f"   {short_name(limits.dimension)} = {limits.least} to {limits.most} at run time"
    if described.states:
        kept = sum(state.bytes for state in described.states)
        outputs += f"   keeps {formatting.count(len(described.states), 'state')}, {kept:,} B"
    size = f"{formatting.amount(described.macs)} MACs, {formatting.amount(described.parameters)} parameters"
    log.info("%s   %s -> %s   %s", short_name(source.stem), inputs, outputs, size)
    functions = len({operator.function for operator in described.operators})
    operators = described.operators
    by_rows = {one.whole for one in operators if one.whole and not one.label.endswith(" rows")}  # keep rows, pad rows
    count = sum(1 for one in operators if not one.whole) + len(by_rows)
    some = f" ({len(by_rows)} by rows)" if by_rows else ""
    note = f"{formatting.count(count, 'operator')}{some} in {formatting.count(functions, 'function')}"
    arena = formatting.arena(described)
    cached = ", from the cache" if was_before else ""
    log.info("  %-9s %4.1f s   %s, %s%s", "compile", time.monotonic() - start, note, arena, cached)
    if described.protection is not None:
        log.info("  %-9s          %s", "protect", _areas(described.protection))
    warn_of_growth(described)


def _areas(protection: Protection) -> str:
    """Return the areas of a fence as text: what each takes, and in which granules."""
    areas = [
        f"{one.access}s {one.name} " + (f"{one.bytes:,} B " if one.bytes else "") + f"(granule {one.granule:,} B)"
        for one in protection.areas
    ]
    return f"{protection.unit}: {', '.join(areas)}"
