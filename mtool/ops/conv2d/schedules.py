"""Schedules of conv2d in portable C."""

import math
from dataclasses import dataclass
from typing import Self

from mtool.ir import DType, Expr, Graph, Node
from mtool.ir.scalar import Text
from mtool.ir.types import Array
from mtool.ops.ctext import element, needs_math, operand_arguments, operand_names
from mtool.ops.schedule import Argument, BaseSchedule, Kernel, Schedule, Target, residual_operands, template


@dataclass(frozen=True, slots=True)
class Conv:
    """The numbers of one convolution; sizes in elements, pads as (top, left)."""

    batch: int
    size: tuple[int, int]
    channels: int
    out_size: tuple[int, int]
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    dilation: tuple[int, int]
    group: int
    pad_value: int

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self:
        """Read them off a conv2d node."""
        n, h, w, c = graph.types[node.inputs[0]].shape
        _, out_h, out_w, out_c = graph.types[node.outputs[0]].shape
        attrs = node.attrs
        return cls(
            n, (h, w), c, (out_h, out_w), out_c, attrs["kernel"], attrs["strides"],
            attrs["pads"][:2], attrs["dilations"], attrs["group"], attrs["pad_value"],
        )  # fmt: skip

    @property
    def is_depthwise(self) -> bool:
        """Whether each input channel has outputs of its own."""
        return self.group == self.channels and self.group > 1

    @property
    def pixels(self) -> int:
        """Output pixels of one image."""
        return self.out_size[0] * self.out_size[1]

    @property
    def depth(self) -> int:
        """Multiply-accumulates of one output: the length of its patch."""
        return math.prod(self.kernel) * self.channels // self.group

    @property
    def is_pointwise(self) -> bool:
        """Whether it is 1x1, stride 1, without padding: pixel by pixel."""
        return self.kernel == (1, 1) and self.stride == (1, 1) and self.pad == (0, 0) and self.out_size == self.size

    @property
    def plane(self) -> tuple[int, int]:
        """Rows and columns of one channel with as much padding as the outputs reach."""
        return tuple(  # type: ignore[return-value]
            (self.out_size[i] - 1) * self.stride[i] + (self.kernel[i] - 1) * self.dilation[i] + 1 for i in (0, 1)
        )


def acc_type(node: Node, graph: Graph) -> DType:
    """Return the accumulator's type, which is the bias's: float32, int32, or int64 where sums may leave int32."""
    return DType.of(graph.constants[node.inputs[2]].dtype)


def plain_product(target: Target) -> float:
    """Return the instructions of a multiply-accumulate in plain loops: itself, and 1.5 of loads and the loop's end.

    What an AVR has in its registers is spilled: twice as many.
    """
    return 1.5 + target.product_instructions * (2 if target.is_8_bit else 1)


class EpilogueText:
    """The C of a kernel's epilogue; templates call it with the C of the accumulator, offset and channel."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node, self.graph = node, graph
        self.expr: Expr = node.attrs["epilogue"]
        self.names = operand_names(node, graph, self.expr)

    def __call__(self, acc: str, offset: str, axes: dict[int, str]) -> str:
        """Return the value to store."""
        text = {number: Text(c, 9 if " " in c else 0) for number, c in axes.items()}
        return element(self.expr, self.node, self.graph, self.names, lambda n: text[n], acc=acc, offset=offset)

    def kernel(self, body: str, weights: Array) -> Kernel:
        """Assemble the function: input, output, weights, bias, what the epilogue reads, scratch."""
        node, graph = self.node, self.graph
        constants = {"weights": weights, "bias": graph.constants[node.inputs[2]]}
        constants |= {
            name: graph.constants[node.inputs[n]] for n, name in self.names.items() if node.inputs[n] in graph.constants
        }
        arguments = [
            Argument("input", graph.types[node.inputs[0]].dtype.c, ("input", 0)),
            Argument("output", graph.types[node.outputs[0]].dtype.c, "output"),
            Argument("weights", DType.of(weights.dtype).c, ("constant", "weights")),
            Argument("bias", acc_type(node, graph).c, ("constant", "bias")),
            *operand_arguments(node, graph, self.names),
        ]
        if "scratch" in body:
            arguments.append(Argument("scratch", graph.types[node.inputs[0]].dtype.c, "scratch"))
        return Kernel(tuple(arguments), body, constants, needs_math(self.expr))


def pointwise_in_place(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the inputs that the output of a kernel may be written over that gathers each pixel before it writes it."""
    conv = Conv.of(node, graph)
    x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    residuals = residual_operands(node, graph)
    shrinks = conv.out_channels * y.dtype.size <= conv.channels * x.dtype.size
    direct = conv.is_pointwise and conv.group == 1 and conv.batch == 1 and shrinks
    if direct and not node.attrs["epilogue"].operands() & {0}:
        return (0, *residuals)
    return residuals


