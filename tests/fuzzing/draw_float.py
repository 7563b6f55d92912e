"""What float networks are drawn from, and how often."""

from collections.abc import Callable

from tests.fuzzing import draw_elements as elements
from tests.fuzzing import draw_kernels as kernels
from tests.fuzzing import draw_moves as moves
from tests.fuzzing.networks import Net

Draw = Callable[[Net], object]

DRAWS: tuple[tuple[Draw, int], ...] = (
    (elements.unary, 10),
    (elements.clip, 4),
    (elements.binary, 14),
    (elements.variadic, 2),
    (elements.compare, 2),
    (kernels.conv, 14),
    (kernels.conv_transpose, 3),
    (kernels.pool, 7),
    (kernels.matmul, 7),
    (kernels.gemm, 4),
    (elements.reduce, 6),
    (elements.softmax, 5),
    (elements.normalise, 4),
    (moves.transpose, 7),
    (moves.reshape, 6),
    (moves.concat, 5),
    (moves.split, 4),
    (moves.slice_, 4),
    (moves.pad, 4),
    (moves.resize, 3),
    (moves.gather, 4),
    (moves.spread, 4),
    (moves.order, 3),
    (kernels.recurrent, 2),
    (kernels.attention, 2),
)
