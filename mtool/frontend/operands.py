"""The shapes of a node's operands held against each other, where shape inference does not: a loop in C trusts them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from mtool.frontend.problems import Unsupported
from mtool.ir import TensorType

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operands:
    """A node's attributes, the shapes of its inputs (None: not given), and that of its first output."""

    attrs: Mapping[str, Any]
    inputs: tuple[Shape | None, ...]
    output: Shape

    def shape(self, place: int) -> Shape | None:
        """Return the shape of an input; None: it is not given."""
        return self.inputs[place] if place < len(self.inputs) else None

    @property
    def first(self) -> Shape:
        """The shape of the first input."""
        return self.inputs[0] or ()

    @property
    def second(self) -> Shape:
        """The shape of the second input."""
        return self.inputs[1] or ()


Wanted = Iterator[tuple[int, str]]
"""Inputs that do not fit, by their places, each with what is expected of it."""

Rule = Callable[[Operands], Wanted]


def check_operands(proto: onnx.NodeProto, attrs: Mapping[str, Any], types: Mapping[str, TensorType]) -> None:
    """Hold the shapes of a node's inputs against each other.

    Raises:
        Unsupported: one does not fit.
    """
    rule = RULES.get(proto.op_type)
    if rule is None or proto.output[0] not in types:
        return
    shapes = tuple(types[name].shape if name in types else None for name in proto.input)
    for place, expected in rule(Operands(attrs, shapes, types[proto.output[0]].shape)):
        found = types[proto.input[place]] if place < len(shapes) and shapes[place] is not None else "nothing"
        raise Unsupported(f"its input {place} is {found}; expected {expected}")


def _exactly(given: Operands, places: Mapping[int, Sequence[int]]) -> Wanted:
    for place, expected in places.items():
        found = given.shape(place)
        if found is not None and found != tuple(expected):
            yield place, f"the shape {list(expected)}"


def _broadcasts(shape: Shape | None, to: Shape) -> bool:
    if shape is None:
        return True
    ending = to[len(to) - len(shape) :] if len(shape) <= len(to) else None
    return ending is not None and all(a in (1, b) for a, b in zip(shape, ending, strict=True))


def _gemm(given: Operands) -> Wanted:
    if not _broadcasts(given.shape(2), given.output):
        yield 2, f"one that broadcasts to {list(given.output)}"


def _conv(given: Operands) -> Wanted:
    kernel = given.attrs.get("kernel_shape")
    if kernel and tuple(kernel) != given.second[2:]:
        yield 1, f"a kernel of {list(kernel)}"
    yield from _exactly(given, {2: given.second[:1]})


def _conv_integer(given: Operands) -> Wanted:
    yield from _conv(Operands(given.attrs, given.inputs[:2], given.output))
    if given.shape(3) not in (None, (), (1,), given.second[:1]):
        yield 3, f"a number, or {given.second[0]} of them"


def _matmul_integer(given: Operands) -> Wanted:
    rows, columns = given.first[-2:-1], given.second[-1:]
    if given.shape(2) not in (None, (), (1,), rows, (*given.first[:-1], 1)):
        yield 2, "a number, or one a row"
    if given.shape(3) not in (None, (), (1,), columns, (*given.second[:-2], 1, *columns)):
        yield 3, "a number, or one a column"


def _conv_transpose(given: Operands) -> Wanted:
    group, filters, kernel = given.attrs.get("group", 1), given.second, given.attrs.get("kernel_shape")
    if group < 1 or filters[0] % group or filters[0] != given.first[1]:
        yield 1, f"filters for {given.first[1]} channels in {group} groups"
    if kernel and tuple(kernel) != filters[2:]:
        yield 1, f"a kernel of {list(kernel)}"
    yield from _exactly(given, {2: (filters[1] * group,)})


def _deform_conv(given: Operands) -> Wanted:
    filters, group, offsets = given.second, given.attrs.get("group", 1), given.attrs.get("offset_group", 1)
    kernel = given.attrs.get("kernel_shape")
    if group < 1 or filters[0] % group or filters[1] * group != given.first[1]:
        yield 1, f"filters for {given.first[1]} channels in {group} groups"
    if kernel and tuple(kernel) != filters[2:]:
        yield 1, f"a kernel of {list(kernel)}"
    taps = offsets * filters[2] * filters[3]
    batch, place = given.first[:1], given.output[2:]
    yield from _exactly(given, {2: (*batch, 2 * taps, *place), 3: filters[:1], 4: (*batch, taps, *place)})


