"""`<model>_graph.c`: the entry point that leaves the operators to the graph executor of the runtime."""

from mtool.base.escaping import c_string
from mtool.compiler.codegen import linkage
from mtool.compiler.codegen.arena import Arena, Interface
from mtool.compiler.codegen.conventions import Conventions
from mtool.compiler.codegen.entry import whole
from mtool.compiler.codegen.graph_json import counts
from mtool.compiler.codegen.wrap import wrapped
from mtool.compiler.plan import Plan


def graph_header(plan: Plan, banner: str) -> str:
    """Return the declarations of what runs one operator."""
    model = plan.graph.name
    guard = f"{model.upper()}_GRAPH_H"
    structures = f"const struct {model}_inputs *inputs, const struct {model}_outputs *outputs"
    lines = [banner, f"#ifndef {guard}", f"#define {guard}", "", f'#include "{model}.h"', "", *linkage.BEGIN]
    lines += [
        "/* Read the graph, the first time. Where the caller keeps inputs and outputs, they lie there from now on. */",
        f"int32_t {model}_graph_begin({structures});",
        "",
        "/* Run one operator, from 0 in order. */",
        f"int32_t {model}_graph_step(uint16_t number);",
    ]
    return wrapped("\n".join([*lines, "", *linkage.END, "#endif", ""]))


def graph_source(
    plan: Plan, interface: Interface, arena: Arena, conventions: Conventions, banner: str, text: str
) -> str:
    """Return the graph's JSON as C text, the executor's room for it, and the entry point."""
    model = plan.graph.name
    lines = [
        banner,
        f'#include "{model}_graph.h"',
        "",
        "#include <string.h>",
        "",
        *(f'#include "{name}"' for name in ["mt_graph.h", "mt_status.h", f"{model}_operators.h", f"{model}_packed.h"]),
        "",
        "static const char graph_json[] =",
        *(f"    {c_string(line.strip())}" for line in text.splitlines()),
        "    ;",
        "",
        *_room(plan),
        *_tensors(plan, interface, arena),
        "static const struct mt_graph_config config = {",
        *(f"    .{name} = {value}," for name, value in _config(plan, interface, arena).items()),
        "};",
        "",
        "static struct mt_graph graph;",
        "",
        *_begin(plan, interface),
        f"int32_t {model}_graph_step(uint16_t number)",
        "{",
        "    return mt_graph_step(&graph, number);",
        "}",
        "",
    ]
    work = [
        f"    int32_t status = {model}_graph_begin(inputs, outputs);",
        "    if (status == MT_OK)",
        "        status = mt_graph_run(&graph);",
        "    if (status != MT_OK)",
        "        return status;",
    ]
    return wrapped("\n".join([*lines, whole(plan, interface, arena, conventions, work, ("inputs", "outputs"))]))


def _room(plan: Plan) -> list[str]:
    types = {
        "nodes": "struct mt_graph_node graph_nodes[{nodes}]",
        "tensors": "DLTensor graph_tensors[{tensors}]",
        "places": "struct mt_graph_place graph_places[{tensors}]",
        "arguments": "uint16_t graph_arguments[{arguments}]",
        "values": "union mt_value graph_values[{values}]",
        "codes": "int32_t graph_codes[{values}]",
        "dims": "int64_t graph_dims[{dims}]",
    }
    room = {name: max(count, 1) for name, count in counts(plan).items()}
    return [*(f"static {text.format(**room)};" for text in types.values()), ""]


def _tensors(plan: Plan, interface: Interface, arena: Arena) -> list[str]:
    lines = []
    const = "" if plan.io == "external" else "const "
    both = (("input", interface.inputs, arena.inputs), ("output", interface.outputs, arena.outputs))
    for kind, tensors, spots in both:
        lines.append(f"static {const}struct mt_tensor {kind}_tensors[] = {{")
        for tensor, spot in zip(tensors, spots, strict=True):
            place = arena.bytes_at(spot) if spot else "0"
            lines.append(f"    {{{place}, {tensor.bytes}}},")
        lines += ["    {0, 0},"] * (not tensors) + ["};"]
    return [*lines, ""]


def _config(plan: Plan, interface: Interface, arena: Arena) -> dict[str, object]:
    model = plan.graph.name
    room = counts(plan)
    return {
        "json": "graph_json",
        "json_bytes": "sizeof graph_json - 1",
        "functions": f"{model}_functions",
        "function_count": f"{model.upper()}_FUNCTIONS",
        "arena": arena.symbol if plan.arena_bytes else "0",
        "arena_bytes": plan.arena_bytes,
        "inputs": "input_tensors",
        "outputs": "output_tensors",
        "input_count": len(interface.inputs),
        "output_count": len(interface.outputs),
        **{f"most_{name}": max(room[name], 1) for name in ("nodes", "tensors", "arguments", "values", "dims")},
        **{name: f"graph_{name}" for name in ("nodes", "tensors", "places", "arguments", "values", "codes", "dims")},
    }


def _begin(plan: Plan, interface: Interface) -> list[str]:
    model = plan.graph.name
    lines = [
        f"int32_t {model}_graph_begin(const struct {model}_inputs *inputs, const struct {model}_outputs *outputs)",
        "{",
    ]
    if plan.io == "external":
        for kind, tensors in (("input", interface.inputs), ("output", interface.outputs)):
            for index, tensor in enumerate(tensors):
                lines.append(f"    {kind}_tensors[{index}].data = (void *){kind}s->{tensor.c_name};")
            lines += [f"    (void){kind}s;"] * (not tensors)
    else:
        lines += ["    (void)inputs;", "    (void)outputs;"]
    return [*lines, "    return graph.nodes > 0 ? MT_OK : mt_graph_open(&graph, &config);", "}", ""]
