"""A region's call: its C, constants, files and memory, from the backend's product to the node that stands for it."""

import graphlib
import heapq
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from mtool.base import plural
from mtool.compiler.backends.interface import Product, Region
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.external import HOOKS, External, MemoryPiece, RegionCode
from mtool.compiler.operators.external import KIND


@dataclass
class CallBuilder:
    """Collects a backend's code for a region: statements, constants, files and working memory.

    alignment: of the working memory and of each piece of it, in bytes.
    """

    region: Region
    alignment: int = 4
    lines: list[str] = field(default_factory=list)
    prepare: list[str] = field(default_factory=list)
    finish: list[str] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)
    scratch_bytes: int = 0

    def __post_init__(self) -> None:
        """Name the tensors that cross the border, by their values."""
        region = self.region
        self.names = {operand.value: f"input{number}" for number, operand in enumerate(region.inputs)}
        self.names |= {operand.value: f"output{number}" for number, operand in enumerate(region.outputs)}

    def constant(self, name: str, data: Array, layout: str) -> None:
        """Add an array in flash."""
        self.constants[name], self.layouts[name] = data, layout

    def reserve(self, count: int) -> int:
        """Return where some more bytes of working memory begin."""
        offset = _multiple(self.scratch_bytes, self.alignment)
        self.scratch_bytes = offset + count
        return offset

    def product(self, **more: Any) -> Product:
        """Return the finished product, with further fields."""
        return Product(
            body=_indented(self.lines),
            prepare=_indented(self.prepare),
            finish=_indented(self.finish),
            headers=tuple(self.headers),
            files=self.files,
            constants=self.constants,
            layouts=self.layouts,
            scratch_bytes=self.scratch_bytes,
            **{"alignment": self.alignment, **more},
        )


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


TENSOR = re.compile(r"(input|output)(\d+)")


def bytes_named(name: str, product: Product, region: Region) -> int | None:
    """Return the bytes of the tensor, buffer or constant with this name; None: it does not exist."""
    if name == "scratch":
        return product.scratch_bytes or None
    match = TENSOR.fullmatch(name)
    if match is None:
        return None
    side = region.inputs if match[1] == "input" else region.outputs
    number = int(match[2])
    return side[number].type.bytes if str(number) == match[2] and number < len(side) else None


def placed(product: Product, region: Region) -> tuple[MemoryPiece, ...]:
    """Return where the buffers lie, one after the other in each memory."""
    ends: dict[str, int] = {}
    pieces = []
    for name, buffer in product.buffers.items():
        alignment = max(int(buffer.alignment), 8)  # of any element
        size = _multiple(int(buffer.bytes) or bytes_named(name, product, region) or 0, alignment)  # whole cache lines
        offset = _multiple(ends.get(buffer.memory, 0), alignment)
        ends[buffer.memory] = offset + size
        pieces.append(MemoryPiece(name, buffer.memory, offset, size, alignment))
    return tuple(pieces)


def _multiple(number: int, of: int) -> int:
    return -(-number // of) * of


def cache_care(product: Product) -> dict[str, Any]:
    """Return the ranges to clean before the body and to invalidate after it, and the cache functions."""
    if not product.caches:
        return {}
    uses = {name: "reads" if name.startswith("input") else "writes" for name in product.buffers if TENSOR.match(name)}
    uses |= product.device
    cached = [name for name in uses if name not in product.buffers or product.buffers[name].cached]
    return {
        "cleaned": tuple(cached),
        "invalidated": tuple(name for name in cached if uses[name] != "reads"),
        "clean": product.caches["clean"],
        "invalidate": product.caches["invalidate"],
    }


Compiled = tuple[str, Region, Product]
"""The name of a backend, one of its regions, and the compiled product."""


def replace_regions(graph: Graph, compiled: Sequence[Compiled]) -> Graph:
    """Return a graph in which each compiled region is one node; nodes without readers are removed."""
    if not compiled:
        return graph
    rewriter = Rewriter(graph)
    outputs = {operand.value for _, region, _ in compiled for operand in region.outputs}
    nodes = [node for node in graph.nodes if not outputs & {*node.outputs}]
    for backend, region, product in compiled:
        constants = [rewriter.constant(f"{region.name}/{name}", data) for name, data in product.constants.items()]
        origins = tuple(dict.fromkeys(origin for operation in region.operations for origin in operation.origins))
        kinds = tuple(dict.fromkeys(operation.kind.lower() for operation in region.operations))
        count = len(region.operations)
        label = f"{backend} {'+'.join(kinds)}" if count < 4 else f"{backend}, {plural.count(count, 'operator')}"
        if product.cycles:
            label += f", {product.cycles:,.0f} cycles"
        attrs = External(
            **{field.name: getattr(product, field.name) for field in fields(RegionCode)},
            backend=backend,
            model=region.model,
            label=label,
            constants=tuple(product.constants),
            layouts=tuple(product.layouts.get(name, "as the backend laid it out") for name in product.constants),
            macs=region.macs,
            operators=tuple(operation.name for operation in region.operations),
            hooks=tuple((when, product.hooks[when]) for when in HOOKS if when in product.hooks),
            memory_pieces=placed(product, region),
            **cache_care(product),
        )
        inputs, results = (tuple(operand.value for operand in side) for side in (region.inputs, region.outputs))
        nodes.append(Node(KIND, region.name, (*inputs, *constants), results, attrs, origins))
    rewriter.nodes = _ordered(nodes, graph)
    return rewriter.finish()


def _ordered(nodes: Iterable[Node], graph: Graph) -> list[Node]:
    """Return the nodes in an order in which they can be computed, close to the current one."""
    first = {value: number for number, node in enumerate(graph.nodes) for value in node.outputs}
    listed = sorted(nodes, key=lambda node: max(first[value] for value in node.outputs if value))
    producer = {value: number for number, node in enumerate(listed) for value in node.outputs}
    sorter = graphlib.TopologicalSorter(
        {number: {producer[value] for value in node.inputs if value in producer} for number, node in enumerate(listed)}
    )
    sorter.prepare()  # no two regions wait for one another
    ready: list[int] = []
    ordered = []
    while sorter.is_active():
        for number in sorter.get_ready():
            heapq.heappush(ready, number)
        number = heapq.heappop(ready)
        ordered.append(listed[number])
        sorter.done(number)
    return ordered
