"""`<model>_packed.c` and `.h`: the operators and the model as packed functions."""

from mtool.base.escaping import c_string, comment
from mtool.compiler.codegen import c_text, tensors
from mtool.compiler.codegen.c_text import Part, declaration, function, include, listed
from mtool.compiler.codegen.calls import operands_of
from mtool.compiler.codegen.conventions import Conventions, Form
from mtool.compiler.codegen.device import (
    is_failing,
    regions_of,
    takes_resource,
)
from mtool.compiler.codegen.functions import arguments_of
from mtool.compiler.codegen.model import CModel
from mtool.compiler.codegen.tensors import type_name
from mtool.compiler.ir import DType, TensorType
from mtool.compiler.plan import Plan
from mtool.manifest import Tensor

PARAMETERS = (
    "union mt_value *arguments, int32_t *type_codes, int32_t count, union mt_value *result, int32_t *result_code, "
    "void *resource"
)
UNUSED = ("(void)result;", "(void)result_code;", "(void)resource;")

_NOTES: dict[Form, str] = {
    "pointers": "The operators, each with an array of pointers, inputs before outputs.",
    "values": "The operators as packed functions of pointers to the tensors' data, inputs before outputs.",
    "packed": "The operators as packed functions of tensors, inputs before outputs.",
}


def tensor_type(tensor: Tensor) -> TensorType:
    """Return the type of an input or output."""
    return TensorType(DType.of(tensor.dtype), tensor.shape)


def entry_name(model: CModel) -> str:
    """Return the C name of the model as a packed function."""
    return f"{model}_run" + ("" if model.conventions.interface == "packed" else "_packed")


def packed_header(model: CModel) -> list[str]:
    """Return the declarations of all wrappers; with tensors, also of their types and the list of functions."""
    plan, conventions = model.plan, model.conventions
    before = [*include("mt_functions.h") * conventions.has_functions, *include("mt_packed.h"), ""]
    lines: list[str] = []
    if conventions.has_functions:
        lines += [*tensors.declarations(model, _kinds(plan)), ""]
    for form in conventions.forms:
        lines += [_declaration(model, number, form) for number in range(len(plan.steps))] + [""]
    if conventions.has_functions:
        if conventions.interface != "packed":
            lines += ["/* The same for the whole model: its inputs and outputs. */"]
            lines += [f"mt_packed {entry_name(model)};", ""]
        lines += [
            "/* The functions that can be called by name: the operators, in order, and the model. */",
            f"#define {model.upper}_FUNCTIONS {len(plan.steps) + 1}",
            declaration(f"extern const struct mt_function {model}_functions[{model.upper}_FUNCTIONS]"),
            "",
        ]
    return c_text.header(model.banner, f"{model}_packed", before, lines)


def packed_source(model: CModel) -> list[str]:
    """Return the wrappers: they check their arguments, and add the operator's constants and scratch."""
    plan, conventions = model.plan, model.conventions
    lines = [model.banner, *include(f"{model}_packed.h"), "", *include("mtool.h")]
    lines += [*include(*(f"{model}{part}.h" for part in ("", "_operators", "_weights"))), ""]
    if conventions.has_functions:
        lines += tensors.definitions(model, _kinds(plan))
    for form in conventions.forms:
        for number in range(len(plan.steps)):
            lines.append(_wrapper(model, number, form))
    if conventions.has_functions:
        if conventions.interface != "packed":
            lines.append(packed_entry_point(model))
        callees = [f"{model}_{step.node.name}_packed" for step in plan.steps] + [entry_name(model)]
        names = zip(function_names(plan, conventions), callees, strict=True)
        rows = (f"{{{c_string(name)}, {callee}}}," for name, callee in names)
        lines += [listed(f"const struct mt_function {model}_functions[{model.upper}_FUNCTIONS]", rows), ""]
    return lines


def function_names(plan: Plan, conventions: Conventions) -> tuple[str, ...]:
    """Return the names of callable functions, in the order of the list."""
    model = plan.graph.name
    names = (*(f"{model}_{step.node.name}" for step in plan.steps), f"{model}_run")
    return names if conventions.has_functions else ()


def packed_entry_point(model: CModel) -> Part:
    """Return the model as a packed function on top of its C interface (or of `run`, its body)."""
    interface, conventions = model.interface, model.conventions
    tensors = (*interface.inputs, *interface.outputs)
    structures = []
    for kind, members, first in (
        ("inputs", interface.inputs, 0),
        ("outputs", interface.outputs, len(interface.inputs)),
    ):
        pointers = ", ".join(f"mt_packed_data(&arguments[{first + i}])" for i in range(len(members))) or "0"
        declared = f"void *{kind}[]" if conventions.interface == "pointers" else f"const struct {model}_{kind} {kind}"
        structures.append(f"    {declared} = {{{pointers}}};")
    if conventions.interface == "step":
        run = [
            f"    status = {model}_begin(&inputs, &outputs);",
            f"    while (status == MT_OK && !{model}_done())",
            f"        status = {model}_step();",
            "    return status;",
        ]
    elif conventions.interface == "pointers":
        run = [f"    return {model}_run(inputs, outputs, resource);"]
    else:
        is_packed = conventions.interface == "packed"
        passed = ", ".join(["&inputs, &outputs", *model.devices.passed * is_packed])
        run = [f"    return {'run' if is_packed else f'{model}_run'}({passed});"]
    names = ", ".join(f"&{type_name(model, tensor_type(tensor))}" for tensor in tensors)
    check = f"mt_packed_check(arguments, type_codes, count, types, {len(tensors)})"
    return function(
        f"int32_t {entry_name(model)}({PARAMETERS})",
        f"    static const struct mt_tensor_type *const types[] = {{{names}}};",
        f"    {'' if conventions.interface == 'step' else 'const '}int32_t status = {check};",
        *(f"    {line}" for line in UNUSED),
        "    if (status != MT_OK)",
        "        return status;",
        *structures,
        *run,
    )


