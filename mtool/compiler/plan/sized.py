"""Schedules of operators that depend on run-time sizes: any schedule whose C has the same structure at all sizes.

The C is written for the sizes of the graph's samples and joined (mtool.compiler.kernels.parametric_c). If a schedule's
C has a different structure at other sizes, such as a loop unrolled by a size, the next schedule is tried.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mtool.base.errors import ModelError
from mtool.base.escaping import argument
from mtool.base.formulas import Point
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.parametric import DifferError, Joiner
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.parametric_c import (
    PERIODS,
    PREFIX,
    ParametricC,
    joined_remainders,
    parametric_c,
    types_and_functions,
    without_hints,
)
from mtool.compiler.kernels.schedule import Argument, Kernel, Schedule
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.choice import Choice, chosen
from mtool.compiler.plan.function_knobs import BoundSchedule, Built, built
from mtool.compiler.plan.step import Step

_SMALL = 9  # sizes below may be smaller than the windows that slide over them
_MOST_TURNS = 24  # settings of knobs to try


@dataclass(eq=False)
class SizedSchedule(BoundSchedule):
    """A schedule and its C for any sizes. `places` are the inputs that may be overwritten at all sizes."""

    inner: Schedule
    kernel: Kernel
    plain: Node
    scratch: int
    places: tuple[int, ...]

    name: str = ""

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Return the scratch at the largest sizes."""
        return self.scratch

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Return the inputs that the schedule overwrites at all sizes."""
        return self.places

    def overwrites(self, node: Node, graph: Graph) -> tuple[tuple[int, int], ...]:
        """Return those pairs for the first output, and the schedule's pairs for the others."""
        others = (pair for pair in self.inner.overwrites(self.plain, graph) if pair[1])
        return (*((place, 0) for place in self.places), *others)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Return the cost at the largest sizes."""
        return self.inner.cost(self.plain, graph, target)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the C, which was written when the schedule was chosen."""
        return self.kernel


def sized_step(node: Node, graph: Graph, target: Target, choice: Choice | None = None) -> Step:
    """Return the step of a node that depends on run-time sizes: the cheapest schedule that supports them.

    Raises:
        UsageError: the requested schedule does not exist or can't compute the node.
        ModelError: no schedule supports run-time sizes for the node.
    """
    op = registry.KERNELS[node.op]
    plain, of_build = without_sizes(node, graph), dict[str, str]()
    if choice is not None:
        named = chosen(choice, op, plain, graph, target)
        schedules: Sequence[Schedule] = [named.inner if isinstance(named, Built) else named]
        of_build = {"opt": named.opt, "weights": named.weights} if isinstance(named, Built) else {}
    else:
        supporting = (schedule for schedule in op.schedules if schedule.supports(plain, graph, target))
        fitting = [schedule for schedule in supporting if not schedule.grown_bytes(plain, graph)]
        fitting.sort(key=lambda schedule: schedule.cost(plain, graph, target))
        schedules = [schedule.for_core(plain, graph, target) for schedule in fitting]
    reasons = []
    for schedule in schedules:
        for candidate in (schedule, *_turned(schedule, plain, graph, target)):
            try:
                sized = _sized(candidate, plain, graph, target)
            except DifferError as error:
                reasons += [f"{schedule.name}: {error}"] if candidate is schedule else []
            else:
                label, macs = (lambda node, graph: op.label(plain, graph)), (lambda node, graph: op.macs(plain, graph))
                return Step(node, replace(op, label=label, macs=macs), built(sized, of_build), sized.scratch)
    raise _refusal(op.label(plain, graph), node, graph, reasons)


def without_sizes(node: Node, graph: Graph) -> Node:
    """Return a node that depends on run-time sizes without its size inputs."""
    return replace(node, inputs=node.inputs[: len(node.inputs) - len(graph.sizes)])


