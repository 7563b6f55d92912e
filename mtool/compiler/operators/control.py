"""Control flow: If 16 and Loop 16, which stay what they are; their graphs are lowered on their own."""

import numpy as np
import onnx

from mtool.compiler.ir import Node
from mtool.compiler.ir.control import Branches, Rounds
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.operator import Case, Draw, Operator, Value


def _branch(ctx: Lowering, node: Node) -> None:
    ctx.node("branch", node.inputs, node.outputs, node.attrs, like=node)


def _rounds(ctx: Lowering, node: Node) -> None:
    ctx.node("rounds", node.inputs, node.outputs, node.attrs, like=node)


def _body(draw: Draw, value: Value, inputs: str, nodes: str, outputs: str) -> onnx.GraphProto:
    """Return a graph whose "float[s]" is the value's type, and whose names are new."""
    kind, name = f"float{[*value.shape]}", draw.fresh("g")
    text = f"{name} ({inputs}) => ({outputs}) {{ {nodes} }}"
    return onnx.parser.parse_graph(
        text.replace("T ", f"{kind} {name}_").replace("@", f"{name}_").replace("$", value.name)
    )


def _if_cases(draw: Draw, op: Operator) -> Case:
    value = draw.pick()
    bodies = [_body(draw, value, "", f"@y = {op} ($)", "T y") for op in ("Neg", "Abs")]
    return Case([draw.pick(np.bool_, 0).name], {"then_branch": bodies[0], "else_branch": bodies[1]})


def _loop_cases(draw: Draw, op: Operator) -> Case:
    """The value is added up in each of some rounds, and kept."""
    value = draw.pick()
    nodes = "@d = Identity (@c) @w = Add (@v, $) @u = Neg (@w)"
    body = _body(draw, value, "int64 @i, bool @c, T v", nodes, "bool @d, T w, T u")
    return Case([draw.constant(draw.rng.randint(1, 4), np.int64), "", value.name], {"body": body}, 2)


OPERATORS = (
    Operator("If", cases=_if_cases, attributes=Branches, lower=_branch),
    Operator("Loop", cases=_loop_cases, attributes=Rounds, lower=_rounds),
)
