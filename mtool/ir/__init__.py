"""The intermediate representation: types, scalar expressions, graphs; frozen data, one kind throughout."""

from mtool.ir.expr import Expr
from mtool.ir.graph import Graph, Node, State
from mtool.ir.types import DType, Quant, TensorType

__all__ = ["DType", "Expr", "Graph", "Node", "Quant", "State", "TensorType"]
