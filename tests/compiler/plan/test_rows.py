"""The rows of its inputs that a node reads, compared with the effect of changing each row."""

import math
import random
from dataclasses import replace

import interpreter
import numpy as np
import pytest
from graphs import lowered, model
from onnx import helper

from mtool.compiler.ir import DType, Expr, Graph, Node, TensorType
from mtool.compiler.ir.expr import axis, call, const, identity, load
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.pool2d import Pool2d
from mtool.compiler.kernels.specification import RowReads
from mtool.compiler.plan.region import attributes_of_rows, row_reads

F32 = np.float32


def image_node(seed: int) -> Graph:
    """Return a network of one convolution or pool, on an image of odd sizes."""
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    height, width, channels = chance.randrange(4, 12), chance.randrange(3, 7), chance.choice([1, 2, 3])
    kernel, dilation = chance.randrange(1, 4), chance.randrange(1, 3)
    pads = [chance.randrange(min(2, (kernel - 1) * dilation + 1)) for _ in range(4)]
    attrs = {"strides": [chance.randrange(1, 4), 1], "dilations": [dilation, 1], "pads": pads}
    attrs["kernel_shape"] = [kernel, 1]
    pads[1] = pads[3] = 0
    if (kernel - 1) * dilation + 1 > height:
        attrs["dilations"] = [1, 1]
    if chance.random() < 0.3:
        node = helper.make_node("MaxPool", ["x"], ["y"], **attrs)
        constants = {}
    else:
        node = helper.make_node("Conv", ["x", "w"], ["y"], **attrs)
        constants = {"w": rng.uniform(0.5, 1.5, (2, channels, kernel, 1)).astype(F32)}
    return lowered(model([node], {"x": (F32, (1, channels, height, width))}, ["y"], constants))


def window_of(node: Node) -> Conv2d | Pool2d:
    return Conv2d.of(node) if node.op == "conv2d" else Pool2d.of(node)


def read_rows(node: Node, graph: Graph, row: int) -> set[int]:
    """Return the rows of a node's first input that one row of its result depends on."""
    kind = graph.types[node.inputs[0]]
    rng = np.random.default_rng(5)
    inputs = [graph.constants.get(value, np.zeros(graph.types[value].shape, F32)) for value in node.inputs]
    found = set()
    for at in range(kind.shape[1]):
        inputs[0] = rng.uniform(1, 2, kind.shape).astype(F32)
        before = interpreter.compute(node, graph, inputs)[0][:, row]
        inputs[0] = inputs[0].copy()
        inputs[0][:, at] = 100
        if not np.array_equal(before, interpreter.compute(node, graph, inputs)[0][:, row]):
            found.add(at)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_a_window_reads_the_rows_that_it_depends_on(seed: int) -> None:
    graph = image_node(seed)
    (node,) = (one for one in graph.nodes if one.op in ("conv2d", "pool2d"))
    reads = row_reads(node, graph)
    height = graph.types[node.outputs[0]].shape[1]
    if reads is None:
        assert height < 2
        return
    (only,) = reads
    size = graph.types[node.inputs[0]].shape[1]
    dilation = window_of(node).dilations[0]
    lowest, highest = 0, size
    for row in range(height):
        first, last = only.rows(row, 1)
        inside = {at for at in range(first, last, dilation) if 0 <= at < size}
        assert read_rows(node, graph, row) == inside
        lowest, highest = min(lowest, first), max(highest, last)
    assert only.pad == -lowest or only.pad == window_of(node).pads[0]
    assert only.after == highest - size
    padded = only.pad > 0 or only.after > 0
    lowest_number = -math.inf if node.op == "pool2d" else Conv2d.of(node).pad_value
    assert only.fill == (lowest_number if padded else None)


def test_rows_that_follow_each_other() -> None:
    reads = RowReads(0, stride=2, reach=5, pad=1)
    assert reads.rows(0, 1) == (-1, 4)
    assert reads.rows(3, 4) == (5, 16)


FLOAT = DType.FLOAT32
WHOLE = identity(4)
SHAPES = {
    "x": (1, 6, 5, 3),
    "z": (1, 6, 5, 3),
    "row": (1, 1, 5, 3),
    "tall": (1, 7, 5, 3),
    "channel": (3,),
    "c": (1, 6, 5, 3),
}


