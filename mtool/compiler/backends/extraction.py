"""Regions taken out of a graph: their nodes as a graph of their own, and a call in place of them."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace

from mtool.compiler.backends.buffers import cache_care, placed
from mtool.compiler.backends.interface import BackendError, Product, Region
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.kernels.external import HOOKS, External
from mtool.compiler.operators.external import KIND

Compiled = tuple[str, Region, Product]
"""The name of a backend, a region of it, and what it made of that."""


def body_of(graph: Graph, region: Region) -> Graph:
    """Return the nodes of a region as a graph, whose inputs and outputs are the region's.

    Raises:
        BackendError: the graph computes the region of other values than cross its border.
    """
    inputs = tuple(one.value for one in region.inputs)
    outputs = tuple(one.value for one in region.outputs)
    needed, nodes = {*outputs}, []
    for node in reversed(graph.nodes):
        if needed & {*node.outputs} and not {*node.outputs} <= {*inputs}:
            nodes.append(node)
            needed.update(value for value in node.inputs if value and value not in inputs)
    made = {value for node in nodes for value in node.outputs}
    missing = sorted(needed - made - graph.constants.keys())
    if missing:
        raise BackendError(
            f"{region.name} also needs {missing[0]}",
            details=[f"its inputs are {', '.join(inputs)}"],
        )
    values = needed | made | {*inputs}
    return replace(
        graph,
        name=region.name,
        inputs=inputs,
        outputs=outputs,
        output_names=outputs,
        nodes=tuple(reversed(nodes)),
        types={value: kind for value, kind in graph.types.items() if value in values},
        constants={value: data for value, data in graph.constants.items() if value in values},
        quant={value: quant for value, quant in graph.quant.items() if value in values},
        sources={value: source for value, source in graph.sources.items() if value in values},
        counts={},
        states=(),
    )


def replace_regions(graph: Graph, compiled: Sequence[Compiled]) -> Graph:
    """Return a graph in which each compiled region is one node; what nothing reads any more is gone."""
    if not compiled:
        return graph
    rewriter = Rewriter(graph)
    outputs = {one.value for _, region, _ in compiled for one in region.outputs}
    kept = [node for node in graph.nodes if not outputs & {*node.outputs}]
    for backend, region, product in compiled:
        constants = [rewriter.constant(f"{region.name}/{name}", data) for name, data in product.constants.items()]
        origins = tuple(dict.fromkeys(origin for one in region.operations for origin in one.origins))
        kinds = tuple(dict.fromkeys(one.kind.lower() for one in region.operations))
        count = len(region.operations)
        label = f"{backend} {'+'.join(kinds)}" if count < 4 else f"{backend}, {count} operators"
        if product.cycles:
            label += f", {product.cycles:,.0f} cycles"
        attrs = External(
            backend=backend,
            model=region.model,
            label=label,
            body=product.body,
            constants=tuple(product.constants),
            layouts=tuple(product.layouts.get(name, "as the backend laid it out") for name in product.constants),
            headers=product.headers,
            files=product.files,
            scratch=product.scratch_bytes,
            alignment=product.alignment,
            tensor_alignment=product.tensor_alignment,
            macs=region.macs,
            cost=float(product.cost),
            cycles=float(product.cycles),
            operators=tuple(one.name for one in region.operations),
            can_fail=product.can_fail,
            hooks=tuple((when, product.hooks[when]) for when in HOOKS if when in product.hooks),
            lent=placed(product, region),
            prepare=product.prepare,
            finish=product.finish,
            resource=product.resource,
            **cache_care(product),
        )
        inputs = (*(one.value for one in region.inputs), *constants)
        kept.append(Node(KIND, region.name, inputs, tuple(one.value for one in region.outputs), attrs, origins))
    rewriter.nodes = _ordered(kept, graph)
    return rewriter.finish()


def _ordered(nodes: Iterable[Node], graph: Graph) -> list[Node]:
    """Return nodes in an order in which they can be computed, near to that in which they are."""
    first = {value: number for number, node in enumerate(graph.nodes) for value in node.outputs}
    listed = sorted(nodes, key=lambda node: max(first[value] for value in node.outputs if value))
    made = {value: number for number, node in enumerate(listed) for value in node.outputs}
    waits = [{made[value] for value in node.inputs if value in made} for node in listed]
    readers: list[list[int]] = [[] for _ in listed]
    for number, before in enumerate(waits):
        for one in before:
            readers[one].append(number)
    ready = [number for number, before in enumerate(waits) if not before]
    found = []
    while ready:
        number = heapq.heappop(ready)
        found.append(listed[number])
        for reader in readers[number]:
            waits[reader].discard(number)
            if not waits[reader]:
                heapq.heappush(ready, reader)
    assert len(found) == len(listed), "two regions wait for one another"
    return found
