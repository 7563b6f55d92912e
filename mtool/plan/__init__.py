"""Choose schedules, order the operators, lay out the arena."""

from mtool.plan.plan import Plan, Step, make_plan

__all__ = ["Plan", "Step", "make_plan"]
