"""The functions of a model: one for each distinct kernel, shared by operators with the same kernel."""

import hashlib
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mtool.base.escaping import comment
from mtool.base.frozen import frozen
from mtool.compiler.codegen.arena import IN_PLACE, Copied, Spot, address_of, written
from mtool.compiler.codegen.c_text import words
from mtool.compiler.codegen.device import body_name
from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.control import Branches, Control, Rounds
from mtool.compiler.ir.parametric import DifferError
from mtool.compiler.ir.types import Array, TensorType
from mtool.compiler.kernels.expressions import layout_of
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.parametric_c import numbers_apart, skeleton_of, token_count, unrolled
from mtool.compiler.kernels.schedule import RESOURCE, Argument, Kernel, defined_by
from mtool.compiler.plan import Plan, Step
from mtool.compiler.plan.memory import aliases
from mtool.compiler.plan.pool import Pool
from mtool.compiler.plan.pools import with_copies
from mtool.compiler.plan.sized import sized_control
from mtool.compiler.plan.whole import ControlSchedule

# One function for operators whose C differs only in numbers: each operator has a table of them (`--optimize size`).

NUMBERS = "numbers"
"""The argument with the operator's own numbers."""
SMALL_SHARE = 0.02
"""The share of the inference below which loops are not unrolled."""
UNROLL = 4
"""Turns that are written out of the other loops."""
_BYTES_A_TOKEN = 1.6  # of code
_CALL = 8  # bytes of a call with another argument
_READ = 6  # bytes to read a number

# Inlined functions of the runtime whose arguments may be known only at run time. Others are inlined for constants, and
# some write these into instructions.
_AT_RUN_TIME = frozenset(
    {
        "mt_dsp_widen1",
        "mt_dsp_widen2",
        "mt_dsp_widen3",
        "mt_dsp_widen1_2x2",
        "mt_dsp_fill1",
        "mt_dsp_fill1_2x2",
        "mt_dsp_sum",
        "mt_dsp_sums",
        "mt_factor",
    }
)


@dataclass(slots=True)
class _Alike:
    """Kernels that differ at most in numbers, by the likenesses of their steps; their calls and their cost."""

    kernels: dict[Hashable, Kernel] = field(default_factory=dict)
    calls: int = 0
    cost: float = 0.0


def common_kernels(plan: Plan) -> dict[Hashable, Kernel]:
    """Return the kernels of a plan's steps, by their likenesses: those that differ only in numbers have one body."""
    graph, group_of, groups = plan.graph, dict[Hashable, _Alike](), dict[Hashable, _Alike]()
    for step in plan.steps:
        if isinstance(step.node.attrs, Control | External):
            continue
        likeness = graph.likeness(step.node)
        if likeness not in group_of:
            kernel = step.schedule.emit(step.node, graph, plan.target)
            key = kernel.arguments, skeleton_of(kernel.body), kernel.level, kernel.is_hot, kernel.inner, kernel.can_fail
            group_of[likeness] = groups.setdefault(key, _Alike())
            group_of[likeness].kernels[likeness] = kernel
        group_of[likeness].calls += 1
        group_of[likeness].cost += step.schedule.cost(step.node, graph, plan.target)
    kernels: dict[Hashable, Kernel] = {}
    total = sum(alike.cost for alike in groups.values())
    for alike in groups.values():
        unroll = UNROLL if alike.cost >= SMALL_SHARE * total else 0
        alike.kernels = {key: replace(k, body=unrolled(k.body, unroll)) for key, k in alike.kernels.items()}
        kernels |= alike.kernels | _joined(alike)
    return kernels


