"""Quantized values: move them across the borders of bodies as integers, and make unsigned activations signed.

A model in QDQ form dequantizes before an If or a Loop and quantizes again inside. Here the dequantization of a body's
inputs moves into it, the dequantization of its outputs moves out of it, and a quantization of its outputs moves in, if
everything on the other side has the same scale and zero point. No result changes.

Activations in uint8 become int8 with the same scale, uint16 becomes int16: SIMD schedules compute with signed numbers.
A quantization rounds before it adds the zero point, so q - 128 with a zero point 128 less is the same number.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, Branches, Carried, Control, DType, Graph, Node, Rounds, has_bodies
from mtool.compiler.ir.graph import Move, Rewriter, quantized, rounded
from mtool.compiler.kernels.target import Target
from mtool.compiler.operators.quantize import WHOLE_MOVES, Quantization
from mtool.compiler.passes.control_flow import prune

SIGNED = {DType.UINT8: (DType.INT8, 128), DType.UINT16: (DType.INT16, 32768)}  # the new type, and the difference


def needs_signed(target: Target) -> bool:
    """Whether a target's schedules need signed integers."""
    return target.has_dsp or target.has_mve or target.has_rvv


def use_signed_integers(graph: Graph, target: Target) -> Graph:
    """Convert the unsigned values between QuantizeLinear and DequantizeLinear to signed ones.

    The model's inputs and outputs stay unsigned: they are requantized, which later passes recognize as a shift.
    """
    if not needs_signed(target):
        return graph
    consumers, producers = graph.consumers(), graph.producers()
    moved = {value for value in graph.types if _is_moved(graph, value, producers.get(value), consumers.get(value, []))}
    rewriter = Rewriter(graph)
    kinds = {value: graph.types[value] for value in sorted(moved)}
    inner = {
        value: rewriter.value(f"{value}.signed", SIGNED[kind.dtype][0], kind.shape) for value, kind in kinds.items()
    }
    for value, signed in inner.items():
        if value in rewriter.sources:
            offset = SIGNED[graph.types[value].dtype][1]
            rewriter.sources[signed] = rewriter.sources[value].then(("signed", (offset,)))
    for value in graph.inputs:
        if value in moved:
            _requantize(rewriter, consumers[value][0], value, inner[value], inwards=True)
    for node in graph.nodes:
        if node.op == "DequantizeLinear" and node.inputs[0] in moved:
            _append(rewriter, node, inner[node.inputs[0]], node.outputs[0])
        elif node.op == "QuantizeLinear" and node.outputs[0] in moved:
            _append(rewriter, node, node.inputs[0], inner[node.outputs[0]])
            if node.outputs[0] in graph.outputs:
                _requantize(rewriter, node, inner[node.outputs[0]], node.outputs[0], inwards=False)
        else:
            rewriter.keep(node)
    return rewriter.finish()


def _is_moved(graph: Graph, value: str, producer: Node | None, readers: list[Node]) -> bool:
    """Whether a value is uint8 or uint16, an input or quantized, and read only by dequantizations."""
    if graph.types[value].dtype not in SIGNED or value in graph.constants:
        return False
    is_quantized = producer is not None and _has_parameters(graph, producer, "QuantizeLinear")
    is_input = value in graph.inputs and bool(readers)
    return (is_quantized or is_input) and all(_has_parameters(graph, node, "DequantizeLinear") for node in readers)


def _has_parameters(graph: Graph, node: Node, op: str) -> bool:
    """Whether a node is this operator with one constant scale and zero point."""
    return node.op == op and all(
        value in graph.constants and graph.constants[value].size == 1 for value in node.inputs[1:] if value
    )


def _append(rewriter: Rewriter, node: Node, source: str, output: str) -> None:
    """Append a quantization or dequantization with its zero point reduced as much as its numbers."""
    point = _signed_point(rewriter, node)
    rewriter.nodes.append(replace(node, inputs=(rewriter.resolve(source), node.inputs[1], point), outputs=(output,)))


def _signed_point(rewriter: Rewriter, node: Node) -> str:
    point = rewriter.constants[_point(rewriter, node)]
    kind, offset = SIGNED[DType.of(point.dtype)]
    return rewriter.constant(f"{node.name}/zero_point", (point.astype(np.int32) - offset).astype(kind.numpy))


def _point(rewriter: Rewriter, node: Node) -> str:
    if len(node.inputs) > 2 and node.inputs[2]:
        return node.inputs[2]
    value = node.inputs[0] if node.op == "DequantizeLinear" else node.outputs[0]
    zeros = np.zeros(rewriter.types[node.inputs[1]].shape, rewriter.types[value].dtype.numpy)
    return rewriter.constant(f"{node.name}/zero_point", zeros)


