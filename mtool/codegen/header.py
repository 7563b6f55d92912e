"""`<model>.h`: the interface of a model."""

from mtool.codegen.calls import Interface
from mtool.ir import DType
from mtool.ir.scalar import literal
from mtool.manifest import Tensor
from mtool.plan import Plan


def header(plan: Plan, interface: Interface, banner: str) -> str:
    """Return the header: sizes, shapes and scales as macros, the structs, the entry point."""
    model = plan.graph.name
    upper = model.upper()
    lines = [banner, f"#ifndef {upper}_H", f"#define {upper}_H", "", "#include <stdint.h>", ""]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    lines += [f"#define {upper}_ARENA_BYTES {plan.arena_bytes}"]
    lines += [f"extern uint8_t {model}_arena[];"] * bool(plan.arena_bytes) + [""]
    for tensor in (*interface.inputs, *interface.outputs):
        lines += [*_macros(upper, tensor), ""]
    lines += _struct(plan, "inputs", interface.inputs)
    lines += _struct(plan, "outputs", interface.outputs)
    if plan.io == "arena":
        lines += [
            "/* The places in the arena where the model keeps its inputs and outputs. Write the inputs there before a",
            " * run and nothing is copied; the run may overwrite them. */",
            f"extern const struct {model}_inputs {model}_arena_inputs;",
            f"extern const struct {model}_outputs {model}_arena_outputs;",
            "",
        ]
        notes = [
            "/* One inference. Pointers to other places than the arena's are copied from and to.",
            " * Returns 0. Not re-entrant: there is one arena. */",
        ]
    else:
        notes = ["/* One inference; leaves the inputs as they are. Returns 0. Not re-entrant: there is one arena. */"]
    lines += notes
    lines += [f"int32_t {model}_run(const struct {model}_inputs *inputs, const struct {model}_outputs *outputs);", ""]
    lines += ["#ifdef __cplusplus", "}", "#endif", "", "#endif", ""]
    return "\n".join(lines)


def _macros(upper: str, tensor: Tensor) -> list[str]:
    stem = f"{upper}_{tensor.c_name.upper()}"
    count = tensor.bytes // DType.of(tensor.dtype).size
    shape = ", ".join(map(str, tensor.shape))
    lines = [f"#define {stem}_SHAPE {{{shape}}}", f"#define {stem}_COUNT {count}"]
    if tensor.scale is not None and tensor.zero_point is not None and len(tensor.scale) == 1:
        scale = literal(tensor.scale[0], DType.FLOAT32).c
        lines += [f"#define {stem}_SCALE {scale}", f"#define {stem}_ZERO_POINT {tensor.zero_point[0]}"]
    return lines


def _struct(plan: Plan, kind: str, tensors: tuple[Tensor, ...]) -> list[str]:
    const = "const " if kind == "inputs" and plan.io == "external" else ""
    lines = [f"struct {plan.graph.name}_{kind} {{"]
    for tensor in tensors:
        shape = ",".join(map(str, tensor.shape))
        note = f"{tensor.dtype}[{shape}]"
        if tensor.count is not None:
            count = next(other.c_name for other in tensors if other.name == tensor.count)
            note += f", of which the first {count}[0] along dimension {tensor.count_axis} are there"
        lines.append(f"    {const}{DType.of(tensor.dtype).c} *{tensor.c_name}; /* {note} */")
    if not tensors:
        lines.append("    uint8_t none; /* C has no empty structures */")
    return [*lines, "};", ""]
