"""Graphs: nodes in an order of execution, typed values, constants."""

import functools
import heapq
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Literal, TypeVar

import numpy as np

from mtool.base.frozen import frozen
from mtool.base.option_values import Slide
from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.node import Attributes, Node, Transpose, View, WithEpilogue, expression_of
from mtool.compiler.ir.types import Array, DType, Quant, TensorType

T = TypeVar("T")
# The source of a value: a tensor of the model, and how it was moved since.
Move = tuple[Literal["transpose", "reshape", "take", "signed", "rows", "quantised"], tuple[int, ...]]


@frozen
class Source:
    """A tensor of the model, by its name there, and the moves that turn it into a value, in order.

    "transpose" has the permutation of the dimensions, "reshape" the new shape, "take" the channels of the last
    dimension that are left, "signed" the number that is subtracted to make it signed, "rows" the first of the second
    dimension that is left and the one after the last, "quantised" the bits of the float32 that is the scale, the zero
    point, the least and the largest integer, of a float with that quantization.
    """

    tensor: str
    moves: tuple[Move, ...] = ()

    def then(self, move: Move) -> "Source":
        """Return the source of the value that one more move gives."""
        if self.moves and self.moves[-1][0] == move[0] not in ("signed", "rows", "quantised"):
            before, (kind, numbers) = self.moves[:-1], move
            last = self.moves[-1][1]
            if kind == "reshape":
                return Source(self.tensor, before).then(move) if before else Source(self.tensor, (move,))
            joined = tuple(last[number] for number in numbers)
            if kind == "transpose" and joined == tuple(range(len(joined))):
                return Source(self.tensor, before)
            return Source(self.tensor, (*before, (kind, joined)))
        return Source(self.tensor, (*self.moves, move))


def quantized(scale: Array, zero_point: int, dtype: DType) -> Move:
    """Return the move from floats on a grid to its integers."""
    return "quantised", (int(np.asarray(scale, np.float32).reshape(()).view(np.uint32)), zero_point, *dtype.limits)


def moved(data: Array, moves: tuple[Move, ...]) -> Array:
    """Apply moves to the tensor's own array."""
    for move, numbers in moves:
        if move == "transpose":
            data = data.transpose(numbers)
        elif move == "reshape":
            data = data.reshape(numbers)
        elif move == "take":
            data = data[..., list(numbers)]
        elif move == "rows":
            data = data[:, slice(*numbers)]
        elif move == "quantised":
            scale, (point, least, most) = np.array(numbers[0], np.uint32).view(np.float32), numbers[1:]
            kinds = (np.int8, np.uint8, np.int16, np.uint16)
            kind = next(kind for kind in kinds if (np.iinfo(kind).min, np.iinfo(kind).max) == (least, most))
            data = rounded(data, scale, point, DType.of(kind))
        else:
            data = (data.astype(np.int32) - numbers[0]).astype(np.int8 if numbers[0] == 128 else np.int16)
    return np.ascontiguousarray(data)


def undone(data: Array, moves: tuple[Move, ...]) -> tuple[Array, tuple[Move, ...]]:
    """Return the tensor's own array from a moved one, and the moves that can't be undone: those that left elements out
    or whose shape was not recorded, and all before them.
    """
    remaining = list(moves)
    while remaining:
        move, numbers = remaining[-1]
        if move == "transpose":
            data = data.transpose(np.argsort(numbers))
        elif move == "signed":
            data = (data.astype(np.int32) + numbers[0]).astype(np.uint8 if numbers[0] == 128 else np.uint16)
        elif move == "quantised":
            scale = np.array(numbers[0], np.uint32).view(np.float32)
            data = (data.astype(np.int32) - numbers[1]).astype(np.float32) * scale
        else:
            break
        remaining.pop()
    return np.ascontiguousarray(data), tuple(remaining)


def rounded(data: Array, scale: Array, zero_point: Array | int, dtype: DType) -> Array:
    """Return floats quantized to the nearest integers; NaN becomes the smallest."""
    least, most = dtype.limits
    with np.errstate(all="ignore"):
        steps: Array = np.clip(np.rint(data / scale) + zero_point, least, most)
        return np.nan_to_num(steps, nan=least).astype(dtype.numpy)


