"""Calls of other C code: a region of the network that a backend computes (mtool.compiler.backends).

Internal form `external`, with the attributes of mtool.compiler.kernels.external. It has one schedule, the call.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated

from mtool.base.checked import NotNegative, Range
from mtool.base.frozen import frozen
from mtool.compiler.ir import Attributes, Graph, Node
from mtool.compiler.kernels.schedule import RESOURCE, Argument, Kernel, KernelOp, Schedule, Target
from mtool.compiler.kernels.specification import Specification

# The nodes that another code generator computes: `external`.


HOOKS = ("activate", "open", "before", "after", "close", "deactivate")
"""When a function of a device is called (crt/include/mtool.h)."""


@frozen
class MemoryPiece:
    """A piece of one of the board's memories that a region uses while it is computed.

    name: "input0", "output0", …, "scratch", which lie there, or the name of working memory.
    memory: the board's name of the memory.
    offset: its start in the model's part of that memory.
    bytes, alignment: its size, and the alignment of its start.
    """

    name: str
    memory: str
    offset: int
    bytes: int
    alignment: int


Bytes = Annotated[int, Range(0, 2**40 - 1)]
"""A size or an alignment in bytes."""


@frozen
class RegionCode:
    """The C of a region's call, and what it needs.

    body: the statements of a C function that computes it. They can use the region's inputs as `input0`, `input1`, …,
        its outputs as `output0`, …, constants by their names, and `scratch`, of type `uint8_t`.
    headers: the headers that the body includes: files below, or headers of the runtime (crt/include).
    files: C sources, headers and binaries that the build needs, by path in the model's folder. Equal files of several
        regions are written once.
    scratch_bytes: working memory in the arena, for the region's exclusive use while the function runs.
    alignment: the alignment of that memory, in bytes.
    tensor_alignment: the alignment of its inputs and outputs in the arena, in bytes; 1: that of their elements.
    cost: the estimated instructions on the core; the accelerator's own time, if any, is in `cycles`. If both are 0, the
        region's time is unknown, and so is that of a model with it.
    cycles: the estimated cycles of the accelerator; 0: no estimate.
    can_fail: the body returns an int32_t: 0, or a device-specific status that ends the inference
        (crt/include/mtool.h). Otherwise it returns nothing.
    prepare, finish: statements that the core runs before the body and, unless that failed, after it, with the same
        names; the caches are kept coherent between them and the device.
    resource: the three texts can also use `resource`, a `void *` that the model's caller passes, and the hooks have the
        type `int32_t f(void *resource)`. It is NULL if the interface has no such argument (--interface-api pointers
        and packed functions do), as in all firmware that mtool builds.
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
    model: the network's name, the prefix of all C names.
    label: a readable description.
    constants: the C names of the constants, in the order of the last inputs.
    layouts: a description of each constant's layout.
    macs: the multiply-accumulates of the operators that it computes.
    operators: the model's operators that it computes.
    hooks: the C functions to call around its work, as pairs of one of HOOKS and a function name.
    memory_pieces: the pieces of the board's memories that it uses while it is computed.
    cleaned, invalidated: the names of the buffers that are cleaned from the cache before the body and invalidated after
        it; `clean` and `invalidate` are the C functions for that.
    """

    backend: str
    label: str
    constants: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    macs: int = 0
    operators: tuple[str, ...] = ()
    hooks: tuple[tuple[str, str], ...] = ()
    memory_pieces: tuple[MemoryPiece, ...] = ()
    model: str = ""
    cleaned: tuple[str, ...] = ()
    invalidated: tuple[str, ...] = ()
    clean: str = ""
    invalidate: str = ""

    @property
    def has_frame(self) -> bool:
        """Whether the body needs a surrounding function."""
        return bool(self.memory_pieces or self.prepare or self.finish or self.cleaned or self.invalidated)

    def __str__(self) -> str:
        return f"backend={self.backend} operators={len(self.operators)}"


def _agree(node: Node, graph: Graph) -> None:
    attrs, where = External.of(node), f"the call of {node.name}"
    count = len(attrs.constants)
    assert len(attrs.layouts) == count, f"{where} has {count} constants and {len(attrs.layouts)} layouts"
    assert len(node.inputs) >= count, f"{where} has {len(node.inputs)} inputs; expected {count} constants"
    for name, value in zip(attrs.constants, node.inputs[len(node.inputs) - count :], strict=True):
        assert value in graph.constants, f"{name} of {where} is not a constant"
    assert len({*attrs.constants}) == count, f"{where} has the constants {attrs.constants}"
    assert all(map(str.isidentifier, attrs.constants)), f"{where} has the constants {attrs.constants}"
    assert all(when in HOOKS and name.isidentifier() for when, name in attrs.hooks), f"{where} has {attrs.hooks}"
    assert attrs.scratch_bytes >= 0 and attrs.macs >= 0 and attrs.cost >= 0, f"{where} has negative needs"
    assert attrs.alignment > 0 and not attrs.alignment & (attrs.alignment - 1), f"{where}: alignment"


SPECIFICATION = Specification(External, takes_more=True, has_one_output=False, agree=_agree)


# The function around a backend's body: copies to memories of the board, and cache maintenance.
#
# The core's statements and the device's are separate functions, so that the body may return anywhere.


def framed(attrs: External, name: str, arguments: Sequence[Argument], sizes: Mapping[str, int]) -> tuple[str, str]:
    """Return the body of the function around a backend's, and the functions that it calls.

    Args:
        attrs: the region.
        name: the node's.
        arguments: the parameters of the region's function.
        sizes: the bytes of each argument.
    """
    kinds = {argument.name: argument for argument in arguments}
    pieces = {piece.name: piece for piece in attrs.memory_pieces}
    pool = {key: f"{attrs.model}_{p.memory}" + (f" + {p.offset}" if p.offset else "") for key, p in pieces.items()}
    declared, copies, back = [], [], []
    for key in pieces:
        kind = kinds[key].c_type if key in kinds else "uint8_t"
        place = pool[key] if kind == "uint8_t" else f"({kind} *)(void *)({pool[key]})"
        pointer = f"own_{key}" if key in kinds else key
        declared.append(f"{kind} *const {pointer} = {place};")
        if key.startswith("input") and key in kinds:
            copies.append(f"memcpy({pointer}, {key}, {sizes[key]});")
        if key.startswith("output") and key in kinds:
            back.append(f"memcpy({key}, {pointer}, {sizes[key]});")

    def pointer_of(key: str) -> str:
        return f"own_{key}" if key in pieces and key in kinds else key

    working = [Argument(key, "uint8_t", "scratch") for key in pieces if key not in kinds]
    own_arguments = [*arguments, *working]
    passed = ", ".join(pointer_of(argument.name) for argument in own_arguments)
    size = {**sizes, **{key: piece.bytes for key, piece in pieces.items()}}
    result = "int32_t" if attrs.can_fail else "void"

    def function(part: str, text: str, kind: str) -> str:
        heads = ", ".join(argument.declaration for argument in own_arguments)
        unused = [argument.name for argument in own_arguments if not re.search(rf"\b{argument.name}\b", text)]
        body = "".join(f"    (void){argument};\n" for argument in unused) + text.rstrip()
        return f"static {kind} {attrs.model}_{name}_{part}({heads})\n{{\n{body}\n}}\n"

    parts = [("prepare", attrs.prepare, "void"), ("device", attrs.body, result), ("finish", attrs.finish, "void")]
    calls = {part: f"{attrs.model}_{name}_{part}({passed});" for part, _, _ in parts}
    lines = [*declared, *copies, *([calls["prepare"]] if attrs.prepare else [])]
    lines += [f"{attrs.clean}({pointer_of(key)}, {size[key]});" for key in attrs.cleaned]
    if attrs.can_fail:
        lines += [f"const int32_t status = {calls['device']}", "if (status != 0)", "    return status;"]
    else:
        lines.append(calls["device"])
    lines += [f"{attrs.invalidate}({pointer_of(key)}, {size[key]});" for key in attrs.invalidated]
    lines += [*([calls["finish"]] if attrs.finish else []), *back, *(["return 0;"] if attrs.can_fail else [])]
    inner = "\n".join(function(*part) for part in parts if part[1])
    return "\n".join(f"    {line}" for line in lines), inner


class ExternalCall(Schedule):
    """The call, as provided by the backend."""

    name = "c99_call"

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Return the scratch that the backend requests, unless it lies in another memory."""
        attrs = External.of(node)
        return 0 if any(piece.name == "scratch" for piece in attrs.memory_pieces) else attrs.scratch_bytes

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """None."""
        return ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The backend's estimate."""
        return External.of(node).cost

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return a function with the backend's body."""
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
            sizes = dict(zip((a.name for a in arguments), (types[value].bytes for value in values), strict=False))
            body, inner = framed(attrs, node.name, arguments, {**sizes, "scratch": attrs.scratch_bytes})
        return Kernel(
            tuple(arguments),
            body,
            {name: graph.constants[value] for name, value in constants.items()},
            headers=(*attrs.headers, *(["mtool.h"] if attrs.memory_pieces else [])),
            inner=inner,
            layouts=dict(zip(attrs.constants, attrs.layouts, strict=True)),
            can_fail=attrs.can_fail,
        )


KERNEL = KernelOp(
    SPECIFICATION, lambda node, _: External.of(node).label, (ExternalCall(),), lambda node, _: External.of(node).macs
)
