"""Compiles a model file to bytecode, for modules of kernel calls."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from mtool.base import plural
from mtool.base.errors import ModelError
from mtool.base.frozen import frozen
from mtool.compiler import frontend, passes
from mtool.compiler.bytecode import call, lowering
from mtool.compiler.codegen.arena import Interface
from mtool.compiler.codegen.description import interface_of
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.node import View
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.weighted_sum import as_computed
from mtool.compiler.plan import Plan, Step
from mtool.compiler.plan.order import order_nodes
from mtool.compiler.plan.whole import lay_out_steps

# The image of a bytecode module: its calls and constants. crt/include/mt_bytecode.h has the bytes.


@frozen
class Image:
    """A model as bytecode.

    Attributes:
        data: the head, the calls, the constants.
        code_bytes: the bytes before the constants.
        arena_bytes: the size of the arena that it needs.
    """

    data: bytes
    code_bytes: int
    arena_bytes: int


class _Constants:
    """Constants one after the other; equal ones are stored once."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.known: dict[bytes, int] = {}

    def place(self, constant: call.Constant) -> int:
        data = np.ascontiguousarray(constant.data).tobytes()
        if data not in self.known:
            self.known[data] = len(self.data)
            self.data += data + bytes(-len(data) % 4)
        return self.known[data] + constant.offset


def encode(plan: Plan) -> Image:
    """Return a plan's image."""
    constants = _Constants()
    words: list[int] = []
    for number, step in enumerate(plan.steps):
        method = step.schedule
        assert isinstance(method, call.Method)
        for place, one in enumerate(method.calls):
            words.append(call.KERNELS[one.kernel] | (call.MORE if place else 0) | len(one.operands) << 16)
            words += [_word(operand, plan, plan.scratch[number] or 0, constants) for operand in one.operands]
    head = struct.pack("<4I", call.MAGIC, plan.arena_bytes, len(words), len(constants.data))
    code = head + struct.pack(f"<{len(words)}I", *words)
    return Image(code + bytes(constants.data), len(code), plan.arena_bytes)


def _word(operand: call.Operand, plan: Plan, scratch: int, constants: _Constants) -> int:
    match operand:
        case call.Constant():
            return call.CONSTANT | constants.place(operand)
        case call.Scratch():
            return scratch + operand.offset
        case call.Value():
            return plan.offsets[operand.name] + operand.offset
    return call.word_of(operand)


# The plan of a bytecode model: each node's calls, their order, the arena.


def _weighted(of_int8: Callable[[Node, Graph], call.Method]) -> Callable[[Node, Graph], call.Method]:
    def choose(node: Node, graph: Graph) -> call.Method:
        return (of_int8 if graph.types[node.inputs[0]].dtype is DType.INT8 else lowering.weighted)(node, graph)

    return choose


METHODS: Mapping[str, Callable[[Node, Graph], call.Method]] = {
    "concat": lowering.concat,
    "conv2d": _weighted(lowering.convolution),
    "dense": _weighted(lowering.dense),
    "loop": lowering.loop,
    "pool2d": lowering.pool,
    "softmax": lowering.softmax,
}
"""By the kind of node."""
PAGE = (
    "docs/bytecode.md lists what the library has; a native module has all operators (mtool module without --bytecode)"
)


def plan_bytecode(graph: Graph) -> Plan:
    """Return the plan of a graph that the passes have lowered to kernels for `SHARED`.

    Raises:
        ModelError: the library has no kernel for some operators; all of them are listed.
    """
    reasons = {
        "it keeps states between its calls": graph.states,
        "it has run-time sizes": graph.sizes,
        "it takes an input by rows": graph.stream,
    }
    for reason in (reason for reason, found in reasons.items() if found):
        raise ModelError(f"{graph.name} can't be compiled to bytecode: {reason}", hint=PAGE)
    steps: dict[str, Step] = {}
    missing = []
    for node in graph.nodes:
        if isinstance(node.attrs, View):
            continue
        try:
            if node.op not in METHODS:
                raise call.NoKernel(f"{node.op} has no kernel")
            if any(not graph.types[value].count for value in (*node.inputs, *node.outputs) if value):
                raise call.NoKernel("a tensor without elements")
            method = METHODS[node.op](node, graph)
        except call.NoKernel as reason:
            missing.append(f"{node.name} ({', '.join(node.origins) or node.op}): {reason}")
            continue
        steps[node.name] = Step(node, registry.KERNELS[node.op], method, method.scratch)
    if missing:
        what = f"{plural.count(len(missing), 'operator')} of {graph.name} can't be compiled to bytecode"
        what += f": the library has no kernel for {'it' if len(missing) == 1 else 'them'}"
        raise ModelError(what, details=missing, hint=PAGE)
    graph = replace(graph, nodes=order_nodes(graph, steps, "arena"))
    ordered = tuple(steps[node.name] for node in graph.nodes if node.name in steps)
    return lay_out_steps(graph, ordered, call.SHARED, "arena")


@frozen
class Bytecode:
    """A model as bytecode.

    Attributes:
        plan: its calls, their order, where everything lies.
        image: the bytes.
        interface: its inputs and outputs.
    """

    plan: Plan
    image: Image
    interface: Interface

    @property
    def name(self) -> str:
        """The model's."""
        return self.plan.graph.name

    def operators(self) -> tuple[tuple[str, str, int], ...]:
        """Return each operator's name, its readable label, and its multiply-accumulates."""
        graph = self.plan.graph
        return tuple(
            (step.node.name, step.op.label(step.node, graph), step.op.macs(as_computed(step.node), graph))
            for step in self.plan.steps
        )


def compile_bytecode(path: Path, options: ModelOptions) -> Bytecode:
    """Compile an ONNX or TFLite model to bytecode.

    Raises:
        UsageError: the file is missing, or an option names nothing in the model.
        ModelError: the model is malformed, or operators can't be compiled to bytecode; all are listed.
    """
    plan = plan_bytecode(passes.run(frontend.load(path, options), call.SHARED))
    return Bytecode(plan, encode(plan), interface_of(plan))
