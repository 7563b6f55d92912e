"""`<model>_rpc.c`: the model's descriptor for the runtime's RPC server."""

from dataclasses import replace

from mtool.base.escaping import c_string
from mtool.compiler.codegen import pools
from mtool.compiler.codegen.arena import PARAMETER, Arena, own_arena
from mtool.compiler.codegen.c_text import function, include, listed, members, variable
from mtool.compiler.codegen.calls import Calls, operands_of
from mtool.compiler.codegen.entry import operator_call
from mtool.compiler.codegen.model import ALONE, CModel
from mtool.compiler.codegen.packed import packed_call
from mtool.compiler.codegen.protect import areas_table, arena_definition
from mtool.compiler.codegen.streamed import whole_inputs
from mtool.compiler.codegen.tensors import tensor_bytes
from mtool.compiler.ir import DType
from mtool.manifest import Protection, Tensor


def descriptor(model: CModel, calls: Calls, protection: Protection | None = None) -> list[str]:
    """Return the definition of `mt_model`, or of another model of a firmware.

    With `--io external` it also has buffers for the tensors; with `protection` a table of the areas that the model may
    access.
    """
    plan, interface, arena, firmware = model.plan, model.interface, model.arena, model.place
    conventions = model.conventions
    is_graph = conventions.executor == "graph"
    local_arena = replace(arena, symbol=own_arena(model)) if arena.is_callers else arena
    context = f"&{PARAMETER}" if plan.pools else local_arena.symbol if plan.arena_bytes else "0"
    parts = ["", *(["_graph"] if is_graph else []), "_operators", *(["_packed"] if conventions.forms else [])]
    lines = [
        model.banner,
        *include("mt_functions.h") * conventions.has_functions,
        *include("mtool.h") * (arena.is_callers and pools.needs_header(plan)),
        *include("mt_place.h") * arena.is_callers,
        *include("mtool.h"),
        *include("mtool.h") * (protection is not None),
        *include("mtool.h") * is_graph,
        *include(*(f"{model}{part}.h" for part in [*parts, "_weights"])),
        "",
    ]
    if arena.is_callers and plan.pools:
        lines += pools.instance(model)
    elif arena.is_callers and plan.arena_bytes:
        macro = f"{model.upper}_ARENA_BYTES"
        lines += [*arena_definition(local_arena.symbol, macro, plan.alignment, plan.arena_bytes, firmware.unit), ""]
    if plan.io == "external":
        both = (("inputs", interface.inputs), ("outputs", interface.outputs))
        for kind, tensors in both:
            for tensor in tensors:
                dtype = DType.of(tensor.dtype)
                only_read = "MT_PROTECT_INPUTS " if protection is not None and kind == "inputs" else ""
                head = f"static {only_read}{dtype.c} {_buffer(model, kind, tensor)}"
                lines.append(variable(f"{head}[{tensor.bytes // dtype.size}]"))
        lines.append("")
        for kind, tensors in both:
            pointers = ", ".join(_buffer(model, kind, tensor) for tensor in tensors)
            lines.append(variable(f"static const struct {model}_{kind} {model}_external_{kind}", f" = {{{pointers}}}"))
        lines.append("")
    if plan.graph.stream is not None:
        lines += _stream(model, "MT_PROTECT_INPUTS " if protection is not None else "")
    lines += [
        function(
            "static int32_t run(const struct mt_model *model)",
            "    (void)model;",
            *_run(model, context),
        ),
        function(
            "static int32_t step(const struct mt_model *model, uint16_t number)",
            "    (void)model;",
            *(_graph_step(model) if is_graph else _step(model, calls, context)),
        ),
    ]
    tables = (("inputs", interface.inputs, arena.inputs), ("outputs", interface.outputs, arena.outputs))
    for kind, tensors, spots in tables:
        rows = [] if tensors else ["{0, 0},"]
        for tensor, spot in zip(tensors, spots, strict=True):
            place = local_arena.bytes_at(spot) if spot else _buffer(model, kind, tensor)
            by_rows = tensor.stream is not None
            rows.append(
                "{row, sizeof(row)}, /* by rows */" if by_rows else f"{{{place}, {tensor_bytes(model, tensor)}}},"
            )
        lines.append(listed(f"static const struct mt_tensor {kind[:-1]}_tensors[]", rows))
    if conventions.has_functions:
        lines += ["", *_functions(model)]
    if len(plan.pools) > 1:
        rows = [f"{{{', '.join(_pool(local_arena, number))}}}," for number in range(1, len(plan.pools))]
        lines += ["", listed("static const struct mt_tensor more_pools[]", rows)]
    arena_of = {"arena": local_arena.symbol, "arena_bytes": f"{model.upper}_ARENA_BYTES"} if plan.arena_bytes else {}
    if plan.pools:
        arena_of = dict(zip(("arena", "arena_bytes"), _pool(local_arena, 0), strict=True))
    described = {
        "name": c_string(str(model)),
        "model_hash": c_string(model.model_hash),
        "inputs": "input_tensors",
        "outputs": "output_tensors",
        "input_count": len(interface.inputs),
        "output_count": len(interface.outputs),
        "operator_count": len(plan.steps),
        **arena_of,
        **({"pools": "more_pools", "pool_count": len(plan.pools) - 1} if len(plan.pools) > 1 else {}),
        "run": "run",
        "step": "step",
        **({"stream": "&stream"} if plan.graph.stream else {}),
        **({"functions": "&functions"} if conventions.has_functions else {}),
        **({"failure": f"&{model}_failure"} if model.devices.can_fail else {}),
        **({"areas": "areas", "area_count": len(protection.areas) - 1} if protection is not None else {}),
        **({"next": f"&{firmware.next}"} if firmware.next else {}),
    }
    others = [name for name in (firmware.next, firmware.descriptor) if name not in ("", ALONE.descriptor)]
    lines += [""] * bool(others) + [f"extern const struct mt_model {name};" for name in others]
    if protection is not None:
        lines += ["", *areas_table(model, local_arena.symbol, protection)]
    return [*lines, "", members(f"const struct mt_model {firmware.descriptor}", described), ""]


