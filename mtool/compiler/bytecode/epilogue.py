"""What follows a kernel's results: an expression that a call of its own computes, from the output or from scratch."""

from dataclasses import dataclass
from typing import Self

from mtool.compiler.bytecode.call import Address, Call, Scratch, Value
from mtool.compiler.bytecode.method import Method
from mtool.compiler.bytecode.program import calls_of
from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.scalar import RescalePair
from mtool.compiler.kernels.expressions import is_identity
from mtool.compiler.kernels.packing import round_up


@dataclass(frozen=True, slots=True)
class With:
    """Where a kernel's results go, and what follows them.

    Attributes:
        rest: the expression, which reads them as `acc`; None: they are the output.
        results: where they lie.
        scratch: bytes of scratch that the kernel has, and the results if they lie there.
    """

    rest: Expr | None
    results: Address
    scratch: int

    @classmethod
    def of(cls, node: Node, graph: Graph, rest: Expr | None, acc: DType, own: int) -> Self:
        """Let them lie in the output, if its elements are as large, behind `own` bytes of scratch otherwise."""
        out = graph.types[node.outputs[0]]
        if rest is None or out.dtype.size == acc.size:
            return cls(rest, Value(node.outputs[0]), own)
        first = round_up(own, 4)
        return cls(rest, Scratch(first), first + out.count * acc.size)

    def at(self, offset: int) -> Address:
        """Return the address of the results from a byte on."""
        if isinstance(self.results, Scratch):
            return Scratch(self.results.offset + offset)
        assert isinstance(self.results, Value)
        return Value(self.results.name, offset)


def with_rest(node: Node, graph: Graph, calls: tuple[Call, ...], after: With, over: tuple[int, ...] = ()) -> Method:
    """Return a kernel's calls, and the one of what follows.

    Raises:
        NoKernel: it has something that no kernel computes.
    """
    if after.rest is None:
        return Method(calls, after.scratch, over)
    pair = pair_of(after.rest, node, graph, after.results)
    if pair is not None:
        return Method((*calls, pair), after.scratch)
    more, scratch = calls_of(after.rest, node, graph, after.results, after.scratch)
    return Method((*calls, *more), scratch)


def pair_of(expr: Expr, node: Node, graph: Graph, acc: Address | None) -> Call | None:
    """Return an expression as a sum of two int8 tensors; None: it is another one."""
    out = graph.types[node.outputs[0]]
    if expr.op != "rescale_pair" or out.dtype is not DType.INT8:
        return None
    places: list[Address] = []
    for arg in expr.args:
        if arg.dtype is not DType.INT8:
            return None
        if arg.op == "acc" and acc is not None:
            places.append(acc)
        elif (
            arg.op == "load"
            and node.inputs[arg.value] not in graph.constants
            and is_identity(arg, out.shape, graph.types[node.inputs[arg.value]].shape)
        ):
            places.append(Value(node.inputs[arg.value]))
        else:
            return None
    how: RescalePair = expr.value
    return Call("add_int8", (
        *places, Value(node.outputs[0]), out.count, how.left, how.right, how.offset, how.shift, int(how.even),
        how.zero_point, how.low, how.high,
    ))  # fmt: skip
