"""The call of a backend's C."""

import re

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.external.c99.frame import framed
from mtool.compiler.kernels.external.node import External
from mtool.compiler.kernels.schedule import RESOURCE, Argument, BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target


class ExternalCall(BaseSchedule):
    """The call, as the backend wrote it."""

    name = "c99_call"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Everything: the backend was asked."""
        return True

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """What the backend asked for, unless it lies in another memory."""
        attrs = External.of(node)
        return 0 if any(one.name == "scratch" for one in attrs.lent) else attrs.scratch

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
        if self.scratch_bytes(node, graph):
            arguments.append(Argument("scratch", "uint8_t", "scratch"))
        if attrs.resource:
            arguments.append(RESOURCE)
        body, inner = attrs.body, ""
        if attrs.resource and not re.search(r"\bresource\b", body):
            body = f"    (void)resource;\n{body}"
        if attrs.has_frame:
            values = [*node.inputs[:first], *node.outputs, *constants.values()]
            sizes = dict(zip((one.name for one in arguments), (types[value].bytes for value in values), strict=False))
            frame = framed(attrs, node.name, arguments, {**sizes, "scratch": attrs.scratch})
            body, inner = frame.body, frame.inner
        return Kernel(
            tuple(arguments),
            body,
            {name: graph.constants[value] for name, value in constants.items()},
            headers=(*attrs.headers, *(["mt_device.h"] if attrs.lent else [])),
            inner=inner,
            layouts=dict(zip(attrs.constants, attrs.layouts, strict=True)),
            can_fail=attrs.can_fail,
        )


SCHEDULE = ExternalCall()