def loop(expr: Expr, *inputs: str, shape: tuple[int, ...] = (1, 6, 5, 3)) -> tuple[Node, Graph]:
    types = {name: TensorType(FLOAT, size) for name, size in SHAPES.items()} | {"y": TensorType(FLOAT, shape)}
    constants = {name: np.ones(SHAPES[name], F32) for name in ("channel", "c")}
    node = Node("loop", "loop", inputs, ("y",), Loop(expr=expr))
    return node, Graph("test", ("x", "z", "row", "tall"), ("y",), (node,), types, constants)


def at(*index: Expr) -> Expr:
    return load(0, FLOAT, index)


def two(second: Expr) -> Expr:
    return call("add", at(*WHOLE), second)


ZERO = const(0, DType.INT32)
FROM_BELOW = call("sub", const(5, DType.INT32), axis(1), value="index")
BY_ROW = {
    "an image": (loop(at(*WHOLE), "x"), (0,)),
    "two images": (loop(two(load(1, FLOAT, WHOLE)), "x", "z"), (0, 1)),
    "one image twice": (loop(two(at(axis(0), axis(1), ZERO, ZERO)), "x"), (0,)),
    "a vector": (loop(two(load(1, FLOAT, (axis(3),))), "x", "channel"), (0,)),
    "one row for all": (loop(two(load(1, FLOAT, (ZERO, ZERO, axis(2), axis(3)))), "x", "row"), (0,)),
    "a pixel of another": (loop(two(load(1, FLOAT, (ZERO, const(3, DType.INT32), ZERO, ZERO))), "x", "z"), (0,)),
    "other columns": (loop(at(axis(0), axis(1), call("sub", const(4, DType.INT32), axis(2)), axis(3)), "x"), (0,)),
}  # fmt: skip
NOT_BY_ROW = {
    "upside down": loop(at(axis(0), FROM_BELOW, axis(2), axis(3)), "x"),
    "its number": loop(two(call("cast", axis(1), dtype=FLOAT)), "x"),
    "the row's number as a column": loop(at(axis(0), axis(1), axis(1), axis(3)), "x"),
    "its row and another": loop(two(at(axis(0), ZERO, axis(2), axis(3))), "x"),
    "another and its row": loop(call("add", at(axis(0), ZERO, axis(2), axis(3)), at(*WHOLE)), "x"),
    "a taller image": loop(two(load(1, FLOAT, WHOLE)), "x", "tall"),
    "a constant image": loop(two(load(1, FLOAT, WHOLE)), "x", "c"),
    "two images at once": loop(at(*WHOLE), "x", shape=(2, 6, 5, 3)),
    "one row": loop(at(*WHOLE), "row", shape=(1, 1, 5, 3)),
    "no image": loop(load(0, FLOAT, (axis(1),)), "channel", shape=(1, 3)),
}


@pytest.mark.parametrize("name", BY_ROW)
def test_loops_that_read_the_row_that_they_make(name: str) -> None:
    (node, graph), inputs = BY_ROW[name]
    assert row_reads(node, graph) == tuple(RowReads(number) for number in inputs)


@pytest.mark.parametrize("name", NOT_BY_ROW)
def test_loops_that_read_other_rows(name: str) -> None:
    assert row_reads(*NOT_BY_ROW[name]) is None


def test_a_part_has_the_attributes_of_its_rows() -> None:
    for seed in range(40):
        graph = image_node(seed)
        (node,) = (one for one in graph.nodes if one.op in ("conv2d", "pool2d"))
        reads = row_reads(node, graph)
        if reads is None or node.op != "conv2d":
            continue
        height = graph.types[node.outputs[0]].shape[1]
        macs = 60 * height
        own = replace(Conv2d.of(node), macs=macs)
        part = attributes_of_rows(replace(node, attrs=own), graph, 1)
        assert isinstance(part, Conv2d)
        assert part.macs == macs // height and part.pads[0] == part.pads[2] == 0
        assert part.pads[1::2] == own.pads[1::2]
        whole = attributes_of_rows(replace(node, attrs=own), graph, height)
        assert isinstance(whole, Conv2d) and whole.macs == macs


def test_what_is_a_part_already_is_not_cut_again() -> None:
    graph = image_node(0)
    rewriter = Rewriter(graph)
    (node,) = (one for one in graph.nodes if one.op in ("conv2d", "pool2d"))
    assert row_reads(node, graph) is not None
    assert row_reads(replace(node, whole="c"), rewriter.finish()) is None
