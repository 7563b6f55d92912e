"""The functions of a model: one for each different kernel, shared by the operators that need the same."""

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mtool.ir.types import Array
from mtool.kernels.expressions import layout_of
from mtool.kernels.schedule import Argument, Kernel
from mtool.plan import Plan


@dataclass(slots=True)
class Function:
    """One C function: its name, its kernel, and the numbers of the steps that call it."""

    name: str
    kernel: Kernel
    steps: list[int] = field(default_factory=list)

    @property
    def prototype(self) -> str:
        """The C declaration, without a semicolon."""
        return f"void {self.name}({', '.join(argument.declaration for argument in self.kernel.arguments)})"


@dataclass(frozen=True, slots=True)
class Call:
    """One step's call: the function, the step's own constants by argument name -> symbol."""

    function: Function
    constants: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Functions:
    """All functions, the call of each step, the constants by symbol, and what stands where in them."""

    functions: tuple[Function, ...]
    calls: tuple[Call, ...]
    constants: dict[str, Array]
    layouts: Mapping[str, str]


def emit_functions(plan: Plan) -> Functions:
    """Emit every step's kernel; equal kernels become one function, equal constants one array."""
    model = plan.graph.name
    shared: dict[tuple[tuple[Argument, ...], str], Function] = {}
    symbols: dict[tuple[str, tuple[int, ...], bytes], str] = {}
    constants: dict[str, Array] = {}
    layouts: dict[str, str] = {}
    calls: list[Call] = []
    alike: dict[Hashable, Call] = {}
    for number, step in enumerate(plan.steps):
        likeness = plan.graph.likeness(step.node)
        if likeness in alike:
            calls.append(alike[likeness])
            calls[-1].function.steps.append(number)
            continue
        kernel = step.schedule.emit(step.node, plan.graph, plan.target)
        without = replace(kernel, constants={})  # which are of each step, and held by their symbols alone
        function = shared.setdefault((kernel.arguments, kernel.body), Function(f"{model}_{step.node.name}", without))
        function.steps.append(number)
        used = {}
        for name, data in kernel.constants.items():
            key = (data.dtype.str, data.shape, _digest(data))
            if key not in symbols:
                symbols[key] = f"{model}_{step.node.name}_{name}"
                constants[symbols[key]] = data
                layouts[symbols[key]] = kernel.layouts.get(name) or layout_of(name, data)
            used[name] = symbols[key]
        calls.append(Call(function, used))
        alike[likeness] = calls[-1]
    return Functions(tuple(shared.values()), tuple(calls), constants, layouts)


def _digest(data: Array) -> bytes:
    elements: Any = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return hashlib.sha256(elements).digest()
