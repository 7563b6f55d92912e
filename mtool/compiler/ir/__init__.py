"""The intermediate representation: types, scalar expressions, graphs; frozen data, one kind throughout."""

from mtool.base.option_values import Slide
from mtool.compiler.ir.control import Branches, Carried, Control, Rounds, has_bodies
from mtool.compiler.ir.expr import Expr, acc, axis, call, const, identity, load
from mtool.compiler.ir.graph import Graph, Rewriter, RunTimeSize, State, Stream, rewritten
from mtool.compiler.ir.node import Attributes, Computation, Node, Transpose, View, WithEpilogue
from mtool.compiler.ir.types import Array, DType, Quant, TensorType

__all__ = [
    "Array", "Attributes", "Branches", "Carried", "Computation", "Control", "DType", "Expr", "Graph", "Node", "Quant",
    "Rewriter", "Rounds", "RunTimeSize", "Slide", "State", "Stream", "TensorType", "Transpose", "View", "WithEpilogue",
    "acc", "axis", "call", "const", "has_bodies", "identity", "load", "rewritten",
]  # fmt: skip
