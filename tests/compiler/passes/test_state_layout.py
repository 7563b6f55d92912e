"""States have the layout that their operators need, and every call gives the model's results, from the first on."""

import numpy as np
import pytest
from graphs import model
from onnx import helper
from single_pass import assert_same

from mtool.compiler import frontend
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.ir import Graph
from mtool.compiler.passes.lower import lower
from mtool.compiler.passes.state_layout import put_time_outermost

F32 = np.float32


def stream(seed: int) -> Graph:
    """Return a network with windows of streams, quantized or not, of 3 or 4 dimensions, with initial values or not."""
    rng = np.random.default_rng(seed)
    rank, kept, new = int(rng.integers(3, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    unit = (2,) if rank == 4 else ()
    form = "append" if rng.random() < 0.5 else "shift"
    kept += new if form == "shift" else 0
    quantized = rng.random() < 0.5
    constants = {
        "w": rng.uniform(-0.5, 0.5, (5, 3, 2, *[1 for _ in unit])).astype(F32),
        "first": np.array([-kept if form == "append" else new]), "end": np.array([2**31 - 1]), "time": np.array([2]),
        "s": F32(0.25), "z": np.int8(-3), "t": F32(0.25) if rng.random() < 0.7 else F32(0.3),
    }  # fmt: skip
    shape = (1, 3, kept, *unit)
    if rng.random() < 0.5:
        grid = 0.25 if rng.random() < 0.7 else 0.21
        constants["cache"] = (rng.integers(-40, 40, shape) * F32(grid)).astype(F32)

    def rounded(value: str, scale: str = "s") -> tuple[list, str]:  # type: ignore[type-arg]
        if not quantized:
            return [], value
        names = [value, f"{value}q", f"{value}d"]
        return [
            helper.make_node("QuantizeLinear", [names[0], scale, "z"], [names[1]]),
            helper.make_node("DequantizeLinear", [names[1], scale, "z"], [names[2]]),
        ], names[2]

    nodes, cache = rounded("cache")
    more, x = rounded("x")
    nodes += more
    if form == "append":
        nodes.append(helper.make_node("Concat", [cache, x], ["all"], axis=2))
        nodes.append(helper.make_node("Slice", ["all", "first", "end", "time"], ["cut"]))
        last, seen = "cut", "all"
    else:
        nodes.append(helper.make_node("Slice", [cache, "first", "end", "time"], ["old"]))
        nodes.append(helper.make_node("Concat", ["old", x], ["joined"], axis=2))
        last = seen = "joined"
    nodes.append(helper.make_node("Conv", [seen, "w"], ["y"]))
    more, after = rounded(last, "t")
    nodes += more
    for node in nodes:
        for names in (node.input, node.output):
            names[:] = ["next" if name == after else name for name in names]
    inputs = {"x": (F32, (1, 3, new, *unit)), "cache": (F32, shape)}
    return frontend.from_proto(
        model(nodes, inputs, ["y", "next"], constants), "test", ModelOptions(states=(("next", "cache"),))
    )


@pytest.mark.product(4)
@pytest.mark.parametrize("seed", range(40))
def test_random_streams_stay_the_same(seed: int) -> None:
    graph = stream(seed)
    turned = put_time_outermost(graph)
    assert_same(graph, turned, exact=False, calls=4)
    lowered = lower(turned)
    assert_same(graph, lowered, exact=False, calls=4)


def test_most_windows_lie_with_time_outermost() -> None:
    turned = [graph for seed in range(40) for graph in [put_time_outermost(stream(seed))]]
    shapes = [graph.types[value].shape for graph in turned for _, value, _ in graph.state_values]
    assert sum(shape[-1] == 3 and len(shape) == 4 for shape in shapes) > 25


def test_integers_that_say_it_exactly_are_kept_as_such() -> None:
    kinds = [
        lower(graph).types[value].dtype.label
        for seed in range(40)
        for graph in [stream(seed)]
        for _, value, _ in graph.state_values
    ]
    assert "int8" in kinds and "float32" in kinds


@pytest.mark.slow
def test_hundreds_of_roundings_before_a_state_need_no_recursion() -> None:
    nodes = [
        helper.make_node("Concat", ["cache", "x"], ["all"], axis=2),
        helper.make_node("Slice", ["all", "first", "end", "time"], ["v0"]),
        helper.make_node("Neg", ["all"], ["y"]),
    ]
    for n in range(1200):
        nodes.append(helper.make_node("QuantizeLinear", [f"v{n}", "s", "z"], [f"q{n}"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{n}", "s", "z"], [f"v{n + 1}"]))
    constants = {"first": np.array([-2]), "end": np.array([99]), "time": np.array([2]), "s": F32(0.5), "z": np.int8(1)}
    inputs = {"x": (F32, (1, 3, 1)), "cache": (F32, (1, 3, 2))}
    proto = model(nodes, inputs, ["y", "v1200"], constants)
    turned = put_time_outermost(frontend.from_proto(proto, "test", ModelOptions(states=(("v1200", "cache"),))))
    assert [turned.types[value].shape for _, value, _ in turned.state_values] == [(1, 1, 2, 3)]


@pytest.mark.parametrize("begins", [True, False])
def test_a_state_with_a_scale_for_each_channel_is_kept_as_integers(begins: bool) -> None:
    scales, points = np.array([0.5, 0.25, 0.125], F32), np.array([1, -2, 3], np.int8)
    nodes = [
        helper.make_node("Add", ["cache", "x"], ["sum"]),
        helper.make_node("QuantizeLinear", ["sum", "s", "z"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["next"], axis=1),
        helper.make_node("Neg", ["sum"], ["y"]),
    ]
    constants = {"s": scales, "z": points}
    if begins:
        steps = np.random.default_rng(6).integers(-50, 50, (1, 3, 4))
        constants["cache"] = (steps * scales[:, None]).astype(F32)
    inputs = {"x": (F32, (1, 3, 4)), "cache": (F32, (1, 3, 4))}
    graph = frontend.from_proto(
        model(nodes, inputs, ["y", "next"], constants), "test", ModelOptions(states=(("next", "cache"),))
    )
    held = lower(graph)
    assert [held.types[value].dtype.label for _, value, _ in held.state_values] == ["int8"]
    assert_same(graph, held, exact=False, calls=4)
