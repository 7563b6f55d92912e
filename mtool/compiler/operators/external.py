"""What stays as it is: regions that backends compute, and control flow (If 16, Loop 16), lowered graph by graph."""

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
    """A region as Vela compiled it.

    Its inputs are the command stream, the constants, and the region's inputs.

    scratch: the bytes of the working memory, in which the region's tensors lie too.
    fast: those of a second one; 0: it is the first.
    read, written: where in the working memory each tensor begins, in bytes.
    types: the outputs' element types, as numbers of DType in order.
    ranks: their numbers of dimensions.
    sizes: all their dimensions, one tensor's behind the other's.
    """

    scratch: int
    fast: int = 0
    read: tuple[int, ...]
    written: tuple[int, ...]
    types: tuple[int, ...]
    ranks: tuple[int, ...]
    sizes: tuple[int, ...] = ()


def kind_number(dtype: DType) -> int:
    """Return the number by which `EthosU.types` names an element type."""
    return [*DType].index(dtype)


def _outputs(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    assert isinstance(attrs, EthosU)
    ends = [*accumulate(attrs.ranks, initial=0)]
    shapes = [tuple(attrs.sizes[first:end]) for first, end in pairwise(ends)]
    return tuple(TensorType([*DType][kind], shape) for kind, shape in zip(attrs.types, shapes, strict=True))


def _refuse(ctx: Lowering, node: Node) -> None:
    raise ModelError(
        f"Vela has compiled {node.name} for an Arm Ethos-U, which the C of mtool can't compute",
        hint="give --backend ethos_u, and its option driver=DIR if your project has not the driver; or the model that "
        "Vela was given",
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
