"""`<model>_rpc.c`: the model as the runtime's RPC server sees it."""

from mtool.codegen.source import Interface
from mtool.ir import DType
from mtool.manifest import Tensor
from mtool.plan import Plan


def descriptor(plan: Plan, interface: Interface, banner: str, model_hash: str) -> str:
    """Return the definition of `mt_model`; with `--io external` it also has buffers for the tensors."""
    model = plan.graph.name
    lines = [banner, '#include "mt_model.h"', f'#include "{model}.h"', ""]
    if plan.io == "external":
        for tensor in (*interface.inputs, *interface.outputs):
            dtype = DType.of(tensor.dtype)
            lines.append(f"static {dtype.c} {model}_{tensor.c_name}[{tensor.bytes // dtype.size}];")
        lines.append("")
        for kind, tensors in (("inputs", interface.inputs), ("outputs", interface.outputs)):
            places = ", ".join(f"{model}_{tensor.c_name}" for tensor in tensors)
            lines.append(f"static const struct {model}_{kind} {kind} = {{{places}}};")
        arguments = "&inputs, &outputs"
    else:
        arguments = f"&{model}_arena_inputs, &{model}_arena_outputs"
    lines += ["static int32_t run(void)", "{", f"    return {model}_run({arguments});", "}", ""]
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
        "    run,",
        "};",
        "",
    ]
    return "\n".join(lines)


def _place(plan: Plan, tensor: Tensor) -> str:
    model = plan.graph.name
    if tensor.arena_offset is None:
        return f"{model}_{tensor.c_name}"
    return f"{model}_arena + {tensor.arena_offset}"
