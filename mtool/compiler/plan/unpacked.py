"""Schedules whose constants are stored in few bits, and unpacked in working memory before each call."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mtool.base.option_values import PACKED, WEIGHTS
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.few_bits import Packed, bits_of, packed_powers, packed_stream, range_of
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.schedule import Argument, Kernel, Knob, Schedule
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.function_knobs import KNOBS, Around, Built

MOST_BITS = 4
_SOFT_PRODUCT = 60  # instructions of a product of floats without an FPU


@dataclass(eq=False)
class Unpacking(Around):
    """A schedule that unpacks its constants into its scratch; all else is `inner`'s.

    Attributes:
        inner: the schedule.
        constants: the packed ones, by their names in the kernel.
        scratch: the scratch of `inner`, rounded up.
    """

    inner: Schedule
    constants: Mapping[str, Packed]
    scratch: int
    weights: str = PACKED

    @classmethod
    def of(cls, schedule: Schedule, node: Node, graph: Graph, target: Target) -> "Unpacking | None":
        """Return a node's schedule with its constants packed; None: they have too many bits, or are too few."""
        limits = range_of(node, graph)
        has_few_bits = limits != (0, 0) and bool(bits_of(*limits))
        if not has_few_bits and node.op != "softmax":
            return None
        kernel, found = schedule.emit(node, graph, target), dict[str, Packed]()
        for name, data in kernel.constants.items():
            if not kernel.layouts.get(name, "").startswith("aligned"):
                made = packed_powers(data, 2 if target.has_float else _SOFT_PRODUCT)
                made = made or (packed_stream(data, *limits) if has_few_bits else None)
                found |= {name: made} if made else {}
        return cls(schedule, found, round_up(schedule.scratch_bytes(node, graph), 4)) if found else None

    def knobs(self) -> Mapping[str, Knob]:
        """The schedule's knobs, and that of its constants."""
        return {**self.inner.knobs(), WEIGHTS: KNOBS[WEIGHTS]}

    def grown_bytes(self, node: Node, graph: Graph) -> int:
        """The schedule's own, without what is saved."""
        return self.inner.grown_bytes(node, graph) - sum(one.saved_bytes for one in self.constants.values())

    def constant_passes(self, node: Node, graph: Graph) -> int:
        """Once."""
        return 1

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The schedule's own, and the unpacked constants."""
        return self.scratch + sum(4 * one.words for one in self.constants.values())

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The schedule's own, and unpacking."""
        return self.inner.cost(node, graph, target) + sum(one.instructions for one in self.constants.values())

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the schedule's C behind calls that unpack the constants."""
        kernel = self.inner.emit(node, graph, target)
        arguments, calls, layouts, place = list[Argument](), list[str](), dict(kernel.layouts), self.scratch
        scratch = next((one.name for one in kernel.arguments if one.source == "scratch"), "scratch")
        for one in kernel.arguments:
            packed = self.constants.get(str(one.source[1])) if one.source[0] == "constant" else None
            if packed is not None:
                stored = f"packed_{one.name}"
                at = f"(uint8_t *){scratch} + {place}" if place else scratch
                calls.append(f"    const {one.c_type} *{one.name} = (const {one.c_type} *)({at});\n")
                calls.append(f"    {packed.function}({at}, {stored});\n")
                place += 4 * packed.words
                layout = layouts.get(str(one.source[1]), "")
                layouts[str(one.source[1])] = f"packed, unpacked at run time{f'; then {layout}' if layout else ''}"
                one = Argument(stored, "uint32_t", one.source)
            arguments.append(one)
        if not any(one.source == "scratch" for one in arguments):
            arguments.append(Argument("scratch", "uint32_t", "scratch"))
        return replace(
            kernel,
            arguments=tuple(arguments),
            body="".join(calls) + kernel.body,
            constants={**kernel.constants, **{name: packed.data for name, packed in self.constants.items()}},
            headers=(*kernel.headers, "mt_unpack.h"),
            layouts=layouts,
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
