"""States in the arena: over several runs, C computes what onnxruntime does with its outputs fed back."""

import ctypes
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sanitized
from graphs import FLAGS, HOST, Array, model, reference
from onnx import helper

from mtool.base.option_values import Io
from mtool.compiler import codegen, frontend, passes
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.operators.verification import verify
from mtool.compiler.plan import Plan, make_plan

F32 = np.float32
STEPS = 5
Pairs = Sequence[tuple[str, str]]


def planned(proto: onnx.ModelProto, states: Pairs, io: Io = "arena") -> Plan:
    plan = make_plan(
        passes.run(frontend.from_proto(proto, "test", frontend.ModelOptions(states=states)), HOST), HOST, io
    )
    verify(plan.graph)
    return plan


def in_c(plan: Plan, feeds: Sequence[Mapping[str, Array]], folder: Path, *, reset_at: int = -1) -> list[list[Array]]:
    """Run a plan's C on each step and return the outputs; before the step `reset_at`, reset the states."""
    files, manifest = codegen.generate(plan, "test.onnx", "0" * 64)
    for name in files:
        (folder / name).write_bytes(files[name])
    code = ctypes.CDLL(str(sanitized.library(folder, "test", FLAGS)))
    found = []
    for number, feed in enumerate(feeds):
        if number == reset_at:
            code.test_reset()
        data = [np.ascontiguousarray(feed[tensor.name]) for tensor in manifest.inputs]
        outputs: list[Array] = [np.zeros(tensor.shape, tensor.dtype) for tensor in manifest.outputs]
        ins, outs = ((ctypes.c_void_p * (len(a) or 1))(*[x.ctypes.data for x in a]) for a in (data, outputs))
        assert code.test_run(ctypes.byref(ins), ctypes.byref(outs)) == 0
        found.append(outputs)
    return found


def by_reference(
    proto: onnx.ModelProto, states: Pairs, feeds: Sequence[Mapping[str, Array]], begin: Mapping[str, Array]
) -> list[list[Array]]:
    names = [output.name for output in proto.graph.output]
    kept, found = dict(begin), []
    for feed in feeds:
        made = dict(zip(names, reference(proto, {**feed, **kept}), strict=True))
        kept = {value: made[output] for output, value in states}
        found.append([made[name] for name in names if name not in {output for output, _ in states}])
    return found


def check(
    proto: onnx.ModelProto, states: Pairs, folder: Path, *, begin: Mapping[str, Array] | None = None, io: Io = "arena"
) -> Plan:
    """Hold the C to onnxruntime over a sequence, and over the same again after a reset."""
    kinds = {put.name: put.type.tensor_type for put in proto.graph.input}
    random_numbers = np.random.default_rng(1)
    arrays: dict[str, Any] = {
        name: ([dim.dim_value for dim in kind.shape.dim], helper.tensor_dtype_to_np_dtype(kind.elem_type))
        for name, kind in kinds.items()
    }
    fed = {value for _, value in states}
    feeds = [
        {
            name: (random_numbers.standard_normal(shape) * 3).astype(dtype)
            for name, (shape, dtype) in arrays.items()
            if name not in fed
        }
        for _ in range(STEPS)
    ]
    zeros = {name: np.zeros(*arrays[name]) for name in fed} | dict(begin or {})
    plan = planned(proto, states, io)
    expected = by_reference(proto, states, feeds, zeros)
    for step, (found, wished) in enumerate(
        zip(in_c(plan, feeds * 2, folder, reset_at=STEPS), expected * 2, strict=True)
    ):
        for number, (a, b) in enumerate(zip(found, wished, strict=True)):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=f"output {number} of step {step}")
    return plan


def copies(plan: Plan) -> int:
    return sum(getattr(step.node.attrs, "label", "") in ("keep", "copy") for step in plan.steps)


def test_a_running_sum_is_written_over_itself(tmp_path: Path) -> None:
    proto = model(
        [helper.make_node("Add", ["h", "x"], ["next"]), helper.make_node("Relu", ["next"], ["y"])],
        {"x": (F32, (4,)), "h": (F32, (4,))},
        ["y", "next"],
    )
    plan = check(proto, [("next", "h")], tmp_path)
    assert copies(plan) == 0
    assert plan.offsets["h"] == plan.offsets[plan.graph.outputs[-1]]


