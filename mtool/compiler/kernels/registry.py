"""The internal operators: how each becomes C.

Each is a package, laid out by instruction set: c99 (portable, the reference), integer (register tiles of 8-bit products
for cores without SIMD), f32 (float tiles for a Cortex-M's FPU), dsp (SIMD32), mve (Helium). No operator imports
another's package; common parts are in mtool.compiler.kernels.
"""

from collections.abc import Sequence
from dataclasses import replace

from mtool.compiler.ir import Computation, Expr, Graph, Node, Transpose, View
from mtool.compiler.kernels import concat, control, conv2d, dense, external, loop, matmul, pool2d, softmax, template
from mtool.compiler.kernels.schedule import KernelOp
from mtool.compiler.kernels.specification import Channels, Operand, Specification

# The kinds of node without C: `view`, the same bytes, and `transpose`, which becomes a loop.


def _channels(node: Node, graph: Graph) -> Channels:
    """Return EACH if only sizes of 1 before the last dimension are added or dropped."""
    before, after = (graph.types[value] for value in (node.inputs[0], node.outputs[0]))
    keeps = before.shape[-1:] == after.shape[-1:] == (before.count,)
    return Channels.EACH if keeps else Channels.MIXED


def _inside(node: Node, graph: Graph) -> None:
    """Check that a view stays inside its inputs."""
    first, out = View.of(node).first, graph.types[node.outputs[0]]
    kinds = [graph.types[value] for value in node.inputs]
    inside = 0 <= first <= first + out.count <= sum(kind.count for kind in kinds)
    right = inside and all(kind.dtype is out.dtype for kind in kinds)
    assert right, f"{node.op} {node.name} of {', '.join(map(str, kinds))} from {first} on -> {out}"


def _permuted(node: Node, graph: Graph) -> None:
    """Check that each dimension of the input is one of the output."""
    perm = Transpose.of(node).perm
    before, out = (graph.types[value] for value in (node.inputs[0], node.outputs[0]))
    right = sorted(perm) == [*range(len(before.shape))] and before.dtype is out.dtype
    right = right and tuple(before.shape[number] for number in perm) == out.shape
    assert right, f"{node.op} {node.name} of {before} by {perm} -> {out}"


VIEW = Specification(View, (Operand("input"),), takes_more=True, agree=_inside, channels=_channels)
TRANSPOSE = Specification(Transpose, (Operand("input"),), agree=_permuted)
KERNELS: dict[str, KernelOp] = {
    "branch": control.BRANCH,
    "concat": concat.KERNEL,
    "conv2d": conv2d.KERNEL,
    "dense": dense.KERNEL,
    "external": external.KERNEL,
    "loop": loop.KERNEL,
    "matmul": matmul.KERNEL,
    "pool2d": pool2d.KERNEL,
    "rounds": control.ROUNDS,
    "softmax": softmax.KERNEL,
    "template": template.KERNEL,
}
"""Internal operators that become C, by name."""
SPECIFICATIONS: dict[str, Specification] = {
    **{name: kernel.specification for name, kernel in KERNELS.items()},
    "transpose": TRANSPOSE,
    "view": VIEW,
}
"""The specification of each internal kind, by its name."""


def with_expression(node: Node, expr: Expr, inputs: Sequence[str]) -> Node:
    """Return a node with another expression, which reads `inputs`; unread ones are dropped, except a kernel's own."""
    read, fixed = expr.operands(), len(SPECIFICATIONS[node.op].fixed_operands(node))
    numbers = [number for number in range(len(inputs)) if number < fixed or number in read]
    moved = expr.with_operands({old: new for new, old in enumerate(numbers)})
    attrs = replace(Computation.of(node), expr=moved)
    return replace(node, inputs=tuple(inputs[number] for number in numbers), attrs=attrs)
