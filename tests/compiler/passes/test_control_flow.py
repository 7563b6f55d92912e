"""Control nodes in the passes: unused values are removed from their graphs, which are lowered and named as well."""

import importlib
from collections.abc import Sequence
from types import ModuleType

import numpy as np
import onnx.parser
import pytest
from graphs import HOST

from mtool.compiler import passes
from mtool.compiler.frontend import ModelOptions
from mtool.compiler.frontend.onnx_file import from_proto
from mtool.compiler.ir import Graph
from mtool.compiler.ir.control import Branches, Rounds, all_graphs, bodies_of
from mtool.compiler.passes import control_flow
from mtool.compiler.passes.control_flow import prune
from mtool.compiler.plan import make_plan
from mtool.compiler.plan.whole import ControlSchedule, plans_in

ROUND = "int64 i, bool c"


def imported(text: str, maxima: dict[str, int] | None = None) -> Graph:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    return from_proto(proto, "m", ModelOptions(maxima=maxima or {}))


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def loop(results: str, carried: str, body: str) -> Graph:
    return imported(
        f"""g (float[4] x, float[4] w, int64 n) => ({results}) {{
            a, b, e = Loop (n, "", x, x, w) <body = b ({ROUND}, float[4] a0, float[4] b0, float[4] e0)
                => (bool d, {carried}) {{ d = Identity (c) {body} }}> }}"""
    )


CARRIED = "float[4] a1, float[4] b1, float[4] e1"


def test_a_carried_value_that_nothing_depends_on_goes() -> None:
    graph = prune(loop("float[4] a", CARRIED, "a1 = Sin (a0) b1 = Cos (b0) e1 = Exp (e0)"))
    (node,) = graph.nodes
    assert node.inputs == ("n", "x") and node.outputs == ("a",)
    assert ops(Rounds.of(node).body) == ["Sin"]


def test_a_carried_value_stays_if_another_needs_it_in_a_later_round() -> None:
    graph = prune(loop("float[4] a", CARRIED, "a1 = Sin (b0) b1 = Cos (e0) e1 = Exp (e0)"))
    (node,) = graph.nodes
    attrs = Rounds.of(node)
    assert [one.is_output for one in attrs.carried] == [True, False, False]
    assert node.inputs == ("n", "x", "x", "w") and node.outputs == ("a",)
    assert sorted(ops(attrs.body)) == ["Cos", "Exp", "Sin"]


def test_what_is_passed_on_is_not_a_carried_value() -> None:
    (node,) = prune(loop("float[4] a", CARRIED, "a1 = Add (a0, e0) b1 = Cos (b0) e1 = Identity (e0)")).nodes
    assert len(Rounds.of(node).carried) == 1
    assert node.inputs == ("n", "x", "w")


def test_an_output_that_nothing_reads_leaves_both_branches() -> None:
    graph = imported(
        """g (float[4] x, float[4] w, bool yes) => (float[4] y) {
            y, z = If (yes) <
                then_branch = t () => (float[4] ta, float[4] tb) { ta = Sin (x) tb = Cos (w) },
                else_branch = e () => (float[4] ea, float[4] eb) { ea = Neg (x) eb = Exp (w) }> }"""
    )
    (node,) = prune(graph).nodes
    assert node.inputs == ("yes", "x") and node.outputs == ("y",)
    assert [ops(body) for body in bodies_of(node)] == [["Sin"], ["Neg"]]


def test_nested_nodes_lose_what_nothing_reads() -> None:
    graph = imported(
        f"""g (float[4] x, float[4] w, bool yes, int64 n) => (float[4] y) {{
            y = Loop (n, "", x) <body = b ({ROUND}, float[4] a0) => (bool d, float[4] a1) {{
                d = Identity (c)
                a1, u = If (yes) <
                    then_branch = t () => (float[4] ta, float[4] tb) {{ ta = Sin (a0) tb = Cos (w) }},
                    else_branch = e () => (float[4] ea, float[4] eb) {{ ea = Neg (a0) eb = Exp (w) }}> }}> }}"""
    )
    assert graph.nodes[0].inputs == ("n", "x", "yes", "w")
    (node,) = prune(graph).nodes
    assert node.inputs == ("n", "x", "yes")
    (inner,) = Rounds.of(node).body.nodes
    assert isinstance(inner.attrs, Branches)
    assert [ops(body) for body in bodies_of(inner)] == [["Sin"], ["Neg"]]