def _run(model: CModel, arena: str) -> list[str]:
    """Return the body of a function that runs the model through its entry point."""
    plan, interface, conventions = model.plan, model.interface, model.conventions
    inputs, outputs = f"{model}_{plan.io}_inputs", f"{model}_{plan.io}_outputs"
    if conventions.interface == "packed":
        return packed_call(model, f"{model}_run", f"{inputs}.", f"{outputs}.")
    if conventions.interface == "pointers":
        lines = []
        for kind, tensors in (("inputs", interface.inputs), ("outputs", interface.outputs)):
            names = [
                f"{inputs if kind == 'inputs' else outputs}.{tensor.c_name}"
                if plan.io == "arena"
                else _buffer(model, kind, tensor)
                for tensor in tensors
            ]
            lines.append(f"    void *{kind}[] = {{{', '.join(names) or 0}}};")
        return [*lines, f"    return {model}_run(inputs, outputs, 0);"]
    if conventions.interface == "step":
        return [
            f"    int32_t status = {model}_begin(&{inputs}, &{outputs});",
            f"    while (status == 0 && !{model}_done())",
            f"        status = {model}_step();",
            "    return status;",
        ]
    if conventions.interface == "feed":
        return [f"    return {model}_finish(&{outputs});"]
    if conventions.context and plan.io == "arena":
        return [
            f"    const struct {model}_inputs inputs = {inputs}({arena});",
            f"    const struct {model}_outputs outputs = {outputs}({arena});",
            f"    return {model}_run({arena}, &inputs, &outputs);",
        ]
    return [f"    return {model}_run({f'{arena}, ' * conventions.context}&{inputs}, &{outputs});"]


