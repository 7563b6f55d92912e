"""Methods: how a node becomes calls. To the planner they are schedules."""

from dataclasses import dataclass

from mtool.compiler.bytecode.call import Call
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target

SHARED = Target("cortex-m4", frozenset({"fpu", "dsp"}))
"""What models are brought to kernels for: int8 in pairs, requantised by floats that multipliers stand for. All cores
that run bytecode compute the same."""


class NoKernel(Exception):
    """No kernel of the library computes a node; the text says why."""


@dataclass(frozen=True)
class Method(BaseSchedule):
    """The calls of a node.

    Attributes:
        calls: in their order.
        scratch: bytes of working memory.
        over: the numbers of the inputs whose storage the output may take.
    """

    name = "calls"

    calls: tuple[Call, ...]
    scratch: int = 0
    over: tuple[int, ...] = ()

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """It was made for its node."""
        return True

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """As the kernels check it."""
        return self.scratch

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """As the kernels allow it."""
        return self.over

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """There is no choice."""
        return 0.0

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """None: it has no C of its own.

        Raises:
            AssertionError: always.
        """
        raise AssertionError(f"{node.name} is called, not written")
