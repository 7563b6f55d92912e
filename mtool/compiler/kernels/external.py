"""Calls of C that is not mtool's: a region of the network that a backend computes (mtool.compiler.backends).

Internal form `external`, with the attributes of mtool.compiler.kernels.external. It has one schedule, the call.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from mtool.base.checked import NotNegative, Range
from mtool.compiler.ir import Attributes, Graph, Node
from mtool.compiler.kernels.schedule import RESOURCE, Argument, Kernel, KernelOp, Schedule, Target
from mtool.compiler.kernels.specification import Specification

# The nodes that another code generator computes: `external`.


HOOKS = ("activate", "open", "before", "after", "close", "deactivate")
"""When a function of a device is called (crt/include/mtool.h)."""


@dataclass(frozen=True, slots=True)
class Lent:
    """A piece of a memory of the board that a region has while it is computed.

    name: "input0", "output0", …, "scratch", which lie there, or that of working memory.
    memory: the memory, by the board's name of it.
    offset: where it begins in what the model has of that memory.
    bytes, alignment: its size, and that of its beginning.
    """

    name: str
    memory: str
    offset: int
    bytes: int
    alignment: int


Bytes = Annotated[int, Range(0, 2**40 - 1)]
"""A size or an alignment in bytes."""


@dataclass(frozen=True)
class RegionCode:
    """The C of a region's call, and what it needs.

    body: the statements of a C function that computes it. They know the region's inputs as `input0`, `input1`, …, its
        outputs as `output0`, …, constants by their names, and `scratch`, of `uint8_t`.
    headers: what the body includes: files below, or of the runtime (crt/include).
    files: C sources, headers and binaries that the build needs, by path in the model's folder. Equal files of several
        regions stand there once.
    scratch_bytes: working memory in the arena, that is nobody else's while the function runs.
    alignment: of that memory, in bytes.
    tensor_alignment: of the region's inputs and outputs in the arena, in bytes; 1: of their elements.
    cost: an estimate of its instructions of the core; the accelerator's own time, if any, is in `cycles`. If both are
        0, the time of the region is not known, and so is not that of a model with it.
    cycles: an estimate of the accelerator's cycles; 0: there is none.
    can_fail: the body returns an int32_t: 0, or a status of the device's own that ends the inference
        (crt/include/mtool.h). Otherwise it returns nothing.
    prepare, finish: statements of the core before the body and, unless that failed, behind it, with the same names;
        what they do is seen by the device, and they see what the device did.
    resource: the three texts also know `resource`, a `void *` that the caller of the model gave it, and the hooks are
        of type `int32_t f(void *resource)`. It is NULL where the caller has none to give (--interface-api pointers
        and packed functions have), as in all firmware that mtool makes.
    """

    body: str
    headers: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict, compare=False)
    scratch_bytes: Bytes = 0
    alignment: Bytes = 4
    tensor_alignment: Bytes = 1
    cost: NotNegative = 0.0
    cycles: NotNegative = 0.0
    can_fail: bool = False
    prepare: str = ""
    finish: str = ""
    resource: bool = False


class External(RegionCode, Attributes):
    """A region of the network that a backend computes, as a call of its C.

    The node's inputs are the region's, then the constants of the call; its outputs are the region's.

    backend: the backend's name.
    model: the network's, the beginning of all C names.
    label: what it computes, for people.
    constants: the C names of the constants, in the order of the last inputs.
    layouts: what stands where in each of them.
    macs: the multiply-accumulates of the operators that it computes.
    operators: the model's operators that it computes.
    hooks: the C functions that are called around its work, as pairs of an occasion of HOOKS and a name.
    lent: the pieces of memories that it has while it is computed.
    cleaned, invalidated: what the cache is cleaned of before the body and forgets behind it, by names; `clean` and
        `invalidate` are the C functions for that.
    """

    backend: str
    label: str
    constants: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    macs: int = 0
    operators: tuple[str, ...] = ()
    hooks: tuple[tuple[str, str], ...] = ()
    lent: tuple[Lent, ...] = ()
    model: str = ""
    cleaned: tuple[str, ...] = ()
    invalidated: tuple[str, ...] = ()
    clean: str = ""
    invalidate: str = ""

    @property
    def has_frame(self) -> bool:
        """Whether something stands around the body."""
        return bool(self.lent or self.prepare or self.finish or self.cleaned or self.invalidated)

    def __str__(self) -> str:
        return f"backend={self.backend} operators={len(self.operators)}"


def _agree(node: Node, graph: Graph) -> None:
    attrs, where = External.of(node), f"the call of {node.name}"
    count = len(attrs.constants)
    assert len(attrs.layouts) == count, f"{where} has {count} constants and {len(attrs.layouts)} layouts"
    assert len(node.inputs) >= count, f"{where} has {len(node.inputs)} inputs; expected {count} constants"
    for name, value in zip(attrs.constants, node.inputs[len(node.inputs) - count :], strict=True):
        assert value in graph.constants, f"{name} of {where} is no constant"
    assert len({*attrs.constants}) == count, f"{where} has the constants {attrs.constants}"
    assert all(map(str.isidentifier, attrs.constants)), f"{where} has the constants {attrs.constants}"
    assert all(when in HOOKS and name.isidentifier() for when, name in attrs.hooks), f"{where} has {attrs.hooks}"
    assert attrs.scratch_bytes >= 0 and attrs.macs >= 0 and attrs.cost >= 0, f"{where} has negative needs"
    assert attrs.alignment > 0 and not attrs.alignment & (attrs.alignment - 1), f"{where}: alignment"


SPECIFICATION = Specification(External, takes_more=True, has_one_output=False, agree=_agree)


# What stands around a backend's body: copies to memories of the board, and the care for the cache.
#
# The core's statements and the device's are functions of their own, so that the body may return where it likes.


def framed(attrs: External, name: str, arguments: Sequence[Argument], sizes: Mapping[str, int]) -> tuple[str, str]:
    """Return the body of the function around a backend's, and the functions that it calls.

    Args:
        attrs: the region.
        name: the node's.
        arguments: what the region's function is given.
        sizes: the bytes of each argument.
    """
    kinds = {one.name: one for one in arguments}
    lent = {one.name: one for one in attrs.lent}
    pool = {
        key: f"{attrs.model}_{one.memory}" + (f" + {one.offset}" if one.offset else "") for key, one in lent.items()
    }
    declared, copies, back = [], [], []
    for key in lent:
        kind = kinds[key].c_type if key in kinds else "uint8_t"
        place = pool[key] if kind == "uint8_t" else f"({kind} *)(void *)({pool[key]})"
        own = f"lent_{key}" if key in kinds else key
        declared.append(f"{kind} *const {own} = {place};")
        if key.startswith("input") and key in kinds:
            copies.append(f"memcpy({own}, {key}, {sizes[key]});")
        if key.startswith("output") and key in kinds:
            back.append(f"memcpy({key}, {own}, {sizes[key]});")

    def there(key: str) -> str:
        return f"lent_{key}" if key in lent and key in kinds else key

    working = [Argument(key, "uint8_t", "scratch") for key in lent if key not in kinds]
    own_arguments = [*arguments, *working]
    passed = ", ".join(there(one.name) for one in own_arguments)
    size = {**sizes, **{key: one.bytes for key, one in lent.items()}}
    result = "int32_t" if attrs.can_fail else "void"

    def function(part: str, text: str, kind: str) -> str:
        heads = ", ".join(one.declaration for one in own_arguments)
        unused = [one.name for one in own_arguments if not re.search(rf"\b{one.name}\b", text)]
        body = "".join(f"    (void){own};\n" for own in unused) + text.rstrip()
        return f"static {kind} {attrs.model}_{name}_{part}({heads})\n{{\n{body}\n}}\n"

    parts = [("prepare", attrs.prepare, "void"), ("device", attrs.body, result), ("finish", attrs.finish, "void")]
    calls = {part: f"{attrs.model}_{name}_{part}({passed});" for part, _, _ in parts}
    lines = [*declared, *copies, *([calls["prepare"]] if attrs.prepare else [])]
    lines += [f"{attrs.clean}({there(key)}, {size[key]});" for key in attrs.cleaned]
    if attrs.can_fail:
        lines += [f"const int32_t status = {calls['device']}", "if (status != 0)", "    return status;"]
    else:
        lines.append(calls["device"])
    lines += [f"{attrs.invalidate}({there(key)}, {size[key]});" for key in attrs.invalidated]
    lines += [*([calls["finish"]] if attrs.finish else []), *back, *(["return 0;"] if attrs.can_fail else [])]
    inner = "\n".join(function(*part) for part in parts if part[1])
    return "\n".join(f"    {line}" for line in lines), inner


class ExternalCall(Schedule):
    """The call, as the backend wrote it."""

    name = "c99_call"

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """What the backend asked for, unless it lies in another memory."""
        attrs = External.of(node)
        return 0 if any(one.name == "scratch" for one in attrs.lent) else attrs.scratch_bytes

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """None."""
        return ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The backend's estimate."""
        return External.of(node).cost

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """A function whose body is the backend's."""
        attrs = External.of(node)
        first = len(node.inputs) - len(attrs.constants)
        types = graph.types
        arguments = [
            Argument(f"input{number}", types[value].dtype.c, ("input", number))
            for number, value in enumerate(node.inputs[:first])
        ]
        arguments += [
            Argument(f"output{number}", types[value].dtype.c, ("output", number))
            for number, value in enumerate(node.outputs)
        ]
        constants = dict(zip(attrs.constants, node.inputs[first:], strict=True))
        arguments += [Argument(name, types[value].dtype.c, ("constant", name)) for name, value in constants.items()]
        if self.scratch_bytes(node, graph):
            arguments.append(Argument("scratch", "uint8_t", "scratch"))
        if attrs.resource:
            arguments.append(RESOURCE)
        body, inner = attrs.body, ""
        if attrs.resource and not re.search(r"\bresource\b", body):
            body = f"    (void)resource;\n{body}"
        if attrs.has_frame:
            values = [*node.inputs[:first], *node.outputs, *constants.values()]
            sizes = dict(zip((one.name for one in arguments), (types[value].bytes for value in values), strict=False))
            body, inner = framed(attrs, node.name, arguments, {**sizes, "scratch": attrs.scratch_bytes})
        return Kernel(
            tuple(arguments),
            body,
            {name: graph.constants[value] for name, value in constants.items()},
            headers=(*attrs.headers, *(["mtool.h"] if attrs.lent else [])),
            inner=inner,
            layouts=dict(zip(attrs.constants, attrs.layouts, strict=True)),
            can_fail=attrs.can_fail,
        )


KERNEL = KernelOp(
    SPECIFICATION, lambda node, _: External.of(node).label, (ExternalCall(),), lambda node, _: External.of(node).macs
)
