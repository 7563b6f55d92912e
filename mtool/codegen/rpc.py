"""`<model>_rpc.c`: the model as the runtime's RPC server sees it."""

from mtool.codegen.calls import Calls, Interface
from mtool.codegen.wrap import wrapped
from mtool.ir import DType
from mtool.manifest import Tensor
from mtool.plan import Plan


def descriptor(plan: Plan, calls: Calls, interface: Interface, banner: str, model_hash: str) -> str:
    """Return the definition of `mt_model`; with `--io external` it also has buffers for the tensors."""
    model = plan.graph.name
    lines = [
        banner,
        '#include "mt_model.h"',
        *(f'#include "{model}{part}.h"' for part in ("", "_operators", "_weights")),
        "",
    ]
    if plan.io == "external":
        for tensor in (*interface.inputs, *interface.outputs):
            dtype = DType.of(tensor.dtype)
            lines.append(f"static {dtype.c} {model}_{tensor.c_name}[{tensor.bytes // dtype.size}];")
        lines.append("")
        for kind, tensors in (("inputs", interface.inputs), ("outputs", interface.outputs)):
            places = ", ".join(f"{model}_{tensor.c_name}" for tensor in tensors)
            lines.append(f"static const struct {model}_{kind} {model}_external_{kind} = {{{places}}};")
        lines.append("")
    lines += [
        "static int32_t run(void)",
        "{",
        f"    return {model}_run(&{model}_{plan.io}_inputs, &{model}_{plan.io}_outputs);",
        "}",
        "",
        *_step(plan, calls),
        "",
    ]
    for kind, tensors in (("inputs", interface.inputs), ("outputs", interface.outputs)):
        lines += [f"static const struct mt_tensor {kind[:-1]}_tensors[] = {{"]
        lines += [f"    {{{_place(plan, tensor)}, {tensor.bytes}}}," for tensor in tensors] or ["    {0, 0},"]
        lines += ["};"]
    lines += [
        "",
        "const struct mt_model mt_model = {",
        f'    "{model}",',
        f'    "{model_hash}",',
        "    input_tensors,",
        "    output_tensors,",
        f"    {len(interface.inputs)},",
        f"    {len(interface.outputs)},",
        f"    {len(calls.operators)},",
        f"    {f'{model}_arena' if plan.arena_bytes else 0},",
        f"    {plan.arena_bytes},",
        "    run,",
        "    step,",
        "};",
        "",
    ]
    return wrapped("\n".join(lines))


def _step(plan: Plan, calls: Calls) -> list[str]:
    model = plan.graph.name
    lines = ["static int32_t step(uint16_t number)", "{"]
    for kind in ("inputs", "outputs"):
        if any(f"{kind}->" in call for call in calls.operators):
            lines.append(f"    const struct {model}_{kind} *const {kind} = &{model}_external_{kind};")
    lines += [f"    {pointer}" for pointer in calls.pointers]
    lines += ["    switch (number) {"]
    for number, call in enumerate(calls.operators):
        lines += [f"    case {number}:", f"        {call}", "        return 0;"]
    return [*lines, "    default:", "        return -1;", "    }", "}"]


def _place(plan: Plan, tensor: Tensor) -> str:
    model = plan.graph.name
    if tensor.arena_offset is None:
        return f"{model}_{tensor.c_name}"
    return f"{model}_arena + {tensor.arena_offset}"
