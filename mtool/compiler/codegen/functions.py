"""The functions of a model: one for each different kernel, shared by the operators that need the same."""

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mtool.compiler.codegen.control import Body, control_kernel
from mtool.compiler.codegen.copied import Copied
from mtool.compiler.codegen.function import Call, Function, Use
from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.control import Control
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.expressions import layout_of
from mtool.compiler.kernels.schedule import Argument, Kernel
from mtool.compiler.plan import Plan, Step
from mtool.compiler.plan.constants_in_pools import with_copies
from mtool.compiler.plan.control import ControlSchedule
from mtool.compiler.plan.pool import Pool
from mtool.compiler.plan.sized import sized_control

_FunctionKey = tuple[tuple[Argument, ...], str, str]
_ConstantKey = tuple[str, tuple[int, ...], bytes, bool, bool]


@dataclass(frozen=True, slots=True)
class Stored:
    """The functions and constants that models of a firmware define, for those after them to use; grows with each."""

    functions: dict[_FunctionKey, Function] = field(default_factory=dict)
    constants: dict[_ConstantKey, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Functions:
    """All functions, the call of each step, the constants by symbol, and what stands where in them.

    `plan` is the model's. The constants of its graph have lost their elements (Graph.without_elements): packed, they
    are in `constants`, and a large model is not held twice. `in_ram` are the constants that lie in RAM. `borrowed` are
    the constants that another model of the firmware defines, by its symbols. `copied` are those with copies in pools,
    `in_pools` has the memory of each where they lie in several.
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
    def own(self) -> tuple[Function, ...]:
        """The functions that the model itself defines."""
        return tuple(one for one in self.functions if not one.is_borrowed)

    @property
    def read(self) -> dict[str, Array]:
        """All constants that the model reads, its own and those of other models."""
        return {**self.constants, **self.borrowed}


def emit_functions(plan: Plan, stored: Stored | None = None) -> Functions:
    """Emit every step's kernel; equal kernels become one function, equal constants one array.

    `stored` are those of models before it in the same firmware, which it uses too.
    """
    registry = _Registry(plan.graph.name, stored or Stored())
    emitted = replace(plan, graph=plan.graph.without_elements())
    calls = registry.calls(plan, emitted)
    return Functions(
        emitted, tuple(registry.functions.values()), tuple(calls), registry.constants, registry.layouts,
        frozenset(registry.in_ram), registry.borrowed,
    )  # fmt: skip


def with_copies_in_pools(functions: Functions) -> Functions:
    """Return the functions with copies of constants in pools that have room for them."""
    plan = functions.plan
    sizes: dict[str, dict[str, int]] = {}
    for step, call in zip(plan.steps, functions.calls, strict=True):
        symbols = {*call.constants.values()}
        if not isinstance(step.node.attrs, Control) and symbols <= {*functions.constants} - functions.in_ram:
            own = sizes.setdefault(step.node.title, {})
            own |= {symbol: functions.constants[symbol].nbytes for symbol in call.constants.values()}
    made, copies = with_copies(plan, sizes)
    copied = {}
    for symbol, (pool, offset) in copies.items():
        data = functions.constants[symbol]
        copied[symbol] = Copied(pool, offset, data.nbytes, DType.of(data.dtype).c)
    return replace(functions, plan=made, copied=copied)


class _Registry:
    """The functions and constants of a model, as they are asked for."""

    def __init__(self, model: str, stored: Stored) -> None:
        self.model, self.stored = model, stored
        self.functions: dict[_FunctionKey, Function] = {}
        self.constants: dict[str, Array] = {}
        self.borrowed: dict[str, Array] = {}
        self.layouts: dict[str, str] = {}
        self.in_ram: set[str] = set()
        self._symbols: dict[tuple[str, tuple[int, ...], bytes, bool], str] = {}
        self._alike: dict[Hashable, Call] = {}

    def calls(self, plan: Plan, used_by: Plan) -> list[Call]:
        """Return the call of each step; the functions of the graphs in it come before it.

        `used_by` is the same plan, as those hold it that need no elements of its constants.
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
        kernel = step.schedule.emit(step.node, plan.graph, plan.target)
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
            made = self._symbol(f"{step.node.name}_{name}", data, layout_of(name, data))
            used[made] = made
            return made

        def kernel(node: Node, graph: Graph) -> Kernel:
            return control_kernel(node, graph, bodies, symbol)

        is_sized = step.node.name in plan.graph.sized_nodes
        made = sized_control(step.node, plan.graph, kernel) if is_sized else kernel(step.node, plan.graph)
        return Call(self._function(step, made), used)

    def _function(self, step: Step, kernel: Kernel) -> Function:
        without = replace(kernel, constants={})  # which are of each step, and held by their symbols alone
        key = (kernel.arguments, kernel.body, kernel.level)
        if key not in self.functions:
            alone = not kernel.can_fail and not kernel.inner and not isinstance(step.node.attrs, Control)
            known = self.stored.functions.get(key) if alone else None
            made = Function(known.name if known else f"{self.model}_{step.node.name}", without, is_borrowed=bool(known))
            self.functions[key] = made
            if alone and known is None:
                self.stored.functions[key] = made
        return self.functions[key]

    def _symbol(self, stem: str, data: Array, layout: str, in_ram: bool = False) -> str:
        key = (data.dtype.str, data.shape, _digest(data), in_ram)
        if key not in self._symbols:
            whole = (*key, layout.startswith("aligned"))
            symbol = self.stored.constants.setdefault(whole, f"{self.model}_{stem}")
            self._symbols[key] = symbol
            self.in_ram |= {symbol} if in_ram else set()
            own = self.constants if symbol == f"{self.model}_{stem}" else self.borrowed
            own[symbol] = data
            self.layouts[symbol] = layout
        return self._symbols[key]


def _digest(data: Array) -> bytes:
    elements: Any = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return hashlib.sha256(elements).digest()