def test_a_graph_without_control_flow_stays_as_it_is() -> None:
    graph = imported("g (float[4] x) => (float[4] y) { y = Sin (x) }")
    assert prune(graph) is graph


def test_names_are_unique_in_all_graphs() -> None:
    graph = passes.run(nested(), HOST)
    names = [node.name for one in all_graphs(graph) for node in one.nodes if node.op != "view"]
    assert len(names) == len({*names}) > 5


def nested() -> Graph:
    return imported(
        f"""g (float[4] x, float[4] w, bool yes, int64 n) => (float[4] y, float[4] z) {{
            y = If (yes) <
                then_branch = t () => (float[4] p) {{
                    p = Loop (n, "", x) <body = b ({ROUND}, float[4] a0) => (bool d, float[4] a1) {{
                        d = Identity (c) s = Softmax (a0) a1 = Add (s, w) }}> }},
                else_branch = e () => (float[4] q) {{ r = Softmax (w) q = Sub (r, x) }}>
            z = Softmax (w) }}"""
    )


def test_branches_share_their_bytes() -> None:
    graph = imported(
        """g (float[100] x, bool yes) => (float[100] y) {
            y = If (yes) <
                then_branch = t () => (float[100] p) { a = Softmax (x) b = Exp (a) p = Softmax (b) },
                else_branch = e () => (float[100] q) { r = Softmax (x) s = Neg (r) q = Softmax (s) }> }"""
    )
    plan = make_plan(passes.run(graph, HOST), HOST)
    (step,) = plan.steps
    assert isinstance(step.schedule, ControlSchedule)
    sizes = [inner.arena_bytes for inner in step.schedule.plans]
    assert min(sizes) >= 400
    assert step.scratch_bytes == max(sizes)
    assert plan.arena_bytes <= 800 + step.scratch_bytes + 8


def test_a_carried_value_lies_where_the_output_lies() -> None:
    graph = imported(
        f"""g (float[100] x, int64 n) => (float[100] y) {{
            y = Loop (n, "", x) <body = b ({ROUND}, float[100] a0) => (bool d, float[100] a1) {{
                d = Identity (c) a1 = Sin (a0) }}> }}"""
    )
    plan = make_plan(passes.run(graph, HOST), HOST)
    assert plan.arena_bytes <= 400 + 16  # and the number of rounds, and that of this one
    assert [one.arena_bytes for one in plans_in(plan)][1:] == [0]


def shapes(plan_graph: Graph, values: Sequence[str]) -> list[tuple[int, ...]]:
    return [plan_graph.types[value].shape for value in values]


def test_rows_are_read_and_written_where_they_lie() -> None:
    graph = imported(
        """g (float[40, 6] x, float[6] h) => (float[6] y, float[40, 6] rows) {
            y, rows = Scan <num_scan_inputs = 1, body = b (float[6] a, float[6] p) => (float[6] r, float[6] s) {
                u = Add (a, p) r = Sin (u) s = Add (r, p) }> (h, x) }"""
    )
    (node,) = prune(graph).nodes
    body = Rounds.of(node).body
    assert shapes(body, body.inputs) == [(6,), (), (6,)]
    assert shapes(body, body.outputs) == [(6,), (6,)]
    assert np.prod(shapes(graph, node.outputs)[1]) == 240


def branches_in_branches(depth: int) -> Graph:
    text = "r0 = Sin (x)"
    for level in range(depth):
        text = f"""r{level + 1} = If (yes) <then_branch = t{level} () => (float[4] r{level}) {{ {text} }},
            else_branch = e{level} () => (float[4] n{level}) {{ n{level} = Neg (x) }}>"""
    return imported(f"g (float[4] x, bool yes) => (float[4] r{depth}) {{ {text} }}")


def test_no_graph_is_walked_again_at_each_level(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[str] = []

    def counting(module: ModuleType, name: str) -> None:
        own = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, **more: (walked.append(name), own(*args, **more))[1])

    counting(control_flow, "_pruned")
    counting(importlib.import_module("mtool.compiler.passes.name_nodes"), "_named")
    found = []
    for depth in (10, 20):
        graph = passes.run(branches_in_branches(depth), HOST)
        assert len([*all_graphs(graph)]) == 2 * depth + 1
        found.append({name: walked.count(name) for name in walked})
        walked.clear()
    shallow, deep = found
    assert {*shallow} == {"_pruned", "_named"}
    assert all(deep[name] <= 2 * shallow[name] for name in shallow)
