"""Schedules of operators that depend on run-time sizes: any schedule whose C at several sizes is of one structure.

The C is written for the sizes of the graph's samples and joined (mtool.kernels.joined_text). A schedule that writes
other C for other sizes, such as one that is unrolled by a size, can't be joined, and the next one is taken.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mtool import ops
from mtool.errors import ModelError
from mtool.escaping import argument
from mtool.formulas import Point
from mtool.ir import Graph, Node
from mtool.ir.joined import DifferError, Joiner
from mtool.ir.types import Array
from mtool.kernels.joined_remainders import PERIODS, joined_remainders
from mtool.kernels.joined_text import PREFIX, JoinedText, joined_text, without_hints
from mtool.kernels.knobs import Knob
from mtool.kernels.schedule import Argument, BaseSchedule, Kernel, KernelOp, Schedule
from mtool.kernels.target import Target
from mtool.plan.choice import Choice, chosen
from mtool.plan.step import Step


@dataclass(eq=False)
class SizedSchedule(BaseSchedule):
    """A schedule and the C that it has at any sizes. `places` are the inputs that may be overwritten at all of them."""

    inner: Schedule
    kernel: Kernel
    plain: Node
    scratch: int
    places: tuple[int, ...]

    name: str = ""

    def __getattr__(self, name: str) -> Any:
        """Return a knob of the schedule."""
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """The node that it was made for."""
        return True

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """As much as at the largest sizes."""
        return self.scratch

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """What the schedule overwrites at all sizes."""
        return self.places

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """That at the largest sizes."""
        return self.inner.cost(self.plain, graph, target)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the C, which was written when it was chosen."""
        return self.kernel

    def knobs(self) -> Mapping[str, Knob]:
        """Those of the schedule."""
        return self.inner.knobs()


def sized_step(node: Node, graph: Graph, target: Target, choice: Choice | None = None) -> Step:
    """Return the step of a node that depends on run-time sizes: the cheapest schedule that follows them.

    Raises:
        UsageError: the schedule that is asked for is not there, or can't compute the node.
        ModelError: no schedule follows the sizes.
    """
    op = ops.KERNELS[node.op]
    plain = replace(node, inputs=node.inputs[: len(node.inputs) - len(graph.sizes)])
    if choice is not None:
        schedules: Sequence[Schedule] = [chosen(choice, op, plain, graph, target)]
    else:
        fitting = [schedule for schedule in op.schedules if schedule.supports(plain, graph, target)]
        schedules = sorted(fitting, key=lambda schedule: schedule.cost(plain, graph, target))
    reasons = []
    for schedule in schedules:
        for one in (schedule, *_turned(schedule, plain, graph, target)):
            try:
                made = _sized(one, plain, graph, target)
            except DifferError as found:
                reasons += [f"{schedule.name}: {found}"] if one is schedule else []
            else:
                return Step(node, _of_plain(op, plain), made, made.scratch)
    names = ", ".join(size.name for size in graph.sizes)
    raise ModelError(
        f"{op.label(plain, graph)} can't follow sizes known at run time ({names})",
        details=[f"operator {', '.join(node.origins[:3]) or node.name}", *reasons],
        hint="give such a dimension a size: " + " ".join(f"--dim {argument(size.name)}=N" for size in graph.sizes),
    )


def _turned(schedule: Schedule, plain: Node, graph: Graph, target: Target) -> Sequence[Schedule]:
    """Return a schedule with one of its knobs set, which it sets by the size otherwise; the cheapest first."""
    found: list[Schedule] = []
    for name, knob in schedule.knobs().items():
        if getattr(schedule, name) == knob.default:
            values = [value for value in knob.values if value != knob.default]
            found += [replace(schedule, **{name: value}) for value in values]  # type: ignore[type-var]
    able = [one for one in found if one.supports(plain, graph, target)]
    return sorted(able, key=lambda one: one.cost(plain, graph, target))


def _of_plain(op: KernelOp, plain: Node) -> KernelOp:
    """Return the operator, asked about the node as it is without the sizes."""
    return replace(op, label=lambda node, graph: op.label(plain, graph), macs=lambda node, graph: op.macs(plain, graph))


