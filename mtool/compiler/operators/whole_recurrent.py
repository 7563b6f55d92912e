"""Recurrent operators of integers as one node each, for backends to recognise; what is compiled is written out.

Sources: mtool/compiler/frontend/tflite/recurrent.py, which has their arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mtool.compiler.ir import Attributes, Node, TensorType
from mtool.compiler.operators.lowering import Lowering, Operator
from mtool.compiler.operators.own_domains import OwnOperator


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerLstm(Attributes):
    """An LSTM of int8 with a cell of int16.

    Inputs are x, the hidden state, the cell, then for each of the gates input, forget, cell and output its weights, its
    recurrent weights and its bias. Outputs are the results, unless there is one step alone, and both states.

    steps: of the sequence.
    time_major: x is [steps, images, numbers] (1), or [images, steps, numbers] (0).
    point: the bits of the cell before the point.
    clip: what the cell is clipped to, in its steps; 0: nothing.
    inner_scale, inner_zero: the grid of the results.
    """

    steps: int
    time_major: int
    point: int
    clip: int
    inner_scale: float
    inner_zero: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerSvdf(Attributes):
    """An SVDF of int8: inputs are x, the state, the weights of the features, those over time, the bias.

    Outputs are the results and the state.

    rank: filters a unit.
    """

    rank: int


def _never(ctx: Lowering, node: Node) -> None:
    raise AssertionError(f"{node.op} {node.name} is for backends to recognise")


def _of_lstm(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    assert isinstance(attrs, IntegerLstm)
    x, hidden, cell = inputs[:3]
    rows = TensorType(hidden.dtype, (*x.shape[:-1], hidden.shape[-1]))
    return (hidden, cell) if attrs.steps == 1 else (rows, hidden, cell)


def _of_svdf(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    assert isinstance(attrs, IntegerSvdf)
    x, state, features = inputs[:3]
    return TensorType(x.dtype, (x.shape[0], features.shape[0] // attrs.rank)), state


OWN: dict[str, OwnOperator] = {
    "IntegerLstm": OwnOperator(Operator(_never, IntegerLstm), _of_lstm),
    "IntegerSvdf": OwnOperator(Operator(_never, IntegerSvdf), _of_svdf),
}
