"""Bodies of control nodes: imported in place, or as graphs that the run computes."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from onnx import helper

from mtool.compiler.frontend import tensors
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.scope import Bodies, Body, Opsets
from mtool.compiler.ir import Graph, Node


def body_named(bodies: Bodies, name: str, inputs: int | None = None, outputs: int | None = None) -> Body:
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


def free_values(state: Importer, nodes: Iterable[Node], outputs: Iterable[str], own: Iterable[str] = ()) -> list[str]:
    """Return the values that a body reads of the graph around it, constants apart, in the order of reading."""
    known = {*own, ""}
    found: dict[str, None] = {}
    for node in nodes:
        found |= dict.fromkeys(value for value in node.inputs if value not in known and value not in state.constants)
        known.update(node.outputs)
    found |= dict.fromkeys(value for value in outputs if value not in known and value not in state.constants)
    return [*found]


def graph_of(state: Importer, name: str, inputs: Sequence[str], nodes: Sequence[Node], outputs: Sequence[str]) -> Graph:
    """Return a body as a graph; it has the constants that it reads."""
    values = dict.fromkeys([*inputs, *outputs, *(value for node in nodes for value in (*node.inputs, *node.outputs))])
    values.pop("", None)
    own = {*inputs}
    constants = {value: state.constants[value] for value in values if value in state.constants and value not in own}
    types = {value: state.types[value] for value in values}
    return Graph(name, tuple(inputs), tuple(outputs), tuple(nodes), types, constants)


def alias(state: Importer, old: str, new: str, opsets: Opsets) -> None:
    """Give a value or a sequence another name too."""
    if new and old in state.sequences:
        state.sequences[new] = state.sequences[old]
    elif new:
        state.run(helper.make_node("Identity", [old], [new], name=new), opsets)


def without_elements(state: Importer, value: str) -> bool:
    """Whether a value has no elements, so that it is known; then it is made a constant."""
    kind = state.types[value]
    if kind.count:
        return False
    if value not in state.constants:
        state.add_constant(value, np.zeros(kind.shape, kind.dtype.numpy))
    return True


def check_is_tensor(state: Importer, values: Mapping[str, str]) -> None:
    """Check that values are tensors of known type, by what each is to the node.

    Raises:
        Unsupported: one is a sequence, or can't be compiled.
    """
    for value, role in values.items():
        if value in state.sequences:
            raise Unsupported(f"{role} is a sequence")
        if value not in state.types:
            raise Unsupported(f"{role} can't be compiled")
