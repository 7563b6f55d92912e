"""IF and WHILE of TFLite, against LiteRT."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_models import Graph, Op, T, model

from mtool.base.errors import ModelError
from mtool.compiler.frontend import ModelOptions, load
from mtool.compiler.frontend.tflite.model import to_onnx
from mtool.compiler.frontend.tflite.schema import read
from mtool.plugins import onnx_backend

litert = pytest.importorskip("ai_edge_litert.interpreter")
X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(1, 6)


def tensor(name: str, shape: Any = (1, 6), dtype: Any = np.float32, data: Any = None) -> T:
    return T(name, [*shape], dtype, data=data)


def quantized(name: str, scale: float = 0.05, zero: int = 3) -> T:
    return T(name, [1, 6], np.int8, scale, zero)


def branches(then: Graph, other: Graph, kind: Any = tensor) -> bytes:
    tensors = [kind("x"), tensor("yes", (), bool), kind("y")]
    node = Op("IF", ["yes", "x"], ["y"], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})
    return model(tensors, [node], ["x", "yes"], ["y"], then, other)


def unary(kind: str, of: Any = tensor) -> Graph:
    return Graph([of("x"), of("y")], [Op(kind, ["x"], ["y"])], ["x"], ["y"])


def doubling() -> bytes:
    """Double x, and count, while its largest element is below a limit."""
    tensors = [tensor("x"), tensor("limit", ()), tensor("n", (), np.int32, 0)]
    tensors += [tensor("y"), tensor("l", ()), tensor("count", (), np.int32)]
    node = Op("WHILE", ["x", "limit", "n"], ["y", "l", "count"], "WhileOptions",
              {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})  # fmt: skip
    state = [tensor("x"), tensor("l", ()), tensor("n", (), np.int32)]
    axes = T("axes", [2], np.int32, data=np.array([0, 1]))
    condition = Graph(
        [*state, axes, tensor("m", ()), tensor("c", (), bool)],
        [Op("REDUCE_MAX", ["x", "axes"], ["m"], "ReducerOptions", {}), Op("LESS", ["m", "l"], ["c"])],
        ["x", "l", "n"], ["c"],
    )  # fmt: skip
    body = Graph(
        [*state, tensor("one", (), np.int32, 1), tensor("y"), tensor("k", (), np.int32)],
        [Op("ADD", ["x", "x"], ["y"], "AddOptions", {}), Op("ADD", ["n", "one"], ["k"], "AddOptions", {})],
        ["x", "l", "n"], ["y", "l", "k"],
    )  # fmt: skip
    return model(tensors, [node], ["x", "limit"], ["y", "count"], condition, body)


def by_litert(file: bytes, inputs: list[Any]) -> list[Any]:
    interpreter = litert.Interpreter(
        model_content=file, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    for place, data in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(place["index"], data)
    interpreter.invoke()
    return [interpreter.get_tensor(place["index"]) for place in interpreter.get_output_details()]


def check(file: bytes, runs: list[list[Any]], folder: Path) -> None:
    path = folder / "m.tflite"
    path.write_bytes(file)
    with_c = onnx_backend.prepare(to_onnx(read(path), "m.tflite").proto)
    for inputs in runs:
        for found, expected in zip(with_c.run(inputs), by_litert(file, inputs), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    with_c.close()


def test_one_branch(tmp_path: Path) -> None:
    check(branches(unary("EXP"), unary("NEG")), [[X, np.array(yes)] for yes in (True, False)], tmp_path)


def test_quantized_branches(tmp_path: Path) -> None:
    file = branches(unary("LOGISTIC", quantized_result), unary("LOGISTIC", quantized_result), quantized_result)
    x = np.arange(-120, 121, 48, dtype=np.int8).reshape(1, 6)
    check(file, [[x, np.array(yes)] for yes in (True, False)], tmp_path)


def quantized_result(name: str) -> T:
    return quantized(name, 1 / 256, -128) if name == "y" else quantized(name)


def test_a_branch_that_returns_its_input(tmp_path: Path) -> None:
    same = Graph([tensor("x")], [], ["x"], ["x"])
    check(branches(unary("EXP"), same), [[X, np.array(yes)] for yes in (True, False)], tmp_path)


@pytest.mark.parametrize("limit", [-10, 1, 1e6])
def test_while(limit: float, tmp_path: Path) -> None:
    check(doubling(), [[X, np.array(limit, np.float32)]], tmp_path)


def rows(step: int = 1) -> bytes:
    """Put doubles of h into the rows of x, as converters write a loop of Keras: its body leaves sizes open."""

    def whole(name: str, data: Any) -> T:
        return T(name, np.shape(data), np.int32, data=np.array(data, np.int32))

    def kept(suffix: str = "", size: int = 4, signature: Any = (4, 1, 3)) -> list[T]:
        return [
            T(f"n{suffix}", [], np.int32),
            T(f"x{suffix}", [size, 1, 3], signature=signature),
            T(f"h{suffix}", [1, 3], signature=[-1, 3]),
        ]

    names, results = ["n", "x", "h"], ["n'", "x'", "h'"]
    condition = Graph(
        [*kept("", 1, (-1, -1, 3)), whole("4", 4), tensor("c", (), bool)], [Op("LESS", ["n", "4"], ["c"])], names, ["c"]
    )
    constants = [whole("1", step), whole("0", 0), whole("[1]", [1]), whole("0s", [0, 0, 0]), whole("-1s", [-1, -1, -1])]
    constants += [whole("2 of -1", [-1, -1]), whole("2 of 0", [0, 0])]
    between = [T(name, [1], np.int32) for name in ("a", "b")] + [T(name, [3], np.int32) for name in ("size", "begin")]
    parts = [T(name, [1, 1, 3], signature=[-1, -1, 3]) for name in ("row", "before", "after")]
    axis = "ConcatenationOptions", {"Axis": 0}
    body = Graph(
        [*kept("", 1, (-1, -1, 3)), *kept("'", 1, (-1, -1, 3)), *constants, *between, *parts],
        [
            Op("ADD", ["h", "h"], ["h'"], "AddOptions", {}), Op("EXPAND_DIMS", ["h'", "0"], ["row"]),
            Op("ADD", ["n", "1"], ["n'"], "AddOptions", {}),
            Op("RESHAPE", ["n", "[1]"], ["a"]), Op("CONCATENATION", ["a", "2 of -1"], ["size"], *axis),
            Op("SLICE", ["x", "0s", "size"], ["before"]),
            Op("RESHAPE", ["n'", "[1]"], ["b"]), Op("CONCATENATION", ["b", "2 of 0"], ["begin"], *axis),
            Op("SLICE", ["x", "begin", "-1s"], ["after"]),
            Op("CONCATENATION", ["before", "row", "after"], ["x'"], *axis),
        ],
        names, results,
    )  # fmt: skip
    last = [whole(name, data) for name, data in (("first", [-1, 0, 0]), ("end", [0, 1, 3]), ("by", [1, 1, 1]))]
    tensors = [whole("n", 0), *kept()[1:], *kept("'", 1, (-1, -1, 3)), *last, T("y", [1, 3], signature=[-1, 3])]
    loop = Op("WHILE", names, results, "WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})
    masks = {"ShrinkAxisMask": 1}
    pick = Op("STRIDED_SLICE", ["x'", "first", "end", "by"], ["y"], "StridedSliceOptions", masks)
    return model(tensors, [loop, pick], ["x", "h"], ["x'", "y"], condition, body)


def test_a_loop_that_replaces_rows(tmp_path: Path) -> None:
    x, h = np.arange(12, dtype=np.float32).reshape(4, 1, 3), np.array([[1, -2, 3]], np.float32)
    check(rows(), [[x, h]], tmp_path)


def test_a_loop_whose_value_changes_its_shape_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(rows(step=2))
    with pytest.raises(ModelError, match=r"its value 1 changes its shape in a round, from \[4, 1, 3\]"):
        load(tmp_path / "m.tflite")


def test_branches_of_open_sizes(tmp_path: Path) -> None:
    def opened(name: str) -> T:
        return T(name, [1, 6], signature=[-1, 6])

    tensors = [T("x", [3, 6]), tensor("yes", (), bool), opened("y"), tensor("z", (3, 6))]
    node = Op("IF", ["yes", "x"], ["y"], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})
    file = model(
        tensors, [node, Op("NEG", ["y"], ["z"])], ["x", "yes"], ["z"], unary("EXP", opened), unary("NEG", opened)
    )
    x = np.linspace(-2, 2, 18, dtype=np.float32).reshape(3, 6)
    check(file, [[x, np.array(yes)] for yes in (True, False)], tmp_path)


def test_a_subgraph_that_calls_itself_is_refused(tmp_path: Path) -> None:
    node = Op("IF", ["yes", "x"], ["y"], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 1})
    again = Graph([tensor("x"), tensor("yes", (), bool, True), tensor("y")], [node], ["x"], ["y"])
    (tmp_path / "m.tflite").write_bytes(branches(again, unary("EXP")))
    with pytest.raises(ModelError, match=r"limit '(depth|nodes)'"):
        load(tmp_path / "m.tflite", ModelOptions(limits={"nodes": 500}))


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (Graph([tensor("x"), tensor("z", (1, 3))], [], ["x"], []), "0 outputs; expected 1"),
        (Graph([tensor("x", (1, 3)), tensor("y")], [Op("EXP", ["x"], ["y"])], ["x"], ["y"]), "input 0 is"),
    ],
)
def test_a_subgraph_that_does_not_fit_is_refused(then: Graph, said: str, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(branches(then, unary("EXP")))
    with pytest.raises(ModelError) as caught:
        load(tmp_path / "m.tflite")
    assert any(said in line for line in caught.value.details)
