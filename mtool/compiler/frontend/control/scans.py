"""Scan: a round for each row of its inputs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from mtool.compiler.frontend.control.bodies import alias, body_named, check_is_tensor
from mtool.compiler.frontend.control.repetition import Repetition
from mtool.compiler.frontend.control.rounds import import_rounds, is_short
from mtool.compiler.frontend.control.written_out import node_of, scan_written_out, stack
from mtool.compiler.frontend.importer import Importer, NotThisWay
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.scope import Bodies, Body, Opsets

_OWN_OPSETS = {"": 21}


@dataclass(frozen=True, slots=True)
class Scan:
    """A Scan as it is asked for.

    body: its graph.
    states, scanned: the first of each carried value; what is read by rows.
    axes, turned: along which dimension each of those is read, and whether from its end.
    out_axes, out_turned: the same of what is written by rows.
    outputs: the last of each carried value, what is written by rows; "": not wanted.
    """

    body: Body
    states: Sequence[str]
    scanned: Sequence[str]
    axes: Sequence[int]
    turned: Sequence[bool]
    out_axes: Sequence[int]
    out_turned: Sequence[bool]
    outputs: Sequence[str]


def import_scan(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets, bodies: Bodies) -> None:
    """Import a Scan.

    Raises:
        Unsupported: its body, axes and inputs do not fit together.
        ModelError: it can only be written out, and exceeds the budget.
    """
    attrs = {attr.name: helper.get_attribute_value(attr) for attr in proto.attribute if attr.name != "body"}
    inputs, count, batch = list(proto.input), attrs["num_scan_inputs"], None
    if opsets.get("", 21) < 9:  # Scan 8: sequence lengths first, and a batch dimension
        if inputs[0]:
            raise Unsupported("sequence lengths of Scan 8 are not supported")
        batch, inputs = (state.types[inputs[1]].shape or (0,))[0], inputs[1:]
    if not 1 <= count <= len(inputs):
        raise Unsupported(f"it has {count} scan inputs among {len(inputs)} inputs")
    check_is_tensor(state, {value: f"its input {value!r}" for value in inputs})
    states, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    body = body_named(bodies, "body", len(inputs), max(len(states), len(proto.output)))
    made = len(body.graph.output) - len(states)
    axes = attrs.get("scan_input_axes") or [0] * count
    turned = attrs.get("scan_input_directions") or attrs.get("directions") or [0] * count
    out_axes, out_turned = (attrs.get(key) or [0] * made for key in ("scan_output_axes", "scan_output_directions"))
    if not (len(axes) == len(turned) == count and len(out_axes) == len(out_turned) == made):
        raise Unsupported(f"its axes and directions are not those of {count} inputs and {made} outputs")
    outputs = [*proto.output, *[""] * (len(body.graph.output) - len(proto.output))]
    scan = Scan(
        body, states, scanned, axes, [bool(one) for one in turned], out_axes, [bool(one) for one in out_turned], outputs
    )
    if batch is None:
        _import_one(state, scan, origin, opsets)
    else:
        _import_batch(state, scan, batch, origin, opsets)


def _import_batch(state: Importer, scan: Scan, batch: int, origin: str, opsets: Opsets) -> None:
    """Import a Scan for each image of a batch."""
    if batch < 1:
        raise Unsupported("it has no batch")
    state.budget.check("rounds", batch, f"Scan {origin}")
    images: list[list[str]] = []
    for image in range(batch):
        index = state.constant(f"{origin}/image", np.asarray(image, np.int64))
        states, scanned = (
            [node_of(state, opsets, "Gather", [value, index], origin, axis=0) for value in values]
            for values in (scan.states, scan.scanned)
        )
        own = [state.unique(f"{output}/image") if output else "" for output in scan.outputs]
        _import_one(state, replace(scan, states=states, scanned=scanned, outputs=own), origin, opsets)
        images.append(own)
    for column, new in zip(zip(*images, strict=True), scan.outputs, strict=True):
        if new:
            stack(state, list(column), new, 0, False, origin, opsets)


def _import_one(state: Importer, scan: Scan, origin: str, opsets: Opsets) -> None:
    shapes = [state.types[value].shape for value in scan.scanned]
    if any(not -len(shape) <= axis < len(shape) for shape, axis in zip(shapes, scan.axes, strict=True)):
        raise Unsupported(f"its scan_input_axes are {list(scan.axes)} of {[list(shape) for shape in shapes]}")
    rounds = shapes[0][scan.axes[0]]
    if any(shape[axis] != rounds for shape, axis in zip(shapes, scan.axes, strict=True)):
        raise Unsupported(f"its inputs {[list(shape) for shape in shapes]} differ in length along {list(scan.axes)}")
    if not state.keeps_rounds and is_short(scan.body, rounds):
        _written_out(state, scan, rounds, origin, opsets)
        return
    try:
        with state.attempt():
            _in_rounds(state, scan, rounds, origin, opsets, constant=not state.budget.allows("rounds", rounds))
    except NotThisWay as failed:
        if not rounds:
            state.give_up(failed, scan.outputs)
            return
        _written_out(state, scan, rounds, origin, opsets)


def _written_out(state: Importer, scan: Scan, rounds: int, origin: str, opsets: Opsets) -> None:
    count = len(scan.states)
    carried, rows = scan_written_out(
        state, scan.body, scan.states, scan.scanned, scan.axes, scan.turned, rounds, origin, opsets
    )
    for old, new in zip(carried, scan.outputs[:count], strict=True):
        alias(state, old, new, opsets)
    for values, new, axis, back in zip(rows, scan.outputs[count:], scan.out_axes, scan.out_turned, strict=True):
        if new:
            rank = len(state.types[values[0]].shape) + 1
            stack(state, values, new, axis % rank, back, origin, opsets)


def _in_rounds(state: Importer, scan: Scan, rounds: int, origin: str, opsets: Opsets, *, constant: bool) -> None:
    """Let the run compute it, if it is not `constant`; what is read or written along another axis is transposed."""
    count = len(scan.states)
    rows = []
    for value, axis, back in zip(scan.scanned, scan.axes, scan.turned, strict=True):
        rank = len(state.types[value].shape)
        first = axis % rank
        if first:
            order = [first, *(one for one in range(rank) if one != first)]
            value = node_of(state, _OWN_OPSETS, "Transpose", [value], origin, perm=order)
        rows.append((value, back))
    written = [
        (state.unique(f"{output}/rows") if output and axis else output, back)
        for output, axis, back in zip(scan.outputs[count:], scan.out_axes, scan.out_turned, strict=True)
    ]
    asked = Repetition(scan.body, "", "", scan.states, rows, scan.outputs[:count], written, (), ends=False, most=rounds)
    import_rounds(state, asked, origin, lambda old, new: alias(state, old, new, opsets), constant=constant)
    for (value, _), output, axis in zip(written, scan.outputs[count:], scan.out_axes, strict=True):
        if output and axis and value in state.types:
            rank = len(state.types[value].shape)
            if not -rank <= axis < rank:
                raise Unsupported(f"its scan_output_axes has {axis} of {rank} dimensions")
            dim = axis % rank
            order = [*range(1, dim + 1), 0, *range(dim + 1, rank)]
            state.run(helper.make_node("Transpose", [value], [output], name=origin, perm=order), _OWN_OPSETS)
