"""The intermediate representation: types, scalar expressions, graphs; frozen data, one kind throughout."""

from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.graph import Graph, Rewriter, RunTimeSize, State, Stream, rewritten
from mtool.compiler.ir.node import Attributes, Computation, Node, Transpose, View, WithEpilogue
from mtool.compiler.ir.types import Array, DType, Quant, TensorType

__all__ = [
    "Array", "Attributes", "Computation", "DType", "Expr", "Graph", "Node", "Quant", "Rewriter", "RunTimeSize", "State",
    "Stream", "TensorType", "Transpose", "View", "WithEpilogue", "rewritten",
]  # fmt: skip
