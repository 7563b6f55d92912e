"""Memories of the board that regions of backends have by name, besides the arena: one piece of each for the model."""

from mtool.base.escaping import comment
from mtool.compiler.kernels.external import External, Lent
from mtool.compiler.plan import Plan
from mtool.compiler.plan.control import plans_in


def lent_bytes(plan: Plan) -> dict[str, int]:
    """Return the bytes of each memory that the regions of a plan have; they have them one after another."""
    found: dict[str, int] = {}
    for one in _pieces(plan):
        found[one.memory] = max(found.get(one.memory, 0), one.offset + one.bytes)
    return found


def lent_memories(plan: Plan) -> list[str]:
    """Return the C that defines them."""
    lines = []
    for memory, size in lent_bytes(plan).items():
        alignment = max(one.alignment for one in _pieces(plan) if one.memory == memory)
        lines += [
            comment(f"What regions have of the board's memory {memory} while they are computed."),
            f"MT_LENT({memory}, {alignment}) uint8_t {plan.graph.name}_{memory}[{size}];",
            "",
        ]
    return lines


def _pieces(plan: Plan) -> list[Lent]:
    steps = [step for one in plans_in(plan) for step in one.steps]
    return [one for step in steps if isinstance(step.node.attrs, External) for one in step.node.attrs.lent]
