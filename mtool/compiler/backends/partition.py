"""Partitioning of a network: backends get their regions, which become calls in the graph."""

import logging
import math
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path, PurePosixPath
from typing import Any, get_args, get_origin

import numpy as np

from mtool.base import resources
from mtool.base.checked import value_of
from mtool.base.errors import MtoolError, UsageError
from mtool.base.escaping import short_name
from mtool.base.filetree import is_plain
from mtool.base.frozen import frozen
from mtool.base.identifiers import is_keyword, is_macro
from mtool.compiler.backends.call import TENSOR, bytes_named, placed, replace_regions
from mtool.compiler.backends.chosen import Chosen
from mtool.compiler.backends.interface import (
    Backend,
    BackendError,
    Buffer,
    Context,
    Operand,
    Operation,
    OperationsRefused,
    Product,
    Region,
)
from mtool.compiler.backends.reading import operations_of, put_channels_last
from mtool.compiler.ir import DType, Graph
from mtool.compiler.ir.control import Control
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.kernels.external import HOOKS

# Calls of a backend, which is not mtool's own code: exceptions and malformed results become errors with the nodes.

_MOST_NODES = 5


def refusal_of(backend: Backend, operation: Operation, context: Context) -> str:
    """Return why a backend can't compute an operation; "": it can.

    Raises:
        BackendError: it failed, or did not return a string.
    """
    return _text(backend, "refusal", [operation], operation, context)


def claims_of(backend: Backend, region: Region) -> str:
    """Return why a backend can't compute a region; "": it can.

    Raises:
        BackendError: it failed, or did not return a string.
    """
    return _text(backend, "claims", region.operations, region)


def cost_of(backend: Backend, region: Region) -> float | None:
    """Return a region's cost; None: it is always worth it.

    Raises:
        BackendError: it failed, or did not return a number.
    """
    answer = _called(backend, "cost", region.operations, region)
    if answer is None:
        return None
    is_number = isinstance(answer, (int, float)) and not isinstance(answer, bool)
    if not is_number or not math.isfinite(answer) or answer < 0:
        raise _malformed(backend, "cost", answer, "a number of instructions, or None", region.operations)
    return float(answer)


def compiled_by(backend: Backend, region: Region) -> Product:
    """Compile a region by its backend in a new folder, and check the result.

    Raises:
        BackendError: it failed, or returned a malformed product.
    """
    with tempfile.TemporaryDirectory(prefix="mtool-") as folder:
        product = _called(backend, "compile", region.operations, region, Path(folder))
    return checked(product, backend.name, region)


def lines_of(operations: Sequence[Operation]) -> list[str]:
    """Return a line for each operation: its kind and the user's nodes."""
    names = [f"{op.kind} {', '.join(map(short_name, op.origins or (op.name,)))}" for op in operations[:_MOST_NODES]]
    return names + [f"and {len(operations) - _MOST_NODES} more"] * (len(operations) > _MOST_NODES)


def _called(backend: Backend, method: str, operations: Sequence[Operation], *arguments: Any) -> Any:
    try:
        return getattr(backend, method)(*arguments)
    except OperationsRefused:
        raise
    except BackendError as failed:
        if any(name in str(failed) for operation in operations for name in (*operation.origins, operation.name)):
            raise
        raise BackendError(failed.what, details=[*failed.details, *lines_of(operations)], hint=failed.hint) from failed
    except MtoolError as failed:  # of proc.run, for instance: a compiler that is missing, or does not end
        message = f"the backend {backend.name} failed: {failed.what}"
        raise BackendError(message, details=[*failed.details, *lines_of(operations)], hint=failed.hint) from failed
    except (Exception, SystemExit) as failed:
        message = f"the backend {backend.name} failed: {type(failed).__name__}: {failed}"
        hint = "--backend-fallback leaves such regions to C" if method == "compile" else ""
        raise BackendError(message, details=[f"in {method} for", *lines_of(operations)], hint=hint) from failed


def _text(backend: Backend, method: str, operations: Sequence[Operation], *arguments: Any) -> str:
    answer = _called(backend, method, operations, *arguments)
    if not isinstance(answer, str):
        raise _malformed(backend, method, answer, 'a string ("" means yes)', operations)
    return answer


