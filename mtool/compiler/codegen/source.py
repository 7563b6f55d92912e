"""`<model>.c`: the arena, one function for each different operator, and the entry point that calls them."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace

from mtool.base.escaping import comment, short_name
from mtool.compiler.codegen import pools
from mtool.compiler.codegen.arena import PARAMETER, Spot, moves_rows
from mtool.compiler.codegen.c_text import Part, columns, function, include, listed, qualified, tidied
from mtool.compiler.codegen.calls import Calls
from mtool.compiler.codegen.device import definitions
from mtool.compiler.codegen.entry import entry_point
from mtool.compiler.codegen.external import device_buffers
from mtool.compiler.codegen.functions import Function
from mtool.compiler.codegen.guard import guarded_arena, integrity
from mtool.compiler.codegen.model import CModel
from mtool.compiler.codegen.protect import arena_definition
from mtool.compiler.codegen.state_reset import reset_function
from mtool.compiler.codegen.streamed import head_function, head_of, whole_inputs
from mtool.compiler.ir import DType, TensorType
from mtool.compiler.ir.control import Control
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.kernels.expressions import has_fixed16, has_halves, has_libm, has_small_floats
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.schedule import defined_by, schedule_text
from mtool.compiler.plan import Plan
from mtool.compiler.plan.memory import aliases
from mtool.manifest import Tensor


def source(model: CModel, calls: Calls) -> list[str]:
    """Return the C of the model; with the graph executor, all but the entry point."""
    plan, arena, conventions, place = model.plan, model.arena, model.conventions, model.place
    functions = [func for func in model.functions.defined if not (func.kernel.level or func.kernel.is_hot)]
    lines = [
        model.banner,
        *_level("Os" * plan.graph.for_size),
        Part(_arena_map(model), "map"),
        *([] if arena.is_shared or arena.is_callers else place.section_lines()),
        *include(f"{model}.h"),
        "",
        *_includes(plan, functions),
        *(include("mt_integrity.h") if place.guard else []),
        *(include("mtool.h") if pools.needs_header(plan) and not arena.is_callers else []),
        *include(f"{model}_operators.h"),
        *(include(f"{model}_packed.h") if conventions.forms and conventions.executor != "graph" else []),
        *include(f"{model}_weights.h"),
        "",
    ]
    if plan.pools:
        lines += [] if arena.is_callers else pools.definitions(model)
    elif plan.arena_bytes and not arena.is_shared and not arena.is_callers:
        symbol = guarded_arena(model) if place.guard else arena.symbol
        lines += [
            *arena_definition(symbol, f"{symbol.upper()}_BYTES", plan.alignment, plan.arena_bytes, place.unit),
            "",
        ]
    lines += [
        *device_buffers(plan),
        *_shared(functions),
        *definitions(model.devices, takes_resource=conventions.takes_resource),
        *(line for func in functions for line in _function(func)),
        *_arena_pointers(model),
        *pools.load_function(model),
        *reset_function(model),
    ]
    head = head_of(plan, model.functions)
    if head is not None:
        lines += head_function(model, head)
    lines += integrity(model)
    if conventions.executor != "graph":
        lines += entry_point(model, calls, head)
    return lines


def apart_sources(model: CModel) -> dict[str, list[str]]:
    """Return the files of the operators that are built or placed apart, by name: <model>_O3.c, <model>_hot.c.

    A build that knows options of single files (CMake) gives each its level; GCC takes it from the pragma elsewhere. A
    linker script places the hot ones in RAM; elsewhere they are code like any other.
    """
    plan, functions, files = model.plan, model.functions, {}
    for level, is_hot in sorted({(f.kernel.level, f.kernel.is_hot) for f in functions.defined} - {("", False)}):
        group = [f for f in functions.defined if (f.kernel.level, f.kernel.is_hot) == (level, is_hot)]
        files[f"{model}{f'_{level}' * bool(level)}{'_hot' * is_hot}.c"] = [
            model.banner,
            *[comment(f"These operators are compiled with -{level}.")] * bool(level),
            *[comment("The core would wait for these operators' code in flash: place this file's .text in RAM.")]
            * is_hot,
            *_level(level or "Os" * plan.graph.for_size),
            *_includes(plan, group),
            *include(f"{model}_operators.h", f"{model}_weights.h"),
            "",
            *_shared(group),
            *(line for func in group for line in _function(func)),
        ]
    return files


def _level(level: str) -> list[str]:
    if not level:
        return []
    return ["#if defined(__GNUC__) && !defined(__clang__)", f'#pragma GCC optimize ("{level}")', "#endif"]


def _includes(plan: Plan, functions: Sequence[Function]) -> list[str]:
    """Return the lines that include what functions need of the C library and the runtime."""
    headers = {name for func in functions for name in func.kernel.headers}
    uses = [use for func in functions for use in func.uses[:1]]  # the others have the same C
    if any(has_small_floats(use.plan.steps[use.number].node, use.plan.graph) for use in uses):
        headers.add("mt_float8.h")
    if any(has_halves(use.plan.steps[use.number].node, use.plan.graph) for use in uses):
        headers.add("mt_half.h")
    if any(has_fixed16(use.plan.steps[use.number].node, use.plan.graph) for use in uses):
        headers.add("mt_fixed16.h")
    if any(func.kernel.needs_math for func in functions) or any(
        has_libm(use.plan.steps[use.number].node, use.plan.graph) for use in uses
    ):
        headers.add("mt_float.h")
    if plan.graph.sizes or plan.graph.stream:
        headers.add("mtool.h")
    return ["#include <string.h>", "", *include("mt_math.h", *sorted(headers))]


def _shared(functions: Sequence[Function]) -> list[str]:
    """Return what defines functions of the runtime that headers do not write out, once for all models of a unit."""
    shared = sorted({line for func in functions for line in func.kernel.shared})
    names, lines = {defined_by(line): line for line in shared}, list[str]()
    for line in sorted(shared, key=lambda line: any(name in line and names[name] != line for name in names)):
        guard = defined_by(line).upper()
        lines += [f"#ifndef {guard}", f"#define {guard}", line, "#endif"]
    return [*lines, ""] if lines else []


def _arena_map(model: CModel) -> str:
    """Return the comment with the place and lifetime of every tensor."""
    plan = model.plan
    names = [step.node.title for step in plan.steps]

    def at(number: int) -> str:
        return "the caller" if number < 0 or number >= len(names) else names[number]

    heads = ("offset", "bytes", "what", "from", "to")
    lifelong = {value for _, value, _ in plan.graph.state_values}
    writers = _writers(plan)

    rows: list[tuple[int, str, str, str, str, str]] = []  # the pool's number first
    for piece, offset in plan.storages:
        contents = _contents(plan, piece.values, writers)
        pool, inside = plan.place(offset)
        if lifelong & {*piece.values}:
            rows.append((pool, f"{inside:,}", f"{piece.bytes:,}", contents, "run", "to run"))
        elif contents:
            rows.append((pool, f"{inside:,}", f"{piece.bytes:,}", contents, at(piece.first), at(piece.last)))
    used = [(offset, step) for offset, step in zip(plan.scratch, plan.steps, strict=True) if offset is not None]
    for offset in sorted({offset for offset, _ in used}):
        steps = [step for place, step in used if place == offset]
        most = max(step.scratch_bytes for step in steps)
        pool, inside = plan.place(offset)
        rows.append((pool, f"{inside:,}", f"{most:,}", "scratch", steps[0].node.title, steps[-1].node.title))
    for symbol, copy in model.arena.copies.items():
        contents = f"copy of {symbol.removeprefix(f'{model}_')}"
        rows.append((copy.spot.pool, f"{copy.spot.offset:,}", f"{copy.bytes:,}", contents, "the first run", "on"))
    lines = [f"Arena, {plan.arena_bytes:,} bytes (lower bound {plan.arena_bound_bytes:,}):", ""]
    if not plan.pools:
        lines += columns([heads, *(row[1:] for row in rows)], (0, 1))
    for number, placed in enumerate(plan.pools):
        lines += [""] * (number > 0) + [f"Pool {pools.usage(placed)}"]
        table = [heads, *(row[1:] for row in rows if row[0] == number)]
        lines += ["", *columns(table, (0, 1))] if placed.bytes else []
    lines += pools.map_of(model.functions)
    return comment(*lines, apart=True)


def _writers(plan: Plan) -> dict[str, list[str]]:
    """Return the operators that write into each value or line buffer."""
    root, writers = aliases(plan.graph).root, dict[str, list[str]]()
    for step in plan.steps:
        for value in step.node.outputs:
            titles = writers.setdefault(root(value), [])
            if step.node.title not in titles and not moves_rows(step.node):
                titles.append(step.node.title)
    return writers


def _contents(plan: Plan, values: list[str], writers: dict[str, list[str]]) -> str:
    """Return what a storage holds: inputs and outputs by name, the rest by the operators that write it."""
    graph = plan.graph
    states = [f"state {short_name(state.input)}" for state, value, _ in graph.state_values if value in values]
    if states:
        return ", ".join(states)
    inputs = [f"input {short_name(value)}" for value in values if value in graph.inputs]
    outputs = [
        f"output {short_name(name)}"
        for name, value in zip(graph.output_names, graph.caller_outputs, strict=False)
        if value in values
    ]
    between = [title for value in values if value not in graph.outputs for title in writers.get(value, ())]
    if len(between) > 2:
        between = [between[0], "…", between[-1]]
    relation = "result of" if all(value in graph.types for value in values) else "rows of"
    return ", ".join([*inputs, *([" ".join([relation, *between])] if between else []), *outputs])


def _short(origin: str) -> str:
    """Return an ONNX node's name, shortened to a line; of an exporter's list of names only the last."""
    name = origin.rsplit(";", 1)[-1]
    return name if len(name) <= 48 else "…" + name[-47:]


def _comment(function: Function) -> list[str]:
    """Return the lines above a function: of its first operator."""
    plan, number = function.uses[0].plan, function.uses[0].number
    step = plan.steps[number]
    node, graph = step.node, plan.graph
    kinds = [str(graph.types[value]) for value in node.inputs if value not in graph.constants] or ["nothing"]
    origins = list(node.origins[:3]) + (["…"] if len(node.origins) > 3 else [])
    backend = node.attrs.backend if isinstance(node.attrs, External) else ""
    facts = [f"backend {backend}" if backend else f"schedule {schedule_text(step.schedule)}"]
    macs = step.op.macs(node, graph)
    if macs:
        facts.append(f"{macs:,} MACs{' a call' * (node.parts > 1)}")
    label = step.op.label(node, graph)
    named = node.attrs.label if isinstance(node.attrs, WithEpilogue) else ""
    fused = [word for word in named.split("+") if word]
    quoted = " ".join(f'"{_short(origin)}"' for origin in origins)
    results = dict.fromkeys(str(graph.types[value]) for value in node.outputs)
    shapes = f"{', '.join(dict.fromkeys(kinds))} -> {', '.join(results)}"
    title = " + ".join([label, *fused])
    by_rows, rows = node.parts > 1 and not moves_rows(node), []
    if by_rows:
        whole = [str(_whole(plan, value)) for value in node.inputs if value not in graph.constants]
        rows = [f"by rows: a call computes {shapes}"]
        shapes = f"{', '.join(dict.fromkeys(whole))} -> {_whole(plan, node.outputs[0])}"
    return [
        f"{node.title if by_rows else node.name}: {title}, {shapes}",
        *rows,
        *([quoted] if quoted else []),
        ", ".join(facts),
        *_parameters(plan, number, function),
    ]


def _parameters(plan: Plan, number: int, function: Function) -> list[str]:
    """Return the lines that say which tensor of the model each parameter of a control node's function is."""
    node, graph = plan.steps[number].node, plan.graph
    if not isinstance(node.attrs, Control):
        return []
    named = []
    for argument in function.kernel.arguments:
        if isinstance(argument.source, str):
            continue
        kind, index = argument.source
        value = (node.outputs if kind == "output" else node.inputs)[int(index)]
        source = graph.sources.get(value)
        named.append(f'{argument.name} "{_short(source.tensor if source else value)}"')
    return textwrap.wrap("; ".join(named), 100, break_long_words=False)