# Unique names: a stem, or the stem with the smallest number that is not taken.


class Names:
    """Gives unique names in constant time, however many share a stem.

    A name stays taken until it is released.
    """

    def __init__(self, is_used: Callable[[str], bool]) -> None:
        self._is_used = is_used
        self._next: dict[str, int] = {}
        self._released: dict[str, list[int]] = {}

    def take(self, stem: str) -> str:
        """Return the first of `stem`, `stem.1`, `stem.2`, … that is not taken."""
        released = self._released.get(stem, [])
        while released:
            name = _numbered(stem, heapq.heappop(released))
            if not self._is_used(name):
                return name
        number = self._next.get(stem, 0)
        while self._is_used(name := _numbered(stem, number)):
            number += 1
        self._next[stem] = number + 1
        return name

    def release(self, name: str) -> None:
        """Make a name available again."""
        stem, dot, number = name.rpartition(".")
        if name in self._next:
            heapq.heappush(self._released.setdefault(name, []), 0)
        if dot and number.isdecimal() and number == str(int(number)) and int(number) < self._next.get(stem, 0):
            heapq.heappush(self._released.setdefault(stem, []), int(number))


def _numbered(stem: str, number: int) -> str:
    return f"{stem}.{number}" if number else stem


_OF_NODES = "of nodes"
LARGE_BYTES = 16 << 20
"""Bytes of constants from which on their memory is worth a search for cycles."""
DEEPEST = 160  # levels of an expression that C compilers and comparisons can take


@frozen
class State:
    """An output of the model that is kept between calls and feeds an input of the next one.

    `output` and `input` are their names in the model. `initial` is the input's value at the first call, of the
    type that the graph's input has; None: zeros.
    """

    output: str
    input: str
    initial: Array | None = None


@frozen
class RunTimeSize:
    """A dimension whose size the caller gives at run time.

    name: the dimension's name in the model.
    symbol: its name in formulas (mtool.base.formulas).
    value: the graph's input with the size, int32[].
    least, most: the range of the size.
    """

    name: str
    symbol: str
    value: str
    least: int
    most: int


