"""Tasks: the properties of operators that their time depends on. Layers that differ only in weights are one task."""

import hashlib
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from mtool.base.errors import UsageError
from mtool.base.frozen import frozen
from mtool.base.option_values import CODE, WEIGHTS
from mtool.compiler.ir import Expr, Graph, Node
from mtool.compiler.ir.control import Control, all_graphs
from mtool.compiler.ir.node import View, expression_of
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan, Step
from mtool.compiler.plan.choice import Choice, chosen
from mtool.compiler.plan.whole import plans_in
from mtool.compiler.tuned.record import LONGEST_TEXT, TaskRecord, digest
from mtool.compiler.tuned.results import TuningResults

_OMITTED = frozenset({"expr", "label", "macs", "acc_bound", "float_bias"})
"""Attributes that do not affect the time: names, bounds that follow from weights; the expression, hashed apart."""
_VALUES = frozenset({"pad_value"})
"""Attributes whose number only matters for being zero or not."""


@frozen
class Task:
    """A task of a model, and the nodes where it occurs.

    Attributes:
        record: its record in the log.
        graph: the graph of the first of its nodes.
        step: the first of its nodes, as the cost model computes it.
        nodes: the names of all nodes with this task.
    """

    record: TaskRecord
    graph: Graph
    step: Step
    nodes: tuple[str, ...]


def tasks_of(plan: Plan, names: Collection[str]) -> tuple[Task, ...]:
    """Return the different tasks of a plan, in its order.

    Args:
        plan: the plan of a model; no operator is computed in parts.
        names: the nodes that can have a schedule: not nodes that are graphs themselves, nor the planner's own.
    """
    tasks: dict[str, Task] = {}
    for part in reversed([*plans_in(plan)]):
        for step in part.steps:
            # Where the output overlaps the first input, there is one schedule, and a trial has no such input.
            if step.node.name not in names or (isinstance(step.node.attrs, Concat) and step.node.attrs.appends):
                continue
            record = record_of(step.node, part.graph)
            earlier = tasks.get(record.key)
            nodes = (*(earlier.nodes if earlier else ()), step.node.title)
            first = earlier or Task(record, part.graph, step, ())
            tasks[record.key] = Task(first.record, first.graph, first.step, tuple(dict.fromkeys(nodes)))
    return tuple(tasks.values())


def named_nodes(graph: Graph) -> Iterator[tuple[Node, Graph]]:
    """Yield each node that is computed and may be tuned, with its graph, including graphs inside it."""
    for part in all_graphs(graph):
        for node in part.nodes:
            if not isinstance(node.attrs, View | Control | External):
                yield node, part


def record_of(node: Node, graph: Graph) -> TaskRecord:
    """Return the record of a node's task."""
    described = {
        "op": node.op,
        "reads": [_operand(value, graph) for value in node.inputs],
        "writes": [str(graph.types[value]) for value in node.outputs if value],
        "attributes": dict(_attributes(node.attrs)),
        "expression": _expression(expression_of(node)),
    }
    label = registry.KERNELS[node.op].label(node, graph)
    return TaskRecord.model_validate({**described, "label": label, "key": digest(described)})


def _operand(value: str, graph: Graph) -> str:
    if not value:
        return "nothing"
    return f"{'constant ' if value in graph.constants else ''}{graph.types[value]}"


def _attributes(attrs: Any) -> Iterator[tuple[str, str]]:
    for field in sorted(fields(attrs), key=lambda field: field.name):
        value = getattr(attrs, field.name)
        if field.name in _OMITTED:
            continue
        yield field.name, ("0" if value == 0 else "not 0") if field.name in _VALUES else _short(_plain(value))


def _short(text: str) -> str:
    """Return a text that fits a record: itself, or its hash."""
    return text if len(text) <= LONGEST_TEXT else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _plain(value: Any) -> str:
    """Return an attribute as text, equal for equal values on every computer."""
    if isinstance(value, Expr):
        return _expression(value)
    if is_dataclass(value) and not isinstance(value, type):
        inside = ", ".join(f"{field.name}={_plain(getattr(value, field.name))}" for field in fields(value))
        return f"{type(value).__name__}({inside})"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_plain, value))})"
    return str(value)


def _expression(expr: Expr | None) -> str:
    """Return a hash of an expression's shape: its functions and types, and its indices, without its other constants."""
    return "" if expr is None else expr.fold(_shape)[0]


def _shape(part: Expr, args: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the hash of a part without and with its constants; both include the index of a load."""
    value = _plain(part.value)
    is_place = part.op in ("axis", "load", "reduce")
    kind = value if is_place else type(part.value).__name__
    head = f"{part.op} {part.dtype.label} "
    inner = [exact for _, exact in args] if part.op == "load" else [loose for loose, _ in args]
    loose, exact = " ".join([head + kind, *inner]), " ".join([head + value, *(text for _, text in args)])
    return hashlib.sha256(loose.encode()).hexdigest()[:20], hashlib.sha256(exact.encode()).hexdigest()[:20]


# The schedules that a graph's nodes get from tuning results.


log = logging.getLogger(__name__)


def choices(results: TuningResults, graph: Graph, target: Target, model_hash: str) -> dict[str, Choice]:
    """Return the schedules of a graph's nodes by name; nodes without results have none.

    Results of the whole model come first. A candidate that no longer exists, or that can't compute the node, is skipped
    with a warning. Constants lie in RAM only if the whole model was measured so, with its arena beside them.

    Raises:
        UsageError: the requested point of the model's front does not exist.
    """
    if results.point and model_hash not in results.whole:
        raise UsageError(
            f"the tuning logs have no point {results.point} of this model",
            details=["their fronts are of other models; a changed model counts as another"],
            hint="measure its front: mtool tune MODEL --board B --pareto, or leave the point out",
        )
    selected: dict[str, Choice] = {}
    unusable: dict[str, str] = {}
    in_whole = results.whole.get(model_hash, {})
    for node, part in named_nodes(graph) if results.ranked or in_whole else ():
        key = record_of(node, part).key
        first = [in_whole[key]] if key in in_whole else []
        others = (name for name in results.ranked.get(key, ()) if not {CODE, WEIGHTS} & {*parse(name).knobs})
        for candidate in (*first, *others):
            choice = parse(candidate)
            try:
                chosen(choice, registry.KERNELS[node.op], node, part, target)
            except UsageError as refused:
                unusable.setdefault(candidate, refused.what)
                continue
            selected[node.name] = choice
            break
    for candidate, why in unusable.items():
        log.warning("tuned schedule %s is skipped: %s", candidate, why)
    return selected


def parse(candidate: str) -> Choice:
    """Return a candidate, as `--schedule` writes it, as a choice: dsp_patch:tile=2x2,unroll=8."""
    name, _, settings = candidate.partition(":")
    pairs = (setting.partition("=") for setting in settings.split(",") if setting)
    return Choice(name, {knob: value for knob, _, value in pairs})


def text_of(choice: Choice) -> str:
    """Return a choice as `--schedule` writes it: what `parse` reads."""
    settings = ",".join(f"{knob}={value}" for knob, value in choice.knobs.items())
    return f"{choice.schedule}:{settings}" if settings else choice.schedule
