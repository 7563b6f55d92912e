"""`<model>.h`: the interface of a model."""

from mtool.base.escaping import comment
from mtool.compiler.codegen import c_text, contract, pools, streamed
from mtool.compiler.codegen.arena import ARENA_ALIGNMENT
from mtool.compiler.codegen.c_text import include
from mtool.compiler.codegen.device import public_declarations
from mtool.compiler.codegen.guard import arena_declaration, check_declaration
from mtool.compiler.codegen.model import CModel
from mtool.compiler.codegen.state_reset import declared
from mtool.compiler.codegen.streamed import whole_inputs
from mtool.compiler.ir import DType
from mtool.compiler.ir.scalar import ATOM, literal
from mtool.compiler.plan import Plan
from mtool.manifest import Tensor


def header(model: CModel, bytes_in_ram: int = 0) -> list[str]:
    """Return the header: sizes, shapes and scales as macros, the structs, the entry point.

    `bytes_in_ram`: the bytes of constants in RAM.
    """
    plan, interface, arena, conventions = model.plan, model.interface, model.arena, model.conventions
    upper = model.upper
    before = ["#include <stdint.h>", "", *include("mt_convention.h")]
    before += include("mt_place.h") * arena.is_callers
    before += include("mtool.h") * model.devices.can_fail
    before += include(f"{model}_packed.h") * (conventions.interface == "packed")
    before += [
        "",
        "/* Objects with other calling conventions do not link with files that include this. */",
        f"MT_CONVENTION({conventions.name}{'_pools' if arena.is_callers and plan.pools else ''});",
        "",
    ]
    lines = [comment(*contract.lines(model, bytes_in_ram)), "", f"#define {upper}_ARENA_BYTES {plan.arena_bytes}"]
    if plan.pools:
        lines += pools.declarations(model)
    elif arena.is_callers:
        lines += [f"#define {upper}_ARENA_ALIGNMENT {max(plan.alignment, ARENA_ALIGNMENT)}", ""]
    else:
        note = " /* shared with other models */" * arena.is_shared
        declared_arena = arena_declaration(model) if model.place.guard else [f"extern uint8_t {arena.symbol}[];{note}"]
        lines += declared_arena * bool(plan.arena_bytes) + [""]
    if bytes_in_ram:
        note = "Weights in RAM, outside the arena, for faster reads; --optimize size takes less."
        lines += [comment(note), f"#define {upper}_WEIGHTS_IN_RAM_BYTES {bytes_in_ram}", ""]
    for tensor in (*interface.inputs, *interface.outputs):
        lines += [*_macros(upper, tensor), ""]
    lines += _struct(model, "inputs", whole_inputs(model))
    lines += _struct(model, "outputs", interface.outputs)
    if plan.io == "arena":
        lines += [
            comment(
                "The model's inputs and outputs in the arena. If the inputs are written there before a",
                "run, nothing is copied; the run may overwrite them.",
            ),
            *(
                f"struct {model}_{kind} {model}_arena_{kind}(void *context);"
                if arena.is_callers
                else f"extern const struct {model}_{kind} {model}_arena_{kind};"
                for kind in ("inputs", "outputs")
            ),
            "",
        ]
    lines += [*_prototypes(model), ""]
    lines += public_declarations(model.devices, takes_resource=conventions.takes_resource)
    lines += [*declared(model), *check_declaration(model)]
    return c_text.header(model.banner, str(model), before, lines)


