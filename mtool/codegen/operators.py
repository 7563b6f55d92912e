"""`<model>_operators.h`: the operators of a model, for what calls them one by one."""

from mtool.codegen import linkage
from mtool.codegen.arena import Arena
from mtool.codegen.functions import Functions
from mtool.codegen.state_reset import start_prototype
from mtool.codegen.wrap import wrapped
from mtool.plan import Plan


def operators_header(plan: Plan, banner: str, functions: Functions, arena: Arena) -> str:
    """Return the offsets in the arena, and the prototypes of the functions that `<model>.c` defines."""
    model = plan.graph.name
    guard = f"{model.upper()}_OPERATORS_H"
    lines = [banner, f"#ifndef {guard}", f"#define {guard}", "", f'#include "{model}_weights.h"', ""]
    lines += [*arena.defines(), *linkage.BEGIN]
    lines += [f"{function.prototype};" for function in functions.functions]
    lines += start_prototype(plan)
    return wrapped("\n".join([*lines, "", *linkage.END, "#endif", ""]))
