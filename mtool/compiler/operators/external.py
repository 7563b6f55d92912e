"""Regions that backends compute, which stay what they are."""

from dataclasses import replace

from mtool.compiler.ir import Node
from mtool.compiler.kernels.external.node import External
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.operator import Operator
from mtool.compiler.operators.problems import OWN

KIND = "External"


def _external(ctx: Lowering, node: Node) -> None:
    ctx.nodes.append(replace(node, op="external"))  # it keeps its name


OPERATORS = (Operator(KIND, domain=OWN, attributes=External, lower=_external),)
