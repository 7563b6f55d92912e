"""Control nodes in C: a function that calls the operators of the taken branch, or those of a body in a loop.

The tensors of a graph lie in the function's scratch, as its plan says; what it reads and writes outside of it are the
function's arguments.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mtool.base.escaping import comment
from mtool.compiler.codegen.addresses import address_of
from mtool.compiler.codegen.arena import IN_PLACE, written
from mtool.compiler.codegen.call_loops import call_loops, moved
from mtool.compiler.codegen.device import body_name
from mtool.compiler.codegen.function import Call, arguments_of, further
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.control import Branches, Rounds
from mtool.compiler.ir.types import Array, TensorType
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.schedule import RESOURCE, Argument, Kernel
from mtool.compiler.plan import Plan
from mtool.compiler.plan.memory import aliases

_INT32_MAX = 2**31 - 1
Symbol = Callable[[str, Array], str]


@dataclass(frozen=True, slots=True)
class Body:
    """A graph of a control node: its plan, and the call of each of its steps; the node, and what the graph is to it."""

    plan: Plan
    calls: Sequence[Call]
    of: tuple[Node, str]


def control_kernel(node: Node, graph: Graph, bodies: Sequence[Body], symbol: Symbol) -> Kernel:
    """Return the function of a control node.

    Args:
        node: the node.
        graph: the one that it stands in.
        bodies: its graphs.
        symbol: gives a constant that the function needs a C symbol, by a name of one's own.
    """
    names = _Names(node, graph)
    lines = _branches(names, bodies) if isinstance(node.attrs, Branches) else _rounds(names, bodies[0], symbol)
    called = [call.function.kernel for body in bodies for call in body.calls]
    can_fail = any(kernel.can_fail for kernel in called)
    handed = [RESOURCE] if any(RESOURCE in kernel.arguments for kernel in called) else []
    lines += ["return 0;"] * can_fail
    text = "\n".join(f"    {line}" if line else "" for line in lines)
    return Kernel((*names.arguments(), *handed), text, can_fail=can_fail)


class _Names:
    """The names of a function's parameters, and which of them it uses."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node, self.graph = node, graph
        self.used: set[str] = set()
        attrs = node.attrs
        leading = ["condition"] if isinstance(attrs, Branches) else []
        if isinstance(attrs, Rounds):
            leading = [*(["trips"] if attrs.has_trips else []), *(["condition"] if attrs.has_condition else [])]
        others = [f"input{number}" for number in range(len(node.inputs) - len(leading))]
        self.inputs = [*leading, *others]
        self.outputs = [f"output{number}" for number in range(len(node.outputs))]
        if len(self.outputs) == 1:
            self.outputs = ["output"]

    def input(self, number: int) -> str:
        """Return the pointer to an input."""
        self.used.add(self.inputs[number])
        return self.inputs[number]

    def output(self, number: int) -> str:
        """Return the pointer to an output."""
        self.used.add(self.outputs[number])
        return self.outputs[number]

    def scratch(self) -> str:
        """Return the pointer to the scratch, in bytes."""
        self.used.add("scratch")
        return "scratch"

    def arguments(self) -> list[Argument]:
        """Return the parameters that are used."""
        types = self.graph.types
        found = [
            Argument(name, types[value].dtype.c, ("input", number))
            for number, (name, value) in enumerate(zip(self.inputs, self.node.inputs, strict=True))
            if name in self.used
        ]
        found += [
            Argument(name, types[value].dtype.c, ("output", number))
            for number, (name, value) in enumerate(zip(self.outputs, self.node.outputs, strict=True))
            if name in self.used
        ]
        return [*found, *([Argument("scratch", "uint8_t", "scratch")] if "scratch" in self.used else [])]


