"""The calls of a model's operators: what each is given, from the arena, the constants and the caller."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtool.codegen.conventions import Conventions
from mtool.codegen.functions import Call, Functions
from mtool.codegen.places import place_of
from mtool.codegen.rounds import Rounds, rounds_of
from mtool.codegen.tensor_types import type_name
from mtool.ir import DType, Node
from mtool.manifest import StateTensor, Tensor
from mtool.plan import Plan
from mtool.text import comment


@dataclass(frozen=True, slots=True)
class Interface:
    """The model's inputs and outputs, and what it keeps from call to call."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    states: tuple[StateTensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Repeated:
    """The lines that call each step of a round; in more than one round, they count them in `n`."""

    rounds: Rounds
    steps: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Calls:
    """C statements: the pointers that the operators share, and the lines that call each operator, in order.

    Where the caller keeps inputs and outputs, the calls read them through `inputs` and `outputs`. A call that can fail
    returns the status from the function that it stands in. `memories` are where the values lie that the calls are
    given: the arena, `inputs`, `outputs`.
    """

    pointers: tuple[str, ...]
    operators: tuple[Repeated, ...]
    memories: frozenset[str]

    def uses(self, name: str) -> bool:
        """Whether the calls read the structure `inputs` or `outputs`."""
        return name in self.memories

    def straight(self) -> list[str]:
        """Return the lines that call all operators."""
        lines = []
        for repeated in self.operators:
            called = [line for step in repeated.steps for line in step]
            if repeated.rounds.times > 1:
                head = f"for (int32_t n = 0; n < {repeated.rounds.times}; ++n) {{"
                called = [head, *(f"    {line}" for line in called), "}"]
            lines += called
        return lines

    def one(self, number: str, after: str) -> list[str]:
        """Return the lines that call the operator whose number is the C expression `number`; `after` ends each case."""
        loops = [repeated.rounds for repeated in self.operators if repeated.rounds.times > 1]
        lines: list[str] = []
        if loops and not number.isidentifier():
            lines.append(f"uint16_t number = (uint16_t)({number});")
            number = "number"
        if loops:
            lines.append("int32_t n = 0; /* rounds that have been made */")
        for rounds in loops:
            first, length = rounds.first, rounds.length
            since = f"({number} - {first})" if first else number
            lines += [
                f"if ({number} >= {first} && {number} < {rounds.end}) {{"
                if first
                else f"if ({number} < {rounds.end}) {{",
                f"    n = {since} / {length};",
                f"    {number} = (uint16_t)({number} - {length} * n);",
                "}",
            ]
        lines += [f"switch ({number}) {{"]
        for repeated in self.operators:
            for position, step in enumerate(repeated.steps):
                lines += [
                    f"case {repeated.rounds.first + position}:",
                    *(f"    {line}" for line in step),
                    f"    {after}",
                ]
        return [*lines, "default:", "    return -1;", "}"]


def calls_of(plan: Plan, functions: Functions, interface: Interface, conventions: Conventions) -> Calls:
    """Return the calls of all steps."""
    pointers, made = _pointers(plan, interface)
    operators = []
    passed: set[str] = set()  # some operands are not
    typed = conventions.operators == "typed"
    for rounds in rounds_of(plan, functions):
        steps: list[tuple[str, ...]] = []
        for number in range(rounds.first, rounds.first + rounds.length):
            moves = rounds.moves[number - rounds.first] if rounds.times > 1 else ()
            passed |= _passed(plan, number, functions.calls[number], typed)
            if typed:
                steps.append((_typed(plan, number, functions.calls[number], pointers, moves),))
            else:
                steps.append(_wrapped(plan, number, conventions.operators, pointers))
        operators.append(Repeated(rounds, tuple(steps)))
    used = {pointers[value] for value in passed}
    declarations = [f"{c_type} *const {name} = {place};" for name, c_type, place in made if name in used]
    return Calls(tuple(declarations), tuple(operators), frozenset(place_of(plan, value).memory for value in passed))


def _pointers(plan: Plan, interface: Interface) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    """Return the C of each value's pointer, and the name, type and value of those that have to be declared."""
    graph, model = plan.graph, plan.graph.name
    pointers: dict[str, str] = {}
    declared: dict[tuple[str, int], str] = {}
    made: list[tuple[str, str, str]] = []
    outside = {"inputs": interface.inputs, "outputs": interface.outputs}
    values = [v for s in plan.steps for v in (*s.node.inputs, *s.node.outputs) if v not in graph.constants]
    names = _PointerNames(plan, interface)
    for value in dict.fromkeys(values):
        dtype = graph.types[value].dtype
        where = place_of(plan, value)
        if where.memory != "arena":
            first = where.offset // dtype.size
            name = f"{where.memory}->{outside[where.memory][where.index].c_name}"
            pointers[value] = f"{name} + {first}" if first else name
            continue
        place = (dtype.c, where.offset)
        if place not in declared:
            declared[place] = names(value)
            made.append((declared[place], dtype.c, cast(model, dtype, place[1])))
        pointers[value] = declared[place]
    return pointers, made