def _malformed(
    backend: Backend, method: str, answer: Any, expected: str, operations: Sequence[Operation]
) -> BackendError:
    message = f"the backend {backend.name} returned {answer!r:.80} from {method}; expected {expected}"
    return BackendError(message, details=["called for", *lines_of(operations)])


MOST_ALIGNMENT = 4096
"""Of a region's memory, in bytes."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_RESERVED = re.compile(r"input\d+|output\d+|scratch|resource|_\w*")
_USES = ("reads", "writes", "both")
_FLASH = frozenset({"code", "weights"})


def checked(product: Product, backend: str, region: Region) -> Product:
    """Return a backend's product for a region if it is well formed.

    Raises:
        BackendError: it is not.
    """
    try:
        problem = next(_problems(product, region), "")
    except Exception as failed:  # of a mapping that is not mtool's
        problem = f"{type(failed).__name__}: {failed}"
    operations = region.operations[:5]
    of = f"for {region.name}, of {', '.join(origin for operation in operations for origin in operation.origins)}"
    if problem:
        message = f"the backend {backend} returned a malformed product"
        raise BackendError(message, details=[problem, of], hint="mtool.compiler.backends.Product describes its fields")
    lack = next(_memory_problems(product, region), "")
    if lack:
        raise BackendError(
            f"the backend {backend} requests memory that {region.context.board} does not have", details=[lack, of]
        )
    return product


def _problems(product: Any, region: Region) -> Iterator[str]:
    """Yield the problems of a product; only the first is meaningful, because later checks rely on earlier ones."""
    if not isinstance(product, Product):
        yield f"it returned {type(product).__name__}; expected a Product"
    yield from _type_problems(product, "")
    if not product.body.strip():
        yield "the body is empty"
    if re.search(r"[\ud800-\udfff]", product.body):
        yield "the body has unpaired surrogates, which can't be written to a file"
    yield from _file_problems(product)
    yield from _constant_problems(product)
    yield from _function_problems(product, region)
    yield from _alignment_problems("alignment", product.alignment)
    yield from _alignment_problems("tensor_alignment", product.tensor_alignment)
    for name, buffer in product.buffers.items():
        yield from _buffer_problems(name, buffer, product, region)
    for name, use in product.device.items():
        if use not in _USES:
            yield f"the device {use!r} {name}; expected {', '.join(_USES)}"
        exists = name in product.buffers or name in product.constants or bytes_named(name, product, region) is not None
        if not exists:
            yield f"the device {use} {name}, which is not a tensor, buffer or constant of the region"
        if name in product.constants and use != "reads":
            yield f"the device {use} the constant {name}, which lies in flash"


def _type_problems(instance: Product | Buffer, of: str) -> Iterator[str]:
    """Yield the fields, or entries of fields, that do not have the annotated type."""
    for field in fields(instance):
        value, kind = getattr(instance, field.name), field.type
        values = {field.name: value}
        if get_origin(kind) is Mapping and isinstance(value, Mapping):
            values, kind = {f"{field.name}[{key!r}]": entry for key, entry in value.items()}, get_args(kind)[1]
            if not all(isinstance(key, str) for key in value):
                yield f"{field.name} is {value!r:.80}; expected a mapping from strings"
        for name, entry in values.items():
            try:
                value_of(f"{name}{of}", entry, kind)
            except UsageError as wrong:
                yield "; ".join([wrong.what, *wrong.details])


def _alignment_problems(name: str, alignment: int) -> Iterator[str]:
    if not 1 <= alignment <= MOST_ALIGNMENT or alignment & (alignment - 1):
        yield f"{name} is {alignment}; expected a power of two up to {MOST_ALIGNMENT}"


def _file_problems(product: Product) -> Iterator[str]:
    for name in product.files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.name or "\\" in name:
            yield f"the file {name!r} lies outside of the model's folder"
        if not is_plain(name):
            yield f"the file {name!r} is not a plain relative path such as npu/npu.c"
        for above in path.parents:
            if str(above) in product.files:
                yield f"the file {str(above)!r} is also the folder of {name!r}"
        if not re.fullmatch(r"[\w.+/-]+", name, re.ASCII):
            yield f"the file {name!r} has characters other than letters, digits and _ . + - /"
        if len(path.parts) == 1 and path.name.startswith("mt_"):
            yield f"the file {name!r} has a name that is reserved for the runtime"
    for header in product.headers:
        if not re.fullmatch(r"[\w./-]+\.h", header, re.ASCII):
            yield f"{header!r} is not a valid name of a header"
        if header not in product.files and not (resources.path("crt") / "include" / header).is_file():
            yield f"the header {header} is neither among its files nor the runtime's"


def _constant_problems(product: Product) -> Iterator[str]:
    for name, array in product.constants.items():
        if not _is_free(name) or is_macro(name):
            yield f"the constant's name {name!r} is not valid in C, or taken"
        if not isinstance(array, np.ndarray) or array.dtype.name not in {kind.label for kind in DType}:
            yield f"the constant {name} is not an array of a supported type"
        if not array.size:
            yield f"the constant {name} is empty; C has no empty arrays"


def _function_problems(product: Product, region: Region) -> Iterator[str]:
    if product.can_fail and not re.search(r"\breturn\b", product.body):
        yield "can_fail is True, but the body returns no status"
    for when, name in product.hooks.items():
        if when not in HOOKS:
            yield f"unknown hook {when!r}; expected one of {', '.join(HOOKS)}"
        if not _is_free(name):
            yield f"the hook {when} is {name!r}; expected the name of a C function"
    if product.hooks and not product.headers:
        yield "it has hooks, but no header that declares them"
    for when, name in product.caches.items():
        if when not in ("clean", "invalidate"):
            yield f"caches has {when!r}; expected clean and invalidate"
        if not _NAME.fullmatch(name):
            yield f"caches: {when} is {name!r}; expected the name of a C function"
    if product.caches and (len(product.caches) < 2 or not product.headers):
        yield "caches must name both clean and invalidate, and a header must declare them"
    for name in (*product.hooks.values(), *product.caches.values()):
        if name.startswith(f"{region.model}_"):
            yield f"the function {name} has a name that is reserved for the model: {region.model}_…"


def _is_free(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and not is_keyword(name) and not _RESERVED.fullmatch(name)


def _buffer_problems(name: str, buffer: Buffer, product: Product, region: Region) -> Iterator[str]:
    yield from _type_problems(buffer, f" of the buffer {name}")
    yield from _alignment_problems(f"alignment of the buffer {name}", buffer.alignment)
    if not _NAME.fullmatch(buffer.memory):
        yield f"the buffer {name} is in {buffer.memory!r:.80}; expected the name of one of the board's memories"
    needed = bytes_named(name, product, region)
    if needed is not None and buffer.bytes and buffer.bytes < needed:
        yield f"the buffer {name} has {buffer.bytes} bytes; it needs {needed}"
    if needed is None and (TENSOR.fullmatch(name) or not _NAME.fullmatch(name)):
        yield f"the buffer {name} is neither a tensor of the region nor a valid name in C"
    if needed is None and (is_keyword(name) or name in product.constants or not buffer.bytes):
        yield f"the buffer {name} has {'no bytes' if not buffer.bytes else 'a name that is taken'}"


def _memory_problems(product: Product, region: Region) -> Iterator[str]:
    """Yield requests of the buffers that the board can't meet."""
    memories, board = region.context.memories, region.context.board
    if not memories:
        return
    for name, buffer in product.buffers.items():
        place = memories.get(buffer.memory)
        if place is None or (place.holds and {*place.holds} <= _FLASH):
            sizes = {other: f"{memory.bytes // 1024:,} KB" for other, memory in memories.items()}
            there = ", ".join(f"{other} ({', '.join([size, *memories[other].holds])})" for other, size in sizes.items())
            problem = "is not a memory of" if place is None else f"is for {' and '.join(place.holds)} on"
            yield f"{name} is placed in {buffer.memory}, which {problem} {board}; available: {there}"
    ends = {piece.memory: piece.offset + piece.bytes for piece in placed(product, region)}  # of each the last
    for memory, end in ends.items():
        if end > memories[memory].bytes:
            yield f"the buffers in {memory} take {end:,} B; {board} has {memories[memory].bytes:,} there"


