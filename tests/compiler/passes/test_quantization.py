"""Quantized values enter and leave bodies as integers, if both sides have the same scale and zero point."""

import pytest
from graphs import HOST

from mtool.compiler import passes
from mtool.compiler.ir import DType, Graph
from mtool.compiler.ir.control import Control, all_graphs
from mtool.compiler.kernels.dense import Dense
from mtool.compiler.kernels.target import Target
from mtool.compiler.passes.quantization import propagate_quantization
from tests.compiler.passes.test_control_flow import imported

CORTEX_M4 = Target("cortex-m4", frozenset({"fpu", "dsp"}))
ROUND = "int64 i, bool c"
WEIGHTS = ",".join(f"{number * 37 % 19 / 19 - 0.5:.3f}" for number in range(64))
F = "float[1, 8]"


def on_grid(name: str, output: str, scale: str = "s") -> str:
    """Quantize a value and dequantize it again."""
    return f"{output}_q = QuantizeLinear ({name}, {scale}, z) {output} = DequantizeLinear ({output}_q, {scale}, z)"


def graph_of(
    text: str, outputs: str = f"{F} y", kind: str = "int8", zero: int = 3, maxima: dict[str, int] | None = None
) -> Graph:
    return imported(
        f"""g ({F} x, bool yes, int64 n, float[5, 1, 8] rows) => ({outputs})
            <float s = {{0.0213}}, {kind} z = {{{zero}}}, float t = {{0.0317}}, int8 zw = {{0}},
            float[8, 8] W = {{{WEIGHTS}}}, {F} zeros = {{0, 0, 0, 0, 0, 0, 0, 0}}, int64 five = {{50}}> {{
            wq = QuantizeLinear (W, s, zw) w = DequantizeLinear (wq, s, zw) {on_grid("x", "h")} {text} }}""",
        maxima,
    )


def borders(graph: Graph, target: Target = HOST) -> list[str]:
    """Return the types of what control nodes read and write, but for conditions and numbers of rounds."""
    made = passes.run(graph, target)
    nodes = [(one, node) for one in all_graphs(made) for node in one.nodes if isinstance(node.attrs, Control)]
    kinds = [one.types[value].dtype for one, node in nodes for value in (*node.inputs, *node.outputs)]
    return [kind.label for kind in kinds if kind not in (DType.BOOL, DType.INT64)]


IF = f"""f = If (yes) <
    then_branch = tb () => ({F} p) {{ a = MatMul (h, w) {on_grid("a", "p")} }},
    else_branch = eb () => ({F} q) {{ b = Relu (h) {on_grid("b", "q")} }}>"""


@pytest.mark.parametrize(("kind", "zero"), [("int8", 3), ("uint8", 131)])
def test_what_branches_read_and_give(kind: str, zero: int) -> None:
    graph = graph_of(f"{IF} y = MatMul (f, w)", kind=kind, zero=zero)
    assert borders(graph) == [kind, kind]
    assert borders(graph, CORTEX_M4) == ["int8", "int8"]


def test_kernels_of_a_body_are_integer_and_have_the_weights_of_others() -> None:
    graph = passes.run(graph_of(f"{IF} g1 = MatMul (f, w) {on_grid('g1', 'y')}"), HOST)
    found = [(one, node) for one in all_graphs(graph) for node in one.nodes if isinstance(node.attrs, Dense)]
    assert len(found) == 2
    for one, node in found:
        assert [one.types[value].dtype for value in node.inputs[:2]] == [DType.INT8, DType.INT8]
    first, second = (one.constants[node.inputs[1]] for one, node in found)
    assert (first == second).all()


def test_a_quantization_of_what_branches_give_moves_into_them() -> None:
    graph = graph_of(f"""f = If (yes) <
        then_branch = tb () => ({F} p) {{ p = Sin (h) }}, else_branch = eb () => ({F} q) {{ q = Add (h, h) }}>
        {on_grid("f", "y")}""")
    assert borders(graph) == ["int8", "int8"]


