"""`<model>.json`: the graph as TVM's graph executor reads it, with the place of each tensor besides.

docs/executors.md describes the schema. Constants are no part of it: the packed functions have their own.
"""

import json
from typing import Any

from mtool.compiler.codegen.addresses import address_of
from mtool.compiler.codegen.calls import operands_of
from mtool.compiler.ir import Node
from mtool.compiler.ir.node import View
from mtool.compiler.plan import Plan

MEMORIES = {"inputs": 0, "outputs": 1, "arena": 2}  # as WRITE and READ count them (crt/PROTOCOL.md)


def graph_json(plan: Plan) -> str:
    """Return the JSON, a node or an attribute a line."""
    parts = _graph(plan)
    nodes = ",\n  ".join(_compact(node) for node in parts["nodes"])
    attributes = ",\n  ".join(f"{_compact(name)}:{_compact(value)}" for name, value in parts["attrs"].items())
    rest = ",\n".join(f'"{name}":{_compact(parts[name])}' for name in ("arg_nodes", "heads", "node_row_ptr"))
    return f'{{"nodes":[\n  {nodes}],\n{rest},\n"attrs":{{\n  {attributes}}}}}\n'


def counts(plan: Plan) -> dict[str, int]:
    """Return how much room the graph executor on a device needs for the graph, as mt_graph.h counts."""
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
    """Number the pieces of memory: values with the same number share it, as they are not live at one time."""
    pieces: dict[str, int | tuple[str, int]] = {
        value: number for number, (piece, _) in enumerate(plan.storages) for value in piece.values
    }
    views = {node.outputs[0]: node.inputs[0] for node in plan.graph.nodes if isinstance(node.attrs, View)}
    found: dict[int | tuple[str, int], int] = {}
    numbers = []
    for value in values:
        root = value
        while root not in pieces and root in views:
            root = views[root]
        address = address_of(plan, value)
        key = pieces.get(root, (address.memory, address.index))
        numbers.append(found.setdefault(key, len(found)))
    return numbers


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
