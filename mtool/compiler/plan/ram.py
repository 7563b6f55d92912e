"""RAM for time: the operators whose constants lie in RAM, since the board's flash lets the core wait.

A weight is read again for every few pixels, and a flash without a large cache of data answers after several cycles each
time. Which operators is decided as in mtool.compiler.plan.flash: those that save most by the byte first.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from mtool.base.option_values import WEIGHTS, Optimize
from mtool.compiler.ir.control import Control
from mtool.compiler.kernels.external import External
from mtool.compiler.plan.flash import Offer, chosen_offers
from mtool.compiler.plan.function_knobs import RAM, built
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.pool import ConstantReads
from mtool.compiler.plan.step import Step

RESERVED_BYTES = 48 * 1024
"""RAM that is left to the stack, the framework and the application."""

BYTES_A_PRODUCT = 0.3
"""Which are read of the constants at least: a weight serves for some pixels at a time."""

HELD = 2
"""Times an operator's constants, that a cache has to have to hold them beside what else is read."""

_CYCLES = 1.4  # that an instruction of the kernels takes beside such a flash
_BYTES_A_PRODUCT_GROWN = 0.9  # where they were made larger for fewer products


@dataclass(frozen=True, slots=True)
class SlowFlash:
    """A board's memories, as far as constants are concerned.

    Attributes:
        waits: cycles that a read of the flash waits, at the board's clock.
        width: bytes of a read.
        cache_bytes: of the cache of data.
        ram_bytes: of the RAM that constants could lie in.
        has_arena: the arena lies there too.
        taken_bytes: what the framework takes of it.
    """

    waits: int
    width: int
    cache_bytes: int
    ram_bytes: int
    has_arena: bool
    taken_bytes: int = 0


def in_ram(plan: Plan, flash: SlowFlash, optimize: Optimize, asked: Collection[str]) -> frozenset[str]:
    """Return the operators whose constants should lie in RAM, by name.

    Args:
        plan: the plan.
        flash: the board's memories.
        optimize: what memory is spent on.
        asked: operators whose schedule somebody has asked for: they stay as they are.
    """
    found, sizes = constant_reads(plan, flash, asked), dict[str, int]()
    if not found:
        return frozenset()
    for step in plan.steps:
        if step.node.title not in sizes:
            sizes[step.node.title] = _constant_bytes(step, plan)
    total = plan.cost * _CYCLES + sum(one.cycles for one in found)
    offers = [Offer(one.operator, one.cycles / total, sizes[one.operator]) for one in found]
    room = flash.ram_bytes - RESERVED_BYTES - flash.taken_bytes - (plan.bytes_of_arena if flash.has_arena else 0)
    return chosen_offers(offers, optimize, flash.ram_bytes, room)


def constant_reads(plan: Plan, flash: SlowFlash, asked: Collection[str]) -> tuple[ConstantReads, ...]:
    """Return what the constants of operators cost in flash, of those that wait there; the arguments as of `in_ram`."""
    reads: dict[str, float] = {}
    is_slow = flash.waits and not plan.target.flash_is_apart
    waits = flash.waits / flash.width
    for step in plan.steps if is_slow else ():
        if isinstance(step.node.attrs, (Control, External)) or step.node.title in asked:
            continue
        size = _constant_bytes(step, plan)
        if size and HELD * size > flash.cache_bytes:
            reads[step.node.title] = reads.get(step.node.title, 0) + _bytes_read(step, plan, size)
    return tuple(ConstantReads(title, count, count * waits) for title, count in reads.items())


def all_reads(plan: Plan) -> tuple[ConstantReads, ...]:
    """Return what an inference reads of the constants of each operator, wherever they lie."""
    reads: dict[str, float] = {}
    for step in plan.steps:
        size = 0 if isinstance(step.node.attrs, (Control, External)) else _constant_bytes(step, plan)
        if size:
            reads[step.node.title] = reads.get(step.node.title, 0) + _bytes_read(step, plan, size)
    return tuple(ConstantReads(title, count, 0) for title, count in reads.items())


def with_constants_in_ram(plan: Plan, operators: Collection[str]) -> Plan:
    """Return a plan with the constants of operators in RAM."""
    settings: Mapping[str, str] = {WEIGHTS: RAM}
    steps = (
        replace(step, schedule=built(step.schedule, settings)) if step.node.title in operators else step
        for step in plan.steps
    )
    return replace(plan, steps=tuple(steps)) if operators else plan


def _constant_bytes(step: Step, plan: Plan) -> int:
    constants = plan.graph.constants
    own = sum(constants[value].nbytes for value in step.node.inputs if value in constants)
    return own + step.schedule.grown_bytes(step.node, plan.graph)


def _bytes_read(step: Step, plan: Plan, size: int) -> float:
    each = _BYTES_A_PRODUCT_GROWN if step.schedule.grown_bytes(step.node, plan.graph) else BYTES_A_PRODUCT
    return max(size, each * step.op.macs(step.node, plan.graph))
