"""States in C: their descriptions, their initial values, and `<model>_reset`, which restores them."""

import base64
import math
import textwrap
from collections.abc import Sequence

import numpy as np

from mtool.base.errors import UsageError
from mtool.base.escaping import comment, short_name
from mtool.compiler.codegen.arena import PARAMETER
from mtool.compiler.codegen.c_text import WIDTH, Part, function
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.codegen.model import CModel
from mtool.compiler.codegen.tensors import parts_of
from mtool.compiler.ir import DType, Graph, State
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.loop_text import indented, loop
from mtool.compiler.plan import Plan
from mtool.manifest import StateTensor


def states_of(plan: Plan, c_names: Sequence[str]) -> tuple[StateTensor, ...]:
    """Return the description of each state."""
    graph = plan.graph
    tensors = []
    for (state, value, following), c_name in zip(graph.state_values, c_names, strict=True):
        kind, quant = graph.types[value], graph.quant.get(value)
        begin = b"" if _is_zero(state) else np.ascontiguousarray(state.initial).tobytes()
        tensors.append(
            StateTensor(
                output=state.output,
                input=state.input,
                c_name=c_name,
                dtype=kind.dtype.label,
                shape=kind.shape,
                bytes=kind.bytes,
                pool=plan.place(plan.offsets[value])[0],
                arena_offset=plan.place(plan.offsets[value])[1],
                value=value,
                parts=parts_of(graph, following) or (following,),
                initial=base64.b64encode(begin).decode(),
                scale=quant.scale if quant else None,
                zero_point=quant.zero_point if quant else None,
            )
        )
    return tuple(tensors)


def check_conventions(graph: Graph, conventions: Conventions) -> None:
    """Refuse conventions that pass every tensor of the model through its interface.

    Raises:
        UsageError: the model has states, and packed functions or a graph executor are requested; or it has run-time
            sizes, and the device's graph executor.
    """
    assert (conventions.interface == "feed") == (graph.stream is not None), "rows are fed to no other interface"
    if graph.sizes and conventions.executor == "graph":
        raise UsageError(
            "run-time sizes are checked by the model's entry point, which --executor graph does not have",
            hint="choose --executor aot or graph-host",
        )
    if graph.states and (conventions.has_functions or conventions.executor != "aot"):
        raise UsageError(
            "states are not part of the interface, but packed functions and graph executors take every tensor",
            hint="choose --interface-api c, pointers or step, and --executor aot",
        )


def initial_constants(plan: Plan) -> dict[str, Array]:
    """Return the initial values that are neither zeros nor the same byte throughout, by C symbol."""
    constants = {}
    for number, state in enumerate(plan.graph.states):
        if state.initial is not None and _fill(state) is None:
            constants[_symbol(plan, number)] = _unit(state.initial)
    return constants


def _symbol(plan: Plan, number: int) -> str:
    return f"{plan.graph.name}_initial_{number}"


def _is_zero(state: State) -> bool:
    return state.initial is None or not np.ascontiguousarray(state.initial).view(np.uint8).any()


def _fill(state: State) -> int | None:
    """Return the byte that fills the initial value; None: its bytes differ."""
    if _is_zero(state):
        return 0
    data = set(np.ascontiguousarray(state.initial).tobytes())
    return data.pop() if len(data) == 1 else None


def _unit(initial: Array) -> Array:
    """Return the first elements, of which the initial value is repetitions: those of inner dimensions."""
    flat: Array = np.ascontiguousarray(initial).reshape(-1)
    for dim in reversed(range(initial.ndim + 1)):
        rows: Array = flat.reshape(-1, math.prod(initial.shape[dim:]))
        if (rows == rows[0]).all():
            flat = rows[0]
            break
    return flat


def starts_as_zeros(plan: Plan) -> bool:
    """Whether all states begin as zeros, like memory that is cleared before main."""
    pools = [plan.pools[plan.place(plan.offsets[value])[0]] for _, value, _ in plan.graph.state_values if plan.pools]
    return all(_is_zero(state) for state in plan.graph.states) and all(placed.pool.is_arena for placed in pools)


def reset_function(model: CModel) -> list[str]:
    """Return the definition of `<model>_reset`, if there are states, and of the function for the first run."""
    plan, interface, arena = model.plan, model.interface, model.arena
    if not interface.states:
        return []
    is_alone = starts_as_zeros(plan) or arena.is_callers
    prototype = f"void {model}_reset({'void *context' if arena.is_callers else 'void'})"
    lines = []
    if arena.is_callers:
        lines += [f"    {arena.parameter_type} *const {PARAMETER} = context;", f"    (void){PARAMETER};"]
    for number, (state, tensor) in enumerate(zip(plan.graph.states, interface.states, strict=True)):
        fill, spot = _fill(state), arena.states[number]
        if not tensor.bytes or spot is None:
            continue  # and there may be no arena
        place = arena.bytes_at(spot)
        if fill is None:
            assert state.initial is not None
            symbol, unit = _symbol(plan, number), _unit(state.initial).nbytes
            copy = f"MT_FLASH_COPY({place}%s, {symbol}, sizeof({symbol}));"
            body = loop("n", "0", str(tensor.bytes), unit, [copy % " + n"]) if unit < tensor.bytes else [copy % ""]
            lines += indented(body)
        else:
            count = DType.of(tensor.dtype).c_bytes(math.prod(tensor.shape)).removeprefix("1 * ")
            lines.append(f"    memset({place}, {fill}, {count});")
    if is_alone:
        return [function(prototype, *lines)]
    started = f"{model}_is_started"
    return [
        Part(f"static uint8_t {started}; {comment('the states have their initial values')}", "object", started),
        "",
        function(prototype, *lines, f"    {started} = 1;"),
        function(f"static void {model}_start(void)", f"    if (!{started})", f"        {model}_reset();"),
    ]


def start_call(model: CModel) -> list[str]:
    """Return the call that must precede the first operator; nothing if all states begin as zeros."""
    return [] if starts_as_zeros(model.plan) else [f"{model}_start();"]


def declared(model: CModel) -> list[str]:
    """Return the part of the header about the states."""
    interface, arena, graph = model.interface, model.arena, model.graph
    if not interface.states:
        return []
    rows = [
        f"  {short_name(s.value)}: a window of {s.rows} rows along dimension {s.axis}, of which each run gets "
        f"{s.hop}; the others are kept"
        for s in graph.slides
    ]
    for state, spot in zip(interface.states, arena.states, strict=True):
        kind = f"{state.dtype}[{','.join(map(str, state.shape))}], {state.bytes:,} bytes"
        place = f" at {arena.macro(spot)}" if spot else ""
        row = f"{short_name(state.output)} -> {short_name(state.input)}: {kind}{place}"
        rows += textwrap.wrap(row, WIDTH, initial_indent="  ", subsequent_indent="      ", break_long_words=False)
    when = (
        f"The first run after power-up begins with their initial values. {model}_reset restores these, to begin",
        "another sequence; call it between runs.",
    )
    if arena.is_callers:
        when = (
            f"{model}_reset writes their initial values into an arena: call it before the first run there, and to",
            "begin another sequence.",
        )
    return [
        comment(
            "States: each run begins with the values that the previous one left.",
            *rows,
            *when,
        ),
        f"void {model}_reset({'void *context' if arena.is_callers else 'void'});",
        "",
    ]
