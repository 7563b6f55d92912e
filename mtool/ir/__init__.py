"""The intermediate representation: types, scalar expressions, graphs; frozen data, one kind throughout."""

from mtool.ir.expr import Expr
from mtool.ir.graph import Graph, RunTimeSize, State, Stream
from mtool.ir.node import Attributes, Node
from mtool.ir.types import DType, Quant, TensorType

__all__ = ["Attributes", "DType", "Expr", "Graph", "Node", "Quant", "RunTimeSize", "State", "Stream", "TensorType"]