def sized_control(node: Node, graph: Graph, emit: Callable[[Node, Graph], Kernel]) -> Kernel:
    """Return the function of a control node in a graph with run-time sizes, such as a loop over rows.

    Args:
        node: the node.
        graph: the graph that contains it.
        emit: writes the function for given sizes.

    Raises:
        ModelError: the function does not support run-time sizes.
    """
    points = tuple(point for point, _ in graph.samples)
    kernels = [emit(next(n for n in sample.nodes if n.name == node.name), sample) for _, sample in graph.samples]
    joiner = Joiner(tuple(size.symbol for size in graph.sizes), points)
    try:
        return joined_kernel(kernels, joiner, graph, len(without_sizes(node, graph).inputs))
    except DifferError as error:
        raise _refusal(node.op, node, graph, [str(error)]) from None


def _refusal(label: str, node: Node, graph: Graph, reasons: Sequence[str]) -> ModelError:
    names = ", ".join(size.name for size in graph.sizes)
    return ModelError(
        f"{label} does not support run-time sizes ({names})",
        details=[f"operator {', '.join(node.origins[:3]) or node.name}", *reasons],
        hint="fix the size of a dimension: " + " ".join(f"--dim {argument(size.name)}=N" for size in graph.sizes),
    )


def _turned(schedule: Schedule, plain: Node, graph: Graph, target: Target) -> Sequence[Schedule]:
    """Return a schedule with fixed knobs that it would choose by size; the choice for the largest size first."""
    names = [name for name, knob in schedule.knobs().items() if getattr(schedule, name) == knob.default]
    settings = [[(name, value) for value in schedule.knobs()[name].values] for name in names]
    variants: list[tuple[int, Schedule]] = []
    for turned in itertools.product(*settings):
        changed = {name: value for name, value in turned if value != schedule.knobs()[name].default}
        if changed:
            variants.append((len(changed), replace(schedule, **changed)))  # type: ignore[type-var]
    able = [(count, variant) for count, variant in variants if variant.supports(plain, graph, target)]
    cost = schedule.cost(plain, graph, target)
    able.sort(key=lambda pair: (abs(pair[1].cost(plain, graph, target) - cost), pair[0]))
    return [variant for _, variant in able[:_MOST_TURNS]]


def _sized(schedule: Schedule, plain: Node, graph: Graph, target: Target) -> SizedSchedule:
    kernels: dict[Point, Kernel] = {}
    scratch, places = 0, tuple(schedule.in_place(plain, graph.samples[0][1]))
    top = graph.samples[0][0]
    for point, sample in graph.samples:
        node = next(node for node in sample.nodes if node.name == plain.name)
        if not schedule.supports(node, sample, target):
            if 1 in point:
                continue  # size 1 may have other forms, which are not needed
            raise DifferError(f"the schedule does not support size {', '.join(map(str, point))}")
        kernels[point] = schedule.emit(node, sample, target)
        if all(size <= most for size, most in zip(point, top, strict=True)):
            scratch = max(scratch, schedule.scratch_bytes(node, sample))
        overwritten = schedule.in_place(node, sample)
        places = tuple(place for place in places if place in overwritten)
    joiner = Joiner(tuple(size.symbol for size in graph.sizes), tuple(kernels))
    kernel = joined_kernel(list(kernels.values()), joiner, graph, len(plain.inputs))
    return SizedSchedule(schedule, kernel, plain, scratch, places, schedule.name)


def joined_kernel(kernels: Sequence[Kernel], joiner: Joiner, graph: Graph, inputs: int) -> Kernel:
    """Join kernels into one for any sizes; the first is for the largest. The sizes are the inputs from `inputs` on.

    Raises:
        DifferError: their structures differ.
    """
    first = kernels[0]
    for kernel, point in zip(kernels, joiner.points, strict=True):
        same = {*kernel.arguments} <= {*first.arguments} if 1 in point else kernel.arguments == first.arguments
        if not same:
            raise DifferError("its parameters differ between sizes")
    joined = _joined_body(joiner, [kernel.body for kernel in kernels], graph)
    tables = {name: [k.constants[name] for k in kernels if name in k.constants] for name in first.constants}
    constants = {name: _joined_table(name, arrays) for name, arrays in tables.items()}
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
        shared=tuple(dict.fromkeys(line for kernel in kernels for line in kernel.shared)),
    )


