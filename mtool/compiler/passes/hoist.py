"""Hoist repeated computation: before broadcasts, and out of the rounds of a loop.

Fusion inlines producers into loops, and a model may broadcast before it computes: either way an expensive function may
be computed again for each element along an axis on which its operands do not depend. Such a part of an expression
becomes a separate loop over the axes on which it does depend, if that saves enough for the arena of its result.

A node of a body that reads nothing that changes from round to round is moved out of the body, and so is such a part of
an expression, as a separate loop. There may be no rounds at all, and a branch in the body may not be taken; hoisting
is still safe, as only backends' operators can fail. It has to save more than it costs in the expected number of rounds;
its result occupies the arena while the loop runs.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod

from mtool.base.frozen import frozen
from mtool.compiler.ir import Computation, DType, Expr, Graph, Node, Rewriter, View, axis, const, load, rewritten
from mtool.compiler.ir.control import Control, Rounds, has_bodies
from mtool.compiler.kernels.expression_cost import LOADED, ROUND, STORED, Facts, cost_of, part_that_pays, sizes_of
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.registry import KERNELS, with_expression
from mtool.compiler.kernels.target import Target
from mtool.compiler.passes.control_flow import prune
from mtool.compiler.passes.copies import copy_outputs

MIN_SAVED = 200  # instructions: another loop takes flash and a call,
MIN_SAVED_PER_BYTE = 16  # and its result takes arena


def hoist_broadcasts(graph: Graph) -> Graph:
    """Compute parts of loops and epilogues once before them, where that costs less."""

    def hoisted(rewriter: Rewriter, node: Node) -> None:
        waiting = [node]
        while waiting:  # hoisted parts may contain parts to hoist
            current = waiting.pop()
            attrs, shape = Computation.of(current), rewriter.types[current.outputs[0]].shape
            shapes = [rewriter.types[value].shape for value in current.inputs]
            candidate = part_that_pays(attrs.expr, sizes_of(attrs.expr, shape), prod(shape), shapes, is_enough)
            if candidate is None:
                rewriter.keep(current)
            else:
                waiting += reversed(with_part_before(rewriter, current, *candidate))

    return rewritten(graph, hoisted, Computation)


def is_enough(part: Expr, facts: Facts, saved: float, once: int) -> bool:
    """Whether hoisting a part saves more than a separate loop costs."""
    return saved >= max(MIN_SAVED, MIN_SAVED_PER_BYTE * once * part.dtype.size)


def with_part_before(rewriter: Rewriter, node: Node, part: Expr, axes: Collection[int]) -> tuple[Node, Node]:
    """Return a loop that computes a part of a node's expression over its axes, and the node that reads it."""
    attrs, shape = Computation.of(node), rewriter.types[node.outputs[0]].shape
    rank, sizes = len(shape), sizes_of(attrs.expr, shape)
    extra = sorted(number for number in axes if number >= rank)
    dims = [size if number in axes else 1 for number, size in enumerate(shape)]
    value = rewriter.value(f"{node.outputs[0]}.part", part.dtype, [*dims, *(sizes[number] for number in extra)])
    body = part.with_axes({number: axis(rank + behind) for behind, number in enumerate(extra)})
    operands = sorted(body.operands())
    loop = Node(
        "loop", rewriter.unique(node.name), tuple(node.inputs[number] for number in operands), (value,),
        Loop(expr=body.with_operands({old: new for new, old in enumerate(operands)}), label=_label(attrs, part)),
        node.origins,
    )  # fmt: skip
    first = [axis(number) if number in axes else const(0, DType.INT32) for number in range(rank)]
    element = load(len(node.inputs), part.dtype, (*first, *(axis(number) for number in extra)))
    return loop, with_expression(node, attrs.expr.with_part(part, element), (*node.inputs, value))


def _label(attrs: Computation, part: Expr) -> str:
    """Return the ONNX operators in a part: those of the node's label that match its functions' names."""
    functions = {inner.op for inner in part.walk(indices=False)}
    words = [word for word in attrs.label.split("+") if word in functions]
    return "+".join(words) or attrs.label


MIN_SAVED_PER_BYTE_AND_ROUND = 1  # instructions: cheap parts stay
BRANCH_PROBABILITY = 0.5  # the assumed probability of a branch


