"""Small models that describe endless work or memory: refused with the limit's name, soon and within a gigabyte."""

import itertools
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node as node

from mtool.base.errors import ModelError, UsageError
from mtool.cli import app
from mtool.compiler.frontend import ModelOptions, from_proto
from mtool.compiler.ir import Graph
from mtool.compiler.operators.budget import LIMITS, Budget

F = np.float32
SECONDS = 20.0  # of the processor; a tenth of that is usual


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """Let the test take a gigabyte more than there is now, and some seconds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30), hard))
    start = time.process_time()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert time.process_time() - start < SECONDS


def value(name: str, kind: int = TensorProto.FLOAT, shape: Sequence[int] = (1, 4)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def whole(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Any] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
    opset: int = 23,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(data), name) for name, data in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def of_all(nodes: Sequence[onnx.NodeProto], constants: Mapping[str, Any], result: str = "c") -> onnx.ModelProto:
    """Add the largest element of what the nodes make of constants to the input."""
    largest = [
        node("Cast", [result], ["cast"], to=TensorProto.FLOAT),
        node("ReduceMax", ["cast"], ["largest"], keepdims=0),
        node("Add", ["x", "largest"], ["y"]),
    ]
    return whole([*nodes, *largest], constants)


def filled(name: str, shape: str) -> onnx.NodeProto:
    return node("ConstantOfShape", [shape], [name])


def size(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int64)


ONE, BOX = np.ones(1, F), np.array([[0, 0, 8, 8]], F)
LARGE, SMALL = size(1 << 27), np.ones((1, 1, 8, 8), F)
FOLDED = {
    "ConstantOfShape": of_all([filled("c", "s")], {"s": size(1 << 28)}),
    "Expand": of_all([node("Expand", ["k", "s"], ["c"])], {"k": ONE, "s": LARGE}),
    "Tile": of_all([node("Tile", ["k", "s"], ["c"])], {"k": np.ones(1, np.int8), "s": size(2**31 - 8)}),
    "Range": of_all([node("Range", ["a", "b", "d"], ["c"])], {"a": F(0), "b": F(5e8), "d": F(1)}),
    "Pad": of_all([node("Pad", ["k", "s"], ["c"])], {"k": ONE, "s": size(0, 1 << 28)}),
    "OneHot": of_all([node("OneHot", ["i", "d", "v"], ["c"])], {"i": size(0, 1), "d": LARGE, "v": np.array([0, 1], F)}),
    "HannWindow": of_all([node("HannWindow", ["d"], ["c"])], {"d": LARGE[0]}),
    "DFT": of_all([node("DFT", ["k", "d"], ["c"])], {"k": np.ones((1, 8, 1), F), "d": LARGE[0]}),
    "MatMul": of_all([filled("a", "s"), node("MatMul", ["a", "a"], ["c"])], {"s": size(3000, 3000)}),
    "Einsum": of_all([filled("a", "s"), node("Einsum", ["a"] * 4, ["c"], equation="a,b,c,d->")], {"s": size(200)}),
    "Conv": of_all(
        [filled("a", "s"), filled("w", "t"), node("Conv", ["a", "w"], ["c"])],
        {"s": size(1, 1, 2000, 2000), "t": size(1, 1, 50, 50)},
    ),
    "Resize": of_all([node("Resize", ["k", "", "s"], ["c"])], {"k": SMALL, "s": np.array([1, 1, 300, 300], F)}),
    "Attention": of_all([filled("a", "s"), node("Attention", ["a"] * 3, ["c"])], {"s": size(1, 1, 40_000, 1)}),
    "NonMaxSuppression": of_all(
        [filled("a", "s"), filled("b", "t"), node("NonMaxSuppression", ["a", "b", "n"], ["c"])],
        {"s": size(1, 8000, 4), "t": size(1, 1, 8000), "n": size(8000)},
    ),
    "RoiAlign": of_all(
        [node("RoiAlign", ["a", "b", "i"], ["c"], sampling_ratio=100_000)], {"a": SMALL, "b": BOX, "i": size(0)}
    ),
}
GRAMS = {"max_gram_length": 2, "min_gram_length": 1, "max_skip_count": 2**30, "mode": "TF"}
POOL = {"ngram_counts": [0, 1], "ngram_indexes": [0, 1], "pool_int64s": [1, 1, 2]}
FOLDED["TfIdfVectorizer"] = of_all([node("TfIdfVectorizer", ["i"], ["c"], **GRAMS, **POOL)], {"i": size(1, 2, 1)})
DOUBLED = [filled("c0", "s"), *(node("Concat", [f"c{n}"] * 2, [f"c{n + 1}"], axis=0) for n in range(40))]
SUMMED = [filled("a", "s"), *(node("Add", [f"c{n}" if n else "a", "a"], [f"c{n + 1}"]) for n in range(99))]


@pytest.mark.parametrize("name", FOLDED)
def test_what_is_computed_of_constants(name: str) -> None:
    proto = FOLDED[name]
    with pytest.raises(ModelError, match="limit 'work'") as refused:
        from_proto(proto, "m")
    assert any(one.op_type in refused.value.details[0] for one in proto.graph.node)
    assert "--limit work=" in refused.value.hint


@pytest.mark.parametrize("proto", [of_all(DOUBLED, {"s": size(4)}, "c40"), of_all(SUMMED, {"s": size(1 << 22)}, "c99")])
def test_chains_of_constants(proto: onnx.ModelProto) -> None:
    with pytest.raises(ModelError, match="limit 'constants'"):
        from_proto(proto, "m")


def test_what_c_can_not_have_is_reported_before_it_is_computed() -> None:
    proto = of_all([node("Range", ["a", "b", "d"], ["c"])], {"a": F(0), "b": F(1e9), "d": F(1)})
    with pytest.raises(ModelError) as refused:
        from_proto(proto, "m")
    assert "larger than 2 GiB" in refused.value.details[0]


def test_the_mask_of_a_dropout() -> None:
    nodes = [node("Expand", ["x", "s"], ["big"]), node("Dropout", ["big"], ["dropped", "c"])]
    with pytest.raises(ModelError, match="limit 'constants'"):
        from_proto(of_all(nodes, {"s": size(2**27 - 1, 4)}), "m")


def nested_loops(depth: int, rounds: int, *, sized: bool = False) -> onnx.ModelProto:
    """Loops inside one another; `sized`: a shape depends on the number of each one's round."""
    body = None
    for level in range(depth):
        inner = node("Loop", ["M", "", "a"], ["b"], body=body) if body else node("Add", ["a", "one"], ["b"])
        inputs = [value(f"i{level}", TensorProto.INT64, ()), value(f"c{level}", TensorProto.BOOL, ()), value("a")]
        outputs = [value(f"d{level}", TensorProto.BOOL, ()), value("b")]
        for one in (*inputs[2:], *outputs[1:]):
            one.name += str(level)
        inner.input[2 if body else 0], inner.output[0] = f"a{level}", f"b{level}"
        nodes = [node("Identity", [f"c{level}"], [f"d{level}"]), inner]
        if sized:
            inner.input[2 if body else 0] = f"grown{level}"
            nodes[1:1] = [
                node("Reshape", [f"i{level}", "flat"], [f"size{level}"]),
                node("ConstantOfShape", [f"size{level}"], [f"zeros{level}"]),
                node("ReduceSum", [f"zeros{level}"], [f"more{level}"], keepdims=0),
                node("Add", [f"a{level}", f"more{level}"], [f"grown{level}"]),
            ]
        body = helper.make_graph(nodes, "b", inputs, outputs)
    known = {"M": np.array(rounds), "one": F(1), "flat": size(-1)}
    return whole([node("Loop", ["M", "", "x"], ["y"], body=body)], known, opset=17)


