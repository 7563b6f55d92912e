"""Control flow: internal forms `branch`, which computes one of two graphs, and `rounds`, which computes one repeatedly.

Their attributes are those of mtool.compiler.ir.control. They have no schedules: the planner plans their graphs, and
the code generator writes the C that calls the operators in them. The planner counts the multiply-accumulates of their
graphs (mtool.compiler.plan.whole).
"""

from mtool.compiler.ir import Branches, DType, Graph, Node, Rounds
from mtool.compiler.kernels.schedule import KernelOp
from mtool.compiler.kernels.specification import Operand, Specification, always


def _rounds_label(node: Node, graph: Graph) -> str:
    attrs = Rounds.of(node)
    if attrs.most is None:
        return "loop"
    return f"loop, {attrs.most:,} round{'s' * (attrs.most != 1)}{' at most' * (not attrs.is_counted)}"


_CONDITION = Operand("condition", dtypes=(DType.BOOL,))

BRANCH = KernelOp(Specification(Branches, (_CONDITION,), takes_more=True, has_one_output=False), always("if"), ())
ROUNDS = KernelOp(Specification(Rounds, takes_more=True, has_one_output=False), _rounds_label, ())
