"""`<model>_operators.h`: the operators of a model, for what calls them one by one."""

from mtool.compiler.codegen import linkage
from mtool.compiler.codegen.arena import Arena
from mtool.compiler.codegen.calls import Calls
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.codegen.device import inner_declarations
from mtool.compiler.codegen.flash import qualified
from mtool.compiler.codegen.functions import Functions
from mtool.compiler.codegen.inference import operator_prototype
from mtool.compiler.codegen.wrap import wrapped
from mtool.compiler.plan import Plan


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
