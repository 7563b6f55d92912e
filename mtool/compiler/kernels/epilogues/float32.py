"""The epilogues of float32 tiles: nothing, a ReLU in the tile, or an expression over the stored sums."""

from dataclasses import dataclass
from typing import Self

from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.expr import acc, call, const
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.kernels.epilogues.tile import TileEpilogue, is_elementwise
from mtool.compiler.kernels.f32.stored import UNIT, Stored


@dataclass(frozen=True, slots=True)
class FloatEpilogue(TileEpilogue):
    """An epilogue as `rest(relu(acc))`; `relu` is done in the tile, `rest` on the stored sums (None: nothing)."""

    relu: bool
    rest: Expr | None

    @classmethod
    def of_stored(cls, node: Node, graph: Graph) -> Self | None:
        """Split the epilogue of a node whose weights may be bytes (kernels.f32.stored); None: as `of`."""
        kind = graph.types[node.inputs[0]].dtype
        if graph.constants[node.inputs[1]].dtype.name != "int8" or kind is not DType.FLOAT32:
            return cls.of(node, graph)
        total = acc(DType.FLOAT32)
        whole = call("mul", total, const(UNIT, DType.FLOAT32))
        expr = WithEpilogue.of(node).epilogue.rewrite(lambda part: whole if part == total else part)
        return cls(False, expr) if is_elementwise(expr, node, graph, DType.FLOAT32, by_channel=True) else None

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self | None:
        """Split a node's epilogue; None: it reads other elements, or its kernel is not of float32."""
        kinds = (graph.types[node.inputs[0]].dtype, graph.constants[node.inputs[1]].dtype.name)
        if kinds != (DType.FLOAT32, "float32"):
            return None
        expr = WithEpilogue.of(node).epilogue
        if expr.op == "acc":
            return cls(False, None)
        zero = len(expr.args) == 2 and expr.args[1].op == "const" and expr.args[1].value == 0.0
        if expr.op == "maximum" and zero and expr.args[0].op == "acc":
            return cls(True, None)
        return cls(False, expr) if is_elementwise(expr, node, graph, DType.FLOAT32) else None

    def function(self, stem: str, product: str, stored: Stored = "") -> str:
        """Return the name of the runtime's function: mt_f32_columns_muladd_relu, mt_f32_columns_halves_fma."""
        return f"{stem}{'_' + stored if stored else ''}_{product}{'_relu' if self.relu else ''}"

    @property
    def least(self) -> str:
        """Return the bound that tiles of mt_mve_f32.h have, in C."""
        return "0" if self.relu else "MT_MVE_F32_ANY"