def test_the_old_value_is_read_before_the_new_one_is_written(tmp_path: Path) -> None:
    """The writer comes first in the model, and is put off instead of copied."""
    nodes = [helper.make_node("Neg", ["x"], ["next"]), helper.make_node("Add", ["h", "x"], ["y"])]
    proto = model(nodes, {"x": (F32, (4,)), "h": (F32, (4,))}, ["y", "next"])
    assert copies(check(proto, [("next", "h")], tmp_path)) == 0


def test_what_cannot_be_written_in_place_is_copied_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["h", "w"], ["m"]),
        helper.make_node("Add", ["m", "x"], ["next"]),
        helper.make_node("Neg", ["next"], ["y"]),
    ]
    weights = {"w": np.linspace(-0.5, 0.5, 16, dtype=F32).reshape(4, 4)}
    proto = model(nodes, {"x": (F32, (1, 4)), "h": (F32, (1, 4))}, ["y", "next"], weights)
    plan = check(proto, [("next", "h")], tmp_path)
    assert copies(plan) == 1
    assert plan.steps[-1].schedule.name == "c99_move"


def test_states_that_change_places(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Identity", ["b"], ["a2"]),
        helper.make_node("Add", ["a", "x"], ["b2"]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    proto = model(nodes, dict.fromkeys("xab", (F32, (4,))), ["y", "a2", "b2"])
    check(proto, [("a2", "a"), ("b2", "b")], tmp_path)


def test_a_shift_register(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["s0"]),
        helper.make_node("Identity", ["r0"], ["s1"]),
        helper.make_node("Identity", ["r1"], ["s2"]),
        helper.make_node("Sum", ["r0", "r1", "r2"], ["y"]),
    ]
    proto = model(nodes, dict.fromkeys(("x", "r0", "r1", "r2"), (F32, (3,))), ["y", "s0", "s1", "s2"])
    plan = check(proto, [("s0", "r0"), ("s1", "r1"), ("s2", "r2")], tmp_path)
    assert copies(plan) == 3  # each once, from one to the next


def test_an_output_feeds_two_inputs_and_one_is_never_read(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["a", "x"], ["s"]), helper.make_node("Sub", ["a", "b"], ["y"])]
    proto = model(nodes, dict.fromkeys(("x", "a", "b", "idle"), (F32, (4,))), ["y", "s"])
    check(proto, [("s", "a"), ("s", "b"), ("s", "idle")], tmp_path)


@pytest.mark.parametrize("io", ["arena", "external"])
def test_initial_values_and_the_callers_memory(io: Io, tmp_path: Path) -> None:
    begin = {"h": np.array([1, -2, 3, 0.5], F32)}
    nodes = [helper.make_node("Add", ["h", "x"], ["next"]), helper.make_node("Mul", ["h", "x"], ["y"])]
    proto = model(nodes, {"x": (F32, (4,)), "h": (F32, (4,))}, ["y", "next"], begin)
    plan = check(proto, [("next", "h")], tmp_path, begin=begin, io=io)
    header = (tmp_path / "test.h").read_text()
    assert "void test_reset(void);" in header and "next -> h: float32[4]" in header
    assert "h" not in {tensor.name for tensor in codegen.generate(plan, "test.onnx", "0" * 64)[1].inputs}