def _channels(given: Operands) -> Wanted:
    yield from _exactly(given, dict.fromkeys((1, 2), given.first[1:2]))


def _normalised(given: Operands) -> Wanted:
    for place in (1, 2):
        if not _broadcasts(given.shape(place), given.first):
            yield place, f"one that broadcasts to {list(given.first)}"


def _recurrent(gates: int) -> Rule:
    def rule(given: Operands) -> Wanted:
        directions = 2 if given.attrs.get("direction") == "bidirectional" else 1
        hidden = given.attrs.get("hidden_size", given.inputs[2][-1] if given.inputs[2] else 0)
        if hidden < 1 or len(given.first) != 3:
            yield 2, "a hidden_size of 1 or more, and an input of three dimensions"
            return
        batch = given.first[0 if given.attrs.get("layout") else 1]
        state = (batch, directions, hidden) if given.attrs.get("layout") else (directions, batch, hidden)
        rows = gates * hidden
        yield from _exactly(
            given,
            {
                1: (directions, rows, given.first[2]), 2: (directions, rows, hidden), 3: (directions, 2 * rows),
                4: (batch,), 5: state, 6: state, 7: (directions, 3 * hidden),
            },
        )  # fmt: skip

    return rule


def _along_axis(given: Operands) -> Wanted:
    """GatherElements, ScatterElements: an index for elements that there are."""
    data, indices, place = given.first, given.second, given.attrs.get("axis", 0)
    if len(data) != len(indices) or not data:
        yield 1, f"{len(data)} dimensions"
        return
    place %= len(data)
    if any(a > b for n, (a, b) in enumerate(zip(indices, data, strict=True)) if n != place):
        yield 1, f"sizes of at most {list(data)}, but along axis {place}"
    yield from _exactly(given, {2: indices})


def _scatter_nd(given: Operands) -> Wanted:
    data, indices = given.first, given.second
    if not indices or indices[-1] > len(data):
        yield 1, f"a last dimension of at most {len(data)}"
        return
    yield from _exactly(given, {2: (*indices[:-1], *data[indices[-1] :])})


def _gather_nd(given: Operands) -> Wanted:
    batch = given.attrs.get("batch_dims", 0)
    if given.first[:batch] != given.second[:batch]:
        yield 1, f"the batches {list(given.first[:batch])}"


def _blocks(given: Operands) -> Wanted:
    shape, size = given.first, given.attrs.get("blocksize", 1)
    if any(n % size for n in shape[2:]):
        yield 0, f"a height and width that {size} divides"


def _depth(given: Operands) -> Wanted:
    if given.first[1] % given.attrs.get("blocksize", 1) ** 2:
        yield 0, f"channels that {given.attrs['blocksize'] ** 2} divides"


def _reverse_sequence(given: Operands) -> Wanted:
    batch, time = given.attrs.get("batch_axis", 1), given.attrs.get("time_axis", 0)
    if len(given.first) < 2 or {batch, time} != {0, 1}:
        yield 0, f"the batch along axis {1 - time}, for the time along axis {time}"
        return
    yield from _exactly(given, {1: given.first[batch : batch + 1]})


def _rois(given: Operands) -> Wanted:
    yield from _exactly(given, {1: (*given.second[:1], 4), 2: given.second[:1]})


def _affine_grid(given: Operands) -> Wanted:
    yield from _exactly(given, {0: (given.output[0], given.output[-1], given.output[-1] + 1)})


RULES: dict[str, Rule] = {
    "Conv": _conv,
    "ConvInteger": _conv_integer,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
    "MatMulInteger": _matmul_integer,
    "Gemm": _gemm,
    "InstanceNormalization": _channels,
    **dict.fromkeys(["LayerNormalization", "RMSNormalization"], _normalised),
    "RNN": _recurrent(1),
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4),
    **dict.fromkeys(["GatherElements", "ScatterElements", "Scatter"], _along_axis),
    "ScatterND": _scatter_nd,
    "GatherND": _gather_nd,
    "SpaceToDepth": _blocks,
    "DepthToSpace": _depth,
    "ReverseSequence": _reverse_sequence,
    "MaxUnpool": lambda given: _exactly(given, {1: given.first}),
    "RoiAlign": _rois,
    "AffineGrid": _affine_grid,
}
"""What the operands of an operator have to be, beside what onnx's shape inference looks at."""
