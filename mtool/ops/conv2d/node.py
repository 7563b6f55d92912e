"""The nodes of convolutions: `conv2d`."""

from dataclasses import dataclass, replace

from mtool.ir import Attributes, DType, Graph, Node
from mtool.kernels.row_wise import RowReads, RowWise
from mtool.kernels.specification import Channels, Operand, Specification
from mtool.kernels.weighted_sum import WeightedSum

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2d(WeightedSum):
    """A convolution; pairs are (vertical, horizontal), in elements.

    kernel: the filters' height and width.
    strides, dilations: at least 1.
    pads: top, left, bottom, right. What lies there is `pad_value`. A negative one leaves inputs out.
    group: the parts that channels are in; as many as input channels: depthwise.
    """

    kernel: Pair
    strides: Pair = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: Pair = (1, 1)
    group: int = 1


def _channels(node: Node, graph: Graph) -> Channels:
    group = Conv2d.of(node).group
    before, after = (graph.types[value].shape[-1] for value in (node.inputs[0], node.outputs[0]))
    if group == 1:
        return Channels.ALL
    return Channels.EACH if group == before == after else Channels.MIXED


def _reads(node: Node, graph: Graph) -> tuple[RowReads, ...]:
    attrs = Conv2d.of(node)
    reach = (attrs.kernel[0] - 1) * attrs.dilations[0] + 1
    return (RowReads.of_window(node, graph, reach, attrs.strides[0], attrs.pads[0], attrs.pad_value),)


def _of_rows(node: Node, graph: Graph, count: int) -> Attributes:
    attrs = Conv2d.of(node)
    pads = (0, attrs.pads[1], 0, attrs.pads[3])
    return replace(attrs, pads=pads, macs=attrs.macs_of_rows(count, graph.types[node.outputs[0]].shape[1]))


SPECIFICATION = Specification(
    Conv2d,
    (
        Operand("input", "NHWC", is_in_arena=True),
        Operand("weights", "OYXI", is_constant=True),
        Operand("bias", "O", (DType.FLOAT32, DType.INT32, DType.INT64), is_constant=True),
    ),
    layout="NPQO",
    channels=_channels,
    row_wise=RowWise(_reads, _of_rows),
)