@frozen
class Stream:
    """An input whose rows the caller passes as they arrive, so that it is never in memory as a whole.

    value: the graph's input; its rows lie one after the other, the pixels of a row with their channels side by side.
    order: the permutation from the model's own tensor to that layout; (): none.
    rows: the number of rows; 0: before the plan is made.
    until: the last operator that is computed row by row, as they arrive; "": before the plan is made.
    """

    value: str
    order: tuple[int, ...] = ()
    rows: int = 0
    until: str = ""

    def of_model(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the model's own shape of the input from the graph's."""
        return tuple(shape[self.order.index(axis)] for axis in range(len(shape))) if self.order else shape


@frozen
class Graph:
    """A model. An empty input name ("") stands for an omitted optional input.

    `types` has every value, constants included; `output_names` are the outputs' names in the model (a pass may rename
    the values themselves, never the inputs); `quant` has the quantization of values that are known to be on an integer
    grid (for reports and tests; no pass depends on it); `sources` maps values to tensors of the model, so that a
    device's values can be compared with them; `counts` has, by name, each output whose size depends on data: the name
    of the output with the number of elements, and their dimension; `states` are pairs that are not part of the
    interface: they are the last of `inputs` and of `outputs`, in this order; `line_buffers` has the line buffer that
    contains a value, by name, and the byte offset there (mtool.compiler.plan.partial); `sizes` are the run-time sizes:
    the graph has their largest values, and nodes that depend on them have their inputs last; `samples` are the graphs,
    without those inputs, for some values of the sizes, `fixed_sizes` the sizes of dimensions that do not depend on
    them, and `is_sample` marks such a sample; `halves`: the model's file has float16 weights, which kernels may store
    as such, although the graph has them as float32; `rounds` is about how often an inference computes a body;
    `for_size`: small code matters more than a few instructions; `stream` is the input that arrives by rows, if there is
    one; `slides` are the inputs that are windows, of which the caller passes the new rows; `memo` caches results that
    every node needs.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Array]
    output_names: tuple[str, ...] = ()
    quant: Mapping[str, Quant] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    counts: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    states: tuple[State, ...] = ()
    line_buffers: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    sizes: tuple[RunTimeSize, ...] = ()
    samples: tuple[tuple[tuple[int, ...], "Graph"], ...] = ()
    fixed_sizes: frozenset[int] = frozenset()
    is_sample: bool = False
    halves: bool = False
    rounds: int = 1
    for_size: bool = False
    stream: Stream | None = None
    slides: tuple[Slide, ...] = ()
    memo: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def caller_inputs(self) -> tuple[str, ...]:
        """The inputs that the caller passes: all except states."""
        return self.inputs[: len(self.inputs) - len(self.states)]

    @property
    def caller_outputs(self) -> tuple[str, ...]:
        """The outputs that the caller gets: all except states."""
        return self.outputs[: len(self.outputs) - len(self.states)]

    @property
    def state_values(self) -> tuple[tuple[State, str, str], ...]:
        """Each state with the values of its input and its output."""
        ins, outs = self.inputs[len(self.caller_inputs) :], self.outputs[len(self.caller_outputs) :]
        return tuple(zip(self.states, ins, outs, strict=True))

    @property
    def scales(self) -> tuple[float, ...]:
        """The scales of the values that are quantized per tensor."""
        return tuple(sorted({quant.scale[0] for quant in self.quant.values() if len(quant.scale) == 1}))

    @property
    def sized_nodes(self) -> frozenset[str]:
        """The names of the nodes that depend on run-time sizes; their last inputs are those."""
        values = tuple(size.value for size in self.sizes)

        def sized() -> frozenset[str]:
            return frozenset(node.name for node in self.nodes if node.inputs[-len(values) :] == values)

        return self.once("sized nodes", sized) if values else frozenset()

    def once(self, about: str, answer: Callable[[], T]) -> T:
        """Return `answer()`, cached under the key `about`."""
        if about not in self.memo:
            self.memo[about] = answer()
        result: T = self.memo[about]
        return result

    def of_node(self, node: Node, about: Hashable, answer: Callable[[], T]) -> T:
        """Return `answer()`, cached for a node under the key `about`, unless the constants are large.

        An answer that refers to the graph keeps its elements until the next search for cycles.
        """
        if self.once("has large constants", self._has_large_constants):
            return answer()
        cache: dict[Hashable, tuple[Node, T]] = self.memo.setdefault(_OF_NODES, {})
        key = id(node), about
        if key not in cache:
            cache[key] = node, answer()  # the node is kept, so that no other gets its identity
        return cache[key][1]

    def _has_large_constants(self) -> bool:
        return sum(data.nbytes for data in self.constants.values()) >= LARGE_BYTES

    def producers(self) -> dict[str, Node]:
        """Return the node that produces each value."""
        return {output: node for node in self.nodes for output in node.outputs if output}

    def consumers(self) -> dict[str, list[Node]]:
        """Return the nodes that read each value, once for each use."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in node.inputs:
                readers.setdefault(value, []).append(node)
        return readers

    def likeness(self, node: Node) -> Hashable:
        """Return a key that nodes share if the same C computes them: they are parts of one operator, of equal shapes.

        It is the same in all graphs that are derived from this one by computing operators in parts.
        """
        return node.title, tuple(self.types.get(value) for value in (*node.inputs, *node.outputs))

    def without_elements(self) -> "Graph":
        """Return the graph with all constants replaced by zeros that take no memory."""
        constants = {name: np.broadcast_to(np.zeros((), d.dtype), d.shape) for name, d in self.constants.items()}
        graph = replace(self, constants=constants)
        graph.memo.update((about, result) for about, result in self.memo.items() if about != _OF_NODES)
        return graph

    def dump(self) -> str:
        """Return the graph as text, a node a line."""
        lines = [f"graph {self.name}"]
        lines += [f"  in   {value}: {self.types[value]}" for value in self.inputs]
        lines += [f"  {node}  -> {', '.join(str(self.types[value]) for value in node.outputs)}" for node in self.nodes]
        lines += [f"  out  {value}: {self.types[value]}" for value in self.outputs]
        lines += [f"  kept {output} -> {value}" for _, value, output in self.state_values]
        return "\n".join(lines)


def verify(graph: Graph) -> None:
    """Check that the graph is well formed: names unique, values defined before use, constants as typed, no deep nests.

    Raises:
        AssertionError: it is not; a bug in the pass that made it.
    """
    defined = {*graph.inputs, *graph.constants, ""}
    names = set()
    for node in graph.nodes:
        expr = expression_of(node)
        assert expr is None or expr.depth <= DEEPEST, f"{node.name} has too deep an expression"
        assert node.name not in names, f"two nodes are named {node.name}"
        names.add(node.name)
        for value in node.inputs:
            assert value in defined, f"{node.name} reads {value!r} before it is written"
        for value in filter(None, node.outputs):
            assert value not in defined, f"{value!r} is written twice"
            assert value in graph.types, f"{value!r} has no type"
            defined.add(value)
    for value, data in graph.constants.items():
        kind = TensorType(DType.of(data.dtype), data.shape)
        assert graph.types[value] == kind, f"constant {value!r} is {kind}; its declared type is {graph.types[value]}"
    assert set(graph.outputs) <= defined, "an output is never written"


class Rewriter:
    """Builds a new graph from an old one: a pass appends nodes, values and constants, then calls `finish`."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.types = dict(graph.types)
        self.constants = dict(graph.constants)
        self.quant = dict(graph.quant)
        self.sources = dict(graph.sources)
        self.outputs = graph.outputs
        self._renamed: dict[str, str] = {}
        self._names = {node.name for node in graph.nodes}
        self._unused = Names(lambda name: self._is_used(name))

    def unique(self, stem: str) -> str:
        """Return an unused name for a value or node."""
        name = self._unused.take(stem)
        self._names.add(name)
        return name

    def _is_used(self, name: str) -> bool:
        return name in self.types or name in self._names

    def value(self, stem: str, dtype: DType, shape: Iterable[int]) -> str:
        """Add a value and return its name."""
        name = self.unique(stem)
        self.types[name] = TensorType(dtype, tuple(shape))
        return name

    def like(self, stem: str, kind: TensorType) -> str:
        """Add a value of a type and return its name."""
        return self.value(stem, kind.dtype, kind.shape)

    def constant(self, stem: str, data: Array) -> str:
        """Add a constant and return its name."""
        name = self.value(stem, DType.of(data.dtype), data.shape)
        self.constants[name] = data
        return name

    def node(
        self,
        op: str,
        inputs: Iterable[str],
        outputs: Iterable[str],
        attrs: Attributes | None = None,
        *,
        like: Node | None = None,
        origins: Iterable[str] = (),
    ) -> Node:
        """Append a node; `like` gives its origins and the stem of its name."""
        origins = tuple(dict.fromkeys([*(like.origins if like else ()), *origins]))
        name = self.unique(like.name if like else op)
        node = Node(op, name, tuple(inputs), tuple(outputs), attrs or Attributes(), origins)
        self.nodes.append(node)
        if isinstance(node.attrs, Transpose | View):
            self._relate(node)
        return node

    def _relate(self, node: Node) -> None:
        """Derive the source of a transposition's or view's input from its output, or the reverse."""
        before, after = self.resolve(node.inputs[0]), node.outputs[0]
        forward: Move
        backward: Move
        if self.types[before].count != self.types[after].count:
            return  # a part
        if isinstance(node.attrs, View):
            forward, backward = ("reshape", self.types[after].shape), ("reshape", self.types[before].shape)
        else:
            perm = Transpose.of(node).perm
            forward, backward = ("transpose", perm), ("transpose", tuple(np.argsort(perm).tolist()))
        if before in self.sources:
            self.sources.setdefault(after, self.sources[before].then(forward))
        elif after in self.sources:
            self.sources[before] = self.sources[after].then(backward)

    def keep(self, node: Node) -> Node:
        """Append a node of the old graph, with the renames applied to its inputs."""
        inputs = tuple(self.resolve(value) for value in node.inputs)
        new = node if inputs == node.inputs else replace(node, inputs=inputs)
        self.nodes.append(new)
        return new

    def rename(self, old: str, new: str) -> None:
        """Replace `old` by `new` in every later reader."""
        self._renamed[old] = new
        if old in self.sources:
            self.sources.setdefault(new, self.sources[old])

    def resolve(self, value: str) -> str:
        """Return a value's current name."""
        name = value
        while name in self._renamed:
            name = self._renamed[name]
        while self._renamed.get(value, name) != name:  # the next time it takes one step
            self._renamed[value], value = name, self._renamed[value]
        return name

    def finish(self) -> Graph:
        """Return the new graph, without dead nodes and values."""
        outputs = tuple(self.resolve(value) for value in self.outputs)
        needed = set(outputs)
        alive = []
        for node in reversed(self.nodes):
            if needed & set(node.outputs):
                alive.append(node)
                needed.update(filter(None, node.inputs))
        alive.reverse()
        values = needed | set(self.graph.inputs) | {value for node in alive for value in node.outputs}
        return replace(
            self.graph,
            outputs=outputs,
            nodes=tuple(alive),
            types={name: kind for name, kind in self.types.items() if name in values},
            constants={name: data for name, data in self.constants.items() if name in needed},
            quant={name: quant for name, quant in self.quant.items() if name in values},
            sources={name: source for name, source in self.sources.items() if name in values},
        )


