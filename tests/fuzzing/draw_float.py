"""What float networks are drawn from, and how often."""

from collections.abc import Callable

from tests.fuzzing import draw_elements as elements
from tests.fuzzing import draw_kernels as kernels
from tests.fuzzing.networks import Net, draw_case

Draw = Callable[[Net], object]


def _of(*ops: str) -> Draw:
    return lambda net: draw_case(net, *ops)


_REDUCED = ("Sum", "Mean", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp")

DRAWS: tuple[tuple[Draw, int], ...] = (
    (elements.unary, 10),
    (_of("Clip"), 3),
    (elements.prelu, 1),
    (elements.binary, 14),
    (elements.variadic, 2),
    (elements.compare, 2),
    (kernels.conv, 14),
    (_of("ConvTranspose"), 3),
    (_of("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"), 7),
    (kernels.matmul, 7),
    (_of("Gemm"), 4),
    (_of(*(f"Reduce{kind}" for kind in _REDUCED)), 6),
    (_of("Softmax", "Softmax", "Softmax", "LogSoftmax"), 5),
    (_of("LayerNormalization", "InstanceNormalization", "BatchNormalization", "LRN", "LpNormalization"), 4),
    (_of("Transpose"), 7),
    (_of("Reshape", "Reshape", "Flatten", "Squeeze", "Unsqueeze"), 6),
    (_of("Concat"), 5),
    (_of("Split"), 4),
    (_of("Slice"), 4),
    (_of("Pad"), 4),
    (_of("Resize"), 3),
    (_of("Gather", "Gather", "GatherElements", "ScatterElements", "GatherND"), 4),
    (_of("Expand", "Tile", "DepthToSpace", "SpaceToDepth"), 4),
    (_of("CumSum", "TopK", "ArgMax", "ArgMin", "Trilu", "Einsum"), 3),
    (_of("LSTM", "GRU", "RNN"), 2),
    (kernels.attention, 2),
)
