"""`<model>_graph.c`: the entry point that runs the operators with the runtime's graph executor."""

import json
from typing import Any

from mtool.base.escaping import c_string, comment
from mtool.compiler.codegen import c_text
from mtool.compiler.codegen.arena import address_of
from mtool.compiler.codegen.c_text import Part, declaration, function, include, listed, members, variable
from mtool.compiler.codegen.calls import operands_of
from mtool.compiler.codegen.entry import whole
from mtool.compiler.codegen.model import CModel
from mtool.compiler.ir import Node
from mtool.compiler.ir.node import View
from mtool.compiler.plan import Plan

# `<model>.json`: the graph in the format of TVM's graph executor, with the place of each tensor added.
#
# docs/executors.md describes the schema. It has no constants: the packed functions have their own.


MEMORIES = {"inputs": 0, "outputs": 1, "arena": 2}  # as WRITE and READ count them (crt/PROTOCOL.md)


def graph_json(plan: Plan) -> str:
    """Return the JSON, with one node or attribute per line."""
    parts = _graph(plan)
    nodes = ",\n  ".join(_compact(node) for node in parts["nodes"])
    attributes = ",\n  ".join(f"{_compact(name)}:{_compact(value)}" for name, value in parts["attrs"].items())
    rest = ",\n".join(f'"{name}":{_compact(parts[name])}' for name in ("arg_nodes", "heads", "node_row_ptr"))
    return f'{{"nodes":[\n  {nodes}],\n{rest},\n"attrs":{{\n  {attributes}}}}}\n'


def counts(plan: Plan) -> dict[str, int]:
    """Return the table sizes that a device's graph executor needs for the graph, as in mt_graph.h."""
    parts = _graph(plan)
    tensors = [len(node["inputs"]) + _outputs(node) for node in parts["nodes"]]
    return {
        "nodes": len(tensors),
        "tensors": parts["node_row_ptr"][-1],
        "arguments": sum(tensors),
        "values": max(tensors, default=0),
        "dims": sum(len(shape) for shape in parts["attrs"]["shape"][1]),
    }


def _outputs(node: dict[str, Any]) -> int:
    return int(node["attrs"]["num_outputs"]) if "attrs" in node else 1


def _graph(plan: Plan) -> dict[str, Any]:
    graph = plan.graph
    nodes: list[dict[str, Any]] = [{"op": "null", "name": name, "inputs": []} for name in graph.inputs]
    values = list(graph.inputs)
    rows = list(range(len(values)))
    entries = {value: [number, 0, 0] for number, value in enumerate(graph.inputs)}
    for node in graph.nodes:
        reads, writes = operands_of(plan, node)
        nodes.append(_node(plan, node, [entries[value] for value in reads], len(writes)))
        rows.append(len(values))
        entries |= {value: [len(nodes) - 1, position, 0] for position, value in enumerate(writes)}
        values += writes
    kinds = [graph.types[value] for value in values]
    addresses = [address_of(plan, value) for value in values]
    return {
        "nodes": nodes,
        "arg_nodes": list(range(len(graph.inputs))),
        "heads": [entries[value] for value in graph.outputs],
        "node_row_ptr": [*rows, len(values)],
        "attrs": {
            "dltype": ["list_str", [kind.dtype.label for kind in kinds]],
            "shape": ["list_shape", [list(kind.shape) for kind in kinds]],
            "device_index": ["list_int", [1] * len(values)],
            "storage_id": ["list_int", _storage_ids(plan, values)],
            "storage_memory": ["list_int", [MEMORIES[address.memory] for address in addresses]],
            "storage_place": ["list_int", [p.offset if p.memory == "arena" else p.index for p in addresses]],
        },
    }


def _node(plan: Plan, node: Node, inputs: list[list[int]], outputs: int) -> dict[str, Any]:
    function = "__nop" if isinstance(node.attrs, View) else f"{plan.graph.name}_{node.name}"
    attributes = {
        "func_name": function,
        "num_inputs": str(len(inputs)),
        "num_outputs": str(outputs),
        "flatten_data": "0",
    }
    return {"op": "tvm_op", "name": node.name, "attrs": attributes, "inputs": inputs}


