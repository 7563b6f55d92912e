"""`<model>_operators.h`: the operators of a model, for what calls them one by one."""

from mtool.codegen import linkage
from mtool.codegen.arena import Arena
from mtool.codegen.calls import Calls
from mtool.codegen.conventions import Conventions
from mtool.codegen.device import inner_declarations
from mtool.codegen.flash import qualified
from mtool.codegen.functions import Functions
from mtool.codegen.inference import operator_prototype
from mtool.codegen.wrap import wrapped
from mtool.plan import Plan


def operators_header(
    plan: Plan, banner: str, functions: Functions, calls: Calls, arena: Arena, conventions: Conventions
) -> str:
    """Return the offsets in the arena, and the prototypes of the functions that `<model>.c` defines."""
    model = plan.graph.name
    guard = f"{model.upper()}_OPERATORS_H"
    lines = [banner, f"#ifndef {guard}", f"#define {guard}", "", f'#include "{model}_weights.h"', ""]
    lines += [*arena.defines(), *linkage.BEGIN]
    lines += [f"{function.prototype};" for function in functions.functions]
    lines += inner_declarations(plan)
    if conventions.executor != "graph":
        lines += [
            "",
            "/* One operator on its tensors, by its number: all of them, from 0 in order, are an inference. */",
        ]
        lines += [*(f"struct {model}_{name};" for name in calls.structures), f"{operator_prototype(plan, calls)};"]
    return wrapped(qualified("\n".join([*lines, "", *linkage.END, "#endif", ""]), plan.target))
