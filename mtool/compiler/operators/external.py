"""Regions that backends compute, which stay what they are."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from mtool.base.errors import ModelError
from mtool.compiler.ir import Attributes, DType, Node
from mtool.compiler.ir.types import TensorType
from mtool.compiler.kernels.external import External
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.operator import Operator
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


OPERATORS = (
    Operator(KIND, domain=OWN, attributes=External, lower=_external),
    Operator("EthosU", domain=OWN, attributes=EthosU, infer=_outputs, lower=_refuse),
)  # fmt: skip
