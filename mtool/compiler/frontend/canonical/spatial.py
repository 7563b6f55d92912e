"""Canonical forms of operators over spatial dimensions: convolutions, pools, resizing, regions.

Padding is made explicit.
"""

import math

import onnx

from mtool.compiler.frontend.canonical.forms import Attrs, Canonical, computed, unchanged
from mtool.compiler.frontend.canonical.pools import pool
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.operators.detection import NonMaxSuppression
from mtool.compiler.operators.resize import Resize
from mtool.compiler.operators.sampling import DeformConv, GridSample, RoiAlign
from mtool.compiler.operators.scatter import MaxUnpool
from mtool.compiler.operators.window import Convolution, Window


def _window(state: Importer, proto: onnx.NodeProto, attrs: Attrs, kernel: tuple[int, ...]) -> Window:
    """Return explicit strides, dilations and pads of a convolution or pool, auto_pad and ceil_mode resolved."""
    spatial = state.types[proto.input[0]].shape[2:]
    result = state.types[proto.output[0]].shape[2:]
    rank = len(kernel)
    strides = attrs.get("strides") or (1,) * rank
    dilations = attrs.get("dilations") or (1,) * rank
    if not len(spatial) == len(result) == len(strides) == len(dilations) == rank:
        raise Unsupported(f"its kernel has {rank} dimensions, its input {len(spatial)}")
    if min((*strides, *dilations, *kernel), default=1) < 1 or min(attrs.get("pads") or (0,)) < 0:
        raise Unsupported("a stride, dilation, kernel size or padding is out of range")
    begin, end = [], []
    for i in range(rank):
        span = (kernel[i] - 1) * dilations[i] + 1
        missing = max((result[i] - 1) * strides[i] + span - spatial[i], 0)
        mode = attrs.get("auto_pad", "NOTSET")
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            before = missing // 2 if mode == "SAME_UPPER" else missing - missing // 2
        elif mode == "VALID":
            before = 0
        else:
            before = attrs.get("pads", (0,) * 2 * rank)[i]
        begin.append(before)
        end.append(max(missing - before, 0))  # what the output really reaches, ceil_mode included
    return Window(kernel=tuple(kernel), strides=tuple(strides), dilations=tuple(dilations), pads=(*begin, *end))


