"""`<model>_operators.h`: the operators of a model, for what calls them one by one."""

from mtool.codegen.functions import Functions
from mtool.codegen.wrap import wrapped


def operators_header(banner: str, model: str, functions: Functions) -> str:
    """Return the prototypes of the functions that `<model>.c` defines."""
    guard = f"{model.upper()}_OPERATORS_H"
    lines = [banner, f"#ifndef {guard}", f"#define {guard}", "", f'#include "{model}_weights.h"', ""]
    lines += [f"{function.prototype};" for function in functions.functions]
    return wrapped("\n".join([*lines, "", "#endif", ""]))