def with_inner_graphs(path: str, graphs: Mapping[str, Graph]) -> Graph:
    """Return the graph of a path, whose control nodes have the graphs of the paths below it."""
    graph = graphs[path]
    if len(graphs) == 1:
        return graph
    nodes = []
    for node in graph.nodes:
        attrs = node.attrs
        paths = [f"{path}{node.name}/{name}/" for name in attrs.names] if isinstance(attrs, Control) else []
        if isinstance(attrs, Control) and all(below in graphs for below in paths):
            node = replace(node, attrs=attrs.with_bodies([with_inner_graphs(below, graphs) for below in paths]))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def aligned(view: Graph, graph: Graph) -> Graph:
    """Return a view with the names that a graph has for the last values of its states."""
    names = {first: last for _, first, last in graph.state_values}
    new = {last: names[first] for _, first, last in view.state_values if first in names}
    new = {old: name for old, name in new.items() if old != name and name not in view.types}
    if not new:
        return view

    def of(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new.get(value, value) for value in values)

    return replace(
        view,
        nodes=tuple(replace(node, inputs=of(node.inputs), outputs=of(node.outputs)) for node in view.nodes),
        outputs=of(view.outputs),
        types={new.get(value, value): kind for value, kind in view.types.items()},
        quant={new.get(value, value): quant for value, quant in view.quant.items()},
        sources={new.get(value, value): source for value, source in view.sources.items()},
    )