def _joined_body(joiner: Joiner, bodies: Sequence[str], graph: Graph) -> ParametricC:
    """Return the body for any sizes: one structure, one for each remainder of a size, or others for small sizes."""
    plain = dict(zip(joiner.points, without_hints(bodies), strict=True))
    usual = {point: text for point, text in plain.items() if 1 not in point}
    try:
        return _of_usual(joiner.names, usual, graph)
    except DifferError as error:
        reason = error
    for first in range(3, _SMALL + 1) if len(joiner.names) == 1 else ():
        small = [point for point in sorted(plain) if point[0] < first]
        if [point[0] for point in small] != [*range(graph.sizes[0].least, first)]:
            continue
        try:
            usual = {point: text for point, text in plain.items() if point[0] >= first}
            return _with_small(
                joiner.names[0], {point[0]: plain[point] for point in small}, _of_usual(joiner.names, usual, graph)
            )
        except DifferError:
            continue
    raise reason


def _of_usual(names: tuple[str, ...], texts: Mapping[Point, str], graph: Graph) -> ParametricC:
    """Return the body for any sizes that are not too small for it.

    Sizes that equal those of other dimensions may have a simpler form, and so may the smallest, at which a formula is
    0: they are left out if there are enough others.
    """
    if not _cover(list(texts), len(names)):
        raise DifferError("the model supports too few sizes to derive how its C depends on them")
    top, fixed = graph.samples[0][0], graph.fixed_sizes
    others = [point for point in texts if point != top and not any(size in fixed for size in point)]
    least = [size.least for size in graph.sizes]
    above = [point for point in others if all(size > low for size, low in zip(point, least, strict=True))]
    reasons = []
    for points in (list(texts), *(subset for subset in (others, above) if _cover(subset, len(names)))):
        joiner = Joiner(names, tuple(points), scales=graph.scales)
        for joining in (parametric_c, joined_remainders):
            try:
                joined = joining(joiner, [texts[point] for point in points], top)
                return _checked(joined, [text for point, text in texts.items() if point not in points])
            except DifferError as error:
                reasons.append(error)
    raise reasons[0]


def _with_small(symbol: str, small: Mapping[int, str], usual: ParametricC) -> ParametricC:
    """Return a body with separate lines for each of the smallest sizes."""
    lines = []
    for size, text in small.items():
        lines += [f"    if ({PREFIX}{symbol} == {size}) {{", *(f"    {line}" for line in text.split("\n"))]
        lines += ["        return;", "    }"]
    return ParametricC("\n".join([*lines, usual.text]), usual.symbols | {symbol})


def _checked(joined: ParametricC, simpler: Sequence[str]) -> ParametricC:
    """Return joined C if the C of the sizes left out uses no other types or functions.

    Raises:
        DifferError: it does.
    """
    for text in simpler:
        if types_and_functions(text) - types_and_functions(joined.text):
            raise DifferError("the structure of its C differs between sizes")
    return joined


def _cover(points: Sequence[Point], sizes: int) -> bool:
    """Whether the points cover every combination of remainders that tiles may leave of the sizes."""
    return all(len({tuple(size % period for size in point) for point in points}) == period**sizes for period in PERIODS)


def _joined_table(name: str, tables: Sequence[Array]) -> Array:
    """Return the constant that starts with all others, in memory order."""
    longest = max(tables, key=lambda table: table.size)
    flat = longest.reshape(-1)
    for table in tables:
        if table.dtype != longest.dtype or not np.array_equal(
            flat[: table.size], table.reshape(-1), equal_nan=table.dtype.kind == "f"
        ):
            raise DifferError(f"its constant {name} depends on the size")
    return longest