def _joined(alike: _Alike) -> dict[Hashable, Kernel]:
    """Return kernels with a common body and a table of numbers each; none if that would not make the code smaller."""
    kernels = list(alike.kernels.values())
    bodies = [kernel.body for kernel in kernels]
    count = len(set(bodies))
    if count == 1:
        return {}
    names = {defined_by(line) for kernel in kernels for line in kernel.shared}
    try:
        body, columns = numbers_apart(bodies, NUMBERS, frozenset(names) | _AT_RUN_TIME)
    except DifferError:
        return {}
    code = _BYTES_A_TOKEN * token_count(bodies[0])
    if (count - 1) * code <= (_READ + 2 * count) * len(columns) + _CALL * alike.calls:
        return {}
    first = kernels[0]
    common = replace(
        first,
        arguments=(
            *first.arguments,
            Argument(NUMBERS, "int16_t" if _are_short(columns) else "int32_t", ("constant", NUMBERS)),
        ),
        body=body,
        needs_math=any(kernel.needs_math for kernel in kernels),
        headers=tuple(dict.fromkeys(name for kernel in kernels for name in kernel.headers)),
        shared=tuple(dict.fromkeys(line for kernel in kernels for line in kernel.shared)),
    )
    joined = {}
    for number, (likeness, kernel) in enumerate(alike.kernels.items()):
        table = np.array([column[number] for column in columns], np.int16 if _are_short(columns) else np.int32)
        joined[likeness] = replace(
            common,
            in_ram=kernel.in_ram,
            constants={**kernel.constants, NUMBERS: table},
            layouts={**kernel.layouts, NUMBERS: "the numbers of the function for this operator"},
        )
    return joined


def _are_short(columns: Sequence[Sequence[int]]) -> bool:
    return all(-(1 << 15) <= number < 1 << 15 for column in columns for number in column)


# A function of a model, the operators that call it, and its arguments.


@frozen
class Use:
    """A step that calls a function, in the model's plan or in the plan of a graph inside it."""

    plan: Plan
    number: int

    @property
    def title(self) -> str:
        """The operator's name."""
        return self.plan.steps[self.number].node.title


@dataclass(slots=True)
class Function:
    """One C function: its name, its kernel, and the steps that call it; `is_borrowed`: another model defines it."""

    name: str
    kernel: Kernel
    uses: list[Use] = field(default_factory=list)
    is_borrowed: bool = False

    @property
    def prototype(self) -> str:
        """The C declaration, without a semicolon."""
        result = "int32_t" if self.kernel.can_fail else "void"
        return f"{result} {self.name}({', '.join(argument.declaration for argument in self.kernel.arguments)})"


@frozen
class Call:
    """One step's call: the function, the step's own constants by argument name -> symbol."""

    function: Function
    constants: Mapping[str, str]

    def operands(self, node: Node) -> list[tuple[str, str]]:
        """Return each argument's kind: "value" and its name, "constant" and its symbol, "scratch" or "resource"."""
        operands = []
        for argument in self.function.kernel.arguments:
            kind, index = (argument.source, 0) if isinstance(argument.source, str) else argument.source
            if kind == "constant":
                operands.append((kind, self.constants[str(index)]))
            elif kind in ("input", "output"):
                operands.append(("value", (node.inputs if kind == "input" else node.outputs)[int(index)]))
            else:
                operands.append((kind, ""))
        return operands

    def text(self, arguments: Sequence[str], title: str) -> str:
        """Return the statement; a comment names the operator, unless it is the function's first."""
        text = f"{self.function.name}({', '.join(arguments)});"
        is_plain = self.function.kernel.can_fail or title == self.function.uses[0].title
        return text if is_plain else f"{text} {comment(title)}"


def arguments_of(
    plan: Plan,
    number: int,
    call: Call,
    pointer: Callable[[str], str],
    scratch: Callable[[int, str], str],
    constant: Callable[[str], str] = str,
) -> list[str]:
    """Return the arguments of a step's function, in C.

    `pointer` returns the expression of a value, `scratch` that of a step's scratch as a pointer to a C type, and
    `constant` that of a constant by its symbol.
    """
    arguments = []
    described = zip(call.function.kernel.arguments, call.operands(plan.steps[number].node), strict=True)
    for argument, (kind, name) in described:
        if kind == "scratch":
            arguments.append(scratch(number, argument.c_type))
        else:
            arguments.append({"value": pointer, "constant": constant}[kind](name) if name else argument.name)
    return arguments


def checked(call: str, failed: str) -> list[str]:
    """Return the block that makes a call which may fail, and returns the status from the function if it does."""
    return ["{", f"    const int32_t status = {call}", "    if (status != 0)", f"        return {failed};", "}"]


def further(pointer: str, offset: int, size: int) -> str:
    """Return a pointer advanced by `offset` bytes, a multiple of the element size."""
    assert offset % size == 0, f"{pointer}: {offset} bytes are not a multiple of the element size {size}"
    return f"{pointer} {'-' if offset < 0 else '+'} {abs(offset) // size}" if offset else pointer