def _whole(plan: Plan, value: str) -> TensorType:
    """Return the type of the tensor of which a value has some rows."""
    graph, lies = plan.graph, aliases(plan.graph)
    root = lies.root(value)
    if root in graph.types:
        return graph.types[root]
    nodes = [step.node for step in plan.steps if not moves_rows(step.node)]
    rows = sum(graph.types[v].shape[1] for node in nodes for v in node.outputs if lies.root(v) == root)
    kind = graph.types[value]
    return replace(kind, shape=(kind.shape[0], rows, *kind.shape[2:]))


def _function(emitted: Function) -> list[str]:
    first, *others = emitted.uses
    lines = _comment(emitted)
    also = [title for title in dict.fromkeys(use.title for use in others) if title != first.title]
    lines += ["also " + ", ".join(also)] * bool(also)
    signature = _wrapped(qualified(f"MT_ALONE {emitted.prototype}", first.plan.target))
    inner = [emitted.kernel.inner] if emitted.kernel.inner else []
    return [*inner, comment(*lines), function(signature, tidied(emitted.kernel.body.rstrip()))]


def _wrapped(signature: str) -> str:
    if len(signature) <= 118:
        return signature
    head, _, rest = signature.partition("(")
    indent = " " * (len(head) + 1)
    lines, line = [], head + "("
    for part in rest.rstrip(")").split(", "):
        if len(line) + len(part) > 116:
            lines.append(line.rstrip())
            line = indent
        line += part + ", "
    return "\n".join([*lines, line.rstrip(", ") + ")"])


