"""A function of a model, the operators that need it, and what it is called with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.plan import Plan


@dataclass(frozen=True, slots=True)
class Use:
    """A step that calls a function, of the model's plan or of that of a graph in it."""

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


@dataclass(frozen=True, slots=True)
class Call:
    """One step's call: the function, the step's own constants by argument name -> symbol."""

    function: Function
    constants: Mapping[str, str]


def arguments_of(
    plan: Plan,
    number: int,
    call: Call,
    pointer: Callable[[str], str],
    scratch: Callable[[int, str], str],
    constant: Callable[[str], str] = str,
) -> list[str]:
    """Return the arguments of a step's function, in C.

    `pointer` has the expression of a value, `scratch` that of a step's scratch as a pointer to a C type, and `constant`
    that of a constant by its symbol.
    """
    node = plan.steps[number].node
    arguments = []
    for argument in call.function.kernel.arguments:
        source = argument.source
        if source == "output":
            arguments.append(pointer(node.outputs[0]))
        elif source == "scratch":
            arguments.append(scratch(number, argument.c_type))
        elif source == "resource":
            arguments.append(argument.name)
        else:
            assert not isinstance(source, str)
            kind, which = source
            if kind == "output":
                arguments.append(pointer(node.outputs[int(which)]))
                continue
            if kind == "constant":
                arguments.append(constant(call.constants[str(which)]))
            else:
                arguments.append(pointer(node.inputs[int(which)]))
    return arguments


def further(pointer: str, offset: int, size: int) -> str:
    """Return a pointer so many bytes on, which are whole elements."""
    assert offset % size == 0, f"{pointer}: {offset} bytes are no number of elements of {size}"
    return f"{pointer} {'-' if offset < 0 else '+'} {abs(offset) // size}" if offset else pointer