def _pool(arena: Arena, number: int) -> tuple[str, str]:
    """Return the start of a pool and its bytes, in C."""
    placed = arena.pools[number]
    return (arena.base(number), pools.size_macro(arena.model, placed.pool.name)) if placed.bytes else ("0", "0")


def _stream(model: CModel, only_read: str) -> list[str]:
    """Return the C with which the server feeds the model the rows of its streamed input, one at a time."""
    plan, stream = model.plan, model.graph.stream
    assert stream is not None
    kind = plan.graph.types[stream.value]
    arguments = f"&{model}_{plan.io}_inputs" if whole_inputs(model) else ""
    return [
        variable(f"static {only_read}{kind.dtype.c} row[{kind.count // stream.rows}]"),
        "",
        function("static int32_t begin(void)", f"    return {model}_begin({arguments});"),
        function("static int32_t feed(void)", f"    return {model}_feed(row, 1);"),
        members(
            "static const struct mt_stream stream",
            {
                "input": plan.graph.caller_inputs.index(stream.value),
                "rows": stream.rows,
                "row": "row",
                "row_bytes": "sizeof(row)",
                "begin": "begin",
                "feed": "feed",
            },
        ),
        "",
    ]


def _graph_step(model: CModel) -> list[str]:
    """Return the lines that run one operator with the graph executor."""
    plan, devices = model.plan, model.devices
    if devices.have_hooks:
        calls = [devices.begin(is_new=is_new, resource="0") for is_new in (True, False)]
        begin, end = f"number == 0 ? {calls[0]} : {calls[1]}", devices.end("status", "0")
        return [
            f"    int32_t status = {model}_graph_begin(&{model}_{plan.io}_inputs, &{model}_{plan.io}_outputs);",
            "    if (status == MT_OK)",
            f"        status = {begin};",
            "    if (status == MT_OK)",
            f"        status = {model}_graph_step(number);",
            f"    return status != MT_OK || number == {len(plan.steps) - 1} ? {end} : status;",
        ]
    return [
        f"    const int32_t status = {model}_graph_begin(&{model}_{plan.io}_inputs, &{model}_{plan.io}_outputs);",
        f"    return status == MT_OK ? {model}_graph_step(number) : status;",
    ]


def _functions(model: CModel) -> list[str]:
    """Return what the server needs to call the packed functions: the list, and room for the arguments of one call."""
    plan, interface, types = model.plan, model.interface, model.graph.types
    calls = [[types[v].shape for operands in operands_of(plan, step.node) for v in operands] for step in plan.steps]
    calls.append([tensor.shape for tensor in (*interface.inputs, *interface.outputs)])
    arguments = max(map(len, calls))
    dims = max(1, *(sum(map(len, shapes)) for shapes in calls))
    room = {"DLTensor tensors": arguments, "union mt_value values": arguments, "int32_t codes": arguments}
    described = {
        "list": f"{model}_functions",
        "count": f"{model.upper}_FUNCTIONS",
        "most_arguments": arguments,
        "most_dims": dims,
        **{name: name for name in ("tensors", "values", "codes", "dims")},
        **{name: f"mt_functions_{name}" for name in ("find", "invoke")},
    }
    return [
        *(variable(f"static {name}[{count}]") for name, count in {**room, "int64_t dims": dims}.items()),
        "",
        members("static const struct mt_functions functions", described),
    ]


def _step(model: CModel, calls: Calls, arena: str) -> list[str]:
    """Return the line that runs one operator."""
    if model.graph.stream is not None:
        call = f"{model}_operator(number, row)"
    else:
        call = operator_call(model, calls, "number", f"&{model}_external_inputs", f"&{model}_external_outputs", arena)
    return [f"    return {call};"]


def _buffer(model: CModel, kind: str, tensor: Tensor) -> str:
    """Return the C name of the buffer for an input or an output, which never equals a function's."""
    return f"{model}_{kind[:-1]}_{tensor.c_name}"
