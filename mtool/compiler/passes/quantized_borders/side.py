"""A graph on one side of a body's border, and the grids that its values stand on."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.control import Branches
from mtool.compiler.ir.graph import Move, Rewriter
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.quantize import WHOLE_MOVES, Quantisation
from mtool.compiler.passes.signed_integers import SIGNED

SMALLEST, LARGEST = 1e-30, 1e30
"""Scales between which the float of any integer of 16 bits is quantised to that again."""


@dataclass(frozen=True, slots=True)
class Grid:
    """One scale and one zero point, and the type of the integers."""

    scale: float
    zero_point: int
    integer: DType

    @property
    def parameters(self) -> tuple[Array, Array]:
        """The scale and the zero point as constants."""
        return np.asarray(self.scale, np.float32), np.asarray(self.zero_point, self.integer.numpy)

    @property
    def move(self) -> Move:
        """What makes the integers of floats that stand on it, as the source of a value says it."""
        limits = np.iinfo(self.integer.numpy)
        bits = int(np.asarray(self.scale, np.float32).view(np.uint32))
        return "quantised", (bits, self.zero_point, int(limits.min), int(limits.max))

    def quantised(self, data: Array) -> Array | None:
        """Return constant floats as integers; None: some of them do not stand on the grid."""
        integers = self.rounded(data)
        back = (integers.astype(np.int32) - self.zero_point).astype(np.float32) * self.parameters[0]
        return integers if np.array_equal(back, data) and not np.signbit(data[data == 0]).any() else None

    def rounded(self, data: Array) -> Array:
        """Return constant floats as the nearest integers."""
        limits = np.iinfo(self.integer.numpy)
        with np.errstate(all="ignore"):
            steps = np.rint(data / self.parameters[0]) + self.zero_point
        found: Array = np.nan_to_num(np.clip(steps, limits.min, limits.max), nan=limits.min)
        return found.astype(self.integer.numpy)


class Side(Rewriter):
    """A graph on one side of a border: it may dequantise and quantise what crosses."""

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
        """Return the grid of a node that quantises or dequantises, as it crosses, if it has one that is constant."""
        if node is None or node.op != op or Quantisation.of(node).block_size:
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
            return None  # an integer that its float does not tell
        if self.signed and integer in SIGNED:
            integer, offset = SIGNED[integer]
            point -= offset
        return Grid(scale.item(), point, integer)

    def made_on(self, value: str) -> Grid | None:
        """Return the grid that a value is dequantised from."""
        return self.grid(self.makers.get(value), "DequantizeLinear")

    def read_on(self, value: str) -> Grid | None:
        """Return the grid that all readers of a value quantise it to, if there are any."""
        readers = self.readers.get(value, [])
        grids = {self.grid(node if node.inputs[0] == value else None, "QuantizeLinear") for node in readers}
        return grids.pop() if len(grids) == 1 and value not in self.graph.outputs else None

    def quantised(self, value: str, grid: Grid, like: Node) -> str:
        """Return the integers of a value on a grid: those that it is dequantised from, or new ones."""
        known = self.constants.get(value)
        data = grid.quantised(known) if known is not None else None
        if data is not None:
            return self.constant(f"{value}.quantised", data)
        if self.made_on(value) == grid:
            integers = self.resolve(self.makers[value].inputs[0])
            if self.types[integers].dtype is grid.integer:
                return integers
        made = self.value(f"{value}.quantised", grid.integer, self.types[value].shape)
        self._convert("QuantizeLinear", value, grid, made, like)
        return made

    def dequantise(self, value: str, grid: Grid, output: str, like: Node) -> None:
        """Append what makes floats of integers; readers that quantise those to the same grid read the integers."""
        self._convert("DequantizeLinear", value, grid, output, like)
        for node in self.readers.get(output, []):
            is_same = self.types[node.outputs[0]].dtype is grid.integer
            if is_same and node.inputs[0] == output and self.grid(node, "QuantizeLinear") == grid:
                self.rename(node.outputs[0], value)

    def is_on(self, value: str, grid: Grid, assumed: Collection[str] = ()) -> bool:
        """Whether a value stands on a grid, if those that are `assumed` do.

        It is dequantised from it, a constant, what all branches give, or one of these in another shape.
        """
        node = self.makers.get(value)
        while node is not None and node.op in WHOLE_MOVES and value not in assumed:
            value = node.inputs[0]
            node = self.makers.get(value)
        if value in self.constants:
            return grid.quantised(self.constants[value]) is not None
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
        made = self.node(op, [self.resolve(value), *parameters], [output], Quantisation(), like=like)
        self.makers[output] = made
        self.changed = True
