"""The calls of one inference, which stand once: the entry point makes all of them, `<model>_operator` one."""

from mtool.compiler.codegen.arena import PARAMETER
from mtool.compiler.codegen.calls import Calls
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.codegen.device import begin_call, devices_of, end_call
from mtool.compiler.codegen.pools import load_call
from mtool.compiler.codegen.state_reset import start_call
from mtool.compiler.codegen.streamed_prefix import head_steps, rows_declared
from mtool.compiler.kernels.schedule import RESOURCE
from mtool.compiler.plan import Plan

_NOTE = """\
/* The operators of one inference, in order; with a pointer to a number, only that one. Of NULL the compiler makes plain
 * calls. Volatile, as it would follow a number through all comparisons: with a thousand of them, for a minute. */"""

_UNDEFINED = ["", "#undef OPERATOR", ""]


def operator_prototype(plan: Plan, calls: Calls) -> str:
    """Return the declaration of `<model>_operator`, without a semicolon."""
    rows = [rows_declared(plan)] if plan.graph.stream else []
    return f"int32_t {plan.graph.name}_operator({', '.join(['uint16_t number', *rows, *_parameters(plan, calls)])})"


def _parameters(plan: Plan, calls: Calls) -> list[str]:
    """Return the declarations of what is passed on to the calls."""
    structures = [f"const struct {plan.graph.name}_{name} *{name}" for name in calls.structures]
    return [*calls.context_declared, *structures, *(f"void *{name}" for name in calls.resource)]


def operator_call(plan: Plan, calls: Calls, number: str, inputs: str, outputs: str, arena: str = PARAMETER) -> str:
    """Return the C that calls `<model>_operator`; `inputs`, `outputs` and `arena` are passed if it wants them.

    It has no resource for devices.
    """
    passed = {"inputs": inputs, "outputs": outputs, PARAMETER: arena, RESOURCE.name: "0"}
    return f"{plan.graph.name}_operator({', '.join([number, *(passed[name] for name in calls.passed)])})"


def operator_functions(plan: Plan, calls: Calls, conventions: Conventions) -> list[str]:
    """Return the C of the calls, and of what makes one of them."""
    body = [f"    {line}".rstrip() for line in (*calls.pointers, "", *calls.numbered())]
    starts = [] if calls.context else start_call(plan)
    start = [f"    {call}" for call in load_call(plan)]
    start += [line for call in starts for line in ("    if (number == 0)", f"        {call}")]
    if conventions.interface == "step":
        head = ["/* The operators of one inference, in order. */", "#define OPERATOR(n) if (number == (n))"]
        if devices_of(plan).have_hooks:
            one = [_inner(operator_prototype(plan, calls), plan), "{", *start, *body, "    return 0;", "}", *_UNDEFINED]
            call = f"one_operator({', '.join(['number', *calls.passed])})"
            return [*head, "", *one, operator_prototype(plan, calls), "{", *_around(plan, call), "}", ""]
        return [*head, "", operator_prototype(plan, calls), "{", *start, *body, "    return 0;", "}", *_UNDEFINED]
    call = f"{plan.graph.name}_calls({', '.join(['&only', *calls.passed])})"
    one = [f"    return {call};"] if calls.can_fail else [f"    {call};", "    return 0;"]
    if devices_of(plan).have_hooks:
        one = _around(plan, call)
    result = "int32_t" if calls.can_fail else "void"
    parameters = ", ".join(["const volatile int32_t *only", *_parameters(plan, calls)])
    return [
        _NOTE,
        "#define OPERATOR(number) if (only == NULL || *only == (number))",
        "",
        f"MT_INLINE {result} {plan.graph.name}_calls({parameters})",
        "{",
        *([] if calls.operators else ["    (void)only;"]),
        *(f"    (void){name};" for name in (*calls.context, *calls.resource)),
        *body,
        *(["    return 0;"] if calls.can_fail else []),
        "}",
        *_UNDEFINED,
        operator_prototype(plan, calls),
        "{",
        *_head(plan),
        "    const volatile int32_t only = number;",
        *start,
        *one,
        "}",
        "",
    ]


def _head(plan: Plan) -> list[str]:
    """Return the C that makes a call of the streamed part, if there is one and the number is of it."""
    count = head_steps(plan)
    if not count:
        return []
    return [
        f"    if (number < {count}) {{",
        f"        (void){plan.graph.name}_head_call(number, rows);",
        "        return 0;",
        "    }",
    ]


def _inner(prototype: str, plan: Plan) -> str:
    return "static " + prototype.replace(f"{plan.graph.name}_operator(", "one_operator(", 1)


def _around(plan: Plan, call: str) -> list[str]:
    """Return the lines that call an operator, and the devices' functions before the first and after the last."""
    return [
        f"    int32_t status = number == 0 ? {begin_call(plan, is_new=True)} : {begin_call(plan, is_new=False)};",
        "    if (status == 0)",
        f"        status = {call};",
        f"    return status != 0 || number == {len(plan.steps) - 1} ? {end_call(plan, 'status')} : status;",
    ]


def all_operators(plan: Plan, calls: Calls) -> list[str]:
    """Return the C that makes all the calls; one that fails ends the function that it stands in."""
    call = f"{plan.graph.name}_calls({', '.join(['NULL', *calls.passed])})"
    if not calls.can_fail:
        return [f"    {call};"]
    return [f"    const int32_t status = {call};", "    if (status != 0)", "        return status;"]
