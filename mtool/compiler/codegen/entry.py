"""The entry point of a model: a typed function, one of pointers, a packed function, or one call an operator."""

from collections.abc import Collection, Sequence
from typing import Literal

from mtool.compiler.codegen import c_text
from mtool.compiler.codegen.arena import PARAMETER, Arena, Interface
from mtool.compiler.codegen.c_text import Part, declaration, function, include, structure
from mtool.compiler.codegen.calls import Calls
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.codegen.device import (
    begin_call,
    devices_of,
    end_call,
    inner_declarations,
    no_resource,
    resource_declared,
    resource_passed,
)
from mtool.compiler.codegen.functions import Functions
from mtool.compiler.codegen.packed import packed_entry_point
from mtool.compiler.codegen.pools import load_call
from mtool.compiler.codegen.state_reset import start_call
from mtool.compiler.codegen.streamed import Head, entry_points, head_steps, rows_declared
from mtool.compiler.codegen.tensors import bytes_in_c, range_test
from mtool.compiler.kernels.schedule import RESOURCE
from mtool.compiler.plan import Plan

# The calls of one inference, which stand once: the entry point makes all of them, `<model>_operator` one.


_NOTE = """\
/* The operators of one inference, in order; with a pointer to a number, only that one. Of NULL the compiler makes plain
 * calls. Volatile, as it would follow a number through all comparisons: with a thousand of them, for a minute. */"""
_UNDEFINED = ["#undef OPERATOR", ""]


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
        head = ["/* The operators of one inference, in order. */", "#define OPERATOR(n) if (number == (n))", ""]
        prototype, one = operator_prototype(plan, calls), [*start, *body, "    return 0;"]
        if not devices_of(plan).have_hooks:
            return [*head, function(prototype, *one), *_UNDEFINED]
        inner = "static " + prototype.replace(f"{plan.graph.name}_operator(", "one_operator(", 1)
        call = f"one_operator({', '.join(['number', *calls.passed])})"
        return [*head, function(inner, *one), *_UNDEFINED, function(prototype, *_around(plan, call))]
    call = f"{plan.graph.name}_calls({', '.join(['&only', *calls.passed])})"
    one = [f"    return {call};"] if calls.can_fail else [f"    {call};", "    return 0;"]
    if devices_of(plan).have_hooks:
        one = _around(plan, call)
    streamed = [
        f"    if (number < {head_steps(plan)}) {{",
        f"        (void){plan.graph.name}_head_call(number, rows);",
        "        return 0;",
        "    }",
    ] * bool(head_steps(plan))
    result = "int32_t" if calls.can_fail else "void"
    parameters = ", ".join(["const volatile int32_t *only", *_parameters(plan, calls)])
    return [
        _NOTE,
        "#define OPERATOR(number) if (only == NULL || *only == (number))",
        "",
        function(
            f"MT_INLINE {result} {plan.graph.name}_calls({parameters})",
            *([] if calls.operators else ["    (void)only;"]),
            *(f"    (void){name};" for name in (*calls.context, *calls.resource)),
            *body,
            *(["    return 0;"] if calls.can_fail else []),
        ),
        *_UNDEFINED,
        function(
            operator_prototype(plan, calls),
            *streamed,
            "    const volatile int32_t only = number;",
            *start,
            *one,
        ),
    ]


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


def entry_point(
    plan: Plan, calls: Calls, interface: Interface, arena: Arena, conventions: Conventions, head: Head | None
) -> list[str]:
    """Return the C of the entry point that calls the operators; `head` are those that are called as rows arrive."""
    one = operator_functions(plan, calls, conventions)
    if conventions.interface == "step":
        return [*one, *_in_steps(plan, calls, interface, arena)]
    if head is not None:
        starts = (f"    {call}" for call in (*load_call(plan), *start_call(plan)))
        begin = [*starts, *_copies(plan, interface, arena, "inputs")]
        end = _copies(plan, interface, arena, "outputs")
        work = all_operators(plan, calls)
        return [*one, *entry_points(plan, head, interface, begin, work, end)]
    return [*one, *whole(plan, interface, arena, conventions, all_operators(plan, calls), calls.structures)]


def whole(
    plan: Plan,
    interface: Interface,
    arena: Arena,
    conventions: Conventions,
    work: Sequence[str],
    memories: Collection[str],
) -> list[str]:
    """Return an entry point that does it all: copies the inputs in, does `work`, copies the outputs out.

    `memories` are the structures that `work` reads: "inputs", "outputs".
    """
    model = plan.graph.name
    is_inner = conventions.takes_resource  # and the entry point stands around it
    handed = [f", {one}" for one in resource_declared(plan) if is_inner]
    own = no_resource(plan, takes_resource=is_inner)
    name = outer = "static int32_t run" if is_inner else f"int32_t {model}_run"
    has_hooks = devices_of(plan).have_hooks and conventions.executor != "graph-host"  # there, its wrappers call them
    if has_hooks:
        name = "static int32_t inference"
    structures = f"const struct {model}_inputs *inputs, const struct {model}_outputs *outputs"
    passed = [f", {one}" for one in resource_declared(plan) if is_inner or has_hooks]
    prototype = f"{name}({'void *context, ' * conventions.context}{structures}{''.join(passed)})"
    body = [] if has_hooks else own
    body += ["    (void)resource;"] * bool(passed)
    body += [f"    {arena.parameter_type} *const {PARAMETER} = context;"] * conventions.context
    starts = [] if conventions.context else [*load_call(plan), *start_call(plan)]
    start = [*range_test(plan, interface), *(f"    {call}" for call in starts)]
    before, after = _copies(plan, interface, arena, "inputs"), _copies(plan, interface, arena, "outputs")
    copied = {"inputs": before, "outputs": after}
    unused = [f"    (void){kind};" for kind, copies in copied.items() if not copies and kind not in memories]
    lines: list[str] = [function(prototype, *unused, *body, *start, *before, *work, *after, "    return 0;")]
    if has_hooks:
        lines.append(
            function(
                f"{outer}({structures}{''.join(handed)})",
                *own,
                f"    int32_t status = {begin_call(plan, is_new=True)};",
                "    if (status == 0)",
                f"        status = inference({', '.join(['inputs, outputs', *resource_passed(plan)])});",
                f"    return {end_call(plan, 'status')};",
            )
        )
    if conventions.interface == "packed":
        lines.append(packed_entry_point(plan, interface, conventions))
    if conventions.interface == "pointers":
        lines.append(_of_pointers(plan, interface))
    return lines


