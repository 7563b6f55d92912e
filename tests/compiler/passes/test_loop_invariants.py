"""Loop invariants are computed once before the loop, if that pays."""

import pytest
from graphs import HOST

from mtool.compiler import passes
from mtool.compiler.ir import Graph
from mtool.compiler.ir.control import all_graphs
from mtool.compiler.ir.node import Computation
from tests.compiler.passes.test_control_flow import imported

ROUND = "int64 i, bool c"
LONG, FEW = 1000, 2


def functions(graph: Graph) -> list[str]:
    """Return the functions that the expressions of a graph's own nodes call."""
    exprs = [node.attrs.expr for node in graph.nodes if isinstance(node.attrs, Computation)]
    return sorted(part.op for expr in exprs for part in expr.parts() if part.op in ("exp", "sin", "cos", "tanh", "neg"))


def looped(body: str, rounds: int | None = LONG) -> list[Graph]:
    """Return the graph of a loop that carries `a` to `r` and captures `w`, and the graphs inside it."""
    weights = ",".join(["0.1"] * 1600)
    graph = imported(
        f"""g (float[40] x, float[40] w, int64 n, bool yes) => (float[40] y)
            <float k = {{0.5}}, int64 m = {{{rounds or 0}}}, float[40, 40] W = {{{weights}}}> {{
            y = Loop ({"n" if rounds is None else "m"}, "", x) <
                body = b ({ROUND}, float[40] a) => (bool d, float[40] r) {{ d = Identity (c) {body} }}> }}"""
    )
    return [*all_graphs(passes.run(graph, HOST))]


@pytest.mark.parametrize("rounds", [LONG, None])
def test_a_part_of_an_expression_moves(rounds: int | None) -> None:
    outer, body = looped("e = Exp (w) p = Mul (a, e) q = Add (p, w) r = Sin (q)", rounds)
    assert functions(outer) == ["exp"] and functions(body) == ["sin"]


def test_a_node_moves_with_what_it_reads() -> None:
    outer, body = looped("e = Exp (w) p = MatMul (e, W) q = MatMul (p, W) r = Add (a, q)")
    assert [node.op for node in outer.nodes].count("dense") == 2
    assert {node.op for node in body.nodes} == {"loop", "view"}


@pytest.mark.parametrize(
    "body",
    [
        "e = Neg (w) r = Add (l, e)",
        "p = Mul (l, k) e = Exp (p) r = Add (e, w)",
        "s = Cast <to = 1> (i) f = Add (s, w) e = Exp (f) r = Add (l, e)",
    ],
    ids=["cheap", "of what is carried", "of the number of the round"],
)
def test_what_stays(body: str) -> None:
    outer, inner = looped(f"l = Cos (a) {body}")
    assert not functions(outer)
    assert "cos" in functions(inner)


def test_out_of_a_branch_only_where_rounds_pay_for_it() -> None:
    branches = """r = If (yes) <
        then_branch = t () => (float[40] p) {{ e = {function} (w) p = Mul (e, a) }},
        else_branch = e () => (float[40] q) {{ q = Neg (a) }}>"""
    graphs = looped(branches.format(function="Exp"), LONG)
    assert functions(graphs[0]) == ["exp"]
    graphs = looped(branches.format(function="Exp"), FEW)
    assert not functions(graphs[0])


def test_work_of_a_branch_that_no_loop_repeats_stays() -> None:
    graph = imported(
        """g (float[40] x, bool yes) => (float[40] y) {
            y = If (yes) <
                then_branch = t () => (float[40] p) { e = Exp (x) p = Cos (e) },
                else_branch = e () => (float[40] q) { f = Exp (x) q = Sin (f) }> }"""
    )
    outer, *bodies = all_graphs(passes.run(graph, HOST))
    assert not functions(outer)
    assert [len(functions(body)) for body in bodies] == [2, 2]


def test_through_loops_in_loops() -> None:
    graphs = looped(
        """h = Cos (a)
        r = Loop (m, "", h) <body = b2 (int64 i2, bool c2, float[40] a2) => (bool d2, float[40] r2) {
            d2 = Identity (c2) e = Exp (w) f = Tanh (h) p = Mul (e, f) q = Mul (a2, p) r2 = Sin (q) }>"""
    )
    assert [functions(graph) for graph in graphs] == [["exp"], ["cos", "tanh"], ["sin"]]


def test_a_value_that_each_round_gives_back_is_copied() -> None:
    graph = imported(
        f"""g (float[40] x) => (float[40] y, float[1000, 40] z) <int64 m = {{1000}}> {{
            y, z = Loop (m, "", x) <body = b ({ROUND}, float[40] a) => (bool d, float[40] r, float[40] row) {{
                d = Identity (c) e = Exp (x) row = Tanh (e) r = Add (a, row) }}> }}"""
    )
    outer, body = all_graphs(passes.run(graph, HOST))
    assert functions(outer) == ["exp", "tanh"] and not functions(body)