def body_of(graph: Graph, region: Region) -> Graph:
    """Return the nodes of a region as a graph, whose inputs and outputs are the region's.

    Raises:
        BackendError: the graph computes the region from values that do not cross its border.
    """
    inputs, outputs = (tuple(operand.value for operand in side) for side in (region.inputs, region.outputs))
    needed, nodes = {*outputs}, []
    for node in reversed(graph.nodes):
        if needed & {*node.outputs} and not {*node.outputs} <= {*inputs}:
            nodes.append(node)
            needed.update(value for value in node.inputs if value and value not in inputs)
    produced = {value for node in nodes for value in node.outputs}
    missing = sorted(needed - produced - graph.constants.keys())
    if missing:
        raise BackendError(f"{region.name} also needs {missing[0]}", details=[f"its inputs are {', '.join(inputs)}"])
    body = replace(graph, name=region.name, inputs=inputs, outputs=outputs, output_names=outputs, counts={}, states=())
    rewriter = Rewriter(body)
    rewriter.nodes = nodes[::-1]
    return rewriter.finish()


def largest_regions(
    operations: Sequence[Operation],
    claimed: Mapping[int, str],
    grows: Collection[str],
    may_join: Callable[[Sequence[int]], bool],
) -> list[tuple[int, ...]]:
    """Return the largest possible regions of claimed operations, each as the numbers of its operations.

    The regions, and the operations outside of them, can always be computed one after another.

    Args:
        operations: in an order in which they can be computed.
        claimed: the backend of each operation that has one, by number.
        grows: the backends whose regions may have several operations.
        may_join: whether a backend accepts these operations as one region.
    """
    producer = {operand.value: number for number, operation in enumerate(operations) for operand in operation.outputs}
    before = {
        number: {producer[operand.value] for operand in operation.variables if operand.value in producer}
        for number, operation in enumerate(operations)
    }
    after: dict[int, set[int]] = {number: set() for number in before}
    for number, earlier in before.items():
        for other in earlier:
            after[other].add(number)
    members = {number: [number] for number in before}  # of each group, which has the number of one of them

    def waits_through(first: int, last: int) -> bool:
        """Return whether there is a way from a group to another by a third."""
        waiting = [*after[first] - {last}]
        seen = {*waiting}
        while waiting:
            group = waiting.pop()
            if last in after[group]:
                return True
            waiting += after[group] - seen
            seen |= after[group]
        return False

    for number in range(len(operations)):
        backend = claimed.get(number)
        if backend not in grows:
            continue
        current, tried = number, set[int]()
        while near := [group for group in before[current] - tried if claimed.get(group) == backend]:
            other = min(near)
            tried.add(other)
            joined = sorted(members[current] + members[other])
            if waits_through(current, other) or waits_through(other, current) or not may_join(joined):
                continue
            members[other] = joined
            del members[current]
            for forward, backward in ((after, before), (before, after)):
                for neighbour in forward.pop(current):
                    backward[neighbour].discard(current)
                    if neighbour != other:
                        forward[other].add(neighbour)
                        backward[neighbour].add(other)
            current = other
    return sorted(tuple(numbers) for numbers in members.values() if numbers[0] in claimed)


