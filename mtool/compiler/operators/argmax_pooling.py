"""MediaPipe's MaxPoolingWithArgmax2D and MaxUnpooling2D: maxima, and their positions in their windows, as floats.

Source: mediapipe/util/tflite/operations/max_pool_argmax.cc, max_unpooling.cc.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.kernels.template import Values
from mtool.compiler.operators.lowering import Lowering, Operator
from mtool.compiler.operators.own_domains import OwnOperator
from mtool.compiler.operators.templates import template_node


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingWithArgmax(Attributes):
    """Height and width of the windows, of the steps between them, of the pads before them, and of the output."""

    window: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    made: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledValues(Values):
    """shape: the input's shape [batch, height, width, channels]; the others as the attributes."""

    shape: tuple[int, ...]
    made: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]


def _values(ctx: Lowering, node: Node) -> PooledValues:
    attrs, shape = PoolingWithArgmax.of(node), ctx.types[node.inputs[0]].shape
    return PooledValues(shape=shape, made=attrs.made, window=attrs.window, strides=attrs.strides, pads=attrs.pads)


def _argmax(ctx: Lowering, node: Node) -> None:
    outputs = dict(zip(("best", "places"), node.outputs, strict=True))
    template_node(ctx, node, "max_pool_argmax", {"x": node.inputs[0]}, outputs, _values(ctx, node), math=True)


def _unpool(ctx: Lowering, node: Node) -> None:
    inputs = dict(zip(("x", "places"), node.inputs, strict=True))
    template_node(ctx, node, "max_unpool_window", inputs, {"y": node.outputs[0]}, _values(ctx, node), math=True)


def _outputs(count: int) -> Callable[[Attributes, Sequence[TensorType]], Sequence[TensorType]]:
    def outputs(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
        assert isinstance(attrs, PoolingWithArgmax)
        batch, _, _, channels = inputs[0].shape
        return [TensorType(DType.FLOAT32, (batch, *attrs.made, channels))] * count

    return outputs


OWN: dict[str, OwnOperator] = {
    "MaxPoolArgmax": OwnOperator(Operator(_argmax, PoolingWithArgmax), _outputs(2)),
    "MaxUnpoolWindow": OwnOperator(Operator(_unpool, PoolingWithArgmax), _outputs(1)),
}
