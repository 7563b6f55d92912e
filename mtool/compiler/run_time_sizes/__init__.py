"""Sizes known at run time, up to a stated maximum: one graph for all of them.

The model is imported at several values of the sizes, and brought to kernels and loops at each. What comes of that is
joined (mtool.compiler.ir.parametric): of one structure, with formulas of the sizes where numbers differ. The plan is
for the largest; mtool.compiler.plan.sized joins the C of each operator in the same way. So what an operator does with
a size is never said twice, and what does not follow the sizes by a formula is refused.

Imports at small sizes hold the formulas against what the model really does there, where a slice may be cut short.
"""

from mtool.compiler.run_time_sizes.lowering import lowered

__all__ = ["lowered"]