def _conv(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    x, w = (state.types[value].shape for value in proto.input[:2])
    group = attrs.get("group", 1)
    if len(x) < 3 or len(x) != len(w):
        raise Unsupported(f"its input has {len(x)} dimensions, its filters {len(w)}")
    if group < 1 or x[1] != w[1] * group or w[0] % group:
        raise Unsupported(f"{x[1]} input channels do not fit {w[0]}x{w[1]} filters in {group} groups")
    window = _window(state, proto, attrs, w[2:])
    told = Convolution(
        kernel=window.kernel, strides=window.strides, dilations=window.dilations, pads=window.pads, group=group
    )
    state.emit(proto.op_type, origin, list(proto.input), list(proto.output), told)


def _conv_transpose(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """ConvTranspose: the padding that its output shape implies, split as the operator's text says."""
    spatial, result = state.types[proto.input[0]].shape[2:], state.types[proto.output[0]].shape[2:]
    kernel = state.types[proto.input[1]].shape[2:]
    rank = len(kernel)
    strides, dilations = attrs.get("strides") or (1,) * rank, attrs.get("dilations") or (1,) * rank
    extra, mode = attrs.get("output_padding") or (0,) * rank, attrs.get("auto_pad", "NOTSET")
    before = list((attrs.get("pads") or (0,) * 2 * rank)[:rank])
    if mode in ("SAME_UPPER", "SAME_LOWER") or "output_shape" in attrs:
        for i in range(rank):
            span = (kernel[i] - 1) * dilations[i] + 1
            total = max(strides[i] * (spatial[i] - 1) + extra[i] + span - result[i], 0)
            before[i] = total // 2 if mode == "SAME_UPPER" else total - total // 2
    told = Convolution(
        kernel=kernel, strides=tuple(strides), dilations=tuple(dilations), pads=tuple(before),
        group=attrs.get("group", 1),
    )  # fmt: skip
    state.emit("ConvTranspose", origin, list(proto.input), list(proto.output), told)


def _col2im(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    kernel = tuple(int(size) for size in state.value_of(proto.input[2], "block_shape"))
    rank = len(kernel)
    window = Window(
        kernel=kernel,
        strides=attrs.get("strides") or (1,) * rank,
        dilations=attrs.get("dilations") or (1,) * rank,
        pads=attrs.get("pads") or (0,) * 2 * rank,
    )
    image = state.types[proto.output[0]].shape[2:]
    padded = [image[i] + window.pads[i] + window.pads[rank + i] for i in range(rank)]
    spans = [(kernel[i] - 1) * window.dilations[i] + 1 for i in range(rank)]
    blocks = math.prod((padded[i] - spans[i]) // window.strides[i] + 1 for i in range(rank))
    if state.types[proto.input[0]].shape[2] != blocks:
        raise Unsupported(f"its input is {state.types[proto.input[0]]}; expected {blocks} blocks")
    state.emit("Col2Im", origin, [proto.input[0]], list(proto.output), window)


def _max_unpool(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    shape = state.types[proto.input[0]].shape[2:]
    kernel, rank = attrs["kernel_shape"], len(shape)
    strides, pads = attrs.get("strides") or (1,) * rank, attrs.get("pads") or (0,) * 2 * rank
    inner = tuple((shape[i] - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i] for i in range(rank))
    state.emit("MaxUnpool", origin, list(proto.input[:2]), [proto.output[0]], MaxUnpool(inner=inner))


def _deform_conv(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    window = _window(state, proto, attrs, state.types[proto.input[1]].shape[2:])
    if len(window.kernel) != 2:
        raise Unsupported(f"{window.rank} spatial dimensions; 2 are supported")
    told = DeformConv(
        kernel=window.kernel, strides=window.strides, dilations=window.dilations, pads=window.pads,
        group=attrs.get("group", 1), offset_group=attrs.get("offset_group", 1),
    )  # fmt: skip
    state.emit("DeformConv", origin, list(proto.input), [proto.output[0]], told)


def _resize(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Resize, Upsample: a scale and a region of interest for every axis."""
    x, result = state.types[proto.input[0]].shape, state.types[proto.output[0]].shape
    rank = len(x)
    upsample = proto.op_type == "Upsample" or version < 11
    roi, scales, sizes = ["", *[*proto.input, ""][1:2], ""] if upsample else [*proto.input[1:], "", "", ""][:3]
    axes = [axis % rank for axis in attrs.get("axes") or range(rank)]
    all_scales, rois = [1.0] * rank, [(0.0, 1.0)] * rank
    factors = [float(v) for v in state.value_of(scales, "scales")] if scales else list(attrs.get("scales") or [])
    if factors:
        for axis, scale in zip(axes, factors, strict=True):
            all_scales[axis] = scale
    elif sizes:
        ratios = [result[axis] / x[axis] for axis in axes]
        policy = attrs.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            wanted = state.value_of(sizes, "sizes").tolist()
            ratios = [size / x[axis] for size, axis in zip(wanted, axes, strict=True)]
            ratios = [min(ratios) if policy == "not_larger" else max(ratios)] * len(axes)
        for axis, ratio in zip(axes, ratios, strict=True):
            all_scales[axis] = ratio
    state.budget.spend(
        "work", 1000 * sum(b for a, b in zip(x, result, strict=True) if a != b), f"{proto.op_type} {origin}"
    )
    mode = attrs.get("coordinate_transformation_mode", "asymmetric" if upsample else "half_pixel")
    if mode == "tf_crop_and_resize" and roi:
        region = state.value_of(roi, "roi").tolist()
        for n, axis in enumerate(axes):
            rois[axis] = (float(region[n]), float(region[n + len(axes)]))
    made = Resize(
        scales=tuple(all_scales), rois=tuple(rois), coordinate_transformation_mode=mode,
        mode=attrs.get("mode", "nearest"), cubic_coeff_a=attrs.get("cubic_coeff_a", -0.75),
        antialias=bool(attrs.get("antialias")), exclude_outside=bool(attrs.get("exclude_outside")),
        nearest_mode=attrs.get("nearest_mode", "simple" if upsample else "round_prefer_floor"),
        extrapolation_value=attrs.get("extrapolation_value", 0.0),
    )  # fmt: skip
    state.emit("Resize", origin, [proto.input[0]], [proto.output[0]], made)


def _roi_align(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    if not attrs.get("sampling_ratio"):
        raise Unsupported("a sampling_ratio of 0, as many samples as the box is large, is not supported")
    half = attrs.get("coordinate_transformation_mode", "half_pixel" if version >= 16 else "output_half_pixel")
    made = RoiAlign(
        sampling_ratio=attrs["sampling_ratio"], spatial_scale=attrs.get("spatial_scale", 1.0),
        mode=attrs.get("mode", "avg"), half_pixel=half == "half_pixel",
    )  # fmt: skip
    state.emit("RoiAlign", origin, list(proto.input), [proto.output[0]], made)


SPATIAL: dict[str, Canonical] = {
    **dict.fromkeys(["Conv", "ConvInteger"], _conv),
    "ConvTranspose": _conv_transpose,
    "Col2Im": _col2im,
    **dict.fromkeys(["MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"], pool),
    "MaxUnpool": _max_unpool,
    **dict.fromkeys(["Resize", "Upsample"], _resize),
    "DeformConv": _deform_conv,
    "RoiAlign": _roi_align,
    "ImageDecoder": computed("encoded_stream"),
    "GridSample": unchanged(GridSample),
    "NonMaxSuppression": unchanged(NonMaxSuppression),
}
