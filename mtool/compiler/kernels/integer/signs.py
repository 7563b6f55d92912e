"""Layers whose inputs and weights are signs: XNOR and population counts, of 32 outputs in each word.

Each bit of a word belongs to an output. Words of counters are added up as hardware does it, so that no output's bits
have to be counted alone. Where a layer gives the sign of its sums, counters begin at the numbers at which their last
bit is that sign.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mtool.compiler.ir import DType, Graph, Node, acc
from mtool.compiler.ir.expr import compare
from mtool.compiler.kernels.code_price import nodes_of_operator, price_of_code
from mtool.compiler.kernels.epilogues import EpilogueText, Products
from mtool.compiler.kernels.integer import EPILOGUE, RESULT, Work
from mtool.compiler.kernels.sum_schedule import SumSchedule
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import WeightedSum

LANES = 32
TURN = 16  # inputs
MOST_BITS = 16
THUMB1 = 1.6  # times as many instructions
CODE = 600  # bytes of the functions, about


@dataclass(frozen=True)
class Signs(SumSchedule[Work, EpilogueText]):
    """Negative products of 32 outputs are counted at a time, the bits of a count in words."""

    name = "int_xnor_words"
    template = "kernels/integer/signs.c.j2"
    core = "multiplies_words"
    forms = (EpilogueText,)
    sizes_name = "work"
    bits = 1  # of a stored weight

    def sizes(self, node: Node, graph: Graph) -> Work:
        """Pixels or rows, outputs, inputs."""
        x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        return Work.of(node, graph, x.count // x.shape[-1], y.shape[-1], x.shape[-1])

    def fits(self, work: Work, epilogue: EpilogueText) -> bool:
        """Signs by signs."""
        weights = epilogue.weights
        is_signs = WeightedSum.of(epilogue.node).magnitude and weights.dtype == np.int8 and weights.any()
        if not is_signs or epilogue.acc is not DType.INT32 or work.depth.bit_length() > MOST_BITS:
            return False
        return weights.size == work.outputs * work.depth and bool((np.abs(weights) == np.abs(weights).max()).all())

    def _unit(self, epilogue: EpilogueText) -> int:
        """Return the magnitude of a product."""
        return WeightedSum.of(epilogue.node).magnitude * int(np.abs(epilogue.weights.astype(int)).max())

    def _signs(self, epilogue: EpilogueText) -> tuple[int, int] | None:
        """Return the numbers that stand for sums from 0 on and below, if they are the results."""
        expr = epilogue.expr
        if expr.op != "where" or expr.dtype is not DType.INT8:
            return None
        is_sign = expr.args[0] == compare("greater_equal", acc(DType.INT32), 0)
        yes, no = expr.args[1:]
        return (yes.value, no.value) if is_sign and yes.op == no.op == "const" else None

    def _count(self, work: Work, epilogue: EpilogueText) -> int:
        """Return the bits of a counter."""
        return work.depth.bit_length() + (self._signs(epilogue) is not None)

    def products(self, work: Work, epilogue: EpilogueText, target: Target) -> Products:
        """The first values of counters and the signs of weights, by 32 outputs."""
        count, unit, groups = self._count(work, epilogue), self._unit(epilogue), -(-work.outputs // LANES)
        first = np.zeros(work.outputs, np.int64)
        if self._signs(epilogue):
            least = (unit * work.depth + epilogue.bias_of_model.astype(np.int64)) // (2 * unit) + 1
            first = (1 << work.depth.bit_length()) - np.clip(least, 0, work.depth + 1)
        bits = np.concatenate(
            [first[:, None] >> np.arange(count) & 1, epilogue.weights.reshape(work.outputs, -1) < 0], axis=1
        )
        filled = np.pad(bits, ((0, groups * LANES - work.outputs), (0, 0))).reshape(groups, 8, 4, -1)
        places = np.arange(8)[:, None, None] + 8 * np.arange(4)[:, None]
        words = (filled.astype(np.uint32) << places.astype(np.uint32)).sum((1, 2), dtype=np.uint32)
        layout = "32 outputs a row: the bits of counters' first values, the signs of each input's weights"
        return Products(words, layout, "mt_int_signs.h", has_bias=self._signs(epilogue) is not None)

    def values(self, work: Work, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """The bits of a counter, the results of signs, a product, the places of an output."""
        pair = self._signs(epilogue)
        words = [(value & 255) * 0x01010101 for value in pair or ()]
        signs = [f"{words[0]:#x}", f"{words[0] ^ words[1]:#x}"] if words else []
        variables = {"count": self._count(work, epilogue), "signs": signs, "unit": self._unit(epilogue)}
        return variables | {"axes": self.axes(work, epilogue)}

    def axes(self, work: Work, epilogue: EpilogueText) -> dict[int, str]:
        """Return the C of the index of output c + i of row m."""
        raise NotImplementedError

    def instructions(self, work: Work, epilogue: EpilogueText, target: Target) -> float:
        """Those of turns, of inputs that are left, of results."""
        turns, rest = divmod(work.depth, TURN)
        count = self._count(work, epilogue)
        block: float = turns * (135 + 5 * (count - 4)) + rest * (6 + 5 * count) + 60 + 4 * count
        block *= THUMB1 if target.is_thumb1 else 1
        result = 3.0 if self._signs(epilogue) else 18 + EPILOGUE + RESULT
        node, graph = epilogue.node, epilogue.graph
        code = CODE * price_of_code(node, graph) / nodes_of_operator(node, graph)
        return work.vectors * (-(-work.outputs // LANES) * block + work.outputs * result) + code
