"""The schedule interface: how an operator becomes C on a target, and what the planner may do with it."""

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, Self

from mtool.base.option_values import Level
from mtool.compiler.ir import Array, Expr, Graph, Node, WithEpilogue
from mtool.compiler.kernels.specification import Specification
from mtool.compiler.kernels.target import Target as Target  # what schedules are written with is found here

# Knobs: the parameters of a schedule that may be turned.


@dataclass(frozen=True, slots=True)
class Knob:
    """A field of a schedule that may be turned: the values that it may have, its default first, and what it does.

    A default of "" or 0 leaves the choice to the schedule, for each node; people write it `auto`.
    """

    values: tuple[Any, ...]
    meaning: str

    @property
    def default(self) -> Any:
        """The value unless told."""
        return self.values[0]

    def written(self, value: Any) -> str:
        """Return a value as people write it."""
        return str(value) if value else AUTO

    def read(self, value: Any) -> Any:
        """Return the value that is meant by a value or by how it is written; None: there is no such value."""
        return next((own for own in self.values if value in (own, self.written(own))), None)


AUTO = "auto"


def knob(default: Any, *others: Any, meaning: str) -> Any:
    """Declare a field of a schedule (a frozen dataclass) that may be turned; `meaning` is one line for people."""
    return field(default=default, metadata={"knob": Knob((default, *others), meaning)})


# In-place execution: the operands that a kernel's output may be written over.


def identity_loads(node: Node, graph: Graph, expr: Expr) -> tuple[int, ...]:
    """Return the inputs that `expr` reads only at the element that it computes, of the output's size.

    An output may be written over such an input, element by element.
    """
    out = graph.types[node.outputs[0]]
    found: dict[int, bool] = {}
    for load in (part for part in expr.walk() if part.op == "load"):
        kind = graph.types[node.inputs[load.value]]
        same = kind.shape == out.shape and kind.dtype.size == out.dtype.size
        plain = all(
            (index.op == "axis" and index.value == dim) or kind.shape[dim] == 1 for dim, index in enumerate(load.args)
        )
        found[load.value] = found.get(load.value, True) and same and plain
    return tuple(number for number, ok in sorted(found.items()) if ok and node.inputs[number] not in graph.constants)


def residual_operands(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the inputs that a kernel's output may be written over: read element by element, and not its own input."""
    loads = identity_loads(node, graph, WithEpilogue.of(node).epilogue)
    return tuple(number for number in loads if node.inputs[number] != node.inputs[0])


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter of a generated function: its C name, element type and what is passed for it.

    `source` is "output" (the first), "scratch", "resource" (the caller's handle for devices), ("output", number),
    ("input", number) or ("constant", name).
    """

    name: str
    c_type: str
    source: str | tuple[str, int | str]

    @property
    def declaration(self) -> str:
        """The parameter in C; what is only read is const, and constants may lie in flash."""
        written = self.source in ("output", "scratch", "resource") or self.source[0] == "output"
        where = "MT_FLASH " if self.source[0] == "constant" else ""
        return f"{'' if written else 'const '}{where}{self.c_type} *{self.name}"


RESOURCE = Argument("resource", "void", "resource")
"""The handle for devices that the model's caller gave."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A generated function without its name: parameters, body, and the constants it is called with.

    Nodes whose parameters and body are equal share one function. `headers` are those of the runtime that it needs
    besides mt_math.h, `shared` lines of C that define functions of the runtime which it calls, of those that are not
    written out in a header. If `can_fail`, it returns a status, 0 for success; else nothing. `layouts` say what stands
    where in a constant, by its name. `inner` are functions of its own that it calls, whole. `level` is the compiler's
    optimisation level of the function, "": that of the model; `in_ram`: its constants lie in RAM.
    """

    arguments: tuple[Argument, ...]
    body: str
    constants: Mapping[str, Array] = field(default_factory=dict)
    needs_math: bool = False
    headers: tuple[str, ...] = ()
    layouts: Mapping[str, str] = field(default_factory=dict)
    can_fail: bool = False
    inner: str = ""
    shared: tuple[str, ...] = ()
    level: Level | str = ""
    in_ram: bool = False


class Schedule:
    """One way to compute an operator. `c99` is always there and is the reference for the others."""

    name: str

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Return whether this schedule can compute the node on the target."""
        return True

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Return the bytes of working memory that it needs in the arena while it runs."""
        return 0

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Return the numbers of the inputs whose storage the first output may take: operands that follow its sums."""
        return residual_operands(node, graph)

    def overwrites(self, node: Node, graph: Graph) -> tuple[tuple[int, int], ...]:
        """Return the same for all outputs: pairs of an input and an output that may be written over it."""
        return tuple((place, 0) for place in self.in_place(node, graph))

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Estimate instructions; the planner takes the schedule with the smallest."""
        raise NotImplementedError

    def grown_bytes(self, node: Node, graph: Graph) -> int:
        """Return by how much its constants exceed the operator's weights, where they do so for speed; 0: they don't."""
        return 0

    def for_core(self, node: Node, graph: Graph, target: Target) -> Self:
        """Return this schedule with its knobs as they are fastest on the core, where instructions say otherwise.

        It is asked when the planner has chosen the schedule; who names one gets what is named.
        """
        return self

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the C."""
        raise NotImplementedError

    def knobs(self) -> Mapping[str, Knob]:
        """Return what may be turned, by the names of the schedule's fields.

        Every setting gives the same integers, and floats within their tolerance.
        `dataclasses.replace(schedule, unroll=8)` turns one.
        """
        declared: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        return {one.name: one.metadata["knob"] for one in declared if "knob" in one.metadata}


def schedule_text(schedule: Schedule) -> str:
    """Return a schedule's name with the knobs that do not have their defaults: dsp_patch:unroll=16."""
    values = {name: (knob, getattr(schedule, name)) for name, knob in schedule.knobs().items()}
    turned = [f"{name}={knob.written(value)}" for name, (knob, value) in values.items() if value != knob.default]
    return f"{schedule.name}:{','.join(turned)}" if turned else schedule.name


@dataclass(frozen=True, slots=True)
class KernelOp:
    """An internal operator: what its nodes are like, how a person calls one, its multiply-accumulates, its schedules.

    The portable schedules stand first.
    """

    specification: Specification
    label: Callable[[Node, Graph], str]
    schedules: tuple[Schedule, ...]
    macs: Callable[[Node, Graph], int] = lambda *_: 0