def _requantize(rewriter: Rewriter, like: Node, source: str, output: str, *, inwards: bool) -> None:
    """Append a dequantization of unsigned and a quantization to signed numbers, or the reverse."""
    scale = like.inputs[1]
    points = (_point(rewriter, like), _signed_point(rewriter, like))
    old, new = points if inwards else points[::-1]
    real = rewriter.value(f"{source}.real", DType.FLOAT32, rewriter.types[source].shape)
    attrs = Quantization(axis=Quantization.of(like).axis)
    rewriter.node("DequantizeLinear", [source, scale, old], [real], attrs, like=like)
    rewriter.node("QuantizeLinear", [real, scale, new], [output], attrs, like=like)


SMALLEST, LARGEST = 1e-30, 1e30
"""The range of scales with which any dequantized 16-bit integer is quantized to itself again."""


@frozen
class Grid:
    """A quantization: one scale, one zero point, and the type of the integers."""

    scale: float
    zero_point: int
    integer: DType

    @property
    def parameters(self) -> tuple[Array, Array]:
        """The scale and the zero point as constants."""
        return np.asarray(self.scale, np.float32), np.asarray(self.zero_point, self.integer.numpy)

    @property
    def move(self) -> Move:
        """The move from floats on this grid to integers, as in the source of a value."""
        return quantized(self.parameters[0], self.zero_point, self.integer)

    def quantized(self, data: Array) -> Array | None:
        """Return constant floats as integers; None: some of them are not on the grid."""
        integers = rounded(data, self.parameters[0], self.zero_point, self.integer)
        back = (integers.astype(np.int32) - self.zero_point).astype(np.float32) * self.parameters[0]
        return integers if np.array_equal(back, data) and not np.signbit(data[data == 0]).any() else None


