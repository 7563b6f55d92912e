"""Canonical forms of pools: how many windows there are and where they begin is as in onnxruntime.

With ceil_mode, a last window that would begin in the padding at the end is left out; ONNX says so from opset 22 on, and
onnxruntime does so in all. With auto_pad SAME, onnxruntime does not count dilations, and where strides are longer than
windows it leaves out elements at both ends; ONNX's own shapes are others there.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx

from mtool.compiler.frontend.canonical.forms import Attrs
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import TensorType
from mtool.compiler.operators.movement import Slice
from mtool.compiler.operators.scatter import MaxPoolIndices
from mtool.compiler.operators.sliding_window import Pool


@dataclass(frozen=True, slots=True)
class Along:
    """Windows along one dimension: their number, and the padding before and behind, which may be negative."""

    count: int
    before: int
    behind: int

    @classmethod
    def of(cls, size: int, kernel: int, stride: int, dilation: int, attrs: Attrs, dim: int, rank: int) -> "Along":
        """Return those of dimension `dim` of `rank` spatial ones."""
        mode = attrs.get("auto_pad", "NOTSET")
        before = behind = 0
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            missing = (-(-size // stride) - 1) * stride + kernel - size
            before = int((missing + (mode == "SAME_LOWER")) / 2)  # towards zero
            behind = missing - before
        elif mode != "VALID":
            pads = attrs.get("pads") or (0,) * 2 * rank
            before, behind = pads[dim], pads[rank + dim]
        room = size + before + behind - ((kernel - 1) * dilation + 1)
        if not attrs.get("ceil_mode"):
            return cls(int(room / stride) + 1, before, behind)
        count = math.ceil(room / stride) + 1
        return cls(count - ((count - 1) * stride >= size + before), before, behind)


def pool(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """MaxPool, AveragePool, LpPool and their global forms, with explicit padding."""
    kind = state.types[proto.input[0]]
    spatial = kind.shape[2:]
    if proto.op_type.startswith("Global"):
        attrs = {"kernel_shape": spatial, "p": attrs.get("p", 2)}
    kernel, rank = tuple(attrs["kernel_shape"]), len(spatial)
    strides, dilations = (tuple(attrs.get(key) or (1,) * rank) for key in ("strides", "dilations"))
    if not len(kernel) == len(strides) == len(dilations) == rank:
        raise Unsupported(f"its kernel has {len(kernel)} dimensions, its input {rank}")
    if min((*strides, *dilations, *kernel), default=1) < 1 or min(attrs.get("pads") or (0,)) < 0:
        raise Unsupported("a stride, dilation, kernel size or padding is out of range")
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = tuple(attrs.get("pads") or ())
    if any(pad >= span for pad, span in zip(pads, (*spans, *spans), strict=False)):
        raise Unsupported(f"its pads {list(pads)} leave windows with nothing but padding: they reach over {spans}")
    sizes = zip(spatial, kernel, strides, dilations, strict=True)
    if "Lp" in proto.op_type and attrs.get("p", 2) < 1:
        raise Unsupported(f"a norm of p = {attrs['p']} is not supported")
    along = [Along.of(*each, attrs, dim, rank) for dim, each in enumerate(sizes)]
    shape = (*kind.shape[:2], *(each.count for each in along))
    if min(shape) < 0:
        raise Unsupported(f"its kernel is larger than its input {kind}")
    outputs = [name for name in proto.output if name]
    for name in outputs:
        state.types[name] = TensorType(state.types[name].dtype, shape)
        if 0 in shape:
            state.add_constant(name, np.zeros(shape, state.types[name].dtype.numpy))
    if 0 in shape:
        return
    source, size = _cut(state, proto.input[0], origin, along)
    reached = [(each.count - 1) * strides[i] + spans[i] - size[i] - max(each.before, 0) for i, each in enumerate(along)]
    count_pads = bool(attrs.get("count_include_pad"))
    kind_of: Literal["max", "lp", "average"] = (
        "max" if "Max" in proto.op_type else "lp" if "Lp" in proto.op_type else "average"
    )
    told = Pool(
        kernel=kernel, strides=strides, dilations=dilations,
        pads=(*(max(each.before, 0) for each in along), *(max(behind, 0) for behind in reached)),
        kind=kind_of, count_pads=count_pads, p=attrs.get("p", 2),
        # With count_include_pad, only the declared padding counts, not what ceil_mode adds.
        limits=tuple(s + max(each.behind, 0) * count_pads for s, each in zip(size, along, strict=True)),
    )  # fmt: skip
    if len(outputs) > 1:
        whole = MaxPoolIndices(
            kernel=kernel, strides=strides, dilations=dilations, pads=told.pads, kind=told.kind, count_pads=count_pads,
            p=told.p, limits=told.limits, column_major=bool(attrs.get("storage_order")),
        )  # fmt: skip
        state.emit("MaxPoolIndices", origin, [source], list(proto.output), whole)
        return
    state.emit("Pool", origin, [source], [proto.output[0]], told)


def _cut(state: Importer, value: str, origin: str, along: list[Along]) -> tuple[str, tuple[int, ...]]:
    """Return a value without the elements that negative padding before it leaves out, and its spatial sizes."""
    kind = state.types[value]
    first = (0, 0, *(max(-each.before, 0) for each in along))
    sizes = tuple(size - start for size, start in zip(kind.shape, first, strict=True))
    if not any(first):
        return value, sizes[2:]
    cut = state.unique(f"{origin}/cut")
    state.types[cut] = TensorType(kind.dtype, sizes)
    state.emit("Slice", origin, [value], [cut], Slice(first=first, stride=(1,) * len(first)))
    return cut, sizes[2:]
