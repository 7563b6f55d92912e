"""Frama-C's Eva on generated C: whatever bytes lie in the arena, no operator does what C leaves undefined.

Each operator is analyzed by itself, with its real arguments, constants and offsets. As the arena may hold anything
before it, this covers every inference, and every order of the operators.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import schedules

from mtool.base import resources
from mtool.boards import Board
from mtool.compiler import codegen
from mtool.compiler.compilation import plan_model
from mtool.compiler.ir import TensorType
from mtool.compiler.kernels.softmax import SoftmaxOfRows
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan
from tests.crt.proofs import TOOL, Result, analyzed
from tests.fuzzing import draw

CRT = resources.path("crt")
# Turns of a loop that are analyzed one by one; states that are kept apart in kernels; seconds. Until all holds.
LADDER = ((40, 0, 20), (34, 40, 30), (130, 0, 60), (34, 3000, 90), (700, 0, 90))
LARGEST = ((130, 0, 400),)  # of rows of which each maximum is a case
SMALL = (3000, 5000)
# Families of schedules in portable C, and cores for which they are chosen.
PORTABLE = (
    (schedules.M3, "int"),
    (schedules.M0, "int"),
    (schedules.RV32, "int"),
    (schedules.HOST, "c99"),
)
IN_HELPERS = 2000  # states that are kept apart in the runtime's functions


def proved(plan: Plan, folder: Path) -> Iterator[tuple[str, str, Result]]:
    """Analyze each operator of a plan, with ever more effort; yield its name, its schedule and what was found."""
    model, kernels = _written(plan, folder)
    for number, step in enumerate(plan.steps):
        _write_program(folder, {model: {number: _proof(plan, number, model)}})
        result, seconds = Result(("not finished",), 0), 0.0
        for turns, states, most_s in LADDER if _rows(plan, number) is None else LARGEST:
            command = _command(folder, [model], kernels, turns, states)
            try:
                result = analyzed([*command, "-eva-stop-at-nth-alarm", "1"], str(folder), most_s)
                seconds += result.seconds
            except TimeoutError:
                seconds += most_s
            if not result.alarms:
                break
        yield step.node.title, step.schedule.name, Result(result.alarms, seconds)


def smallest(target: Target, prefix: str, count: int) -> dict[str, list[Plan]]:
    """Return the smallest of some random models for each schedule of a family, and those of portable C beside them."""
    found: dict[str, dict[str, Plan]] = {}
    for case in schedules.cases_of(target, prefix, 4 * count):
        for plan in (case.plan, case.reference):
            for step in plan.steps:
                found.setdefault(step.schedule.name, {})[plan.graph.name] = plan
    return {name: sorted(plans.values(), key=lambda plan: plan.macs)[:count] for name, plans in found.items()}


def together(plans: Sequence[Plan], folder: Path, most_s: int = 120) -> Result:
    """Analyze all operators of small models, every turn of each loop by itself."""
    functions: list[str] = []
    programs: dict[str, dict[int, str]] = {}
    for plan in plans:
        model, kernels = _written(plan, folder)
        functions += kernels
        programs[model] = {number: _proof(plan, number, model) for number in range(len(plan.steps))}
    _write_program(folder, programs)
    try:
        return analyzed(_command(folder, list(programs), functions, *SMALL), str(folder), most_s)
    except TimeoutError:
        return Result(("not finished",), most_s)


def networks(board: Board, folder: Path) -> Iterator[tuple[str, Plan]]:
    """Draw random networks with integers (tests/fuzzing)."""
    for number in itertools.count():
        with contextlib.suppress(ValueError):
            family, proto = draw.network(number)
            if family in ("integer", "qdq"):
                path = folder / f"network{number}.onnx"
                onnx.save(proto, path)
                yield path.stem, plan_model(path, board)[0]


def _written(plan: Plan, folder: Path) -> tuple[str, list[str]]:
    """Write a model's C; return its name and those of its kernels."""
    files, manifest = codegen.generate(plan, "model", "0" * 64)
    for name in files:
        (folder / name).write_bytes(files[name])
    return manifest.model, sorted({one.function for one in manifest.operators if one.function})


def _write_program(folder: Path, proofs: Mapping[str, Mapping[int, str]]) -> None:
    includes = [f'#include "{name}"' for model in proofs for name in (f"{model}.h", f"{model}_operators.h")]
    calls = [f"    {model}_proof_{number}();" for model in proofs for number in proofs[model]]
    functions = [function for of_model in proofs.values() for function in of_model.values()]
    text = ['#include "mt_prove.h"', *includes, *functions, "int main(void)", "{", *calls, "    return 0;", "}", ""]
    (folder / "proof.c").write_text("\n".join(text))


def _command(folder: Path, models: Sequence[str], kernels: Sequence[str], turns: int, states: int) -> list[str]:
    # Portable C, for a 32-bit core. The number of the operator is volatile for a reason that Eva does not share.
    flags = f"-I {folder} -I {CRT / 'include'} -I {CRT / 'tests'} -U__GNUC__ -Dvolatile="
    sources = ["proof.c", *(f"{model}{end}.c" for model in models for end in ("", "_weights"))]
    return [
        *(TOOL, "-machdep", "gcc_x86_32", f"-cpp-extra-args={flags}", "-eva", "-eva-slevel", str(IN_HELPERS)),
        *("-eva-slevel-function", ",".join(f"{kernel}:{states}" for kernel in kernels)),
        # NaNs and infinities are values: only their conversion to integers is undefined.
        *("-eva-auto-loop-unroll", str(turns), "-warn-special-float", "none"),
        "-eva-msg-key=-initial-state,-final-states",
        *(str(folder / name) for name in sources if (folder / name).exists()),
    ]


def _proof(plan: Plan, number: int, model: str) -> str:
    """Return a function that calls an operator, with everything that the arena may contain before it."""
    anything = f"any_bytes({model}_arena, {model.upper()}_ARENA_BYTES);" if plan.arena_bytes else ""
    name, call = f"{model}_proof_{number}", f"{model}_operator({number});"
    rows = _rows(plan, number)
    if rows is None:
        return f"static void {name}(void)\n{{\n    {anything}\n    {call}\n}}"
    # Each maximum of a row, at each place: Eva keeps no relation between a row and its maximum. It is the same in all
    # rows, as they do not depend on each other.
    limits, length = np.iinfo(rows.dtype.numpy), rows.shape[-1]
    row = f"(({rows.dtype.c} *)(void *)({model}_arena + {plan.offsets[plan.steps[number].node.inputs[0]]}))"
    return f"""\
static void {name}_with(int32_t top, int32_t at)
{{
    {anything}
    for (int32_t i = 0; i < {rows.count}; ++i)
        {row}[i] = i % {length} == at ? top : Frama_C_interval({limits.min}, top);
    {call}
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