def _storage_ids(plan: Plan, values: list[str]) -> list[int]:
    """Number the pieces of memory: values that are never live at the same time may share one."""
    pieces: dict[str, int | tuple[str, int]] = {
        value: number for number, (piece, _) in enumerate(plan.storages) for value in piece.values
    }
    views = {node.outputs[0]: node.inputs[0] for node in plan.graph.nodes if isinstance(node.attrs, View)}
    ids: dict[int | tuple[str, int], int] = {}
    numbers = []
    for value in values:
        root = value
        while root not in pieces and root in views:
            root = views[root]
        address = address_of(plan, value)
        key = pieces.get(root, (address.memory, address.index))
        numbers.append(ids.setdefault(key, len(ids)))
    return numbers


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def graph_header(model: CModel) -> list[str]:
    """Return the declarations of the functions that run one operator."""
    structures = f"const struct {model}_inputs *inputs, const struct {model}_outputs *outputs"
    lines = [
        declaration(
            f"int32_t {model}_graph_begin({structures})",
            comment("Read the graph at the first call. From then on, use the caller's inputs and outputs."),
        ),
        "",
        declaration(f"int32_t {model}_graph_step(uint16_t number)", "/* Run one operator, from 0 in order. */"),
        "",
    ]
    return c_text.header(model.banner, f"{model}_graph", [*include(f"{model}.h"), ""], lines)


def graph_source(model: CModel, text: str) -> list[str]:
    """Return the graph's JSON as C text, the executor's tables for it, and the entry point."""
    plan = model.plan
    json_lines = "".join(f"\n    {c_string(line.strip())}" for line in text.splitlines())
    lines = [
        model.banner,
        *include(f"{model}_graph.h"),
        "",
        "#include <string.h>",
        "",
        *include("mt_graph.h", "mtool.h", f"{model}_operators.h", f"{model}_packed.h"),
        "",
        variable("static const char graph_json[]", f" ={json_lines}\n    "),
        "",
        *_room(plan),
        *_tensors(model),
        members("static const struct mt_graph_config config", _config(model)),
        "",
        variable("static struct mt_graph graph"),
        "",
        _begin(model),
        function(f"int32_t {model}_graph_step(uint16_t number)", "    return mt_graph_step(&graph, number);"),
    ]
    work = [
        f"    int32_t status = {model}_graph_begin(inputs, outputs);",
        "    if (status == MT_OK)",
        "        status = mt_graph_run(&graph);",
        "    if (status != MT_OK)",
        "        return status;",
    ]
    return [*lines, *whole(model, work, ("inputs", "outputs"))]


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
    return [*(variable(f"static {text.format(**room)}") for text in types.values()), ""]


def _tensors(model: CModel) -> list[str]:
    plan, interface, arena, lines = model.plan, model.interface, model.arena, list[str]()
    const = "" if plan.io == "external" else "const "
    both = (("input", interface.inputs, arena.inputs), ("output", interface.outputs, arena.outputs))
    for kind, tensors, spots in both:
        rows = [
            f"{{{arena.bytes_at(spot) if spot else '0'}, {tensor.bytes}}},"
            for tensor, spot in zip(tensors, spots, strict=True)
        ]
        lines.append(listed(f"static {const}struct mt_tensor {kind}_tensors[]", rows or ["{0, 0},"]))
    return [*lines, ""]


def _config(model: CModel) -> dict[str, object]:
    plan, interface, arena = model.plan, model.interface, model.arena
    room = counts(plan)
    return {
        "json": "graph_json",
        "json_bytes": "sizeof graph_json - 1",
        "functions": f"{model}_functions",
        "function_count": f"{model.upper}_FUNCTIONS",
        "arena": arena.symbol if plan.arena_bytes else "0",
        "arena_bytes": plan.arena_bytes,
        "inputs": "input_tensors",
        "outputs": "output_tensors",
        "input_count": len(interface.inputs),
        "output_count": len(interface.outputs),
        **{f"most_{name}": max(room[name], 1) for name in ("nodes", "tensors", "arguments", "values", "dims")},
        **{name: f"graph_{name}" for name in ("nodes", "tensors", "places", "arguments", "values", "codes", "dims")},
    }


def _begin(model: CModel) -> Part:
    plan, interface, lines = model.plan, model.interface, list[str]()
    prototype = (
        f"int32_t {model}_graph_begin(const struct {model}_inputs *inputs, const struct {model}_outputs *outputs)"
    )
    if plan.io == "external":
        for kind, tensors in (("input", interface.inputs), ("output", interface.outputs)):
            for index, tensor in enumerate(tensors):
                lines.append(f"    {kind}_tensors[{index}].data = (void *){kind}s->{tensor.c_name};")
            lines += [f"    (void){kind}s;"] * (not tensors)
    else:
        lines += ["    (void)inputs;", "    (void)outputs;"]
    return function(prototype, *lines, "    return graph.nodes > 0 ? MT_OK : mt_graph_open(&graph, &config);")
