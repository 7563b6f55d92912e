"""Sizes known at run time, up to a stated maximum: one graph for all of them.

The model is imported at several values of the sizes, and lowered to kernels and loops at each. The results are joined
(mtool.compiler.ir.parametric): they must have one structure; where numbers differ, formulas of the sizes replace them.
The plan is for the largest sizes; mtool.compiler.plan.sized joins the C of each operator in the same way. So no
operator describes its use of a size twice, and models that no formula describes are refused.

Imports at small sizes check the formulas against the model there, where a slice may be cut short.
"""

from mtool.compiler.run_time_sizes.lowering import lowered

__all__ = ["lowered"]
