"""If, Loop and Scan: chosen, or written out, when the model is imported.

An If whose condition is known is its branch; one whose condition is not, both branches and a choice. A Loop
whose number of rounds is known, and a Scan, are their bodies one after another. A Loop whose number of rounds
depends on data makes as many as are stated at the most, and keeps what it has after its last one: each round calls
the same functions, so what it takes is time, not flash.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mtool.frontend.bounds import Bound
from mtool.frontend.functions import renamed
from mtool.frontend.problems import Unsupported, ValueNeeded
from mtool.text import argument

if TYPE_CHECKING:
    from mtool.frontend.importer import Importer

Opsets = Mapping[str, int]
Control = Callable[["Importer", onnx.NodeProto, str, Opsets], None]

MOST_ROUNDS = 256


def _graph(proto: onnx.NodeProto, name: str) -> onnx.GraphProto:
    return next(attr.g for attr in proto.attribute if attr.name == name)


def inline(
    state: "Importer", graph: onnx.GraphProto, feeds: Mapping[str, str], prefix: str, opsets: Opsets
) -> list[str]:
    """Import a body with its inputs bound to values, and return the names of its outputs."""
    made = {value for node in graph.node for value in node.output if value} | {t.name for t in graph.initializer}
    read = _read(graph)
    names = {value: value for value in read} | {value: f"{prefix}/{value}" for value in made} | dict(feeds)
    for tensor in graph.initializer:
        state.add_constant(names[tensor.name], numpy_helper.to_array(tensor))
    for node in graph.node:
        state.run(renamed(node, names, {}, prefix, node.name or prefix), opsets)
    return [names[value.name] for value in graph.output]


def _read(graph: onnx.GraphProto) -> set[str]:
    """Return every value that a body reads or gives, those of the bodies inside it too."""
    found = {value for node in graph.node for value in node.input} | {value.name for value in graph.output}
    for node in graph.node:
        for attr in node.attribute:
            if attr.type == onnx.AttributeProto.GRAPH:
                found |= _read(attr.g)
    return found


def alias(state: "Importer", old: str, new: str, opsets: Opsets) -> None:
    """Let a value go by another name too."""
    if new:
        state.run(helper.make_node("Identity", [old], [new], name=new), opsets)


def _node(state: "Importer", opsets: Opsets, op: str, inputs: list[str], prefix: str, **attrs: object) -> str:
    output = state.unique(f"{prefix}/{op}")
    state.run(helper.make_node(op, inputs, [output], name=prefix, **attrs), opsets)
    return output


def _if(state: "Importer", proto: onnx.NodeProto, origin: str, opsets: Opsets) -> None:
    condition = proto.input[0]
    branches = [_graph(proto, name) for name in ("then_branch", "else_branch")]
    if condition in state.constants:
        chosen = branches[0 if state.constants[condition].item() else 1]
        for old, new in zip(inline(state, chosen, {}, state.unique(origin), opsets), proto.output, strict=True):
            alias(state, old, new, opsets)
        return
    sides = [inline(state, branch, {}, state.unique(origin), opsets) for branch in branches]
    for yes, no, output in zip(*sides, proto.output, strict=True):
        if yes in state.types and no in state.types and state.types[yes] != state.types[no]:
            raise Unsupported(f"its branches give {state.types[yes]} and {state.types[no]}")
        state.run(helper.make_node("Where", [condition, yes, no], [output], name=origin), opsets)


def _rounds(state: "Importer", rounds: int) -> int:
    if rounds > MOST_ROUNDS:
        raise Unsupported(f"{rounds} rounds; at most {MOST_ROUNDS} are written out")
    return rounds


def _loop(state: "Importer", proto: onnx.NodeProto, origin: str, opsets: Opsets) -> None:
    body = _graph(proto, "body")
    trips, condition, *values = _loop_inputs(proto)
    for value, role in ((trips, "M"), (condition, "cond")):
        if value and value not in state.constants:
            _bounded_loop(state, proto, (value, role), origin, opsets)
            return
    limit = int(state.value_of(trips, "M").item()) if trips else None
    going = bool(state.value_of(condition, "cond").item()) if condition else True
    carried, number = list(values), 0
    scanned: list[list[str]] = [[] for _ in body.output[1 + len(values) :]]
    while going and (limit is None or number < limit):
        _rounds(state, number + 1)
        prefix = state.unique(origin)
        given = [state.constant(f"{prefix}/number", np.asarray(number, np.int64))]
        given.append(state.constant(f"{prefix}/going", np.asarray(True)))
        feeds = dict(zip((value.name for value in body.input), [*given, *carried], strict=True))
        outputs = inline(state, body, feeds, prefix, opsets)
        if outputs[0] not in state.constants:
            _bounded_loop(state, proto, (outputs[0], "cond"), origin, opsets)
            return
        going = bool(state.constants[outputs[0]].item())
        carried = outputs[1 : 1 + len(values)]
        for rows, value in zip(scanned, outputs[1 + len(values) :], strict=True):
            rows.append(value)
        number += 1
    for old, new in zip(carried, proto.output, strict=False):
        alias(state, old, new, opsets)
    for rows, new in zip(scanned, proto.output[len(values) :], strict=True):
        if new and not rows:
            raise Unsupported("it makes no round")
        if new:
            _stack(state, rows, new, 0, False, origin, opsets)


def _loop_inputs(proto: onnx.NodeProto) -> list[str]:
    """Return the number of rounds, the condition (each "" if it is not given) and the carried values."""
    return [*proto.input, "", ""][: max(len(proto.input), 2)]


def _bounded_loop(
    state: "Importer", proto: onnx.NodeProto, unknown: tuple[str, str], origin: str, opsets: Opsets
) -> None:
    """Write out a Loop whose number of rounds depends on data, up to a stated maximum.

    A round that would not be made is computed all the same, and its results are dropped.
    """
    body = _graph(proto, "body")
    trips, condition, *values = _loop_inputs(proto)
    active = [_scalar(state, condition, origin)] if condition and condition not in state.constants else []
    if condition in state.constants and not state.constants[condition].item():
        raise Unsupported("it makes no round")
    most = _most_rounds(state, proto, trips, unknown)
    limit = _scalar(state, trips, origin) if trips and trips not in state.constants else ""
    carried, made = list(values), ""
    scanned: list[list[str]] = [[] for _ in body.output[1 + len(values) :]]
    for number in range(most):
        prefix = state.unique(origin)
        place = state.constant(f"{prefix}/number", np.asarray(number, np.int64))
        if limit:
            active.append(_node(state, opsets, "Greater", [limit, place], prefix))
        now = active[0] if active else state.constant(f"{prefix}/going", np.asarray(True))
        for other in active[1:]:
            now = _node(state, opsets, "And", [now, other], prefix)
        given = [place, state.constant(f"{prefix}/going", np.asarray(True))]
        feeds = dict(zip((value.name for value in body.input), [*given, *carried], strict=True))
        outputs = inline(state, body, feeds, prefix, opsets)
        carried = [
            _kept(state, now, *pair, prefix, opsets) for pair in zip(outputs[1 : 1 + len(values)], carried, strict=True)
        ]
        for rows, value in zip(scanned, outputs[1 + len(values) :], strict=True):
            rows.append(value)
        one = _node(state, opsets, "Cast", [now], prefix, to=onnx.TensorProto.INT32)
        made = _node(state, opsets, "Add", [made, one], prefix) if made else one
        active = [now]
        if outputs[0] not in state.constants:
            active.append(_scalar(state, outputs[0], prefix))
        elif not state.constants[outputs[0]].item():
            break
    for old, new in zip(carried, proto.output, strict=False):
        alias(state, old, new, opsets)
    for rows, new in zip(scanned, proto.output[len(values) :], strict=True):
        if new:
            _stack(state, rows, new, 0, False, origin, opsets)
            state.bounds[new] = Bound(0, made)


def _most_rounds(state: "Importer", proto: onnx.NodeProto, trips: str, unknown: tuple[str, str]) -> int:
    """Return how many rounds are written out: what is stated under the name of an output or of the node, or M.

    M is enough where no output has an element for each round: such an output's size depends on data, which has to be
    asked for. `unknown` is the value that the number of rounds depends on, and its role.
    """
    names = [name for name in (*proto.output, proto.name) if name and name in state.maxima]
    if names:
        state.used_maxima.add(names[0])
        most = state.maxima[names[0]]
    elif trips in state.constants and not any(proto.output[len(proto.input) - 2 :]):
        most = int(state.constants[trips].item())
    else:
        example = next((name for name in (*proto.output, proto.name) if name), "NAME")
        raise ValueNeeded(*unknown, f", or its most rounds be stated: --max {argument(example)}=N")
    if most < 1:
        raise Unsupported("it makes no round")
    return _rounds(state, most)


def _scalar(state: "Importer", value: str, prefix: str) -> str:
    """Return a value of one element as one without dimensions."""
    if not state.types[value].shape:
        return value
    return _node(state, {"": 21}, "Reshape", [value, state.constant(f"{prefix}/shape", np.zeros(0, np.int64))], prefix)


def _kept(state: "Importer", now: str, new: str, old: str, prefix: str, opsets: Opsets) -> str:
    """Return the new value of what a round carries on, or the old one if the round is not made."""
    if state.types[new] != state.types[old]:
        raise Unsupported(f"what it carries on changes from {state.types[old]} to {state.types[new]}")
    return _node(state, opsets, "Where", [now, new, old], prefix)


def _stack(
    state: "Importer", rows: list[str], output: str, axis: int, reverse: bool, origin: str, opsets: Opsets
) -> None:
    """Concatenate values along a new axis."""
    axes = state.constant(f"{origin}/axis", np.asarray([axis], np.int64))
    parts = [_node(state, {"": 21}, "Unsqueeze", [row, axes], origin) for row in (rows[::-1] if reverse else rows)]
    state.run(helper.make_node("Concat", parts, [output], name=origin, axis=axis), opsets)


def _scan(state: "Importer", proto: onnx.NodeProto, origin: str, opsets: Opsets) -> None:
    attrs = {attr.name: helper.get_attribute_value(attr) for attr in proto.attribute if attr.name != "body"}
    body, count = _graph(proto, "body"), attrs["num_scan_inputs"]
    inputs, batch = list(proto.input), None
    if opsets.get("", 21) < 9:  # Scan 8: sequence lengths first, and a batch dimension
        if inputs[0]:
            raise Unsupported("sequence lengths of Scan 8 are not supported")
        batch = state.types[inputs[1]].shape[0]
        inputs = inputs[1:]
    states, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    made = len(body.output) - len(states)
    axes = attrs.get("scan_input_axes") or [0] * count
    turned = attrs.get("scan_input_directions") or attrs.get("directions") or [0] * count
    out_axes, out_turned = (attrs.get(key) or [0] * made for key in ("scan_output_axes", "scan_output_directions"))
    if batch is None:
        carried, rows = _scan_once(state, body, states, scanned, axes, turned, origin, opsets)
        for old, new in zip(carried, proto.output, strict=False):
            alias(state, old, new, opsets)
        for values, new, axis, back in zip(rows, proto.output[len(states) :], out_axes, out_turned, strict=True):
            rank = len(state.types[values[0]].shape) + 1
            _stack(state, values, new, axis % rank, bool(back), origin, opsets)
        return
    images: list[list[str]] = []
    for image in range(batch):
        place = state.constant(f"{origin}/image", np.asarray(image, np.int64))
        one = [_node(state, opsets, "Gather", [value, place], origin, axis=0) for value in inputs]
        carried, rows = _scan_once(state, body, one[: len(states)], one[len(states) :], axes, turned, origin, opsets)
        stacked = [state.unique(f"{origin}/rows") for _ in rows]
        for values, name in zip(rows, stacked, strict=True):
            _stack(state, values, name, 0, False, origin, opsets)
        images.append([*carried, *stacked])
    for column, new in zip(zip(*images, strict=True), proto.output, strict=True):
        _stack(state, list(column), new, 0, False, origin, opsets)


def _scan_once(
    state: "Importer",
    body: onnx.GraphProto,
    states: list[str],
    scanned: list[str],
    axes: list[int],
    turned: list[int],
    origin: str,
    opsets: Opsets,
) -> tuple[list[str], list[list[str]]]:
    """Write the rounds out; return the last states and what each round gave."""
    shapes = [state.types[value].shape for value in scanned]
    rounds = _rounds(state, shapes[0][axes[0] % len(shapes[0])])
    carried = list(states)
    rows: list[list[str]] = [[] for _ in body.output[len(states) :]]
    for number in range(rounds):
        prefix = state.unique(origin)
        parts = []
        for value, axis, back in zip(scanned, axes, turned, strict=True):
            place = state.constant(f"{prefix}/number", np.asarray(rounds - 1 - number if back else number, np.int64))
            parts.append(_node(state, opsets, "Gather", [value, place], prefix, axis=axis))
        feeds = dict(zip((value.name for value in body.input), [*carried, *parts], strict=True))
        outputs = inline(state, body, feeds, prefix, opsets)
        carried = outputs[: len(states)]
        for values, value in zip(rows, outputs[len(states) :], strict=True):
            values.append(value)
    return carried, rows


CONTROL: dict[str, Control] = {"If": _if, "Loop": _loop, "Scan": _scan}