def test_a_recurrent_cell_is_written_over_its_state(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    shapes = {"w": (1, 32, 4), "r": (1, 32, 8), "b": (1, 64)}
    weights = {name: (chance.standard_normal(shape) * 0.3).astype(F32) for name, shape in shapes.items()}
    cell = helper.make_node("LSTM", ["x", "w", "r", "b", "", "h0", "c0"], ["", "hn", "cn"], hidden_size=8)
    proto = model(
        [cell, helper.make_node("Relu", ["hn"], ["y"])],
        {"x": (F32, (1, 1, 4)), "h0": (F32, (1, 1, 8)), "c0": (F32, (1, 1, 8))},
        ["y", "hn", "cn"],
        weights,
    )
    assert copies(check(proto, [("hn", "h0"), ("cn", "c0")], tmp_path)) == 0


def window(form: str, rank: int, shift: int = 1, *, begin: bool = False) -> tuple[onnx.ModelProto, Pairs]:
    """Return a causal convolution of 3 taps over time, with a state in one of the two forms that exporters write."""
    chance = np.random.default_rng(0)
    taps, shape, unit = (3, (1, 6), ()) if rank == 3 else (3, (1, 6), (2,))
    kept = 2 if form == "append" else 3 + shift - 1
    weights = {
        "w": (chance.standard_normal((5, 6, taps, *unit)) * 0.3).astype(F32),
        "end": np.array([2**31 - 1]),
        "time": np.array([2]),
        "first": np.array([-kept if form == "append" else shift]),
    }
    if begin:
        weights["cache"] = chance.standard_normal((*shape, kept, *unit)).astype(F32)
    if form == "append":
        nodes = [
            helper.make_node("Concat", ["cache", "x"], ["all"], axis=2),
            helper.make_node("Conv", ["all", "w"], ["y"]),
            helper.make_node("Slice", ["all", "first", "end", "time"], ["next"]),
        ]
    else:
        nodes = [
            helper.make_node("Slice", ["cache", "first", "end", "time"], ["old"]),
            helper.make_node("Concat", ["old", "x"], ["next"], axis=2),
            helper.make_node("Conv", ["next", "w"], ["y"]),
        ]
    inputs = {"x": (F32, (*shape, shift, *unit)), "cache": (F32, (*shape, kept, *unit))}
    return model(nodes, inputs, ["y", "next"], weights), [("next", "cache")]


@pytest.mark.product(4)
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("shift", [1, 2, 5])
@pytest.mark.parametrize("form", ["append", "shift"])
@pytest.mark.parametrize("begin", [False, True])
def test_a_window_is_appended_to_and_moved_in_place(
    form: str, shift: int, rank: int, begin: bool, tmp_path: Path
) -> None:
    proto, states = window(form, rank, shift, begin=begin)
    initial = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer if t.name == "cache"}
    plan = check(proto, states, tmp_path, begin=initial)
    assert copies(plan) == 0
    labels = {step.op.label(step.node, plan.graph): step for step in plan.steps}
    assert Concat.of(labels["concat"].node).appends
    assert labels["slice"].schedule.name == "c99_move"
    assert "transpose" not in labels or shift > 1 or rank == 4  # of what is new, at most


def test_a_window_that_is_read_otherwise_too_is_not_written_over(tmp_path: Path) -> None:
    proto, states = window("append", 3)
    proto.graph.node.append(helper.make_node("ReduceSum", ["cache"], ["z"]))
    proto.graph.node.append(helper.make_node("ReduceMax", ["all"], ["v"]))
    proto.graph.output.append(helper.make_tensor_value_info("z", 1, [1, 1, 1]))
    proto.graph.output.append(helper.make_tensor_value_info("v", 1, [1, 1, 1]))
    check(proto, states, tmp_path)


def quantized_window(scale_out: float) -> onnx.ModelProto:
    """A float cache that is quantized where it is read, and dequantized where it is written."""
    constants = {
        "s": F32(0.05), "z": np.int8(3), "t": F32(scale_out), "first": np.array([-2]), "end": np.array([99]),
        "time": np.array([2]),
    }  # fmt: skip
    q = [
        helper.make_node(op, [value, scale, "z"], [out])
        for op, value, scale, out in (
            ("QuantizeLinear", "cache", "s", "cq"), ("DequantizeLinear", "cq", "s", "cd"),
            ("QuantizeLinear", "x", "s", "xq"), ("DequantizeLinear", "xq", "s", "xd"),
            ("QuantizeLinear", "all", "s", "aq"), ("DequantizeLinear", "aq", "s", "ad"),
            ("QuantizeLinear", "cut", "t", "nq"), ("DequantizeLinear", "nq", "t", "next"),
        )
    ]  # fmt: skip
    concat = helper.make_node("Concat", ["cd", "xd"], ["all"], axis=2)
    cut = helper.make_node("Slice", ["ad", "first", "end", "time"], ["cut"])
    top = helper.make_node("MaxPool", ["ad"], ["y"], kernel_shape=[3])
    inputs = {"x": (F32, (1, 6, 1)), "cache": (F32, (1, 6, 2))}
    return model([*q[:4], concat, *q[4:6], top, cut, *q[6:]], inputs, ["y", "next"], constants)


