"""The nodes of convolutions: `conv2d`."""

from dataclasses import replace

from mtool.compiler.ir import Attributes, Graph, Node
from mtool.compiler.kernels.specification import Channels, RowReads, RowWise, Specification
from mtool.compiler.kernels.weighted_sum import WeightedSum, check_types, operands

Pair = tuple[int, int]


class Conv2d(WeightedSum):
    """A convolution; pairs are (vertical, horizontal), in elements.

    kernel: the filters' height and width.
    strides, dilations: at least 1.
    pads: top, left, bottom, right, filled with `pad_value`. Negative pads skip inputs.
    group: the number of groups of channels; depthwise if it equals the number of input channels.
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


def _agree(node: Node, graph: Graph) -> None:
    """Check that filters match the attributes, and that the number of windows that fit matches the output."""
    check_types(node, graph)
    attrs, where = Conv2d.of(node), f"{node.op} {node.name}"
    before, weights, after = (graph.types[value].shape for value in (*node.inputs[:2], node.outputs[0]))
    assert weights[1:3] == attrs.kernel, f"{where} has kernel {attrs.kernel} and weights {list(weights)}"
    parts = weights[3] * attrs.group == before[3] and after[3] % attrs.group == 0
    assert parts, f"{where} has {attrs.group} groups, input {list(before)}, weights {list(weights)}"
    assert min(*attrs.strides, *attrs.dilations) > 0, (
        f"{where} has strides {attrs.strides}, dilations {attrs.dilations}"
    )
    for n in range(2):
        reach = (attrs.kernel[n] - 1) * attrs.dilations[n] + 1
        fit = (before[1 + n] + attrs.pads[n] + attrs.pads[2 + n] - reach) // attrs.strides[n] + 1
        assert after[1 + n] == fit, f"{where} is {list(after)}; {fit} windows fit into {list(before)}"


SPECIFICATION = Specification(
    Conv2d,
    operands("NHWC", "OYXI"),
    layout="NPQO",
    agree=_agree,
    channels=_channels,
    row_wise=RowWise(_reads, _of_rows),
)