@pytest.mark.parametrize(
    ("depth", "rounds", "limits"), [(2, 256, {"nodes": 2000}), (3, 256, {"nodes": 999}), (16, 2, {"nodes": 999})]
)
def test_nested_loops(depth: int, rounds: int, limits: dict[str, int]) -> None:
    with pytest.raises(ModelError, match="limit 'nodes'"):
        from_proto(nested_loops(depth, rounds, sized=True), "m", ModelOptions(limits=limits))


@pytest.mark.slow
def test_rounds_of_a_loop() -> None:
    with pytest.raises(ModelError, match="limit 'rounds'"):
        from_proto(nested_loops(1, 257, sized=True), "m")
    with pytest.raises(ModelError, match="limit 'rounds'"):
        from_proto(nested_loops(1, 1 << 40, sized=True), "m")
    found = from_proto(nested_loops(1, 257, sized=True), "m", ModelOptions(limits={"rounds": 300}))
    assert len(found.nodes) == 2 * 257 + 2  # and a sum of nothing, and a copy


@pytest.mark.parametrize(("depth", "rounds"), [(1, 257), (1, 1 << 40), (3, 256), (16, 2), (30, 1000)])
def test_rounds_of_the_run_are_not_limited(depth: int, rounds: int) -> None:
    assert len(from_proto(nested_loops(depth, rounds), "m", ModelOptions(limits={"nodes": 999})).nodes) == 1