def _sized(schedule: Schedule, plain: Node, graph: Graph, target: Target) -> SizedSchedule:
    points = tuple(point for point, _ in graph.samples)
    at = [(next(one for one in sample.nodes if one.name == plain.name), sample) for _, sample in graph.samples]
    for (node, sample), point in zip(at, points, strict=True):
        if not schedule.supports(node, sample, target):
            raise DifferError(f"it does not take {', '.join(map(str, point))}")
    kernels = [schedule.emit(node, sample, target) for node, sample in at]
    kernel = joined_kernel(
        kernels, Joiner(tuple(size.symbol for size in graph.sizes), points), graph, len(plain.inputs)
    )
    top = points[0]
    scratch = [
        schedule.scratch_bytes(node, sample)
        for (node, sample), point in zip(at, points, strict=True)
        if all(size <= most for size, most in zip(point, top, strict=True))
    ]
    places = [schedule.in_place(node, sample) for node, sample in at]
    everywhere = tuple(place for place in places[0] if all(place in other for other in places))
    return SizedSchedule(schedule, kernel, plain, max(scratch), everywhere, schedule.name)


def joined_kernel(kernels: Sequence[Kernel], joiner: Joiner, graph: Graph, inputs: int) -> Kernel:
    """Return the kernel at any sizes; the first is that of the largest. The sizes are inputs from number `inputs` on.

    Raises:
        DifferError: they are not of one structure.
    """
    first = kernels[0]
    if any(kernel.arguments != first.arguments for kernel in kernels):
        raise DifferError("it has other parameters at other sizes")
    joined = _joined_body(joiner, [kernel.body for kernel in kernels], graph.fixed_sizes)
    constants = {name: _joined_table(name, [kernel.constants[name] for kernel in kernels]) for name in first.constants}
    arguments, lines = list(first.arguments), []
    for number, size in enumerate(graph.sizes):
        if size.symbol in joined.symbols:
            arguments.append(Argument(f"in_{size.symbol}", "int32_t", ("input", inputs + number)))
            lines.append(f"    const int32_t {PREFIX}{size.symbol} = *in_{size.symbol};\n")
    return Kernel(
        tuple(arguments),
        "".join(lines) + joined.text,
        constants,
        any(kernel.needs_math for kernel in kernels),
        tuple(dict.fromkeys(header for kernel in kernels for header in kernel.headers)),
        first.layouts,
    )


def _joined_body(joiner: Joiner, bodies: Sequence[str], taken: Collection[int]) -> JoinedText:
    """Return the body at any sizes: of one structure, or of one for each remainder of a size.

    Sizes that are those of other dimensions too may have a simpler form, so they are left out if there are enough
    others.
    """
    top, plain = joiner.points[0], without_hints(bodies)
    others = [n for n, point in enumerate(joiner.points) if n and not any(size in taken for size in point)]
    chosen = [list(range(len(plain)))]
    if _cover([joiner.points[n] for n in others], len(joiner.names)):
        chosen.append(others)
    reasons = []
    for numbers in chosen:
        some = Joiner(joiner.names, tuple(joiner.points[n] for n in numbers))
        for joining in (joined_text, joined_remainders):
            try:
                return joining(some, [plain[n] for n in numbers], top)
            except DifferError as found:
                reasons.append(found)
    raise reasons[0]


def _cover(points: Sequence[Point], sizes: int) -> bool:
    """Whether there are points of every remainder that tiles may leave of each size."""
    return all(
        {point[place] % period for point in points} == set(range(period))
        for place in range(sizes)
        for period in PERIODS
    )


def _joined_table(name: str, tables: Sequence[Array]) -> Array:
    """Return a constant of which all others are the beginning, as its elements lie in memory."""
    longest = max(tables, key=lambda table: table.size)
    flat = longest.reshape(-1)
    for table in tables:
        if table.dtype != longest.dtype or not np.array_equal(
            flat[: table.size], table.reshape(-1), equal_nan=table.dtype.kind == "f"
        ):
            raise DifferError(f"its constant {name} depends on the size")
    return longest
