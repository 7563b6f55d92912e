"""The nodes that another code generator computes: `external`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mtool.compiler.ir import Attributes, Graph, Node
from mtool.compiler.kernels.specification import Specification

HOOKS = ("activate", "open", "before", "after", "close", "deactivate")
"""When a function of a device is called (crt/include/mt_device.h)."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class External(Attributes):
    """A region of the network that a backend computes, as a call of its C.

    The node's inputs are the region's, then the constants of the call; its outputs are the region's.

    backend: the backend's name.
    model: the network's, the beginning of all C names.
    label: what it computes, for people.
    body: the statements of the function; they know the inputs as `input0`, `input1`, …, the outputs as `output0`, …,
        the constants by their names, and `scratch`, in bytes.
    constants: the C names of the constants, in the order of the last inputs.
    layouts: what stands where in each of them.
    headers: what the body includes.
    files: what the build needs besides, by path in the model's folder.
    scratch: bytes of working memory, in the arena.
    alignment: of that, in bytes.
    tensor_alignment: of the region's inputs and outputs in the arena, in bytes; 1: of their elements.
    macs: the multiply-accumulates of the operators that it computes.
    cost: its estimate in instructions of the core.
    cycles: the backend's estimate of the accelerator's cycles; 0: there is none.
    operators: the model's operators that it computes.
    can_fail: the body returns a status: 0, or one of the device.
    hooks: the C functions that are called around its work, as pairs of an occasion of HOOKS and a name.
    lent: the pieces of memories that it has while it is computed.
    prepare, finish: statements before and behind the body.
    cleaned, invalidated: what the cache is cleaned of before the body and forgets behind it, by names; `clean` and
        `invalidate` are the C functions for that.
    resource: the body and the hooks are given the caller's `resource`.
    """

    backend: str
    label: str
    body: str
    constants: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict, compare=False)
    scratch: int = 0
    alignment: int = 4
    tensor_alignment: int = 1
    macs: int = 0
    cost: float = 0.0
    cycles: float = 0.0
    operators: tuple[str, ...] = ()
    can_fail: bool = False
    hooks: tuple[tuple[str, str], ...] = ()
    lent: tuple[Lent, ...] = ()
    prepare: str = ""
    finish: str = ""
    model: str = ""
    cleaned: tuple[str, ...] = ()
    invalidated: tuple[str, ...] = ()
    clean: str = ""
    invalidate: str = ""
    resource: bool = False

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
    assert attrs.scratch >= 0 and attrs.macs >= 0 and attrs.cost >= 0, f"{where} has negative needs"
    assert attrs.alignment > 0 and not attrs.alignment & (attrs.alignment - 1), f"{where}: alignment"


SPECIFICATION = Specification(External, takes_more=True, has_one_output=False, agree=_agree)
