"""A graph that is edited node by node; the cost of an edit does not depend on the size of the graph."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from mtool.base.errors import ModelError
from mtool.compiler.ir.graph import Graph, Rewriter
from mtool.compiler.ir.node import Node, View
from mtool.compiler.ir.types import DType

MAX_CHANGES, MAX_CHANGES_PER_NODE = 1000, 100  # changes of a graph, and for each of its nodes
Position = tuple[int, ...]
"""A node's position in the order; positions are compared as tuples are."""


class Editor(Rewriter):
    """An editable graph: producers and readers of each value stay up to date, and unread nodes are removed.

    `removed` and `added` are the nodes that the last change removed and added. Changes are counted, so that a pass
    that would never end is stopped.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.changes = 0
        self.makers: dict[str, Node] = {}
        self.removed: list[Node] = []
        self.added: list[Node] = []
        self._by_name: dict[str, Node] = {}
        self._positions: dict[str, Position] = {}
        self._readers: dict[str, dict[str, dict[str, Node]]] = {}  # value -> operator -> name
        self._results = set(graph.outputs)
        self._new_values: list[str] = []
        self._names = set()
        self._inputs = set(graph.inputs)
        for number, node in enumerate(graph.nodes):
            self._insert(node, (number,))

    def maker(self, value: str, op: str) -> Node | None:
        """Return the node that writes a value, if it is an `op`, but not a view of a part."""
        node = self.makers.get(value)
        if node is None or node.op != op:
            return None
        is_part = isinstance(node.attrs, View) and self.types[value].count < self.types[node.inputs[0]].count
        return None if is_part else node

    def readers(self, value: str, op: str = "") -> Collection[Node]:
        """Return the nodes that read a value, only those with operator `op` if given; each once, in no order."""
        by_op = self._readers.get(value, {})
        if op:
            return by_op.get(op, {}).values()
        return [node for nodes in by_op.values() for node in nodes.values()]

    def reader_ops(self, value: str) -> Collection[str]:
        """Return the operators that read a value."""
        return self._readers.get(value, {}).keys()

    def only_reader(self, value: str) -> Node | None:
        """Return a value's only reader; None: it has none or several, or is an output of the graph."""
        by_op = self._readers.get(value, {})
        if len(by_op) != 1 or self.is_output(value):
            return None
        (nodes,) = by_op.values()
        return next(iter(nodes.values())) if len(nodes) == 1 else None

    def is_output(self, value: str) -> bool:
        """Whether a value is an output of the graph."""
        return value in self._results

    def has(self, node: Node) -> bool:
        """Whether the graph still contains a node, unchanged."""
        return self._by_name.get(node.name) is node

    def named(self, name: str) -> Node | None:
        """Return the node with this name, if there is one."""
        return self._by_name.get(name)

    def position(self, node: Node) -> Position:
        """Return a node's position in the order."""
        return self._positions[node.name]

    def in_order(self) -> list[Node]:
        """Return the nodes in execution order."""
        return sorted(self._by_name.values(), key=self.position)

    def value(self, stem: str, dtype: DType, shape: Iterable[int]) -> str:
        """Add a value and return its name; it is removed if the change leaves it unread."""
        self._new_values.append(super().value(stem, dtype, shape))
        return self._new_values[-1]

    def change(
        self, node: Node, function: Callable[["Editor", Node], object], without: Node | None = None
    ) -> Sequence[Node]:
        """Replace a node by the nodes that `function` appends, apply its renames, and return the new nodes.

        `without` is another node to remove.
        """
        self.nodes, self._new_values = [], []
        function(self, node)
        self._exchange(node, self.nodes, without)
        for old, new in self._renamed.items():
            self._redirect(old, new)
        self._renamed.clear()
        self._sweep()
        self._forget(self._new_values)
        self._names.clear()
        return self.nodes

    def put(self, old: Node, new: Node, without: Node | None = None) -> None:
        """Replace a node; remove `without`, and whatever is unread afterwards."""
        self._exchange(old, [new], without)
        self._sweep()

    def finish(self) -> Graph:
        """Return the graph."""
        self.nodes = self.in_order()
        return super().finish()

    def _is_used(self, name: str) -> bool:
        return name in self._by_name or super()._is_used(name)

    def _exchange(self, old: Node, new: Sequence[Node], without: Node | None) -> None:
        self.changes += 1
        if self.changes > MAX_CHANGES + MAX_CHANGES_PER_NODE * len(self.graph.nodes):
            where = ", ".join(old.origins) or old.name
            raise ModelError(
                f"the graph is still changing after {self.changes} rewrites; the last one was at {where}",
                details=[f"{old.op} -> {', '.join(node.op for node in new)}"],
                hint="this is a bug in mtool: please report it with the model",
            )
        self.removed, self.added = [], []
        if without is not None:
            self._remove(without)
        position = self._remove(old)
        for number, node in enumerate(new):
            self._insert(node, position if len(new) == 1 else (*position, number))

    def _insert(self, node: Node, position: Position) -> None:
        self.added.append(node)
        self._by_name[node.name] = node
        self._positions[node.name] = position
        self.makers.update(dict.fromkeys(filter(None, node.outputs), node))
        for value in filter(None, node.inputs):
            self._readers.setdefault(value, {}).setdefault(node.op, {})[node.name] = node

    def _remove(self, node: Node) -> Position:
        self.removed.append(node)
        del self._by_name[node.name]
        self._unused.release(node.name)
        for value in filter(None, node.outputs):
            del self.makers[value]
        for value in dict.fromkeys(filter(None, node.inputs)):
            by_op = self._readers[value]
            del by_op[node.op][node.name]
            if not by_op[node.op]:
                del by_op[node.op]
            if not by_op:
                del self._readers[value]
        return self._positions.pop(node.name)

    def _redirect(self, old: str, new: str) -> None:
        """Replace a value by another in all readers and in the graph's outputs."""
        for node in self.readers(old):
            position = self._remove(node)
            self._insert(replace(node, inputs=tuple(new if value == old else value for value in node.inputs)), position)
        if old in self._results:
            self.outputs = tuple(new if value == old else value for value in self.outputs)
            self._results = set(self.outputs)

    def _sweep(self) -> None:
        """Remove what has become unread."""
        waiting = [*self.removed, *self.added]
        values: list[str] = []
        while waiting:
            node = waiting.pop()
            is_read = any(value in self._readers or value in self._results for value in node.outputs)
            if self.has(node) and not is_read:
                self._remove(node)
            if not self.has(node):
                values += [*node.outputs, *node.inputs]
                makers = [self.makers[value] for value in node.inputs if value in self.makers]
                waiting += [maker for maker in makers if not any(v in self._readers for v in maker.outputs)]
        self._forget(values)

    def _forget(self, values: Iterable[str]) -> None:
        """Drop the records of removed values."""
        for value in values:
            if value in self.makers or value in self._readers or value in self._results or value in self._inputs:
                continue
            if self.types.pop(value, None) is not None:
                self.constants.pop(value, None)
                self.quant.pop(value, None)
                self.sources.pop(value, None)
                self._unused.release(value)