def function(name: str, nodes: Sequence[onnx.NodeProto]) -> onnx.FunctionProto:
    return helper.make_function(
        "f", name, ["p"], ["q"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    )


def doubling(levels: int, names: int = 1) -> onnx.ModelProto:
    """Functions that call the one before them twice; `names`: how long names are."""
    middle, title = "m" * names, "n" * names
    found = [function("f0", [node("Neg", ["p"], ["q"])])]
    for level in range(1, levels):
        before = f"f{level - 1}"
        calls = [node(before, ["p"], [middle], title, domain="f"), node(before, [middle], ["q"], title, domain="f")]
        found.append(function(f"f{level}", calls))
    return whole([node(f"f{levels - 1}", ["x"], ["y"], domain="f")], functions=found)


def test_functions_that_double_each_other() -> None:
    assert len(from_proto(doubling(8), "m").nodes) == 128
    with pytest.raises(ModelError, match="limit 'nodes'"):
        from_proto(doubling(30), "m", ModelOptions(limits={"nodes": 999}))


def test_names_that_grow() -> None:
    with pytest.raises(ModelError, match="limit 'work'") as refused:
        from_proto(doubling(30, 9000), "m")
    assert len(refused.value.details[0]) < 300


def test_graphs_inside_one_another() -> None:
    graph = helper.make_graph([node("Neg", ["x"], ["o"])], "g", [], [value("o")])
    for _ in range(20):
        other = helper.make_graph([node("Abs", ["x"], ["e"])], "e", [], [value("e")])
        one = node("If", ["yes"], ["o"], then_branch=graph, else_branch=other)
        graph = helper.make_graph([one], "g", [], [value("o")])
    proto = whole([], {"yes": np.array(True)}, opset=17)
    proto.graph.node.append(graph.node[0])
    proto.graph.node[0].output[0] = "y"
    assert from_proto(proto, "m").nodes[0].op == "Neg"
    with pytest.raises(ModelError, match="limit 'depth'"):
        from_proto(proto, "m", ModelOptions(limits={"depth": 10}))


def test_a_body_that_is_not_taken_is_not_copied() -> None:
    """A loop of 900 rounds with 10 MB in the branch that it never takes."""
    constant = node("Constant", [], ["w"], value=numpy_helper.from_array(np.ones(2_500_000, F)))
    other = helper.make_graph([constant, node("Add", ["a0", "w"], ["e"])], "e", [], [value("e")])
    taken = helper.make_graph([node("Identity", ["a0"], ["t"])], "t", [], [value("t")])
    proto = nested_loops(2, 30)
    body = proto.graph.node[0].attribute[0].g.node[1].attribute[0].g
    body.node[1].CopyFrom(node("If", ["yes"], ["b0"], then_branch=taken, else_branch=other))
    proto.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    start = time.process_time()
    assert from_proto(proto, "m").nodes
    assert time.process_time() - start < 3


def test_constants_of_a_body_count_in_each_round() -> None:
    proto = nested_loops(1, 256, sized=True)
    body = proto.graph.node[0].attribute[0].g
    body.node[-1].input[1] = "w"
    body.initializer.append(numpy_helper.from_array(np.ones((250_000, 4), F), "w"))
    with pytest.raises(ModelError, match="limit 'constants'"):
        from_proto(proto, "m")


@pytest.mark.slow
def test_sequences() -> None:
    nodes = [node("Expand", ["x", "s"], ["big"]), node("SplitToSequence", ["big"], ["q"], axis=0)]
    with pytest.raises(ModelError, match="limit 'nodes'"):
        from_proto(whole([*nodes, node("SequenceAt", ["q", "k"], ["y"])], {"s": size(1 << 26, 4), "k": size(0)}), "m")
    inserts = [node("SequenceInsert", [f"q{n}", "x"], [f"q{n + 1}"]) for n in range(12_000)]
    made = [node("SequenceConstruct", ["x"], ["q0"]), *inserts, node("SequenceAt", ["q12000", "k"], ["y"])]
    with pytest.raises(ModelError, match="limit 'work'"):
        from_proto(whole(made, {"k": size(0)}), "m")


@pytest.mark.parametrize("where", ["an initialiser", "an attribute"])
def test_a_sparse_tensor(where: str) -> None:
    def model(length: int) -> onnx.ModelProto:
        values, places = helper.make_tensor("c", 1, [2], [3, 5]), helper.make_tensor("", 7, [2], [1, length - 1])
        sparse = helper.make_sparse_tensor(values, places, [length])
        if where == "an attribute":
            return of_all([node("Constant", [], ["c"], sparse_value=sparse)], {})
        proto = of_all([], {})
        proto.graph.sparse_initializer.append(sparse)
        return proto

    assert from_proto(model(6), "m").constants["largest"] == 5
    with pytest.raises(ModelError, match="limit 'constants'"):
        from_proto(model(1 << 28), "m")


@pytest.mark.slow
def test_many_nodes_of_one_name() -> None:
    names = ["x", *(f"v{n}" for n in range(9999)), "y"]
    nodes = [node("Relu", [a], [b], "same") for a, b in itertools.pairwise(names)]
    graph: Graph = from_proto(whole(nodes), "m")
    assert len({one.name for one in graph.nodes}) == 10_000


def test_more_dimensions_than_numpy_has() -> None:
    with pytest.raises(ModelError) as refused:
        from_proto(whole([node("Reshape", ["x", "s"], ["y"])], {"s": size(*[1] * 99, 4)}), "m")
    assert "at most 32" in refused.value.details[0]


@pytest.mark.parametrize("shape", [(2**31,), (2**20, 2**20), (1 << 62, 2)])
def test_an_input_that_c_can_not_have(shape: Sequence[int]) -> None:
    proto = whole([node("Relu", ["x"], ["y"])])
    proto.graph.input[0].CopyFrom(value("x", TensorProto.INT8, shape))
    with pytest.raises(ModelError, match="input 'x'") as refused:
        from_proto(proto, "m")
    assert "larger than 2 GiB" in refused.value.details[0]


def test_every_limit_can_be_set() -> None:
    for name, (default, _) in LIMITS.items():
        Budget().check(name, default, "here")
        with pytest.raises(ModelError, match=f"limit '{name}'"):
            Budget().check(name, default + 1, "here")
        Budget({name: default + 1}).check(name, default + 1, "here")
    with pytest.raises(UsageError, match="unknown limit other"):
        from_proto(whole([node("Relu", ["x"], ["y"])]), "m", ModelOptions(limits={"other": 1}))


def test_the_page_of_limits_is_up_to_date() -> None:
    page = (Path(__file__).parents[3] / "docs" / "limits.md").read_text()
    for name, (default, _) in LIMITS.items():
        assert f"| `{name}` | {default:,} |" in page


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(nested_loops(1, 9, sized=True).SerializeToString())
    assert app.invoke(["check", str(path), "--board", "host", "--limit", "rounds=8"]) == 3
    assert "at Loop y" in capsys.readouterr().err
    assert app.invoke(["check", str(path), "--board", "host", "--limit", "rounds=9"]) == 0
    assert app.invoke(["check", str(path), "--board", "host", "--limit", "rounds"]) == 2