def _arena_pointers(model: CModel) -> list[str]:
    interface, arena, lines = model.interface, model.arena, list[str]()
    if model.plan.io != "arena":
        return []
    inputs = whole_inputs(model)
    spots_of = tuple(spot for tensor, spot in zip(interface.inputs, arena.inputs, strict=True) if tensor in inputs)
    both = (("inputs", inputs, spots_of), ("outputs", interface.outputs, arena.outputs))
    for kind, tensors, spots in both:
        if arena.is_callers:
            lines += _places(model, kind, tensors, spots)
            continue
        rows = [
            f"{arena.pointer(DType.of(tensor.dtype).c, spot) if spot else '0'}, {comment(tensor.c_name)}"
            for tensor, spot in zip(tensors, spots, strict=True)
        ]
        lines += [listed(f"const struct {model}_{kind} {model}_arena_{kind}", rows or ["0,"]), ""]
    return lines


def _places(model: CModel, kind: str, tensors: Sequence[Tensor], spots: Sequence[Spot | None]) -> list[str]:
    """Return the function with the places of inputs or outputs in the caller's arena."""
    arena = model.arena
    lines = [
        f"    {arena.parameter_type} *const {PARAMETER} = context;",
        f"    struct {model}_{kind} found;",
        f"    (void){PARAMETER};",
    ]
    for tensor, spot in zip(tensors, spots, strict=True):
        lines.append(f"    found.{tensor.c_name} = {arena.pointer(DType.of(tensor.dtype).c, spot) if spot else '0'};")
    lines += ["    found.none = 0;"] * (not tensors)
    return [function(f"struct {model}_{kind} {model}_arena_{kind}(void *context)", *lines, "    return found;")]
