"""Regions that backends compute, which stay what they are."""

from mtool.ir import Node
from mtool.lowerings.lowering import Lowering, Operator
from mtool.ops.external.node import External

KIND = "External"


def _external(ctx: Lowering, node: Node) -> None:
    ctx.node("external", node.inputs, node.outputs, node.attrs, like=node)


LOWERINGS: dict[str, Operator] = {KIND: Operator(_external, External)}
