"""Nodes that are one C template each, and the conversions around them of types that templates do not have."""

from collections.abc import Mapping, Sequence

from mtool.compiler.ir import DType, Node
from mtool.compiler.ir.expr import call, identity, load
from mtool.compiler.kernels.template import TemplateKernel, Values
from mtool.compiler.operators.lowering import Lowering


def template_node(
    ctx: Lowering,
    node: Node,
    template: str,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    values: Values,
    *,
    scratch: int = 0,
    scratch_type: str = "",
    math: bool = False,
    macs: int = 0,
    headers: tuple[str, ...] = (),
    overwrites: Mapping[str, str] | None = None,
) -> None:
    """Append a kernel.

    Args:
        ctx: the graph under construction.
        node: the ONNX operator.
        template: the name of the C template, without its ending; or the whole path of a file elsewhere.
        inputs: C name to value.
        outputs: C name to value.
        values: the template's variables beside `types`, the types of inputs and outputs by C name.
        scratch: bytes of working memory; the template calls it `scratch`.
        scratch_type: the C type of its elements.
        math: whether the C calls the mathematical library.
        macs: its multiply-accumulates.
        headers: of the runtime, that it needs besides mt_math.h.
        overwrites: outputs that may lie where an input lies, as each element of the input is read last before the
            same element of the output is written: C name of the output to that of the input.
    """
    ins, outs = [*inputs], [*outputs]
    over = tuple((ins.index(old), outs.index(new)) for new, old in (overwrites or {}).items())
    label = node.op.rpartition(".")[2].lower()  # without the domain
    attrs = TemplateKernel(
        template=template, values=values, names=(*inputs, *outputs), label=label, scratch=scratch,
        scratch_type=scratch_type, math=math, macs=macs, headers=headers, overwrites=over,
    )  # fmt: skip
    ctx.node("template", list(inputs.values()), list(outputs.values()), attrs, like=node)


def widened(ctx: Lowering, node: Node, value: str, dtype: DType | None = None) -> str:
    """Return a value as float32 if it is a 16-bit float (or as `dtype`, if that is given)."""
    kind = ctx.types[value]
    wanted = dtype or (DType.FLOAT32 if kind.dtype.is_half else kind.dtype)
    if wanted == kind.dtype:
        return value
    made = ctx.value(f"{value}.wide", wanted, kind.shape)
    element = load(0, kind.dtype, identity(len(kind.shape)))
    return ctx.loop(node, call("cast", element, dtype=wanted), [value], made)


def wide_output(ctx: Lowering, value: str) -> str:
    """Return where to compute an output: itself, or a float32 value if it is a 16-bit float."""
    kind = ctx.types[value]
    return ctx.value(f"{value}.wide", DType.FLOAT32, kind.shape) if kind.dtype.is_half else value


def narrowed(ctx: Lowering, node: Node, pairs: Sequence[tuple[str, str]]) -> None:
    """Append the conversions from what `wide_output` gave to the outputs themselves."""
    for wide, value in pairs:
        if wide != value:
            kind = ctx.types[value]
            element = load(0, ctx.types[wide].dtype, identity(len(kind.shape)))
            ctx.loop(node, call("cast", element, dtype=kind.dtype), [wide], value)
