"""The calls of a model's operators, with arguments from the arena, the constants and the caller."""

from collections.abc import Sequence

from mtool.base.frozen import frozen
from mtool.compiler.codegen.arena import IN_PLACE, PARAMETER, Spot, address_of
from mtool.compiler.codegen.device import is_failing
from mtool.compiler.codegen.functions import (
    Call,
    CallLoop,
    arguments_of,
    call_loops,
    checked,
    further,
    moved,
)
from mtool.compiler.codegen.model import CModel
from mtool.compiler.codegen.streamed import head_steps
from mtool.compiler.codegen.tensors import type_name
from mtool.compiler.ir import Node
from mtool.compiler.kernels.schedule import RESOURCE
from mtool.compiler.plan import Plan
from mtool.compiler.plan.memory import aliases


@frozen
class Repeated:
    """The lines that call each step of a loop's body; with more than one iteration, `n` counts them."""

    loop: CallLoop
    steps: tuple[tuple[str, ...], ...]


@frozen
class Calls:
    """C statements: the pointers that the operators share, and the lines that call each operator, in order.

    If the caller keeps inputs and outputs, the calls use them through `inputs` and `outputs`. If `can_fail`, a
    failed call returns the status from the enclosing function. `memories` are the places of the calls' arguments:
    the arena, `inputs`, `outputs`. `context` is the arena as a parameter if the caller has it, and
    `context_declared` its declaration. `resource` is the parameter that is passed on to devices, if one needs it.
    """

    pointers: tuple[str, ...]
    operators: tuple[Repeated, ...]
    memories: frozenset[str]
    can_fail: bool
    context: tuple[str, ...] = ()
    context_declared: tuple[str, ...] = ()
    resource: tuple[str, ...] = ()

    @property
    def passed(self) -> tuple[str, ...]:
        """The arguments of a function that makes the calls, by parameter name."""
        return (*self.context, *self.structures, *self.resource)

    @property
    def structures(self) -> tuple[str, ...]:
        """The structures, `inputs` and `outputs`, that the calls read."""
        return tuple(name for name in ("inputs", "outputs") if name in self.memories)

    def numbered(self) -> list[str]:
        """Return the lines that call all operators, each after `OPERATOR(number)`."""
        lines = []
        for repeated in self.operators:
            first, length, times = repeated.loop.first, repeated.loop.length, repeated.loop.times
            called = []
            for position, (head, *rest) in enumerate(repeated.steps):
                rounds = [] if times == 1 else ["n" if length == 1 else f"{length} * n"]
                start = [str(first + position)] if first + position or not rounds else []
                called += [f"OPERATOR({' + '.join([*start, *rounds])}) {head}", *rest]
            lines += repeated.loop.around(called)
        return lines


def calls_of(model: CModel) -> Calls:
    """Return the calls of all steps, except those made as rows of an input arrive (codegen.streamed_prefix)."""
    plan, functions, pointers = model.plan, model.functions, _Pointers(model)
    operators = []
    memories: set[str] = set()
    typed = model.conventions.operators == "typed"
    for loop in call_loops(plan, functions.calls, head_steps(plan)):
        steps: list[tuple[str, ...]] = []
        for number in range(loop.first, loop.first + loop.length):
            moves = loop.moves[number - loop.first] if loop.times > 1 else ()
            call = functions.calls[number]
            memories |= {address_of(plan, value).memory for value in _passed(plan, number, call, typed)}
            if typed:
                repeats = f" + {loop.length} * n" if loop.times > 1 else ""
                steps.append(_typed(model, number, pointers, moves, f"{number}{repeats}"))
            else:
                steps.append(_wrapped(model, number, model.conventions.operators, pointers))
        operators.append(Repeated(loop, tuple(steps)))
    can_fail = model.conventions.operators in ("values", "packed") or model.devices.can_fail
    context, resource = (PARAMETER,) * model.arena.is_callers, (RESOURCE.name,) * model.devices.take_resource
    declared = tuple(pointers.declarations.values())
    return Calls(
        declared, tuple(operators), frozenset(memories), can_fail, context, tuple(model.arena.declared), resource
    )