class Side(Rewriter):
    """A graph on one side of a border, which may dequantize and quantize the values that cross it."""

    def __init__(self, graph: Graph, signed: bool) -> None:
        super().__init__(graph)
        self.signed = signed
        self.changed = False
        self.makers = graph.producers()
        self.readers = graph.consumers()

    def keep_all(self) -> None:
        """Append all nodes of the graph."""
        for node in self.graph.nodes:
            self.keep(node)

    def between(self, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        """Return the graph with other inputs and outputs."""
        self.graph, self.outputs = replace(self.graph, inputs=tuple(inputs)), tuple(outputs)
        return self.finish()

    def grid(self, node: Node | None, op: str) -> Grid | None:
        """Return the constant grid on which a quantizing or dequantizing node's integers cross, if there is one."""
        if node is None or node.op != op or Quantization.of(node).block_size:
            return None
        parameters = [value for value in node.inputs[1:] if value]
        if any(value not in self.constants or self.constants[value].size != 1 for value in parameters):
            return None
        ends = self.types[node.inputs[0]].dtype, self.types[node.outputs[0]].dtype
        real, integer = ends if op == "QuantizeLinear" else ends[::-1]
        scale = self.constants[parameters[0]]
        point = int(self.constants[parameters[1]].item()) if len(parameters) > 1 else 0
        if real is not DType.FLOAT32 or scale.dtype != np.float32 or not SMALLEST < scale.item() < LARGEST:
            return None
        if not integer.is_integer or integer.size > 2:
            return None  # its float does not determine the integer
        if self.signed and integer in SIGNED:
            integer, offset = SIGNED[integer]
            point -= offset
        return Grid(scale.item(), point, integer)

    def made_on(self, value: str) -> Grid | None:
        """Return the grid that a value is dequantized from."""
        return self.grid(self.makers.get(value), "DequantizeLinear")

    def read_on(self, value: str) -> Grid | None:
        """Return the grid that all readers of a value quantize it to, if there are any."""
        readers = self.readers.get(value, [])
        grids = {self.grid(node if node.inputs[0] == value else None, "QuantizeLinear") for node in readers}
        return grids.pop() if len(grids) == 1 and value not in self.graph.outputs else None

    def quantized(self, value: str, grid: Grid, like: Node) -> str:
        """Return a value's integers on a grid: those that it is dequantized from, or new ones."""
        constant = self.constants.get(value)
        data = grid.quantized(constant) if constant is not None else None
        if data is not None:
            return self.constant(f"{value}.quantized", data)
        if self.made_on(value) == grid:
            integers = self.resolve(self.makers[value].inputs[0])
            if self.types[integers].dtype is grid.integer:
                return integers
        integers = self.value(f"{value}.quantized", grid.integer, self.types[value].shape)
        self._convert("QuantizeLinear", value, grid, integers, like)
        return integers

    def dequantize(self, value: str, grid: Grid, output: str, like: Node) -> None:
        """Append a dequantization; readers that quantize to the same grid then read the integers."""
        self._convert("DequantizeLinear", value, grid, output, like)
        for node in self.readers.get(output, []):
            is_same = self.types[node.outputs[0]].dtype is grid.integer
            if is_same and node.inputs[0] == output and self.grid(node, "QuantizeLinear") == grid:
                self.rename(node.outputs[0], value)

    def is_on(self, value: str, grid: Grid, assumed: Collection[str] = ()) -> bool:
        """Whether a value is on a grid, if the values in `assumed` are.

        It is dequantized from the grid, a constant, an output of all branches, or one of these in another shape.
        """
        node = self.makers.get(value)
        while node is not None and node.op in WHOLE_MOVES and value not in assumed:
            value = node.inputs[0]
            node = self.makers.get(value)
        if value in self.constants:
            return grid.quantized(self.constants[value]) is not None
        if node is None or not isinstance(node.attrs, Branches):
            return value in assumed or self.made_on(value) == grid
        return all(
            Side(body, self.signed).is_on(
                body.outputs[node.outputs.index(value)],
                grid,
                {inner for inner, outer in zip(body.inputs, node.inputs[1:], strict=True) if outer in assumed},
            )
            for body in node.attrs.bodies
        )

    def _convert(self, op: str, value: str, grid: Grid, output: str, like: Node) -> None:
        scale, point = grid.parameters
        parameters = [self.constant(f"{output}/scale", scale), self.constant(f"{output}/zero_point", point)]
        self.makers[output] = self.node(op, [self.resolve(value), *parameters], [output], Quantization(), like=like)
        self.changed = True


MAX_SWEEPS = 40
"""The number of iterations over a graph: facts about one border may imply more about earlier and inner ones."""


def propagate_quantization(graph: Graph, target: Target) -> Graph:
    """Pass quantized values across the borders of bodies as integers, at every depth.

    Unsigned values cross as signed ones where `use_signed_integers` makes them signed.
    """
    for _ in range(MAX_SWEEPS):
        after = _crossed(graph, needs_signed(target))
        if after is graph:
            break
        graph = prune(after)
    return graph


def _crossed(graph: Graph, signed: bool) -> Graph:
    """Return a graph after one more step of each kind; the same graph if none applies."""
    if not has_bodies(graph):
        return graph
    side = Side(graph, signed)
    for node in graph.nodes:
        if not isinstance(node.attrs, Control):
            side.keep(node)
            continue
        bodies = [_crossed(body, signed) for body in node.attrs.bodies]
        if any(new is not old for new, old in zip(bodies, node.attrs.bodies, strict=True)):
            node = replace(node, attrs=node.attrs.with_bodies(bodies))
            side.changed = True
        _Border(side, node).cross()
    return side.finish() if side.changed else graph


class _Border:
    """A control node, the outer graph and the bodies; their inputs and outputs change types together."""

    def __init__(self, side: Side, node: Node) -> None:
        assert isinstance(node.attrs, Control)
        self.side, self.node, self.attrs = side, node, node.attrs
        self.bodies = [Side(body, side.signed) for body in node.attrs.bodies]
        self.inputs, self.outputs = [*node.inputs], [*node.outputs]
        self.ins = [[*body.inputs] for body in node.attrs.bodies]
        self.outs = [[*body.outputs] for body in node.attrs.bodies]
        self.dequantized: list[tuple[str, Grid, str]] = []  # integers, and the values that they are dequantized to

    def cross(self) -> None:
        """Append the changed node."""
        attrs = self.attrs
        if isinstance(attrs, Branches):
            for index in range(1, len(self.inputs)):
                self._read(index, index - 1)
            for body in self.bodies:
                body.keep_all()
            for index in range(len(self.outputs)):
                self._quantize_output(index, index)
        elif isinstance(attrs, Rounds):
            attrs = self._cross_rounds(attrs)
        attrs = attrs.with_bodies(map(Side.between, self.bodies, self.ins, self.outs))
        self.side.keep(replace(self.node, inputs=tuple(self.inputs), outputs=tuple(self.outputs), attrs=attrs))
        for value, grid, output in self.dequantized:
            self.side.dequantize(value, grid, output, self.node)

    def _cross_rounds(self, attrs: Rounds) -> Rounds:
        others = len(self.inputs) - attrs.first_row
        for inside in range(others):
            self._read(attrs.first_row + inside, inside, whole=inside >= len(attrs.backwards))
        (body,) = self.bodies
        ends = [self._carry(attrs, number, others + 1 + number) for number in range(len(attrs.carried))]
        body.keep_all()
        results = sum(value.is_output for value in attrs.carried)
        for number in range(len(attrs.reversed)):
            self._quantize_output(results + number, attrs.goes_on + number, attrs)
        carried = (
            value if grid is None else self._carried(attrs, number, value, grid)
            for number, (value, grid) in enumerate(zip(attrs.carried, ends, strict=True))
        )
        return replace(attrs, carried=tuple(carried))

    def _read(self, index: int, inside: int, *, whole: bool = True) -> None:
        """Move the dequantization of an input, read by rows or `whole`, into the bodies, including constants."""
        value = self.inputs[index]
        maker, grid = self.side.makers.get(value), self.side.made_on(value)
        if maker is None or maker.op != "DequantizeLinear":
            return
        constants = [self.side.constants.get(operand) for operand in maker.inputs if operand]
        is_constant = whole and all(data is not None for data in constants)
        if not is_constant and grid is None:
            return
        for body, ins in zip(self.bodies, self.ins, strict=True):
            name = ins[inside]
            kind = body.types[name]
            if is_constant:
                ins[inside] = body.value(f"{name}.unread", kind.dtype, kind.shape)
                copies = [operand and body.constant(operand, self.side.constants[operand]) for operand in maker.inputs]
                body.node(maker.op, copies, [name], maker.attrs, like=maker)
            elif grid is not None:
                ins[inside] = body.value(f"{name}.quantized", grid.integer, kind.shape)
                body.dequantize(ins[inside], grid, name, maker)
        if grid is not None and not is_constant:
            self.inputs[index] = self.side.quantized(value, grid, maker)
        self.side.changed = True

    def _quantize_output(self, index: int, inside: int, attrs: Rounds | None = None) -> None:
        """Convert an output of the node to integers, if all bodies dequantize it, or all readers quantize it."""
        output = self.outputs[index]
        results = [(body, outs[inside]) for body, outs in zip(self.bodies, self.outs, strict=True)]
        grids = [body.made_on(value) for body, value in results]
        grid = next((grid for grid in grids if grid is not None), None)
        if grid is None or not all(body.is_on(value, grid) for body, value in results):
            grid = self.side.read_on(output)
        if grid is None or (attrs is not None and not attrs.is_counted and grid.zero_point != 0):
            return  # rows that are not written are 0
        for body, outs in zip(self.bodies, self.outs, strict=True):
            outs[inside] = body.quantized(outs[inside], grid, self.node)
        self._leave(index, grid)

    def _leave(self, index: int, grid: Grid) -> None:
        """Convert an output of the node to integers, and dequantize it for its readers."""
        output = self.outputs[index]
        self.outputs[index] = self.side.value(f"{output}.quantized", grid.integer, self.side.types[output].shape)
        if output in self.side.sources:
            self.side.sources[self.outputs[index]] = self.side.sources[output].then(grid.move)
        self.dequantized.append((self.outputs[index], grid, output))
        self.side.changed = True

    def _carry(self, attrs: Rounds, number: int, inside: int) -> Grid | None:
        """Pass a carried value to the body as integers; return their grid, or None if it is unchanged."""
        (body,), carried, name = self.bodies, attrs.carried[number], self.ins[0][inside]
        last = self.outs[0][len(self.outs[0]) - len(attrs.carried) + number]
        read, written = body.read_on(name), body.made_on(last)
        initial = self.side.made_on(self.inputs[attrs.places[number][0]]) if carried.is_given else None
        for grid in dict.fromkeys([written, read, initial]):
            if grid is None:
                continue
            stays = self._starts_on(attrs, number, grid) and body.is_on(last, grid, {name})  # from the beginning on
            leaves = not carried.is_output or stays or (attrs.is_counted and body.is_on(last, grid))
            if not leaves:
                leaves = self.side.read_on(self.node.outputs[attrs.places[number][1]]) == grid
            if leaves and (stays or grid == read):
                kind = body.types[name]
                self.ins[0][inside] = body.value(f"{name}.quantized", grid.integer, kind.shape)
                body.dequantize(self.ins[0][inside], grid, name, self.node)
                self.side.changed = True
                return grid
        return None

    def _starts_on(self, attrs: Rounds, number: int, grid: Grid) -> bool:
        """Whether the initial value of a carried value is on a grid."""
        carried = attrs.carried[number]
        if carried.is_given:
            return self.side.is_on(self.inputs[attrs.places[number][0]], grid)
        return carried.initial is None or grid.quantized(carried.initial) is not None

    def _carried(self, attrs: Rounds, number: int, carried: Carried, grid: Grid) -> Carried:
        """Convert a carried value to integers, from its initial to its final value."""
        index = len(self.outs[0]) - len(attrs.carried) + number
        self.outs[0][index] = self.bodies[0].quantized(self.outs[0][index], grid, self.node)
        if carried.is_output:
            self._leave(attrs.places[number][1], grid)
        if carried.is_given:
            first = attrs.places[number][0]
            self.inputs[first] = self.side.quantized(self.inputs[first], grid, self.node)
            return carried
        kind = self.bodies[0].types[self.outs[0][index]]
        data = np.zeros(kind.shape, np.float32) if carried.initial is None else carried.initial
        return replace(carried, initial=rounded(data, grid.parameters[0], grid.zero_point, grid.integer))