@pytest.mark.parametrize(
    ("other", "after"),
    [
        (on_grid("b", "q", "t"), "y = Neg (f)"),
        (on_grid("b", "q"), ""),
        ("q = Neg (b)", f"{on_grid('f', 'v')} y = Add (v, f)"),
    ],
    ids=["another scale", "the same", "read as a float too"],
)
def test_branches_that_differ(other: str, after: str) -> None:
    graph = graph_of(f"""{"f" if after else "y"} = If (yes) <
        then_branch = tb () => ({F} p) {{ a = Sin (h) {on_grid("a", "p")} }},
        else_branch = eb () => ({F} q) {{ b = Cos (h) {other} }}> {after}""")
    assert borders(graph) == ["int8", "float32" if after else "int8"]


def loop(first: str, body: str, trips: str = "n", after: str = "y = Neg (l)") -> Graph:
    return graph_of(f"""l = Loop ({trips}, "", {first}) <
        body = lb ({ROUND}, {F} a) => (bool d, {F} r) {{ d = Identity (c) {body} }}> {after}""")


QUANTIZES = f"{on_grid('a', 'a1')} m = MatMul (a1, w) {on_grid('m', 'r')}"
GIVES = f"m = Sin (a) {on_grid('m', 'r')}"


@pytest.mark.parametrize(
    ("graph", "wanted"),
    [
        (loop("h", QUANTIZES), ["int8"] * 2),
        (loop("h", GIVES), ["int8"] * 2),
        (loop("zeros", GIVES), ["int8"]),
        (loop("x", QUANTIZES, after=on_grid("l", "y")), ["int8"] * 2),
        (loop("x", QUANTIZES, "five"), ["int8"] * 2),
        (loop("x", f"{on_grid('a', 'a1')} r = Sin (a1)", after=on_grid("l", "y")), ["int8"] * 2),
        (loop("x", QUANTIZES), ["float32"] * 2),
        (loop("x", GIVES), ["float32"] * 2),
        (loop("h", f"{on_grid('a', 'a1')} r = Sin (a1)"), ["float32"] * 2),
        (loop("h", on_grid("m", "r", "t").join(["m = Sin (a) ", ""])), ["float32"] * 2),
    ],
    ids=[
        "quantized throughout", "given on the grid", "from zeros", "read on the grid", "at least a round",
        "rounded after", "floats if there is no round", "a float at first", "floats at the end", "another scale",
    ],
)  # fmt: skip
def test_what_is_carried_on(graph: Graph, wanted: list[str]) -> None:
    assert borders(graph) == wanted


def written(zero: int, trips: str, maxima: dict[str, int] | None = None) -> Graph:
    """Return a loop that writes a row on a grid in each round."""
    return graph_of(
        f"""l, y = Loop ({trips}, "", h) <
            body = lb ({ROUND}, {F} a) => (bool d, {F} r, {F} o) {{
            d = Identity (c) m = Sin (a) {on_grid("m", "r")} k = Cos (a) {on_grid("k", "o")} }}>""",
        "float[50, 1, 8] y",
        zero=zero,
        maxima=maxima,
    )


def test_rows() -> None:
    assert borders(written(3, "five")) == ["int8"] * 2
    assert borders(scan_of_rows()) == ["int8"] * 4


@pytest.mark.parametrize(("zero", "wanted"), [(0, "int8"), (3, "float32")])
def test_rows_that_may_not_be_written_are_0(zero: int, wanted: str) -> None:
    assert borders(written(zero, "n", {"y": 50}))[:2] == ["int8", wanted]


def scan_of_rows() -> Graph:
    """Return a scan that reads and writes rows on a grid, of a body that is too long to be written out."""
    longer = " ".join(f"u{number + 1} = Sin (u{number})" for number in range(14))
    return graph_of(
        f"""{on_grid("rows", "rs")} l, y = Scan <num_scan_inputs = 1, body = sb ({F} a, {F} u0) => ({F} r, {F} o) {{
            {longer} k = Add (a, u14) {on_grid("k", "r")} {on_grid("u14", "o")} }}> (h, rs)""",
        f"{F} l, float[5, 1, 8] y",
    )


def test_through_a_branch_in_a_loop() -> None:
    graph = loop("h", f"""r = If (yes) <
        then_branch = tb () => ({F} p) {{ e = MatMul (a, w) {on_grid("e", "p")} }},
        else_branch = eb () => ({F} q) {{ q = Identity (a) }}>""")  # fmt: skip
    assert borders(graph) == ["int8"] * 4


def test_a_graph_without_bodies_stays_as_it_is() -> None:
    graph = graph_of("y = Neg (h)")
    assert propagate_quantization(graph, HOST) is graph