def hoist_loop_invariants(graph: Graph, target: Target) -> Graph:
    """Hoist computation that is the same in all rounds of a loop, where that costs less."""
    if not has_bodies(graph):
        return graph
    rewriter, is_changed = Rewriter(graph), False
    for node in graph.nodes:
        if isinstance(node.attrs, Rounds):
            node, inputs = _Hoist(rewriter, target).out_of(node, {value: value for value in node.inputs}, 1, True)
            node = replace(node, inputs=(*node.inputs, *inputs))
            is_changed |= bool(inputs)
        rewriter.keep(node)
    return prune(rewriter.finish()) if is_changed else graph


@frozen
class _Hoist:
    """Moves work out of a node's graphs into the outer graph.

    into: the outer graph.
    target: the target of the estimates.
    """

    into: Rewriter
    target: Target

    def out_of(
        self, node: Node, outside: Mapping[str, str], times: float, is_certain: bool
    ) -> tuple[Node, tuple[str, ...]]:
        """Return a control node without the hoisted work, and the values of `into` to append to its inputs.

        Args:
            node: the node, in `into` or in a body of a node there.
            outside: the invariant values that it reads, mapped to their names in `into`.
            times: how often it is computed.
            is_certain: whether it is computed in every run.
        """
        attrs = Control.of(node)
        if isinstance(attrs, Rounds):
            rows, read = len(attrs.backwards), node.inputs[attrs.first_row + len(attrs.backwards) :]
            times, is_certain = times * attrs.expected, is_certain and attrs.is_counted
        else:
            rows, read, times, is_certain = 0, node.inputs[1:], times * BRANCH_PROBABILITY, False
        changed = []
        for body in attrs.bodies:
            captured = zip(body.inputs[rows:], read, strict=False)
            invariants = {inner: outside[value] for inner, value in captured if value in outside}
            changed.append(self._lighter(body, invariants, times, is_certain))
        new = tuple(dict.fromkeys(value for _, invariants in changed for value in invariants.values()))
        return replace(node, attrs=attrs.with_bodies([self._reading(attrs, *pair, new) for pair in changed])), new

    def _reading(self, attrs: Control, body: Graph, invariants: Mapping[str, str], new: Collection[str]) -> Graph:
        """Return a body with an additional input for each of `new`, values of `into`."""
        rewriter, inner = Rewriter(body), {value: name for name, value in invariants.items()}
        for value in new:
            if value not in inner:
                inner[value] = rewriter.like(value, self.into.types[value])
        behind = len(body.inputs) - (1 + len(attrs.carried) if isinstance(attrs, Rounds) else 0)
        inputs = (*body.inputs[:behind], *(inner[value] for value in new), *body.inputs[behind:])
        types = {**body.types, **{inner[value]: self.into.types[value] for value in new}}
        return copy_outputs(replace(body, inputs=inputs, types=types))

    def _lighter(
        self, body: Graph, outside: dict[str, str], times: float, is_certain: bool
    ) -> tuple[Graph, dict[str, str]]:
        """Return a body without the hoisted nodes, and the values of `into` that it reads instead."""
        invariants: dict[str, str] = {}
        rewriter = Rewriter(body)
        invariant = {*outside, *body.constants, ""}
        for node in body.nodes:
            if isinstance(node.attrs, Control):
                inputs = {value: outside[value] for value in node.inputs if value in outside}
                node, values = self.out_of(node, inputs, times, is_certain)
                names = {value: name for name, value in invariants.items()}
                for value in values:
                    if value not in names:
                        names[value] = rewriter.like(value, self.into.types[value])
                        invariants[names[value]] = outside[names[value]] = value
                        invariant.add(names[value])
                node = replace(node, inputs=(*node.inputs, *(names[value] for value in values)))
            elif isinstance(node.attrs, Computation) and not invariant.issuperset(node.inputs):
                node = self._split(rewriter, node, invariant, times)
            rewriter.keep(node)
            if invariant.issuperset(node.inputs):
                invariant.update(node.outputs)
        graph = replace(body, nodes=tuple(rewriter.nodes), types=rewriter.types, constants=rewriter.constants)
        moved = self._worth_moving(graph, invariant, times, is_certain)
        for node in graph.nodes:
            if node.name in moved:
                self._move(node, graph, outside)
        rest = [node for node in graph.nodes if node.name not in moved]
        read = {value for node in rest for value in node.inputs} | {*body.outputs}
        moved_values = (value for node in graph.nodes if node.name in moved for value in node.outputs)
        invariants |= {value: outside[value] for value in moved_values if value in read}
        return replace(graph, nodes=tuple(rest)), invariants

    def _split(self, rewriter: Rewriter, node: Node, invariant: Collection[str], times: float) -> Node:
        """Append loops for the invariant parts of a node's expression, if that pays."""
        shape = rewriter.types[node.outputs[0]].shape

        def is_enough(part: Expr, facts: Facts, saved: float, once: int) -> bool:
            """Whether a part is invariant and saves enough, per round and in total."""
            if ROUND in facts.axes:
                return False
            in_a_round = (saved + once * STORED) / times
            return _pays(in_a_round, saved, once * part.dtype.size)

        while True:
            expr = Computation.of(node).expr
            changing = [number for number, value in enumerate(node.inputs) if value not in invariant]
            count = int(prod(shape) * times)
            shapes = [rewriter.types[value].shape for value in node.inputs]
            candidate = part_that_pays(expr, sizes_of(expr, shape), count, shapes, is_enough, changing)
            if candidate is None:
                return node
            loop, node = with_part_before(rewriter, node, *candidate)
            rewriter.keep(loop)
            invariant = {*invariant, *loop.outputs}

    def _worth_moving(self, body: Graph, invariant: Collection[str], times: float, is_certain: bool) -> set[str]:
        """Return the names of the nodes to hoist: those whose results save enough if the rest reads them."""
        makers, readers = body.producers(), body.consumers()
        moved = {
            node.name
            for node in body.nodes
            if {*invariant}.issuperset(node.inputs) and (is_certain or not isinstance(node.attrs, Control | External))
        }
        for node in body.nodes:  # after one that stays
            makers_of = [makers[value] for value in node.inputs if value in makers]
            if any(maker.name not in moved for maker in makers_of):
                moved.discard(node.name)
        for node in reversed(body.nodes):
            if node.name not in moved or any(use.name in moved for out in node.outputs for use in readers.get(out, [])):
                continue  # hoisted nodes read it
            kinds = [body.types[value] for value in node.outputs if _is_read(value, body, readers, moved)]
            if not kinds:
                continue
            copied = sum(body.types[value].count for value in node.outputs if value in body.outputs)
            saved = self._cost_with_makers(node, body, makers, moved) - copied * (LOADED + STORED)
            if not _pays(saved, (times - 1) * saved, sum(kind.bytes for kind in kinds)):
                moved.remove(node.name)
        return moved

    def _cost_with_makers(self, node: Node, body: Graph, makers: Mapping[str, Node], moved: Collection[str]) -> float:
        """Return the cost of a node and of the producers that are hoisted with it."""
        waiting, seen, total = [node], {node.name}, 0.0
        while waiting:
            current = waiting.pop()
            total += _cost(current, body, self.target)
            before = [makers[value] for value in current.inputs if value in makers]
            before = [maker for maker in before if maker.name in moved and maker.name not in seen]
            seen.update(maker.name for maker in before)
            waiting += {maker.name: maker for maker in before}.values()
        return total

    def _move(self, node: Node, body: Graph, outside: dict[str, str]) -> None:
        """Append a node of a body, whose inputs all exist outside, to the outer graph."""
        for value in filter(None, node.inputs):
            if value not in outside:
                outside[value] = self.into.constant(value, body.constants[value])
        for value in filter(None, node.outputs):
            outside[value] = self.into.like(value, body.types[value])
        inputs = tuple(value and outside[value] for value in node.inputs)
        outputs = tuple(value and outside[value] for value in node.outputs)
        self.into.keep(replace(node, name=self.into.unique(node.name), inputs=inputs, outputs=outputs))