class Patch(BaseSchedule):
    """Gather the input patches of two pixels, then two pixels by two channels at a time.

    Works for every kernel, stride, dilation and group. A pixel's patch is `depth` elements of scratch.
    """

    name = "c99_patch"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Everything."""
        return True

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Two patches."""
        return 2 * Conv.of(node, graph).depth * graph.types[node.inputs[0]].dtype.size

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pointwise and not growing; a residual operand that is not its input."""
        return pointwise_in_place(node, graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Those of the products, 3 instructions a gathered element, 12 an output."""
        conv = Conv.of(node, graph)
        outputs = conv.batch * conv.pixels * conv.out_channels
        gathered = conv.batch * conv.pixels * conv.depth * conv.group
        return outputs * (plain_product(target) * conv.depth + 12) + 3.0 * gathered

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv = Conv.of(node, graph)
        epilogue = EpilogueText(node, graph)
        body = template(
            "conv2d/c99_patch.c.j2",
            conv=conv,
            x=graph.types[node.inputs[0]].dtype.c,
            acc=acc_type(node, graph).c,
            w=graph.types[node.inputs[1]].dtype.c,
            float=acc_type(node, graph).is_float,
            epilogue=epilogue,
        )
        return epilogue.kernel(body, graph.constants[node.inputs[1]])


def plane_in_place(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the inputs that the output of a kernel may be written over that reads a channel before it writes it."""
    x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    residuals = residual_operands(node, graph)
    same = x.shape == y.shape and x.dtype.size == y.dtype.size
    return (0, *residuals) if same and not node.attrs["epilogue"].operands() & {0} else residuals


class Plane(BaseSchedule):
    """Depthwise: copy one channel with its padding into a contiguous plane, then slide over it.

    The copy makes the inner loops contiguous and lets the output take the input's storage.
    """

    name = "c99_plane"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Depthwise, with any multiplier, one image."""
        conv = Conv.of(node, graph)
        return conv.is_depthwise and conv.batch == 1

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """One padded plane."""
        return math.prod(Conv.of(node, graph).plane) * graph.types[node.inputs[0]].dtype.size

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if the output has the same shape."""
        return plane_in_place(node, graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Those of the products and half an instruction each, 4 a copied element, 14 an output."""
        conv = Conv.of(node, graph)
        outputs = conv.batch * conv.pixels * conv.out_channels
        return (
            outputs * ((2.0 + target.product_instructions) * conv.depth + 14)
            + 4.0 * conv.batch * math.prod(conv.size) * conv.channels
        )

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv = Conv.of(node, graph)
        epilogue = EpilogueText(node, graph)
        body = template(
            "conv2d/c99_plane.c.j2",
            conv=conv,
            plane=conv.plane,
            x=graph.types[node.inputs[0]].dtype.c,
            acc=acc_type(node, graph).c,
            w=graph.types[node.inputs[1]].dtype.c,
            float=acc_type(node, graph).is_float,
            unrolled=math.prod(conv.kernel) <= 16,
            epilogue=epilogue,
        )
        return epilogue.kernel(body, graph.constants[node.inputs[1]])


SCHEDULES: tuple[Schedule, ...] = (Patch(), Plane())