def _prototypes(model: CModel) -> list[str]:
    """Return the entry point's declarations, with comments for the caller."""
    plan, interface, conventions = model.plan, model.interface, model.conventions
    structures = f"(const struct {model}_inputs *inputs, const struct {model}_outputs *outputs)"
    copies = "Tensors outside the arena are copied to and from it." if plan.io == "arena" else ""
    once = contract.NOT_REENTRANT
    if conventions.context:
        structures = structures.replace("(", "(void *context, ", 1)
        once = contract.BY_ARENA
    ok = "0, or MT_BAD_SIZE" if plan.graph.sizes else "0"
    guarded = ", or what --guard found (mtool.h): MT_BAD_CONSTANT, MT_BAD_ARENA, MT_BAD_FLOW" * model.place.guard
    can_fail = model.devices.can_fail
    device = f", or MT_DEVICE: {model}_failure says what failed" * can_fail
    if plan.graph.stream is not None:
        return streamed.declared(model)
    if conventions.interface == "step":
        return [
            f"#define {model.upper}_STEPS {len(plan.steps)}",
            "",
            comment(
                "One inference, one operator per call, so that the rest of the program need not wait for all of it:",
                "",
                f"    {model}_begin(&inputs, &outputs);",
                f"    while (!{model}_done()) {{",
                f"        {model}_step();",
                "        ... work that can't wait longer than one operator ...",
                "    }",
                "",
                f"{model}_begin starts an inference and drops one in progress; it returns {ok}. The structures must",
                f"stay in place until it is done. {model}_step runs the next operator; it returns 0, or -1 when",
                f"none is left. {model}_done returns 1 when all have run and the outputs are complete.",
                *([f"With MT_DEVICE, {model}_failure says what failed."] if can_fail else []),
                once,
                *([f"{copies} {model}_begin copies the inputs."] if copies else []),
                apart=True,
            ),
            f"int32_t {model}_begin{structures};",
            f"int32_t {model}_step(void);",
            f"int32_t {model}_done(void);",
        ]
    if conventions.interface == "pointers":
        places = [
            f"{kind}[{number}] {tensor.c_name}, {tensor.dtype}[{_shape(tensor)}]"
            for kind, tensors in (("inputs", interface.inputs), ("outputs", interface.outputs))
            for number, tensor in enumerate(tensors)
        ]
        return [
            comment(
                "One inference. The arrays hold a pointer to each tensor:",
                "",
                *(f"    {place}" for place in places),
                "",
                "`resource` is passed on unchanged to the devices that compute regions of the model.",
                *([copies] if copies else []),
                f"Returns {_ok(plan)}{device}{guarded}.",
                once,
                apart=True,
            ),
            f"int32_t {model}_run(void **inputs, void **outputs, void *resource);",
        ]
    if conventions.interface == "packed":
        tensors = (*interface.inputs, *interface.outputs)
        described = ", ".join(f"{tensor.c_name} ({tensor.dtype}[{_shape(tensor)}])" for tensor in tensors)
        return [
            comment(
                "One inference, as a packed function; its arguments are DLTensors, inputs before outputs:",
                f"{described}.",
                *([copies] if copies else []),
                "Returns MT_OK or, from mtool.h: MT_BAD_COUNT, a wrong number of arguments; MT_BAD_TYPE, an argument",
                f"is not a tensor or has another element type; MT_BAD_SHAPE, one has another shape{device}{guarded}.",
                once,
            ),
            f"mt_packed {model}_run;",
        ]
    if plan.io == "arena":
        lines = [f"One inference. {copies}", f"Returns {_ok(plan)}{device}{guarded}.", once]
    else:
        lines = [f"One inference; it does not change the inputs. Returns {_ok(plan)}{device}{guarded}.", once]
    if conventions.context:
        lines += (
            [f"`context` is a struct {model}_pools: an instance of the model, with its states."]
            if plan.pools
            else [
                f"`context` is the caller's arena of {model.upper}_ARENA_BYTES, aligned to",
                f"{model.upper}_ARENA_ALIGNMENT: an instance of the model, with its states.",
            ]
        )
    note = comment(*lines)
    return [note, f"int32_t {model}_run{structures};"]


def _ok(plan: Plan) -> str:
    """Return the description of the results of an entry point without failing devices."""
    refused = ", or MT_BAD_SIZE (mtool.h): a size is out of range, and nothing was computed"
    return "0" + refused * bool(plan.graph.sizes)


def _shape(tensor: Tensor) -> str:
    return ",".join(map(str, tensor.shape if tensor.dims is None else tensor.dims))


def _macros(upper: str, tensor: Tensor) -> list[str]:
    stem = f"{upper}_{tensor.c_name.upper()}"
    count = tensor.bytes // DType.of(tensor.dtype).size
    shape = ", ".join(map(str, tensor.shape))
    lines = [f"#define {stem}_SHAPE {{{shape}}}", f"#define {stem}_COUNT {count}"]
    if tensor.scale is not None and tensor.zero_point is not None and len(tensor.scale) == 1:
        scale = literal(tensor.scale[0], DType.FLOAT32).c
        zero_point = literal(tensor.zero_point[0], DType.INT32).at(ATOM)
        lines += [f"#define {stem}_SCALE {scale}", f"#define {stem}_ZERO_POINT {zero_point}"]
    return lines


def _struct(model: CModel, kind: str, tensors: tuple[Tensor, ...]) -> list[str]:
    const = "const " if kind == "inputs" and model.plan.io == "external" else ""
    lines = [f"struct {model}_{kind} {{"]
    for tensor in tensors:
        note = f"{tensor.dtype}[{_shape(tensor)}]"
        if tensor.range is not None:
            note += f", {tensor.range.least} to {tensor.range.most}"
        if tensor.count is not None and tensor.dims is not None:
            count = next(other.c_name for other in tensors if other.name == tensor.count)
            note += f"; {count}[0] is its size along dimension {tensor.count_axis}"
        elif tensor.count is not None:
            count = next(other.c_name for other in tensors if other.name == tensor.count)
            note += f", of which the first {count}[0] along dimension {tensor.count_axis} are there"
        lines.append(f"    {const}{DType.of(tensor.dtype).c} *{tensor.c_name}; {comment(note)}")
    if not tensors:
        lines.append("    uint8_t none; /* C has no empty structures */")
    return [*lines, "};", ""]