def cast(model: str, dtype: DType, offset: int) -> str:
    """Return a C expression for a place in the arena, as a pointer to `dtype`."""
    place = f"{model}_arena + {offset}" if offset else f"{model}_arena"
    return place if dtype.c == "uint8_t" else f"({dtype.c} *)(void *)({place})"


def operands_of(plan: Plan, node: Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what an operator reads and what it writes, each value once and without its constants."""
    constants = plan.graph.constants
    reads = tuple(value for value in dict.fromkeys(node.inputs) if value and value not in constants)
    return reads, tuple(value for value in dict.fromkeys(node.outputs) if value)


class _PointerNames:
    """Names of the arena pointers: the tensor's own for inputs and outputs, act0, act1, … for what is between."""

    def __init__(self, plan: Plan, interface: Interface) -> None:
        graph = plan.graph
        self.own = {
            **{value: f"in_{t.c_name}" for value, t in zip(graph.given, interface.inputs, strict=True)},
            **{value: f"out_{t.c_name}" for value, t in zip(graph.returned, interface.outputs, strict=True)},
            **{kept[1]: f"state_{t.c_name}" for kept, t in zip(graph.kept, interface.states, strict=True)},
        }
        self.count = 0

    def __call__(self, value: str) -> str:
        if value in self.own:
            return self.own[value]
        self.count += 1
        return f"act{self.count - 1}"


def _typed(plan: Plan, number: int, call: Call, pointers: Mapping[str, str], moves: Sequence[int]) -> str:
    arguments = arguments_of(plan, number, call, pointers)
    for place, step in enumerate(moves):
        if step:
            arguments[place] += f" {'-' if step < 0 else '+'} " + ("n" if abs(step) == 1 else f"{abs(step)} * n")
    text = f"{call.function.name}({', '.join(arguments)});"
    title, first = plan.steps[number].node.title, plan.steps[call.function.steps[0]].node.title
    return text if title == first else f"{text} {comment(title)}"


def arguments_of(plan: Plan, number: int, call: Call, pointers: Mapping[str, str]) -> list[str]:
    """Return the arguments of a step's function, in C, where `pointers` has the expression of each value."""
    node = plan.steps[number].node
    model = plan.graph.name
    arguments = []
    for argument in call.function.kernel.arguments:
        source = argument.source
        if source == "output":
            arguments.append(pointers[node.outputs[0]])
        elif source == "scratch":
            offset = plan.scratch[number] or 0  # none is needed for an empty tensor
            place = f"{model}_arena + {offset}" if offset else f"{model}_arena"
            arguments.append(place if argument.c_type == "uint8_t" else f"({argument.c_type} *)(void *)({place})")
        else:
            assert not isinstance(source, str)
            kind, which = source
            if kind == "output":
                arguments.append(pointers[node.outputs[int(which)]])
                continue
            arguments.append(call.constants[str(which)] if kind == "constant" else pointers[node.inputs[int(which)]])
    return arguments


def _passed(plan: Plan, number: int, call: Call, typed: bool) -> set[str]:
    """Return the values whose pointers a step's call has: of typed functions those that the C reads or writes."""
    node = plan.steps[number].node
    if not typed:
        return {value for operands in operands_of(plan, node) for value in operands}
    found = set()
    for argument in call.function.kernel.arguments:
        kind, which = (argument.source, 0) if isinstance(argument.source, str) else argument.source
        if kind == "output":
            found.add(node.outputs[int(which)])
        elif kind == "input":
            found.add(node.inputs[int(which)])
    return found


def _wrapped(plan: Plan, number: int, form: str, pointers: Mapping[str, str]) -> tuple[str, ...]:
    """Return a block that lays the operator's tensors out as its wrapper wants them, and calls that."""
    model, node = plan.graph.name, plan.steps[number].node
    function = f"{model}_{node.name}_{form}"
    values = [value for operands in operands_of(plan, node) for value in operands]
    count = len(values)
    if form == "pointers":
        places = ", ".join(f"(void *){pointers[v]}" if "->" in pointers[v] else pointers[v] for v in values)
        return ("{", f"    void *const arguments[] = {{{places}}};", f"    {function}(arguments);", "}")
    if form == "values":
        places = ", ".join(f"mt_pointer_value({pointers[value]})" for value in values)
        codes = ", ".join(["MT_ARG_HANDLE"] * count)
        declared = [f"union mt_value values[] = {{{places}}};", f"int32_t codes[] = {{{codes}}};"]
        call = f"{function}(values, codes, {count}, 0, 0, 0)"
    else:
        types = [type_name(model, plan.graph.types[value]) for value in values]
        tensors = [f"mt_tensor_of({pointers[value]}, &{name})" for value, name in zip(values, types, strict=True)]
        declared = [
            "DLTensor tensors[] = {",
            *(f"    {tensor}," for tensor in tensors),
            "};",
            f"union mt_value values[{count}];",
            f"int32_t codes[{count}];",
        ]
        call = f"mt_packed_call({function}, tensors, values, codes, {count})"
    lines = [*declared, f"const int32_t status = {call};", "if (status != 0)", "    return status;"]
    return ("{", *(f"    {line}" for line in lines), "}")
