"""The path of a run through a control node, written out as a model without control flow.

The taken branch replaces an If, the executed rounds replace a Loop or a Scan. The reference determines them, step by
step. Nodes are named by their place: `decoder, round 3: MatMul_7`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from mtool.stages.compiling import CompiledModel
from mtool.stages.samples import Array, Sample
from mtool.verification import reference

CONTROL = ("If", "Loop", "Scan")
MOST_NODES = 6000
MOST_ROUNDS = 200
Values = Callable[[onnx.ModelProto, Mapping[str, Array]], Mapping[str, Array]]
"""Runs a model on its inputs; its outputs by name."""


class NotWritten(Exception):
    """The path can't be written out: it is too long, or has an unsupported form."""


@dataclass(slots=True)
class Trace:
    """A path under construction.

    compute: the reference.
    opsets: the model's opsets.
    feeds: the path's input values, by name.
    constants: the path's constants.
    nodes: the path's nodes, in order.
    """

    compute: Values
    opsets: Sequence[onnx.OperatorSetIdProto]
    feeds: Mapping[str, Array]
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def model(self, outputs: Iterable[str]) -> onnx.ModelProto:
        """Return the path as a model with these outputs, and the nodes and constants that they need."""
        results = [*outputs]
        needed, needed_nodes = {*results}, []
        for node in reversed(self.nodes):
            if needed & {*node.output}:
                needed_nodes.append(node)
                needed.update(node.input)
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(data.dtype), data.shape)
            for name, data in self.feeds.items()
            if name in needed
        ]
        outs = [onnx.ValueInfoProto(name=name) for name in results]
        constants = [tensor for name, tensor in self.constants.items() if name in needed]
        graph = helper.make_graph(needed_nodes[::-1], "path", inputs, outs, constants)
        return helper.make_model(graph, opset_imports=[*self.opsets], ir_version=10)

    def value(self, name: str) -> Array:
        """Return a value in this run."""
        if name in self.constants:
            return np.asarray(numpy_helper.to_array(self.constants[name]))
        if name in self.feeds:
            return self.feeds[name]
        model = self.model([name])
        return self.compute(model, {put.name: self.feeds[put.name] for put in model.graph.input})[name]

    def constant(self, name: str, data: Any, dtype: Any) -> str:
        """Add a constant and return its name."""
        self.constants[name] = numpy_helper.from_array(np.asarray(data, dtype), name)
        return name

    def write(self, nodes: Iterable[onnx.NodeProto], names: dict[str, str], where: str) -> None:
        """Append nodes; `names` maps the names in their graph to those in the path, and gets their outputs.

        Raises:
            NotWritten: the path is too long, or has an unsupported form.
        """
        for node in nodes:
            title = f"{where}{node.name or next(iter(node.output), node.op_type)}"
            if node.op_type == "Identity" and not node.domain and node.input[0] in names:
                names[node.output[0]] = names[node.input[0]]
            elif node.op_type in CONTROL and not node.domain:
                {"If": self._branch, "Loop": self._loop, "Scan": self._scan}[node.op_type](node, names, title)
            else:
                self.append(node, names, where, title)

    def append(self, node: onnx.NodeProto, names: dict[str, str], where: str, title: str) -> None:
        """Append one node without subgraphs.

        Raises:
            NotWritten: it has subgraphs, or the path is too long.
        """
        if len(self.nodes) >= MOST_NODES or any(attr.type == AttributeProto.GRAPH for attr in node.attribute):
            raise NotWritten(title)
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = title
        copy.input[:] = [name and names.get(name, name) for name in node.input]
        names.update((name, f"{where}{name}") for name in node.output if name)
        copy.output[:] = [name and names[name] for name in node.output]
        self.nodes.append(copy)

    def _inside(self, graph: onnx.GraphProto, names: Mapping[str, str], where: str) -> dict[str, str]:
        """Append a body and return its values' names in the path."""
        inner = dict(names)
        for tensor in graph.initializer:
            if tensor.name not in inner or inner[tensor.name] == tensor.name:
                inner[tensor.name] = f"{where}{tensor.name}"
                self.constants[inner[tensor.name]] = numpy_helper.from_array(
                    numpy_helper.to_array(tensor), inner[tensor.name]
                )
        self.write(graph.node, inner, where)
        return inner

    def _branch(self, node: onnx.NodeProto, names: dict[str, str], title: str) -> None:
        branch = "then_branch" if self.value(names.get(node.input[0], node.input[0])).item() else "else_branch"
        body = _attribute(node, branch)
        inside = self._inside(body, names, f"{title}, {branch.partition('_')[0]}: ")
        names.update((name, inside[out.name]) for name, out in zip(node.output, body.output, strict=False))

    def _loop(self, node: onnx.NodeProto, names: dict[str, str], title: str) -> None:
        body: onnx.GraphProto = _attribute(node, "body")
        trips, condition, *carried = [*(name and names.get(name, name) for name in node.input), "", ""][
            : max(len(node.input), 2)
        ]
        limit = int(self.value(trips).item()) if trips else None
        going = bool(self.value(condition).item()) if condition else True
        true = self.constant(f"{title}, going", True, bool)
        rounds: list[list[str]] = []
        while going and (limit is None or len(rounds) < limit):
            where = _round(title, len(rounds))
            place = self.constant(f"{where}number", len(rounds), np.int64)
            on, *results = self._results(body, [place, true, *carried], names, where)
            going = on == true or bool(self.value(on).item())
            carried = results[: len(carried)]
            rounds.append(results[len(carried) :])
        self._end(node, names, title, carried, rounds)

    def _scan(self, node: onnx.NodeProto, names: dict[str, str], title: str) -> None:
        body: onnx.GraphProto = _attribute(node, "body")
        count = _attribute(node, "num_scan_inputs")
        inputs = [names.get(name, name) for name in node.input]
        carried, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
        rows = len(body.output) - len(carried)
        axes, turned = (_attribute(node, f"scan_input_{what}") or [0] * count for what in ("axes", "directions"))
        out_axes, out_turned = (
            _attribute(node, f"scan_output_{what}") or [0] * rows for what in ("axes", "directions")
        )
        count = self.value(scanned[0]).shape[axes[0]]
        rounds = []
        for number in range(count):
            where = _round(title, number)
            read = []
            for value, axis, back, put in zip(scanned, axes, turned, body.input[len(carried) :], strict=True):
                place = self.constant(f"{where}{put.name}/place", count - 1 - number if back else number, np.int64)
                read.append(f"{where}{put.name}")
                self.nodes.append(helper.make_node("Gather", [value, place], [read[-1]], read[-1], axis=axis))
            results = self._results(body, [*carried, *read], names, where)
            carried = results[: len(carried)]
            rounds.append(results[len(carried) :])
        self._end(node, names, title, carried, rounds, out_axes, out_turned)

    def _results(self, body: onnx.GraphProto, args: Sequence[str], names: Mapping[str, str], where: str) -> list[str]:
        """Append one round of a body, and return its results' names."""
        inside = self._inside(body, {**names, **dict(zip((put.name for put in body.input), args, strict=True))}, where)
        return [inside[out.name] for out in body.output]

    def _end(
        self, node: onnx.NodeProto, names: dict[str, str], title: str, carried: Sequence[str],
        rounds: Sequence[Sequence[str]], axes: Sequence[int] = (), turned: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Name the results of a node's last round, and append nodes that stack the results of all rounds."""
        names.update(zip(node.output, carried, strict=False))
        for number, output in enumerate(node.output[len(carried) :]):
            rows = [results[number] for results in (rounds[::-1] if turned and turned[number] else rounds)]
            self._stack(output, rows, axes[number] if axes else 0, names, title)

    def _stack(self, output: str, rows: Sequence[str], axis: int, names: dict[str, str], title: str) -> None:
        """Append the nodes that stack rows to one output."""
        if not output:
            return
        if not rows:
            raise NotWritten(title)
        axes = self.constant(f"{title}/{output}/axis", [axis], np.int64)
        parts = [f"{row}/row of {output}" for row in rows]
        modern = next((opset.version for opset in self.opsets if opset.domain in ("", "ai.onnx")), 1) >= 13
        for number, (row, part) in enumerate(zip(rows, parts, strict=True)):
            parts[number] = f"{part} {number}"
            node = helper.make_node("Unsqueeze", [row, axes] if modern else [row], [parts[number]], parts[number])
            if not modern:
                node.attribute.append(helper.make_attribute("axes", [axis]))
            self.nodes.append(node)
        names[output] = f"{title}/{output}"
        self.nodes.append(helper.make_node("Concat", parts, [names[output]], names[output], axis=axis))


def captured(node: onnx.NodeProto) -> list[str]:
    """Return the outer values that a node and its subgraphs read, in order."""
    names = dict.fromkeys(filter(None, node.input))
    for attr in node.attribute:
        if attr.type == AttributeProto.GRAPH:
            defined: Collection[str] = {
                *(put.name for put in attr.g.input),
                *(tensor.name for tensor in attr.g.initializer),
                *(name for inner in attr.g.node for name in inner.output),
            }
            inside = (name for inner in attr.g.node for name in captured(inner))
            outs = (out.name for out in attr.g.output)
            names |= dict.fromkeys(name for name in (*inside, *outs) if name not in defined)
    return [*names]


def _round(title: str, number: int) -> str:
    if number >= MOST_ROUNDS:
        raise NotWritten(title)
    return f"{title}, round {number}: "


def _attribute(node: onnx.NodeProto, name: str) -> Any:
    attribute = next((attr for attr in node.attribute if attr.name == name), None)
    return None if attribute is None else helper.get_attribute_value(attribute)


def path_of(
    model: CompiledModel, network: reference.Network, node: onnx.NodeProto, output: str, sample: Sample
) -> onnx.ModelProto:
    """Return the path of a node, from its inputs to one of its outputs.

    Raises:
        NotWritten: it is too long, has an unsupported form, or an input of it is unknown.
    """
    graph = network.proto.graph
    makers = {name: other for other in graph.node for name in other.output if name}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    fixed = {*constants}  # and values computed from constants only
    for other in graph.node:
        fixed.update(other.output if fixed.issuperset(captured(other)) else ())
    around = set[str]()  # first outputs of the nodes before it that compute constants, or dequantize
    begin, waiting = dict.fromkeys(captured(node)), captured(node)
    while waiting:
        name = waiting.pop()
        maker = makers.get(name)
        if maker is not None and (name in fixed or maker.op_type == "DequantizeLinear"):
            around.add(maker.output[0])
            begin |= dict.fromkeys(filter(None, maker.input))
            waiting += [value for value in maker.input if value and value not in around]
    before = [other for other in graph.node if other.output and other.output[0] in around]
    computed = {name for other in before for name in other.output}
    feeds = known_values(model, network, [name for name in begin if name not in computed | {*constants}], sample)

    def compute(proto: onnx.ModelProto, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return reference.computed(model.path, proto, dict(inputs), options=replace(model.options, constants={}))

    path = Trace(compute, list(network.proto.opset_import), feeds, dict(constants))
    names = {name: name for name in (*feeds, *constants)}
    path.write([*before, node], names, "")
    path.write([other for other in graph.node if output in other.output and output not in node.output], names, "")
    if names.get(output, "") in ("", *feeds, *constants):
        raise NotWritten(output)
    path.nodes.append(helper.make_node("Identity", [names[output]], ["result"], "result"))
    return path.model(["result"])


def known_values(
    model: CompiledModel, network: reference.Network, names: Sequence[str], sample: Sample
) -> dict[str, Array]:
    """Return the reference's values of tensors, including inputs.

    Raises:
        NotWritten: it lacks one of them.
    """
    feeds = {**model.options.constants, **sample}
    missing = [name for name in names if name not in feeds]
    computed: Mapping[str, Array] = {}
    if missing:
        (computed,) = reference.intermediates(model.path, network, [sample], missing, options=model.options)
    values = {**computed, **feeds}
    if any(name not in values for name in names):
        raise NotWritten(", ".join(name for name in names if name not in values))
    return {name: np.asarray(values[name]) for name in names}