def packed_call(model: CModel, function: str, inputs: str, outputs: str) -> list[str]:
    """Return the body of a function that calls the model's packed entry point with the tensors from two structures."""
    pairs = [(inputs, tensor) for tensor in model.interface.inputs]
    pairs += [(outputs, tensor) for tensor in model.interface.outputs]
    return [
        "    DLTensor tensors[] = {",
        *(f"        mt_tensor_of({s}{t.c_name}, &{type_name(model, tensor_type(t))})," for s, t in pairs),
        "    };",
        f"    union mt_value values[{len(pairs)}];",
        f"    int32_t codes[{len(pairs)}];",
        f"    return mt_packed_call({function}, tensors, values, codes, {len(pairs)});",
    ]


def _kinds(plan: Plan) -> list[TensorType]:
    """Return every tensor type that a wrapper checks, each once, in the order of the steps."""
    graph = plan.graph
    values = [*graph.inputs, *graph.outputs]
    values += [value for step in plan.steps for operands in operands_of(plan, step.node) for value in operands]
    return list(dict.fromkeys(graph.types[value] for value in values))


def _declaration(model: CModel, number: int, form: Form) -> Part:
    is_packed = form != "pointers"
    name = f"mt_packed {model}_{model.plan.steps[number].node.name}_{form}"
    note = "" if number else comment(_NOTES[form])
    return declaration(name if is_packed else _prototype(model, number, form), note)


def _prototype(model: CModel, number: int, form: Form) -> str:
    plan, name = model.plan, f"{model}_{model.plan.steps[number].node.name}_{form}"
    if form != "pointers":
        return f"int32_t {name}({PARAMETERS})"
    result = "int32_t" if is_failing(plan, number) else "void"
    resource = ["void *resource"] * takes_resource(plan.steps[number])
    return f"{result} {name}({', '.join(['void *const *arguments', *resource])})"


def _work(model: CModel, number: int, called: str) -> tuple[list[str], str]:
    """Return the lines that call an operator with a device, and the final status; none: no device is involved.

    The host's executor calls the operators one by one, the first at the beginning and the last at the end.
    """
    plan, devices, step = model.plan, model.devices, model.plan.steps[number]
    is_host = model.conventions.executor == "graph-host" and devices.have_hooks
    is_first, is_last = is_host and number == 0, is_host and number == len(plan.steps) - 1
    lines: list[str] = []
    if is_first or any(region.hooks for region in regions_of(step)):
        lines += ["if (status == MT_OK)", f"    status = {devices.begin(is_new=is_first)};"]
    if is_failing(plan, number):
        lines += [
            "if (status == MT_OK) {",
            f"    const int32_t failure = {called}",
            "    if (failure != 0)",
            f"        status = {model.failure(number, str(number), 'failure')};",
            "}",
        ]
    elif lines or is_last:
        lines += ["if (status == MT_OK)", f"    {called}"]
    return lines, devices.end("status") if is_last else "status"


def _wrapper(model: CModel, number: int, form: Form) -> Part:
    plan, node = model.plan, model.plan.steps[number].node
    reads, writes = operands_of(plan, node)
    values = (*reads, *writes)
    place = {
        "pointers": "arguments[{}]",
        "values": "arguments[{}].v_handle",
        "packed": "mt_packed_data(&arguments[{}])",
    }[form]
    pointers = {value: place.format(position) for position, value in enumerate(values)}
    arena, call = model.arena, model.functions.calls[number]
    arguments = arguments_of(plan, number, call, pointers.__getitem__, arena.scratch_of, arena.constant)
    called = f"{call.function.name}({', '.join(arguments)});"
    head = _prototype(model, number, form)
    if form == "pointers":
        unused = [] if "arguments[" in called else ["    (void)arguments;"]
        if is_failing(plan, number):
            failed = f"    return status == 0 ? 0 : {model.failure(number, str(number), 'status')};"
            return function(head, *unused, f"    const int32_t status = {called}", failed)
        return function(head, *unused, f"    {called}")
    if form == "values":
        unused = ["(void)arguments;"] * ("arguments[" not in called)
        check = [f"const int32_t status = mt_packed_check_pointers(type_codes, count, {len(values)});"]
    else:
        unused = []
        names = ", ".join(f"&{type_name(model, plan.graph.types[value])}" for value in values)
        check = [
            f"static const struct mt_tensor_type *const types[] = {{{names}}};",
            f"const int32_t status = mt_packed_check(arguments, type_codes, count, types, {len(values)});",
        ]
    work, result = _work(model, number, called)
    if work:
        check[-1] = check[-1].removeprefix("const ")
    body = [*check, *unused, *UNUSED, *(work or ["if (status == MT_OK)", f"    {called}"]), f"return {result};"]
    return function(head, *(f"    {line}" for line in body))