@frozen
class Part:
    """A region with its backend, the partitioner of its graph, and its operations' numbers there."""

    of: "Partitioner"
    backend: Backend
    members: tuple[int, ...]
    region: Region

    def named(self, stem: str, names: set[str]) -> "Part":
        """Return the part with a free name and with the region's body."""
        while stem in names:
            stem += "_"
        names.add(stem)
        region = replace(self.region, name=stem)
        return replace(self, region=replace(region, body=body_of(self.of.graph, region)))


class Partitioner:
    """The claims of backends on the operations of one graph.

    Args:
        path: the control nodes around it and which of their graphs it is, "" of the whole: "loop_3/body/".
        view: the graph where integers are rounded as in ONNX.
        graph: the same, rounded as it is to be computed.
        model: the network's name, the beginning of all its C names.
        chosen: the backends, in order of preference.
        context: what they compile for.
        cost_in_c: estimates the instructions of a graph that is compiled to C; None: every region is worth it.

    Attributes:
        operations: those of the view; their names begin with the path.
        claimed: the backend of each operation that one can compute by itself, the first in order of preference.
        refusals: why the backends that come before do not compute it, by name.
    """

    def __init__(
        self,
        path: str,
        view: Graph,
        graph: Graph,
        model: str,
        chosen: Sequence[Chosen],
        context: Context,
        cost_in_c: Callable[[Graph], float] | None,
    ) -> None:
        self.path, self.view, self.graph = path, view, graph
        self.model, self.context, self.cost_in_c = model, context, cost_in_c
        if any(choice.backend.layout == "NHWC" for choice in chosen):
            self.view = put_channels_last(view)
            self.graph = self.view if view is graph else put_channels_last(graph)
        self.operations = tuple(replace(op, name=f"{path}{op.name}") for op in operations_of(self.view))
        self.chosen = {choice.backend.name: choice for choice in chosen}
        self.refusals: list[list[tuple[str, str]]] = [[] for _ in self.operations]
        self.readers: dict[str, set[int]] = defaultdict(set)
        for number, operation in enumerate(self.operations):
            for operand in operation.variables:
                self.readers[operand.value].add(number)
        self.claimed: dict[int, str] = {}
        for number, operation in enumerate(self.operations):
            for name, choice in self.chosen.items():
                why = choice.skips(operation) or self._cut_problem(operation)
                why = why or refusal_of(choice.backend, operation, self.context)
                why = why or claims_of(choice.backend, self._region([number]))
                if not why:
                    self.claimed[number] = name
                    break
                self.refusals[number].append((name, why))

    def inside(self) -> Iterator["Partitioner"]:
        """Yield the partitioners of the graphs in its control nodes, except for claimed nodes."""
        claimed = {self.operations[number].name for number in self.claimed}
        exact = {node.name: node.attrs for node in self.graph.nodes}
        for node in self.view.nodes:
            attrs, other = node.attrs, exact.get(node.name)
            if not isinstance(attrs, Control) or not isinstance(other, Control) or f"{self.path}{node.name}" in claimed:
                continue
            for name, view, graph in zip(attrs.names, attrs.bodies, other.bodies, strict=True):
                path = f"{self.path}{node.name}/{name}/"
                yield Partitioner(path, view, graph, self.model, [*self.chosen.values()], self.context, self.cost_in_c)

    def _cut_problem(self, operation: Operation) -> str:
        """Return why an operation can't be cut out of the computed graph; "": it can."""
        tensors = (*operation.variables, *operation.outputs)
        missing = next((operand.tensor for operand in tensors if not self._is_computed(operand)), None)
        return "" if missing is None else f"{missing} does not exist with this rounding"

    def _is_computed(self, operand: Operand) -> bool:
        """Whether the computed graph's tensor of that name has the same elements.

        Stored tensors have; 32-bit values inside an operator of the file may differ.
        """
        value, graph, view = operand.value, self.graph, self.view
        if graph is view or graph.types.get(value) != operand.type:
            return graph is view
        is_inside = operand.dtype.size >= 4 and value not in (*graph.inputs, *graph.outputs)
        return not is_inside or graph.sources.get(value) == view.sources.get(value) is not None

    def parts(self, claimed: Mapping[int, str]) -> list[Part]:
        """Return the largest regions of claimed operations that backends accept."""

        def backend_of(members: Sequence[int]) -> Backend:
            return self.chosen[claimed[members[0]]].backend

        def may_join(members: Sequence[int]) -> bool:
            return not claims_of(backend_of(members), self._region(members))

        grows = {name for name, choice in self.chosen.items() if choice.backend.whole_regions}
        groups = largest_regions(self.operations, claimed, grows, may_join)
        return [Part(self, backend_of(members), members, self._region(members)) for members in groups]

    def limit(self, part: Part, count: int) -> str:
        """Return why a backend with `count` regions does not get another one; "": it does."""
        inputs = () if self.path else self.graph.inputs
        why = self.chosen[part.backend.name].limits(part.region, count, inputs)
        cost = cost_of(part.backend, part.region) if not why and self.cost_in_c is not None else None
        if cost is None or self.cost_in_c is None:
            return why
        ours = self.cost_in_c(body_of(self.graph, replace(part.region, name=f"{part.backend.name}_region")))
        return "" if cost < ours else f"it does not pay: about {cost:,.0f} instructions there, {ours:,.0f} in C"

    def _region(self, members: Sequence[int]) -> Region:
        """Return operations as a region without a name."""
        inside, operations = {*members}, tuple(self.operations[number] for number in members)
        results = {operand.value: operand for operation in operations for operand in operation.outputs}
        read: dict[str, Operand] = {}
        for operand in (x for operation in operations for x in operation.variables):
            if operand.value not in results:
                read.setdefault(operand.value, operand)
        ends = self.view.outputs
        outputs = tuple(operand for value, operand in results.items() if value in ends or self.readers[value] - inside)
        return Region("", self.model, operations, tuple(read.values()), outputs, self.context)


