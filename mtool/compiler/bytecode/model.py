"""A model file as bytecode: the compile half for modules of calls."""

from dataclasses import dataclass
from pathlib import Path

from mtool.compiler import frontend, passes
from mtool.compiler.bytecode.image import Image, encode
from mtool.compiler.bytecode.method import SHARED
from mtool.compiler.bytecode.planning import plan_bytecode
from mtool.compiler.codegen.arena import Interface
from mtool.compiler.codegen.description import interface_of
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.kernels.weighted_sum import as_computed
from mtool.compiler.plan import Plan


@dataclass(frozen=True, slots=True)
class Bytecode:
    """A model as bytecode.

    Attributes:
        plan: its calls, their order, where everything lies.
        image: the bytes.
        interface: its inputs and outputs.
    """

    plan: Plan
    image: Image
    interface: Interface

    @property
    def name(self) -> str:
        """The model's."""
        return self.plan.graph.name

    def operators(self) -> tuple[tuple[str, str, int], ...]:
        """Return each operator's name, what a person calls it, its multiply-accumulates."""
        graph = self.plan.graph
        return tuple(
            (step.node.name, step.op.label(step.node, graph), step.op.macs(as_computed(step.node), graph))
            for step in self.plan.steps
        )


def compile_bytecode(path: Path, options: ModelOptions) -> Bytecode:
    """Compile an ONNX or TFLite model to bytecode.

    Raises:
        UsageError: the file is missing, or what is given names nothing of the model.
        ModelError: the model is malformed, or an operator can't be bytecode; every one is listed.
    """
    plan = plan_bytecode(passes.run(frontend.load(path, options), SHARED))
    return Bytecode(plan, encode(plan), interface_of(plan))
