"""Frama-C's Eva on generated C: whatever bytes lie in the arena, no operator does what C leaves undefined.

Operators have their real arguments, constants and offsets. The arena may hold anything before each of them, except
where integers other than bytes are kept: expressions rely on their ranges. Every turn of a loop is analyzed by itself,
so that sums are bounded by the weights, and pointers are where they are.
"""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import schedules

from mtool.base import resources
from mtool.boards import Board
from mtool.compiler import codegen
from mtool.compiler.compilation import plan_model
from mtool.compiler.ir import DType, TensorType
from mtool.compiler.kernels.softmax import SoftmaxOfRows
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan
from tests.crt.proofs import TOOL, Result, analyzed
from tests.fuzzing import draw

CRT = resources.path("crt")
# Families of schedules in portable C, and cores for which they are chosen.
PORTABLE = (
    (schedules.M3, "int"),
    (schedules.M0, "int"),
    (schedules.RV32, "int"),
    (schedules.HOST, "c99"),
)
IN_HELPERS = 2000  # states that are kept apart in the runtime's functions
# Integers of which each byte is a value.
BYTES = (DType.INT8, DType.UINT8)
TURNS, SOME_TURNS = 1_000_000, 20  # of a loop that are analyzed one by one; where Eva can't count them beforehand


def smallest(target: Target, prefix: str, count: int) -> dict[str, list[Plan]]:
    """Return the smallest of some random models for each schedule of a family, and those of portable C beside them."""
    found: dict[str, dict[str, Plan]] = {}
    for case in schedules.cases_of(target, prefix, 4 * count):
        for plan in (case.plan, case.reference):
            for step in plan.steps:
                found.setdefault(step.schedule.name, {})[plan.graph.name] = plan
    return {name: sorted(plans.values(), key=lambda plan: plan.macs)[:count] for name, plans in found.items()}


def proved(plans: Sequence[Plan], folder: Path) -> Result:
    """Analyze all operators of models."""
    kernels: list[str] = []
    programs: dict[int, dict[str, str]] = {TURNS: {}}
    includes = ["mt_prove.h"]
    for plan in plans:
        files, manifest = codegen.generate(plan, "model", "0" * 64)
        for name in files:
            (folder / name).write_bytes(files[name])
        model = manifest.model
        kernels += sorted({one.function for one in manifest.operators if one.function})
        includes += [f"{model}.h", f"{model}_operators.h"]
        programs[TURNS][f"{model}_inference"] = _inference(plan, model)
        for number, step in enumerate(plan.steps):
            if (rows := _rows(plan, number)) is not None:
                # Rows hold the same values: unless the operator overwrites them, all are analyzed as one.
                in_place = plan.offsets[step.node.inputs[0]] == plan.offsets[step.node.outputs[0]]
                functions = programs.setdefault(TURNS if in_place else rows.shape[-1], {})
                functions[f"{model}_rows_{number}"] = _softmax(plan, number, rows, model)
    results = []
    for turns, functions in programs.items():
        lines = [*(f'#include "{name}"' for name in includes), *functions.values()]
        lines += ["int main(void)", "{", *(f"    {name}();" for name in functions), "    return 0;", "}", ""]
        (folder / "proof.c").write_text("\n".join(lines))
        results.append(analyzed(_command(folder, kernels, turns), str(folder)))
    return Result(tuple(alarm for one in results for alarm in one.alarms), sum(one.seconds for one in results))


def networks(board: Board, folder: Path) -> Iterator[tuple[str, Plan]]:
    """Draw random networks with integers (tests/fuzzing)."""
    for number in itertools.count():
        with contextlib.suppress(ValueError):
            family, proto = draw.network(number)
            if family in ("integer", "qdq"):
                path = folder / f"network{number}.onnx"
                onnx.save(proto, path)
                yield path.stem, plan_model(path, board)[0]


def _command(folder: Path, kernels: Sequence[str], turns: int) -> list[str]:
    # Portable C, for a 32-bit core. The number of the operator is volatile for a reason that Eva does not share.
    flags = f"-I {folder} -I {CRT / 'include'} -I {CRT / 'tests'} -U__GNUC__ -Dvolatile="
    return [
        *(TOOL, "-machdep", "gcc_x86_32", f"-cpp-extra-args={flags}", "-eva", "-eva-slevel", str(IN_HELPERS)),
        *("-eva-slevel-function", ",".join(f"{kernel}:0" for kernel in kernels)),
        *("-eva-auto-loop-unroll", str(turns), "-eva-min-loop-unroll", str(min(turns, SOME_TURNS))),
        # NaNs and infinities are values: only their conversion to integers is undefined.
        *("-warn-special-float", "none"),
        "-eva-msg-key=-initial-state,-final-states",
        *sorted(str(path) for path in folder.glob("*.c") if not path.stem.endswith("_rpc")),
    ]


def _inference(plan: Plan, model: str) -> str:
    """Return a function that calls all operators but those of _softmax."""
    types = plan.graph.types
    calls: list[str] = []
    ranged: set[str] = set()
    for number, step in enumerate(plan.steps):
        ranged &= {name for later in plan.steps[number:] for name in later.node.inputs}
        rows = _rows(plan, number)
        if not ranged or rows:
            calls.append(_anything(plan, model))
        if not rows:
            calls.append(f"    {model}_operator({number});")
            ranged |= {
                name for name in step.node.outputs if not types[name].dtype.is_float and types[name].dtype not in BYTES
            }
    return "\n".join([f"static void {model}_inference(void)", "{", *calls, "}"])


def _anything(plan: Plan, model: str) -> str:
    return f"    any_bytes({model}_arena, {model.upper()}_ARENA_BYTES);" if plan.arena_bytes else ""


def _softmax(plan: Plan, number: int, rows: TensorType, model: str) -> str:
    """Return a function that calls a softmax with each maximum of a row, at each place.

    Eva keeps no relation between a row and its maximum. It is the same in all rows: they do not depend on each other.
    """
    name, limits, length = f"{model}_rows_{number}", np.iinfo(rows.dtype.numpy), rows.shape[-1]
    row = f"(({rows.dtype.c} *)(void *)({model}_arena + {plan.offsets[plan.steps[number].node.inputs[0]]}))"
    return f"""\
static void {name}_with(int32_t top, int32_t at)
{{
{_anything(plan, model)}
    for (int32_t i = 0; i < {rows.count}; ++i)
        {row}[i] = i % {length} == at ? top : Frama_C_interval({limits.min}, top);
    {model}_operator({number});
}}
static void {name}_of(int32_t top)
{{
    //@ loop unroll {length};
    for (int32_t at = 0; at < {length}; ++at)
        {name}_with(top, at);
}}
static void {name}(void)
{{
    //@ loop unroll 256;
    for (int32_t top = {limits.min}; top <= {limits.max}; ++top)
        {name}_of(top);
}}"""


def _rows(plan: Plan, number: int) -> TensorType | None:
    """Return the rows of a softmax that looks up exponentials by the distance from a row's largest element."""
    node = plan.steps[number].node
    is_such = isinstance(node.attrs, SoftmaxOfRows) and node.attrs.has_table and node.inputs[0] in plan.offsets
    return plan.graph.types[node.inputs[0]] if is_such else None
