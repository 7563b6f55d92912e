"""The epilogue of portable kernels: the expression that fusion gave, written out around each result."""

from dataclasses import replace

import numpy as np

from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.ir.scalar import FixedRequantise, Text
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.expressions import (
    element,
    needs_math,
    operand_arguments,
    operand_constants,
    operand_names,
)
from mtool.compiler.kernels.schedule import Argument, Kernel

TIES = "whether a tile from this channel on has one whose sums beside a half are looked at more closely"
_OWN_LAYOUTS = {2: "outputs, inputs", 4: "output channels, kernel rows, kernel columns, input channels"}


def acc_type(node: Node, graph: Graph) -> DType:
    """Return the accumulator's type, which is the bias's: float32, int32, or int64 where sums may leave int32."""
    return DType.of(graph.constants[node.inputs[2]].dtype)


def _is_near(part: Expr) -> bool:
    return isinstance(part.value, FixedRequantise) and part.value.near


class EpilogueText:
    """The C of a kernel's epilogue; templates call it with the C of the accumulator, offset and channel."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node, self.graph = node, graph
        self.expr = WithEpilogue.of(node).epilogue
        self.names = operand_names(node, graph, self.expr)

    def __call__(self, acc: str, offset: str, axes: dict[int, str]) -> str:
        """Return the value to store."""
        text = {number: Text(c, 9 if " " in c else 0) for number, c in axes.items()}
        return element(self.expr, self.node, self.graph, self.names, lambda n: text[n], acc=acc, offset=offset)

    def plain(self, acc: str, offset: str, axes: dict[int, str]) -> str:
        """Return the value to store of a channel that `beside_halves` does not name."""
        text = {number: Text(c, 9 if " " in c else 0) for number, c in axes.items()}
        expr = self.expr.rewrite(
            lambda part: replace(part, value=replace(part.value, near=False)) if _is_near(part) else part
        )
        return element(expr, self.node, self.graph, self.names, lambda n: text[n], acc=acc, offset=offset)

    def beside_halves(self, together: int) -> Array | None:
        """Return from which channels on one of so many needs more than a product (FixedRequantise), uint8 [N].

        None: no channel does.
        """
        parts = [part for part in self.expr.walk() if _is_near(part)]
        if not parts:
            return None
        found = np.zeros(self.graph.types[self.node.outputs[0]].shape[-1], bool)
        for part in parts:
            factor = part.args[1]
            value = factor.value if factor.op == "const" else self.graph.constants[self.node.inputs[factor.value]]
            found |= np.asarray(value).reshape(-1) < 0
        ahead = np.pad(found, (0, together - 1))
        return np.asarray(np.lib.stride_tricks.sliding_window_view(ahead, together).any(axis=1), np.uint8)

    @property
    def has_bias(self) -> bool:
        """Whether a weighted sum has a bias that is not zeros, which it has where the model has none."""
        return bool(self.graph.constants[self.node.inputs[2]].any())

    def bias(self, channel: str) -> str:
        """Return what the sum of a channel begins with."""
        zero = "0.0f" if acc_type(self.node, self.graph).is_float else "0"
        return f"bias[{channel}]" if self.has_bias else zero

    def kernel(
        self,
        body: str,
        weights: Array,
        scratch: str = "",
        layout: str = "",
        ties: Array | None = None,
        headers: tuple[str, ...] = (),
    ) -> Kernel:
        """Assemble the function: input, output, weights, bias if any, what the epilogue reads, scratch (its type).

        `layout` says in what order the weights stand, if not in that of the operator; `ties` are of `beside_halves`,
        `headers` a Kernel's.
        """
        node, graph = self.node, self.graph
        constants = {"weights": weights} | ({"ties": ties} if ties is not None else {})
        if self.has_bias:
            constants["bias"] = graph.constants[node.inputs[2]]
        constants |= operand_constants(node, graph, self.names)
        arguments = [
            Argument("input", graph.types[node.inputs[0]].dtype.c, ("input", 0)),
            Argument("output", graph.types[node.outputs[0]].dtype.c, "output"),
            Argument("weights", DType.of(weights.dtype).c, ("constant", "weights")),
            *([Argument("bias", acc_type(node, graph).c, ("constant", "bias"))] if self.has_bias else []),
            *operand_arguments(node, graph, self.names),
            *([Argument("ties", "uint8_t", ("constant", "ties"))] if ties is not None else []),
        ]
        layouts = {
            "weights": layout or _OWN_LAYOUTS.get(weights.ndim, ""),
            "bias": "of each output channel",
            "ties": TIES,
        }
        if scratch:
            arguments.append(Argument("scratch", scratch, "scratch"))
        return Kernel(tuple(arguments), body, constants, needs_math(self.expr), headers, layouts)