@dataclass(frozen=True, slots=True)
class _Pointer:
    """A pointer into the scratch, `offset` bytes from its start; `over`: the one that is there already."""

    name: str
    c_type: str
    offset: int
    storage: int | None
    over: str

    def declaration(self, scratch: str, *, is_alone: bool) -> str:
        """Return its C; `is_alone`: nothing else lies in the scratch, and it begins there."""
        if self.over:
            return f"{self.c_type} *const {self.name} = {self.over}; {IN_PLACE}"
        place = scratch if is_alone else f"({scratch} + {self.name}_offset)"
        if self.c_type == "uint8_t":
            return f"{self.c_type} *const {self.name} = {place.strip('()')};"
        return f"{self.c_type} *const {self.name} = ({self.c_type} *)(void *){place};"


class _Pointers:
    """The pointers to the values of a body; notes the offsets and the declarations that those in its scratch need."""

    def __init__(
        self, body: Body, scratch: Callable[[], str], inputs: Sequence[Callable[[], str]],
        outputs: Sequence[Callable[[], str]], states: Sequence[Callable[[], str]], own: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.plan, self._scratch = body.plan, scratch
        self.outside = {"inputs": inputs, "outputs": outputs, "states": states}
        self.lies = aliases(body.plan.graph)
        self.names: dict[str, str] = dict(own)
        for root, stem, _ in written(body.plan):
            if root not in self.names:
                taken = {*self.names.values()}
                self.names[root] = next(name for n in range(len(taken) + 1) if (name := _nth(stem, n)) not in taken)
        self.storage = {root: number for number, (piece, _) in enumerate(body.plan.storages) for root in piece.values}
        self.made: dict[str, _Pointer] = {}

    def declared(self) -> list[str]:
        """Return the C of the pointers, and of the offsets that they have in the scratch."""
        own = sorted((one for one in self.made.values() if not one.over), key=lambda one: one.offset)
        if len(own) > 1 or any(one.offset for one in own):
            map_of_scratch = "/* What lies where in the scratch, in bytes from its start. */"
            offsets = [map_of_scratch, "enum {", *(f"    {one.name}_offset = {one.offset}," for one in own), "};"]
        else:
            offsets = []
        return [*offsets, *(one.declaration(self._scratch(), is_alone=not offsets) for one in self.made.values())]

    def value(self, value: str) -> str:
        """Return the pointer to a value."""
        kind, address = self.plan.graph.types[value], address_of(self.plan, value)
        if address.memory != "arena":
            base = self.outside[address.memory][address.index]()
            return further(base, address.offset, kind.dtype.size)
        root, inside = self.lies.get(value, (value, 0))
        name = self._declared(self.names[root], kind.dtype.c, address.offset - inside, self.storage.get(root))
        return further(name, inside, kind.dtype.size)

    def scratch(self, number: int, c_type: str) -> str:
        """Return the pointer to a step's scratch."""
        offset = self.plan.scratch[number]
        if offset is None:
            return "0"
        return self._declared(f"{self.plan.steps[number].node.title}_scratch", c_type, offset)

    def _declared(self, name: str, c_type: str, offset: int, storage: int | None = None) -> str:
        """Return the name of a pointer so many bytes into the scratch; `storage`: the one in which the value lies."""
        there = self.made.get(name)
        if there is not None and (there.c_type, there.offset) != (c_type, offset):
            return self._declared(f"{name}_as_{c_type}", c_type, offset, storage)
        if there is None:
            own = (c_type, offset, storage)
            same = [one for one in self.made.values() if (one.c_type, one.offset, one.storage) == own]
            self.made[name] = _Pointer(name, *own, same[0].name if same and storage is not None else "")
        return name


def _nth(stem: str, number: int) -> str:
    return f"{stem}_{number + 1}" if number else stem


def _calls(body: Body, pointers: _Pointers) -> list[str]:
    """Return a line for each call of a body's operators, those that repeat in loops."""
    lines = []
    for loop in call_loops(body.plan, body.calls):
        called = []
        for number in range(loop.first, loop.first + loop.length):
            call, title = body.calls[number], body.plan.steps[number].node.title
            arguments = arguments_of(body.plan, number, call, pointers.value, pointers.scratch)
            if loop.times > 1:
                arguments = moved(arguments, loop.moves[number - loop.first])
            text = f"{call.function.name}({', '.join(arguments)});"
            if call.function.kernel.can_fail:
                repeats = f" + {loop.length} * n" if loop.times > 1 else ""
                called += _checked(body, number, f"{number}{repeats}", text)
                continue
            called.append(text if title == call.function.uses[0].title else f"{text} {comment(title)}")
        if loop.times > 1:
            called = [f"for (int32_t n = 0; n < {loop.times}; ++n) {{", *(f"    {line}" for line in called), "}"]
        lines += called
    return lines


def _checked(body: Body, number: int, place: str, call: str) -> list[str]:
    """Return the lines that call what may fail, and leave the function if it does; `place` is its number in C."""
    attrs, status = body.plan.steps[number].node.attrs, "status"
    if isinstance(attrs, External):
        key = f"{attrs.model}_{body_name(*body.of)} + {place}"
        status = f"{attrs.model}_failed((uint16_t)({key}), status)"
    return ["{", f"    const int32_t status = {call}", "    if (status != 0)", f"        return {status};", "}"]


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

    wanted = sum(one.is_output for one in attrs.carried)

    def row_out(place: int) -> str:
        kind = graph.types[graph.outputs[attrs.goes_on + place]]
        return _row(names.output(wanted + place), kind, attrs, backwards=attrs.reversed[place])

    inputs = [_later(row_in, place) for place in range(rows)]
    inputs += [_later(names.input, attrs.first_row + place) for place in range(rows, others)]
    outputs = [_later(row_out, place) for place in range(len(attrs.reversed))]
    if attrs.goes_on:
        outputs.insert(0, lambda: "&going")
    states = [value for _, value, _ in graph.state_values]
    own = {value: f"carried{place}" for place, value in enumerate(states)}
    positions = itertools.accumulate((one.is_output for one in attrs.carried), initial=0)
    kept = [_later(names.output, position) for position in positions]
    pointers = _Pointers(body, names.scratch, [*inputs, number], outputs, kept, own)
    called = _calls(body, pointers)
    begin, end = _first_values(names, attrs, pointers, states, symbol), _last_values(names, attrs, pointers, states)
    if not attrs.is_counted:
        for place in range(len(attrs.reversed)):
            kind = names.graph.types[names.node.outputs[wanted + place]]
            begin.append(f"memset({names.output(wanted + place)}, 0, {kind.c_bytes});")
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
    named = any(re.search(r"\bround\b", line) for line in (*called, *tests, *end))
    head = f"for ({'' if attrs.counts else start}; {' && '.join(tests)}; ++round) {{"
    if tests and not named:  # going on is all that is asked
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
    """Return the lines that give the carried values what the first round reads."""
    lines, place = [], attrs.first_carried
    for number, (one, value) in enumerate(zip(attrs.carried, states, strict=True)):
        kind, target = pointers.plan.graph.types[value], pointers.value(value)
        if one.is_given:
            source = names.input(place)
            if value in pointers.plan.in_states:  # and its first value may lie there
                lines.append(f"if ({target} != {source})")
                target = f"    memcpy({target}"
            else:
                target = f"memcpy({target}"
            lines.append(f"{target}, {source}, {kind.c_bytes});")
            place += 1
            continue
        data = np.zeros(kind.shape, kind.dtype.numpy) if one.initial is None else one.initial
        found = {*np.ascontiguousarray(data).tobytes()}
        if len(found) == 1:
            lines.append(f"memset({target}, {found.pop()}, {kind.c_bytes});")
        else:
            lines.append(f"MT_FLASH_COPY({target}, {symbol(f'initial{number}', data)}, {kind.c_bytes});")
    return lines


def _last_values(names: _Names, attrs: Rounds, pointers: _Pointers, states: Sequence[str]) -> list[str]:
    """Return the lines that copy the carried values that are wanted to the outputs."""
    wanted = [value for one, value in zip(attrs.carried, states, strict=True) if one.is_output]
    types = pointers.plan.graph.types
    return [
        f"memcpy({names.output(number)}, {pointers.value(value)}, {types[value].c_bytes});"
        for number, value in enumerate(wanted)
        if value not in pointers.plan.in_states
    ]
