"""The entry point of a model: a typed function, one with pointers, a packed function, or one call per operator."""

from collections.abc import Collection, Sequence
from typing import Literal

from mtool.compiler.codegen import c_text
from mtool.compiler.codegen.arena import PARAMETER
from mtool.compiler.codegen.c_text import Part, declaration, function, include, structure
from mtool.compiler.codegen.calls import Calls
from mtool.compiler.codegen.device import (
    inner_declarations,
)
from mtool.compiler.codegen.guard import begin_check, condition, end_check
from mtool.compiler.codegen.model import CModel
from mtool.compiler.codegen.packed import packed_entry_point
from mtool.compiler.codegen.pools import load_call
from mtool.compiler.codegen.state_reset import start_call
from mtool.compiler.codegen.streamed import Head, entry_points, head_steps, rows_declared
from mtool.compiler.codegen.tensors import bytes_in_c, range_test
from mtool.compiler.kernels.schedule import RESOURCE

# The calls of one inference, written once: the entry point makes all of them, `<model>_operator` one.


_NOTE = """\
/* The operators of one inference, in order; with a pointer to a number, only that one. With NULL, the compiler makes
 * plain calls. Volatile, because tracing a constant through a thousand comparisons takes the compiler a minute. */"""
_UNDEFINED = ["#undef OPERATOR", ""]


def operator_prototype(model: CModel, calls: Calls) -> str:
    """Return the declaration of `<model>_operator`, without a semicolon."""
    rows = [rows_declared(model.plan)] if model.graph.stream else []
    return f"int32_t {model}_operator({', '.join(['uint16_t number', *rows, *_parameters(model, calls)])})"


def _parameters(model: CModel, calls: Calls) -> list[str]:
    """Return the declarations of the parameters that are passed on to the calls."""
    structures = [f"const struct {model}_{name} *{name}" for name in calls.structures]
    return [*calls.context_declared, *structures, *(f"void *{name}" for name in calls.resource)]


def operator_call(model: CModel, calls: Calls, number: str, inputs: str, outputs: str, arena: str = PARAMETER) -> str:
    """Return the C that calls `<model>_operator`; `inputs`, `outputs` and `arena` are passed if it takes them.

    There is no resource for devices.
    """
    passed = {"inputs": inputs, "outputs": outputs, PARAMETER: arena, RESOURCE.name: "0"}
    return f"{model}_operator({', '.join([number, *(passed[name] for name in calls.passed)])})"


def operator_functions(model: CModel, calls: Calls) -> list[str]:
    """Return the C of all calls, and of the function that makes one of them."""
    body = [f"    {line}".rstrip() for line in (*calls.pointers, "", *calls.numbered())]
    plan, devices = model.plan, model.devices
    starts = [] if calls.context else start_call(model)
    start = [*begin_check(model, "number == 0"), *(f"    {call}" for call in load_call(model))]
    start += [line for call in starts for line in ("    if (number == 0)", f"        {call}")]
    if model.conventions.interface == "step":
        head = ["/* The operators of one inference, in order. */", "#define OPERATOR(n) if (number == (n))", ""]
        prototype, statements = operator_prototype(model, calls), [*start, *body, "    return 0;"]
        if not devices.have_hooks:
            return [*head, function(prototype, *statements), *_UNDEFINED]
        inner = "static " + prototype.replace(f"{model}_operator(", "one_operator(", 1)
        call = f"one_operator({', '.join(['number', *calls.passed])})"
        return [*head, function(inner, *statements), *_UNDEFINED, function(prototype, *_around(model, call))]
    call = f"{model}_calls({', '.join(['&only', *calls.passed])})"
    statements = [f"    return {call};"] if calls.can_fail else [f"    {call};", "    return 0;"]
    if devices.have_hooks:
        statements = _around(model, call)
    streamed = [
        f"    if (number < {head_steps(plan)}) {{",
        f"        (void){model}_head_call(number, rows);",
        "        return 0;",
        "    }",
    ] * bool(head_steps(plan))
    result = "int32_t" if calls.can_fail else "void"
    parameters = ", ".join(["const volatile int32_t *only", *_parameters(model, calls)])
    return [
        _NOTE,
        f"#define OPERATOR(number) if ({condition(model, 'only == NULL || *only == (number)')})",
        "",
        function(
            f"MT_INLINE {result} {model}_calls({parameters})",
            *([] if calls.operators else ["    (void)only;"]),
            *(f"    (void){name};" for name in (*calls.context, *calls.resource)),
            *body,
            *(["    return 0;"] if calls.can_fail else []),
        ),
        *_UNDEFINED,
        function(
            operator_prototype(model, calls),
            *streamed,
            "    const volatile int32_t only = number;",
            *start,
            *statements,
        ),
    ]