def rewritten(graph: Graph, change: Callable[[Rewriter, Node], Node | None], kinds: Any = Attributes) -> Graph:
    """Return a graph in which each node whose attributes are of some kinds is replaced by what `change` returns.

    `change` may append other nodes before it; it returns None to drop the node.
    """
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        changed = change(rewriter, node) if isinstance(node.attrs, kinds) else node
        if changed is not None:
            rewriter.keep(changed)
    return rewriter.finish()


@functools.lru_cache(maxsize=1024)
def _reads_of(expr: Expr) -> tuple[frozenset[tuple[int, DType, int]], frozenset[int], frozenset[DType]]:
    """Return what an expression reads.

    Of loads the number of an input, the type of its elements, how many indices it has; the numbers of axes that no
    reduction in it declares; the types of what a kernel computed.
    """
    parts = [*expr.parts()]
    declared = {number for part in parts if part.op == "reduce" for number, _ in part.value.axes}
    return (
        frozenset((part.value, part.dtype, len(part.args)) for part in parts if part.op == "load"),
        frozenset(part.value for part in parts if part.op == "axis") - declared,
        frozenset(part.dtype for part in parts if part.op == "acc"),
    )


def accumulators(expr: Expr) -> frozenset[DType]:
    """Return the types as which an epilogue reads the accumulator: one, or none if it does not read it."""
    return _reads_of(expr)[2]


def check_expression(node: Node, graph: Graph, expr: Expr) -> None:
    """Check that a node's expression fits its inputs and its (first) output.

    Raises:
        AssertionError: it does not; a bug in the pass that made it.
    """
    where, output = f"{node.op} {node.name}", graph.types[node.outputs[0]]
    loads, axes, accumulated = _reads_of(expr)
    assert expr.dtype is output.dtype, f"{where} computes {expr.dtype.label}; its output is {output}"
    for number, dtype, rank in loads:
        assert number < len(node.inputs), f"{where} loads input {number}, but has {len(node.inputs)}"
        kind = graph.types[node.inputs[number]]
        fits = kind.dtype is dtype and len(kind.shape) == rank
        assert fits, f"{where} loads {dtype.label} by {rank} indices from input {number}, which is {kind}"
    last = max(axes, default=-1)
    assert last < len(output.shape), f"{where} has no axis {last}: its output is {output}"
    assert isinstance(node.attrs, WithEpilogue) or not accumulated, f"{where} reads an accumulator but is not a kernel"