# Loops of calls: calls that repeat with addresses that advance, as in row-wise execution.


LONGEST = 96  # steps of a loop's body
LEAST = 3  # iterations that are worth a loop


@frozen
class CallLoop:
    """A loop over calls: `times` iterations of the `length` steps from `first` on; a single step is a loop of one.

    In each iteration after the first, the arguments of the steps advance by `moves` elements: a row for each step, a
    number for each of its arguments.
    """

    first: int
    length: int = 1
    times: int = 1
    moves: tuple[tuple[int, ...], ...] = ()

    @property
    def end(self) -> int:
        """The step after them."""
        return self.first + self.length * self.times

    def around(self, lines: Sequence[str]) -> list[str]:
        """Return the lines of an iteration as the loop in C, which `n` counts."""
        if self.times == 1:
            return [*lines]
        return [f"for (int32_t n = 0; n < {self.times}; ++n) {{", *(f"    {line}" for line in lines), "}"]


@frozen
class Described:
    """The call of a step: what must be equal in every iteration, the addresses of its arguments, and their sizes."""

    same: tuple[object, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


def call_loops(plan: Plan, calls: Sequence[Call], first: int = 0) -> tuple[CallLoop, ...]:
    """Return the steps from `first` on as loops, in order; without row-wise execution each step is a loop of one."""
    if not plan.graph.line_buffers:
        return tuple(CallLoop(number) for number in range(first, len(plan.steps)))
    descriptions = [described(plan, call, number) for number, call in enumerate(calls)]
    loops: list[CallLoop] = []
    number = first
    while number < len(descriptions):
        loops.append(_longest(descriptions, number))
        number = loops[-1].end
    return tuple(loops)


def described(plan: Plan, call: Call, number: int) -> Described:
    """Return the call of a step; the address of an argument that is not a value is 0."""
    same: list[object] = [call.function.name]
    offsets, sizes = [], []
    for kind, name in call.operands(plan.steps[number].node):
        if kind == "value":
            address, dtype = address_of(plan, name), plan.graph.types[name].dtype
            same += [address.memory, address.index, dtype.c]
            offsets.append(address.offset)
            sizes.append(dtype.size)
        else:
            same.append(plan.scratch[number] if kind == "scratch" else name)
            offsets.append(0)
            sizes.append(1)
    return Described(tuple(same), tuple(offsets), tuple(sizes))


def _longest(calls: Sequence[Described], first: int) -> CallLoop:
    """Return the loop that begins with a step and saves the most calls."""
    best, saved = CallLoop(first), 0
    for length in range(1, min(LONGEST, (len(calls) - first) // LEAST) + 1):
        moves = _moves(calls, first, length, None)
        if moves is None:
            continue
        times = 2
        while first + (times + 1) * length <= len(calls) and _moves(calls, first + (times - 1) * length, length, moves):
            times += 1
        if times >= LEAST and (times - 1) * length > saved:
            best, saved = CallLoop(first, length, times, moves), (times - 1) * length
    return best


def _moves(
    calls: Sequence[Described], first: int, length: int, expected: tuple[tuple[int, ...], ...] | None
) -> tuple[tuple[int, ...], ...] | None:
    """Return how far the next `length` calls advance from those at `first`; None: other calls, or not `expected`."""
    moves = []
    for position in range(length):
        call, later = calls[first + position], calls[first + position + length]
        if call.same != later.same:
            return None
        moved = tuple(b - a for a, b in zip(call.offsets, later.offsets, strict=True))
        if any(by % size for by, size in zip(moved, call.sizes, strict=True)):
            return None
        moves.append(tuple(by // size for by, size in zip(moved, call.sizes, strict=True)))
    return None if expected is not None and tuple(moves) != expected else tuple(moves)


def moved(arguments: Sequence[str], moves: Sequence[int]) -> list[str]:
    """Return the arguments of a call in a loop with counter `n`: each advances by its step of elements."""
    return [
        f"{argument} {'-' if step < 0 else '+'} {'n' if abs(step) == 1 else f'{abs(step)} * n'}" if step else argument
        for argument, step in zip(arguments, moves, strict=True)
    ]


# Control nodes in C: a function that calls the operators of the selected branch, or those of a loop's body.
#
# The tensors of a graph lie in the function's scratch, where its plan puts them; the tensors that it reads and writes
# outside are the function's arguments.


_INT32_MAX = 2**31 - 1
Symbol = Callable[[str, Array], str]


@frozen
class Body:
    """A graph of a control node: its plan, the call of each of its steps, the node, and the graph's role."""

    plan: Plan
    calls: Sequence[Call]
    of: tuple[Node, str]


def control_kernel(node: Node, graph: Graph, bodies: Sequence[Body], symbol: Symbol) -> Kernel:
    """Return the function of a control node.

    Args:
        node: the node.
        graph: the graph that contains it.
        bodies: its own graphs.
        symbol: returns the C symbol of a constant that the function needs, from its name there.
    """
    names = _Names(node, graph)
    lines = _branches(names, bodies) if isinstance(node.attrs, Branches) else _rounds(names, bodies[0], symbol)
    called = [call.function.kernel for body in bodies for call in body.calls]
    can_fail = any(kernel.can_fail for kernel in called)
    resource = [RESOURCE] if any(RESOURCE in kernel.arguments for kernel in called) else []
    lines += ["return 0;"] * can_fail
    text = "\n".join(f"    {line}" if line else "" for line in lines)
    return Kernel((*names.arguments(), *resource), text, can_fail=can_fail)


class _Names:
    """The names of a function's parameters; records which of them it uses."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node, self.graph = node, graph
        self.used: set[str] = set()
        attrs, leading = node.attrs, ["condition"]
        if isinstance(attrs, Rounds):
            leading = ["trips"] * attrs.has_trips + leading * attrs.has_condition
        self.inputs = [*leading, *(f"input{number}" for number in range(len(node.inputs) - len(leading)))]
        count = len(node.outputs)
        self.outputs = ["output"] if count == 1 else [f"output{number}" for number in range(count)]

    def input(self, number: int) -> str:
        """Return the pointer to an input."""
        return self._use(self.inputs[number])

    def output(self, number: int) -> str:
        """Return the pointer to an output."""
        return self._use(self.outputs[number])

    def scratch(self) -> str:
        """Return the pointer to the scratch, in bytes."""
        return self._use("scratch")

    def _use(self, name: str) -> str:
        self.used.add(name)
        return name

    def arguments(self) -> list[Argument]:
        """Return the parameters that are used."""
        tensors = [
            Argument(name, self.graph.types[value].dtype.c, (kind, number))
            for kind, names, values in (
                ("input", self.inputs, self.node.inputs),
                ("output", self.outputs, self.node.outputs),
            )
            for number, (name, value) in enumerate(zip(names, values, strict=True))
            if name in self.used
        ]
        return [*tensors, *([Argument("scratch", "uint8_t", "scratch")] if "scratch" in self.used else [])]


@frozen
class _Pointer:
    """A pointer into the scratch, `offset` bytes from its start; `over`: an existing pointer to that place."""

    name: str
    c_type: str
    offset: int
    storage: int | None
    over: str

    def declaration(self, scratch: str, *, is_alone: bool) -> str:
        """Return its declaration; `is_alone`: nothing else lies in the scratch, and it begins at its start."""
        if self.over:
            return f"{self.c_type} *const {self.name} = {self.over}; {IN_PLACE}"
        place = scratch if is_alone else f"({scratch} + {self.name}_offset)"
        if self.c_type == "uint8_t":
            return f"{self.c_type} *const {self.name} = {place.strip('()')};"
        return f"{self.c_type} *const {self.name} = ({self.c_type} *)(void *){place};"


class _Pointers:
    """The pointers to a body's values; collects the offsets and declarations for those in its scratch."""

    def __init__(
        self, body: Body, scratch: Callable[[], str], inputs: Sequence[Callable[[], str]],
        outputs: Sequence[Callable[[], str]], states: Sequence[Callable[[], str]], names: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.plan, self._scratch = body.plan, scratch
        self.outside = {"inputs": inputs, "outputs": outputs, "states": states}
        self.lies = aliases(body.plan.graph)
        self.names: dict[str, str] = dict(names)
        for root, stem, _ in written(body.plan):
            if root not in self.names:
                used, numbered = {*self.names.values()}, (f"{stem}_{number}" for number in itertools.count(2))
                self.names[root] = next(name for name in itertools.chain([stem], numbered) if name not in used)
        self.storage = {root: number for number, (piece, _) in enumerate(body.plan.storages) for root in piece.values}
        self.pointers: dict[str, _Pointer] = {}

    def declared(self) -> list[str]:
        """Return the C of the pointers and of their offsets in the scratch."""
        placed = sorted((p for p in self.pointers.values() if not p.over), key=lambda p: p.offset)
        if len(placed) > 1 or any(p.offset for p in placed):
            map_of_scratch = "/* Offsets in the scratch, in bytes from its start. */"
            offsets = [map_of_scratch, "enum {", *(f"    {p.name}_offset = {p.offset}," for p in placed), "};"]
        else:
            offsets = []
        return [*offsets, *(p.declaration(self._scratch(), is_alone=not offsets) for p in self.pointers.values())]

    def value(self, value: str) -> str:
        """Return the pointer to a value."""
        kind, address = self.plan.graph.types[value], address_of(self.plan, value)
        if address.memory != "arena":
            base = self.outside[address.memory][address.index]()
            return further(base, address.offset, kind.dtype.size)
        root, inside = self.lies[value]
        name = self._declared(self.names[root], kind.dtype.c, address.offset - inside, self.storage.get(root))
        return further(name, inside, kind.dtype.size)

    def scratch(self, number: int, c_type: str) -> str:
        """Return the pointer to a step's scratch."""
        offset = self.plan.scratch[number]
        if offset is None:
            return "0"
        return self._declared(f"{self.plan.steps[number].node.title}_scratch", c_type, offset)

    def _declared(self, name: str, c_type: str, offset: int, storage: int | None = None) -> str:
        """Return the name of a pointer `offset` bytes into the scratch; `storage`: the one that holds the value."""
        pointer = self.pointers.get(name)
        if pointer is not None and (pointer.c_type, pointer.offset) != (c_type, offset):
            return self._declared(f"{name}_as_{c_type}", c_type, offset, storage)
        if pointer is None:
            key = (c_type, offset, storage)
            same = [p for p in self.pointers.values() if (p.c_type, p.offset, p.storage) == key]
            self.pointers[name] = _Pointer(name, *key, same[0].name if same and storage is not None else "")
        return name


def _calls(body: Body, pointers: _Pointers) -> list[str]:
    """Return a line for each call of a body's operators; repeated calls become loops."""
    lines = []
    for loop in call_loops(body.plan, body.calls):
        called = []
        for number in range(loop.first, loop.first + loop.length):
            call, node = body.calls[number], body.plan.steps[number].node
            arguments = arguments_of(body.plan, number, call, pointers.value, pointers.scratch)
            if loop.times > 1:
                arguments = moved(arguments, loop.moves[number - loop.first])
            text, status = call.text(arguments, node.title), "status"
            if isinstance(node.attrs, External):
                key = f"{node.attrs.model}_{body_name(*body.of)} + {number}"
                key += f" + {loop.length} * n" if loop.times > 1 else ""
                status = f"{node.attrs.model}_failed((uint16_t)({key}), status)"
            called += checked(text, status) if call.function.kernel.can_fail else [text]
        lines += loop.around(called)
    return lines


def _branches(names: _Names, bodies: Sequence[Body]) -> list[str]:
    lines = []
    for head, body in zip((f"if (*{names.input(0)}) {{", "} else {"), bodies, strict=True):
        inputs = [_later(names.input, number + 1) for number in range(len(names.inputs) - 1)]
        outputs = [_later(names.output, number) for number in range(len(names.outputs))]
        pointers = _Pointers(body, names.scratch, inputs, outputs, (), {})
        called = _calls(body, pointers)
        lines += [head, *(f"    {line}" for line in (*pointers.declared(), *called))]
    return [*lines, "}"]


def _later(name: Callable[[int], str], number: int) -> Callable[[], str]:
    return lambda: name(number)


def _rounds(names: _Names, body: Body, symbol: Symbol) -> list[str]:
    attrs, graph = Rounds.of(names.node), body.plan.graph
    rows, others = len(attrs.backwards), len(names.inputs) - attrs.first_row
    reads_number = False

    def number() -> str:
        nonlocal reads_number
        reads_number = True
        return "&round"

    def row_in(place: int) -> str:
        kind = graph.types[graph.inputs[place]]
        return _row(names.input(attrs.first_row + place), kind, attrs, backwards=attrs.backwards[place])

    carried_count = sum(state.is_output for state in attrs.carried)

    def row_out(place: int) -> str:
        kind = graph.types[graph.outputs[attrs.goes_on + place]]
        return _row(names.output(carried_count + place), kind, attrs, backwards=attrs.reversed[place])

    inputs = [_later(row_in, place) for place in range(rows)]
    inputs += [_later(names.input, attrs.first_row + place) for place in range(rows, others)]
    outputs = [_later(row_out, place) for place in range(len(attrs.reversed))]
    if attrs.goes_on:
        outputs.insert(0, lambda: "&going")
    states = [value for _, value, _ in graph.state_values]
    carried = {value: f"carried{place}" for place, value in enumerate(states)}
    positions = itertools.accumulate((state.is_output for state in attrs.carried), initial=0)
    state_outputs = [_later(names.output, position) for position in positions]
    pointers = _Pointers(body, names.scratch, [*inputs, number], outputs, state_outputs, carried)
    called = _calls(body, pointers)
    begin, end = _first_values(names, attrs, pointers, states, symbol), _last_values(names, attrs, pointers, states)
    if not attrs.is_counted:
        for place in range(len(attrs.reversed)):
            kind = names.graph.types[names.node.outputs[carried_count + place]]
            begin.append(f"memset({names.output(carried_count + place)}, 0, {kind.c_bytes});")
    if attrs.has_condition:
        begin.append(f"uint8_t going = *{names.input(int(attrs.has_trips))};")
    elif attrs.goes_on:
        begin.append("uint8_t going = 1;")
    is_small = attrs.most is not None and attrs.most <= _INT32_MAX and not reads_number
    c_type = "int32_t" if is_small else "int64_t"
    tests = [*(["going"] if attrs.has_condition or attrs.goes_on else [])]
    if attrs.has_trips:
        tests.append(f"round < *{names.input(0)}")
    if attrs.most is not None:
        tests.append(f"round < {attrs.most}{'LL' * (attrs.most > _INT32_MAX)}")
    start = f"{c_type} round = 0"
    if attrs.counts:
        begin.append(f"{start};")
        end.insert(0, f"*{names.output(len(names.outputs) - 1)} = (int32_t)round;")
    named = "round" in words((*called, *tests, *end))
    head = f"for ({'' if attrs.counts else start}; {' && '.join(tests)}; ++round) {{"
    if tests and not named:  # only whether to go on matters
        head = f"while ({' && '.join(tests)}) {{"
    return [*pointers.declared(), *begin, head, *(f"    {line}" for line in called), "}", *end]


def _row(pointer: str, kind: TensorType, attrs: Rounds, *, backwards: bool) -> str:
    """Return the pointer to the row of this round."""
    assert not backwards or attrs.most is not None
    number = f"({(attrs.most or 0) - 1} - round)" if backwards else "round"
    return f"{pointer} + {number} * {kind.count}" if kind.count != 1 else f"{pointer} + {number}"


def _first_values(
    names: _Names, attrs: Rounds, pointers: _Pointers, states: Sequence[str], symbol: Symbol
) -> list[str]:
    """Return the lines that initialize the carried values for the first round."""
    lines, place = [], attrs.first_carried
    for number, (state, value) in enumerate(zip(attrs.carried, states, strict=True)):
        kind, target = pointers.plan.graph.types[value], pointers.value(value)
        if state.is_given:
            source = names.input(place)
            if value in pointers.plan.in_states:  # and its first value may lie there
                lines.append(f"if ({target} != {source})")
                target = f"    memcpy({target}"
            else:
                target = f"memcpy({target}"
            lines.append(f"{target}, {source}, {kind.c_bytes});")
            place += 1
            continue
        data = np.zeros(kind.shape, kind.dtype.numpy) if state.initial is None else state.initial
        byte_values = {*np.ascontiguousarray(data).tobytes()}
        if len(byte_values) == 1:
            lines.append(f"memset({target}, {byte_values.pop()}, {kind.c_bytes});")
        else:
            lines.append(f"MT_FLASH_COPY({target}, {symbol(f'initial{number}', data)}, {kind.c_bytes});")
    return lines


def _last_values(names: _Names, attrs: Rounds, pointers: _Pointers, states: Sequence[str]) -> list[str]:
    """Return the lines that copy the carried values in use to the outputs."""
    outputs = [value for state, value in zip(attrs.carried, states, strict=True) if state.is_output]
    types = pointers.plan.graph.types
    return [
        f"memcpy({names.output(number)}, {pointers.value(value)}, {types[value].c_bytes});"
        for number, value in enumerate(outputs)
        if value not in pointers.plan.in_states
    ]


_FunctionKey = tuple[tuple[Argument, ...], str, str, bool]
_ConstantKey = tuple[str, tuple[int, ...], bytes, bool, bool]


@frozen
class Stored:
    """The functions and constants that models of a firmware define for those after them; each model adds to it."""

    functions: dict[_FunctionKey, Function] = field(default_factory=dict)
    constants: dict[_ConstantKey, str] = field(default_factory=dict)


@frozen
class Functions:
    """All functions, the call of each step, the constants by symbol, and the constants' layouts.

    `plan` is the model's. The constants of its graph have no elements (Graph.without_elements): `constants` has them
    in packed form, so that a large model is not held twice. `in_ram` are the constants that lie in RAM. `borrowed`
    are the constants that another model of the firmware defines, by its symbols. `copied` are those with copies in
    pools, `in_pools` has the memory of each if they lie in several.
    """

    plan: Plan
    functions: tuple[Function, ...]
    calls: tuple[Call, ...]
    constants: dict[str, Array]
    layouts: Mapping[str, str]
    in_ram: frozenset[str] = frozenset()
    borrowed: dict[str, Array] = field(default_factory=dict)
    copied: Mapping[str, Copied] = field(default_factory=dict)
    in_pools: Mapping[str, Pool] = field(default_factory=dict)

    @property
    def defined(self) -> tuple[Function, ...]:
        """The functions that the model itself defines."""
        return tuple(func for func in self.functions if not func.is_borrowed)

    @property
    def read(self) -> dict[str, Array]:
        """All constants that the model reads, its own and those of other models."""
        return {**self.constants, **self.borrowed}

    def constant_bytes(self) -> dict[str, dict[str, int]]:
        """Return the bytes of the constants that each operator reads, by their symbols."""
        sizes: dict[str, dict[str, int]] = {}
        for step, call in zip(self.plan.steps, self.calls, strict=True):
            entry = sizes.setdefault(step.node.title, {})
            entry |= {symbol: self.read[symbol].nbytes for symbol in call.constants.values()}
        return sizes


def emit_functions(plan: Plan, stored: Stored | None = None) -> Functions:
    """Emit every step's kernel; equal kernels become one function, equal constants one array.

    `stored` are those of the models before it in the same firmware, which it reuses.
    """
    registry = _Registry(plan.graph.name, stored or Stored())
    if plan.graph.for_size:
        registry.kernels |= common_kernels(plan)
    emitted = replace(plan, graph=plan.graph.without_elements())
    calls = registry.calls(plan, emitted)
    return Functions(
        emitted, tuple(registry.functions.values()), tuple(calls), registry.constants, registry.layouts,
        frozenset(registry.in_ram), registry.borrowed,
    )  # fmt: skip


def with_copies_in_pools(functions: Functions) -> Functions:
    """Return the functions with copies of constants in the pools with enough space."""
    plan = functions.plan
    sizes: dict[str, dict[str, int]] = {}
    for step, call in zip(plan.steps, functions.calls, strict=True):
        symbols = {*call.constants.values()}
        if not isinstance(step.node.attrs, Control) and symbols <= {*functions.constants} - functions.in_ram:
            entry = sizes.setdefault(step.node.title, {})
            entry |= {symbol: functions.constants[symbol].nbytes for symbol in call.constants.values()}
    new_plan, copies = with_copies(plan, sizes)
    copied = {}
    for symbol, (pool, offset) in copies.items():
        data = functions.constants[symbol]
        spot = Spot(symbol.removeprefix(f"{plan.graph.name}_"), offset, pool=pool)
        copied[symbol] = Copied(spot, data.nbytes, DType.of(data.dtype).c)
    return replace(functions, plan=new_plan, copied=copied)


class _Registry:
    """Collects the functions and constants of a model as they are needed."""

    def __init__(self, model: str, stored: Stored) -> None:
        self.model, self.stored = model, stored
        self.functions: dict[_FunctionKey, Function] = {}
        self.constants: dict[str, Array] = {}
        self.borrowed: dict[str, Array] = {}
        self.layouts: dict[str, str] = {}
        self.in_ram: set[str] = set()
        self._symbols: dict[tuple[str, tuple[int, ...], bytes, bool], str] = {}
        self.kernels: dict[Hashable, Kernel] = {}
        self._alike: dict[Hashable, Call] = {}

    def calls(self, plan: Plan, used_by: Plan) -> list[Call]:
        """Return the call of each step; the functions of its graphs come before it.

        `used_by` is the same plan for users that need no elements of its constants.
        """
        calls = []
        for number, step in enumerate(plan.steps):
            likeness = plan.graph.likeness(step.node)
            if likeness not in self._alike:
                self._alike[likeness] = self._call(plan, step)
            calls.append(self._alike[likeness])
            calls[-1].function.uses.append(Use(used_by, number))
        return calls

    def _call(self, plan: Plan, step: Step) -> Call:
        if isinstance(step.schedule, ControlSchedule):
            return self._control(plan, step, step.schedule)
        kernel = self.kernels.get(plan.graph.likeness(step.node))
        kernel = kernel or step.schedule.emit(step.node, plan.graph, plan.target)
        used = {
            name: self._symbol(
                f"{step.node.name}_{name}", data, kernel.layouts.get(name) or layout_of(name, data), kernel.in_ram
            )
            for name, data in kernel.constants.items()
        }
        return Call(self._function(step, kernel), used)

    def _control(self, plan: Plan, step: Step, schedule: ControlSchedule) -> Call:
        """Return the call of a control node; its constants are those of all calls in it."""
        assert isinstance(step.node.attrs, Control)
        named = zip(step.node.attrs.names, schedule.plans, strict=True)
        bodies = [Body(inner, self.calls(inner, inner), (step.node, name)) for name, inner in named]
        used = {symbol: symbol for body in bodies for call in body.calls for symbol in call.constants.values()}

        def symbol(name: str, data: Array) -> str:
            new_symbol = self._symbol(f"{step.node.name}_{name}", data, layout_of(name, data))
            used[new_symbol] = new_symbol
            return new_symbol

        def kernel(node: Node, graph: Graph) -> Kernel:
            return control_kernel(node, graph, bodies, symbol)

        is_sized = step.node.name in plan.graph.sized_nodes
        control = sized_control(step.node, plan.graph, kernel) if is_sized else kernel(step.node, plan.graph)
        return Call(self._function(step, control), used)

    def _function(self, step: Step, kernel: Kernel) -> Function:
        without = replace(kernel, constants={})  # which are of each step, and identified only by their symbols
        key = (kernel.arguments, kernel.body, kernel.level, kernel.is_hot)
        if key not in self.functions:
            alone = not kernel.can_fail and not kernel.inner and not isinstance(step.node.attrs, Control)
            old = self.stored.functions.get(key) if alone else None
            new = Function(old.name if old else f"{self.model}_{step.node.name}", without, is_borrowed=bool(old))
            self.functions[key] = new
            if alone and old is None:
                self.stored.functions[key] = new
        return self.functions[key]

    def _symbol(self, stem: str, data: Array, layout: str, in_ram: bool = False) -> str:
        elements: Any = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        key = (data.dtype.str, data.shape, hashlib.sha256(elements).digest(), in_ram)
        if key not in self._symbols:
            whole = (*key, layout.startswith("aligned"))
            symbol = self.stored.constants.setdefault(whole, f"{self.model}_{stem}")
            self._symbols[key] = symbol
            self.in_ram |= {symbol} if in_ram else set()
            target = self.constants if symbol == f"{self.model}_{stem}" else self.borrowed
            target[symbol] = data
            self.layouts[symbol] = layout
        return self._symbols[key]