def _around(model: CModel, call: str) -> list[str]:
    """Return the lines that call an operator, and the devices' functions before the first and after the last."""
    new, old = (model.devices.begin(is_new=is_new) for is_new in (True, False))
    return [
        f"    int32_t status = number == 0 ? {new} : {old};",
        "    if (status == 0)",
        f"        status = {call};",
        f"    return status != 0 || number == {len(model.plan.steps) - 1} ? {model.devices.end('status')} : status;",
    ]


def all_operators(model: CModel, calls: Calls) -> list[str]:
    """Return the C that makes all the calls; a failed call returns from the enclosing function."""
    call = f"{model}_calls({', '.join(['NULL', *calls.passed])})"
    if not calls.can_fail:
        return [f"    {call};"]
    return [f"    const int32_t status = {call};", "    if (status != 0)", "        return status;"]


def entry_point(model: CModel, calls: Calls, head: Head | None) -> list[str]:
    """Return the C of the entry point that calls the operators; `head` are the ones that are called as rows arrive."""
    operators = operator_functions(model, calls)
    if model.conventions.interface == "step":
        return [*operators, *_in_steps(model, calls)]
    work = all_operators(model, calls)
    if head is not None:
        starts = (f"    {call}" for call in (*load_call(model), *start_call(model)))
        begin = [*starts, *_copies(model, "inputs")]
        return [*operators, *entry_points(model, head, begin, work, _copies(model, "outputs"))]
    return [*operators, *whole(model, work, calls.structures)]


def whole(model: CModel, work: Sequence[str], memories: Collection[str]) -> list[str]:
    """Return a complete entry point: it copies the inputs in, does `work`, and copies the outputs out.

    `memories` are the structures that `work` uses: "inputs", "outputs".
    """
    conventions, devices = model.conventions, model.devices
    is_inner = conventions.takes_resource  # inside the entry point
    outer_parameters = [f", {parameter}" for parameter in devices.declared if is_inner]
    ignored = devices.no_resource(takes_resource=is_inner)
    name = outer = "static int32_t run" if is_inner else f"int32_t {model}_run"
    has_hooks = devices.have_hooks and conventions.executor != "graph-host"  # there, its wrappers call them
    if has_hooks:
        name = "static int32_t inference"
    structures = f"const struct {model}_inputs *inputs, const struct {model}_outputs *outputs"
    passed = [f", {parameter}" for parameter in devices.declared if is_inner or has_hooks]
    prototype = f"{name}({'void *context, ' * conventions.context}{structures}{''.join(passed)})"
    body = [] if has_hooks else ignored
    body += ["    (void)resource;"] * bool(passed)
    body += [f"    {model.arena.parameter_type} *const {PARAMETER} = context;"] * conventions.context
    starts = [] if conventions.context else [*load_call(model), *start_call(model)]
    start = [*range_test(model), *(f"    {call}" for call in starts)]
    before, after = _copies(model, "inputs"), _copies(model, "outputs")
    copied = {"inputs": before, "outputs": after}
    unused = [f"    (void){kind};" for kind, copies in copied.items() if not copies and kind not in memories]
    lines: list[str] = [
        function(prototype, *unused, *body, *begin_check(model), *start, *before, *work, *after, *end_check(model))
    ]
    if has_hooks:
        lines.append(
            function(
                f"{outer}({structures}{''.join(outer_parameters)})",
                *ignored,
                f"    int32_t status = {devices.begin(is_new=True)};",
                "    if (status == 0)",
                f"        status = inference({', '.join(['inputs, outputs', *devices.passed])});",
                f"    return {devices.end('status')};",
            )
        )
    if conventions.interface == "packed":
        lines.append(packed_entry_point(model))
    if conventions.interface == "pointers":
        lines.append(_of_pointers(model))
    return lines


