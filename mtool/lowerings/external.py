"""Regions that backends compute, which stay what they are."""

from dataclasses import replace

from mtool.ir import Node
from mtool.lowerings.lowering import Lowering, Operator
from mtool.ops.external.node import External

KIND = "External"


def _external(ctx: Lowering, node: Node) -> None:
    ctx.nodes.append(replace(node, op="external"))  # it keeps its name


LOWERINGS: dict[str, Operator] = {KIND: Operator(_external, External)}
