"""TFLite resource variables: states with the initial values from the model's first subgraph."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_models import Array, Graph, Op, T, model

import mtool
from mtool.base.errors import ModelError
from mtool.compiler.frontend import ModelOptions, load

SHAPE = [1, 3, 4]
SCALE, ZERO = 0.1, -20
R = np.random.default_rng(5)


def handle(name: str, output: str) -> Op:
    return Op("VAR_HANDLE", [], [output], "VarHandleOptions", {"Container": "", "SharedName": name})


def resource(name: str) -> T:
    return T(name, [], kind="RESOURCE")


def tensor(name: str, shape: Any = SHAPE, data: Array | None = None) -> T:
    return T(name, shape, np.int8, SCALE, ZERO, data=data)


def start(first: Array | None, name: str = "ring") -> Graph:
    """Return the subgraph that gives the variable its first value."""
    if first is None:
        return Graph([], [])
    ops = [handle(name, "v"), Op("ASSIGN_VARIABLE", ["v", "c"], [])]
    return Graph([resource("v"), T("c", first.shape, first.dtype, SCALE, ZERO, data=first)], ops)


ONCE = Op("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1})


def streaming(first: Array | None = None, *, extra: list[Op] | None = None) -> bytes:
    """Return a model that keeps its last three inputs and gives their sum."""
    whole = [T("begin", [3], np.int32, data=np.array([0, 1, 0])), T("end", [3], np.int32, data=np.array([1, 4, 4]))]
    whole += [T("steps", [3], np.int32, data=np.ones(3)), T("axis", [1], np.int32, data=np.array([1]))]
    tensors = [tensor("x", [1, 1, 4]), resource("h"), tensor("old"), tensor("all", [1, 4, 4]), tensor("new"), *whole]
    tensors.append(T("y", [1, 4], np.int8, 0.2, 3))
    ops = [
        ONCE,
        handle("ring", "h"),
        Op("READ_VARIABLE", ["h"], ["old"]),
        Op("CONCATENATION", ["old", "x"], ["all"], "ConcatenationOptions", {"Axis": 1}),
        Op("STRIDED_SLICE", ["all", "begin", "end", "steps"], ["new"], "StridedSliceOptions", {}),
        Op("ASSIGN_VARIABLE", ["h", "new"], []),
        Op("MEAN", ["all", "axis"], ["y"], "ReducerOptions", {}),
        *(extra or []),
    ]
    return model(tensors, ops, ["x"], ["y"], start(first))


def saved(data: bytes, folder: Path) -> Path:
    path = folder / "m.tflite"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
def test_a_ring_of_frames_is_litert_s_over_a_sequence(rounding: Any, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    first = R.integers(-128, 128, SHAPE).astype(np.int8)
    path = saved(streaming(first), tmp_path)
    options = mtool.Options(rounding=rounding)
    report = mtool.verify(
        path, board="host", options=options, samples=8, deployment=mtool.Deployment(tmp_path / "project")
    )
    report.check()
    assert report.sequence


def test_a_reset_brings_the_first_values_back(tmp_path: Path) -> None:
    first = R.integers(-128, 128, SHAPE).astype(np.int8)
    path = saved(streaming(first), tmp_path)
    with mtool.open(mtool.prepare(path, board="host", folder=tmp_path / "project")) as device:
        x = {"x": np.full((1, 1, 4), 7, np.int8)}
        runs = [device.run(x)["y"] for _ in range(4)]
        device.reset_state()
        again = [device.run(x)["y"] for _ in range(4)]
    assert np.array_equal(runs, again) and not np.array_equal(runs[0], runs[3])


def test_what_begins_as_what(tmp_path: Path) -> None:
    first = R.integers(-128, 128, SHAPE).astype(np.int8)
    (state,) = load(saved(streaming(first), tmp_path)).states
    assert state.input == "ring" and state.initial is not None and np.array_equal(state.initial, first)
    graph = load(saved(streaming(), tmp_path))
    assert graph.states[0].initial is not None and (graph.states[0].initial == ZERO).all()
    assert graph.caller_inputs == ("x",) and graph.quant["ring"].zero_point == (ZERO,)


def test_a_variable_that_nothing_writes_is_a_constant(tmp_path: Path) -> None:
    first = R.integers(-128, 128, SHAPE).astype(np.int8)
    tensors = [tensor("x"), resource("h"), tensor("old"), T("y", SHAPE, np.int8, 0.2, 3)]
    ops = [ONCE, handle("ring", "h"), Op("READ_VARIABLE", ["h"], ["old"]), Op("ADD", ["old", "x"], ["y"], "AddOptions")]
    graph = load(saved(model(tensors, ops, ["x"], ["y"], start(first)), tmp_path))
    assert not graph.states and any(np.array_equal(data, first) for data in graph.constants.values())


def test_a_variable_that_is_written_first_is_none_that_is_kept(tmp_path: Path) -> None:
    tensors = [tensor("x"), resource("h"), tensor("old"), T("y", SHAPE, np.int8, 0.2, 3)]
    ops = [handle("ring", "h"), Op("ASSIGN_VARIABLE", ["h", "x"], []), Op("READ_VARIABLE", ["h"], ["old"])]
    ops.append(Op("ADD", ["old", "x"], ["y"], "AddOptions"))
    graph = load(saved(model(tensors, ops, ["x"], ["y"]), tmp_path))
    assert not graph.states and graph.inputs == ("x",)


def test_an_output_or_input_that_is_kept_too(tmp_path: Path) -> None:
    """y is what the variable was before, which becomes x: neither leaves the interface."""
    tensors = [tensor("x"), resource("h"), tensor("y")]
    ops = [handle("ring", "h"), Op("READ_VARIABLE", ["h"], ["y"]), Op("ASSIGN_VARIABLE", ["h", "x"], [])]
    path = saved(model(tensors, ops, ["x"], ["y"]), tmp_path)
    graph = load(path)
    assert graph.caller_inputs == ("x",) and graph.output_names[0] == "y" and len(graph.states) == 1
    with mtool.open(mtool.prepare(path, board="host", folder=tmp_path / "project")) as device:
        frames = [np.full(SHAPE, number, np.int8) for number in (1, 2, 3)]
        assert [device.run({"x": frame})["y"].flat[0] for frame in frames] == [ZERO, 1, 2]


@pytest.mark.parametrize(
    ("first", "extra", "words"),
    [
        (np.zeros([2, 2], np.int8), [], "its variable is int8\\[1, 3, 4\\], its initial value int8\\[2, 2\\]"),
        (np.zeros(SHAPE, np.float32), [], "its initial value float32"),
        (None, [Op("ASSIGN_VARIABLE", ["h", "all"], [])], "its variable has two types: .* and int8\\[1, 4, 4\\]"),
        (np.zeros(SHAPE, np.int8), [ONCE], "that has been used before"),
    ],
)
def test_what_does_not_fit_is_refused(first: Array | None, extra: list[Op], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        load(saved(streaming(first, extra=extra), tmp_path))


def test_what_is_not_a_variable_can_t_be_read(tmp_path: Path) -> None:
    data = model([tensor("x"), tensor("y")], [Op("READ_VARIABLE", ["x"], ["y"])], ["x"], ["y"])
    with pytest.raises(ModelError, match="its input 0 is not the output of a VAR_HANDLE"):
        load(saved(data, tmp_path))


@pytest.mark.parametrize(
    ("number", "graph", "words"),
    [
        (2, Graph([], []), "it refers to subgraph 2, but there are 2"),
        (0, Graph([], []), "it refers to subgraph 0, but there are 2"),
        (1, Graph([tensor("a"), tensor("b")], [Op("RELU", ["a"], ["b"])]), r"b \(RELU 0\) in its subgraph"),
        (1, Graph([tensor("a")], [Op("ASSIGN_VARIABLE", ["a", "a"], [])]), "does not assign a constant to a variable"),
    ],
)
def test_a_first_subgraph_that_is_more_than_constants(number: int, graph: Graph, words: str, tmp_path: Path) -> None:
    once = Op("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": number})
    data = model([tensor("x"), tensor("y")], [once, Op("RELU", ["x"], ["y"])], ["x"], ["y"], graph)
    with pytest.raises(ModelError, match=words):
        load(saved(data, tmp_path))


def test_a_state_of_the_user_s_beside_the_model_s_own(tmp_path: Path) -> None:
    tensors = [tensor("x"), resource("h"), tensor("old"), tensor("s"), tensor("y"), tensor("next")]
    ops = [
        handle("ring", "h"),
        Op("READ_VARIABLE", ["h"], ["old"]),
        Op("ADD", ["old", "x"], ["y"], "AddOptions"),
        Op("ASSIGN_VARIABLE", ["h", "y"], []),
        Op("ADD", ["s", "y"], ["next"], "AddOptions"),
    ]
    path = saved(model(tensors, ops, ["x", "s"], ["y", "next"]), tmp_path)
    graph = load(path, ModelOptions(states=[("next", "s")], state_values={"s": np.asarray(5)}))
    begun = {state.input: int(state.initial.flat[0]) for state in graph.states if state.initial is not None}
    assert begun == {"ring": ZERO, "s": 5}
    plain = load(path, ModelOptions(states=[("next", "s")]))
    assert [int(state.initial.flat[0]) for state in plain.states if state.initial is not None] == [ZERO, ZERO]


def test_what_is_written_and_read_at_once_is_still_itself(tmp_path: Path) -> None:
    tensors = [tensor("x"), resource("h"), tensor("a"), tensor("old"), tensor("y")]
    ops = [
        handle("ring", "h"),
        Op("ABS", ["x"], ["a"]),
        Op("ASSIGN_VARIABLE", ["h", "a"], []),
        Op("READ_VARIABLE", ["h"], ["old"]),
        Op("ADD", ["old", "a"], ["y"], "AddOptions"),
    ]
    graph = load(saved(model(tensors, ops, ["x"], ["a", "y"]), tmp_path))
    assert graph.output_names == ("a", "y") and not graph.states


STEP = [handle("ring", "h"), Op("READ_VARIABLE", ["h"], ["old"])]
INIT = R.integers(-20, 20, SHAPE).astype(np.int8)


def accumulating(*before: Op) -> Graph:
    """Return a subgraph that adds x to a variable, and gives the sum."""
    ops = [*before, *STEP, Op("ADD", ["old", "x"], ["y"], "AddOptions", {}), Op("ASSIGN_VARIABLE", ["h", "y"], [])]
    return Graph([tensor("x"), resource("h"), tensor("old"), tensor("y")], ops, ["x"], ["y"])


def choosing(*others: Graph, ops: tuple[Op, ...] = (), outputs: tuple[str, ...] = ("y",)) -> bytes:
    """Return a model whose subgraphs 2 and 3 are the branches of an IF; subgraph 1 begins the variable."""
    node = Op("IF", ["yes", "x"], ["y"], "IfOptions", {"ThenSubgraphIndex": 2, "ElseSubgraphIndex": 3})
    tensors = [tensor("x"), T("yes", [], bool), tensor("y"), resource("h"), tensor("old")]
    return model(tensors, [*ops, node], ["x", "yes"], outputs, start(INIT), *others)


READING = Graph([tensor("x"), resource("h"), tensor("old"), tensor("y")],
                [*STEP, Op("MAXIMUM", ["old", "x"], ["y"])], ["x"], ["y"])  # fmt: skip
WITHOUT = Graph([tensor("x"), tensor("y")], [Op("RELU", ["x"], ["y"])], ["x"], ["y"])
WRITING = Graph([tensor("x"), resource("h"), tensor("y")],
                [handle("ring", "h"), Op("ASSIGN_VARIABLE", ["h", "x"], []), Op("RELU", ["x"], ["y"])],
                ["x"], ["y"])  # fmt: skip


def looping() -> bytes:
    """Return a model that adds x to a variable in each of three rounds, and reads it after them."""
    number = {"shape": [], "dtype": np.int32}
    node = Op("WHILE", ["x", "zero"], ["y", "n"], "WhileOptions", {"CondSubgraphIndex": 2, "BodySubgraphIndex": 3})
    condition = Graph(
        [tensor("x"), T("i", **number), T("three", **number, data=np.int32(3)), T("c", [], bool)],
        [Op("LESS", ["i", "three"], ["c"])], ["x", "i"], ["c"],
    )  # fmt: skip
    body = Graph(
        [tensor("x"), T("i", **number), T("one", **number, data=np.int32(1)), T("k", **number), resource("h"),
         tensor("old"), tensor("y")],
        [*STEP, Op("ADD", ["old", "x"], ["y"], "AddOptions", {}), Op("ASSIGN_VARIABLE", ["h", "y"], []),
         Op("ADD", ["i", "one"], ["k"], "AddOptions", {})],
        ["x", "i"], ["y", "k"],
    )  # fmt: skip
    tensors = [tensor("x"), T("zero", **number, data=np.int32(0)), T("n", **number), tensor("y"), resource("h")]
    return model([*tensors, tensor("old")], [ONCE, node, *STEP], ["x"], ["y", "old"], start(INIT), condition, body)


def as_told_by_a_variable() -> bytes:
    """Return a model that loops while a variable is below 5; its body counts that up, and 3 are taken off behind it."""
    number = {"shape": [], "dtype": np.int32}

    def known(name: str, value: int) -> T:
        return T(name, **number, data=np.int32(value))

    node = Op("WHILE", ["x"], ["y"], "WhileOptions", {"CondSubgraphIndex": 2, "BodySubgraphIndex": 3})
    condition = Graph(
        [tensor("x"), resource("h"), T("old", **number), known("five", 5), T("c", [], bool)],
        [*STEP, Op("LESS", ["old", "five"], ["c"])], ["x"], ["c"],
    )  # fmt: skip
    more = T("more", SHAPE, np.int8, SCALE, ZERO, data=np.full(SHAPE, ZERO + 2))
    body = Graph(
        [tensor("x"), resource("h"), T("old", **number), known("one", 1), T("new", **number), more, tensor("y")],
        [*STEP, Op("ADD", ["old", "one"], ["new"], "AddOptions", {}), Op("ASSIGN_VARIABLE", ["h", "new"], []),
         Op("ADD", ["x", "more"], ["y"], "AddOptions", {})],
        ["x"], ["y"],
    )  # fmt: skip
    tensors = [tensor("x"), tensor("y"), resource("h"), T("old", **number), known("three", 3), T("left", **number)]
    ops = [ONCE, node, *STEP, Op("SUB", ["old", "three"], ["left"], "SubOptions", {})]
    begun = Graph([resource("v"), known("c", 1)], [handle("ring", "v"), Op("ASSIGN_VARIABLE", ["v", "c"], [])])
    ops.append(Op("ASSIGN_VARIABLE", ["h", "left"], []))
    return model(tensors, ops, ["x"], ["y", "left"], begun, condition, body)


@pytest.mark.product(2)
@pytest.mark.parametrize(
    "file",
    [
        choosing(accumulating(), READING, ops=(ONCE,)),
        choosing(accumulating(), WITHOUT, ops=(ONCE, *STEP), outputs=("y", "old")),
        choosing(WITHOUT, accumulating(ONCE)),
        choosing(WRITING, READING, ops=(ONCE,)),
        looping(),
        as_told_by_a_variable(),
    ],
    ids=[
        "in both branches",
        "and outside",
        "begun inside",
        "written without being read",
        "in each round",
        "in the condition",
    ],
)
def test_variables_of_subgraphs_are_litert_s_over_a_sequence(file: bytes, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = saved(file, tmp_path)
    deployment = mtool.Deployment(tmp_path / "project")
    report = mtool.verify(
        path, board="host", options=mtool.Options(rounding="tflite"), samples=8, deployment=deployment
    )
    report.check()
    assert report.sequence
