"""What firmware has to know to call a model: what lies in RAM, the FPU, re-entrancy, interrupts."""

from mtool.compiler.codegen.model import CModel
from mtool.manifest import EntryPoint

NOT_REENTRANT = (
    "Not re-entrant, as there is one arena: an interrupt handler may call it only if no call is in progress."
)
BY_ARENA = "Calls with different arenas may run at the same time, in interrupt handlers too."


def variables(model: CModel, weights_in_ram: int) -> tuple[str, ...]:
    """Return what lies in RAM besides the caller's own memory and the stack."""
    plan, conventions = model.plan, model.conventions
    present = {
        "weights": weights_in_ram > 0,
        "arena": plan.arena_bytes > 0 and not conventions.context,
        "inference in progress": conventions.interface in ("step", "feed"),
        "graph's tables": conventions.executor == "graph",
        "devices' state": model.devices.can_fail,
    }
    return tuple(name for name, is_there in present.items() if is_there)


def entry_points(model: CModel) -> tuple[EntryPoint, ...]:
    """Return the functions of the model's header, and how each may be called."""
    plan, conventions = model.plan, model.conventions
    names = {"step": ("begin", "step", "done"), "feed": ("begin", "feed", "finish")}
    functions = [*names.get(conventions.interface, ("run",)), *["reset"] * bool(plan.graph.states)]
    functions += ["check"] * model.place.guard
    functions += ["close"] * (model.devices.can_fail and model.devices.have_hooks)
    by_arena = conventions.context and not model.devices.can_fail
    functions += ["arena_inputs", "arena_outputs"] * (conventions.context and plan.io == "arena")
    return tuple(
        EntryPoint(
            name=f"{model}_{name}",
            reentrant="by_arena" if by_arena else "no",
            in_interrupts="by_arena" if by_arena else "between_calls",
        )
        for name in functions
    )


def lines(model: CModel, weights_in_ram: int) -> list[str]:
    """Return the lines of the header that say so, except for what the comment of each function says."""
    held = ", ".join(f"the {name}" for name in variables(model, weights_in_ram))
    fpu = "Uses the FPU: where threads share it, its registers must be saved."
    return [
        f"In RAM: {held or 'nothing but what the caller passes'}.",
        fpu if model.plan.target.has_float else "Uses no FPU.",
        "Masks no interrupts, and may be interrupted anywhere.",
        "Stack: its bound depends on the compiler; mtool bench --elf FILE reads it from your linked file.",
    ]
