"""Look inside control nodes: hold the operators of the path that a run took against the reference's, one by one.

A device runs an If or a Loop in one step, so what is computed in it can't be seen there. Where a result differs, the
path that was taken is written out (mtool.verification.control_flow_trace), compiled for the same core and run operator
by operator,
from the reference's values in front of the node. It has the bodies' own kernels, so it has to end with the device's own
result; then what explains the one explains the other.
"""

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import onnx
from onnx import helper

from mtool import boards
from mtool.base.errors import MtoolError
from mtool.compiler.frontend import is_tflite
from mtool.compiler.ir.graph import moved
from mtool.device import session
from mtool.device.session import Device
from mtool.device.session.verify import Tolerance
from mtool.manifest import Operand, Operator
from mtool.stages.building import build_model
from mtool.stages.compiling import Model, compile
from mtool.stages.samples import Array, Sample
from mtool.verification import reference
from mtool.verification.control_flow_trace import CONTROL, NotWritten, captured
from mtool.verification.control_flow_trace import Path as TakenPath

log = logging.getLogger(__name__)


class Comparison(Protocol):
    """A comparison of all operators: mtool.verification.layers.Layers."""

    @property
    def diverging(self) -> Sequence[object]:
        """Those that differ by more than is allowed."""


Found = TypeVar("Found", bound=Comparison)
Compare = Callable[[Device, Model, Sequence[Sample], Tolerance | None], Found]
"""Runs a model operator by operator: mtool.verification.layers.compare_layers."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A result of a control node in one sample: the sample, where it lies, and what the device gave."""

    sample: Sample
    operand: Operand
    actual: Array


def look_inside(
    model: Model, network: reference.Network, operator: Operator, seen: Sequence[Seen], compare: Compare[Found],
    tolerance: Tolerance,
) -> list[Found]:  # fmt: skip
    """Return the comparison of the operators of the path that was taken, for each sample.

    Empty: it can't be told, as a path is too long, or ends with another result than the device's own.

    Args:
        model: that the node is of.
        network: the ONNX network of it, whose states are inputs of the samples.
        operator: the control node.
        seen: its differing results.
        compare: compares the operators of a model.
        tolerance: what is allowed.
    """
    node = next(
        (one for one in network.proto.graph.node if _is_of(one, operator, numbered=is_tflite(model.path))), None
    )
    if node is None:
        return []
    try:
        title = f"inside_{operator.name}"
        return [_of_sample(model, network, node, one, compare, tolerance, title) for one in seen]
    except (NotWritten, MtoolError) as failed:
        log.info("what is computed inside %s can't be compared: %s", operator.name, failed)
        return []


def _is_of(node: onnx.NodeProto, operator: Operator, *, numbered: bool) -> bool:
    """Whether a node is what an operator computes; `numbered`: its name has a number behind it (reference.network)."""
    name = node.name.rpartition(" ")[0] if numbered else node.name
    return node.op_type in CONTROL and bool({name, *node.output} & {*operator.origins} - {""})


def _of_sample(
    model: Model, network: reference.Network, node: onnx.NodeProto, seen: Seen, compare: Compare[Found],
    tolerance: Tolerance, title: str,
) -> Found:  # fmt: skip
    assert seen.operand.source is not None
    wanted = seen.operand.source.tensor
    proto = _path(model, network, node, wanted, seen.sample)
    board = model.board if model.board.emulator or model.board.cpu == "host" else boards.get("host")
    options = replace(
        model.options,
        dims={},
        constants={},
        states=(),
        state_values={},
        maxima={},
        schedules={},
        pools=(),
        natural_maxima=True,
    )
    feeds = _known(model, network, [value.name for value in proto.graph.input], seen.sample)
    with tempfile.TemporaryDirectory(prefix="mtool-inside-") as folder:
        source = Path(folder) / f"{title}.onnx"
        source.write_bytes(proto.SerializeToString())
        inner = compile(source, board=board, options=options)
        with session.open(build_model(inner, Path(folder) / "project").folder) as device:
            own = device.run(feeds)[proto.graph.output[0].name]
            layers = compare(device, inner, [feeds], tolerance)
    whole = moved(own, seen.operand.source.moves)
    same = str(whole.dtype) == str(seen.actual.dtype) and _is_same(whole.reshape(seen.actual.shape), seen.actual)
    if not same and not layers.diverging:
        raise NotWritten(f"{node.name or wanted} gives something else than its operators do one by one")
    return layers


def _is_same(one: Array, other: Array) -> bool:
    """Whether two results are equal: floats as far as another order of fusing rounds them."""
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    return np.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


def _path(
    model: Model, network: reference.Network, node: onnx.NodeProto, wanted: str, sample: Sample
) -> onnx.ModelProto:
    """Return the path that a node takes, from what is in front of it to a tensor that it makes."""
    graph = network.proto.graph
    makers = {name: one for one in graph.node for name in one.output if name}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    around: dict[str, onnx.NodeProto] = {}  # what makes constants, or floats of integers, belongs to the path
    begin, waiting = dict.fromkeys(captured(node)), captured(node)
    while waiting:
        name = waiting.pop()
        maker = makers.get(name)
        is_constant = maker is not None and _leaves(name, makers, constants) <= {*constants}
        if maker is not None and (is_constant or maker.op_type == "DequantizeLinear"):
            around[maker.output[0]] = maker
            begin |= dict.fromkeys(filter(None, maker.input))
            waiting += [one for one in maker.input if one and one not in around]
    made = {name for one in around.values() for name in one.output}
    given = _known(model, network, [name for name in begin if name not in made | {*constants}], sample)

    def compute(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        return reference.computed(model.path, proto, dict(feeds), options=replace(model.options, constants={}))

    path = TakenPath(compute, list(network.proto.opset_import), given, dict(constants))
    names = {name: name for name in (*given, *constants)}
    order = {id(one): number for number, one in enumerate(graph.node)}
    before = sorted({id(one): one for one in around.values()}.values(), key=lambda one: order[id(one)])
    path.write([*before, node], names, "")
    behind = [one for one in graph.node if wanted in one.output and wanted not in node.output]
    path.write(behind, names, "")
    if names.get(wanted, "") in ("", *given, *constants):
        raise NotWritten(wanted)
    path.nodes.append(helper.make_node("Identity", [names[wanted]], ["result"], "result"))
    return path.model(["result"])


def _leaves(name: str, makers: Mapping[str, onnx.NodeProto], constants: Mapping[str, object]) -> set[str]:
    """Return what a value is made of, in the end."""
    found, waiting, seen = set[str](), [name], set[str]()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        maker = makers.get(one)
        if maker is None or one in constants:
            found.add(one)
        else:
            waiting += captured(maker)
    return found


def _known(model: Model, network: reference.Network, names: Sequence[str], sample: Sample) -> dict[str, Array]:
    """Return the reference's values of tensors, inputs among them."""
    given = {**model.options.constants, **sample}
    missing = [name for name in names if name not in given]
    found: Mapping[str, Array] = {}
    if missing:
        (found,) = reference.intermediates(model.path, network, [sample], missing, options=model.options)
    known = {**found, **given}
    if any(name not in known for name in names):
        raise NotWritten(", ".join(name for name in names if name not in known))
    return {name: np.asarray(known[name]) for name in names}
