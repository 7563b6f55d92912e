"""Sliding windows: random networks compute the same as over whole windows, and only what is new."""

from dataclasses import replace

import interpreter
import numpy as np
import onnx
import pytest
import sliding
from graphs import HOST, model
from networks import imported
from onnx import helper

from mtool.base.errors import UsageError
from mtool.compiler import passes
from mtool.compiler.frontend.options import slides_of
from mtool.compiler.ir import Graph, Slide
from mtool.compiler.passes.slide import with_slides
from mtool.compiler.plan import make_plan


def _compared(seed: int, calls: int) -> tuple[Graph, Graph]:
    proto, slide = sliding.network(seed)
    noted = with_slides(replace(imported(proto), slides=(slide,)))
    whole, slid = (passes.run(graph, HOST) for graph in (imported(proto), noted))
    noted = replace(noted, slides=slid.slides)
    pairs = [*sliding.sequence(noted, slide, calls, seed)]
    arena = interpreter.Arena(make_plan(slid, HOST))
    for (wanted, got), (new, _) in zip(
        zip(
            interpreter.run(whole, [{"x": window} for _, window in pairs]),
            interpreter.run(slid, [{"x": new} for new, _ in pairs]),
            strict=True,
        ),
        pairs,
        strict=True,
    ):
        in_arena = arena.run({"x": new})
        for one, other, placed in zip(wanted, got, in_arena, strict=True):
            np.testing.assert_array_equal(other, placed)
            if one.dtype.kind == "f":
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(one, other)
    return whole, slid


@pytest.mark.parametrize("seed", [*range(8), 50, 67])
def test_hops_equal_whole_windows(seed: int) -> None:
    _compared(seed, 8)


@pytest.mark.parametrize("warns", [False, True])
def test_a_slide_that_saves_nothing_is_reported(warns: bool, caplog: pytest.LogCaptureFixture) -> None:
    w = np.ones((1, 2, 3), np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[1 + 3 * warns])
    graph = imported(model([node], {"x": (np.float32, [1, 2, 16])}, ["y"], {"w": w}))
    passes.run(replace(graph, slides=slides_of(["x=1@2"])), HOST)
    assert ("saves no computation" in caplog.text) == warns


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 25))
def test_many_hops_of_many_networks_equal_whole_windows(first: int) -> None:
    for seed in range(first, first + 25):
        _compared(seed, 50)


def _compared_to_its_own_window(seed: int, calls: int) -> bool:
    """Compare a network that keeps its window itself with the whole window; return whether rows are kept."""
    proto, slide = sliding.network(seed)
    assert slide.axis is not None
    own, window = sliding.keeping(proto, slide, seed)
    whole, kept = (passes.run(imported(one), HOST) for one in (proto, own))
    rng, new = np.random.default_rng(seed), []
    windows = []
    for _ in range(calls):
        shape = (*window.shape[: slide.axis], slide.hop, *window.shape[slide.axis + 1 :])
        new.append(rng.integers(0, 100, shape).astype(window.dtype))
        windows.append(np.concatenate([window, new[-1]], slide.axis))
        window = windows[-1].take(range(slide.hop, windows[-1].shape[slide.axis]), slide.axis)
    for wanted, got in zip(
        interpreter.run(whole, [{"x": one} for one in windows]),
        interpreter.run(kept, [{"new": one} for one in new]),
        strict=True,
    ):
        for one, other in zip(wanted, got, strict=False):
            if one.dtype.kind == "f":
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(one, other)
    return any(state.output != "next" for state in kept.states)


def test_windows_that_a_model_keeps_slide_too() -> None:
    assert sum(_compared_to_its_own_window(seed, 8) for seed in range(8)) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 25))
def test_many_windows_that_models_keep(first: int) -> None:
    for seed in range(first, first + 25):
        _compared_to_its_own_window(seed, 50)


def _window(shape: tuple[int, ...] = (1, 12, 4), *slides: str, name: str = "x") -> Graph:
    node = helper.make_node("Relu", [name], ["y"])
    proto = model([node], {name: (np.float32, shape)}, ["y"])
    return with_slides(replace(imported(proto), slides=slides_of(slides or ["x=1"])))


@pytest.mark.parametrize(
    ("slide", "words"),
    [
        ("z=1", "unknown input z"),
        ("x=12", "the window has 12 rows along axis 1, so the hop must be 1 to 11"),
        ("x=0", "so the hop must be 1 to 11"),
        ("x=1@0", "the window has 1 row along axis 0, and can't slide"),
        ("x=1@7", "axis 7 does not exist\n  expected  0 to 2"),
        ("x=one", "expected INPUT=HOP or INPUT=HOP@AXIS"),
    ],
)
def test_wrong_windows_are_refused(slide: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        _window((1, 12, 4), slide)
    assert words in str(error.value)


def test_a_window_named_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="named twice") as error:
        _window((1, 12, 4), "x=1", "x=2")
    assert "did you mean" not in str(error.value)


def test_a_part_of_a_name_is_enough() -> None:
    assert [one.value for one in _window((1, 12, 4), "input_1=1", name="serving_input_1:0").slides] == [
        "serving_input_1:0"
    ]
    with pytest.raises(UsageError, match="unknown input se"):
        _window((1, 12, 4), "se=1", name="serving_input_1:0")


def test_rows_of_which_the_model_keeps_earlier_ones_do_not_slide() -> None:
    proto, slide = sliding.network(2)
    own, _ = sliding.keeping(proto, slide, 2)
    graph = imported(own)
    hop = Slide("new", 1, slide.axis)
    with pytest.raises(UsageError, match="keeps earlier rows of new itself"):
        passes.run(replace(graph, slides=(hop,)), HOST)


def test_the_metadata_of_a_model_say_that_it_slides() -> None:
    proto, slide = sliding.network(0)
    helper.set_model_props(proto, {"mtool.slides": f"x={slide.hop}"})
    assert imported(proto).slides == (Slide("x", slide.hop),)


def test_rows_are_those_of_time() -> None:
    assert [one.axis for one in _window((1, 1, 40), "x=4").slides] == [2]
    assert [one.axis for one in _window((12, 4), "x=3").slides] == [0]


def test_the_first_window_of_a_quantized_input_is_its_zero_point() -> None:
    proto, slide = sliding.network(2)
    (one,) = passes.run(with_slides(replace(imported(proto), slides=(slide,))), HOST).slides
    points = {init.name: onnx.numpy_helper.to_array(init) for init in proto.graph.initializer}
    (reader,) = (node for node in proto.graph.node if "x" in node.input)
    assert one.zero == points[reader.input[2]] != 0


def test_what_only_new_rows_need_is_computed_of_them_alone() -> None:
    graph = passes.run(_window((1, 12, 4)), HOST)
    assert [graph.types[node.outputs[0]].shape for node in graph.nodes if node.op == "loop"] == [(1, 1, 4), (1, 11, 4)]


@pytest.mark.parametrize(("seed", "states"), [(7, {"kept": 160}), (10, {"v4.s kept": 64})])
def test_of_a_window_that_a_model_keeps_only_what_is_read_is_a_state(seed: int, states: dict[str, int]) -> None:
    """It has its name in the model."""
    graph = passes.run(imported(sliding.keeping(*sliding.network(seed), seed)[0]), HOST)
    assert {state.input: graph.types[state.input].count for state in graph.states} == states