MOST_SPLITS = 32
"""How many times a region is split if its backend's compiler refuses operations."""
log = logging.getLogger(__name__)


@frozen
class Claim:
    """Which backend computes an operation, and why the others do not.

    operation: as backends see it.
    region: the name of its region; "": it is compiled to C.
    backend: the backend's name; "": C.
    refusals: why the backends that come before do not compute it, by name.
    """

    operation: Operation
    region: str
    backend: str
    refusals: tuple[tuple[str, str], ...]


@frozen
class Partition:
    """The regions of a network: a graph in which they are calls, and the claims on its operations."""

    graph: Graph
    claims: tuple[Claim, ...]
    regions: tuple[Region, ...]


def partition(
    view: Graph,
    graph: Graph,
    chosen: Sequence[Chosen],
    context: Context,
    *,
    falls_back: bool = False,
    cost_in_c: Callable[[Graph], float] | None = None,
) -> Partition:
    """Replace the regions of a network that backends claim by calls.

    Args:
        view: the network as the frontend leaves it where integers are rounded as in ONNX.
        graph: the same network, rounded as it is to be computed; the same object if there is no difference.
        chosen: the backends, in order of preference.
        context: what they compile for.
        falls_back: a region that a backend fails to compile is left to C, with a warning.
        cost_in_c: estimates the instructions of a graph that is compiled to C; None: every region is worth it.

    Raises:
        BackendError: a backend failed.
    """
    divided = divide(view, graph, chosen, context, cost_in_c=cost_in_c)
    compiled = [pair for part in divided.parts for pair in _compiled(divided, part, falls_back=falls_back)]
    graphs = {}
    for partitioner in divided.partitioners:
        regions = [(part.backend.name, part.region, product) for part, product in compiled if part.of is partitioner]
        graphs[partitioner.path] = replace_regions(partitioner.graph, regions)
    divided = replace(divided, parts=tuple(part for part, _ in compiled))
    return Partition(with_inner_graphs("", graphs), divided.claims(), tuple(part.region for part in divided.parts))