def _of_pointers(plan: Plan, interface: Interface) -> Part:
    """Return the entry point that takes arrays of pointers and a resource."""
    model, lines = plan.graph.name, list[str]()
    for kind, tensors in (("inputs", interface.inputs), ("outputs", interface.outputs)):
        pointers = ", ".join(f"{kind}[{number}]" for number in range(len(tensors)))
        lines.append(f"    const struct {model}_{kind} own_{kind} = {{{pointers or 0}}};")
        lines += [f"    (void){kind};"] * (not tensors)
    lines += [] if resource_passed(plan) else ["    (void)resource;"]
    lines.append(f"    return run({', '.join(['&own_inputs, &own_outputs', *resource_passed(plan)])});")
    return function(f"int32_t {model}_run(void **inputs, void **outputs, void *resource)", *lines)


def _in_steps(plan: Plan, calls: Calls, interface: Interface, arena: Arena) -> list[str]:
    """Return begin, step and done, and what they keep from one call to the next."""
    model, steps = plan.graph.name, f"{plan.graph.name.upper()}_STEPS"
    number = f"(uint16_t)({steps} - inference.left)"
    call = operator_call(plan, calls, number, "inference.inputs", "inference.outputs")
    copies = _copies(plan, interface, arena, "outputs")
    kept = [
        f"const struct {model}_inputs *inputs;",
        f"const struct {model}_outputs *outputs;",
        "uint16_t left; /* operators that have not run */",
    ]
    begin = function(
        f"int32_t {model}_begin(const struct {model}_inputs *inputs, const struct {model}_outputs *outputs)",
        *range_test(plan, interface),
        *(f"    {call}" for call in (*load_call(plan), *start_call(plan))),
        *_copies(plan, interface, arena, "inputs"),
        "    inference.inputs = inputs;",
        "    inference.outputs = outputs;",
        f"    inference.left = {steps};",
        "    return 0;",
    )
    lines = [
        "    if (inference.left == 0)",
        "        return -1;",
        *([f"    const int32_t status = {call};"] if calls.can_fail else [f"    {call};"]),
        *(["    if (status != 0)", "        return status;"] if calls.can_fail else []),
        "    --inference.left;",
    ]
    if copies:
        lines += ["    if (inference.left == 0) {"]
        if any("inputs->" in line for line in copies):  # sizes: the caller's may be those of the next inference by now
            lines += [f"        const struct {model}_inputs *const inputs = &{model}_arena_inputs;"]
        lines += [f"        const struct {model}_outputs *const outputs = inference.outputs;"]
        lines += [*(f"    {line}" for line in copies), "    }"]
    return [
        "/* The inference that is under way. */",
        structure("inference", kept),
        "",
        begin,
        function(f"int32_t {model}_step(void)", *lines, "    return 0;"),
        function(f"int32_t {model}_done(void)", "    return inference.left == 0;"),
    ]


def _copies(plan: Plan, interface: Interface, arena: Arena, kind: Literal["inputs", "outputs"]) -> list[str]:
    """Return the C that copies inputs into the arena, or outputs out of it, where the caller's are other places."""
    values = {"inputs": plan.graph.caller_inputs, "outputs": plan.graph.caller_outputs}[kind]
    lines: list[str] = []
    copied = zip(values, getattr(interface, kind), getattr(arena, kind), strict=True)
    for value, tensor, spot in copied if plan.io == "arena" else ():
        size = bytes_in_c(plan, value, tensor, interface, "inputs")
        if tensor.stream is not None or size == "0" or spot is None:
            continue  # its pointer may be null, which memcpy does not take
        place, pointer = arena.bytes_at(spot), f"{kind}->{tensor.c_name}"
        to, source = (place, pointer) if kind == "inputs" else (pointer, place)
        lines.append(f"    if ((const void *){pointer} != (const void *)({place}))")
        lines.append(f"        memcpy({to}, {source}, {size});")
    return lines


# `<model>_operators.h`: the operators of a model, for what calls them one by one.


def operators_header(
    plan: Plan, banner: str, functions: Functions, calls: Calls, arena: Arena, conventions: Conventions
) -> list[str]:
    """Return the offsets in the arena, and the prototypes of the functions that `<model>.c` defines."""
    model = plan.graph.name
    lines: list[str] = [declaration(one.prototype) for one in functions.functions]
    lines += inner_declarations(plan)
    if conventions.executor != "graph":
        note = "/* One operator on its tensors, by its number: all of them, from 0 in order, are an inference. */"
        structures = [f"struct {model}_{name};" for name in calls.structures]
        lines += ["", *([note, *structures] if structures else [])]
        lines.append(declaration(operator_prototype(plan, calls), "" if structures else note))
    before = [*include(f"{model}_weights.h"), "", *arena.defines()]
    return c_text.header(banner, f"{model}_operators", before, [*lines, ""])
