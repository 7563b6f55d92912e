#!/usr/bin/env python3
"""Write the table of public networks' layers: operators, types, shapes, strides, pads, residuals; no weights.

    scripts/layers_table.py FOLDER ...      # of .onnx and .tflite files; writes tests/zoo/layers.tsv

Of layers that differ in height and width alone the smallest is taken. Rows that are there already stay.
tests/zoo/test_layers.py compiles models with random weights made from the table.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from mtool.base.errors import MtoolError
from mtool.compiler import frontend
from mtool.compiler.ir import Graph, Node
from mtool.compiler.operators.window import Pool, Window
from mtool.compiler.passes.fold_pads import fold_pads

TABLE = Path(__file__).parents[1] / "tests" / "zoo" / "layers.tsv"
HEAD = ["op", "type", "input", "outputs", "kernel", "strides", "pads", "dilations", "group", "residual"]
MATRICES = ("MatMul", "Gemm", "MatMulInteger")
ELEMENTWISE = ("Add", "Mul", "Softmax")
PASSED = ("QuantizeLinear", "DequantizeLinear", "Relu", "Clip", "Transpose", "Reshape", "Cast")


def rows(graph: Graph) -> Iterator[tuple[str, ...]]:
    """Yield a row for each layer that has a kernel."""
    readers, makers = graph.consumers(), graph.producers()
    for node in graph.nodes:
        if not node.inputs or node.inputs[0] in graph.constants:
            continue
        x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        if not x.dtype.is_float and not x.dtype.is_integer:
            continue
        maker = makers.get(node.inputs[0])
        while maker is not None and maker.op in ("Transpose", "Reshape"):
            maker = makers.get(maker.inputs[0])
        is_quantized = not x.dtype.is_float or (maker is not None and maker.op == "DequantizeLinear")
        head = (node.op, "int8" if is_quantized else "float32", _sizes(x.shape))
        if isinstance(node.attrs, Window) and len(x.shape) in (3, 4):
            window, op = node.attrs, node.op
            if isinstance(window, Pool):
                op = {"max": "MaxPool", "average": "AveragePool"}.get(window.kind, "")
            if op in ("Conv", "ConvTranspose", "MaxPool", "AveragePool"):
                pads = window.pads if len(window.pads) == 2 * window.rank else (*window.pads, *window.pads)
                shape = [window.kernel, window.strides, pads, window.dilations]
                group, added = str(getattr(window, "group", 1)), str(int(_is_added(node, graph, readers)))
                yield (op, *head[1:], str(y.shape[1]), *map(_sizes, shape), group, added)
        elif node.op in MATRICES and graph.types[node.inputs[1]].shape:
            yield ("MatMul", *head[1:], str(y.shape[-1]), "", "", "", "", "", "0")
        elif node.op in ELEMENTWISE and x.shape == y.shape and x.shape:
            yield (*head, "", "", "", "", "", "", "0")
        elif node.op in ("LSTM", "GRU") and len(x.shape) == 3:
            yield (*head, str(graph.types[node.inputs[2]].shape[-1]), "", "", "", "", "", "0")


def smallest(lines: set[str]) -> set[str]:
    """Return the lines without those that differ from a smaller one in height and width alone."""
    found: dict[tuple[str, ...], tuple[int, str]] = {}
    for line in sorted(lines):
        row = line.split("\t")
        shape = [int(size) for size in row[2].split("x")]
        is_image = bool(row[4])
        key = (*row[:2], *map(str, shape[:2] if is_image else shape), *row[3:])
        size = (math.prod(shape), line)
        found[key] = min(size, found.get(key, size))
    return {line for _, line in found.values()}


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _is_added(node: Node, graph: Graph, readers: dict[str, list[Node]]) -> bool:
    """Whether a layer's output is added to another tensor, perhaps behind what quantizes or limits it."""
    found = readers.get(node.outputs[0], [])
    while len(found) == 1 and found[0].op in PASSED:
        found = readers.get(found[0].outputs[0], [])
    return any(one.op == "Add" and not any(value in graph.constants for value in one.inputs) for one in found)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    given = parser.parse_args()
    lines = set(TABLE.read_text().splitlines()[1:]) if TABLE.exists() else set()
    found = [path for folder in given.folders for path in sorted(folder.rglob("*"))]
    files = [path for path in found if path.suffix in (".onnx", ".tflite")]
    read = 0
    for path in files:
        try:
            graph = fold_pads(frontend.load(path))
        except MtoolError as refused:
            print(f"{path.name}: {refused}", file=sys.stderr)
            continue
        read += 1
        lines |= {"\t".join(row) for row in rows(graph)}
    lines = smallest(lines)
    TABLE.write_text("\n".join(["\t".join(HEAD), *sorted(lines)]) + "\n")
    print(f"{read} of {len(files)} networks, {len(lines)} layers", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