@frozen
class Division:
    """The regions of a network before their backends compile them.

    partitioners: of the whole network, and of the graphs inside of its branches and loops.
    parts: the regions.
    """

    partitioners: tuple[Partitioner, ...]
    parts: tuple[Part, ...]

    @property
    def regions(self) -> tuple[tuple[Backend, Region], ...]:
        """The regions, each with its backend."""
        return tuple((part.backend, part.region) for part in self.parts)

    def claims(self) -> tuple[Claim, ...]:
        """Return the claims, if the regions are computed by their backends."""
        owner = {op.name: (region.name, backend.name) for backend, region in self.regions for op in region.operations}
        return tuple(
            Claim(operation, *owner.get(operation.name, ("", "")), tuple(refusals))
            for partitioner in self.partitioners
            for operation, refusals in zip(partitioner.operations, partitioner.refusals, strict=True)
        )


def divide(
    view: Graph,
    graph: Graph,
    chosen: Sequence[Chosen],
    context: Context,
    *,
    cost_in_c: Callable[[Graph], float] | None = None,
) -> Division:
    """Return the regions that backends claim, without compiling them; the arguments are those of `partition`."""
    partitioners = [Partitioner("", view, graph, graph.name, chosen, context, cost_in_c)]
    for partitioner in partitioners:  # the list grows
        partitioners += partitioner.inside()
    operations = [operation for partitioner in partitioners for operation in partitioner.operations]
    for choice in chosen:
        choice.tell_unknown(operations)
    parts = [part for partitioner in partitioners for part in partitioner.parts(partitioner.claimed)]
    counts: Counter[str] = Counter()
    numbers = set()
    for number, part in sorted(enumerate(parts), key=lambda item: -item[1].region.macs):
        why = part.of.limit(part, counts[part.backend.name])
        if why:
            for member in part.members:
                part.of.refusals[member].append((part.backend.name, why))
        else:
            counts[part.backend.name] += 1
            numbers.add(number)
    names = {node.name for partitioner in partitioners for node in partitioner.graph.nodes}
    accepted = [part for number, part in enumerate(parts) if number in numbers]
    final = (part.named(f"{part.backend.name}_{number}", names) for number, part in enumerate(accepted))
    return Division(tuple(partitioners), tuple(final))


def _compiled(divided: Division, part: Part, *, falls_back: bool) -> list[tuple[Part, Product]]:
    """Compile a region with its backend; if that refuses operations, compile the remaining regions."""
    names = {other.region.name for other in divided.parts}
    waiting, compiled, splits = [part], [], 0
    while waiting:
        part = waiting.pop(0)
        try:
            compiled.append((part, compiled_by(part.backend, part.region)))
        except BackendError as refused:
            reasons = refused.reasons if isinstance(refused, OperationsRefused) else {}
            numbers = {number: reasons.get(part.of.operations[number].name) for number in part.members}
            splits += bool(reasons)
            if splits > MOST_SPLITS or not any(numbers.values()):
                if not falls_back:
                    raise
                log.warning("%s is left to C: %s", part.region.name, refused.what)
                continue
            for number, why in numbers.items():
                if why:
                    part.of.refusals[number].append((part.backend.name, why))
            remaining = [number for number, why in numbers.items() if not why]
            log.warning("%s is split: %s", part.region.name, refused.what)
            rest = part.of.parts(dict.fromkeys(remaining, part.backend.name))
            waiting += [other.named(f"{part.region.name}_{n}", names) for n, other in enumerate(rest)]
    return compiled
