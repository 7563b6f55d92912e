"""The intermediate representation: types, scalar expressions, graphs; frozen data, one kind throughout."""

from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.graph import Graph, RunTimeSize, State, Stream
from mtool.compiler.ir.node import Attributes, Node
from mtool.compiler.ir.types import DType, Quant, TensorType

__all__ = ["Attributes", "DType", "Expr", "Graph", "Node", "Quant", "RunTimeSize", "State", "Stream", "TensorType"]
