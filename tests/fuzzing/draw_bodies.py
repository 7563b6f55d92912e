"""Parts of a random network as bodies: nested branches, loops and scans that keep its results."""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.fuzzing.networks import Array

SHARE = 0.4  # of the networks
DEPTH = 3  # of bodies in bodies
HUGE = 1e30  # larger than any sum of inputs: what a condition compares with

Nodes = list[onnx.NodeProto]


def with_bodies(rng: random.Random, model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a model that computes the same with some of its nodes in bodies; None: most stay without."""
    if rng.random() >= SHARE:
        return None
    graph = model.graph
    types = {value.name: value for value in (*graph.input, *graph.value_info, *graph.output)}
    writer = _Writer(rng, types)
    nodes = writer.wrapped([*graph.node], {value.name for value in graph.output}, DEPTH)
    if not writer.count:
        return None
    given = rng.choice(list(graph.input))
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    del made.graph.value_info[:]  # of what is now inside bodies
    made.graph.node.extend([*_conditions(given.name), *nodes])
    made.graph.initializer.extend(numpy_helper.from_array(data, name) for name, data in writer.constants.items())
    return made


def _conditions(given: str) -> Nodes:
    """Return nodes that make what is true and what is false in every run, though only the run knows it."""
    limit = [("nearly_nothing", -HUGE), ("too_much", HUGE)]
    return [
        helper.make_node("Cast", [given], ["real_for_bodies"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["real_for_bodies"], ["sum_for_bodies"], keepdims=0),
        *(helper.make_node("Constant", [], [name], value_float=value) for name, value in limit),
        helper.make_node("Greater", ["sum_for_bodies", "nearly_nothing"], ["true"]),
        helper.make_node("Greater", ["sum_for_bodies", "too_much"], ["false"]),
        helper.make_node("Cast", ["true"], ["one"], to=TensorProto.INT64),
    ]


@dataclass(slots=True)
class _Writer:
    """Puts nodes into bodies.

    types: the type of every value of the network.
    constants: what the bodies need besides.
    count: of bodies that are made.
    """

    rng: random.Random
    types: Mapping[str, onnx.ValueInfoProto]
    constants: dict[str, Array] = field(default_factory=dict)
    count: int = 0

    def wrapped(self, nodes: Nodes, wanted: Collection[str], depth: int) -> Nodes:
        """Return nodes that make what is wanted of these, some of them in bodies."""
        start = self.rng.randrange(len(nodes))
        stop = self.rng.randint(start + 1, len(nodes))
        before, inside, after = nodes[:start], nodes[start:stop], nodes[stop:]
        read_later = {name for node in after for name in reads(node)} | {*wanted}
        results = [name for node in inside for name in node.output if name in read_later]
        if not results or any(name not in self.types for name in results):
            return nodes
        if depth > 1 and self.rng.random() < 0.5:
            inside = self.wrapped(inside, results, depth - 1)
        kinds: list[Callable[[Nodes, Sequence[str]], Nodes]] = [self._branch, self._again, self._rows, self._steps]
        made = self.rng.choice([*kinds, self._scan])(inside, results)
        return [*before, *made, *after]

    def _graph(self, nodes: Nodes, results: Sequence[str], inputs: Sequence[onnx.ValueInfoProto] = (),
               given: Mapping[str, str] | None = None, leading: Sequence[str] = ()) -> onnx.GraphProto:  # fmt: skip
        """Return a body that makes results of other names than they have outside; `given` renames what it reads."""
        self.count += 1
        made = {name for node in nodes for name in node.output if name}
        names = {name: f"b{self.count}_{name}" for name in made} | dict(given or {})
        outputs = [
            *(helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in leading),
            *(self._info(names[name], name) for name in results),
        ]
        return helper.make_graph([_renamed(node, names) for node in nodes], f"body{self.count}", inputs, outputs)

    def _branch(self, nodes: Nodes, results: Sequence[str]) -> Nodes:
        """Take the branch that has them; the other one has zeros, or they are in it too."""
        other = nodes if self.rng.random() < 0.2 else [self._zeros(name) for name in results]
        taken = self.rng.random() < 0.5
        sides = [self._graph(nodes, results), self._graph(other, results)]
        then_branch, else_branch = sides if taken else sides[::-1]
        condition = "true" if taken else "false"
        return [helper.make_node("If", [condition], results, then_branch=then_branch, else_branch=else_branch)]

    def _again(self, nodes: Nodes, results: Sequence[str]) -> Nodes:
        """Compute them again in each of some rounds; the last is what counts."""
        number, first = self._rounds(), [self._first(name) for name in results]
        inputs = [*_round(self.count), *(self._info(f"r{self.count}_{name}", name) for name in results)]
        going = f"on{self.count}"
        on = helper.make_node("Identity", [inputs[1].name], [going])
        body = self._graph([on, *nodes], results, inputs, leading=[going])
        body.output[0].name = f"b{self.count}_{going}"
        return [*number[1], helper.make_node("Loop", [number[0], "", *first], results, body=body)]

    def _rows(self, nodes: Nodes, results: Sequence[str]) -> Nodes:
        """Write them by rows, and read one of those."""
        rounds = self.rng.randint(1, 4)
        number = self._constant(np.asarray(rounds, np.int64))
        inputs, going = _round(self.count), f"on{self.count}"
        on = helper.make_node("Identity", [inputs[1].name], [going])
        body = self._graph([on, *nodes], results, inputs, leading=[going])
        body.output[0].name = f"b{self.count}_{going}"
        rows = [f"rows{self.count}_{name}" for name in results]
        row = self._constant(np.asarray(self.rng.randrange(-rounds, rounds), np.int64))
        picked = [helper.make_node("Gather", [many, row], [one]) for many, one in zip(rows, results, strict=True)]
        return [helper.make_node("Loop", [number, ""], rows, body=body), *picked]

    def _steps(self, nodes: Nodes, results: Sequence[str]) -> Nodes:
        """Compute some of them in a first round and the rest in a second one, as a branch in the loop says."""
        half = self.rng.randint(0, len(nodes))
        first, second = nodes[:half], nodes[half:]
        later = {name for node in second for name in reads(node)} | {*results}
        carried = [name for node in nodes for name in node.output if name in later and name in self.types]
        made = {name for node in first for name in node.output}
        if any(name not in self.types for node in first for name in node.output if name in later):
            return nodes
        self.count += 1
        prefix = f"s{self.count}_"
        inputs = [*_round(self.count), *(self._info(prefix + name, name) for name in carried)]
        kept = {name: prefix + name for name in carried}
        sides = []
        for own, other in ((first, {*carried} - made), (second, {*carried} & made)):
            copies = [helper.make_node("Identity", [kept[name]], [name]) for name in sorted(other)]
            given = {name: kept[name] for name in made if name in kept}
            renamed = [_renamed(node, given) for node in own] if own is second else own
            sides.append(self._graph([*renamed, *copies], carried))
        zero = self._constant(np.asarray(0, np.int64))
        outs = [f"o{prefix}{name}" for name in carried]
        body = helper.make_graph(
            [
                helper.make_node("Equal", [inputs[0].name, zero], [f"{prefix}first"]),
                helper.make_node("If", [f"{prefix}first"], outs, then_branch=sides[0], else_branch=sides[1]),
                helper.make_node("Identity", [inputs[1].name], [f"{prefix}on"]),
            ],
            f"steps{self.count}",
            inputs,
            [
                helper.make_tensor_value_info(f"{prefix}on", TensorProto.BOOL, []),
                *(self._info(out, name) for out, name in zip(outs, carried, strict=True)),
            ],
        )
        number = self._constant(np.asarray(2, np.int64))
        trips = f"{prefix}trips"
        count = helper.make_node("Mul", ["one", number], [trips])
        started = [self._first(name) for name in carried]
        return [count, helper.make_node("Loop", [trips, "", *started], carried, body=body)]

    def _scan(self, nodes: Nodes, results: Sequence[str]) -> Nodes:
        """Read a value by rows that are all the same, along any axis and from either end."""
        made = {name for node in nodes for name in node.output}
        read = [name for node in nodes for name in reads(node) if name in self.types and name not in made]
        if not read or not all(0 not in _shape(self.types[name]) for name in (*read, *results)):
            return self._branch(nodes, results)  # onnxruntime dies of a Scan that turns tensors without elements
        value = self.rng.choice(read)
        rounds, rank = self.rng.randint(1, 4), len(_shape(self.types[value]))
        axis = self.rng.randrange(-rank - 1, rank + 1)
        self.count += 1
        row, many = f"row{self.count}_{value}", f"many{self.count}_{value}"
        axes = self._constant(np.asarray([axis], np.int64))
        stacked = [
            helper.make_node("Unsqueeze", [value, axes], [f"{many}_one"]),
            helper.make_node("Concat", [f"{many}_one"] * rounds, [many], axis=axis),
        ]
        body = self._graph(nodes, results, [self._info(row, value)], {value: row})
        turned = [self.rng.randrange(2) for _ in results]
        out_axes = [self.rng.randrange(-len(_shape(self.types[name])) - 1, len(_shape(self.types[name])) + 1)
                    for name in results]  # fmt: skip
        rows = [f"rows{self.count}_{name}" for name in results]
        place = self._constant(np.asarray(self.rng.randrange(rounds), np.int64))
        scan = helper.make_node(
            "Scan", [many], rows, body=body, num_scan_inputs=1, scan_input_axes=[axis],
            scan_input_directions=[self.rng.randrange(2)], scan_output_axes=out_axes, scan_output_directions=turned,
        )  # fmt: skip
        picked = [
            helper.make_node("Gather", [source, place], [one], axis=along)
            for source, one, along in zip(rows, results, out_axes, strict=True)
        ]
        return [*stacked, scan, *picked]

    def _rounds(self) -> tuple[str, Nodes]:
        """Return the number of rounds, known when it is compiled or to the run alone."""
        number = self._constant(np.asarray(self.rng.choice((1, 2, 3, 20)), np.int64))
        if self.rng.random() < 0.4:
            return number, []
        trips = f"trips_{number}"
        return trips, [helper.make_node("Mul", ["one", number], [trips])]

    def _constant(self, data: Array) -> str:
        name = f"bodies_{len(self.constants)}"
        self.constants[name] = data
        return name

    def _first(self, name: str) -> str:
        """Return a constant of the type of a value."""
        value = self.types[name]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        return self._constant(np.full(_shape(value), self.rng.choice((0, 0, 1)), dtype))

    def _zeros(self, name: str) -> onnx.NodeProto:
        value = self.types[name]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        data = numpy_helper.from_array(np.zeros(_shape(value), dtype))
        return helper.make_node("Constant", [], [name], value=data)

    def _info(self, name: str, like: str) -> onnx.ValueInfoProto:
        """Return the declaration of a value of another's type."""
        made = onnx.ValueInfoProto()
        made.CopyFrom(self.types[like])
        made.name = name
        return made


def _round(number: int) -> list[onnx.ValueInfoProto]:
    """Return the first inputs of a loop's body."""
    return [
        helper.make_tensor_value_info(f"i{number}", TensorProto.INT64, []),
        helper.make_tensor_value_info(f"c{number}", TensorProto.BOOL, []),
    ]


def _shape(value: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def reads(node: onnx.NodeProto) -> set[str]:
    """Return what a node reads, and the bodies in it of what is around them."""
    found = {*filter(None, node.input)}
    for attr in node.attribute:
        if attr.type == AttributeProto.GRAPH:
            own = {value.name for value in attr.g.input} | {name for inner in attr.g.node for name in inner.output}
            inside = {name for inner in attr.g.node for name in reads(inner)}
            found |= inside - own
    return found


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """Return a node whose values have other names, in the bodies in it too."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [names.get(name, name) for name in node.input]
    made.output[:] = [names.get(name, name) for name in node.output]
    for attr in made.attribute:
        if attr.type == AttributeProto.GRAPH:
            inner = [_renamed(one, names) for one in attr.g.node]
            del attr.g.node[:]
            attr.g.node.extend(inner)
            for value in (*attr.g.input, *attr.g.output):
                value.name = names.get(value.name, value.name)
    return made
