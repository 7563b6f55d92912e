"""If, Loop and Scan: chosen, or written out, when the model is imported.

An If whose condition is known is its branch; one whose condition is not, both branches and a choice. A Loop
whose number of rounds is known, and a Scan, are their bodies one after another. A Loop whose number of rounds
depends on data makes as many as are stated at the most, and keeps what it has after its last one: each round calls
the same functions, so what it takes is time, not flash.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.escaping import argument
from mtool.frontend import tensors
from mtool.frontend.bounds import Bound
from mtool.frontend.importer import Importer
from mtool.frontend.problems import Unsupported, ValueNeeded
from mtool.frontend.scope import Bodies, Body, Opsets

Control = Callable[[Importer, onnx.NodeProto, str, Opsets, Bodies], None]


def _graph(bodies: Bodies, name: str, inputs: int | None = None, outputs: int | None = None) -> Body:
    """Return the body of a node.

    Raises:
        Unsupported: it has none of that name, or one of other numbers of inputs, or fewer outputs.
    """
    if name not in bodies:
        raise Unsupported(f"it has no {name}")
    graph = bodies[name].graph
    if inputs is not None and len(graph.input) != inputs:
        raise Unsupported(f"its {name} has {len(graph.input)} inputs instead of {inputs}")
    if outputs is not None and len(graph.output) < outputs:
        raise Unsupported(f"its {name} has {len(graph.output)} outputs instead of {outputs}")
    return bodies[name]


def inline(state: Importer, body: Body, feeds: Sequence[str], prefix: str) -> list[str]:
    """Import a body with its inputs bound to values, and return the names of its outputs."""
    graph = body.graph
    fed = dict(zip((value.name for value in graph.input), feeds, strict=True))
    constants = {tensor.name: tensor for tensor in graph.initializer if tensor.name not in fed}
    sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer if tensor.values.name not in fed}
    made = {value for node in graph.node for value in node.output if value}
    scope = body.scope.inside(state.inner(prefix, made | {*constants} | {*sparse}) | fed, prefix)
    for name, tensor in constants.items():
        state.add_constant(scope.name(name), tensors.array_of(tensor, state.budget, f"initialiser {name!r}"))
    for name, scattered in sparse.items():
        state.add_constant(scope.name(name), tensors.dense(scattered, state.budget, f"initialiser {name!r}"))
    state.enter(graph.node, scope, prefix)
    return [scope.name(value.name) for value in graph.output]


def _single(data: Any, role: str) -> Any:
    """Return the only element of a constant, as a number.

    Raises:
        Unsupported: it has another number of elements.
    """
    if data.size != 1:
        raise Unsupported(f"its {role} has {data.size} elements instead of 1")
    return data.item()


def alias(state: Importer, old: str, new: str, opsets: Opsets) -> None:
    """Give a value another name too."""
    if new:
        state.run(helper.make_node("Identity", [old], [new], name=new), opsets)


def _node(state: Importer, opsets: Opsets, op: str, inputs: list[str], prefix: str, **attrs: object) -> str:
    output = state.unique(f"{prefix}/{op}")
    state.run(helper.make_node(op, inputs, [output], name=prefix, **attrs), opsets)
    return output


def _if(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets, bodies: Bodies) -> None:
    condition = proto.input[0]
    branches = [_graph(bodies, name, 0, len(proto.output)) for name in ("then_branch", "else_branch")]
    if condition in state.constants:
        chosen = branches[0 if _single(state.constants[condition], "cond") else 1]
        for old, new in zip(inline(state, chosen, (), state.unique(origin)), proto.output, strict=False):
            alias(state, old, new, opsets)
        return
    if condition in state.types and state.types[condition].count != 1:
        raise Unsupported(f"its condition is {state.types[condition]}; expected one element")
    with state.in_doubt():
        sides = [inline(state, branch, (), state.unique(origin)) for branch in branches]
    for yes, no, output in zip(*sides, proto.output, strict=False):
        if yes in state.types and no in state.types and state.types[yes] != state.types[no]:
            raise Unsupported(f"its branches give {state.types[yes]} and {state.types[no]}")
        state.run(helper.make_node("Where", [condition, yes, no], [output], name=origin), opsets)


def _loop(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets, bodies: Bodies) -> None:
    trips, condition, *values = _loop_inputs(proto)
    body = _loop_body(bodies, proto, len(values))
    for value, role in ((trips, "M"), (condition, "cond")):
        if value and value not in state.constants:
            _bounded_loop(state, proto, body, (value, role), origin, opsets)
            return
    limit = _single(state.value_of(trips, "M"), "M") if trips else None
    going = bool(_single(state.value_of(condition, "cond"), "cond")) if condition else True
    carried, number = list(values), 0
    scanned: list[list[str]] = [[] for _ in body.graph.output[1 + len(values) :]]
    while going and (limit is None or number < limit):
        number += 1
        state.budget.check("rounds", number, f"Loop {origin}")
        prefix = state.unique(origin)
        given = [state.constant(f"{prefix}/number", np.asarray(number - 1, np.int64))]
        given.append(state.constant(f"{prefix}/going", np.asarray(True)))
        outputs = inline(state, body, [*given, *carried], prefix)
        if outputs[0] not in state.constants:
            _bounded_loop(state, proto, body, (outputs[0], "cond"), origin, opsets)
            return
        going = bool(_single(state.constants[outputs[0]], "cond"))
        carried = outputs[1 : 1 + len(values)]
        for rows, value in zip(scanned, outputs[1 + len(values) :], strict=True):
            rows.append(value)
    for old, new in zip(carried, proto.output, strict=False):
        alias(state, old, new, opsets)
    for rows, new in zip(scanned, proto.output[len(values) :], strict=False):
        if new and not rows:
            raise Unsupported("it makes no round")
        if new:
            _stack(state, rows, new, 0, False, origin, opsets)


def _loop_body(bodies: Bodies, proto: onnx.NodeProto, values: int) -> Body:
    body = _graph(bodies, "body", 2 + values, 1 + max(values, len(proto.output)))
    if len(body.graph.output) < 1 + values:
        raise Unsupported(f"its body has {len(body.graph.output)} outputs, for {values} values that it carries on")
    return body


def _loop_inputs(proto: onnx.NodeProto) -> list[str]:
    """Return the number of rounds, the condition (each "" if it is not given) and the carried values."""
    return [*proto.input, "", ""][: max(len(proto.input), 2)]


def _bounded_loop(
    state: Importer, proto: onnx.NodeProto, body: Body, unknown: tuple[str, str], origin: str, opsets: Opsets
) -> None:
    """Write out a Loop whose number of rounds depends on data, up to a stated maximum.

    A round that would not be made is computed all the same, and its results are dropped.
    """
    trips, condition, *values = _loop_inputs(proto)
    active = [_scalar(state, condition, origin)] if condition and condition not in state.constants else []
    if condition in state.constants and not _single(state.constants[condition], "cond"):
        raise Unsupported("it makes no round")
    most = _most_rounds(state, proto, trips, unknown, origin)
    limit = _scalar(state, trips, origin) if trips and trips not in state.constants else ""
    carried, made = list(values), ""
    scanned: list[list[str]] = [[] for _ in body.graph.output[1 + len(values) :]]
    for number in range(most):
        prefix = state.unique(origin)
        place = state.constant(f"{prefix}/number", np.asarray(number, np.int64))
        if limit:
            active.append(_node(state, opsets, "Greater", [limit, place], prefix))
        now = active[0] if active else state.constant(f"{prefix}/going", np.asarray(True))
        for other in active[1:]:
            now = _node(state, opsets, "And", [now, other], prefix)
        given = [place, state.constant(f"{prefix}/going", np.asarray(True))]
        with state.in_doubt():
            outputs = inline(state, body, [*given, *carried], prefix)
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
        elif not _single(state.constants[outputs[0]], "cond"):
            break
    for old, new in zip(carried, proto.output, strict=False):
        alias(state, old, new, opsets)
    for rows, new in zip(scanned, proto.output[len(values) :], strict=False):
        if new:
            _stack(state, rows, new, 0, False, origin, opsets)
            state.bounds[new] = Bound(0, made)


def _most_rounds(state: Importer, proto: onnx.NodeProto, trips: str, unknown: tuple[str, str], origin: str) -> int:
    """Return how many rounds are written out: what is stated under the name of an output or of the node, or M.

    M is enough where no output has an element for each round: such an output's size depends on data, which has to be
    asked for. `unknown` is the value that the number of rounds depends on, and its role.
    """
    names = [name for name in (*proto.output, proto.name) if name and name in state.maxima]
    if names:
        state.used_maxima.add(names[0])
        most = state.maxima[names[0]]
    elif trips in state.constants and not any(proto.output[len(proto.input) - 2 :]):
        most = int(_single(state.constants[trips], "M"))
    else:
        example = next((name for name in (*proto.output, proto.name) if name), "NAME")
        raise ValueNeeded(*unknown, f", or its most rounds be stated: --max {argument(example)}=N")
    if most < 1:
        raise Unsupported("it makes no round")
    state.budget.check("rounds", most, f"Loop {origin}")
    return most


def _scalar(state: Importer, value: str, prefix: str) -> str:
    """Return a value of one element as one without dimensions.

    Raises:
        Unsupported: it has another number of elements, or can't be compiled.
    """
    if value not in state.types or state.types[value].count != 1:
        raise Unsupported(f"what its rounds depend on, {value!r}, is no single value")
    if not state.types[value].shape:
        return value
    return _node(state, {"": 21}, "Reshape", [value, state.constant(f"{prefix}/shape", np.zeros(0, np.int64))], prefix)


def _kept(state: Importer, now: str, new: str, old: str, prefix: str, opsets: Opsets) -> str:
    """Return the new value of what a round carries on, or the old one if the round is not made."""
    if state.types.get(new) != state.types.get(old):
        raise Unsupported(f"what it carries on changes from {state.types.get(old)} to {state.types.get(new)}")
    return _node(state, opsets, "Where", [now, new, old], prefix)


def _stack(
    state: Importer, rows: list[str], output: str, axis: int, reverse: bool, origin: str, opsets: Opsets
) -> None:
    """Concatenate values along a new axis."""
    axes = state.constant(f"{origin}/axis", np.asarray([axis], np.int64))
    parts = [_node(state, {"": 21}, "Unsqueeze", [row, axes], origin) for row in (rows[::-1] if reverse else rows)]
    state.run(helper.make_node("Concat", parts, [output], name=origin, axis=axis), opsets)


def _scan(state: Importer, proto: onnx.NodeProto, origin: str, opsets: Opsets, bodies: Bodies) -> None:
    attrs = {attr.name: helper.get_attribute_value(attr) for attr in proto.attribute if attr.name != "body"}
    inputs, count, batch = list(proto.input), attrs["num_scan_inputs"], None
    if opsets.get("", 21) < 9:  # Scan 8: sequence lengths first, and a batch dimension
        if inputs[0]:
            raise Unsupported("sequence lengths of Scan 8 are not supported")
        batch, inputs = (state.types[inputs[1]].shape or (0,))[0], inputs[1:]
    if not 1 <= count <= len(inputs):
        raise Unsupported(f"it has {count} scan inputs among {len(inputs)} inputs")
    states, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    body = _graph(bodies, "body", len(inputs), max(len(states), len(proto.output)))
    made = len(body.graph.output) - len(states)
    axes = attrs.get("scan_input_axes") or [0] * count
    turned = attrs.get("scan_input_directions") or attrs.get("directions") or [0] * count
    out_axes, out_turned = (attrs.get(key) or [0] * made for key in ("scan_output_axes", "scan_output_directions"))
    if not (len(axes) == len(turned) == count and len(out_axes) == len(out_turned) == made):
        raise Unsupported(f"its axes and directions are not those of {count} inputs and {made} outputs")
    if batch is None:
        carried, rows = _scan_once(state, body, states, scanned, axes, turned, origin, opsets)
        for old, new in zip(carried, proto.output, strict=False):
            alias(state, old, new, opsets)
        for values, new, axis, back in zip(rows, proto.output[len(states) :], out_axes, out_turned, strict=False):
            rank = len(state.types[values[0]].shape) + 1
            _stack(state, values, new, axis % rank, bool(back), origin, opsets)
        return
    if batch < 1:
        raise Unsupported("it has no batch")
    images: list[list[str]] = []
    for image in range(batch):
        place = state.constant(f"{origin}/image", np.asarray(image, np.int64))
        one = [_node(state, opsets, "Gather", [value, place], origin, axis=0) for value in inputs]
        carried, rows = _scan_once(state, body, one[: len(states)], one[len(states) :], axes, turned, origin, opsets)
        stacked = [state.unique(f"{origin}/rows") for _ in rows]
        for values, name in zip(rows, stacked, strict=True):
            _stack(state, values, name, 0, False, origin, opsets)
        images.append([*carried, *stacked])
    for column, new in zip(zip(*images, strict=True), proto.output, strict=False):
        _stack(state, list(column), new, 0, False, origin, opsets)


def _scan_once(
    state: Importer,
    body: Body,
    states: list[str],
    scanned: list[str],
    axes: list[int],
    turned: list[int],
    origin: str,
    opsets: Opsets,
) -> tuple[list[str], list[list[str]]]:
    """Write the rounds out; return the last states and what each round gave."""
    shapes = [state.types[value].shape for value in scanned]
    if any(not -len(shape) <= axis < len(shape) for shape, axis in zip(shapes, axes, strict=True)):
        raise Unsupported(f"its scan_input_axes are {list(axes)} of {[list(shape) for shape in shapes]}")
    rounds = shapes[0][axes[0]]
    if any(shape[axis] != rounds for shape, axis in zip(shapes, axes, strict=True)):
        raise Unsupported(f"its inputs {[list(shape) for shape in shapes]} differ in length along {list(axes)}")
    if not rounds:
        raise Unsupported("it makes no round")
    state.budget.check("rounds", rounds, f"Scan {origin}")
    carried = list(states)
    rows: list[list[str]] = [[] for _ in body.graph.output[len(states) :]]
    for number in range(rounds):
        prefix = state.unique(origin)
        parts = []
        for value, axis, back in zip(scanned, axes, turned, strict=True):
            place = state.constant(f"{prefix}/number", np.asarray(rounds - 1 - number if back else number, np.int64))
            parts.append(_node(state, opsets, "Gather", [value, place], prefix, axis=axis))
        outputs = inline(state, body, [*carried, *parts], prefix)
        carried = outputs[: len(states)]
        for values, value in zip(rows, outputs[len(states) :], strict=True):
            values.append(value)
    return carried, rows


CONTROL: dict[str, Control] = {"If": _if, "Loop": _loop, "Scan": _scan}