def _is_read(value: str, body: Graph, readers: Mapping[str, list[Node]], moved: Collection[str]) -> bool:
    """Whether the remaining body reads a value."""
    return value in body.outputs or any(reader.name not in moved for reader in readers.get(value, []))


def _pays(in_a_round: float, saved: float, memory_bytes: int) -> bool:
    """Whether the saved instructions are worth the memory."""
    least = max(MIN_SAVED, MIN_SAVED_PER_BYTE * memory_bytes)
    return in_a_round >= MIN_SAVED_PER_BYTE_AND_ROUND * memory_bytes and saved >= least


def _cost(node: Node, graph: Graph, target: Target) -> float:
    """Estimate the instructions of a node."""
    if isinstance(node.attrs, View):
        return 0
    if isinstance(node.attrs, Loop):
        return graph.types[node.outputs[0]].count * (cost_of(node.attrs.expr) + STORED)
    if isinstance(node.attrs, Control):
        times = node.attrs.expected if isinstance(node.attrs, Rounds) else 1
        return times * max(sum(_cost(inner, body, target) for inner in body.nodes) for body in node.attrs.bodies)
    fitting = (schedule for schedule in KERNELS[node.op].schedules if schedule.supports(node, graph, target))
    return min(schedule.cost(node, graph, target) for schedule in fitting)
