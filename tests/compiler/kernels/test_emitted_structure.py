"""Schedules' descriptions of their C against the C itself: parameters, headers and pointers."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from graphs import HOST, compiled, model, run_c
from onnx import TensorProto, helper

from mtool.compiler import codegen
from mtool.compiler.codegen import Conventions
from mtool.compiler.codegen.functions import emit_functions
from mtool.compiler.ir import DType, Graph, Node, TensorType
from mtool.compiler.ir.expr import axis, call, const, load, number
from mtool.compiler.kernels.expressions import operands_read
from mtool.compiler.kernels.loop import Loop, LoopNest
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import make_plan

F = np.float32


def test_an_index_into_a_dimension_of_one_is_not_read() -> None:
    for size, expected in ((1, {0}), (7, {0, 1})):
        picked = load(1, DType.INT32, (axis(0),))
        expr = call("exp", load(0, DType.FLOAT32, (picked, axis(1))))
        types = {
            "x": TensorType(DType.FLOAT32, (size, 4)),
            "i": TensorType(DType.INT32, (3,)),
            "y": TensorType(DType.FLOAT32, (3, 4)),
        }
        node = Node("loop", "pick", ("x", "i"), ("y",), Loop(expr=expr))
        assert operands_read(expr, node, Graph("test", ("x", "i"), ("y",), (node,), types, {})) == expected


@pytest.mark.parametrize(
    ("first", "is_guarded", "expected"), [((0, 0), False, 2), ((0, 1), False, 1), ((0, 0), True, 0)]
)
def test_what_a_row_has_in_common_is_loaded_before_it(first: tuple[int, int], is_guarded: bool, expected: int) -> None:
    """The compiler expects that a store of int8 changes any operand. A load under a condition stays there."""
    mean, scale = (
        load(n, DType.FLOAT32, (axis(0), axis(1) if differs else number(0))) for n, differs in enumerate(first)
    )
    element = call("mul", call("sub", load(2, DType.FLOAT32, (axis(0), axis(1))), mean), scale)
    if is_guarded:
        element = call("where", call("less", element, mean, dtype=DType.BOOL), mean, element)
    types = {name: TensorType(DType.FLOAT32, (3, size)) for name, size in (("m", 4), ("s", 4), ("x", 4))}
    types["y"] = TensorType(DType.INT8, (3, 4))
    expr = call("quantize", element, const(0.5, DType.FLOAT32), const(0, DType.INT32), dtype=DType.INT8)
    node = Node("loop", "rows", ("m", "s", "x"), ("y",), Loop(expr=expr))
    graph = Graph("test", ("m", "s", "x"), ("y",), (node,), types, {})
    body = LoopNest().emit(node, graph, HOST).body
    assert len(re.findall(r"const float u\d = ", body.split("for (int32_t j")[0])) == expected


@pytest.mark.parametrize("op", ["Gather", "Resize", "TfIdfVectorizer", "TopK", "Conv"])
def test_each_parameter_is_read_or_written(op: str) -> None:
    """A function takes what it uses and no more, or the compiler warns of it."""
    constants = (
        {"w": np.ones((2, 2, 3, 3), F)}
        if op == "Conv"
        else {"k": np.array([0], np.int64) if op == "Gather" else np.array([1], np.int64)}
    )
    attrs: dict[str, object] = {}
    shape, kind, inputs, outputs = (1, 2, 4, 4), F, ["x", *constants], ["y"]
    if op == "Resize":
        constants = {"s": np.array([1, 1, 2, 2], F)}
        inputs = ["x", "", "s"]
    elif op == "TopK":
        outputs = ["y", "i"]
    elif op == "TfIdfVectorizer":
        attrs = {
            "mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0],
            "ngram_indexes": [0, 1], "pool_int64s": [2, 3],
        }  # fmt: skip
        shape, kind, inputs, constants = (6,), np.int64, ["x"], {}
    proto = model([helper.make_node(op, inputs, outputs, **attrs)], {"x": (kind, shape)}, outputs, constants)
    for function in emit_functions(compiled(proto, HOST)).functions:
        words = set(re.findall(r"\w+", function.kernel.body))
        assert {argument.name for argument in function.kernel.arguments} <= words
        assert {*function.kernel.constants} <= {argument.name for argument in function.kernel.arguments}


@pytest.mark.parametrize("moves", [True, False])
def test_small_floats_ask_for_their_header_where_they_are_computed_with(moves: bool) -> None:
    node = (
        helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
        if moves
        else helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    )
    proto = model([node], {"x": (ml_dtypes.float8_e4m3fn, (2, 3))}, ["y"], opset=21)
    files, _ = codegen.generate(compiled(proto, HOST), "test.onnx", "0" * 64)
    source = files.text("test.c")
    assert ("mt_float8.h" in source) == ("mt_float8_" in source) == (not moves)


@pytest.mark.parametrize("interface", ["c", "step"])
@pytest.mark.parametrize("io", ["arena", "external"])
def test_the_structures_of_the_caller_are_named_where_they_are_read(interface: str, io: str) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    plan = compiled(model(nodes, {"x": (F, (1, 4))}, ["y"], {"w": np.ones((4, 3), F)}), HOST)
    plan = make_plan(plan.graph, HOST, io)  # type: ignore[arg-type]
    files, _ = codegen.generate(plan, "test.onnx", "0" * 64, Conventions(interface=interface))  # type: ignore[arg-type]
    source = files.text("test.c")
    for kind in ("inputs", "outputs"):
        assert (f"(void){kind};" in source) == (f"{kind}->" not in source)


def test_elements_by_fours_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    """Where a round takes instructions of its own; an axis's last elements come one by one."""
    dequantized = [helper.make_node("DequantizeLinear", [name, f"{name}s"], [f"{name}f"]) for name in "xc"]
    nodes = [
        *dequantized, helper.make_node("Add", ["xf", "xf"], ["a"]), helper.make_node("Mul", ["xf", "cf"], ["m"]),
        *(helper.make_node("QuantizeLinear", [name, "s"], [f"{name}q"]) for name in "am"),
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), helper.make_node("Neg", ["z"], ["n"]),
    ]  # fmt: skip
    shape, rng, outputs = (3, 67, 31), np.random.default_rng(0), ["aq", "mq", "t", "n"]
    feeds = {"x": rng.integers(-128, 128, shape).astype(np.int8), "z": rng.integers(-99, 99, shape).astype(np.int32)}
    constants = {"xs": F(0.02), "cs": F(0.3), "s": F(0.05), "c": rng.integers(-128, 128, (67, 1)).astype(np.int8)}
    proto = model(nodes, {name: (data.dtype.type, shape) for name, data in feeds.items()}, outputs, constants)
    made = []
    for target in (HOST, Target("cortex-m4", frozenset({"dsp", "fpu"}))):
        plan = compiled(proto, target)
        found = [" += 4)" in function.kernel.body for function in emit_functions(plan).functions]
        assert found == [target is not HOST] * len(outputs)
        (tmp_path / target.cpu).mkdir()
        made.append(run_c(plan, feeds, tmp_path / target.cpu))
    for name, plain, fours in zip(outputs, *made, strict=True):
        np.testing.assert_array_equal(plain, fours, err_msg=name)
