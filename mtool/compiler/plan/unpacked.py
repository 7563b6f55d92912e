"""Schedules whose constants are stored in few bits, and unpacked in working memory before each call."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mtool.base.option_values import PACKED, WEIGHTS
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.few_bits import Packing, bits_of, packing_of, range_of
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.schedule import Argument, Kernel, Knob, Schedule
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.function_knobs import KNOBS, Around, Built

MOST_BITS = 4


@dataclass(eq=False)
class Unpacking(Around):
    """A schedule that unpacks its largest constant into its scratch; all else is `inner`'s.

    Attributes:
        inner: the schedule.
        constant: the constant's name in the kernel.
        packing: how it is packed.
        scratch: the scratch of `inner`, rounded up.
    """

    inner: Schedule
    constant: str
    packing: Packing
    scratch: int
    weights: str = PACKED

    @classmethod
    def of(cls, schedule: Schedule, node: Node, graph: Graph, target: Target) -> "Unpacking | None":
        """Return a node's schedule with its weights packed; None: they have too many bits, or are too few."""
        limits = range_of(node, graph)
        if limits == (0, 0) or not bits_of(*limits):
            return None
        kernel = schedule.emit(node, graph, target)
        packings = {
            name: packing_of(data, *limits)
            for name, data in kernel.constants.items()
            if not kernel.layouts.get(name, "").startswith("aligned")
        }
        found = {name: packing for name, packing in packings.items() if packing is not None}
        if not found:
            return None
        name = max(found, key=lambda name: found[name].words - found[name].packed_words)
        return cls(schedule, name, found[name], round_up(schedule.scratch_bytes(node, graph), 4))

    def knobs(self) -> Mapping[str, Knob]:
        """The schedule's knobs, and that of its constants."""
        return {**self.inner.knobs(), WEIGHTS: KNOBS[WEIGHTS]}

    def grown_bytes(self, node: Node, graph: Graph) -> int:
        """The schedule's own, without what is saved."""
        return self.inner.grown_bytes(node, graph) - 4 * (self.packing.words - self.packing.packed_words)

    def constant_passes(self, node: Node, graph: Graph) -> int:
        """Once."""
        return 1

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The schedule's own, and the unpacked constant."""
        return self.scratch + 4 * self.packing.words

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The schedule's own, and unpacking."""
        return self.inner.cost(node, graph, target) + self.packing.instructions

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the schedule's C behind a call that unpacks the constant."""
        kernel, packing = self.inner.emit(node, graph, target), self.packing
        arguments, scratch = list[Argument](), "scratch"
        for one in kernel.arguments:
            if one.source == ("constant", self.constant):
                name, c_type = one.name, one.c_type
                one = Argument("packed", "uint32_t", one.source)
            scratch = one.name if one.source == "scratch" else scratch
            arguments.append(one)
        if not any(one.source == "scratch" for one in arguments):
            arguments.append(Argument("scratch", "uint32_t", "scratch"))
        place = f"(uint8_t *){scratch} + {self.scratch}" if self.scratch else scratch
        call = f"(const {c_type} *){packing.function}({place}, packed)"
        stored = packing.pack(kernel.constants[self.constant])
        layout = kernel.layouts.get(self.constant, "")
        note = f"packed: fields of {packing.bits} bits, unpacked at run time{f'; then {layout}' if layout else ''}"
        return replace(
            kernel,
            arguments=tuple(arguments),
            body=f"    const {c_type} *{name} = {call};\n{kernel.body}",
            constants={**kernel.constants, self.constant: stored},
            headers=(*kernel.headers, "mt_unpack.h"),
            layouts={**kernel.layouts, self.constant: note},
            shared=(*kernel.shared, packing.macro),
        )


def packed(schedule: Schedule, node: Node, graph: Graph, target: Target) -> Schedule | None:
    """Return a node's schedule with its weights of few bits packed; None: it can't be, or is already."""
    if is_packed(schedule):
        return None
    made: Any = schedule.in_few_bits(node, graph, target) or Unpacking.of(schedule, node, graph, target)
    found: Schedule | None = made
    return found


def is_packed(schedule: Schedule) -> bool:
    """Whether a schedule unpacks its constants."""
    inner = schedule.inner if isinstance(schedule, Built) else schedule
    return isinstance(inner, Unpacking) or bool(getattr(inner, "bits", 0))
