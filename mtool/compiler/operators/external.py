"""Nodes that are not lowered: backends' regions, and control flow (If 16, Loop 16), whose graphs are lowered."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import onnx

from mtool.base.errors import ModelError
from mtool.compiler.ir import Attributes, DType, Node
from mtool.compiler.ir.control import Branches, Rounds
from mtool.compiler.ir.types import TensorType
from mtool.compiler.kernels.external import External
from mtool.compiler.operators.lowering import Lower, Lowering
from mtool.compiler.operators.operator import Case, Draw, Operator, Value
from mtool.compiler.operators.problems import OWN

KIND = "External"


def _external(ctx: Lowering, node: Node) -> None:
    ctx.nodes.append(replace(node, op="external"))  # it keeps its name


class EthosU(Attributes):
    """A region compiled by Vela.

    Its inputs are the command stream, the constants, and the region's inputs.

    scratch: the bytes of the working memory, which also has the region's tensors.
    fast: the bytes of a second, fast working memory; 0: there is none.
    read, written: the offset of each tensor in the working memory, in bytes.
    types: the outputs' element types, by their position in DType.
    ranks: the outputs' numbers of dimensions.
    sizes: the outputs' dimensions, all in one list.
    """

    scratch: int
    fast: int = 0
    read: tuple[int, ...]
    written: tuple[int, ...]
    types: tuple[int, ...]
    ranks: tuple[int, ...]
    sizes: tuple[int, ...] = ()


def kind_number(dtype: DType) -> int:
    """Return the number of an element type in `EthosU.types`."""
    return [*DType].index(dtype)


def _outputs(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    assert isinstance(attrs, EthosU)
    ends = [*accumulate(attrs.ranks, initial=0)]
    shapes = [tuple(attrs.sizes[first:end]) for first, end in pairwise(ends)]
    return tuple(TensorType([*DType][kind], shape) for kind, shape in zip(attrs.types, shapes, strict=True))


def _refuse(ctx: Lowering, node: Node) -> None:
    raise ModelError(
        f"{node.name} was compiled by Vela for an Arm Ethos-U and has no C code",
        hint="give --backend ethos_u (with driver=DIR if your project does not have the driver), or the model from "
        "before Vela",
    )


def _kept(kind: str) -> Lower:
    def lower(ctx: Lowering, node: Node) -> None:
        ctx.node(kind, node.inputs, node.outputs, node.attrs, like=node)

    return lower


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
    Operator(KIND, domain=OWN, attributes=External, lower=_external),
    Operator("EthosU", domain=OWN, attributes=EthosU, infer=_outputs, lower=_refuse),
    Operator("If", cases=_if_cases, attributes=Branches, lower=_kept("branch")),
    Operator("Loop", cases=_loop_cases, attributes=Rounds, lower=_kept("rounds")),
)  # fmt: skip