class _Pointers:
    """The C of pointers to values and scratch; collects the declarations that they need."""

    def __init__(self, model: CModel) -> None:
        self.plan, self.arena = model.plan, model.arena
        self.lies = aliases(model.graph)
        self.outside = {"inputs": model.interface.inputs, "outputs": model.interface.outputs}
        self.declarations: dict[tuple[str, str], str] = {}
        self.names: dict[str, str] = {}  # the type that each pointer's name stands for

    def value(self, value: str) -> str:
        """Return the pointer to a value: that of its tensor or window, and an offset in elements."""
        dtype, address = self.plan.graph.types[value].dtype, address_of(self.plan, value)
        if address.memory != "arena":
            name = f"{address.memory}->{self.outside[address.memory][address.index].c_name}"
            return further(name, address.offset, dtype.size)
        spot = self.arena.values.get(value) or self.arena.values[self.lies.root(value)]
        return further(self._declared(dtype.c, spot), address.offset - spot.offset, dtype.size)

    def scratch(self, number: int, c_type: str) -> str:
        """Return the pointer to a step's scratch."""
        spot = self.arena.scratch.get(number)
        return self._declared(c_type, spot) if spot else self.arena.scratch_of(number, c_type)

    def constant(self, symbol: str) -> str:
        """Return a constant, or the pointer to its copy in a pool."""
        copy = self.arena.copies.get(symbol)
        return symbol if copy is None else self._declared(f"const {copy.c_type}", copy.spot)

    def _declared(self, c_type: str, spot: Spot) -> str:
        name = spot.name
        if self.names.setdefault(name, c_type) != c_type:
            name = f"{name}_as_{c_type}"
        if (name, c_type) not in self.declarations:
            is_known = (spot.over, c_type) in self.declarations
            place = f"{spot.over}; {IN_PLACE}" if is_known else f"{self.arena.pointer(c_type, spot)};"
            self.declarations[name, c_type] = f"{c_type} *const {name} = {place}"
        return name


def operands_of(plan: Plan, node: Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the values that an operator reads and those that it writes, each once, without constants."""
    constants = plan.graph.constants
    reads = tuple(value for value in dict.fromkeys(node.inputs) if value and value not in constants)
    return reads, tuple(value for value in dict.fromkeys(node.outputs) if value)


def _typed(model: CModel, number: int, pointers: _Pointers, moves: Sequence[int], of: str) -> tuple[str, ...]:
    """Return the lines that call a function; `of` is the operator's number in C."""
    plan, call = model.plan, model.functions.calls[number]
    arguments = arguments_of(plan, number, call, pointers.value, pointers.scratch, pointers.constant)
    text = call.text(moved(arguments, moves) if moves else arguments, plan.steps[number].node.title)
    if not call.function.kernel.can_fail:
        return (text,)
    return tuple(checked(text, model.failure(number, f"(uint16_t)({of})" if "*" in of else of, "status")))


def _passed(plan: Plan, number: int, call: Call, typed: bool) -> set[str]:
    """Return the values whose pointers a step's call takes: for typed functions those that the C reads or writes."""
    node = plan.steps[number].node
    if typed:
        return {name for kind, name in call.operands(node) if kind == "value"}
    return {value for operands in operands_of(plan, node) for value in operands}


def _wrapped(model: CModel, number: int, form: str, pointers: _Pointers) -> tuple[str, ...]:
    """Return a block that arranges the operator's tensors for its wrapper, and calls the wrapper."""
    plan, call, node = model.plan, model.functions.calls[number], model.plan.steps[number].node
    function = f"{model}_{node.name}_{form}"
    values = [value for operands in operands_of(plan, node) for value in operands]
    count, resource = len(values), [RESOURCE.name] * (RESOURCE in call.function.kernel.arguments)
    if form == "pointers":
        listed = ", ".join(_unqualified(pointers.value(value)) for value in values)
        called = f"{function}({', '.join(['arguments', *resource])});"
        lines = [called]
        if is_failing(plan, number):  # the wrapper has recorded what failed
            lines = [f"const int32_t status = {called}", "if (status != 0)", "    return status;"]
        return ("{", f"    void *const arguments[] = {{{listed}}};", *(f"    {line}" for line in lines), "}")
    if form == "values":
        listed = ", ".join(f"mt_pointer_value({pointers.value(value)})" for value in values)
        codes = ", ".join(["MT_ARG_HANDLE"] * count)
        declared = [f"union mt_value values[] = {{{listed}}};", f"int32_t codes[] = {{{codes}}};"]
        result = f"{function}(values, codes, {count}, 0, 0, {', '.join(resource) or 0})"
    else:
        types = [type_name(model, plan.graph.types[value]) for value in values]
        tensors = [f"mt_tensor_of({pointers.value(value)}, &{name})" for value, name in zip(values, types, strict=True)]
        declared = [
            "DLTensor tensors[] = {",
            *(f"    {tensor}," for tensor in tensors),
            "};",
            f"union mt_value values[{count}];",
            f"int32_t codes[{count}];",
        ]
        with_one = "_with" * len(resource)
        result = f"mt_packed_call{with_one}({', '.join([function, 'tensors, values, codes', str(count), *resource])})"
    lines = [*declared, f"const int32_t status = {result};", "if (status != 0)", "    return status;"]
    return ("{", *(f"    {line}" for line in lines), "}")


def _unqualified(pointer: str) -> str:
    """Return a pointer without the const of a caller's input."""
    if "->" not in pointer:
        return pointer
    return f"(void *)({pointer})" if " " in pointer else f"(void *){pointer}"
