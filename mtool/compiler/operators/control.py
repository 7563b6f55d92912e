"""Control flow: If 16 and Loop 16, which stay what they are; their graphs are lowered on their own."""

from mtool.compiler.ir import Node
from mtool.compiler.ir.control import Branches, Rounds
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.operator import Operator


def _branch(ctx: Lowering, node: Node) -> None:
    ctx.node("branch", node.inputs, node.outputs, node.attrs, like=node)


def _rounds(ctx: Lowering, node: Node) -> None:
    ctx.node("rounds", node.inputs, node.outputs, node.attrs, like=node)


OPERATORS = (
    Operator("If", attributes=Branches, lower=_branch),
    Operator("Loop", attributes=Rounds, lower=_rounds),
)
