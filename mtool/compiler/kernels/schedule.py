"""The schedule interface: how an operator becomes C on a target, and what the planner may do with it."""

from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields, is_dataclass
from typing import Any, Self

from mtool.base.frozen import frozen
from mtool.base.option_values import Level
from mtool.compiler.ir import Array, Expr, Graph, Node, WithEpilogue
from mtool.compiler.kernels.specification import Specification
from mtool.compiler.kernels.target import Target as Target  # so that schedules import all they need from here

# Knobs: the adjustable parameters of a schedule.


@frozen
class Knob:
    """An adjustable field of a schedule: the allowed values, the default first, and its meaning.

    A default of "" or 0 lets the schedule choose for each node; it is written `auto`.
    """

    values: tuple[Any, ...]
    meaning: str

    @property
    def default(self) -> Any:
        """The default value."""
        return self.values[0]

    def written(self, value: Any) -> str:
        """Return the text of a value."""
        return str(value) if value else AUTO

    def read(self, value: Any) -> Any:
        """Return an allowed value from itself or its text; None: the value is not allowed."""
        return next((allowed for allowed in self.values if value in (allowed, self.written(allowed))), None)


AUTO = "auto"


def knob(default: Any, *others: Any, meaning: str) -> Any:
    """Declare a knob of a schedule (a frozen dataclass); `meaning` is a one-line description for users."""
    return field(default=default, metadata={"knob": Knob((default, *others), meaning)})


# In-place execution: the operands that a kernel's output may be written over.


def identity_loads(node: Node, graph: Graph, expr: Expr) -> tuple[int, ...]:
    """Return the inputs that `expr` reads only at the element that it computes, of the output's size.

    An output may be written over such an input, element by element.
    """
    out = graph.types[node.outputs[0]]
    safe: dict[int, bool] = {}
    for load in (part for part in expr.walk() if part.op == "load"):
        kind = graph.types[node.inputs[load.value]]
        same = kind.shape == out.shape and kind.dtype.size == out.dtype.size
        plain = all(
            (index.op == "axis" and index.value == dim) or kind.shape[dim] == 1 for dim, index in enumerate(load.args)
        )
        safe[load.value] = safe.get(load.value, True) and same and plain
    return tuple(number for number, ok in sorted(safe.items()) if ok and node.inputs[number] not in graph.constants)


def residual_operands(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the inputs that a kernel's output may be written over: read element by element, and not its own input."""
    loads = identity_loads(node, graph, WithEpilogue.of(node).epilogue)
    return tuple(number for number in loads if node.inputs[number] != node.inputs[0])


@frozen
class Argument:
    """One parameter of a generated function: its C name, element type and the source of the argument.

    `source` is "output" (the first), "scratch", "resource" (the caller's handle for devices), ("output", number),
    ("input", number) or ("constant", name).
    """

    name: str
    c_type: str
    source: str | tuple[str, int | str]

    @property
    def declaration(self) -> str:
        """The parameter in C; read-only parameters are const, and constants may lie in flash."""
        written = self.source in ("output", "scratch", "resource") or self.source[0] == "output"
        where = "MT_FLASH " if self.source[0] == "constant" else ""
        return f"{'' if written else 'const '}{where}{self.c_type} *{self.name}"


RESOURCE = Argument("resource", "void", "resource")
"""The handle for devices that the model's caller passes."""


@frozen
class Kernel:
    """A generated function without its name: parameters, body, and the constants it is called with.

    Nodes whose parameters and body are equal share one function. `headers` are the runtime's headers that it needs
    besides mt_math.h, `shared` lines of C that define runtime functions that it calls and that are not written out in a
    header. If `can_fail`, it returns a status, 0 for success; otherwise nothing. `layouts` describe the layout of
    constants, by name. `inner` are complete functions that it calls. `level` is the function's optimization level, "":
    that of the model; `in_ram`: its constants lie in RAM; `is_hot`: its code does.
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
    is_hot: bool = False


def defined_by(line: str) -> str:
    """Return the runtime function that a line of Kernel.shared defines: its macro's first argument."""
    return line.partition("(")[2].partition(",")[0].removesuffix(")")


class Schedule:
    """One way to compute an operator. `c99` always exists and is the reference for the others."""

    name: str

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Return whether this schedule can compute the node on the target."""
        return True

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Return the bytes of working memory that it needs in the arena while it runs."""
        return 0

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Return the numbers of the inputs whose storage the first output may reuse: operands of the epilogue."""
        return residual_operands(node, graph)

    def overwrites(self, node: Node, graph: Graph) -> tuple[tuple[int, int], ...]:
        """Return the same for all outputs: pairs of an input and an output that may overwrite it."""
        return tuple((place, 0) for place in self.in_place(node, graph))

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Estimate instructions; the planner takes the schedule with the smallest."""
        raise NotImplementedError

    def grown_bytes(self, node: Node, graph: Graph) -> int:
        """Return by how many bytes its constants exceed the operator's weights, if they do so for speed."""
        return 0

    def is_for_time(self, node: Node, graph: Graph) -> bool:
        """Whether it takes more memory than others to save instructions."""
        return self.grown_bytes(node, graph) != 0

    def in_working_memory(self) -> tuple[Self, ...]:
        """Return settings that take working memory instead of `grown_bytes`, those that take most of it first."""
        return ()

    def avoidable_cost(self, node: Node, graph: Graph) -> float:
        """Return the estimated instructions that larger constants would save."""
        return 0

    def constant_passes(self, node: Node, graph: Graph) -> int:
        """Return how often it reads each constant; 0: once for every few results."""
        return 0

    def long_code(self, node: Node, graph: Graph) -> tuple[int, float]:
        """Return the bytes of code that it runs through again and again, and the share of its instructions there.

        A cache with fewer bytes misses all of it each time. (0, 0): its loops are short.
        """
        return 0, 0.0

    def in_few_bits(self, node: Node, graph: Graph, target: Target) -> Self | None:
        """Return this schedule with weights of few bits in flash, which it reads as such; None: it can't."""
        return None

    def for_core(self, node: Node, graph: Graph, target: Target) -> Self:
        """Return this schedule with the knobs that are fastest on the core, where instruction counts mislead.

        It is called when the planner has chosen the schedule; a schedule that the user selects is used as given.
        """
        return self

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the C."""
        raise NotImplementedError

    def knobs(self) -> Mapping[str, Knob]:
        """Return the knobs, by the names of the schedule's fields.

        Every setting gives the same integers, and floats within their tolerance.
        `dataclasses.replace(schedule, unroll=8)` sets one.
        """
        declared: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        knobs = {field.name: field.metadata["knob"] for field in declared if "knob" in field.metadata}
        return {name: knob for name, knob in knobs.items() if len(knob.values) > 1}  # those with a choice


def schedule_text(schedule: Schedule) -> str:
    """Return a schedule's name with its non-default knobs: dsp_patch:unroll=16."""
    values = {name: (knob, getattr(schedule, name)) for name, knob in schedule.knobs().items()}
    turned = [f"{name}={knob.written(value)}" for name, (knob, value) in values.items() if value != knob.default]
    return f"{schedule.name}:{','.join(turned)}" if turned else schedule.name


@frozen
class KernelOp:
    """An internal operator: the specification of its nodes, their label, multiply-accumulates, and schedules.

    The portable schedules come first.
    """

    specification: Specification
    label: Callable[[Node, Graph], str]
    schedules: tuple[Schedule, ...]
    macs: Callable[[Node, Graph], int] = lambda *_: 0