def _of_pointers(model: CModel) -> Part:
    """Return the entry point with arrays of pointers and a resource."""
    lines, passed = list[str](), model.devices.passed
    for kind, tensors in (("inputs", model.interface.inputs), ("outputs", model.interface.outputs)):
        pointers = ", ".join(f"{kind}[{number}]" for number in range(len(tensors)))
        lines.append(f"    const struct {model}_{kind} own_{kind} = {{{pointers or 0}}};")
        lines += [f"    (void){kind};"] * (not tensors)
    lines += [] if passed else ["    (void)resource;"]
    lines.append(f"    return run({', '.join(['&own_inputs, &own_outputs', *passed])});")
    return function(f"int32_t {model}_run(void **inputs, void **outputs, void *resource)", *lines)


def _in_steps(model: CModel, calls: Calls) -> list[str]:
    """Return begin, step and done, and their state between calls."""
    steps = f"{model.upper}_STEPS"
    number = f"(uint16_t)({steps} - inference.left)"
    call = operator_call(model, calls, number, "inference.inputs", "inference.outputs")
    copies = _copies(model, "outputs")
    fields = [
        f"const struct {model}_inputs *inputs;",
        f"const struct {model}_outputs *outputs;",
        "uint16_t left; /* operators still to run */",
    ]
    begin = function(
        f"int32_t {model}_begin(const struct {model}_inputs *inputs, const struct {model}_outputs *outputs)",
        *range_test(model),
        *(f"    {call}" for call in (*load_call(model), *start_call(model))),
        *_copies(model, "inputs"),
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
        "/* The inference in progress. */",
        structure("inference", fields),
        "",
        begin,
        function(f"int32_t {model}_step(void)", *lines, "    return 0;"),
        function(f"int32_t {model}_done(void)", "    return inference.left == 0;"),
    ]


def _copies(model: CModel, kind: Literal["inputs", "outputs"]) -> list[str]:
    """Return the C that copies inputs into the arena, or outputs out of it, if the caller's lie elsewhere."""
    values = {"inputs": model.graph.caller_inputs, "outputs": model.graph.caller_outputs}[kind]
    lines: list[str] = []
    copied = zip(values, getattr(model.interface, kind), getattr(model.arena, kind), strict=True)
    for value, tensor, spot in copied if model.plan.io == "arena" else ():
        size = bytes_in_c(model, value, tensor)
        if tensor.stream is not None or size == "0" or spot is None:
            continue  # its pointer may be null, which memcpy does not take
        place, pointer = model.arena.bytes_at(spot), f"{kind}->{tensor.c_name}"
        to, source = (place, pointer) if kind == "inputs" else (pointer, place)
        lines.append(f"    if ((const void *){pointer} != (const void *)({place}))")
        lines.append(f"        memcpy({to}, {source}, {size});")
    return lines


# `<model>_operators.h`: the operators of a model, for callers that run them one by one.


def operators_header(model: CModel, calls: Calls) -> list[str]:
    """Return the offsets in the arena, and the prototypes of the functions that `<model>.c` defines."""
    lines: list[str] = [declaration(func.prototype) for func in model.functions.functions]
    lines += inner_declarations(model.devices)
    if model.conventions.executor != "graph":
        note = "/* Run one operator by its number: an inference is all of them, in order from 0. */"
        structures = [f"struct {model}_{name};" for name in calls.structures]
        lines += ["", *([note, *structures] if structures else [])]
        lines.append(declaration(operator_prototype(model, calls), "" if structures else note))
    before = [*include(f"{model}_weights.h"), "", *model.arena.defines()]
    return c_text.header(model.banner, f"{model}_operators", before, [*lines, ""])
