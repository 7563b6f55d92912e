"""The plan of a model that becomes bytecode: each node's calls, an order, the arena."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from mtool.base.errors import ModelError
from mtool.compiler.bytecode import floats, integers, moves
from mtool.compiler.bytecode.method import SHARED, Method, NoKernel
from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.node import View
from mtool.compiler.kernels import registry
from mtool.compiler.plan import Plan, Step
from mtool.compiler.plan.order import order_nodes
from mtool.compiler.plan.whole import lay_out_steps


def _weighted(of_int8: Callable[[Node, Graph], Method]) -> Callable[[Node, Graph], Method]:
    def choose(node: Node, graph: Graph) -> Method:
        return (of_int8 if graph.types[node.inputs[0]].dtype is DType.INT8 else floats.weighted)(node, graph)

    return choose


METHODS: Mapping[str, Callable[[Node, Graph], Method]] = {
    "concat": moves.concat,
    "conv2d": _weighted(integers.convolution),
    "dense": _weighted(integers.dense),
    "loop": moves.loop,
    "pool2d": integers.pool,
    "softmax": floats.softmax,
}
"""By the kind of node."""

PAGE = (
    "docs/bytecode.md lists what the library has; a native module has all operators (mtool module without --bytecode)"
)


def plan_bytecode(graph: Graph) -> Plan:
    """Return the plan of a graph that the passes have brought to kernels for `SHARED`.

    Raises:
        ModelError: the library has no kernel for some operators; all of them are listed.
    """
    _check_whole(graph)
    steps: dict[str, Step] = {}
    missing = []
    for node in graph.nodes:
        if isinstance(node.attrs, View):
            continue
        try:
            method = _method(node, graph)
        except NoKernel as reason:
            missing.append(f"{_names(node)}: {reason}")
            continue
        steps[node.name] = Step(node, registry.KERNELS[node.op], method, method.scratch)
    if missing:
        raise ModelError(
            f"{len(missing)} operator(s) of {graph.name} can't be bytecode: the library has no kernel for them",
            details=missing,
            hint=PAGE,
        )
    graph = replace(graph, nodes=order_nodes(graph, steps, "arena"))
    return lay_out_steps(graph, tuple(steps[node.name] for node in graph.nodes if node.name in steps), SHARED, "arena")


def _check_whole(graph: Graph) -> None:
    reason = (
        "it keeps states between its calls" if graph.states
        else "it has run-time sizes" if graph.sizes
        else "it takes an input by rows" if graph.stream is not None
        else ""
    )  # fmt: skip
    if reason:
        raise ModelError(f"{graph.name} can't be bytecode: {reason}", hint=PAGE)


def _method(node: Node, graph: Graph) -> Method:
    if node.op not in METHODS:
        raise NoKernel(f"{node.op} has no kernel")
    if any(not graph.types[value].count for value in (*node.inputs, *node.outputs) if value):
        raise NoKernel("a tensor without elements")
    return METHODS[node.op](node, graph)


def _names(node: Node) -> str:
    return f"{node.name} ({', '.join(node.origins) or node.op})"
