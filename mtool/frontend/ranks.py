"""Shapes that ONNX's inference does not look at: it gives the outputs a type, whatever these inputs are."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mtool.frontend.problems import Unsupported
from mtool.ir import TensorType
from mtool.ir.types import Array

_SPATIAL = {"AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool"}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def check_shapes(
    op: str,
    inputs: list[str],
    attrs: Mapping[str, Any],
    types: Mapping[str, TensorType],
    constants: Mapping[str, Array],
) -> None:
    """Hold the shapes of an operator's inputs, and the lengths among its constants, against what it defines.

    Args:
        op: the operator, of ONNX's own domain.
        inputs: the names of its inputs, "" for one that is not given.
        attrs: its attributes.
        types: the types of all values.
        constants: the values that are known.

    Raises:
        Unsupported: they do not go together.
    """
    shapes = [types[name].shape if name else None for name in inputs]
    first = shapes[0] if shapes else None
    if first is None:
        return
    if op in _SPATIAL and len(first) < 3:
        raise Unsupported(f"its input has {len(first)} dimensions; expected 3 or more: batch, channels and places")
    if op in ("GatherElements", "ScatterElements") and shapes[1] is not None and len(shapes[1]) != len(first):
        raise Unsupported(f"its indices have {len(shapes[1])} dimensions and its data {len(first)}; expected as many")
    if op == "ReverseSequence":
        _check_sequences(first, shapes[1], attrs, constants.get(inputs[1]))
    if op in _GATES:
        _check_recurrent(op, shapes, attrs)


def _check_sequences(
    shape: tuple[int, ...], lengths: tuple[int, ...] | None, attrs: Mapping[str, Any], known: Array | None
) -> None:
    time, batch = attrs.get("time_axis", 0), attrs.get("batch_axis", 1)
    if sorted((time, batch)) != [0, 1] or len(shape) < 2:
        raise Unsupported(
            f"its axes of time and batch are {time} and {batch} of {len(shape)}; expected 0 and 1, or 1 and 0"
        )
    if lengths != (shape[batch],):
        raise Unsupported(f"its sequence_lens is {list(lengths or ())}; expected [{shape[batch]}], the batch")
    if known is not None and known.size and not 0 <= np.min(known) <= np.max(known) <= shape[time]:
        raise Unsupported(f"its sequence_lens has {np.min(known)} to {np.max(known)}; expected 0 to {shape[time]}")


def _check_recurrent(op: str, shapes: list[tuple[int, ...] | None], attrs: Mapping[str, Any]) -> None:
    """Hold the weights against the input and the hidden size (RNN, GRU and LSTM 7 to 22)."""
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    source, weights, recurrence = shapes[:3]
    if source is None or weights is None or recurrence is None or not len(source) == len(recurrence) == 3:
        raise Unsupported("its X, W and R do not have 3 dimensions each")
    hidden = attrs.get("hidden_size", recurrence[2])
    rows = _GATES[op] * hidden
    batch = source[0] if attrs.get("layout", 0) else source[1]
    state = (batch, directions, hidden) if attrs.get("layout", 0) else (directions, batch, hidden)
    expected = {
        "W": (directions, rows, source[2]), "R": (directions, rows, hidden), "B": (directions, 2 * rows),
        "sequence_lens": (batch,), "initial_h": state, "initial_c": state, "P": (directions, 3 * hidden),
    }  # fmt: skip
    for (name, wanted), found in zip(expected.items(), shapes[1:], strict=False):
        if found is not None and found != wanted:
            raise Unsupported(f"its {name} is {list(found)}; expected {list(wanted)}")