def test_a_quantized_state_is_kept_as_integers(tmp_path: Path) -> None:
    plan = check(quantized_window(0.05), [("next", "cache")], tmp_path)
    ((state, value, _),) = plan.graph.state_values
    assert str(plan.graph.types[value]) == "int8[1,1,2,6]"
    assert state.initial is not None and (state.initial == 3).all()  # 0.0 is the zero point
    assert copies(plan) == 0
    assert [s.schedule.name for s in plan.steps if s.op.label(s.node, plan.graph).startswith("slice")] == ["c99_move"]


def test_a_state_with_two_scales_is_requantized_as_the_model_says(tmp_path: Path) -> None:
    plan = check(quantized_window(0.07), [("next", "cache")], tmp_path)
    ((_, value, _),) = plan.graph.state_values
    assert plan.graph.types[value].dtype.label == "int8"


@pytest.mark.parametrize("seed", range(5))  # many more run in tests/compiler/plan/test_arena.py
def test_random_models(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    kept = chance.randrange(1, 4)
    values = ["x", *(f"h{n}" for n in range(kept))]
    constants: dict[str, Array] = {"w": np.linspace(-0.4, 0.4, 16, dtype=F32).reshape(4, 4)}
    constants |= {"one": np.array([1]), "three": np.array([3]), "end": np.array([4]), "axis": np.array([1])}
    nodes = []
    for number in range(chance.randrange(3, 9)):
        made = f"v{number}"
        kind = chance.choice(["Add", "Tanh", "MatMul", "MatMul", "Shift", "Identity", "Transpose"])
        first, second = chance.choice(values), chance.choice(values)
        if kind == "Shift":
            nodes.append(helper.make_node("Slice", [first, "one", "end", "axis"], [f"{made}s"]))
            nodes.append(helper.make_node("Slice", [second, "three", "end", "axis"], [f"{made}t"]))
            nodes.append(helper.make_node("Concat", [f"{made}s", f"{made}t"], [made], axis=1))
        elif kind in ("Add", "MatMul"):
            nodes.append(helper.make_node(kind, [first, second if kind == "Add" else "w"], [made]))
        elif kind == "Transpose":
            nodes.append(helper.make_node("Reshape", [first, "square"], [f"{made}r"]))
            nodes.append(helper.make_node("Transpose", [f"{made}r"], [f"{made}t"], perm=[1, 0]))
            nodes.append(helper.make_node("Reshape", [f"{made}t", "flat"], [made]))
        else:
            nodes.append(helper.make_node(kind, [first], [made]))
        values.append(made)
    constants |= {"square": np.array([2, 2]), "flat": np.array([1, 4])}
    made = [value for value in values if value.startswith("v")]
    nodes.append(helper.make_node("Sum", [f"h{n}" for n in range(kept)] + made, ["y"]))
    nodes += [helper.make_node("Tanh" if chance.random() < 0.3 else "Identity", [chance.choice(values)], [f"o{n}"])
              for n in range(kept)]  # fmt: skip
    inputs = {value: (F32, (1, 4)) for value in values if not value.startswith("v")}
    proto = model(nodes, inputs, ["y", *(f"o{n}" for n in range(kept))], constants)
    check(proto, [(f"o{n}", f"h{n}") for n in range(kept)], tmp_path)


def test_the_bound_counts_states_all_the_time(tmp_path: Path) -> None:
    proto, states = window("append", 3)
    plan = planned(proto, states)
    home = [piece for piece, _ in plan.storages if "cache" in piece.values]
    assert [(piece.first, piece.last, piece.bytes) for piece in home] == [(-1, len(plan.steps), 3 * 6 * 4)]
    assert plan.arena_bytes >= plan.arena_bound_bytes >= 3 * 6 * 4
    without = make_plan(passes.run(replace(frontend.from_proto(proto, "test")), HOST), HOST)
    assert plan.arena_bytes < without.arena_bytes
