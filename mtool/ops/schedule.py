"""The schedule interface: how an operator becomes C on a target, and what the planner may do with it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol

import jinja2

from mtool.ir import Expr, Graph, Node
from mtool.ir.types import Array

THUMB1 = ("cortex-m0", "cortex-m1", "cortex-m23")
# Those of the architecture without stack pointer, program counter and what else has a use of its own.
REGISTERS: tuple[tuple[str | tuple[str, ...], int], ...] = (
    (THUMB1, 0),
    ("cortex", 14),
    ("rv32e", 13),
    ("rv", 27),
    ("xtensa", 13),
    ("avr", 7),
)


@dataclass(frozen=True, slots=True)
class Target:
    """What the compile half knows of a board: its core and its features ("fpu", "dsp", "mve")."""

    cpu: str
    features: frozenset[str]

    @property
    def has_float(self) -> bool:
        """Whether float32 arithmetic is done by hardware."""
        return self.cpu == "host" or "fpu" in self.features

    @property
    def has_dsp(self) -> bool:
        """Whether the target has SIMD32 and an FPU for the requantisation."""
        return {"dsp", "fpu"} <= self.features

    @property
    def has_mve(self) -> bool:
        """Whether the target has Helium with floating point."""
        return {"mve", "fpu"} <= self.features

    @property
    def registers(self) -> int:
        """32-bit registers that an inner loop of integers may hold; 0: too few for more than plain loops, or a compiler
        that makes vectors of them.
        """
        return next((count for cores, count in REGISTERS if self.cpu.startswith(cores)), 0)

    @property
    def product_instructions(self) -> int:
        """Instructions that multiply two integers and add: 1 where one does both, byte by byte on an AVR."""
        if self.is_8_bit:
            return 12
        return 2 if self.cpu.startswith((*THUMB1, "rv", "xtensa")) else 1

    @property
    def is_8_bit(self) -> bool:
        """Whether it is a core of 8 bits."""
        return self.cpu.startswith("avr")

    @property
    def flash_is_apart(self) -> bool:
        """Whether constants in flash need a qualifier to be read: on an 8-bit AVR it is an address space of its own."""
        return self.cpu.startswith("avr")


@dataclass(frozen=True, slots=True)
class Argument:
    """One parameter of a generated function: its C name, element type and what is passed for it.

    `source` is "output" (the first), "scratch", ("output", number), ("input", number) or ("constant", name).
    """

    name: str
    c_type: str
    source: str | tuple[str, int | str]

    @property
    def declaration(self) -> str:
        """The parameter in C; what is only read is const, and constants may lie in flash."""
        written = self.source in ("output", "scratch") or self.source[0] == "output"
        where = "MT_FLASH " if self.source[0] == "constant" else ""
        return f"{'' if written else 'const '}{where}{self.c_type} *{self.name}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A generated function without its name: parameters, body, and the constants it is called with.

    Nodes whose parameters and body are equal share one function. `headers` are those of the runtime that it needs
    besides mt_math.h.
    """

    arguments: tuple[Argument, ...]
    body: str
    constants: Mapping[str, Array] = field(default_factory=dict)
    needs_math: bool = False
    headers: tuple[str, ...] = ()


class Schedule(Protocol):
    """One way to compute an operator. `c99` is always there and is the reference for the others."""

    name: str

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Say whether this schedule can compute the node on the target."""
        ...

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Return the bytes of working memory that it needs in the arena while it runs."""
        ...

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Return the numbers of the inputs whose storage the output may take."""
        ...

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Estimate instructions; the planner takes the schedule with the smallest."""
        ...

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the C."""
        ...

    def knobs(self) -> Mapping[str, "Knob"]:
        """Return what may be turned, by the names of the schedule's fields.

        Every setting gives the same integers, and floats within their tolerance.
        `dataclasses.replace(schedule, unroll=8)` turns one.
        """
        ...


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


def described(schedule: Schedule) -> str:
    """Return a schedule's name with the knobs that do not have their defaults: dsp_patch:unroll=16."""
    values = {name: (knob, getattr(schedule, name)) for name, knob in schedule.knobs().items()}
    turned = [f"{name}={knob.written(value)}" for name, (knob, value) in values.items() if value != knob.default]
    return f"{schedule.name}:{','.join(turned)}" if turned else schedule.name


class BaseSchedule:
    """What most schedules have in common; each may say otherwise."""

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """None."""
        return 0

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """A residual operand that is not its input."""
        return residual_operands(node, graph)

    def knobs(self) -> Mapping[str, Knob]:
        """Those that are declared."""
        declared: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        return {one.name: one.metadata["knob"] for one in declared if "knob" in one.metadata}


@dataclass(frozen=True, slots=True)
class KernelOp:
    """An internal operator: how a person calls it, its multiply-accumulates, its schedules (best last)."""

    label: Callable[[Node, Graph], str]
    macs: Callable[[Node, Graph], int]
    schedules: tuple[Schedule, ...]


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=False,
    autoescape=False,
)


_ENVIRONMENT.filters["product"] = math.prod


def template(name: str, **values: Any) -> str:
    """Render a C template of this package ("conv2d/c99_patch.c.j2")."""
    return _ENVIRONMENT.get_template(name).render(**values)


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
            (index.op == "axis" and index.value == place) or kind.shape[place] == 1
            for place, index in enumerate(load.args)
        )
        found[load.value] = found.get(load.value, True) and same and plain
    return tuple(number for number, ok in sorted(found.items()) if ok and node.inputs[number] not in graph.constants)


def residual_operands(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the inputs that a kernel's output may be written over: read element by element, and not its own input."""
    loads = identity_loads(node, graph, node.attrs["epilogue"])
    return tuple(number for number in loads if node.inputs[number] != node.inputs[0])
