"""Shrink a failing network while it still fails: remove what follows a tensor, or what precedes it."""

from collections.abc import Callable, Iterator

import onnx
from onnx import helper, numpy_helper

from tests.fuzzing import exact
from tests.fuzzing.compare import Network, by_onnxruntime
from tests.fuzzing.draw_bodies import reads

MOST_TRIES = 80


def shrunk(network: Network, fails: Callable[[Network], bool]) -> Network:
    """Return a network of as few nodes as are found in MOST_TRIES attempts for which `fails` still holds."""
    tries = 0
    while True:
        for smaller in _smaller(network):
            tries += 1
            if tries > MOST_TRIES:
                return network
            if fails(smaller):
                network = smaller
                break
        else:
            return network


def _smaller(network: Network) -> Iterator[Network]:
    """Yield networks with less in them, the smallest first."""
    model = network.model
    made = [name for node in model.graph.node for name in node.output if name]
    typed = network.flat or model
    types = {value.name: value for value in (*typed.graph.value_info, *typed.graph.output)}
    made = [name for name in made if name in types]
    try:
        known = by_onnxruntime(exact.with_outputs(model, made, typed), network.inputs)
    except ValueError:
        return
    known = {name: known[name] for name in made}
    outputs = [value.name for value in model.graph.output]
    proposals: list[tuple[list[str], set[str]]] = [([name], set()) for name in outputs if len(outputs) > 1]
    proposals += [([name], set()) for name in made if name not in outputs]
    proposals += [(outputs, {name}) for name in reversed(made) if name not in outputs]
    present = len(model.graph.node)
    found = []
    for wanted, cut in proposals:
        smaller = _cut(network, wanted, cut, types, known)
        if smaller is not None and len(smaller.model.graph.node) + len(smaller.model.graph.output) < present + len(
            outputs
        ):
            found.append(smaller)
    yield from sorted(found, key=lambda one: len(one.model.graph.node))


def _cut(
    network: Network, outputs: list[str], cut: set[str], types: dict[str, onnx.ValueInfoProto], known: dict[str, object]
) -> Network | None:
    """Return the part of a network that makes these outputs, with the tensors in `cut` as inputs."""
    model = _part(network.model, outputs, cut, types)
    if model is None:
        return None
    flat = network.flat and _part(network.flat, outputs, cut, types)
    if flat is not None:  # it has the inputs of the other, which may read more
        del flat.graph.input[:]
        flat.graph.input.extend(model.graph.input)
    given = {value.name: network.inputs.get(value.name, known.get(value.name)) for value in model.graph.input}
    try:
        return Network(network.number, model, given, by_onnxruntime(model, given), flat)
    except ValueError:
        return None


def _part(
    model: onnx.ModelProto, outputs: list[str], cut: set[str], types: dict[str, onnx.ValueInfoProto]
) -> onnx.ModelProto | None:
    """Return the nodes of a model that make these outputs; None: there are none."""
    graph, needed, nodes = model.graph, set(outputs) - cut, []
    for node in reversed(graph.node):
        if needed & set(node.output):
            nodes.insert(0, node)
            needed |= reads(node) - cut
    if not nodes:
        return None
    read = {name for node in nodes for name in reads(node)}
    made = {name for node in nodes for name in node.output}
    inputs = [value for value in graph.input if value.name in read] + [types[name] for name in cut if name in read]
    part = helper.make_graph(
        nodes,
        "network",
        inputs,
        [types[name] for name in outputs],
        [tensor for tensor in graph.initializer if tensor.name in read],
        value_info=[types[name] for name in made if name in types and name not in outputs],
    )
    return helper.make_model(part, opset_imports=list(model.opset_import), ir_version=model.ir_version)


def as_constants(network: Network) -> onnx.ModelProto:
    """Return a network's model with its inputs as initialisers that may be overridden, so that it carries them."""
    made = onnx.ModelProto()
    made.CopyFrom(network.model)
    made.graph.initializer.extend(numpy_helper.from_array(data, name) for name, data in network.inputs.items())
    return made
