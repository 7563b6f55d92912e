"""The call of a backend's C."""

from mtool.ir import Graph, Node
from mtool.kernels.schedule import Argument, BaseSchedule, Kernel
from mtool.kernels.target import Target
from mtool.ops.external.node import External


class ExternalCall(BaseSchedule):
    """The call, as the backend wrote it."""

    name = "c99_call"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Everything: the backend was asked."""
        return True

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """What the backend asked for."""
        return External.of(node).scratch

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """None."""
        return ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The backend's estimate."""
        return External.of(node).cost

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """A function whose body is the backend's."""
        attrs = External.of(node)
        first = len(node.inputs) - len(attrs.constants)
        types = graph.types
        arguments = [
            Argument(f"input{number}", types[value].dtype.c, ("input", number))
            for number, value in enumerate(node.inputs[:first])
        ]
        arguments += [
            Argument(f"output{number}", types[value].dtype.c, ("output", number))
            for number, value in enumerate(node.outputs)
        ]
        constants = dict(zip(attrs.constants, node.inputs[first:], strict=True))
        arguments += [Argument(name, types[value].dtype.c, ("constant", name)) for name, value in constants.items()]
        if attrs.scratch:
            arguments.append(Argument("scratch", "uint8_t", "scratch"))
        return Kernel(
            tuple(arguments),
            attrs.body,
            {name: graph.constants[value] for name, value in constants.items()},
            headers=attrs.headers,
            layouts=dict(zip(attrs.constants, attrs.layouts, strict=True)),
            can_fail=attrs.can_fail,
        )


SCHEDULE = ExternalCall()
