"""Regions that backends compute, which stay what they are."""

from dataclasses import replace

from mtool.compiler.ir import Node
from mtool.compiler.kernels.external import External
from mtool.compiler.operators.lowering import Lowering, Operator

KIND = "External"


def _external(ctx: Lowering, node: Node) -> None:
    ctx.nodes.append(replace(node, op="external"))  # it keeps its name


LOWERINGS: dict[str, Operator] = {KIND: Operator(_external, External)}
